//! ResourceQuota admission: what is charged, and what is refused with which message.

use super::*;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A quota whose usage the controller has published.
fn quota(server: &mut TestServer, name: &str, spec: &Value, used: &Value) {
    let created = server.created(QUOTAS, &json!({"metadata": {"name": name}, "spec": spec}));
    let mut published = created;
    published["status"] = json!({"hard": spec["hard"], "used": used});
    assert_eq!(server.put(&format!("{QUOTAS}/{name}/status"), &published).0, 200);
}

fn used(server: &mut TestServer, name: &str) -> Value {
    server.get(&format!("{QUOTAS}/{name}")).1["status"]["used"].clone()
}

fn pod(name: &str, cpu: Option<&str>) -> Value {
    let requests = cpu.map_or(json!({}), |cpu| json!({"cpu": cpu}));
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": requests}}]}})
}

fn message(response: &(u16, Value)) -> (u16, &str) {
    (response.0, response.1["message"].as_str().unwrap_or_default())
}

#[test]
fn pods_are_charged_until_the_quota_is_exceeded() {
    let mut server = TestServer::new();
    let hard = json!({"hard": {"pods": "2", "requests.cpu": "1"}});
    quota(&mut server, "q", &hard, &json!({"pods": "0", "requests.cpu": "0"}));
    server.created(PODS, &pod("one", Some("750m")));
    assert_eq!(used(&mut server, "q"), json!({"pods": "1", "requests.cpu": "750m"}));
    let exceeding = server.post(PODS, &pod("two", Some("500m")));
    assert_eq!(
        message(&exceeding),
        (
            403,
            "pods \"two\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=750m, limited: requests.cpu=1"
        )
    );
    let unstated = server.post(PODS, &pod("two", None));
    assert_eq!(
        message(&unstated),
        (403, "pods \"two\" is forbidden: failed quota: q: must specify requests.cpu for: c")
    );
    assert_eq!(used(&mut server, "q"), json!({"pods": "1", "requests.cpu": "750m"}));
    assert_eq!(server.post(&format!("{PODS}?dryRun=All"), &pod("two", Some("250m"))).0, 201);
    assert_eq!(
        used(&mut server, "q"),
        json!({"pods": "1", "requests.cpu": "750m"}),
        "a dry run is not charged"
    );
    server.created(PODS, &pod("two", Some("250m")));
    assert_eq!(used(&mut server, "q"), json!({"pods": "2", "requests.cpu": "1"}));
    let full = server.post(PODS, &pod("three", Some("1m")));
    assert_eq!(
        message(&full),
        (
            403,
            "pods \"three\" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=1m, used: pods=2,requests.cpu=1, limited: pods=2,requests.cpu=1"
        )
    );
}

#[test]
fn quota_without_published_usage_refuses_and_one_without_status_does_not_count() {
    let mut server = TestServer::new();
    let spec = json!({"hard": {"count/secrets": "1", "secrets": "5"}});
    server.created(QUOTAS, &json!({"metadata": {"name": "new"}, "spec": spec}));
    server.created(SECRETS, &json!({"metadata": {"name": "before"}}));
    quota(&mut server, "q", &spec, &json!({"secrets": "0"}));
    let unknown = server.post(SECRETS, &json!({"metadata": {"name": "s"}}));
    assert_eq!(
        message(&unknown),
        (403, "secrets \"s\" is forbidden: status unknown for quota: q, resources: count/secrets,secrets")
    );
}

#[test]
fn objects_are_counted_by_name_and_alias_and_scopes_select_pods() {
    let mut server = TestServer::new();
    quota(
        &mut server,
        "counts",
        &json!({"hard": {"count/secrets": "1", "secrets": "5"}}),
        &json!({"count/secrets": "0", "secrets": "0"}),
    );
    let scoped = json!({"hard": {"pods": "1", "count/secrets": "0"}, "scopes": ["NotBestEffort"]});
    quota(&mut server, "scoped", &scoped, &json!({"pods": "0", "count/secrets": "0"}));
    server.created(SECRETS, &json!({"metadata": {"name": "one"}}));
    assert_eq!(used(&mut server, "counts"), json!({"count/secrets": "1", "secrets": "1"}));
    let two = server.post(SECRETS, &json!({"metadata": {"name": "two"}}));
    assert_eq!(
        message(&two),
        (
            403,
            "secrets \"two\" is forbidden: exceeded quota: counts, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1"
        )
    );
    server.created(PODS, &pod("best-effort", None));
    server.created(PODS, &pod("burstable", Some("1m")));
    assert_eq!(server.post(PODS, &pod("another", Some("1m"))).0, 403);
    server.created(PODS, &pod("another-best-effort", None));
    assert_eq!(used(&mut server, "scoped"), json!({"count/secrets": "0", "pods": "1"}));
}

#[test]
fn service_update_is_charged_for_what_it_adds() {
    let mut server = TestServer::new();
    let services = "/api/v1/namespaces/default/services";
    let hard = json!({"hard": {"services.nodeports": "1", "services": "5"}});
    quota(&mut server, "q", &hard, &json!({"services.nodeports": "0", "services": "0"}));
    let body = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    let mut service = server.created(services, &body);
    assert_eq!(used(&mut server, "q"), json!({"services": "1", "services.nodeports": "0"}));
    service["spec"]["type"] = json!("NodePort");
    let exceeding = server.put(&format!("{services}/s"), &service);
    assert_eq!(
        message(&exceeding),
        (
            403,
            "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1"
        )
    );
    service["spec"]["ports"].as_array_mut().unwrap().pop();
    assert_eq!(server.put(&format!("{services}/s"), &service).0, 200);
    assert_eq!(used(&mut server, "q"), json!({"services": "1", "services.nodeports": "1"}));
}

#[test]
fn quotas_are_validated() {
    let mut server = TestServer::new();
    let post = |server: &mut TestServer, spec: Value| {
        server.post(QUOTAS, &json!({"metadata": {"name": "q"}, "spec": spec}))
    };
    assert_eq!(post(&mut server, json!({"hard": {"pods": "many"}})).0, 400);
    assert_eq!(reason(&post(&mut server, json!({"hard": {"nonsense": "1"}}))), (422, "Invalid"));
    assert_eq!(reason(&post(&mut server, json!({"hard": {"pods": "-1"}}))), (422, "Invalid"));
    assert_eq!(reason(&post(&mut server, json!({"hard": {"pods": "1500m"}}))), (422, "Invalid"));
    let selector = |operator: &str, values: Value| {
        json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
    };
    assert_eq!(reason(&post(&mut server, selector("In", json!([])))), (422, "Invalid"));
    assert_eq!(reason(&post(&mut server, selector("Like", json!(["x"])))), (422, "Invalid"));
    let conflicting = json!({"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]});
    assert_eq!(reason(&post(&mut server, conflicting)), (422, "Invalid"));
    assert_eq!(post(&mut server, selector("In", json!(["high"]))).0, 201);
}

#[test]
fn devices_are_charged_by_class_and_by_extended_resource() {
    let mut server = TestServer::new();
    let class = |name: &str, resource: Value| json!({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}});
    let classes = "/apis/resource.k8s.io/v1/deviceclasses";
    server.created(classes, &class("fast", json!("example.com/gpu")));
    let (by_class, by_resource) =
        ("requests.deviceclass.resource.kubernetes.io/fast", "requests.example.com/gpu");
    for (name, limit) in [("by-class", by_class), ("by-resource", by_resource)] {
        quota(&mut server, name, &json!({"hard": {limit: "3"}}), &json!({limit: "0"}));
    }
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": 2}}]}}})
    };
    server.created(claims, &claim("one", "fast"));
    assert_eq!(used(&mut server, "by-class"), json!({by_class: "2"}));
    assert_eq!(used(&mut server, "by-resource"), json!({by_resource: "2"}));
    let refused = server.post(claims, &claim("two", "fast"));
    assert_eq!(
        message(&refused),
        (
            403,
            &*format!(
                "resourceclaims.resource.k8s.io \"two\" is forbidden: exceeded quota: by-class, requested: \
                 {by_class}=2, used: {by_class}=2, limited: {by_class}=3"
            )
        )
    );
    server.created(claims, &claim("two", "slow"));
}

/// Parity: `CheckRequest` looks at the form of the object for every quota before it compares usage.
#[test]
fn missing_request_is_reported_before_an_exceeded_quota() {
    let mut server = TestServer::new();
    quota(&mut server, "a", &json!({"hard": {"pods": "0"}}), &json!({"pods": "0"}));
    quota(&mut server, "b", &json!({"hard": {"requests.cpu": "1"}}), &json!({"requests.cpu": "0"}));
    let refused = server.post(PODS, &pod("one", None));
    assert_eq!(
        message(&refused),
        (403, "pods \"one\" is forbidden: failed quota: b: must specify requests.cpu for: c")
    );
}
