//! The desired endpoints of a Service.

use serde_json::{Value, json};

use super::{TestCluster, endpoint, node, pod, pod_on, service, service_with, terminating, unready, with};

/// The endpoint of a pod, if it has one.
fn endpoint_of(service: Value, pod: Value) -> Option<Value> {
    let mut cluster = TestCluster::new();
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.service(service).pod(pod).sync();
    cluster.endpoint(&name).cloned()
}

fn conditions(service: Value, pod: Value) -> [bool; 3] {
    let endpoint = endpoint_of(service, pod).unwrap();
    ["ready", "serving", "terminating"].map(|condition| endpoint["conditions"][condition].as_bool().unwrap())
}

/// The ports of the slices for these pods, with the names of the pods.
fn ports(service: Value, pods: impl IntoIterator<Item = Value>) -> Vec<(Value, Vec<String>)> {
    let mut cluster = TestCluster::new();
    pods.into_iter().fold(cluster.service(service), TestCluster::pod).sync();
    let name = |endpoint: &Value| endpoint["targetRef"]["name"].as_str().unwrap().to_owned();
    let slices = cluster.slices.values();
    slices.map(|slice| (slice["ports"].clone(), super::endpoints(slice).iter().map(name).collect())).collect()
}

/// Proves EPS-31.
#[test]
fn pods_with_an_address_are_listed_until_they_have_finished() {
    assert!(endpoint_of(service(), unready(pod("p1"))).is_some());
    assert!(endpoint_of(service(), terminating(pod("p1"))).is_some());
    for phase in ["Succeeded", "Failed"] {
        assert!(endpoint_of(service(), with(pod("p1"), "status/phase", json!(phase))).is_none(), "{phase}");
    }
    let without_ip = with(with(pod("p1"), "status/podIP", json!("")), "status/podIPs", json!([]));
    assert!(endpoint_of(service(), without_ip).is_none());
}

/// Proves EPS-32.
#[test]
fn addresses_are_those_of_the_address_type_in_canonical_form() {
    let ips = json!([{"ip": "010.0.0.07"}, {"ip": "2001:DB8:0::1"}]);
    let pod = with(pod("p1"), "status/podIPs", ips);
    assert_eq!(endpoint_of(service(), pod.clone()).unwrap()["addresses"], json!(["10.0.0.7"]));
    let v6 = service_with("spec/ipFamilies", json!(["IPv6"]));
    assert_eq!(endpoint_of(v6.clone(), pod).unwrap()["addresses"], json!(["2001:db8::1"]));
    assert!(endpoint_of(v6, super::pod("p1")).is_none(), "no address of that type");
}

/// Proves EPS-33, EPS-34, EPS-35, EPS-131.
#[test]
fn all_three_conditions_are_written() {
    let published = || service_with("spec/publishNotReadyAddresses", json!(true));
    assert_eq!(conditions(service(), pod("p1")), [true, true, false]);
    assert_eq!(conditions(service(), unready(pod("p1"))), [false, false, false]);
    assert_eq!(conditions(service(), terminating(pod("p1"))), [false, true, true]);
    assert_eq!(conditions(service(), terminating(unready(pod("p1")))), [false, false, true]);
    assert_eq!(conditions(published(), unready(pod("p1"))), [true, false, false]);
    assert_eq!(conditions(published(), terminating(unready(pod("p1")))), [true, false, true]);
    let without_conditions = with(pod("p1"), "status/conditions", json!([]));
    assert_eq!(conditions(service(), without_conditions), [false, false, false]);
}

/// Proves EPS-36, EPS-38.
#[test]
fn an_endpoint_has_its_pod_its_node_and_its_zone() {
    assert_eq!(endpoint_of(service(), pod("p1")).unwrap(), endpoint("p1"));
    let mut cluster = TestCluster::new();
    cluster
        .service(service())
        .node(with(node("n2", ""), "metadata/labels", json!({})))
        .pod(pod_on("p1", "n2"))
        .sync();
    let endpoint = cluster.endpoint("p1").unwrap();
    assert_eq!((&endpoint["nodeName"], endpoint.get("zone")), (&json!("n2"), None));
    let published = service_with("spec/publishNotReadyAddresses", json!(true));
    let unbound = endpoint_of(published, pod_on("p1", "")).unwrap();
    assert_eq!((unbound.get("nodeName"), unbound.get("zone")), (None, None));
    assert_eq!(unbound.get("deprecatedTopology"), None);
}

/// Proves EPS-37.
#[test]
fn the_hostname_is_set_if_the_subdomain_is_the_service() {
    let named = |subdomain: &str| {
        let pod = with(pod("p1"), "spec/hostname", json!("first"));
        endpoint_of(service(), with(pod, "spec/subdomain", json!(subdomain)))
            .unwrap()
            .get("hostname")
            .cloned()
    };
    assert_eq!(named("web"), Some(json!("first")));
    assert_eq!(named("other"), None);
    let without_hostname = with(pod("p1"), "spec/subdomain", json!("web"));
    assert_eq!(endpoint_of(service(), without_hostname).unwrap().get("hostname"), None);
}

/// Proves EPS-39, EPS-40.
#[test]
fn a_pod_on_a_missing_node_is_skipped_and_retried() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pod(pod("p1")).pod(pod_on("p2", "gone")).pod(pod_on("p3", ""));
    let result = cluster.sync();
    assert_eq!(cluster.sizes(), [1], "the other pods are written");
    let text = "[skipping Pod p2 for Service a/web: Node gone Not Found, \
                skipping Pod p3 for Service a/web: Node  Not Found]";
    assert_eq!(result.retry.as_deref(), Some(text));
    let event = format!(
        "Warning FailedToUpdateEndpointSlices on Service a/web uid=service-1: Error updating Endpoint Slices for Service a/web: {text}"
    );
    assert_eq!(result.events, std::slice::from_ref(&event));
    let again = cluster.sync();
    assert_eq!((again.verbs(), &again.events), (vec![], &vec![event]), "recorded on each retry");
    cluster.node(node("gone", "z9")).no_pod("p3");
    assert_eq!((cluster.sync().retry, cluster.sizes()), (None, vec![2]));
}

/// Proves EPS-41.
#[test]
fn publish_not_ready_addresses_lists_pods_on_missing_nodes() {
    let mut cluster = TestCluster::new();
    cluster.service(service_with("spec/publishNotReadyAddresses", json!(true))).pod(pod_on("p1", "gone"));
    assert_eq!(cluster.sync().retry, None);
    let endpoint = cluster.endpoint("p1").unwrap();
    assert_eq!((&endpoint["nodeName"], endpoint.get("zone")), (&json!("gone"), None));
}

/// Proves EPS-122.
#[test]
fn without_nodes_the_slice_is_emptied_and_not_deleted() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..3).sync();
    let name = cluster.only()["metadata"]["name"].clone();
    let result = cluster.no_node("n1").sync();
    assert_eq!(result.verbs(), ["put"]);
    assert!(result.retry.is_some());
    assert_eq!((&cluster.only()["metadata"]["name"], cluster.sizes()), (&name, vec![0]));
    assert_eq!(cluster.only()["ports"], json!([]));
}

/// Proves EPS-42.
#[test]
fn ports_have_all_fields_of_the_service_port() {
    let two = json!([{"port": 80, "targetPort": 8080, "protocol": "TCP"},
                     {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP", "appProtocol": "example.com/dns"}]);
    let slices = ports(service_with("spec/ports", two), [pod("p1")]);
    let expected = json!([{"name": "", "port": 8080, "protocol": "TCP"},
                        {"name": "dns", "port": 5353, "protocol": "UDP", "appProtocol": "example.com/dns"}]);
    assert_eq!(slices[0].0, expected);
}

/// A pod whose containers have these ports.
fn pod_with(name: &str, ports: Value) -> Value {
    with(pod(name), "spec/containers/0/ports", ports)
}

fn named(protocol: &str) -> Value {
    service_with("spec/ports", json!([{"name": "x", "port": 80, "targetPort": "http", "protocol": protocol}]))
}

/// Proves EPS-43, EPS-44.
#[test]
fn named_ports_are_resolved_in_containers_and_then_in_sidecars() {
    let port = |number: i64, protocol: &str| json!([{"name": "http", "containerPort": number, "protocol": protocol}]);
    let number = |pod: Value| ports(named("TCP"), [pod])[0].0[0]["port"].clone();
    assert_eq!(number(pod_with("p1", port(8081, "TCP"))), json!(8081));
    let sidecar = |policy: Value| {
        let init = json!([{"name": "s", "restartPolicy": policy, "ports": port(9000, "TCP")}]);
        with(pod_with("p1", port(1, "UDP")), "spec/initContainers", init)
    };
    assert_eq!(number(sidecar(json!("Always"))), json!(9000));
    // An unknown name omits the port, not the pod.
    for pod in [sidecar(Value::Null), pod("p1"), pod_with("p1", port(8081, "UDP"))] {
        assert_eq!(ports(named("TCP"), [pod]), [(json!([]), vec!["p1".to_owned()])]);
    }
    assert_eq!(ports(named("UDP"), [pod_with("p1", port(53, "UDP"))])[0].0[0]["port"], json!(53));
}

/// Proves EPS-45.
#[test]
fn pods_with_different_ports_are_in_different_slices() {
    let headless = with(service_with("spec/ports", json!([])), "spec/clusterIP", json!("None"));
    assert_eq!(ports(headless, [pod("p1")]), [(json!([]), vec!["p1".to_owned()])]);
    let port = |number: i64| json!([{"name": "http", "containerPort": number}]);
    let slices =
        ports(named("TCP"), [pod_with("p1", port(1)), pod_with("p2", port(2)), pod_with("p3", port(1))]);
    let mut pods: Vec<_> = slices.into_iter().map(|(_, pods)| pods).collect();
    pods.sort();
    assert_eq!(pods, [vec!["p1".to_owned(), "p3".to_owned()], vec!["p2".to_owned()]]);
}

/// Proves EPS-27, EPS-28.
#[test]
fn address_types_come_from_ip_families_or_the_cluster_ip() {
    let address_types = |service: Value| {
        let mut cluster = TestCluster::new();
        let both = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
        cluster.service(service).pod(with(pod("p1"), "status/podIPs", both)).sync();
        let mut types: Vec<_> =
            cluster.slices.values().map(|slice| slice["addressType"].as_str().unwrap().to_owned()).collect();
        types.sort();
        types.join(" ")
    };
    let listed_types = |listed_types: Value| service_with("spec/ipFamilies", listed_types);
    let without_families = |ip: &str| with(listed_types(Value::Null), "spec/clusterIP", json!(ip));
    assert_eq!(address_types(listed_types(json!(["IPv4"]))), "IPv4");
    assert_eq!(address_types(listed_types(json!(["IPv6", "IPv4"]))), "IPv4 IPv6");
    assert_eq!(address_types(without_families("10.96.0.1")), "IPv4");
    assert_eq!(address_types(without_families("fd00::5")), "IPv6");
    assert_eq!(address_types(without_families("None")), "IPv4 IPv6");
    assert_eq!(address_types(without_families("")), "IPv4 IPv6");
}
