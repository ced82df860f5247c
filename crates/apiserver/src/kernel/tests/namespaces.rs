//! Namespaces: bootstrap, lifecycle and creation of objects in them.

use super::*;

#[test]
fn the_bootstrap_namespaces_exist() {
    let mut world = World::new();
    let (_, list) = world.get("/api/v1/namespaces");
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|n| n["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[test]
fn a_new_namespace_is_active_labelled_and_held_by_its_finalizer() {
    let mut world = World::new();
    let namespace = world.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
}

#[test]
fn content_needs_a_namespace_that_lives() {
    let mut world = World::new();
    let path = "/api/v1/namespaces/n/configmaps";
    let missing = world.post(path, &config_map("a"));
    assert_eq!(reason(&missing), (404, "NotFound"));
    assert_eq!(missing.1["details"], json!({"name": "n", "kind": "namespaces"}));
    world.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    world.created(path, &config_map("a"));
    world.delete("/api/v1/namespaces/n", &Value::Null);
    let refused = world.post(path, &config_map("b"));
    assert_eq!(reason(&refused), (403, "Forbidden"));
    assert_eq!(refused.1["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let stored = world.get(&format!("{path}/a")).1;
    assert_eq!(world.put(&format!("{path}/a"), &stored).0, 200);
}

#[test]
fn deletion_waits_for_finalize() {
    let mut world = World::new();
    let path = "/api/v1/namespaces/n";
    world.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let watch = world.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=n");
    let (code, namespace) = world.delete(path, &Value::Null);
    assert_eq!((code, &namespace["status"]["phase"]), (200, &json!("Terminating")));
    assert_eq!(namespace["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    let (code, again) = world.delete(path, &Value::Null);
    assert_eq!((code, version(&again)), (200, version(&namespace)));
    // An ordinary update cannot change spec.finalizers.
    let mut emptied = namespace;
    emptied["spec"] = json!({"finalizers": []});
    let (_, kept) = world.put(path, &emptied);
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    emptied["metadata"]["resourceVersion"] = kept["metadata"]["resourceVersion"].clone();
    assert_eq!(world.put(&format!("{path}/finalize"), &emptied).0, 200);
    assert_eq!(world.get(path).0, 404);
    assert_eq!(world.frames(watch), ["ADDED n", "MODIFIED n", "DELETED n"]);
}

/// Even a namespace without finalizers is only marked by its first delete.
#[test]
fn the_first_delete_of_a_namespace_ends_its_life_but_does_not_remove_it() {
    let mut world = World::new();
    let path = "/api/v1/namespaces/n";
    let mut namespace = world.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    namespace["spec"]["finalizers"] = json!([]);
    let freed = world.put(&format!("{path}/finalize"), &namespace).1;
    let (code, rehearsed) = world.delete(&format!("{path}?dryRun=All"), &Value::Null);
    assert_eq!((code, &rehearsed["status"]["phase"]), (200, &json!("Terminating")));
    assert_eq!(rehearsed["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(world.get(path), (200, freed));
    assert_eq!(world.delete(path, &Value::Null).1["status"]["phase"], "Terminating");
    assert_eq!(world.get(path).0, 200);
    assert_eq!(world.delete(path, &Value::Null).0, 200);
    assert_eq!(world.get(path).0, 404);
}

#[test]
fn some_namespaces_live_for_ever() {
    let mut world = World::new();
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(
            reason(&world.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null)),
            (403, "Forbidden")
        );
    }
}
