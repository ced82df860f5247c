//! Get and list: selectors, pages, resource versions and representations.

use super::*;

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

fn three(world: &mut World) -> u64 {
    world.created(CONFIG_MAPS, &labelled("a", "app", "x"));
    world.created(CONFIG_MAPS, &labelled("b", "app", "y"));
    version(&world.created(CONFIG_MAPS, &labelled("c", "app", "x")))
}

#[test]
fn lists_carry_the_revision_and_untyped_items() {
    let mut world = World::new();
    let last = three(&mut world);
    let (code, list) = world.get(CONFIG_MAPS);
    assert_eq!((code, names(&list)), (200, vec!["a", "b", "c"]));
    assert_eq!((&list["kind"], version(&list)), (&json!("ConfigMapList"), last));
    assert!(list["items"][0].get("kind").is_none());
    assert_eq!(names(&world.get("/api/v1/configmaps").1), ["a", "b", "c"]);
    assert!(names(&world.get("/api/v1/namespaces/kube-system/configmaps").1).is_empty());
}

#[test]
fn selectors_narrow_lists() {
    let mut world = World::new();
    three(&mut world);
    for (query, expected) in [
        ("labelSelector=app%20in%20(x,z)", vec!["a", "c"]),
        ("labelSelector=app%21%3Dx", vec!["b"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.namespace=other", vec![]),
    ] {
        assert_eq!(names(&world.get(&format!("{CONFIG_MAPS}?{query}")).1), expected, "{query}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    world.created(secrets, &json!({"metadata": {"name": "s"}}));
    assert_eq!(names(&world.get(&format!("{secrets}?fieldSelector=type=Opaque")).1), ["s"]);
    let unknown = world.get(&format!("{secrets}?fieldSelector=spec.x=1"));
    assert_eq!(reason(&unknown), (400, "BadRequest"));
}

#[test]
fn pages_show_one_state_until_compaction() {
    let mut world = World::new();
    let last = three(&mut world);
    let (_, first) = world.get(&format!("{CONFIG_MAPS}?limit=2"));
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(1)));
    let token = first["metadata"]["continue"].as_str().unwrap();
    world.delete(&format!("{CONFIG_MAPS}/c"), &Value::Null);
    world.created(CONFIG_MAPS, &config_map("d"));
    let next = format!("{CONFIG_MAPS}?limit=2&continue={token}");
    let (_, second) = world.get(&next);
    assert_eq!((names(&second), version(&second)), (vec!["c"], last));
    assert!(second["metadata"].get("continue").is_none());
    world.kernel.compact();
    let expired = world.get(&next);
    assert_eq!(reason(&expired), (410, "Expired"));
    // The token in the error continues at the latest revision.
    let token = expired.1["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&world.get(&format!("{CONFIG_MAPS}?continue={token}")).1), ["d"]);
}

#[test]
fn resource_versions_are_honoured() {
    let mut world = World::new();
    let last = three(&mut world);
    let (_, exact) =
        world.get(&format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact", last - 1));
    assert_eq!((names(&exact), version(&exact)), (vec!["a", "b"], last - 1));
    let (_, newer) = world.get(&format!("{CONFIG_MAPS}?resourceVersion={}", last - 1));
    assert_eq!((names(&newer).len(), version(&newer)), (3, last));
    for query in ["resourceVersion=1000", "resourceVersion=1000&resourceVersionMatch=Exact"] {
        let refused = world.get(&format!("{CONFIG_MAPS}?{query}"));
        assert_eq!(reason(&refused), (504, "Timeout"));
        assert_eq!(refused.1["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(refused.1["details"]["retryAfterSeconds"], 1);
    }
    assert_eq!(reason(&world.get(&format!("{CONFIG_MAPS}/a?resourceVersion=1000"))), (504, "Timeout"));
    world.kernel.compact();
    let old = format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact", last - 1);
    assert_eq!(reason(&world.get(&old)), (410, "Expired"));
}

#[test]
fn metadata_only_is_given_on_request() {
    let mut world = World::new();
    let mut object = config_map("a");
    object["data"] = json!({"k": "v"});
    world.created(CONFIG_MAPS, &object);
    for (kind, target) in [
        ("PartialObjectMetadata", format!("{CONFIG_MAPS}/a")),
        ("PartialObjectMetadataList", CONFIG_MAPS.to_owned()),
    ] {
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1");
        let (_, answer) = world.reply(&Request { accept, ..Request::new(Method::GET, &target, "") });
        assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!(kind), &json!("meta.k8s.io/v1")));
        let object = answer.pointer("/items/0").unwrap_or(&answer);
        assert_eq!(
            (&object["kind"], &object["metadata"]["name"]),
            (&json!("PartialObjectMetadata"), &json!("a"))
        );
        assert!(object.get("data").is_none());
    }
}
