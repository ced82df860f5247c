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
