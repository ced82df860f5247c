//! Create and update: names, preconditions, system fields, status, dry run and kind-specific validation.

use super::*;

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

#[test]
fn create_sets_system_fields() {
    let mut server = TestServer::new();
    let first = server.created(CONFIG_MAPS, &config_map("a"));
    let second = server.created(CONFIG_MAPS, &config_map("b"));
    assert_eq!(first["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(first["metadata"]["namespace"], "default");
    assert_eq!(first["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(version(&second), version(&first) + 1);
    assert!(first["metadata"].get("generation").is_none());
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a")), (200, first));
}

#[test]
fn names_are_unique_and_generated_on_demand() {
    let mut server = TestServer::new();
    server.created(CONFIG_MAPS, &config_map("a"));
    assert_eq!(reason(&server.post(CONFIG_MAPS, &config_map("a"))), (409, "AlreadyExists"));
    let generated = server.created(CONFIG_MAPS, &json!({"metadata": {"generateName": "job-"}}));
    let name = generated["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("job-") && name.len() == 9, "{name}");
    let without_name = server.post(CONFIG_MAPS, &json!({"metadata": {}}));
    assert_eq!(reason(&without_name), (422, "Invalid"));
    assert_eq!(without_name.1["details"]["causes"][0]["field"], "metadata.name");
}

#[test]
fn body_and_path_must_agree() {
    let mut server = TestServer::new();
    server.created(CONFIG_MAPS, &config_map("a"));
    assert_eq!(reason(&server.put(&format!("{CONFIG_MAPS}/a"), &config_map("b"))), (400, "BadRequest"));
    assert_eq!(reason(&server.put(&format!("{CONFIG_MAPS}/a"), &json!({}))), (400, "BadRequest"));
    let elsewhere = json!({"metadata": {"name": "x", "namespace": "kube-system"}});
    assert_eq!(reason(&server.post(CONFIG_MAPS, &elsewhere)), (400, "BadRequest"));
    let other_kind = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
    assert_eq!(reason(&server.post(CONFIG_MAPS, &other_kind)), (400, "BadRequest"));
}

#[test]
fn updates_use_optimistic_locking() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let mut first = server.created(CONFIG_MAPS, &config_map("a"));
    first["data"] = json!({"k": "1"});
    let (code, second) = server.put(&path, &first);
    assert_eq!((code, version(&second)), (200, version(&first) + 1));
    first["data"] = json!({"k": "2"});
    let conflict = server.put(&path, &first);
    assert_eq!(reason(&conflict), (409, "Conflict"));
    assert!(conflict.1["message"].as_str().unwrap().contains("the object has been modified"));
    assert_eq!(conflict.1["details"], json!({"name": "a", "kind": "configmaps"}));
    let unconditional = json!({"metadata": {"name": "a"}, "data": {"k": "3"}});
    assert_eq!(server.put(&path, &unconditional).0, 200);
    let other_uid = json!({"metadata": {"name": "a", "uid": "other"}});
    assert_eq!(reason(&server.put(&path, &other_uid)), (409, "Conflict"));
    assert_eq!(reason(&server.put(&format!("{CONFIG_MAPS}/b"), &config_map("b"))), (404, "NotFound"));
}

#[test]
fn no_op_updates_keep_the_resource_version() {
    let mut server = TestServer::new();
    let path = format!("{CONFIG_MAPS}/a");
    let first = server.created(CONFIG_MAPS, &config_map("a"));
    let watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&first)));
    assert_eq!(server.put(&path, &first), (200, first.clone()));
    let mut sparse = config_map("a");
    sparse["data"] = json!({});
    sparse["metadata"]["labels"] = json!({});
    assert_eq!(server.put(&path, &sparse), (200, first));
    assert!(server.frames(watch).is_empty());
}

#[test]
fn leases_need_a_version_to_update_and_may_be_created_by_put() {
    let mut server = TestServer::new();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease =
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    let (code, stored) = server.put(path, &lease);
    assert_eq!(code, 201);
    assert_eq!(reason(&server.put(path, &lease)), (422, "Invalid"));
    assert_eq!(server.put(path, &stored).0, 200);
    let mut bad = stored;
    bad["spec"]["leaseDurationSeconds"] = json!(0);
    assert_eq!(reason(&server.put(path, &bad)), (422, "Invalid"));
}

#[test]
fn status_and_spec_are_written_separately() {
    let mut server = TestServer::new();
    let path = format!("{REPLICA_SETS}/a");
    let mut object = server.created(REPLICA_SETS, &replica_set("a"));
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(object["status"], json!({"replicas": 0}));
    object["spec"]["replicas"] = json!(5);
    object["status"] = json!({"replicas": 3});
    object["metadata"]["annotations"] = json!({"note": "kept"});
    let (code, object) = server.put(&format!("{path}/status"), &object);
    assert_eq!((code, &object["spec"]["replicas"]), (200, &json!(1)));
    assert_eq!(object["status"], json!({"replicas": 3}));
    assert_eq!(object["metadata"]["annotations"]["note"], "kept");
    assert_eq!(object["metadata"]["generation"], 1);
    let mut changed = object;
    changed["spec"]["replicas"] = json!(5);
    changed["status"] = json!({"replicas": 7});
    let (_, object) = server.put(&path, &changed);
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!((&object["spec"]["replicas"], &object["status"]["replicas"]), (&json!(5), &json!(3)));
}

#[test]
fn system_fields_cannot_be_changed() {
    let mut server = TestServer::new();
    let first = server.created(CONFIG_MAPS, &config_map("a"));
    let mut forged = first.clone();
    forged["metadata"]["creationTimestamp"] = json!("1999-01-01T00:00:00Z");
    forged["metadata"]["generation"] = json!(99);
    assert_eq!(server.put(&format!("{CONFIG_MAPS}/a"), &forged), (200, first));
    forged["metadata"]["deletionTimestamp"] = json!("1999-01-01T00:00:00Z");
    assert_eq!(server.put(&format!("{CONFIG_MAPS}/a"), &forged).0, 422);
}

#[test]
fn dry_run_changes_nothing() {
    let mut server = TestServer::new();
    let before = server.kernel.revision();
    let created = server.created(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a"));
    assert!(created["metadata"].get("resourceVersion").is_none());
    let mut object = server.created(CONFIG_MAPS, &config_map("b"));
    object["data"] = json!({"k": "v"});
    let (code, answer) = server.put(&format!("{CONFIG_MAPS}/b?dryRun=All"), &object);
    assert_eq!((code, &answer["data"]["k"]), (200, &json!("v")));
    assert_eq!(server.delete(&format!("{CONFIG_MAPS}/b?dryRun=All"), &Value::Null).0, 200);
    assert_eq!(server.kernel.revision(), before + 1);
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a")).0, 404);
    assert!(server.get(&format!("{CONFIG_MAPS}/b")).1.get("data").is_none());
    assert_eq!(
        reason(&server.post(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("c"))),
        (422, "Invalid")
    );
}

#[test]
fn kind_specific_rules_are_enforced() {
    let mut server = TestServer::new();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = server.created(secrets, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}));
    assert_eq!((&secret["type"], &secret["data"]["k"]), (&json!("Opaque"), &json!("dg==")));
    assert!(secret.get("stringData").is_none());
    let mut retyped = secret;
    retyped["type"] = json!("other");
    assert_eq!(reason(&server.put(&format!("{secrets}/s"), &retyped)), (422, "Invalid"));
    let token = json!({"metadata": {"name": "t"}, "type": "kubernetes.io/service-account-token"});
    assert_eq!(reason(&server.post(secrets, &token)), (422, "Invalid"));
    let not_base64 = json!({"metadata": {"name": "n"}, "data": {"k": "!"}});
    assert_eq!(reason(&server.post(secrets, &not_base64)), (400, "BadRequest"));
    let role = json!({"metadata": {"name": "r"}, "rules": [{"resources": ["pods"]}]});
    let refused = server.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    assert_eq!(refused.1["details"]["causes"].as_array().unwrap().len(), 2);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "elsewhere"}});
    assert_eq!(reason(&server.post("/api/v1/namespaces/default/events", &event)), (422, "Invalid"));
}

#[test]
fn same_seed_and_requests_give_the_same_responses() {
    let run = || {
        let mut server = TestServer::new();
        let first = server.created(CONFIG_MAPS, &json!({"metadata": {"generateName": "x-"}}));
        (first, server.get("/api/v1/namespaces").1)
    };
    assert_eq!(run(), run());
}
