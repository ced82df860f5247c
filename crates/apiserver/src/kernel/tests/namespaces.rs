//! Namespaces: bootstrap, lifecycle and creation of objects in them.

use super::*;

#[test]
fn the_bootstrap_namespaces_exist() {
    let mut server = TestServer::new();
    let (_, list) = server.get("/api/v1/namespaces");
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|n| n["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[test]
fn new_namespace_is_active_labelled_and_has_a_finalizer() {
    let mut server = TestServer::new();
    let namespace = server.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
}

#[test]
fn create_needs_a_namespace_that_is_not_terminating() {
    let mut server = TestServer::new();
    let path = "/api/v1/namespaces/n/configmaps";
    let missing = server.post(path, &config_map("a"));
    assert_eq!(reason(&missing), (404, "NotFound"));
    assert_eq!(missing.1["details"], json!({"name": "n", "kind": "namespaces"}));
    server.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    server.created(path, &config_map("a"));
    server.delete("/api/v1/namespaces/n", &Value::Null);
    let refused = server.post(path, &config_map("b"));
    assert_eq!(reason(&refused), (403, "Forbidden"));
    assert_eq!(refused.1["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let stored = server.get(&format!("{path}/a")).1;
    assert_eq!(server.put(&format!("{path}/a"), &stored).0, 200);
}

#[test]
fn namespace_deletion_waits_for_finalize() {
    let mut server = TestServer::new();
    let path = "/api/v1/namespaces/n";
    server.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let watch = server.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=n");
    let (code, namespace) = server.delete(path, &Value::Null);
    assert_eq!((code, &namespace["status"]["phase"]), (200, &json!("Terminating")));
    assert_eq!(namespace["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    let (code, again) = server.delete(path, &Value::Null);
    assert_eq!((code, version(&again)), (200, version(&namespace)));
    // An ordinary update cannot change spec.finalizers.
    let mut emptied = namespace;
    emptied["spec"] = json!({"finalizers": []});
    let (_, kept) = server.put(path, &emptied);
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    emptied["metadata"]["resourceVersion"] = kept["metadata"]["resourceVersion"].clone();
    assert_eq!(server.put(&format!("{path}/finalize"), &emptied).0, 200);
    assert_eq!(server.get(path).0, 404);
    assert_eq!(server.frames(watch), ["ADDED n", "MODIFIED n", "DELETED n"]);
}

/// Even a namespace without finalizers is only marked by its first delete.
#[test]
fn first_delete_of_a_namespace_only_marks_it_as_terminating() {
    let mut server = TestServer::new();
    let path = "/api/v1/namespaces/n";
    let mut namespace = server.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    namespace["spec"]["finalizers"] = json!([]);
    let freed = server.put(&format!("{path}/finalize"), &namespace).1;
    let (code, dry_run) = server.delete(&format!("{path}?dryRun=All"), &Value::Null);
    assert_eq!((code, &dry_run["status"]["phase"]), (200, &json!("Terminating")));
    assert_eq!(dry_run["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(server.get(path), (200, freed));
    assert_eq!(server.delete(path, &Value::Null).1["status"]["phase"], "Terminating");
    assert_eq!(server.get(path).0, 200);
    assert_eq!(server.delete(path, &Value::Null).0, 200);
    assert_eq!(server.get(path).0, 404);
}

#[test]
fn some_namespaces_cannot_be_deleted() {
    let mut server = TestServer::new();
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(
            reason(&server.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null)),
            (403, "Forbidden")
        );
    }
}
