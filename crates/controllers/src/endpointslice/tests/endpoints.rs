//! Which endpoints are wanted, and how they look.

use serde_json::{Value, json};

use super::{Stage, endpoint, node, pod, pod_on, service, service_with, terminating, unready, with};

/// The endpoint that a pod becomes, if any.
fn endpoint_of(service: Value, pod: Value) -> Option<Value> {
    let mut stage = Stage::new();
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    stage.service(service).pod(pod).sync();
    stage.endpoint(&name).cloned()
}

fn conditions(service: Value, pod: Value) -> [bool; 3] {
    let endpoint = endpoint_of(service, pod).unwrap();
    ["ready", "serving", "terminating"].map(|condition| endpoint["conditions"][condition].as_bool().unwrap())
}

/// The ports of the slices that these pods end up in, with the names of the pods.
fn ports(service: Value, pods: impl IntoIterator<Item = Value>) -> Vec<(Value, Vec<String>)> {
    let mut stage = Stage::new();
    pods.into_iter().fold(stage.service(service), Stage::pod).sync();
    let name = |endpoint: &Value| endpoint["targetRef"]["name"].as_str().unwrap().to_owned();
    let slices = stage.slices.values();
    slices.map(|slice| (slice["ports"].clone(), super::endpoints(slice).iter().map(name).collect())).collect()
}

/// Proves EPS-31.
#[test]
fn pods_with_an_address_are_listed_until_they_have_ended() {
    assert!(endpoint_of(service(), unready(pod("p1"))).is_some());
    assert!(endpoint_of(service(), terminating(pod("p1"))).is_some());
    for phase in ["Succeeded", "Failed"] {
        assert!(endpoint_of(service(), with(pod("p1"), "status/phase", json!(phase))).is_none(), "{phase}");
    }
    let homeless = with(with(pod("p1"), "status/podIP", json!("")), "status/podIPs", json!([]));
    assert!(endpoint_of(service(), homeless).is_none());
}

/// Proves EPS-32.
#[test]
fn addresses_are_those_of_the_family_in_their_canonical_spelling() {
    let ips = json!([{"ip": "010.0.0.07"}, {"ip": "2001:DB8:0::1"}]);
    let pod = with(pod("p1"), "status/podIPs", ips);
    assert_eq!(endpoint_of(service(), pod.clone()).unwrap()["addresses"], json!(["10.0.0.7"]));
    let v6 = service_with("spec/ipFamilies", json!(["IPv6"]));
    assert_eq!(endpoint_of(v6.clone(), pod).unwrap()["addresses"], json!(["2001:db8::1"]));
    assert!(endpoint_of(v6, super::pod("p1")).is_none(), "none of that family");
}

/// Proves EPS-33, EPS-34, EPS-35, EPS-131.
#[test]
fn conditions_tell_what_a_pod_can_do_and_all_three_are_written() {
    let published = || service_with("spec/publishNotReadyAddresses", json!(true));
    assert_eq!(conditions(service(), pod("p1")), [true, true, false]);
    assert_eq!(conditions(service(), unready(pod("p1"))), [false, false, false]);
    assert_eq!(conditions(service(), terminating(pod("p1"))), [false, true, true]);
    assert_eq!(conditions(service(), terminating(unready(pod("p1")))), [false, false, true]);
    assert_eq!(conditions(published(), unready(pod("p1"))), [true, false, false]);
    assert_eq!(conditions(published(), terminating(unready(pod("p1")))), [true, false, true]);
    let silent = with(pod("p1"), "status/conditions", json!([]));
    assert_eq!(conditions(service(), silent), [false, false, false]);
}

/// Proves EPS-36, EPS-38.
#[test]
fn an_endpoint_names_its_pod_its_node_and_its_zone() {
    assert_eq!(endpoint_of(service(), pod("p1")).unwrap(), endpoint("p1"));
    let mut stage = Stage::new();
    stage
        .service(service())
        .node(with(node("n2", ""), "metadata/labels", json!({})))
        .pod(pod_on("p1", "n2"))
        .sync();
    let endpoint = stage.endpoint("p1").unwrap();
    assert_eq!((&endpoint["nodeName"], endpoint.get("zone")), (&json!("n2"), None));
    let published = service_with("spec/publishNotReadyAddresses", json!(true));
    let unbound = endpoint_of(published, pod_on("p1", "")).unwrap();
    assert_eq!((unbound.get("nodeName"), unbound.get("zone")), (None, None));
    assert_eq!(unbound.get("deprecatedTopology"), None);
}

/// Proves EPS-37.
#[test]
fn a_hostname_is_told_by_the_service_that_is_its_subdomain() {
    let named = |subdomain: &str| {
        let pod = with(pod("p1"), "spec/hostname", json!("first"));
        endpoint_of(service(), with(pod, "spec/subdomain", json!(subdomain)))
            .unwrap()
            .get("hostname")
            .cloned()
    };
    assert_eq!(named("web"), Some(json!("first")));
    assert_eq!(named("other"), None);
    let nameless = with(pod("p1"), "spec/subdomain", json!("web"));
    assert_eq!(endpoint_of(service(), nameless).unwrap().get("hostname"), None);
}

/// Proves EPS-39, EPS-40.
#[test]
fn a_pod_on_a_node_that_is_not_there_is_left_out_for_now() {
    let mut stage = Stage::new();
    stage.service(service()).pod(pod("p1")).pod(pod_on("p2", "gone")).pod(pod_on("p3", ""));
    let minutes = stage.sync();
    assert_eq!(stage.sizes(), [1], "the others are written");
    let text = "[skipping Pod p2 for Service a/web: Node gone Not Found, \
                skipping Pod p3 for Service a/web: Node  Not Found]";
    assert_eq!(minutes.retry.as_deref(), Some(text));
    let event = format!(
        "Warning FailedToUpdateEndpointSlices: Error updating Endpoint Slices for Service a/web: {text}"
    );
    assert_eq!(minutes.events, std::slice::from_ref(&event));
    let again = stage.sync();
    assert_eq!((again.verbs(), &again.events), (vec![], &vec![event]), "told each time");
    stage.node(node("gone", "z9")).no_pod("p3");
    assert_eq!((stage.sync().retry, stage.sizes()), (None, vec![2]));
}

/// Proves EPS-41.
#[test]
fn who_publishes_everything_does_not_ask_for_nodes() {
    let mut stage = Stage::new();
    stage.service(service_with("spec/publishNotReadyAddresses", json!(true))).pod(pod_on("p1", "gone"));
    assert_eq!(stage.sync().retry, None);
    let endpoint = stage.endpoint("p1").unwrap();
    assert_eq!((&endpoint["nodeName"], endpoint.get("zone")), (&json!("gone"), None));
}

/// Proves EPS-122.
#[test]
fn when_all_nodes_are_gone_the_slice_is_emptied_and_not_deleted() {
    let mut stage = Stage::new();
    stage.service(service()).pods(0..3).sync();
    let name = stage.only()["metadata"]["name"].clone();
    let minutes = stage.no_node("n1").sync();
    assert_eq!(minutes.verbs(), ["put"]);
    assert!(minutes.retry.is_some());
    assert_eq!((&stage.only()["metadata"]["name"], stage.sizes()), (&name, vec![0]));
    assert_eq!(stage.only()["ports"], json!([]));
}

/// Proves EPS-42.
#[test]
fn ports_carry_everything_that_the_service_says() {
    let two = json!([{"port": 80, "targetPort": 8080, "protocol": "TCP"},
                     {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP", "appProtocol": "example.com/dns"}]);
    let there = ports(service_with("spec/ports", two), [pod("p1")]);
    let wanted = json!([{"name": "", "port": 8080, "protocol": "TCP"},
                        {"name": "dns", "port": 5353, "protocol": "UDP", "appProtocol": "example.com/dns"}]);
    assert_eq!(there[0].0, wanted);
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
fn names_of_ports_are_looked_up_in_containers_and_then_in_sidecars() {
    let port = |number: i64, protocol: &str| json!([{"name": "http", "containerPort": number, "protocol": protocol}]);
    let number = |pod: Value| ports(named("TCP"), [pod])[0].0[0]["port"].clone();
    assert_eq!(number(pod_with("p1", port(8081, "TCP"))), json!(8081));
    let sidecar = |policy: Value| {
        let init = json!([{"name": "s", "restartPolicy": policy, "ports": port(9000, "TCP")}]);
        with(pod_with("p1", port(1, "UDP")), "spec/initContainers", init)
    };
    assert_eq!(number(sidecar(json!("Always"))), json!(9000));
    // A name that cannot be found leaves the port out, not the pod.
    for pod in [sidecar(Value::Null), pod("p1"), pod_with("p1", port(8081, "UDP"))] {
        assert_eq!(ports(named("TCP"), [pod]), [(json!([]), vec!["p1".to_owned()])]);
    }
    assert_eq!(ports(named("UDP"), [pod_with("p1", port(53, "UDP"))])[0].0[0]["port"], json!(53));
}

/// Proves EPS-45.
#[test]
fn pods_with_other_ports_are_in_other_slices() {
    let headless = with(service_with("spec/ports", json!([])), "spec/clusterIP", json!("None"));
    assert_eq!(ports(headless, [pod("p1")]), [(json!([]), vec!["p1".to_owned()])]);
    let port = |number: i64| json!([{"name": "http", "containerPort": number}]);
    let there =
        ports(named("TCP"), [pod_with("p1", port(1)), pod_with("p2", port(2)), pod_with("p3", port(1))]);
    let mut pods: Vec<_> = there.into_iter().map(|(_, pods)| pods).collect();
    pods.sort();
    assert_eq!(pods, [vec!["p1".to_owned(), "p3".to_owned()], vec!["p2".to_owned()]]);
}

/// Proves EPS-27, EPS-28.
#[test]
fn families_are_told_by_the_service_or_by_its_address() {
    let families = |service: Value| {
        let mut stage = Stage::new();
        let both = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
        stage.service(service).pod(with(pod("p1"), "status/podIPs", both)).sync();
        let mut types: Vec<_> =
            stage.slices.values().map(|slice| slice["addressType"].as_str().unwrap().to_owned()).collect();
        types.sort();
        types.join(" ")
    };
    let told = |told: Value| service_with("spec/ipFamilies", told);
    let silent = |ip: &str| with(told(Value::Null), "spec/clusterIP", json!(ip));
    assert_eq!(families(told(json!(["IPv4"]))), "IPv4");
    assert_eq!(families(told(json!(["IPv6", "IPv4"]))), "IPv4 IPv6");
    assert_eq!(families(silent("10.96.0.1")), "IPv4");
    assert_eq!(families(silent("fd00::5")), "IPv6");
    assert_eq!(families(silent("None")), "IPv4 IPv6");
    assert_eq!(families(silent("")), "IPv4 IPv6");
}
