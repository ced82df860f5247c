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
