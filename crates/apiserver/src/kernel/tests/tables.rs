//! Tables for `kubectl get`, and OpenAPI.

use super::*;

fn table(world: &mut World, target: &str) -> Value {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".to_owned();
    world.reply(&Request { accept, ..Request::new(Method::GET, target, "") }).1
}

#[test]
fn lists_and_objects_become_rows() {
    let mut world = World::new();
    world.created(CONFIG_MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    world.now += jiff::SignedDuration::from_secs(90);
    let list = table(&mut world, CONFIG_MAPS);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let names: Vec<&Value> =
        list["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    assert_eq!(list["rows"][0]["cells"], json!(["a", 1, "90s"]));
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = table(&mut world, &format!("{CONFIG_MAPS}/a?includeObject=Object"));
    assert_eq!(whole["rows"][0]["object"]["data"], json!({"k": "v"}));
    let bare = table(&mut world, &format!("{CONFIG_MAPS}/a?includeObject=None"));
    assert_eq!(bare["rows"][0]["object"], Value::Null);
}

/// An event without lastTimestamp was last seen at its firstTimestamp.
#[test]
fn events_are_as_old_as_they_say() {
    let mut world = World::new();
    let path = "/api/v1/namespaces/default/events";
    let mut age = |name: &str, times: Value| {
        let mut event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
        event.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        world.created(path, &event);
        table(&mut world, &format!("{path}/{name}"))["rows"][0]["cells"][0].clone()
    };
    let (first, last) = ("2026-01-02T03:03:05Z", "2026-01-02T03:04:00Z");
    assert_eq!(age("a", json!({"firstTimestamp": first})), "60s");
    assert_eq!(age("b", json!({"firstTimestamp": first, "lastTimestamp": last})), "5s");
    assert_eq!(age("c", json!({})), "<unknown>");
}

#[test]
fn watches_can_be_tables() {
    let mut world = World::new();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned();
    let request = Request::new(Method::GET, &format!("{CONFIG_MAPS}?watch=1"), "");
    let Reply::Watch { id, .. } = world.kernel.call(&Request { accept, ..request }, world.now) else {
        panic!("a watch")
    };
    world.created(CONFIG_MAPS, &config_map("a"));
    let frames = world.kernel.take_frames(id).unwrap();
    assert_eq!(frames[0].object["rows"][0]["cells"], json!(["a", 0, "0s"]));
}

#[test]
fn every_kind_has_columns_that_print() {
    let mut world = World::new();
    let kinds: Vec<_> = world.kernel.registry.all().collect();
    for kind in kinds {
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let stored = std::sync::Arc::new(object);
        let shown = super::super::printing::table(
            kind,
            std::slice::from_ref(&stored),
            super::super::accept::Included::Nothing,
            world.now,
        );
        let cells = shown["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(cells.len(), shown["columnDefinitions"].as_array().unwrap().len());
        assert!(cells.contains(&json!("x")), "{}", kind.kind);
    }
    assert_eq!(world.get("/api/v1/pods").0, 200);
}

#[test]
fn openapi_tells_the_shapes() {
    let mut world = World::new();
    let (_, index) = world.get("/openapi/v3");
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (_, document) = world.get(&url);
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(deployment["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
    let pod = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(pod["x-kubernetes-patch-merge-key"], "name");
    assert!(document.to_string().matches("$ref").count() > 100);
    assert_eq!(world.get("/openapi/v3/apis/none/v1").0, 404);
    assert_eq!(world.get("/openapi/v2").1["swagger"], "2.0");
}
