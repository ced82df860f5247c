//! The target: its Scale, its selector, and sizes outside the bounds.

use keleustes_objects::{ApiError, ErrorReason};

use super::*;

/// Proves HPA-14, HPA-149, HPA-113, HPA-170.
#[test]
fn target_without_a_scale_changes_one_condition_only() {
    let outcome = |reference: Value| {
        let a_loop = the_loop();
        let mut autoscaler = with_spec(|spec| spec["scaleTargetRef"] = reference);
        autoscaler["status"] = json!({"currentReplicas": 3, "desiredReplicas": 3, "observedGeneration": 1});
        let mut cluster = RehearsalCluster::of(&a_loop).with_discovery(Ok(discovery()));
        cluster.put::<HorizontalPodAutoscaler>(&a_loop, autoscaler);
        cluster.reconcile(&a_loop, key())
    };
    let transcript = outcome(json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}));
    let missing = "the server could not find the requested resource";
    assert_eq!(events(&transcript), [format!("Warning FailedGetScale: {missing}")]);
    assert_eq!(
        condition(&transcript, "AbleToScale"),
        format!(
            "False FailedGetScale: the HPA controller was unable to get the target's current scale: {missing}"
        )
    );
    let status = status(&transcript);
    assert_eq!(
        (
            &status["desiredReplicas"],
            &status["observedGeneration"],
            status["conditions"].as_array().unwrap().len()
        ),
        (&json!(3), &json!(1), 1)
    );
    assert!(transcript.contains("reconciliations_total{none,internal} 1"));
    let no_match = |kind: &str, group: &str| {
        format!("Warning FailedGetScale: no matches for kind {kind:?} in group {group:?}")
    };
    for (api_version, kind, group) in [
        ("v1", "Deployment", ""),
        ("", "Deployment", ""),
        ("extensions/v1beta1", "Deployment", "extensions"),
        ("apps/v1", "DEPLOYMENT", "apps"),
    ] {
        let transcript = outcome(json!({"apiVersion": api_version, "kind": kind, "name": "web"}));
        assert_eq!(events(&transcript), [no_match(kind, group)]);
    }
    let transcript = outcome(json!({"apiVersion": "a/b/c", "kind": "Deployment", "name": "web"}));
    assert_eq!(events(&transcript), ["Warning FailedGetScale: unexpected GroupVersion string: a/b/c"]);
    assert!(transcript.contains("reconciliations_total{none,spec} 1"));
    for kind in ["deployment", "Deployment"] {
        let transcript = outcome(json!({"apiVersion": "apps/v9", "kind": kind, "name": "web"}));
        assert!(transcript.contains(&format!("get {SCALE}\n")), "{transcript}");
    }
}

/// Proves HPA-12, HPA-13, HPA-150, HPA-151, HPA-164.
#[test]
fn scale_of_any_kind_is_read_in_the_namespace_of_the_autoscaler() {
    let path = "/apis/example.com/v1/namespaces/shop/widgets/web/scale";
    let a_loop = the_loop();
    let autoscaler = with_spec(|spec| {
        spec["scaleTargetRef"] = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"});
    });
    let (pods, metrics) = loaded(&[1000]);
    let run = |discovery: DiscoveredResources| {
        let mut cluster = cluster(&a_loop, autoscaler.clone(), 1, &pods)
            .with_discovery(Ok(discovery))
            .with_response(POD_METRICS, metrics.clone())
            .with_response(path, scale(1, 1));
        cluster.reconcile(&a_loop, key())
    };
    let transcript = run(discovery());
    assert!(transcript.contains("put widgets.example.com/scale shop/web"), "{transcript}");
    let mut failing = discovery();
    failing.failed.insert("metrics.k8s.io/v1beta1".to_owned(), "down".to_owned());
    assert!(run(failing).contains(&format!("get {path}")), "a failed group is only missing itself");
    let mut without = discovery();
    without.resources[3].subresources.clear();
    let transcript = run(without);
    assert!(!transcript.contains("put widgets"), "{transcript}");
    assert!(
        transcript.contains("could not find proper group-version for scale subresource of example.com/v1")
    );
    let a_loop = the_loop();
    let error = ApiError::transport(ErrorReason::Unavailable, "no discovery");
    let mut cluster = cluster(&a_loop, autoscaler, 1, &[]).with_discovery(Err(error));
    assert_eq!(events(&cluster.reconcile(&a_loop, key())), ["Warning FailedGetScale: no discovery"]);
}

/// DeploymentConfigs of OpenShift have a Scale of extensions/v1beta1, whose `status.selector` is a map.
///
/// Proves HPA-13.
#[test]
fn scale_of_extensions_is_read_and_written_in_its_version() {
    let a_loop = the_loop();
    let autoscaler = with_spec(|spec| {
        spec["scaleTargetRef"] = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"});
    });
    let (pods, metrics) = loaded(&[1000]);
    let mut target = scale(1, 1);
    target["apiVersion"] = json!("extensions/v1beta1");
    target["status"] = json!({"replicas": 1, "selector": {"app": "web"}, "targetSelector": "app=web"});
    let mut cluster = cluster(&a_loop, autoscaler, 1, &pods)
        .with_response(POD_METRICS, metrics)
        .with_response("/apis/example.com/v1/namespaces/shop/widgets/web/scale", target);
    let transcript = cluster.reconcile(&a_loop, key());
    let written = transcript.lines().find(|line| line.starts_with("put widgets.example.com/scale shop/web"));
    let written = written.unwrap_or_else(|| panic!("{transcript}"));
    assert!(written.contains(r#""apiVersion":"extensions/v1beta1""#), "{written}");
    assert!(written.contains(r#""replicas":2"#), "{written}");
}

/// Proves HPA-150.
#[test]
fn failed_root_of_discovery_is_named_instead_of_a_missing_kind() {
    let without_groups = || {
        let mut discovered = discovery();
        discovered.resources.retain(|one| one.resource.group.is_empty());
        discovered.versions.clear();
        discovered.failed.insert("apis".to_owned(), "the server is down".to_owned());
        discovered
    };
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop, autoscaler(), 1, &[]).with_discovery(Ok(without_groups()));
    assert_eq!(events(&cluster.reconcile(&a_loop, key())), ["Warning FailedGetScale: the server is down"]);
    let a_loop = the_loop();
    let autoscaler = with_spec(|spec| {
        spec["scaleTargetRef"] = json!({"apiVersion": "v1", "kind": "Service", "name": "web"});
        spec["metrics"] = json!([pods_metric("1")]);
    });
    let mut cluster = super::cluster(&a_loop, autoscaler, 1, &[pod("a")])
        .with_discovery(Ok(without_groups()))
        .with_response("/api/v1/namespaces/shop/services/web/scale", scale(1, 1));
    let transcript = cluster.reconcile(&a_loop, key());
    assert!(
        events(&transcript)[0]
            .ends_with("unable to fetch metrics from custom metrics API: the server is down"),
        "{transcript}"
    );
}

/// Proves HPA-17, HPA-19, HPA-20, HPA-135.
#[test]
fn sizes_outside_the_bounds_are_corrected_without_metrics() {
    let a_loop = the_loop();
    let outcome = |size: i32, autoscaler: Value| {
        let mut cluster = cluster(&a_loop, autoscaler, size, &[]);
        cluster.reconcile(&a_loop, key())
    };
    let mut with_metrics = autoscaler();
    with_metrics["status"] = json!({"currentMetrics": [{"type": ""}], "desiredReplicas": 1});
    let transcript = outcome(12, with_metrics);
    assert_eq!(written_size(&transcript), Some(10));
    assert_eq!(
        events(&transcript),
        ["Normal SuccessfulRescale: New size: 10; reason: Current number of replicas above Spec.MaxReplicas"]
    );
    assert!(status(&transcript).get("currentMetrics").is_none());
    assert!(
        condition(&transcript, "ScalingActive").is_empty()
            && condition(&transcript, "ScalingLimited").is_empty()
    );
    assert!(!transcript.contains("metrics.k8s.io"));
    let transcript = outcome(2, with_spec(|spec| spec["minReplicas"] = json!(5)));
    assert_eq!(written_size(&transcript), Some(5));
    assert!(events(&transcript)[0].ends_with("reason: Current number of replicas below Spec.MinReplicas"));
    let (pods, metrics) = loaded(&[1]);
    let autoscaler = with_spec(|spec| drop(spec.as_object_mut().unwrap().remove("minReplicas")));
    let a_loop = the_loop();
    let mut cluster = super::cluster(&a_loop, autoscaler, 1, &pods).with_response(POD_METRICS, metrics);
    assert_eq!(written_size(&cluster.reconcile(&a_loop, key())), None, "the minimum is 1");
}

/// Proves HPA-21, HPA-22, HPA-127.
#[test]
fn target_that_someone_scaled_to_zero_is_left_alone() {
    let transcript = reconciled(autoscaler(), 0, &[]);
    assert_eq!(written_size(&transcript), None);
    assert!(events(&transcript).is_empty());
    assert_eq!(
        condition(&transcript, "ScalingActive"),
        "False ScalingDisabled: scaling is disabled since the replica count of the target is zero"
    );
    assert!(condition(&transcript, "AbleToScale").starts_with("True SucceededGetScale"));
    assert_eq!(status(&transcript)["desiredReplicas"], 0);
    assert!(transcript.contains("requeue after 15s"));
    assert!(transcript.contains("desired_replicas{shop,web} 0"));
}

/// Proves HPA-133.
#[test]
fn gate_off_leaves_no_way_back_from_zero() {
    let a_loop = with_options(|options| options.scale_to_zero = false);
    let mut autoscaler = with_spec(|spec| spec["metrics"] = json!([external(json!({"value": "1"}))]));
    autoscaler["status"] = json!({"desiredReplicas": 0,
        "conditions": [{"type": "ScaledToZero", "status": "True", "lastTransitionTime": NOW}]});
    let mut cluster = cluster(&a_loop, autoscaler, 0, &[]);
    let transcript = cluster.reconcile(&a_loop, key());
    assert!(condition(&transcript, "ScalingActive").contains("ScalingDisabled"));
    assert_eq!(condition(&transcript, "ScaledToZero"), "");
}

const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue";

/// Proves HPA-96, HPA-100, HPA-101, HPA-65, HPA-128, HPA-129, HPA-165.
#[test]
fn target_is_scaled_to_zero_and_back() {
    let a_loop = with_options(|options| options.downscale_stabilization = Duration::from_secs(10));
    let original = with_spec(|spec| {
        spec["minReplicas"] = json!(0);
        spec["metrics"] = json!([external(json!({"type": "Value", "value": "10"}))]);
    });
    let mut cluster = cluster(&a_loop, original.clone(), 1, &[pod("a")]).with_response(QUEUE, values(&["0"]));
    cluster.reconcile(&a_loop, key());
    cluster.advance_clock(PERIOD);
    let down = cluster.reconcile(&a_loop, key());
    assert_eq!(written_size(&down), Some(0));
    assert_eq!(
        condition(&down, "ScaledToZero"),
        "True ScaledToZero: the HPA controller scaled the workload to zero"
    );
    assert!(events(&down)[0].ends_with("New size: 0; reason: All metrics below target"));
    let stored = store(&mut cluster, &a_loop, original.clone(), &down);
    let mut cluster = cluster.with_response(SCALE, scale(0, 0)).with_response(QUEUE, values(&["900"]));
    let up = cluster.reconcile(&a_loop, key());
    assert_eq!(written_size(&up), Some(4), "at most four at once, without pods and tolerance");
    assert_eq!(
        condition(&up, "ScaledToZero"),
        "False NotScaledToZero: the HPA controller did not scale the workload to zero"
    );
    let mut percent = stored.clone();
    percent["spec"]["behavior"] = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}});
    put(&mut cluster, &a_loop, &mut percent);
    assert_eq!(written_size(&cluster.reconcile(&a_loop, key())), None, "twice zero is zero");
    let mut raised = stored;
    raised["spec"]["minReplicas"] = json!(6);
    put(&mut cluster, &a_loop, &mut raised);
    cluster.advance_clock(Duration::from_secs(60));
    let mut cluster = cluster.with_response(QUEUE, values(&["0"]));
    let raised = cluster.reconcile(&a_loop, key());
    assert_eq!(written_size(&raised), Some(6));
    // The status write after a scale to zero was lost: the next reconcile finds a zero of unknown origin.
    let mut original = original;
    put(&mut cluster, &a_loop, &mut original);
    assert!(condition(&cluster.reconcile(&a_loop, key()), "ScalingActive").contains("ScalingDisabled"));
}

/// Proves HPA-126.
#[test]
fn resource_metrics_cannot_leave_zero() {
    let a_loop = the_loop();
    let mut autoscaler = autoscaler();
    autoscaler["status"] = json!({"desiredReplicas": 0,
        "conditions": [{"type": "ScaledToZero", "status": "True", "lastTransitionTime": NOW}]});
    let mut cluster = cluster(&a_loop, autoscaler, 0, &[]).with_response(POD_METRICS, pod_metrics(&[]));
    let transcript = cluster.reconcile(&a_loop, key());
    assert_eq!(written_size(&transcript), None);
    assert!(events(&transcript)[0].starts_with("Warning FailedGetResourceMetric"));
}

/// Proves HPA-24, HPA-29.
#[test]
fn unusable_selector_stops_the_reconcile() {
    let outcome = |selector: &str| {
        let a_loop = the_loop();
        let mut target = scale(2, 2);
        target["status"]["selector"] = json!(selector);
        let mut cluster = cluster(&a_loop, autoscaler(), 2, &[]).with_response(SCALE, target);
        cluster.reconcile(&a_loop, key())
    };
    let transcript = outcome("");
    assert_eq!(
        events(&transcript),
        [
            "Warning SelectorRequired: selector is required",
            "Warning FailedComputeMetricsReplicas: selector is required"
        ]
    );
    assert_eq!(
        condition(&transcript, "ScalingActive"),
        "False InvalidSelector: the HPA target's scale is missing a selector"
    );
    assert!(!transcript.contains("metric_computation_total"));
    assert_eq!(status(&transcript)["currentReplicas"], 2);
}

/// The original converts the Scale before it looks at it: an unparsable selector is a Scale that cannot be read.
#[test]
fn unparsable_selector_is_an_unreadable_scale() {
    let a_loop = the_loop();
    let mut target = scale(2, 2);
    target["status"]["selector"] = json!("=x");
    let mut cluster = cluster(&a_loop, autoscaler(), 2, &[]).with_response(SCALE, target);
    let transcript = cluster.reconcile(&a_loop, key());
    let message = "received an object from a /scale endpoint which was not convertible to autoscaling Scale: failed to \
                   parse target selector: couldn't parse the selector string \"=x\": found '=', expected: !, identifier, \
                   or 'end of string'";
    assert_eq!(events(&transcript), [format!("Warning FailedGetScale: {message}")]);
    assert_eq!(
        condition(&transcript, "AbleToScale"),
        format!(
            "False FailedGetScale: the HPA controller was unable to get the target's current scale: {message}"
        )
    );
    assert_eq!(written_size(&transcript), None);
}

fn second(namespace: &str) -> Value {
    let mut other = autoscaler();
    other["metadata"]["name"] = json!("other");
    other["metadata"]["namespace"] = json!(namespace);
    other["metadata"]["uid"] = json!("u2");
    other
}

/// Proves HPA-27, HPA-28, HPA-134, HPA-152, HPA-169, HPA-153.
#[test]
fn pod_of_two_autoscalers_makes_both_ambiguous() {
    let a_loop = the_loop();
    let finished = changed_pod("web-0", |pod| pod["status"]["phase"] = json!("Succeeded"));
    let mut cluster = cluster(&a_loop, autoscaler(), 1, &[finished])
        .with_response(POD_METRICS, pod_metrics(&[sample("web-0", "500m")]))
        .with_response("/apis/apps/v1/namespaces/else/deployments/web/scale", scale(1, 1));
    cluster.put::<HorizontalPodAutoscaler>(&a_loop, second("shop"));
    cluster.put::<HorizontalPodAutoscaler>(&a_loop, second("else"));
    let first = cluster.reconcile(&a_loop, key());
    assert!(!first.contains("Ambiguous"), "the other selector is not stored yet");
    cluster.reconcile(&a_loop, Key::namespaced("else", "other"));
    assert!(!cluster.reconcile(&a_loop, key()).contains("Ambiguous"), "namespaces are apart");
    let text = "pods by selector app=web are controlled by more than one HPA (e.g. [shop/other shop/web])";
    assert!(cluster.reconcile(&a_loop, Key::namespaced("shop", "other")).contains(text));
    let transcript = cluster.reconcile(&a_loop, key());
    assert_eq!(
        events(&transcript),
        [
            format!("Warning AmbiguousSelector: {text}"),
            format!("Warning FailedComputeMetricsReplicas: {text}")
        ]
    );
    assert_eq!(condition(&transcript, "ScalingActive"), format!("False AmbiguousSelector: {text}"));
    // The stored selector of an autoscaler whose target is gone still counts, until it is deleted.
    let mut gone = second("shop");
    gone["spec"]["scaleTargetRef"]["name"] = json!("gone");
    gone["metadata"]["resourceVersion"] = json!("8");
    cluster.put::<HorizontalPodAutoscaler>(&a_loop, gone);
    cluster.reconcile(&a_loop, Key::namespaced("shop", "other"));
    assert!(cluster.reconcile(&a_loop, key()).contains("Ambiguous"));
    cluster.take::<HorizontalPodAutoscaler>(&a_loop, &Key::namespaced("shop", "other"));
    assert!(!cluster.reconcile(&a_loop, key()).contains("Ambiguous"));
}

/// Proves HPA-26, HPA-7.
#[test]
fn autoscaler_that_is_deregistered_meanwhile_is_not_scaled() {
    let a_loop = the_loop();
    let (pods, metrics) = loaded(&[1000]);
    let mut cluster = cluster(&a_loop, autoscaler(), 1, &pods).with_response(POD_METRICS, metrics);
    cluster.take::<HorizontalPodAutoscaler>(&a_loop, &key());
    let mut cluster = cluster.with::<HorizontalPodAutoscaler>(autoscaler());
    let transcript = cluster.reconcile(&a_loop, key());
    assert_eq!(
        events(&transcript),
        ["Warning FailedComputeMetricsReplicas: HPA shop/web was deleted during reconciliation"]
    );
    assert!(condition(&transcript, "ScalingActive").is_empty() && written_size(&transcript).is_none());
}
