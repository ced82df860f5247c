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
fn services_get_addresses_of_their_own() {
    let mut world = World::new();
    let one = world.created(SERVICES, &service("one", &json!({})));
    let two = world.created(SERVICES, &service("two", &json!({})));
    let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.96."));
    assert_ne!(one["spec"]["clusterIP"], two["spec"]["clusterIP"]);
    assert_eq!(one["spec"]["ipFamilyPolicy"], "SingleStack");
    let record = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    assert_eq!(world.get(&record).1["spec"]["parentRef"]["name"], "one");
    let taken = world.post(SERVICES, &service("three", &json!({"clusterIP": address})));
    assert_eq!(reason(&taken), (422, "Invalid"));
    let mut moved = one;
    moved["spec"]["clusterIP"] = json!("10.96.0.77");
    assert_eq!(reason(&world.put(&format!("{SERVICES}/one"), &moved)), (422, "Invalid"));
    world.delete(&format!("{SERVICES}/one"), &Value::Null);
    assert_eq!(world.get(&record).0, 404);
    assert_eq!(world.post(SERVICES, &service("three", &json!({"clusterIP": address}))).0, 201);
}

#[test]
fn headless_and_external_services_have_none() {
    let mut world = World::new();
    let headless = world.created(SERVICES, &service("h", &json!({"clusterIP": "None"})));
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = json!({"type": "ExternalName", "externalName": "example.com"});
    let external = world.created(SERVICES, &service("e", &external));
    assert!(external["spec"].get("clusterIP").is_none());
}

#[test]
fn node_ports_come_and_go_with_the_type() {
    let mut world = World::new();
    let mut open = world.created(SERVICES, &service("n", &json!({"type": "NodePort"})));
    let port = open["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&port));
    let same = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    assert_eq!(reason(&world.post(SERVICES, &service("m", &same))), (422, "Invalid"));
    let outside = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    assert_eq!(reason(&world.post(SERVICES, &service("m", &outside))), (422, "Invalid"));
    open["spec"]["type"] = json!("ClusterIP");
    let (code, closed) = world.put(&format!("{SERVICES}/n"), &open);
    assert_eq!((code, closed["spec"]["ports"][0].get("nodePort")), (200, None));
}

#[test]
fn ports_of_one_number_share_their_number_on_the_nodes() {
    let mut world = World::new();
    let ports = |first: Value, second: Value| {
        json!({"type": "NodePort", "ports": [
            {"name": "a", "port": 53, "protocol": "UDP", "nodePort": first},
            {"name": "b", "port": 53, "protocol": "TCP", "nodePort": second}]})
    };
    let shown = |service: &Value| {
        [0, 1].map(|at| service["spec"]["ports"][at]["nodePort"].as_i64().unwrap_or_default())
    };
    let drawn = shown(&world.created(SERVICES, &service("drawn", &ports(Value::Null, Value::Null))));
    assert_eq!(drawn[0], drawn[1]);
    let asked = world.created(SERVICES, &service("asked", &ports(Value::Null, json!(30_123))));
    assert_eq!(shown(&asked), [30_123, 30_123]);
    let mut twice = ports(Value::Null, Value::Null);
    twice["ports"][1]["protocol"] = json!("UDP");
    let (code, status) = world.post(SERVICES, &service("twice", &twice));
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("spec.ports[1].nodePort: Duplicate value"));
}

#[test]
fn a_wish_for_two_families_outlives_updates_that_do_not_repeat_it() {
    let mut world = World::new();
    let wish = json!({"ipFamilyPolicy": "PreferDualStack"});
    world.created(SERVICES, &service("a", &wish));
    let (code, updated) = world.put(&format!("{SERVICES}/a"), &service("a", &json!({})));
    assert_eq!((code, &updated["spec"]["ipFamilyPolicy"]), (200, &json!("PreferDualStack")));
    assert_eq!(updated["spec"]["ipFamilies"], json!(["IPv4"]));
    let (code, _) =
        world.put(&format!("{SERVICES}/a"), &service("a", &json!({"ipFamilyPolicy": "RequireDualStack"})));
    assert_eq!(code, 422);
}

#[test]
fn a_balancer_that_keeps_to_its_nodes_has_a_port_for_checks() {
    let mut world = World::new();
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let drawn = world.created(SERVICES, &service("a", &local));
    let port = drawn["spec"]["healthCheckNodePort"].as_i64().unwrap();
    // The lower band of ports is for static requests.
    assert!((30_086..=32_767).contains(&port), "{port}");
    let mut taken = local;
    taken["healthCheckNodePort"] = json!(port);
    assert_eq!(world.post(SERVICES, &service("b", &taken)).0, 500);
    let mut moved = drawn.clone();
    moved["spec"]["healthCheckNodePort"] = json!(30_001);
    assert_eq!(reason(&world.put(&format!("{SERVICES}/a"), &moved)), (422, "Invalid"));
    let mut classed = drawn;
    classed["spec"]["loadBalancerClass"] = json!("example.com/lb");
    assert_eq!(reason(&world.put(&format!("{SERVICES}/a"), &classed)), (422, "Invalid"));
    let (_, open) = world.put(&format!("{SERVICES}/a"), &service("a", &json!({"type": "LoadBalancer"})));
    assert_eq!(open["spec"].get("healthCheckNodePort"), None);
}

/// Tests seed Services with only the fields they need.
#[test]
fn a_service_that_was_stored_past_all_rules_can_be_changed() {
    let mut world = World::new();
    let mut half = service("a", &json!({"clusterIP": "10.96.0.9"}));
    half.as_object_mut()
        .unwrap()
        .extend([("kind".to_owned(), json!("Service")), ("apiVersion".to_owned(), json!("v1"))]);
    half["metadata"]["namespace"] = json!("default");
    world.kernel.seed(half, world.now).unwrap();
    let (code, changed) =
        world.patch(&format!("{SERVICES}/a"), "merge-patch+json", &json!({"spec": {"selector": {"c": "d"}}}));
    assert_eq!((code, &changed["spec"]["clusterIPs"]), (200, &json!(["10.96.0.9"])));
}
