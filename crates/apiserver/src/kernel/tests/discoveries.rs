//! Discovery (unaggregated and aggregated), version and health.

use super::*;

fn aggregated(server: &mut TestServer, target: &str) -> Value {
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json".to_owned();
    server.reply(&Request { accept, ..Request::new(Method::GET, target, "") }).1
}

#[test]
fn unaggregated_discovery_lists_groups_versions_and_resources() {
    let mut server = TestServer::new();
    assert_eq!(server.get("/api").1["versions"], json!(["v1"]));
    let (_, groups) = server.get("/apis");
    let names: Vec<&Value> = groups["groups"].as_array().unwrap().iter().map(|g| &g["name"]).collect();
    for group in ["apps", "batch", "coordination.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io"] {
        assert_eq!(names.iter().filter(|name| **name == group).count(), 1, "{group}");
    }
    assert_eq!(server.get("/apis/apps").1["preferredVersion"]["groupVersion"], "apps/v1");
    let (_, core) = server.get("/api/v1");
    let by_name = |name: &str| {
        core["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned().unwrap()
    };
    assert_eq!(by_name("namespaces")["namespaced"], false);
    assert_eq!(by_name("secrets")["kind"], "Secret");
    assert_eq!(by_name("serviceaccounts/token")["kind"], "TokenRequest");
    assert_eq!(by_name("pods/status")["verbs"], json!(["get", "patch", "update"]));
    assert_eq!(server.get("/apis/apps/v2").0, 404);
    assert_eq!(server.get("/apis/none").0, 404);
}

#[test]
fn aggregated_discovery_has_the_same_content() {
    let mut server = TestServer::new();
    let core = aggregated(&mut server, "/api");
    assert_eq!(core["kind"], "APIGroupDiscoveryList");
    assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
    let resources = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
    let secrets = resources.iter().find(|r| r["resource"] == "secrets").unwrap();
    assert_eq!(
        (&secrets["scope"], &secrets["responseKind"]["kind"]),
        (&json!("Namespaced"), &json!("Secret"))
    );
    let groups = server.get("/apis").1["groups"].as_array().unwrap().len();
    assert_eq!(aggregated(&mut server, "/apis")["items"].as_array().unwrap().len(), groups);
}

#[test]
fn failing_group_version_returns_503_and_is_stale_in_discovery() {
    let mut server = TestServer::new();
    server.kernel.set_failing("apps", "v1", true);
    assert_eq!(reason(&server.get("/apis/apps/v1")), (503, "ServiceUnavailable"));
    assert_eq!(reason(&server.get("/apis/apps/v1/deployments")), (503, "ServiceUnavailable"));
    let groups = aggregated(&mut server, "/apis");
    let apps = groups["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps").unwrap();
    assert_eq!(apps["versions"][0]["freshness"], "Stale");
    server.kernel.set_failing("apps", "v1", false);
    assert_eq!(server.get("/apis/apps/v1").0, 200);
}

#[test]
fn health_and_version_answer() {
    let mut server = TestServer::new();
    for path in ["/healthz", "/livez", "/readyz", "/readyz/etcd"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
    let request = Request::new(Method::GET, "/readyz?verbose", String::new());
    let Reply::Document(verbose) = server.kernel.call(&request, server.now) else { panic!("no document") };
    assert_eq!(&verbose.body[..], b"[+]ping ok\n[+]storage ok\nreadyz check passed\n");
    assert_eq!(server.get("/version").1["minor"], "37");
    assert_eq!(server.post("/version", &json!({})).0, 405);
}
