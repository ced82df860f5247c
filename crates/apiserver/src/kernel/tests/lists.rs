//! Get and list: selectors, pages, resource versions and representations.

use super::*;

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

fn three(server: &mut TestServer) -> u64 {
    server.created(CONFIG_MAPS, &labelled("a", "app", "x"));
    server.created(CONFIG_MAPS, &labelled("b", "app", "y"));
    version(&server.created(CONFIG_MAPS, &labelled("c", "app", "x")))
}

#[test]
fn lists_have_a_resource_version_and_items_without_type() {
    let mut server = TestServer::new();
    let last = three(&mut server);
    let (code, list) = server.get(CONFIG_MAPS);
    assert_eq!((code, names(&list)), (200, vec!["a", "b", "c"]));
    assert_eq!((&list["kind"], version(&list)), (&json!("ConfigMapList"), last));
    assert!(list["items"][0].get("kind").is_none());
    assert_eq!(names(&server.get("/api/v1/configmaps").1), ["a", "b", "c"]);
    assert!(names(&server.get("/api/v1/namespaces/kube-system/configmaps").1).is_empty());
}

#[test]
fn selectors_filter_lists() {
    let mut server = TestServer::new();
    three(&mut server);
    for (query, expected) in [
        ("labelSelector=app%20in%20(x,z)", vec!["a", "c"]),
        ("labelSelector=app%21%3Dx", vec!["b"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.namespace=other", vec![]),
    ] {
        assert_eq!(names(&server.get(&format!("{CONFIG_MAPS}?{query}")).1), expected, "{query}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    server.created(secrets, &json!({"metadata": {"name": "s"}}));
    assert_eq!(names(&server.get(&format!("{secrets}?fieldSelector=type=Opaque")).1), ["s"]);
    let unknown = server.get(&format!("{secrets}?fieldSelector=spec.x=1"));
    assert_eq!(reason(&unknown), (400, "BadRequest"));
}

#[test]
fn pages_are_consistent_until_compaction() {
    let mut server = TestServer::new();
    let last = three(&mut server);
    let (_, first) = server.get(&format!("{CONFIG_MAPS}?limit=2"));
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(1)));
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.delete(&format!("{CONFIG_MAPS}/c"), &Value::Null);
    server.created(CONFIG_MAPS, &config_map("d"));
    let next = format!("{CONFIG_MAPS}?limit=2&continue={token}");
    let (_, second) = server.get(&next);
    assert_eq!((names(&second), version(&second)), (vec!["c"], last));
    assert!(second["metadata"].get("continue").is_none());
    server.kernel.compact();
    let expired = server.get(&next);
    assert_eq!(reason(&expired), (410, "Expired"));
    // The token in the error continues at the latest revision.
    let token = expired.1["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&server.get(&format!("{CONFIG_MAPS}?continue={token}")).1), ["d"]);
}

#[test]
fn resource_versions_of_reads_are_respected() {
    let mut server = TestServer::new();
    let last = three(&mut server);
    let (_, exact) =
        server.get(&format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact", last - 1));
    assert_eq!((names(&exact), version(&exact)), (vec!["a", "b"], last - 1));
    let (_, newer) = server.get(&format!("{CONFIG_MAPS}?resourceVersion={}", last - 1));
    assert_eq!((names(&newer).len(), version(&newer)), (3, last));
    for query in ["resourceVersion=1000", "resourceVersion=1000&resourceVersionMatch=Exact"] {
        let refused = server.get(&format!("{CONFIG_MAPS}?{query}"));
        assert_eq!(reason(&refused), (504, "Timeout"));
        assert_eq!(refused.1["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(refused.1["details"]["retryAfterSeconds"], 1);
    }
    assert_eq!(reason(&server.get(&format!("{CONFIG_MAPS}/a?resourceVersion=1000"))), (504, "Timeout"));
    server.kernel.compact();
    let old = format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact", last - 1);
    assert_eq!(reason(&server.get(&old)), (410, "Expired"));
}

#[test]
fn metadata_only_is_returned_on_request() {
    let mut server = TestServer::new();
    let mut object = config_map("a");
    object["data"] = json!({"k": "v"});
    server.created(CONFIG_MAPS, &object);
    for (kind, target) in [
        ("PartialObjectMetadata", format!("{CONFIG_MAPS}/a")),
        ("PartialObjectMetadataList", CONFIG_MAPS.to_owned()),
    ] {
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1");
        let (_, answer) = server.reply(&Request { accept, ..Request::new(Method::GET, &target, "") });
        assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!(kind), &json!("meta.k8s.io/v1")));
        let object = answer.pointer("/items/0").unwrap_or(&answer);
        assert_eq!(
            (&object["kind"], &object["metadata"]["name"]),
            (&json!("PartialObjectMetadata"), &json!("a"))
        );
        assert!(object.get("data").is_none());
    }
}
