//! The metrics APIs.

use super::super::metrics::MetricsSource;
use super::*;

const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";

/// 300m and 1 Mi for each pod of a controller, divided by the number of ready ones; nothing on the node `dark`.
fn usage(_: &Value, controller: &Value, node: &Value, ready: u64, _: Timestamp) -> Option<(u64, u64)> {
    let is_dark = node["metadata"]["name"] == "dark";
    let cpu = if controller.is_null() { 1 } else { 300_000_000 / ready.max(1) };
    (!is_dark).then_some((cpu, 1 << 20))
}

fn external(config_map: &Value, _: Timestamp) -> Vec<(String, i64)> {
    let data = config_map["data"].as_object().into_iter().flatten();
    data.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.parse().ok()?))).collect()
}

fn server() -> TestServer {
    let metrics = Some(MetricsSource { pod_usage: usage, external });
    TestServer::with(KernelOptions { metrics, rbac: true, bootstrap: true, ..KernelOptions::default() })
}

fn running_pod(server: &mut TestServer, name: &str, node: &str, owner: Option<&Value>, is_ready: bool) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]},
    });
    if let Some(owner) = owner {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
    }
    let now = server.now;
    server.kernel.seed(pod, now).unwrap();
}

fn admin_reads(server: &mut TestServer, path: &str) -> (u16, Value) {
    server.send_as(&User::admin(), Method::GET, path, &Value::Null)
}

#[test]
fn usage_of_pods_is_selected_by_label_and_name() {
    let mut server = server();
    let (_, set) = server.send_as(
        &User::admin(),
        Method::POST,
        "/apis/apps/v1/namespaces/default/replicasets",
        &replica_set("set"),
    );
    running_pod(&mut server, "one", "n", Some(&set), true);
    running_pod(&mut server, "two", "n", Some(&set), true);
    running_pod(&mut server, "unready", "n", Some(&set), false);
    running_pod(&mut server, "bare", "n", None, true);
    running_pod(&mut server, "unseen", "dark", None, true);
    let now = server.now;
    for name in ["n", "dark"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        server.kernel.seed(node, now).unwrap();
    }
    let (code, list) = admin_reads(&mut server, &format!("{PODS}?labelSelector=app%3Da"));
    assert_eq!((code, &list["kind"]), (200, &json!("PodMetricsList")));
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["bare", "one", "two", "unready"]);
    // 300m for two ready pods, in two containers.
    assert_eq!(
        list["items"][1]["containers"],
        json!([{"name": "c", "usage": {"cpu": "75000000n", "memory": "512Ki"}},
               {"name": "d", "usage": {"cpu": "75000000n", "memory": "512Ki"}}])
    );
    assert_eq!(list["items"][1]["window"], "10s");
    assert_eq!(admin_reads(&mut server, &format!("{PODS}?labelSelector=app%3Db")).1["items"], json!([]));
    let (code, one) = admin_reads(&mut server, &format!("{PODS}/one"));
    assert_eq!((code, &one["kind"]), (200, &json!("PodMetrics")));
    assert_eq!(admin_reads(&mut server, &format!("{PODS}/unseen")).0, 404);
    let (_, nodes) = admin_reads(&mut server, "/apis/metrics.k8s.io/v1beta1/nodes");
    assert_eq!(nodes["items"][1]["usage"], json!({"cpu": "600000001n", "memory": "4096Ki"}));
}

#[test]
fn metrics_are_discovered_read_only_and_need_permission() {
    let mut server = server();
    let (_, groups) = admin_reads(&mut server, "/apis");
    let served = groups["groups"].to_string();
    assert!(
        served.contains("\"metrics.k8s.io/v1beta1\"") && served.contains("external.metrics.k8s.io/v1beta1")
    );
    let (_, list) = admin_reads(&mut server, "/apis/metrics.k8s.io/v1beta1");
    assert_eq!(list["resources"][1]["verbs"], json!(["get", "list"]));
    for path in [format!("{PODS}?watch=true"), format!("{PODS}/a/status")] {
        assert!(admin_reads(&mut server, &path).0 >= 404, "{path}");
    }
    let (code, _) = server.send_as(&User::admin(), Method::POST, PODS, &json!({}));
    assert_eq!(code, 405);
    let powerless = User { name: "powerless".to_owned(), ..User::default() };
    assert_eq!(server.send_as(&powerless, Method::GET, PODS, &Value::Null).0, 403);
    assert_eq!(admin_reads(&mut TestServer::new(), PODS).0, 404, "not served without a source");
}

#[test]
fn external_metrics_come_from_config_maps_with_the_selected_labels() {
    let mut server = server();
    for (name, queue, value) in [("a", "mail", "1500"), ("b", "web", "7"), ("c", "mail", "none")] {
        let mut object = labelled(name, "queue", queue);
        object["data"] = json!({"length": value});
        server.send_as(&User::admin(), Method::POST, CONFIG_MAPS, &object);
    }
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/length";
    let (code, list) = admin_reads(&mut server, &format!("{path}?labelSelector=queue%3Dmail"));
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1), "{list}");
    assert_eq!(
        (&list["items"][0]["value"], &list["items"][0]["metricName"]),
        (&json!("1500m"), &json!("length"))
    );
    assert_eq!(admin_reads(&mut server, path).1["items"].as_array().unwrap().len(), 2);
}
