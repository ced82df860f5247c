//! Delete: preconditions, finalizers, propagation, grace and collections.

use super::*;

#[test]
fn object_without_finalizers_is_removed_immediately() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let object = server.created(CONFIG_MAPS, &config_map("a"));
    let watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&object)));
    let (code, status) = server.delete(&path, &Value::Null);
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(status["details"]["uid"], object["metadata"]["uid"]);
    assert_eq!(reason(&server.delete(&path, &Value::Null)), (404, "NotFound"));
    let frames = server.kernel.take_frames(watch).unwrap();
    assert_eq!(frames[0].kind, "DELETED");
    assert_eq!(version(&frames[0].object), version(&object) + 1);
}

#[test]
fn preconditions_are_checked() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let object = server.created(CONFIG_MAPS, &config_map("a"));
    for preconditions in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let refused = server.delete(&path, &json!({"preconditions": preconditions}));
        assert_eq!(reason(&refused), (409, "Conflict"));
        assert!(refused.1["message"].as_str().unwrap().contains("in the precondition"));
    }
    let held =
        json!({"uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"]});
    assert_eq!(server.delete(&path, &json!({"preconditions": held})).0, 200);
}

#[test]
fn object_is_removed_with_its_last_finalizer() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["x.io/one", "x.io/two"]);
    server.created(CONFIG_MAPS, &object);
    let watch = server.watch(&format!("{CONFIG_MAPS}?watch=1"));
    let (code, mut marked) = server.delete(&path, &Value::Null);
    assert_eq!((code, &marked["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(0)));
    let again = server.delete(&path, &Value::Null).1;
    assert_eq!(version(&again), version(&marked));
    marked["metadata"]["finalizers"] = json!(["x.io/one", "x.io/two", "x.io/three"]);
    assert_eq!(reason(&server.put(&path, &marked)), (422, "Invalid"));
    marked["metadata"]["finalizers"] = json!(["x.io/two"]);
    let (_, mut marked) = server.put(&path, &marked);
    marked["metadata"]["finalizers"] = json!([]);
    assert_eq!(server.put(&path, &marked).0, 200);
    assert_eq!(server.get(&path).0, 404);
    assert_eq!(server.frames(watch), ["ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"]);
}

#[test]
fn propagation_policies_become_finalizers() {
    let mut server = TestServer::new();
    for (policy, finalizers) in [("Foreground", json!(["foregroundDeletion"])), ("Orphan", json!(["orphan"]))]
    {
        server.created(CONFIG_MAPS, &config_map("a"));
        let path = format!("{CONFIG_MAPS}/a");
        let answer = server.delete(&path, &json!({"propagationPolicy": policy}));
        assert_eq!((answer.0, &answer.1["metadata"]["finalizers"]), (200, &finalizers));
        assert_eq!(server.delete(&path, &json!({"propagationPolicy": "Background"})).0, 200);
        assert_eq!(server.get(&path).0, 404);
    }
}

#[test]
fn delete_increases_the_generation() {
    let mut server = TestServer::new();
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let mut object = replica_set("a");
    object["metadata"]["finalizers"] = json!(["x.io/one"]);
    server.created(path, &object);
    assert_eq!(server.delete(&format!("{path}/a"), &Value::Null).1["metadata"]["generation"], 2);
}

#[test]
fn running_pods_get_a_grace_period() {
    let mut server = TestServer::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: Value| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    let watch = server.watch(&format!("{pods}?watch=1&fieldSelector=metadata.name=pending"));
    server.created(pods, &pod("pending", Value::Null));
    assert_eq!(server.delete(&format!("{pods}/pending"), &Value::Null).0, 200);
    assert_eq!(server.get(&format!("{pods}/pending")).0, 404);
    assert_eq!(server.frames(watch), ["ADDED pending", "MODIFIED pending", "DELETED pending"]);
    server.created(pods, &pod("bound", json!("n")));
    let (_, marked) = server.delete(&format!("{pods}/bound"), &Value::Null);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-02T03:04:35Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, shorter) = server.delete(&format!("{pods}/bound"), &json!({"gracePeriodSeconds": 5}));
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-02T03:04:10Z");
    server.delete(&format!("{pods}/bound"), &json!({"gracePeriodSeconds": 0}));
    assert_eq!(server.get(&format!("{pods}/bound")).0, 404);
}

/// Deleting a terminating pod again changes nothing, unless the grace period is shorter.
#[test]
fn second_delete_of_a_pod_only_shortens_the_grace_period() {
    let mut server = TestServer::new();
    let path = "/api/v1/namespaces/default/pods/p";
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    server.created("/api/v1/namespaces/default/pods", &pod);
    let marked = server.delete(path, &Value::Null).1;
    for options in [
        Value::Null,
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Foreground", "gracePeriodSeconds": 30}),
    ] {
        assert_eq!(server.delete(path, &options), (200, marked.clone()), "{options}");
    }
    // A finished pod is not removed earlier either.
    let done = json!({"status": {"phase": "Succeeded"}});
    let done = server.patch(&format!("{path}/status"), "merge-patch+json", &done).1;
    assert_eq!(server.delete(path, &Value::Null), (200, done));
    // A shorter grace period counts from the first delete; if it is over, one second is left.
    server.now += jiff::SignedDuration::from_secs(3);
    let shortened = server.delete(path, &json!({"gracePeriodSeconds": 20})).1;
    assert_eq!(shortened["metadata"]["deletionTimestamp"], "2026-01-02T03:04:25Z");
    assert_eq!(shortened["metadata"]["deletionGracePeriodSeconds"], 20);
    let shortened = server.delete(path, &json!({"gracePeriodSeconds": 2, "propagationPolicy": "Orphan"})).1;
    assert_eq!(shortened["metadata"]["deletionTimestamp"], "2026-01-02T03:04:08Z");
    assert_eq!(shortened["metadata"]["deletionGracePeriodSeconds"], 1);
    assert_eq!(shortened["metadata"]["finalizers"], json!(["orphan"]));
}

#[test]
fn deletecollection_respects_the_selector() {
    let mut server = TestServer::new();
    server.created(CONFIG_MAPS, &labelled("a", "app", "x"));
    server.created(CONFIG_MAPS, &labelled("b", "app", "x"));
    server.created(CONFIG_MAPS, &labelled("c", "app", "y"));
    let (code, list) = server.delete(&format!("{CONFIG_MAPS}?labelSelector=app=x"), &Value::Null);
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 2));
    assert_eq!(server.get(CONFIG_MAPS).1["items"].as_array().unwrap().len(), 1);
}

#[test]
fn dry_run_delete_returns_the_terminating_object() {
    let mut server = TestServer::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.created(pods, &pod);
    let (_, shown) = server.delete(&format!("{pods}/p?dryRun=All"), &Value::Null);
    assert_eq!(shown["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(server.get(&format!("{pods}/p")).1["metadata"].get("deletionTimestamp").is_none());
    server.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let (code, shown) = server.delete("/api/v1/namespaces/n?orphanDependents=false", &Value::Null);
    assert_eq!((code, &shown["metadata"]["finalizers"]), (202, &json!(["foregroundDeletion"])));
}
