//! Patch formats, their preconditions and limits.

use super::*;

fn stored(server: &mut TestServer) -> String {
    let mut object = labelled("a", "app", "x");
    object["data"] = json!({"k": "v"});
    object["metadata"]["finalizers"] = json!(["x.io/one"]);
    server.created(CONFIG_MAPS, &object);
    format!("{CONFIG_MAPS}/a")
}

#[test]
fn the_three_patch_formats_change_objects() {
    let mut server = TestServer::new();
    let path = stored(&mut server);
    let operations = json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "w"}]);
    assert_eq!(server.patch(&path, "json-patch+json", &operations).1["data"], json!({"k": "w"}));
    let merge = json!({"data": {"k": null, "l": "x"}, "metadata": {"labels": {"app": "y"}}});
    let (_, merged) = server.patch(&path, "merge-patch+json", &merge);
    assert_eq!((&merged["data"], &merged["metadata"]["labels"]), (&json!({"l": "x"}), &json!({"app": "y"})));
    let strategic = json!({"metadata": {"finalizers": ["x.io/two"], "$deleteFromPrimitiveList/finalizers": ["x.io/one"]}});
    let (_, merged) = server.patch(&path, "strategic-merge-patch+json", &strategic);
    assert_eq!(merged["metadata"]["finalizers"], json!(["x.io/two"]));
}

#[test]
fn uid_and_resource_version_in_a_patch_are_preconditions() {
    let mut server = TestServer::new();
    let path = stored(&mut server);
    for kind in ["merge-patch+json", "strategic-merge-patch+json"] {
        for (lock, expected) in [
            (json!({"uid": "other"}), (422, "Invalid")),
            (json!({"resourceVersion": "1"}), (409, "Conflict")),
        ] {
            let refused = server.patch(&path, kind, &json!({"metadata": lock, "data": {"k": "w"}}));
            assert_eq!(reason(&refused), expected, "{kind}");
        }
    }
    let live = server.get(&path).1;
    let held = json!({"metadata": {"uid": live["metadata"]["uid"], "labels": {"a": "b"}}});
    assert_eq!(server.patch(&path, "strategic-merge-patch+json", &held).0, 200);
}

#[test]
fn status_patches_change_only_the_status() {
    let mut server = TestServer::new();
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    server.created(sets, &replica_set("a"));
    let patch = json!({"spec": {"replicas": 8}, "status": {"replicas": 2}});
    let (code, object) = server.patch(&format!("{sets}/a/status"), "merge-patch+json", &patch);
    assert_eq!(
        (code, &object["spec"]["replicas"], &object["status"]["replicas"]),
        (200, &json!(1), &json!(2))
    );
}

#[test]
fn patch_can_remove_the_last_finalizer() {
    let mut server = TestServer::new();
    let path = stored(&mut server);
    server.delete(&path, &Value::Null);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/one"]}});
    assert_eq!(server.patch(&path, "strategic-merge-patch+json", &patch).0, 200);
    assert_eq!(server.get(&path).0, 404);
}

#[test]
fn invalid_patches_are_rejected() {
    let mut server = TestServer::new();
    let path = stored(&mut server);
    for (kind, patch, expected) in [
        ("json-patch+json", json!([{"op": "test", "path": "/data/k", "value": "no"}]), 422),
        ("json-patch+json", json!([{"op": "remove", "path": "/missing"}]), 422),
        ("json-patch+json", json!({"op": "add"}), 400),
        ("json-patch+json", json!([{"op": "replace", "path": "", "value": 3}]), 422),
        ("merge-patch+json", json!([1]), 400),
        ("merge-patch+json", json!({"metadata": {"labels": 3}}), 422),
        ("merge-patch+json", json!({"metadata": {"name": "other"}}), 400),
        // kube-apiserver answers 500 here.
        ("strategic-merge-patch+json", json!({"$patch": "nonsense"}), 500),
        ("unheard-of+json", json!({}), 415),
    ] {
        assert_eq!(server.patch(&path, kind, &patch).0, expected, "{kind} {patch}");
    }
    assert_eq!(server.patch(&format!("{CONFIG_MAPS}/none"), "merge-patch+json", &json!({})).0, 404);
    assert_eq!(server.patch(&format!("{path}?force=true"), "merge-patch+json", &json!({})).0, 422);
}

#[test]
fn json_patch_copies_are_limited_in_size() {
    let mut server = TestServer::new();
    let path = stored(&mut server);
    let doubling: Vec<Value> = (0..64)
        .map(|i| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/x{i}")}))
        .collect();
    assert_eq!(server.patch(&path, "json-patch+json", &json!(doubling)).0, 413);
    let mut deep = Vec::new();
    let mut at = String::new();
    for _ in 0..500 {
        at.push_str("/x");
        deep.push(json!({"op": "add", "path": at, "value": {}}));
    }
    assert_eq!(server.patch(&path, "json-patch+json", &json!(deep)).0, 413);
}
