//! No request makes the kernel panic or return a server error.

use super::*;

/// Malformed bodies at every endpoint that reads a body: always a 4xx Status, never a panic.
#[test]
fn malformed_bodies_are_rejected_by_every_endpoint() {
    let mut server = TestServer::new();
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.created(CONFIG_MAPS, &config_map("a"));
    server.created(sets, &replica_set("a"));
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let bodies = [
        "",
        "{",
        "null",
        "3",
        "\"x\"",
        "[]",
        "\u{0}",
        "{\"metadata\":",
        &deep,
        r#"{"metadata":null}"#,
        r#"{"metadata":[]}"#,
        r#"{"metadata":{"name":["a"]}}"#,
        r#"{"metadata":{"name":"a","labels":{"a":{}}}}"#,
        r#"{"metadata":{"name":"a"},"spec":3}"#,
        r#"{"metadata":{"name":"a"},"spec":{"strategy":3}}"#,
        r#"{"metadata":{"name":"a"},"spec":{"selector":3}}"#,
        r#"{"metadata":{"name":"a"},"spec":{"template":[]}}"#,
        r#"{"metadata":{"name":"a"},"spec":{"replicas":"3"}}"#,
        r#"{"metadata":{"name":"a"},"data":[]}"#,
        r#"{"metadata":{"name":"a"},"data":{"k":3}}"#,
        r#"{"metadata":{"name":"a"},"data":{"../x":"y"}}"#,
        r#"{"metadata":{"name":"a"},"stringData":{"k":3}}"#,
        r#"{"metadata":{"name":"a"},"rules":{}}"#,
        r#"{"metadata":{"name":"a"},"rules":[3]}"#,
    ];
    let places = [
        CONFIG_MAPS,
        sets,
        deployments,
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/pods",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    ];
    for place in places {
        for body in bodies {
            for (method, target) in [
                (Method::POST, place.to_owned()),
                (Method::PUT, format!("{place}/a")),
                (Method::DELETE, format!("{place}/a?dryRun=All")),
            ] {
                let (code, answer) = server.send(method.clone(), &target, body);
                assert!(code < 500, "{method} {target} {body}: {answer}");
            }
            for kind in
                ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
            {
                let target = format!("{place}/a?fieldManager=m&dryRun=All");
                let request = Request::new(Method::PATCH, &target, body.to_owned());
                let (code, _) =
                    server.reply(&Request { content_type: format!("application/{kind}"), ..request });
                assert!(code < 500, "{kind} {target} {body}");
            }
        }
    }
}

#[test]
fn field_validation_drops_warns_or_rejects() {
    let mut server = TestServer::new();
    let object = json!({"metadata": {"name": "a", "strange": 1}, "spec": {}, "data": {"k": "v"}});
    let strict = server.post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &object);
    assert_eq!(reason(&strict), (400, "BadRequest"));
    assert!(strict.1["message"].as_str().unwrap().contains("unknown field \"spec\""));
    let dropped = server.created(CONFIG_MAPS, &object);
    assert!(dropped.get("spec").is_none());
    assert!(dropped["metadata"].get("strange").is_none());
}

#[test]
fn other_media_types_and_large_bodies_are_rejected() {
    let mut server = TestServer::new();
    let request = Request::new(Method::POST, CONFIG_MAPS, config_map("a").to_string());
    let yaml = Request { content_type: "application/yaml".to_owned(), ..request.clone() };
    assert_eq!(reason(&server.reply(&yaml)), (415, "UnsupportedMediaType"));
    let accept = Request { accept: "application/vnd.kubernetes.protobuf".to_owned(), ..request };
    assert_eq!(reason(&server.reply(&accept)), (406, "NotAcceptable"));
    let huge = "x".repeat(4 * 1024 * 1024);
    assert_eq!(server.send(Method::POST, CONFIG_MAPS, &huge).0, 413);
}

#[test]
fn malformed_queries_are_rejected() {
    let mut server = TestServer::new();
    for query in [
        "limit=x",
        "continue=!!!",
        "continue=e30",
        "resourceVersion=-1",
        "resourceVersion=99999999999999999999999",
        "labelSelector=%00",
        "fieldSelector=%5C",
        "watch=1&timeoutSeconds=x",
        "watch=1&continue=x",
    ] {
        let (code, answer) = server.get(&format!("{CONFIG_MAPS}?{query}"));
        assert!((400..500).contains(&code), "{query}: {answer}");
    }
}
