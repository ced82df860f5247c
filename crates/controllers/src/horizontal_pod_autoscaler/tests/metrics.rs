//! Proposals of single metrics.

use super::*;

fn cluster_with(metrics: Value, size: i32, pods: &[Value]) -> (Loop, RehearsalCluster) {
    let a_loop = the_loop();
    let cluster = cluster(&a_loop, with_spec(|spec| spec["metrics"] = metrics), size, pods);
    (a_loop, cluster)
}

/// Proves HPA-15, HPA-36, HPA-40, HPA-41, HPA-48, HPA-54, HPA-60, HPA-80, HPA-98, HPA-103, HPA-104, HPA-120.
#[test]
fn load_above_the_target_scales_up_and_load_within_tolerance_does_not() {
    let transcript = reconciled(autoscaler(), 2, &[800, 800]);
    assert_eq!(written_size(&transcript), Some(4));
    assert_eq!(
        events(&transcript),
        [
            "Normal SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target"
        ]
    );
    let status = status(&transcript);
    assert_eq!(
        (&status["currentReplicas"], &status["desiredReplicas"], &status["observedGeneration"]),
        (&json!(2), &json!(4), &json!(2))
    );
    assert_eq!(status["lastScaleTime"], NOW);
    assert_eq!(
        status["currentMetrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 80, "averageValue": "800m"}}}])
    );
    let types: Vec<_> =
        status["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(types, ["AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"]);
    assert!(
        status["conditions"].as_array().unwrap().iter().all(|one| one.get("observedGeneration").is_none())
    );
    assert_eq!(
        condition(&transcript, "AbleToScale"),
        "True SucceededRescale: the HPA controller was able to update the target scale to 4"
    );
    assert_eq!(
        condition(&transcript, "ScalingActive"),
        "True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource utilization \
         (percentage of request)"
    );
    for usage in [450, 500, 550] {
        let transcript = reconciled(autoscaler(), 2, &[usage, usage]);
        assert_eq!(written_size(&transcript), None, "{usage}");
        assert_eq!(super::status(&transcript)["desiredReplicas"], 2);
    }
    assert_eq!(written_size(&reconciled(autoscaler(), 2, &[560, 560])), Some(3));
    assert_eq!(written_size(&reconciled(autoscaler(), 2, &[449, 449])), None, "held back by the window");
    assert!(condition(&reconciled(autoscaler(), 2, &[440, 440]), "AbleToScale").contains("ReadyForNewScale"));
}

/// Proves HPA-158.
#[test]
fn replicas_are_computed_with_the_rounding_of_floats() {
    let a_loop = the_loop();
    let (pods, metrics) = loaded(&[1240; 15]);
    let autoscaler = with_spec(|spec| {
        spec["metrics"] = json!([cpu(60)]);
        spec["maxReplicas"] = json!(100);
        spec["behavior"] = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]}});
    });
    let mut cluster = cluster(&a_loop, autoscaler, 15, &pods).with_response(POD_METRICS, metrics);
    assert_eq!(written_size(&cluster.reconcile(&a_loop, key())), Some(32));
}

/// Proves HPA-43, HPA-144, HPA-50, HPA-51, HPA-49, HPA-137.
#[test]
fn missing_and_unready_pods_hold_back_scaling_and_ignored_ones_do_not_count() {
    let missing = |usages: &[i64], extra: Value| {
        let (mut pods, metrics) = loaded(usages);
        pods.push(extra);
        let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 3, &pods);
        let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
        (super::status(&transcript)["desiredReplicas"].clone(), transcript)
    };
    // 80% over two pods, 53% with the missing one: within tolerance. The status shows the first ratio.
    let (desired, transcript) = missing(&[800, 800], pod("late"));
    assert_eq!(desired, 3);
    assert_eq!(status(&transcript)["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 80);
    let pending = changed_pod("late", |pod| pod["status"]["phase"] = json!("Pending"));
    assert_eq!(missing(&[800, 800], pending).0, 3, "a pending pod counts as using nothing");
    let failed = changed_pod("late", |pod| pod["status"]["phase"] = json!("Failed"));
    assert_eq!(missing(&[800, 800], failed).0, 4, "a failed pod is ignored");
    let terminating = changed_pod("late", |pod| {
        pod["metadata"]["deletionTimestamp"] = json!(NOW);
        pod["metadata"]["finalizers"] = json!(["a/b"]);
    });
    assert_eq!(missing(&[800, 800], terminating).0, 4, "a terminating pod is ignored");
}

/// Proves HPA-44, HPA-45, HPA-46.
#[test]
fn cpu_usage_of_a_starting_pod_does_not_count() {
    let desired = |change: &dyn Fn(&mut Value)| {
        let (mut pods, metrics) = loaded(&[1000, 1000]);
        change(&mut pods[1]);
        let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 2, &pods);
        let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
        status(&transcript)["desiredReplicas"].as_i64().unwrap()
    };
    assert_eq!(desired(&|_| {}), 4);
    let unready = 2; // 100% of one pod and 0% of the other are the target.
    assert_eq!(desired(&|pod| pod["status"]["startTime"] = Value::Null), unready);
    assert_eq!(desired(&|pod| pod["status"]["conditions"] = json!([])), unready);
    let ready =
        |status: &str, at: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": at}]);
    let young = |pod: &mut Value, status: &str, at: &str| {
        pod["status"]["startTime"] = json!("2027-01-15T07:58:00Z");
        pod["status"]["conditions"] = ready(status, at);
    };
    assert_eq!(desired(&|pod| young(pod, "False", "2027-01-15T07:58:00Z")), unready);
    assert_eq!(desired(&|pod| young(pod, "True", "2027-01-15T07:59:31Z")), unready, "less than a window ago");
    assert_eq!(desired(&|pod| young(pod, "True", "2027-01-15T07:59:30Z")), 4, "a whole window ago");
    assert_eq!(desired(&|pod| young(pod, "Unknown", "2027-01-15T07:59:00Z")), 4);
    assert_eq!(desired(&|pod| pod["status"]["conditions"] = ready("False", "2027-01-15T07:00:29Z")), unready);
    assert_eq!(
        desired(&|pod| pod["status"]["conditions"] = ready("False", "2027-01-15T07:00:30Z")),
        4,
        "was ready once"
    );
}

/// Proves HPA-123, HPA-145.
#[test]
fn a_missing_pod_never_changes_the_direction() {
    let (mut pods, metrics) = loaded(&[450, 400]);
    pods.push(pod("surge"));
    let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 2, &pods);
    let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
    assert_eq!(status(&transcript)["desiredReplicas"], 2);
    let (mut pods, metrics) = loaded(&[500, 500]);
    pods.push(pod("surge"));
    let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 3, &pods);
    let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
    assert_eq!(status(&transcript)["desiredReplicas"], 3, "a ratio of exactly 1");
}

/// Proves HPA-47, HPA-58, HPA-73, HPA-173.
#[test]
fn pods_without_usable_samples_fail_the_metric() {
    let message = |metrics: Option<Value>, pods: &[Value]| {
        let (a_loop, mut cluster) = cluster_with(json!([cpu(50)]), 1, pods);
        if let Some(metrics) = metrics {
            cluster = cluster.with_response(POD_METRICS, metrics);
        }
        let transcript = cluster.reconcile(&a_loop, key());
        assert_eq!(written_size(&transcript), None);
        (events(&transcript)[0].clone(), transcript)
    };
    let (event, transcript) = message(Some(pod_metrics(&[])), &[pod("web-0")]);
    assert_eq!(
        event,
        "Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: no metrics \
         returned from resource metrics API"
    );
    assert!(transcript.contains(&format!("list {POD_METRICS}?labelSelector=app=web\n")), "{transcript}");
    let (event, _) = message(Some(pod_metrics(&[sample("web-0", "1")])), &[]);
    assert!(
        event.ends_with("utilization: no pods returned by selector while calculating replica count"),
        "{event}"
    );
    let empty = json!({"metadata": {"name": "web-0"}, "timestamp": NOW, "window": "30s", "containers": []});
    let (event, _) = message(Some(pod_metrics(&[empty])), &[pod("web-0")]);
    assert!(event.ends_with("did not receive metrics for targeted pods (pods might be unready)"), "{event}");
    // A sample without a pod is no error by itself.
    let known = pod_metrics(&[sample("web-0", "900m"), sample("gone", "100m")]);
    let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 1, &[pod("web-0")]);
    let transcript = cluster.with_response(POD_METRICS, known).reconcile(&a_loop, key());
    assert_eq!(written_size(&transcript), Some(2));
}

/// Proves HPA-55, HPA-56, HPA-121.
#[test]
fn utilization_needs_the_requests_of_every_pod() {
    let outcome = |extra: Value| {
        let (mut pods, metrics) = loaded(&[1000]);
        pods.push(extra);
        let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 1, &pods);
        cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key())
    };
    let without = changed_pod("b", |pod| {
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
        pod["status"]["phase"] = json!("Failed");
    });
    let transcript = outcome(without);
    assert!(transcript.contains("missing request for cpu in container main of Pod b"), "{transcript}");
    let sidecar = changed_pod("b", |pod| {
        pod["spec"]["initContainers"] =
            json!([{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]);
    });
    assert!(outcome(sidecar).contains("missing request for cpu in container proxy of Pod b"));
    let whole = changed_pod("b", |pod| {
        pod["spec"]["resources"] = json!({"requests": {"memory": "1Gi"}});
        pod["spec"]["containers"][0]["resources"] = json!({});
    });
    assert!(outcome(whole).contains("missing pod-level request for cpu in Pod b"));
    let desired = |cpu: &str| {
        let pods = [changed_pod("web-0", |pod| {
            pod["spec"]["resources"] = json!({"requests": {"cpu": cpu}});
            pod["spec"]["overhead"] = json!({"cpu": "1"});
        })];
        let (a_loop, cluster) = cluster_with(json!([super::cpu(50)]), 1, &pods);
        let metrics = pod_metrics(&[sample("web-0", "1")]);
        let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
        status(&transcript)["currentMetrics"][0]["resource"]["current"]["averageUtilization"].clone()
    };
    assert_eq!(desired("3"), 25, "one of three and one of overhead");
}

/// Proves HPA-57.
#[test]
fn container_resource_counts_one_container() {
    let metric = |container: &str| {
        json!([{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": container,
            "target": {"type": "Utilization", "averageUtilization": 50}}}])
    };
    let (pods, metrics) = loaded(&[1000]);
    let (a_loop, cluster) = cluster_with(metric("main"), 1, &pods);
    let transcript = cluster.with_response(POD_METRICS, metrics.clone()).reconcile(&a_loop, key());
    assert_eq!(written_size(&transcript), Some(2));
    assert!(
        events(&transcript)[0]
            .contains("cpu container resource utilization (percentage of request) above target")
    );
    assert_eq!(status(&transcript)["currentMetrics"][0]["containerResource"]["container"], "main");
    let mut other = metrics;
    other["items"][0]["containers"][0]["name"] = json!("side");
    let (a_loop, cluster) = cluster_with(metric("side"), 1, &pods);
    let transcript = cluster.with_response(POD_METRICS, other).reconcile(&a_loop, key());
    assert_eq!(
        events(&transcript)[0],
        "Warning FailedGetContainerResourceMetric: failed to get cpu utilization: container side not found in Pod web-0"
    );
    assert!(
        events(&transcript)[1].contains(
            "first error is: failed to get side container metric value: failed to get cpu utilization: container side"
        )
    );
}

/// Proves HPA-53, HPA-59, HPA-157.
#[test]
fn average_value_of_a_resource_needs_no_requests() {
    let metric = json!([{"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "Utilization", "averageValue": "25Mi"}}}]);
    let pods = [changed_pod("web-0", |pod| pod["spec"]["containers"][0]["resources"] = json!({}))];
    let (a_loop, cluster) = cluster_with(metric, 1, &pods);
    let metrics = pod_metrics(&[sample("web-0", "1n")]);
    let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
    assert_eq!(written_size(&transcript), Some(2));
    assert_eq!(
        status(&transcript)["currentMetrics"][0]["resource"]["current"],
        json!({"averageValue": "50Mi"})
    );
    assert!(events(&transcript)[0].ends_with("reason: memory resource above target"));
    let none = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]);
    let (a_loop, mut cluster) = cluster_with(none, 1, &pods);
    assert_eq!(
        events(&cluster.reconcile(&a_loop, key()))[0],
        "Warning FailedGetResourceMetric: invalid resource metric source: neither an average utilization target nor an \
         average value (usage) target was set"
    );
    let tiny = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "1m"}}}]);
    let (a_loop, cluster) = cluster_with(tiny, 1, &[pod("web-0")]);
    let metrics = pod_metrics(&[sample("web-0", "1n")]);
    let transcript = cluster.with_response(POD_METRICS, metrics).reconcile(&a_loop, key());
    assert_eq!(status(&transcript)["currentMetrics"][0]["resource"]["current"]["averageValue"], "1m");
}

const HITS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/hits";

/// Proves HPA-62, HPA-74, HPA-122, HPA-78.
#[test]
fn pods_metric_averages_all_samples() {
    let (a_loop, cluster) = cluster_with(json!([pods_metric("10")]), 1, &[pod("web-0")]);
    let list = json!({"items": [custom_value("web-0", "1"), custom_value("web-0", "30"), custom_value("other", "10")]});
    let transcript = cluster.with_response(HITS, list).reconcile(&a_loop, key());
    assert!(transcript.contains(&format!("get {HITS}?labelSelector=app=web\n")), "{transcript}");
    assert_eq!(written_size(&transcript), Some(2), "20 on average is twice the target");
    assert_eq!(
        status(&transcript)["currentMetrics"],
        json!([{"type": "Pods", "pods": {"metric": {"name": "hits"}, "current": {"averageValue": "20"}}}])
    );
    assert!(events(&transcript)[0].ends_with("reason: pods metric hits above target"));
    let (a_loop, cluster) = cluster_with(json!([pods_metric("10")]), 1, &[pod("web-0")]);
    let transcript = cluster.with_response(HITS, json!({"items": []})).reconcile(&a_loop, key());
    assert_eq!(
        events(&transcript)[0],
        "Warning FailedGetPodsMetric: unable to get metric hits: no metrics returned from custom metrics API"
    );
}

const SERVICE: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/services/web/hits";

/// Proves HPA-64, HPA-159, HPA-67, HPA-75.
#[test]
fn object_value_scales_by_running_and_ready_pods() {
    let outcome = |value: &str, size: i32, pods: &[Value]| {
        let metric = json!([object(json!({"type": "Value", "value": "10"}))]);
        let (a_loop, cluster) = cluster_with(metric, size, pods);
        let list = json!({"items": [custom_value("web", value)]});
        cluster.with_response(SERVICE, list).reconcile(&a_loop, key())
    };
    let two = [pod("a"), pod("b")];
    let transcript = outcome("20", 2, &two);
    assert!(transcript.contains(&format!("get {SERVICE}\n")), "{transcript}");
    assert_eq!(written_size(&transcript), Some(4));
    assert!(events(&transcript)[0].ends_with("reason: Service metric hits above target"));
    assert_eq!(status(&transcript)["currentMetrics"][0]["object"]["current"], json!({"value": "20"}));
    assert_eq!(status(&transcript)["currentMetrics"][0]["object"]["describedObject"]["name"], "web");
    assert_eq!(written_size(&outcome("11", 2, &[])), None, "within tolerance pods are not needed");
    assert!(events(&outcome("20", 2, &[]))[0].ends_with(
        "unable to calculate ready pods: no pods returned by selector while calculating replica count"
    ));
    let unready = [changed_pod("a", |pod| pod["status"]["conditions"] = json!([]))];
    let transcript = outcome("90", 2, &unready);
    assert!(condition(&transcript, "AbleToScale").contains("ScaleDownStabilized"), "{transcript}");
    assert_eq!(status(&transcript)["desiredReplicas"], 2);
}

/// Proves HPA-66, HPA-68, HPA-124, HPA-125.
#[test]
fn object_average_value_uses_the_replicas_that_exist() {
    let outcome = |metric: Value, spec: i32, status: i32, value: &str| {
        let (a_loop, cluster) = cluster_with(json!([metric]), spec, &[pod("a")]);
        let list = json!({"items": [custom_value("web", value)]});
        let mut cluster = cluster.with_response(SERVICE, list).with_response(SCALE, scale(spec, status));
        cluster.reconcile(&a_loop, key())
    };
    let average = || object(json!({"type": "AverageValue", "averageValue": "10"}));
    let transcript = outcome(average(), 3, 4, "41");
    assert_eq!(written_size(&transcript), Some(4), "within tolerance of the four that exist");
    assert_eq!(
        status(&transcript)["currentMetrics"][0]["object"]["current"],
        json!({"averageValue": "10250m"})
    );
    assert!(
        events(&transcript)[0].ends_with("reason: external metric hits(nil) above target"),
        "{transcript}"
    );
    let transcript = outcome(average(), 1, 0, "30");
    assert_eq!(written_size(&transcript), Some(3), "no replicas exist");
    for target in [
        json!({"type": "Value"}),
        json!({"type": "AverageValue", "value": "1"}),
        json!({"type": "Utilization"}),
    ] {
        assert_eq!(
            events(&outcome(object(target), 1, 1, "1"))[0],
            "Warning FailedGetObjectMetric: invalid object metric source: neither a value target nor an average value \
             target was set"
        );
    }
}

const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue";

/// Proves HPA-70, HPA-71, HPA-77, HPA-138, HPA-143.
#[test]
fn external_series_are_summed() {
    let outcome = |target: Value, size: i32, series: &[&str]| {
        let (a_loop, cluster) = cluster_with(json!([external(target)]), size, &[pod("a"), pod("b")]);
        cluster.with_response(QUEUE, values(series)).reconcile(&a_loop, key())
    };
    let average = json!({"type": "Value", "averageValue": "10", "value": "1"});
    let transcript = outcome(average.clone(), 2, &["20", "20"]);
    assert!(transcript.contains(&format!("list {QUEUE}\n")), "{transcript}");
    assert_eq!(written_size(&transcript), Some(4));
    assert_eq!(
        status(&transcript)["currentMetrics"],
        json!([{"type": "External", "external": {"metric": {"name": "queue"}, "current": {"averageValue": "20"}}}])
    );
    let transcript = outcome(json!({"type": "Value", "value": "10"}), 2, &["10", "5"]);
    assert_eq!(written_size(&transcript), Some(3));
    assert_eq!(status(&transcript)["currentMetrics"][0]["external"]["current"], json!({"value": "15"}));
    assert!(events(&transcript)[0].ends_with("reason: external metric queue(nil) above target"));
    for (impossible, reported) in [
        (["-5"].as_slice(), "reports values with an impossible sum"),
        (["9P", "9P"].as_slice(), "reports values with an impossible sum"),
        (["9E"].as_slice(), "reports an impossible value"),
        (["-9E"].as_slice(), "reports an impossible value"),
    ] {
        let transcript = outcome(average.clone(), 2, impossible);
        assert_eq!(written_size(&transcript), None, "{transcript}");
        assert!(events(&transcript)[0].contains(reported), "{transcript}");
    }
    assert_eq!(written_size(&outcome(average, 2, &["-5", "45"])), Some(4), "the sum is 40");
    assert_eq!(written_size(&outcome(json!({"value": "10"}), 2, &["9P", "9P"])), None);
    let transcript = outcome(json!({"value": "10"}), 2, &["-5"]);
    assert_eq!(status(&transcript)["currentMetrics"][0]["external"]["current"]["value"], "-5");
    assert_eq!(
        events(&outcome(json!({"type": "Value"}), 1, &["1"]))[0],
        "Warning FailedGetExternalMetric: invalid external metric source: neither a value target nor an average value \
         target was set"
    );
    assert_eq!(
        events(&outcome(json!({"value": "1"}), 1, &[]))[..1],
        [
            "Warning FailedGetExternalMetric: unable to get external metric shop/queue/nil: no metrics returned from external \
          metrics API"
        ]
    );
}

/// Proves HPA-161.
#[test]
fn metric_selectors_are_sent_in_canonical_form_and_invalid_ones_send_nothing() {
    let with_selector = |selector: Value| {
        let mut metric = external(json!({"type": "Value", "value": "10"}));
        metric["external"]["metric"]["selector"] = selector;
        let (a_loop, cluster) = cluster_with(json!([metric]), 1, &[pod("a")]);
        cluster.with_response(QUEUE, values(&["30"])).reconcile(&a_loop, key())
    };
    let transcript = with_selector(json!({"matchLabels": {"b": "1"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]}));
    assert!(transcript.contains(&format!("list {QUEUE}?labelSelector=a in (x,y),b=1\n")), "{transcript}");
    assert!(events(&transcript)[0].contains(
        "external metric queue(&LabelSelector{MatchLabels:map[string]string{b: 1,},MatchExpressions:"
    ));
    let transcript = with_selector(json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}));
    assert!(!transcript.contains(QUEUE));
    assert_eq!(
        events(&transcript),
        [
            "Warning FailedGetExternalMetric: \"Near\" is not a valid label selector operator",
            "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get queue \
             external metric value: failed to get external metric queue: \"Near\" is not a valid label selector operator"
        ]
    );
}

/// Proves HPA-162, HPA-160, HPA-76, HPA-154.
#[test]
fn custom_metrics_need_a_served_version_a_mapped_kind_and_plain_names() {
    let first = |metric: Value, discovery: DiscoveredResources| {
        let (a_loop, cluster) = cluster_with(json!([metric]), 1, &[pod("a")]);
        let transcript = cluster.with_discovery(Ok(discovery)).reconcile(&a_loop, key());
        events(&transcript)[0].clone()
    };
    let named = |name: &str| {
        let mut metric = external(json!({"type": "Value", "value": "10"}));
        metric["external"]["metric"]["name"] = json!(name);
        metric
    };
    for odd in ["..", ".", "a/b", "a%2fb"] {
        assert!(first(named(odd), discovery()).contains("invalid resource name"), "{odd}");
    }
    let value = || object(json!({"type": "Value", "value": "10"}));
    let mut unserved = discovery();
    unserved.versions.retain(|one| one.group != "custom.metrics.k8s.io");
    assert_eq!(
        first(value(), unserved),
        "Warning FailedGetObjectMetric: unable to get metric hits on Service shop/web: unable to fetch metrics from custom \
         metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
    );
    let mut newer = discovery();
    newer.versions[1].version = "v7".to_owned();
    assert!(first(value(), newer).ends_with("no known available metric versions found"));
    let mut kind = value();
    kind["object"]["describedObject"] = json!({"apiVersion": "x.io/v1", "kind": "Odd", "name": "o"});
    assert!(first(kind, discovery()).ends_with(
        "API: unable to map kind Odd.x.io to resource: no matches for kind \"Odd\" in group \"x.io\""
    ));
    let mut namespace = value();
    namespace["object"]["describedObject"] = json!({"kind": "Namespace", "name": "elsewhere"});
    let (a_loop, mut cluster) = cluster_with(json!([namespace]), 1, &[pod("a")]);
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits";
    assert!(cluster.reconcile(&a_loop, key()).contains(&format!("get {path}\n")));
}

/// Proves HPA-167.
#[test]
fn nonsense_is_bounded_and_changes_no_replicas() {
    let cpu_of = |value: Value| {
        let mut item = sample("web-0", "1");
        item["containers"][0]["usage"]["cpu"] = value;
        let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 2, &[pod("web-0"), pod("web-1")]);
        cluster
            .with_response(POD_METRICS, pod_metrics(&[item, sample("web-1", "500m")]))
            .reconcile(&a_loop, key())
    };
    for nonsense in [
        json!("NaN"),
        json!("-1"),
        json!("1e"),
        json!({}),
        json!(""),
        json!("1000000000000000000"),
        json!("9E"),
    ] {
        let transcript = cpu_of(nonsense.clone());
        assert_eq!(written_size(&transcript), None, "{nonsense}");
        assert!(
            condition(&transcript, "ScalingActive").starts_with("False FailedGetResourceMetric"),
            "{transcript}"
        );
    }
    let transcript = cpu_of(json!("1000000000000000"));
    assert_eq!(written_size(&transcript), Some(4), "limited to twice the size");
    let mut foreign = sample("web-0", "9");
    foreign["metadata"]["namespace"] = json!("elsewhere");
    let (a_loop, cluster) = cluster_with(json!([cpu(50)]), 1, &[pod("web-0")]);
    let transcript = cluster.with_response(POD_METRICS, pod_metrics(&[foreign])).reconcile(&a_loop, key());
    assert_eq!(written_size(&transcript), None, "samples of another namespace do not count");
}
