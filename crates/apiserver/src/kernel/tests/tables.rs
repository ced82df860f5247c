//! Tables for `kubectl get`, and OpenAPI.

use super::*;

fn table(server: &mut TestServer, target: &str) -> Value {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".to_owned();
    server.reply(&Request { accept, ..Request::new(Method::GET, target, "") }).1
}

#[test]
fn lists_and_objects_become_rows() {
    let mut server = TestServer::new();
    server.created(CONFIG_MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    server.now += jiff::SignedDuration::from_secs(90);
    let list = table(&mut server, CONFIG_MAPS);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let names: Vec<&Value> =
        list["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    assert_eq!(list["rows"][0]["cells"], json!(["a", 1, "90s"]));
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = table(&mut server, &format!("{CONFIG_MAPS}/a?includeObject=Object"));
    assert_eq!(whole["rows"][0]["object"]["data"], json!({"k": "v"}));
    let bare = table(&mut server, &format!("{CONFIG_MAPS}/a?includeObject=None"));
    assert_eq!(bare["rows"][0]["object"], Value::Null);
}

/// An event without lastTimestamp was last seen at its firstTimestamp.
#[test]
fn event_age_falls_back_to_the_first_timestamp() {
    let mut server = TestServer::new();
    let path = "/api/v1/namespaces/default/events";
    let mut age = |name: &str, times: Value| {
        let mut event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
        event.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        server.created(path, &event);
        table(&mut server, &format!("{path}/{name}"))["rows"][0]["cells"][0].clone()
    };
    let (first, last) = ("2026-01-02T03:03:05Z", "2026-01-02T03:04:00Z");
    assert_eq!(age("a", json!({"firstTimestamp": first})), "60s");
    assert_eq!(age("b", json!({"firstTimestamp": first, "lastTimestamp": last})), "5s");
    assert_eq!(age("c", json!({})), "<unknown>");
}

#[test]
fn watches_can_be_tables() {
    let mut server = TestServer::new();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned();
    let request = Request::new(Method::GET, &format!("{CONFIG_MAPS}?watch=1"), "");
    let Reply::Watch { id, .. } = server.kernel.call(&Request { accept, ..request }, server.now) else {
        panic!("a watch")
    };
    server.created(CONFIG_MAPS, &config_map("a"));
    let frames = server.kernel.take_frames(id).unwrap();
    assert_eq!(frames[0].object["rows"][0]["cells"], json!(["a", 0, "0s"]));
}

#[test]
fn every_kind_has_columns_that_print() {
    let mut server = TestServer::new();
    let kinds: Vec<_> = server.kernel.registry.all().collect();
    for kind in kinds {
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let stored = std::sync::Arc::new(object);
        let shown = super::super::printing::table(
            kind,
            std::slice::from_ref(&stored),
            super::super::accept::Included::Nothing,
            server.now,
        );
        let cells = shown["rows"][0]["cells"].as_array().unwrap();
        let undeclared = usize::from(kind.kind == "IPAddress");
        assert_eq!(cells.len(), shown["columnDefinitions"].as_array().unwrap().len() + undeclared);
        assert!(cells.contains(&json!("x")), "{}", kind.kind);
    }
    assert_eq!(server.get("/api/v1/pods").0, 200);
}

#[test]
fn openapi_describes_the_types() {
    let mut server = TestServer::new();
    let (_, index) = server.get("/openapi/v3");
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (_, document) = server.get(&url);
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(deployment["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
    let pod = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(pod["x-kubernetes-patch-merge-key"], "name");
    assert!(document.to_string().matches("$ref").count() > 100);
    assert_eq!(server.get("/openapi/v3/apis/none/v1").0, 404);
    assert_eq!(server.get("/openapi/v2").1["swagger"], "2.0");
}
