//! Which addresses and ports are listed.

use super::*;

/// Proves EP-22, EP-30, EP-32, EP-37, EP-59, EP-87.
#[test]
fn pods_of_the_namespace_that_match_the_selector_are_listed() {
    let mut cluster = TestCluster::with_service(json!({"selector": {"app": "web", "tier": "front"}}));
    let labels = json!({"app": "web", "tier": "front", "more": "x"});
    cluster.pod(pod_with("p1", "10.0.0.1", "/metadata/labels", labels.clone()));
    cluster.pod(not_ready(pod_with("p2", "10.0.0.2", "/metadata/labels", labels.clone())));
    cluster.pod(pod("other", "10.0.0.3"));
    let mut foreign = pod_with("p1", "10.0.0.4", "/metadata/labels", labels);
    set(&mut foreign, "/metadata/namespace", json!("b"));
    cluster.pod(foreign);
    let target =
        |name: &str| json!({"kind": "Pod", "namespace": "a", "name": name, "uid": format!("u-{name}")});
    let wanted = json!([{
        "addresses": [{"ip": "10.0.0.1", "nodeName": "n1", "targetRef": target("p1")}],
        "notReadyAddresses": [{"ip": "10.0.0.2", "nodeName": "n1", "targetRef": target("p2")}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }]);
    assert_eq!(cluster.subsets(), wanted);
}

/// Proves EP-23, EP-24, EP-25, EP-26, EP-88, EP-89.
#[test]
fn phase_address_deletion_and_readiness_decide_how_a_pod_is_listed() {
    let listed = |publish: bool, pointer: &str, value: &Value| {
        let mut cluster = TestCluster::with_service(json!({"publishNotReadyAddresses": publish}));
        cluster.pod(pod_with("p", "10.0.0.1", pointer, value.clone()));
        let mut second = not_ready(pod("q", "10.0.0.2"));
        set(&mut second, pointer, value.clone());
        cluster.pod(second);
        cluster.addresses().join(" ")
    };
    let (phase, deletion) = ("/status/phase", "/metadata/deletionTimestamp");
    for (pointer, value, as_usual, published) in [
        (phase, json!("Failed"), "", ""),
        (phase, json!("Succeeded"), "", ""),
        (phase, json!("Pending"), "10.0.0.1 (10.0.0.2)", "10.0.0.1 10.0.0.2"),
        (phase, json!("Unknown"), "10.0.0.1 (10.0.0.2)", "10.0.0.1 10.0.0.2"),
        (phase, json!(""), "10.0.0.1 (10.0.0.2)", "10.0.0.1 10.0.0.2"),
        (deletion, json!("2026-01-03T00:00:00Z"), "", "10.0.0.1 10.0.0.2"),
        ("/status/conditions", json!([]), "(10.0.0.1) (10.0.0.2)", "10.0.0.1 10.0.0.2"),
        (
            "/status/conditions",
            json!([{"type": "Ready", "status": "Unknown"}, {"type": "Ready", "status": "True"}]),
            "(10.0.0.1) (10.0.0.2)",
            "10.0.0.1 10.0.0.2",
        ),
    ] {
        assert_eq!(listed(false, pointer, &value), as_usual, "{pointer} {value}");
        assert_eq!(listed(true, pointer, &value), published, "{pointer} {value} published");
    }
    let mut cluster = TestCluster::with_service(json!({}));
    cluster.pod(pod_with("p", "10.0.0.1", "/status", json!({"phase": "Running"})));
    assert_eq!(cluster.addresses(), [""; 0]);
}

/// Proves EP-27, EP-28, EP-29.
#[test]
fn only_the_first_family_is_listed() {
    let both = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "10.0.0.2"}]);
    let listed = |families: Value, cluster_ip: &str, ips: &Value| {
        let mut cluster = TestCluster::with_service(json!({"ipFamilies": families, "clusterIP": cluster_ip}));
        cluster.pod(pod_with("p", "10.0.0.1", "/status/podIPs", ips.clone()));
        cluster.addresses().join(" ")
    };
    assert_eq!(listed(json!(["IPv4", "IPv6"]), "10.96.0.1", &both), "10.0.0.1");
    assert_eq!(listed(json!(["IPv6", "IPv4"]), "10.96.0.1", &both), "fd00::1");
    assert_eq!(listed(json!(["Odd"]), "fd00::9", &both), "10.0.0.1");
    assert_eq!(listed(json!([]), "fd00::9", &both), "fd00::1");
    assert_eq!(listed(json!([]), "10.96.0.1", &both), "10.0.0.1");
    for cluster_ip in ["", "None"] {
        assert_eq!(listed(json!([]), cluster_ip, &both), "10.0.0.1", "the pod's first address");
        assert_eq!(listed(json!([]), cluster_ip, &json!([{"ip": "fd00::1"}])), "fd00::1");
    }
    assert_eq!(listed(json!(["IPv6"]), "", &json!([{"ip": "10.0.0.1"}])), "", "no address of the family");
    for (spelled, canonical) in [("010.0.0.01", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("odd", "")] {
        assert_eq!(listed(json!(["IPv4"]), "", &json!([{"ip": spelled}])), canonical);
    }
    assert_eq!(listed(json!(["IPv6"]), "", &json!([{"ip": "FD00:0::1"}])), "fd00::1");
    // The API server fills podIPs from podIP, so this is an odd object.
    assert_eq!(listed(json!(["IPv4"]), "", &json!([])), "10.0.0.1");
}

/// Proves EP-31.
#[test]
fn hostname_is_listed_if_the_subdomain_is_the_service() {
    let hostname = |hostname: &str, subdomain: &str| {
        let mut cluster = TestCluster::with_service(json!({"clusterIP": "None"}));
        let mut pod = pod("p", "10.0.0.1");
        pod["spec"]["hostname"] = json!(hostname);
        pod["spec"]["subdomain"] = json!(subdomain);
        cluster.pod(pod);
        cluster.subsets()[0]["addresses"][0]["hostname"].as_str().map(str::to_owned)
    };
    assert_eq!(hostname("h", "web").as_deref(), Some("h"));
    assert_eq!(hostname("h", "api"), None);
    assert_eq!(hostname("", "web"), None);
}

/// Proves EP-33, EP-34, EP-35.
#[test]
fn named_ports_are_resolved_per_pod() {
    let ports = json!([{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 53, "targetPort": "dns"}]);
    let mut cluster = TestCluster::with_service(json!({"ports": ports}));
    cluster.pod(pod("p1", "10.0.0.1"));
    let mut other = pod("p2", "10.0.0.2");
    other["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9000);
    cluster.pod(other);
    let mut none = pod("p3", "10.0.0.3");
    none["spec"]["containers"][0]["ports"] = json!([]);
    none["spec"]["initContainers"] = json!([{"name": "i", "ports": [{"name": "web", "containerPort": 1}]}]);
    cluster.pod(none.clone());
    none["metadata"]["name"] = json!("p4");
    none["metadata"]["uid"] = json!("u-p4");
    none["status"]["podIPs"] = json!([{"ip": "10.0.0.4"}]);
    none["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    cluster.pod(none);
    let subsets = cluster.subsets();
    let summary: Vec<_> = subsets
        .as_array()
        .into_iter()
        .flatten()
        .map(|subset| (addresses(&json!([subset])).join(" "), subset["ports"].to_string()))
        .collect();
    let port = |number: i32| format!(r#"[{{"name":"a","port":{number},"protocol":"TCP"}}]"#);
    // The port `dns` has another protocol, so that no pod resolves it; `p3` has no port at all.
    let wanted = [("10.0.0.4", port(1)), ("10.0.0.1", port(8081)), ("10.0.0.2", port(9000))];
    assert_eq!(summary, wanted.map(|(ip, port)| (ip.to_owned(), port)));
}

/// Proves EP-36.
#[test]
fn service_without_ports_lists_addresses_only_if_it_is_headless() {
    for (cluster_ip, wanted) in [("None", "10.0.0.1"), ("", ""), ("10.96.0.1", "")] {
        let mut cluster = TestCluster::with_service(json!({"ports": [], "clusterIP": cluster_ip}));
        cluster.pod(pod("p", "10.0.0.1"));
        let subsets = cluster.subsets();
        assert_eq!(addresses(&subsets).join(" "), wanted, "{cluster_ip:?}");
        assert!(subsets[0]["ports"].is_null());
    }
}

/// Proves EP-83, EP-84.
#[test]
fn ports_with_the_same_addresses_share_a_subset() {
    let ports = json!([{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP", "appProtocol": "dns"}]);
    let mut cluster = TestCluster::with_service(json!({"ports": ports}));
    cluster.pod(pod("p1", "10.0.0.1"));
    cluster.pod(pod("p2", "10.0.0.1"));
    let subsets = cluster.subsets();
    assert_eq!(addresses(&subsets), ["10.0.0.1", "10.0.0.1"], "two pods on the host network");
    assert_eq!(
        subsets[0]["ports"],
        json!([{"name": "t", "port": 53, "protocol": "TCP"},
               {"name": "u", "port": 53, "protocol": "UDP", "appProtocol": "dns"}])
    );
}

/// Proves EP-54, EP-55, EP-77, EP-92.
#[test]
fn endpoints_are_truncated_to_1000_addresses() {
    let mut cluster = TestCluster::with_service(json!({}));
    cluster.pods(0..1000);
    let body = cluster.write();
    assert_eq!(addresses(&body["subsets"]).len(), 1000);
    assert!(body["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"].is_null());
    assert_eq!(cluster.sync(), "");
    cluster.pods(1000..1003);
    let body = cluster.write();
    assert_eq!(addresses(&body["subsets"]).len(), 1000);
    assert_eq!(body["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"], "truncated");
    assert_eq!(cluster.sync(), "", "nothing has changed since");
    cluster.no_pod("p0");
    cluster.no_pod("p1");
    cluster.no_pod("p2");
    let body = cluster.write();
    assert!(body["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"].is_null());
    // A subset of which no address remains is left out; the API server would refuse it.
    let mut odd = not_ready(pod("odd", "10.2.0.1"));
    odd["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(1);
    cluster.service(service(json!({"ports": [{"name": "http", "port": 80, "targetPort": "web"}]})));
    cluster.pod(odd);
    let body = cluster.write();
    assert_eq!(body["subsets"].as_array().map(Vec::len), Some(1));
    assert_eq!(body["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"], "truncated");
}

/// Proves EP-93.
#[test]
fn pod_without_node_is_listed_without_node_name() {
    let mut cluster = TestCluster::with_service(json!({}));
    cluster.pod(pod_with("p", "10.0.0.1", "/spec/nodeName", json!("")));
    let subsets = cluster.subsets();
    assert_eq!(addresses(&subsets), ["10.0.0.1"]);
    assert!(subsets[0]["addresses"][0].get("nodeName").is_none());
}
