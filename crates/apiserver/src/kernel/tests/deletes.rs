//! Delete: preconditions, finalizers, propagation, grace and collections.

use super::*;

#[test]
fn an_object_without_finalizers_goes_at_once() {
    let mut world = World::new();
    let path = format!("{CONFIG_MAPS}/a");
    let object = world.created(CONFIG_MAPS, &config_map("a"));
    let watch = world.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&object)));
    let (code, status) = world.delete(&path, &Value::Null);
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(status["details"]["uid"], object["metadata"]["uid"]);
    assert_eq!(reason(&world.delete(&path, &Value::Null)), (404, "NotFound"));
    let frames = world.kernel.take_frames(watch).unwrap();
    assert_eq!(frames[0].kind, "DELETED");
    assert_eq!(version(&frames[0].object), version(&object) + 1);
}

#[test]
fn preconditions_are_checked() {
    let mut world = World::new();
    let path = format!("{CONFIG_MAPS}/a");
    let object = world.created(CONFIG_MAPS, &config_map("a"));
    for preconditions in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let refused = world.delete(&path, &json!({"preconditions": preconditions}));
        assert_eq!(reason(&refused), (409, "Conflict"));
        assert!(refused.1["message"].as_str().unwrap().contains("in the precondition"));
    }
    let held =
        json!({"uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"]});
    assert_eq!(world.delete(&path, &json!({"preconditions": held})).0, 200);
}

#[test]
fn finalizers_hold_the_object_until_the_last_is_gone() {
    let mut world = World::new();
    let path = format!("{CONFIG_MAPS}/a");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["x.io/one", "x.io/two"]);
    world.created(CONFIG_MAPS, &object);
    let watch = world.watch(&format!("{CONFIG_MAPS}?watch=1"));
    let (code, mut marked) = world.delete(&path, &Value::Null);
    assert_eq!((code, &marked["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(0)));
    let again = world.delete(&path, &Value::Null).1;
    assert_eq!(version(&again), version(&marked));
    marked["metadata"]["finalizers"] = json!(["x.io/one", "x.io/two", "x.io/three"]);
    assert_eq!(reason(&world.put(&path, &marked)), (422, "Invalid"));
    marked["metadata"]["finalizers"] = json!(["x.io/two"]);
    let (_, mut marked) = world.put(&path, &marked);
    marked["metadata"]["finalizers"] = json!([]);
    assert_eq!(world.put(&path, &marked).0, 200);
    assert_eq!(world.get(&path).0, 404);
    assert_eq!(world.frames(watch), ["ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"]);
}

#[test]
fn propagation_policies_become_finalizers() {
    let mut world = World::new();
    for (policy, finalizers) in [("Foreground", json!(["foregroundDeletion"])), ("Orphan", json!(["orphan"]))]
    {
        world.created(CONFIG_MAPS, &config_map("a"));
        let path = format!("{CONFIG_MAPS}/a");
        let answer = world.delete(&path, &json!({"propagationPolicy": policy}));
        assert_eq!((answer.0, &answer.1["metadata"]["finalizers"]), (200, &finalizers));
        assert_eq!(world.delete(&path, &json!({"propagationPolicy": "Background"})).0, 200);
        assert_eq!(world.get(&path).0, 404);
    }
}

#[test]
fn deletion_of_generation_counting_kinds_counts() {
    let mut world = World::new();
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let mut object = replica_set("a");
    object["metadata"]["finalizers"] = json!(["x.io/one"]);
    world.created(path, &object);
    assert_eq!(world.delete(&format!("{path}/a"), &Value::Null).1["metadata"]["generation"], 2);
}

#[test]
fn running_pods_are_given_time() {
    let mut world = World::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: Value| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    let watch = world.watch(&format!("{pods}?watch=1&fieldSelector=metadata.name=pending"));
    world.created(pods, &pod("pending", Value::Null));
    assert_eq!(world.delete(&format!("{pods}/pending"), &Value::Null).0, 200);
    assert_eq!(world.get(&format!("{pods}/pending")).0, 404);
    assert_eq!(world.frames(watch), ["ADDED pending", "MODIFIED pending", "DELETED pending"]);
    world.created(pods, &pod("bound", json!("n")));
    let (_, marked) = world.delete(&format!("{pods}/bound"), &Value::Null);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-02T03:04:35Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, shorter) = world.delete(&format!("{pods}/bound"), &json!({"gracePeriodSeconds": 5}));
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-02T03:04:10Z");
    world.delete(&format!("{pods}/bound"), &json!({"gracePeriodSeconds": 0}));
    assert_eq!(world.get(&format!("{pods}/bound")).0, 404);
}

/// Deleting a terminating pod again changes nothing, unless the grace period is shorter.
#[test]
fn a_pod_that_stops_is_left_alone_until_it_is_hurried() {
    let mut world = World::new();
    let path = "/api/v1/namespaces/default/pods/p";
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    world.created("/api/v1/namespaces/default/pods", &pod);
    let marked = world.delete(path, &Value::Null).1;
    for options in [
        Value::Null,
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Foreground", "gracePeriodSeconds": 30}),
    ] {
        assert_eq!(world.delete(path, &options), (200, marked.clone()), "{options}");
    }
    // A finished pod is not removed earlier either.
    let done = json!({"status": {"phase": "Succeeded"}});
    let done = world.patch(&format!("{path}/status"), "merge-patch+json", &done).1;
    assert_eq!(world.delete(path, &Value::Null), (200, done));
    // A shorter grace period counts from the first delete; if it is over, one second is left.
    world.now += jiff::SignedDuration::from_secs(3);
    let hurried = world.delete(path, &json!({"gracePeriodSeconds": 20})).1;
    assert_eq!(hurried["metadata"]["deletionTimestamp"], "2026-01-02T03:04:25Z");
    assert_eq!(hurried["metadata"]["deletionGracePeriodSeconds"], 20);
    let hurried = world.delete(path, &json!({"gracePeriodSeconds": 2, "propagationPolicy": "Orphan"})).1;
    assert_eq!(hurried["metadata"]["deletionTimestamp"], "2026-01-02T03:04:08Z");
    assert_eq!(hurried["metadata"]["deletionGracePeriodSeconds"], 1);
    assert_eq!(hurried["metadata"]["finalizers"], json!(["orphan"]));
}

#[test]
fn a_collection_goes_by_selector() {
    let mut world = World::new();
    world.created(CONFIG_MAPS, &labelled("a", "app", "x"));
    world.created(CONFIG_MAPS, &labelled("b", "app", "x"));
    world.created(CONFIG_MAPS, &labelled("c", "app", "y"));
    let (code, list) = world.delete(&format!("{CONFIG_MAPS}?labelSelector=app=x"), &Value::Null);
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 2));
    assert_eq!(world.get(CONFIG_MAPS).1["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_dry_run_shows_what_a_delete_would_leave_on_the_way() {
    let mut world = World::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.created(pods, &pod);
    let (_, shown) = world.delete(&format!("{pods}/p?dryRun=All"), &Value::Null);
    assert_eq!(shown["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(world.get(&format!("{pods}/p")).1["metadata"].get("deletionTimestamp").is_none());
    world.created("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let (code, shown) = world.delete("/api/v1/namespaces/n?orphanDependents=false", &Value::Null);
    assert_eq!((code, &shown["metadata"]["finalizers"]), (202, &json!(["foregroundDeletion"])));
}
