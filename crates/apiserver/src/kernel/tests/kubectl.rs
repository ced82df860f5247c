//! Behaviour that kubectl sessions on both servers have shown to matter.

use super::*;

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[test]
fn autoscalers_are_one_thing_in_two_versions() {
    let mut world = World::new();
    let watch = world.watch(&format!("{V1}?watch=1"));
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let sent = json!({"metadata": {"name": "a"}, "spec":
        {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 70}});
    let created = world.created(V1, &sent);
    assert_eq!(created["apiVersion"], "autoscaling/v1");
    assert_eq!(created["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(created["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    let (_, second) = world.get(&format!("{V2}/a"));
    assert_eq!(second["apiVersion"], "autoscaling/v2");
    assert_eq!(second["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    let patch = json!({"spec": {"targetCPUUtilizationPercentage": 50, "minReplicas": 2}});
    let (_, patched) = world.patch(&format!("{V1}/a"), "merge-patch+json", &patch);
    assert_eq!((&patched["spec"]["minReplicas"], &patched["metadata"]["generation"]), (&json!(2), &json!(2)));
    let (_, list) = world.get(V1);
    assert_eq!(list["items"][0]["spec"]["targetCPUUtilizationPercentage"], 50);
    for frame in world.kernel.take_frames(watch).unwrap() {
        assert_eq!(frame.object["apiVersion"], "autoscaling/v1", "{}", frame.kind);
    }
    world.delete(&format!("{V1}/a"), &Value::Null);
    assert_eq!(world.get(&format!("{V2}/a")).0, 404);
}

#[test]
fn a_pod_says_where_its_node_is() {
    let mut world = World::new();
    let zone =
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    world.created("/api/v1/nodes", &json!({"metadata": {"name": "n", "labels": zone}}));
    let pod = |name: &str, node: Value| {
        json!({"metadata": {"name": name, "labels": {"a": "b"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    let placed = json!({"a": "b", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"});
    assert_eq!(world.created(PODS, &pod("born", json!("n")))["metadata"]["labels"], placed);
    let before = world.created(PODS, &pod("bound", Value::Null));
    assert_eq!(before["metadata"]["labels"], json!({"a": "b"}));
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(world.post(&format!("{PODS}/bound/binding"), &binding).0, 201);
    let (_, bound) = world.get(&format!("{PODS}/bound"));
    assert_eq!(bound["metadata"]["labels"], placed);
    assert_eq!(
        bound["metadata"]["generation"], before["metadata"]["generation"],
        "nobody asked for a change"
    );
    assert_eq!(world.created(PODS, &pod("lost", json!("nowhere")))["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn what_kubectl_applied_last_follows_its_applies_on_the_server() {
    let mut world = World::new();
    let annotations = json!({ LAST_APPLIED: "{}" });
    world.created(CONFIG_MAPS, &json!({"metadata": {"name": "a", "annotations": annotations}}));
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let said = |object: &Value| object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap().to_owned();
    let apply = |world: &mut World, manager: &str| {
        let target = format!("{CONFIG_MAPS}/a?fieldManager={manager}&force=true");
        world.patch(&target, "apply-patch+yaml", &applied).1
    };
    assert_eq!(said(&apply(&mut world, "somebody")), "{}");
    let by_kubectl = said(&apply(&mut world, "kubectl"));
    let kept: Value = serde_json::from_str(by_kubectl.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(kept["data"], json!({"k": "v"}));
}

#[test]
fn an_apply_that_changes_nothing_leaves_no_time() {
    let mut world = World::new();
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let target = |manager: &str| format!("{CONFIG_MAPS}/a?fieldManager={manager}");
    world.patch(&target("first"), "apply-patch+yaml", &applied);
    let (_, shared) = world.patch(&target("second"), "apply-patch+yaml", &applied);
    let owners = shared["metadata"]["managedFields"].as_array().unwrap().clone();
    let timed = |name: &str| owners.iter().find(|o| o["manager"] == name).unwrap().get("time").is_some();
    assert_eq!((timed("first"), timed("second")), (true, false));
}

#[test]
fn refusals_are_in_the_words_of_the_real_server() {
    let mut world = World::new();
    world.created(CONFIG_MAPS, &config_map("a"));
    let said = |answer: (u16, Value)| (answer.0, answer.1["message"].as_str().unwrap_or_default().to_owned());
    let (code, message) = said(world.get(&format!("{CONFIG_MAPS}?fieldSelector=data.k=v")));
    let only = "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert!(code == 400 && message.ends_with(only), "{message}");
    let jobs = said(world.get("/apis/batch/v1/jobs?fieldSelector=x=y"));
    assert!(jobs.1.ends_with("field label \"x\" not supported for Job"), "{}", jobs.1);
    let failing = json!([{"op": "test", "path": "/data/k", "value": "other"}]);
    let refused = said(world.patch(&format!("{CONFIG_MAPS}/a"), "json-patch+json", &failing));
    assert_eq!(refused, (422, "the server rejected our request due to an error in our request".to_owned()));
}

#[test]
fn openapi_has_what_kubectl_asks_for() {
    let mut world = World::new();
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf".to_owned();
    let request = Request { accept: accept.clone(), ..Request::new(Method::GET, "/openapi/v2", "") };
    let Reply::Document(document) = world.kernel.call(&request, world.now) else { panic!("a document") };
    // An @ is not allowed in a media type.
    assert_eq!((document.code, document.content_type.to_owned()), (200, accept.replace('@', ".")));
    assert!(document.body.starts_with(b"\n\x032.0"));
    let (_, apps) = world.get("/openapi/v3/apis/apps/v1");
    let schemas = &apps["components"]["schemas"];
    let surge = &schemas["io.k8s.api.apps.v1.RollingUpdateDeployment"]["properties"]["maxSurge"];
    let reference = surge["allOf"][0]["$ref"].as_str().unwrap();
    let name = reference.rsplit('/').next().unwrap();
    assert_eq!(schemas[name]["format"], "int-or-string");
}
