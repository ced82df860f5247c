//! Token requests of service accounts.

use super::*;

#[test]
fn token_requests_are_answered_with_unique_opaque_tokens() {
    let mut server = TestServer::new();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.created(accounts, &json!({"metadata": {"name": "sa"}}));
    let path = format!("{accounts}/sa/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 600}});
    let first = server.created(&path, &request);
    assert_eq!(first["status"]["expirationTimestamp"], "2026-01-02T03:14:05Z");
    assert_eq!(first["spec"]["audiences"], json!(["a"]));
    let second = server.created(&path, &json!({"spec": {}}));
    assert_eq!(second["spec"]["expirationSeconds"], 3600);
    assert_ne!(first["status"]["token"], second["status"]["token"]);
    assert_eq!(reason(&server.post(&path, &json!({"spec": {"expirationSeconds": 5}}))), (422, "Invalid"));
    assert_eq!(reason(&server.post(&format!("{accounts}/none/token"), &request)), (404, "NotFound"));
    assert_eq!(server.post(&path, &json!([])).0, 400);
}
