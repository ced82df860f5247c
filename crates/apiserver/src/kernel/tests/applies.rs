//! Server-side apply: field ownership decides what is kept, removed and in conflict.

use super::*;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn apply(server: &mut TestServer, path: &str, manager: &str, object: &Value) -> (u16, Value) {
    server.patch(&format!("{path}?fieldManager={manager}&force=true"), "apply-patch+yaml", object)
}

fn role(fields: &Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    role.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    role
}

fn rule(verb: &str) -> Value {
    json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})
}

fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().map(|e| format!("{} {} {}", e["manager"], e["operation"], e["fieldsV1"])).collect()
}

#[test]
fn apply_creates_sets_and_removes_what_it_owns() {
    let mut server = TestServer::new();
    let path = format!("{ROLES}/r");
    let (code, created) = apply(&mut server, &path, "one", &role(&json!({"rules": [rule("get")]})));
    assert_eq!((code, &created["rules"][0]["verbs"]), (201, &json!(["get"])));
    assert_eq!(owners(&created), [r#""one" "Apply" {"f:rules":{}}"#]);
    let (code, changed) = apply(&mut server, &path, "one", &role(&json!({"rules": [rule("list")]})));
    assert_eq!((code, &changed["rules"]), (200, &json!([rule("list")])));
    let (_, emptied) = apply(&mut server, &path, "one", &role(&json!({})));
    // kube-apiserver writes absent rules as null.
    assert_eq!(emptied.get("rules"), Some(&Value::Null));
    assert!(emptied["metadata"].get("managedFields").is_none());
}

#[test]
fn repeated_apply_changes_nothing() {
    let mut server = TestServer::new();
    let path = format!("{ROLES}/r");
    let wanted = role(&json!({"rules": [rule("get")]}));
    let (_, first) = apply(&mut server, &path, "one", &wanted);
    server.now += jiff::SignedDuration::from_secs(60);
    assert_eq!(apply(&mut server, &path, "one", &wanted), (200, first));
}

#[test]
fn fields_of_other_managers_are_kept() {
    let mut server = TestServer::new();
    let path = format!("{ROLES}/r");
    let mut object =
        role(&json!({"rules": [rule("get")], "aggregationRule": {"clusterRoleSelectors": [{}]}}));
    object["metadata"]["labels"] = json!({"l": "v"});
    server.created(&format!("{ROLES}?fieldManager=creator"), &object);
    // An empty apply by a manager that owns nothing removes nothing.
    let (_, same) = apply(&mut server, &path, "one", &role(&json!({})));
    assert_eq!(same["rules"], json!([rule("get")]));
    let (_, taken) = apply(&mut server, &path, "one", &role(&json!({"rules": [rule("list")]})));
    assert_eq!(taken["metadata"]["labels"], json!({"l": "v"}));
    assert_eq!(
        owners(&taken),
        [
            r#""one" "Apply" {"f:rules":{}}"#,
            r#""creator" "Update" {"f:aggregationRule":{".":{},"f:clusterRoleSelectors":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#,
        ]
    );
    // Shared ownership: a field stays when one of its two managers stops applying it.
    apply(&mut server, &path, "two", &role(&json!({"rules": [rule("list")]})));
    let (_, left) = apply(&mut server, &path, "one", &role(&json!({})));
    assert_eq!(left["rules"], json!([rule("list")]));
}

#[test]
fn conflicts_are_reported_unless_forced() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let applied = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    apply(&mut server, &path, "one", &applied("1"));
    let refused = server.patch(&format!("{path}?fieldManager=two"), "apply-patch+yaml", &applied("2"));
    assert_eq!(reason(&refused), (409, "Conflict"));
    assert_eq!(
        refused.1["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.k"}])
    );
    let (code, forced) = apply(&mut server, &path, "two", &applied("2"));
    assert_eq!((code, &forced["data"]["k"]), (200, &json!("2")));
    assert_eq!(owners(&forced), [r#""two" "Apply" {"f:data":{"f:k":{}}}"#]);
}

#[test]
fn object_without_managed_fields_gets_them_at_its_first_apply() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    server.created(CONFIG_MAPS, &config_map("a"));
    let (_, updated) = server.put(&path, &json!({"metadata": {"name": "a"}, "data": {"k": "1"}}));
    assert!(updated["metadata"].get("managedFields").is_none());
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"l": "1"}});
    let (_, owned) = apply(&mut server, &path, "one", &applied);
    assert_eq!(
        owners(&owned),
        [
            r#""one" "Apply" {"f:data":{"f:l":{}}}"#,
            r#""before-first-apply" "Update" {"f:data":{".":{},"f:k":{}}}"#,
        ]
    );
}

#[test]
fn update_takes_field_ownership_from_the_applier() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1", "l": "1"}});
    let (_, mut object) = apply(&mut server, &path, "one", &applied);
    object["data"]["k"] = json!("2");
    server.put(&format!("{path}?fieldManager=editor"), &object);
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (_, left) = apply(&mut server, &path, "one", &nothing);
    assert_eq!(left["data"], json!({"k": "2"}));
}

#[test]
fn items_of_sets_and_keyed_lists_are_owned_one_by_one() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let applied = |finalizers: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": finalizers}});
    apply(&mut server, &path, "one", &applied(json!(["x.io/one"])));
    let (_, both) = apply(&mut server, &path, "two", &applied(json!(["x.io/two"])));
    assert_eq!(both["metadata"]["finalizers"], json!(["x.io/one", "x.io/two"]));
    let (_, left) = apply(&mut server, &path, "one", &applied(json!([])));
    assert_eq!(left["metadata"]["finalizers"], json!(["x.io/two"]));
}

#[test]
fn malformed_applies_are_rejected() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let good = config_map("a");
    assert_eq!(reason(&server.patch(&path, "apply-patch+yaml", &good)), (422, "Invalid"));
    for bad in [
        json!({"metadata": {"name": "a"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}}),
        json!("kind: ConfigMap"),
    ] {
        assert_eq!(apply(&mut server, &path, "one", &bad).0, 400, "{bad}");
    }
    let mut locked = good;
    locked["metadata"]["uid"] = json!("gone");
    assert_eq!(reason(&apply(&mut server, &path, "one", &locked)), (409, "Conflict"));
}
