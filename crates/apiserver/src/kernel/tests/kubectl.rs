//! Behaviour that kubectl sessions on both servers have shown to matter.

use super::*;

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[test]
fn autoscalers_convert_between_v1_and_v2() {
    let mut server = TestServer::new();
    let watch = server.watch(&format!("{V1}?watch=1"));
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let sent = json!({"metadata": {"name": "a"}, "spec":
        {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 70}});
    let created = server.created(V1, &sent);
    assert_eq!(created["apiVersion"], "autoscaling/v1");
    assert_eq!(created["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(created["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    let (_, second) = server.get(&format!("{V2}/a"));
    assert_eq!(second["apiVersion"], "autoscaling/v2");
    assert_eq!(second["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    let patch = json!({"spec": {"targetCPUUtilizationPercentage": 50, "minReplicas": 2}});
    let (_, patched) = server.patch(&format!("{V1}/a"), "merge-patch+json", &patch);
    assert_eq!((&patched["spec"]["minReplicas"], &patched["metadata"]["generation"]), (&json!(2), &json!(2)));
    let (_, list) = server.get(V1);
    assert_eq!(list["items"][0]["spec"]["targetCPUUtilizationPercentage"], 50);
    for frame in server.kernel.take_frames(watch).unwrap() {
        assert_eq!(frame.object["apiVersion"], "autoscaling/v1", "{}", frame.kind);
    }
    server.delete(&format!("{V1}/a"), &Value::Null);
    assert_eq!(server.get(&format!("{V2}/a")).0, 404);
}

#[test]
fn bound_pod_gets_topology_labels_of_its_node() {
    let mut server = TestServer::new();
    let zone =
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    server.created("/api/v1/nodes", &json!({"metadata": {"name": "n", "labels": zone}}));
    let pod = |name: &str, node: Value| {
        json!({"metadata": {"name": name, "labels": {"a": "b"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    let placed = json!({"a": "b", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"});
    assert_eq!(server.created(PODS, &pod("born", json!("n")))["metadata"]["labels"], placed);
    let before = server.created(PODS, &pod("bound", Value::Null));
    assert_eq!(before["metadata"]["labels"], json!({"a": "b"}));
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(server.post(&format!("{PODS}/bound/binding"), &binding).0, 201);
    let (_, bound) = server.get(&format!("{PODS}/bound"));
    assert_eq!(bound["metadata"]["labels"], placed);
    assert_eq!(bound["metadata"]["generation"], before["metadata"]["generation"], "no change was requested");
    assert_eq!(server.created(PODS, &pod("lost", json!("nowhere")))["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn server_side_apply_by_kubectl_updates_last_applied() {
    let mut server = TestServer::new();
    let annotations = json!({ LAST_APPLIED: "{}" });
    server.created(CONFIG_MAPS, &json!({"metadata": {"name": "a", "annotations": annotations}}));
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let last_applied =
        |object: &Value| object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap().to_owned();
    let apply = |server: &mut TestServer, manager: &str| {
        let target = format!("{CONFIG_MAPS}/a?fieldManager={manager}&force=true");
        server.patch(&target, "apply-patch+yaml", &applied).1
    };
    assert_eq!(last_applied(&apply(&mut server, "jane")), "{}");
    let by_kubectl = last_applied(&apply(&mut server, "kubectl"));
    let kept: Value = serde_json::from_str(by_kubectl.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(kept["data"], json!({"k": "v"}));
}

#[test]
fn apply_without_changes_sets_no_timestamp() {
    let mut server = TestServer::new();
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let target = |manager: &str| format!("{CONFIG_MAPS}/a?fieldManager={manager}");
    server.patch(&target("first"), "apply-patch+yaml", &applied);
    let (_, shared) = server.patch(&target("second"), "apply-patch+yaml", &applied);
    let owners = shared["metadata"]["managedFields"].as_array().unwrap().clone();
    let timed = |name: &str| owners.iter().find(|o| o["manager"] == name).unwrap().get("time").is_some();
    assert_eq!((timed("first"), timed("second")), (true, false));
}

#[test]
fn error_messages_equal_those_of_kube_apiserver() {
    let mut server = TestServer::new();
    server.created(CONFIG_MAPS, &config_map("a"));
    let code_and_message =
        |answer: (u16, Value)| (answer.0, answer.1["message"].as_str().unwrap_or_default().to_owned());
    let (code, message) = code_and_message(server.get(&format!("{CONFIG_MAPS}?fieldSelector=data.k=v")));
    let only = "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert!(code == 400 && message.ends_with(only), "{message}");
    let jobs = code_and_message(server.get("/apis/batch/v1/jobs?fieldSelector=x=y"));
    assert!(jobs.1.ends_with("field label \"x\" not supported for Job"), "{}", jobs.1);
    let failing = json!([{"op": "test", "path": "/data/k", "value": "other"}]);
    let refused = code_and_message(server.patch(&format!("{CONFIG_MAPS}/a"), "json-patch+json", &failing));
    assert_eq!(refused, (422, "the server rejected our request due to an error in our request".to_owned()));
}

#[test]
fn openapi_has_what_kubectl_reads() {
    let mut server = TestServer::new();
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf".to_owned();
    let request = Request { accept: accept.clone(), ..Request::new(Method::GET, "/openapi/v2", "") };
    let Reply::Document(document) = server.kernel.call(&request, server.now) else { panic!("a document") };
    // An @ is not allowed in a media type.
    assert_eq!((document.code, document.content_type.to_owned()), (200, accept.replace('@', ".")));
    assert!(document.body.starts_with(b"\n\x032.0"));
    let (_, apps) = server.get("/openapi/v3/apis/apps/v1");
    let schemas = &apps["components"]["schemas"];
    let surge = &schemas["io.k8s.api.apps.v1.RollingUpdateDeployment"]["properties"]["maxSurge"];
    let reference = surge["allOf"][0]["$ref"].as_str().unwrap();
    let name = reference.rsplit('/').next().unwrap();
    assert_eq!(schemas[name]["format"], "int-or-string");
}
