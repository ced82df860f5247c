//! Custom resources are served as soon as their CRD is stored, and are deleted with it.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
    "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
    "versions": [
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
        {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
    ]}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 3}})
}

#[test]
fn crd_is_served_immediately() {
    let mut server = TestServer::new();
    assert_eq!(server.get(WIDGETS).0, 404);
    let watch = server.watch(&format!("{DEFINITIONS}?watch=1"));
    server.created(DEFINITIONS, &definition());
    assert_eq!(server.frames(watch), ["ADDED widgets.example.com", "MODIFIED widgets.example.com"]);
    let (_, established) = server.get(&format!("{DEFINITIONS}/widgets.example.com"));
    let conditions: Vec<&Value> =
        established["status"]["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(conditions, ["NamesAccepted", "Established"]);
    assert_eq!(established["status"]["acceptedNames"]["singular"], "widget");
    let (_, list) = server.get("/apis/example.com/v1");
    assert_eq!(list["resources"][0]["shortNames"], json!(["wd"]));
    let stored = server.created(WIDGETS, &widget("w"));
    assert_eq!(stored["metadata"]["generation"], 1);
    // Another version is the same object with another apiVersion.
    let (_, other) = server.get(&WIDGETS.replace("/v1/", "/v2/"));
    assert_eq!(other["items"][0]["apiVersion"], "example.com/v2");
    let refused = server.patch(&format!("{WIDGETS}/w"), "strategic-merge-patch+json", &json!({}));
    assert_eq!(refused.0, 415);
}

#[test]
fn status_and_scale_are_separate_from_the_spec() {
    let mut server = TestServer::new();
    server.created(DEFINITIONS, &definition());
    let mut object = server.created(WIDGETS, &widget("w"));
    object["status"] = json!({"replicas": 2, "selector": "a=b"});
    object["spec"]["size"] = json!(4);
    object["metadata"]["labels"] = json!({"l": "v"});
    let (_, updated) = server.put(&format!("{WIDGETS}/w/status"), &object);
    assert_eq!((&updated["spec"]["size"], &updated["metadata"]["generation"]), (&json!(3), &json!(1)));
    assert!(updated["metadata"].get("labels").is_none());
    let (_, scale) =
        server.patch(&format!("{WIDGETS}/w/scale"), "merge-patch+json", &json!({"spec": {"replicas": 5}}));
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=b"}));
    let (_, scaled) = server.get(&format!("{WIDGETS}/w"));
    assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(5), &json!(2)));
    // Updates of custom resources need a resourceVersion.
    assert_eq!(reason(&server.put(&format!("{WIDGETS}/w"), &widget("w"))), (422, "Invalid"));
}

#[test]
fn custom_objects_are_deleted_with_their_crd() {
    let mut server = TestServer::new();
    server.created(DEFINITIONS, &definition());
    server.created(WIDGETS, &widget("w"));
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.created(WIDGETS, &held);
    assert_eq!(server.delete(&format!("{DEFINITIONS}/widgets.example.com"), &Value::Null).0, 200);
    assert_eq!(server.get(&format!("{WIDGETS}/w")).0, 404);
    assert_eq!(server.get(&format!("{DEFINITIONS}/widgets.example.com")).0, 200);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(server.patch(&format!("{WIDGETS}/held"), "merge-patch+json", &free).0, 200);
    assert_eq!(server.get(&format!("{DEFINITIONS}/widgets.example.com")).0, 404);
    assert_eq!(server.get(WIDGETS).0, 404);
}

#[test]
fn malformed_crds_are_rejected() {
    let mut server = TestServer::new();
    for (pointer, value) in [
        ("/metadata/name", json!("other.example.com")),
        ("/spec/scope", json!("Everywhere")),
        ("/spec/group", json!("")),
        ("/spec/versions/1/storage", json!(true)),
    ] {
        let mut wrong = definition();
        *wrong.pointer_mut(pointer).unwrap() = value;
        assert_eq!(reason(&server.post(DEFINITIONS, &wrong)), (422, "Invalid"), "{pointer}");
    }
}

#[test]
fn no_op_write_stores_a_custom_object_again_if_its_storage_version_changed() {
    let mut server = TestServer::new();
    server.created(DEFINITIONS, &definition());
    let created = server.created(WIDGETS, &widget("w"));
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let patch = |server: &mut TestServer, path: &str| {
        let patched = server.patch(&format!("{path}/w"), "merge-patch+json", &json!({"metadata": {}}));
        assert_eq!(patched.0, 200);
        patched.1
    };
    assert_eq!(version(&patch(&mut server, WIDGETS)), version(&created));
    assert_eq!(version(&patch(&mut server, &WIDGETS.replace("/v1/", "/v2/"))), version(&created));
    let mut changed = definition();
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"][1]["storage"] = json!(true);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let (code, stored) = server.patch(&path, "merge-patch+json", &json!({"spec": changed["spec"]}));
    assert_eq!((code, &stored["status"]["storedVersions"]), (200, &json!(["v1", "v2"])));
    let rewritten = patch(&mut server, WIDGETS);
    assert_ne!(version(&rewritten), version(&created));
    assert_eq!(
        (&rewritten["apiVersion"], &rewritten["metadata"]["generation"]),
        (&json!("example.com/v1"), &json!(1))
    );
    assert_eq!(version(&patch(&mut server, WIDGETS)), version(&rewritten));
    // A version in which objects may be stored cannot be removed.
    let only = json!({"spec": {"versions": [changed["spec"]["versions"][1]]}});
    let (code, refused) = server.patch(&path, "merge-patch+json", &only);
    assert_eq!(code, 422);
    let message = "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version";
    assert!(refused["message"].as_str().unwrap().contains(message), "{refused}");
    let trimmed = json!({"status": {"storedVersions": ["v2"]}});
    assert_eq!(server.patch(&format!("{path}/status"), "merge-patch+json", &trimmed).0, 200);
    assert_eq!(server.patch(&path, "merge-patch+json", &only).0, 200);
}

#[test]
fn openapi_publishes_the_schema_of_a_custom_kind() {
    let mut server = TestServer::new();
    let mut definition = definition();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"size": {"type": "integer"}}}}});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    assert_eq!(server.post(DEFINITIONS, &definition).0, 201);
    let (_, document) = server.get("/openapi/v3/apis/example.com/v1");
    let widget = &document["components"]["schemas"]["example.com.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["properties"]["size"]["type"], "integer");
    assert_eq!(widget["properties"]["kind"]["type"], "string");
    assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    let metadata = widget["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap();
    let name = metadata.rsplit('/').next().unwrap();
    assert!(document["components"]["schemas"][name]["properties"]["labels"].is_object());
}
