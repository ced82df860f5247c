//! Services: unique cluster IPs and node ports.

use super::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    let mut object =
        json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

#[test]
fn services_get_unique_cluster_ips() {
    let mut server = TestServer::new();
    let one = server.created(SERVICES, &service("one", &json!({})));
    let two = server.created(SERVICES, &service("two", &json!({})));
    let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.96."));
    assert_ne!(one["spec"]["clusterIP"], two["spec"]["clusterIP"]);
    assert_eq!(one["spec"]["ipFamilyPolicy"], "SingleStack");
    let record = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    assert_eq!(server.get(&record).1["spec"]["parentRef"]["name"], "one");
    let taken = server.post(SERVICES, &service("three", &json!({"clusterIP": address})));
    assert_eq!(reason(&taken), (422, "Invalid"));
    let mut moved = one;
    moved["spec"]["clusterIP"] = json!("10.96.0.77");
    assert_eq!(reason(&server.put(&format!("{SERVICES}/one"), &moved)), (422, "Invalid"));
    server.delete(&format!("{SERVICES}/one"), &Value::Null);
    assert_eq!(server.get(&record).0, 404);
    assert_eq!(server.post(SERVICES, &service("three", &json!({"clusterIP": address}))).0, 201);
}

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn record(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"parentRef": {"resource": "gateways", "name": "mine"}}})
}

fn message(answer: &(u16, Value)) -> &str {
    answer.1["message"].as_str().unwrap_or_default()
}

#[test]
fn ip_address_of_a_user_blocks_the_address() {
    let mut server = TestServer::new();
    server.created(ADDRESSES, &record("10.96.0.50"));
    let blocked = server.post(SERVICES, &service("a", &json!({"clusterIP": "10.96.0.50"})));
    assert!(message(&blocked).contains("failed to allocate IP 10.96.0.50: provided IP is already allocated"));
    assert_eq!(server.get(&format!("{ADDRESSES}/10.96.0.50")).1["spec"]["parentRef"]["name"], "mine");
    server.delete(&format!("{ADDRESSES}/10.96.0.50"), &Value::Null);
    assert_eq!(server.post(SERVICES, &service("a", &json!({"clusterIP": "10.96.0.50"}))).0, 201);
    let outside = server.post(SERVICES, &service("b", &json!({"clusterIP": "10.95.0.1"})));
    assert!(message(&outside).contains("the provided network does not match the current range"));
}

#[test]
fn service_that_becomes_external_releases_its_address() {
    let mut server = TestServer::new();
    let mut object = server.created(SERVICES, &service("a", &json!({"clusterIP": "10.96.0.60"})));
    object["spec"]["type"] = json!("ExternalName");
    object["spec"]["externalName"] = json!("example.com");
    assert_eq!(server.put(&format!("{SERVICES}/a"), &object).0, 200);
    assert_eq!(server.get(&format!("{ADDRESSES}/10.96.0.60")).0, 404);
}

#[test]
fn addresses_come_from_ready_service_cidrs_only() {
    let mut server = TestServer::new();
    let range = json!({"metadata": {"name": "kubernetes", "finalizers": ["example.com/f"]}, "spec": {"cidrs": ["10.96.0.0/16"]}});
    server.created(RANGES, &range);
    server.created(SERVICES, &service("first", &json!({})));
    let condition = |status: &str| {
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "R",
        "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}})
    };
    let status = format!("{RANGES}/kubernetes/status");
    assert_eq!(server.patch(&status, "merge-patch+json", &condition("False")).0, 200);
    let full = server.post(SERVICES, &service("a", &json!({})));
    assert_eq!(
        (full.0, message(&full)),
        (500, "Internal error occurred: failed to allocate a serviceIP for Service \"a\": range is full")
    );
    assert_eq!(server.patch(&status, "merge-patch+json", &condition("True")).0, 200);
    server.created(SERVICES, &service("a", &json!({})));
    server.delete(&format!("{RANGES}/kubernetes"), &Value::Null);
    assert_eq!(server.post(SERVICES, &service("b", &json!({}))).0, 500);
    server.created(RANGES, &json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/30"]}}));
    let address = |service: &Value| service["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let given = ["b", "c"].map(|name| address(&server.created(SERVICES, &service(name, &json!({})))));
    assert!(given.contains(&"10.97.0.1".to_owned()) && given.contains(&"10.97.0.2".to_owned()), "{given:?}");
    assert_eq!(server.post(SERVICES, &service("d", &json!({}))).0, 500);
}

#[test]
fn service_cidrs_and_ip_addresses_are_validated() {
    let mut server = TestServer::new();
    let range = |cidrs: Value| json!({"metadata": {"name": "r"}, "spec": {"cidrs": cidrs}});
    for (cidrs, why) in [
        (json!([]), "spec.cidrs: Required value: at least one CIDR required"),
        (
            json!(["10.0.0.1/8"]),
            "spec.cidrs[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
        ),
        (json!(["10.0.0.0/8", "11.0.0.0/8"]), "may specify no more than one IP for each IP family"),
        (json!(["10.0.0.0/8", "fd00::/64", "fd01::/64"]), "may only hold up to 2 values"),
    ] {
        let answer = server.post(RANGES, &range(cidrs));
        assert!(answer.0 == 422 && message(&answer).contains(why), "{answer:?}");
    }
    server.created(RANGES, &range(json!(["10.97.0.0/24"])));
    let path = format!("{RANGES}/r");
    assert_eq!(server.put(&path, &range(json!(["10.98.0.0/24"]))).0, 422);
    assert_eq!(server.put(&path, &range(json!(["10.97.0.0/24", "fd00::/64"]))).0, 200);
    assert_eq!(server.put(&path, &range(json!(["10.97.0.0/24"]))).0, 422);
    for name in ["x", "10.96.00.1", "FD00::1", "::ffff:1.2.3.4"] {
        assert_eq!(server.post(ADDRESSES, &record(name)).0, 422, "{name}");
    }
    let lost = server.post(ADDRESSES, &json!({"metadata": {"name": "fd00::1"}, "spec": {}}));
    assert!(message(&lost).contains("spec.parentRef: Required value"));
    server.created(ADDRESSES, &record("fd00::1"));
    let mut moved = record("fd00::1");
    moved["spec"]["parentRef"]["name"] = json!("yours");
    let moved = server.put(&format!("{ADDRESSES}/fd00::1"), &moved);
    assert!(message(&moved).contains("field is immutable"), "{moved:?}");
}

#[test]
fn headless_and_external_name_services_get_no_cluster_ip() {
    let mut server = TestServer::new();
    let headless = server.created(SERVICES, &service("h", &json!({"clusterIP": "None"})));
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = json!({"type": "ExternalName", "externalName": "example.com"});
    let external = server.created(SERVICES, &service("e", &external));
    assert!(external["spec"].get("clusterIP").is_none());
}

#[test]
fn node_ports_depend_on_the_service_type() {
    let mut server = TestServer::new();
    let mut open = server.created(SERVICES, &service("n", &json!({"type": "NodePort"})));
    let port = open["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&port));
    let same = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    assert_eq!(reason(&server.post(SERVICES, &service("m", &same))), (422, "Invalid"));
    let outside = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    assert_eq!(reason(&server.post(SERVICES, &service("m", &outside))), (422, "Invalid"));
    open["spec"]["type"] = json!("ClusterIP");
    let (code, closed) = server.put(&format!("{SERVICES}/n"), &open);
    assert_eq!((code, closed["spec"]["ports"][0].get("nodePort")), (200, None));
}

#[test]
fn ports_with_the_same_number_share_a_node_port() {
    let mut server = TestServer::new();
    let ports = |first: Value, second: Value| {
        json!({"type": "NodePort", "ports": [
            {"name": "a", "port": 53, "protocol": "UDP", "nodePort": first},
            {"name": "b", "port": 53, "protocol": "TCP", "nodePort": second}]})
    };
    let node_ports_of = |service: &Value| {
        [0, 1].map(|at| service["spec"]["ports"][at]["nodePort"].as_i64().unwrap_or_default())
    };
    let allocated =
        node_ports_of(&server.created(SERVICES, &service("drawn", &ports(Value::Null, Value::Null))));
    assert_eq!(allocated[0], allocated[1]);
    let requested = server.created(SERVICES, &service("asked", &ports(Value::Null, json!(30_123))));
    assert_eq!(node_ports_of(&requested), [30_123, 30_123]);
    let mut twice = ports(Value::Null, Value::Null);
    twice["ports"][1]["protocol"] = json!("UDP");
    let (code, status) = server.post(SERVICES, &service("twice", &twice));
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("spec.ports[1].nodePort: Duplicate value"));
}

#[test]
fn prefer_dual_stack_survives_updates_that_omit_it() {
    let mut server = TestServer::new();
    let dual_stack = json!({"ipFamilyPolicy": "PreferDualStack"});
    server.created(SERVICES, &service("a", &dual_stack));
    let (code, updated) = server.put(&format!("{SERVICES}/a"), &service("a", &json!({})));
    assert_eq!((code, &updated["spec"]["ipFamilyPolicy"]), (200, &json!("PreferDualStack")));
    assert_eq!(updated["spec"]["ipFamilies"], json!(["IPv4"]));
    let (code, _) =
        server.put(&format!("{SERVICES}/a"), &service("a", &json!({"ipFamilyPolicy": "RequireDualStack"})));
    assert_eq!(code, 422);
}

#[test]
fn load_balancer_with_local_traffic_policy_gets_a_health_check_node_port() {
    let mut server = TestServer::new();
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let allocated = server.created(SERVICES, &service("a", &local));
    let port = allocated["spec"]["healthCheckNodePort"].as_i64().unwrap();
    // The lower band of ports is for static requests.
    assert!((30_086..=32_767).contains(&port), "{port}");
    let mut taken = local;
    taken["healthCheckNodePort"] = json!(port);
    assert_eq!(server.post(SERVICES, &service("b", &taken)).0, 500);
    let mut moved = allocated.clone();
    moved["spec"]["healthCheckNodePort"] = json!(30_001);
    assert_eq!(reason(&server.put(&format!("{SERVICES}/a"), &moved)), (422, "Invalid"));
    let mut classed = allocated;
    classed["spec"]["loadBalancerClass"] = json!("example.com/lb");
    assert_eq!(reason(&server.put(&format!("{SERVICES}/a"), &classed)), (422, "Invalid"));
    let (_, open) = server.put(&format!("{SERVICES}/a"), &service("a", &json!({"type": "LoadBalancer"})));
    assert_eq!(open["spec"].get("healthCheckNodePort"), None);
}

/// Tests seed Services with only the fields they need.
#[test]
fn seeded_service_can_be_updated() {
    let mut server = TestServer::new();
    let mut half = service("a", &json!({"clusterIP": "10.96.0.9"}));
    half.as_object_mut()
        .unwrap()
        .extend([("kind".to_owned(), json!("Service")), ("apiVersion".to_owned(), json!("v1"))]);
    half["metadata"]["namespace"] = json!("default");
    server.kernel.seed(half, server.now).unwrap();
    let (code, changed) = server.patch(
        &format!("{SERVICES}/a"),
        "merge-patch+json",
        &json!({"spec": {"selector": {"c": "d"}}}),
    );
    assert_eq!((code, &changed["spec"]["clusterIPs"]), (200, &json!(["10.96.0.9"])));
}
