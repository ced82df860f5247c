//! The scale subresource.

use super::*;

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

#[test]
fn scale_reads_and_sets_replicas() {
    let mut server = TestServer::new();
    server.created(SETS, &replica_set("a"));
    let path = format!("{SETS}/a/scale");
    let (_, mut scale) = server.get(&path);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 1}), &json!({"replicas": 0, "selector": "app=a"}))
    );
    scale["spec"]["replicas"] = json!(3);
    let (code, scaled) = server.put(&path, &scale);
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(reason(&server.put(&path, &scale)), (409, "Conflict"));
    let (_, set) = server.get(&format!("{SETS}/a"));
    assert_eq!((&set["spec"]["replicas"], &set["metadata"]["generation"]), (&json!(3), &json!(2)));
    let entries = set["metadata"]["managedFields"].as_array().unwrap();
    assert!(
        entries
            .iter()
            .any(|e| e["subresource"] == "scale" && e["fieldsV1"] == json!({"f:spec": {"f:replicas": {}}}))
    );
    let (_, patched) = server.patch(&path, "merge-patch+json", &json!({"spec": {"replicas": 5}}));
    assert_eq!(patched["spec"]["replicas"], 5);
    let refused = server.patch(&path, "merge-patch+json", &json!({"spec": {"replicas": -1}}));
    assert_eq!(reason(&refused), (422, "Invalid"));
    assert_eq!(server.get(&format!("{SETS}/none/scale")).0, 404);
}
