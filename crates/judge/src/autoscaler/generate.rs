//! Generates situations of autoscalers from a seed.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Options, Response, START, Situation, Step};

/// Generates this many situations.
#[must_use]
pub fn situations(seed: u64, number: usize) -> Vec<Situation> {
    let mut rng = Rng::with_seed(seed);
    (0..number).map(|_| situation(&mut rng)).collect()
}

fn pick<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())].clone()
}

/// Whether one in `n` is chosen.
fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(..n) == 0
}

fn situation(rng: &mut Rng) -> Situation {
    let options = Options {
        tolerance: pick(rng, &[0.1, 0.1, 0.0, 0.05, 0.3]),
        downscale_stabilization: pick(rng, &[300, 300, 60, 0]),
        cpu_initialization_period: pick(rng, &[300, 60, 0]),
        initial_readiness_delay: pick(rng, &[30, 0, 90]),
        scale_to_zero: !one_in(rng, 4),
        generation: !one_in(rng, 6),
        // Other gates depend on it in the original.
        pod_level_resources: true,
    };
    let custom_version = pick(rng, &["v1beta2", "v1beta2", "v1beta1", ""]).to_owned();
    let mut spec = spec(rng);
    let (mut wall, mut size) = (START, rng.i32(0..12));
    let mut steps = Vec::new();
    for number in 0..rng.usize(1..6) {
        if number > 0 {
            wall += pick(rng, &[15_000, 15_000, 1_000, 60_000, 299_000, 300_000, 301_000, 15_500]);
            if one_in(rng, 8) {
                spec = self::spec(rng);
            }
            size = (size + rng.i32(-3..5)).clamp(0, 40);
        }
        steps.push(step(rng, wall, number, &spec, size, &custom_version));
    }
    Situation { options, custom_version, steps }
}

fn spec(rng: &mut Rng) -> Value {
    let max = rng.i32(1..30);
    let mut metrics: Vec<Value> = (0..pick(rng, &[1, 1, 1, 2, 2, 3])).map(|_| metric(rng)).collect();
    if one_in(rng, 40) {
        metrics.push(json!({"type": "Later"}));
    }
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": max, "metrics": metrics,
    });
    if !one_in(rng, 5) {
        spec["minReplicas"] = json!(rng.i32(0..=max));
    }
    if one_in(rng, 30) {
        let kind = pick(rng, &["deployment", "Daemon", "Deployment"]);
        let version = pick(rng, &["apps/v1", "v1", "a/b/c", "apps/v9", "extensions/v1beta1"]);
        spec["scaleTargetRef"] = json!({"apiVersion": version, "kind": kind, "name": "web"});
    }
    if one_in(rng, 2) {
        spec["behavior"] = json!({"scaleUp": rules(rng, true), "scaleDown": rules(rng, false)});
    }
    spec
}

/// Rules as a server stores them, with its defaults.
fn rules(rng: &mut Rng, is_up: bool) -> Value {
    let policies: Vec<Value> = (0..rng.usize(1..3))
        .map(|_| {
            let r#type = if one_in(rng, 30) { "Later" } else { pick(rng, &["Pods", "Percent"]) };
            json!({"type": r#type, "value": pick(rng, &[1, 4, 10, 33, 80, 100]),
                "periodSeconds": pick(rng, &[15, 60, 300])})
        })
        .collect();
    let mut rules =
        json!({"selectPolicy": pick(rng, &["Max", "Max", "Min", "Disabled"]), "policies": policies});
    if is_up || one_in(rng, 2) {
        rules["stabilizationWindowSeconds"] = json!(pick(rng, &[0, 0, 15, 60, 300]));
    }
    if one_in(rng, 3) {
        rules["tolerance"] = json!(pick(rng, &["0", "50m", "0.2", "1"]));
    }
    rules
}

fn metric(rng: &mut Rng) -> Value {
    // A ratio that exceeds an int32 depends on the architecture in the original; see docs/differences/controllers.md.
    let utilization = |rng: &mut Rng, resource: &str| {
        if one_in(rng, 3) {
            let values = if resource == "cpu" { ["100m", "500m", "1"] } else { ["10k", "1500k", "20Mi"] };
            json!({"type": "AverageValue", "averageValue": pick(rng, &values)})
        } else if one_in(rng, 20) {
            json!({"type": "Utilization"})
        } else {
            json!({"type": "Utilization", "averageUtilization": pick(rng, &[10, 50, 60, 80, 150])})
        }
    };
    let mut identifier = json!({"name": pick(rng, &["hits", "queue"])});
    if one_in(rng, 5) {
        identifier["selector"] = pick(
            rng,
            &[
                json!({"matchLabels": {"b": "2", "a": "1"}}),
                json!({}),
                json!({"matchExpressions": [{"key": "z", "operator": "In", "values": ["y", "x"]}]}),
                json!({"matchExpressions": [{"key": "z", "operator": "Near"}]}),
                json!({"matchExpressions": [{"key": "z", "operator": "Exists"}], "matchLabels": {"c": "d"}}),
            ],
        );
    }
    let target = |rng: &mut Rng| match rng.u8(..12) {
        0..6 => json!({"type": "Value", "value": pick(rng, &["10", "500m", "3"])}),
        6..11 => json!({"type": "AverageValue", "averageValue": pick(rng, &["10", "500m", "3"])}),
        _ => json!({"type": "Value"}),
    };
    match rng.u8(..10) {
        0..4 => {
            let name = pick(rng, &["cpu", "cpu", "memory"]);
            json!({"type": "Resource", "resource": {"name": name, "target": utilization(rng, name)}})
        }
        4 => {
            let name = pick(rng, &["cpu", "memory"]);
            json!({"type": "ContainerResource", "containerResource": {"name": name,
                "container": pick(rng, &["main", "side", "gone"]), "target": utilization(rng, name)}})
        }
        5 | 6 => json!({"type": "Pods", "pods": {"metric": identifier,
            "target": {"type": "AverageValue", "averageValue": pick(rng, &["10", "500m"])}}}),
        7 => json!({"type": "Object", "object": {"metric": identifier, "target": target(rng),
            "describedObject": pick(rng, &[json!({"apiVersion": "v1", "kind": "Service", "name": "web"}),
                json!({"apiVersion": "v1", "kind": "Namespace", "name": "other"}),
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}),
                json!({"apiVersion": "x.io/v1", "kind": "Odd", "name": "web"})])}}),
        _ => json!({"type": "External", "external": {"metric": identifier, "target": target(rng)}}),
    }
}

fn time(wall: i64) -> String {
    jiff::Timestamp::from_second(wall.div_euclid(1000)).unwrap_or_default().to_string()
}

fn step(rng: &mut Rng, wall: i64, number: usize, spec: &Value, size: i32, custom_version: &str) -> Step {
    let pods: Vec<Value> = (0..rng.usize(..6)).map(|number| pod(rng, wall, number)).collect();
    let mut autoscaler = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "generation": number + 1},
        "spec": spec,
    });
    if number == 0 && one_in(rng, 3) {
        let condition = json!({"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero", "message": "m",
            "lastTransitionTime": time(wall - 90_000)});
        autoscaler["status"] =
            json!({"currentReplicas": size, "desiredReplicas": size, "conditions": [condition]});
    }
    let mut responses = BTreeMap::new();
    let ok = |body: Value| Response { code: 200, body };
    let selector = if one_in(rng, 30) { pick(rng, &["", "=x", "app in (web),!x"]) } else { "app=web" };
    let exists = if one_in(rng, 4) { (size + rng.i32(-2..3)).max(1) } else { size.max(1) };
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "web", "namespace": "shop", "uid": "d1", "resourceVersion": "50"},
        "spec": {"replicas": size}, "status": {"replicas": exists, "selector": selector}});
    if !one_in(rng, 30) {
        responses.insert("/apis/apps/v1/namespaces/shop/deployments/web/scale".to_owned(), ok(scale));
    }
    if !one_in(rng, 15) {
        let path = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods".to_owned();
        responses.insert(path, resource_metrics(rng, wall, pods.len()));
    }
    custom_and_external(rng, wall, pods.len(), custom_version, &mut responses);
    let mut others = BTreeMap::new();
    if one_in(rng, 15) {
        others.insert("other".to_owned(), pick(rng, &["app=web", "app=other", "app"]).to_owned());
    }
    let scale_writes = if one_in(rng, 10) {
        pick(rng, &[vec![409], vec![409; 4], vec![409; 5], vec![403]])
    } else {
        Vec::new()
    };
    Step { wall, autoscaler, others, pods, responses, scale_writes }
}

fn pod(rng: &mut Rng, wall: i64, number: usize) -> Value {
    let started = wall - pick(rng, &[3_600_000, 3_600_000, 299_000, 300_000, 301_000, 30_000, 59_000]);
    let changed = started + pick(rng, &[0, 5_000, 29_000, 30_000, 31_000, 100_000]).min(wall - started);
    let requests = |rng: &mut Rng| {
        let cpu = pick(rng, &["100m", "1", "500m", "1500m"]);
        if one_in(rng, 25) { json!({"memory": "100Mi"}) } else { json!({"cpu": cpu, "memory": "100Mi"}) }
    };
    let mut containers = vec![json!({"name": "main", "resources": {"requests": requests(rng)}})];
    if one_in(rng, 3) {
        containers.push(json!({"name": "side", "resources": {"requests": requests(rng)}}));
    }
    let mut pod = json!({
        "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format!("p{number}"),
            "resourceVersion": "3", "labels": {"app": if one_in(rng, 25) { "other" } else { "web" }}},
        "spec": {"containers": containers},
        "status": {"phase": pick(rng, &["Running", "Running", "Running", "Running", "Pending", "Failed", "Succeeded"]),
            "startTime": time(started), "conditions": [{"type": "Ready",
                "status": pick(rng, &["True", "True", "True", "False", "Unknown"]), "lastTransitionTime": time(changed)}]},
    });
    if one_in(rng, 15) {
        pod["metadata"]["deletionTimestamp"] = json!(time(wall));
        pod["metadata"]["finalizers"] = json!(["a/b"]);
    }
    if one_in(rng, 20) {
        pod["status"]["conditions"] = json!([]);
    }
    if one_in(rng, 20) {
        pod["status"]["startTime"] = Value::Null;
    }
    if one_in(rng, 8) {
        pod["spec"]["initContainers"] = json!([
            {"name": "setup", "resources": {"requests": {"cpu": "3"}}},
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": requests(rng)}}]);
    }
    if one_in(rng, 8) {
        pod["spec"]["resources"] =
            pick(rng, &[json!({"requests": {"cpu": "2"}}), json!({"requests": {"memory": "1Gi"}})]);
        pod["spec"]["overhead"] = json!({"cpu": "100m"});
    }
    pod
}

fn resource_metrics(rng: &mut Rng, wall: i64, pods: usize) -> Response {
    if one_in(rng, 20) {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "ServiceUnavailable",
            "message": "down", "code": 503});
        return Response { code: 503, body };
    }
    let mut items = Vec::new();
    for number in 0..pods + usize::from(one_in(rng, 10)) {
        if one_in(rng, 7) {
            continue;
        }
        let usage = |rng: &mut Rng| {
            let cpu = pick(rng, &["0", "50m", "100m", "450m", "550m", "1", "1u", "2500m", "0.5"]);
            if one_in(rng, 25) {
                json!({"memory": "50Mi"})
            } else {
                json!({"cpu": cpu, "memory": pick(rng, &["50Mi", "1000", "99999999"])})
            }
        };
        let mut containers = vec![json!({"name": "main", "usage": usage(rng)})];
        if one_in(rng, 3) {
            containers.push(json!({"name": "side", "usage": usage(rng)}));
        }
        let at = wall - pick(rng, &[0, 15_000, 29_000, 30_000, 60_000]);
        items.push(
            json!({"metadata": {"name": format!("web-{number}"), "namespace": "shop"}, "timestamp": time(at),
            "window": pick(rng, &["30s", "10.5s", "1m0s"]), "containers": containers}),
        );
    }
    let body = json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items});
    Response { code: 200, body }
}

fn custom_and_external(
    rng: &mut Rng,
    wall: i64,
    pods: usize,
    version: &str,
    responses: &mut BTreeMap<String, Response>,
) {
    let amounts = ["-5", "0", "5", "10", "10500m", "11", "25", "100", "1500m"];
    // Negative sums of external metrics are a listed difference.
    let external_amounts = &amounts[1..];
    for name in ["hits", "queue"] {
        if !one_in(rng, 10) {
            let items: Vec<Value> = (0..rng.usize(..4))
                .map(|_| json!({"metricName": name, "metricLabels": {}, "timestamp": time(wall), "value": pick(rng, external_amounts)}))
                .collect();
            let body = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
                "metadata": {}, "items": items});
            responses.insert(
                format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/{name}"),
                Response { code: 200, body },
            );
        }
        if version.is_empty() {
            continue;
        }
        let value = |rng: &mut Rng, object: String| {
            let mut item = json!({"describedObject": {"kind": "Pod", "namespace": "shop", "name": object, "apiVersion": "v1"},
                "timestamp": time(wall), "value": pick(rng, &amounts)});
            let window = pick(rng, &[30, 60]);
            if version == "v1beta1" {
                item["metricName"] = json!(name);
                item["window"] = json!(window);
            } else {
                item["metric"] = json!({"name": name});
                item["windowSeconds"] = json!(window);
            }
            item
        };
        let list = |items: Vec<Value>| Response {
            code: 200,
            body: json!({"kind": "MetricValueList", "apiVersion": format!("custom.metrics.k8s.io/{version}"),
                "metadata": {}, "items": items}),
        };
        let base = format!("/apis/custom.metrics.k8s.io/{version}/namespaces/shop");
        let samples = (0..pods + usize::from(one_in(rng, 8))).filter(|_| rng.u8(..7) > 0).collect::<Vec<_>>();
        let samples: Vec<_> = samples.into_iter().map(|number| value(rng, format!("web-{number}"))).collect();
        responses.insert(format!("{base}/pods/*/{name}"), list(samples));
        for object in ["services/web", "deployments.apps/web", "metrics"] {
            if one_in(rng, 10) {
                continue;
            }
            let items: Vec<_> =
                (0..if one_in(rng, 10) { 2 } else { 1 }).map(|_| value(rng, "web".to_owned())).collect();
            responses.insert(format!("{base}/{object}/{name}"), list(items));
        }
    }
}
