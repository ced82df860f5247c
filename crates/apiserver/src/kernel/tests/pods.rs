//! Pods: admission, immutability, binding and eviction.

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[test]
fn a_new_pod_has_an_account_a_priority_and_patience() {
    let mut world = World::new();
    let pod = world.created(PODS, &pod("p"));
    let spec = &pod["spec"];
    assert_eq!((&spec["serviceAccountName"], &spec["priority"]), (&json!("default"), &json!(0)));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 300);
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let mut critical = super::pods::pod("q");
    critical["spec"]["priorityClassName"] = json!("nothing");
    assert_eq!(reason(&world.post(PODS, &critical)), (403, "Forbidden"));
    let class = json!({"metadata": {"name": "high"}, "value": 7});
    world.created("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    critical["spec"]["priorityClassName"] = json!("high");
    assert_eq!(world.created(PODS, &critical)["spec"]["priority"], 7);
}

#[test]
fn with_account_admission_pods_need_their_account() {
    let mut world = World::with(KernelOptions { service_accounts: true, ..KernelOptions::default() });
    assert_eq!(reason(&world.post(PODS, &pod("p"))), (403, "Forbidden"));
    world.created("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    let pod = world.created(PODS, &pod("p"));
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    assert_eq!(pod["spec"]["volumes"][0]["name"], pod["spec"]["containers"][0]["volumeMounts"][0]["name"]);
}

/// The service account is checked first; pod overhead only if nothing else is wrong.
#[test]
fn pods_are_refused_for_the_first_reason_there_is() {
    let mut world = World::with(KernelOptions { service_accounts: true, ..KernelOptions::default() });
    let refusal = |world: &mut World, field: &str, value: Value| {
        let mut pod = pod("p");
        pod["spec"][field] = value;
        let (code, status) = world.post(PODS, &pod);
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    for (field, value) in [("priority", json!(7)), ("runtimeClassName", json!("none"))] {
        let (code, message) = refusal(&mut world, field, value);
        assert!(code == 403 && message.contains("error looking up service account"), "{message}");
    }
    world.created("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    let (code, message) = refusal(&mut world, "overhead", json!({"cpu": "1"}));
    assert!(code == 403 && message.contains("Pod Overhead set without"), "{message}");
    let mut wrong = pod("Wrong");
    wrong["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(reason(&world.post(PODS, &wrong)), (422, "Invalid"));
}

#[test]
fn gates_are_not_added_to_a_pod() {
    let mut world = World::new();
    let mut pod = world.created(PODS, &pod("p"));
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    let (code, status) = world.put(&format!("{PODS}/p"), &pod);
    let causes = status["details"]["causes"].as_array().unwrap();
    assert_eq!((code, causes.len()), (422, 1), "{status}");
    assert_eq!(causes[0]["field"], "spec.schedulingGates[0].name");
}

#[test]
fn almost_nothing_of_a_pod_can_be_changed() {
    let mut world = World::new();
    let mut pod = world.created(PODS, &pod("p"));
    pod["spec"]["containers"][0]["image"] = json!("i:2");
    let (code, mut pod) = world.put(&format!("{PODS}/p"), &pod);
    assert_eq!((code, &pod["metadata"]["generation"]), (200, &json!(2)));
    pod["spec"]["nodeName"] = json!("n");
    assert_eq!(reason(&world.put(&format!("{PODS}/p"), &pod)), (422, "Invalid"));
}

#[test]
fn a_pod_is_bound_once() {
    let mut world = World::new();
    world.created(PODS, &pod("p"));
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(world.post(&format!("{PODS}/p/binding"), &binding("q")).0, 400);
    let (code, status) = world.post(&format!("{PODS}/p/binding"), &binding("p"));
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    let (_, pod) = world.get(&format!("{PODS}/p"));
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(reason(&world.post(&format!("{PODS}/p/binding"), &binding("p"))), (409, "Conflict"));
    assert_eq!(world.post("/api/v1/namespaces/default/bindings", &binding("none")).0, 404);
}

/// A running and ready pod with a PodDisruptionBudget.
fn guarded(status: &Value) -> World {
    let mut world = World::new();
    let mut pod = pod("p");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["spec"]["nodeName"] = json!("n");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    world.kernel.seed(pod, world.now).unwrap();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}, "status": status});
    world.kernel.seed(budget, world.now).unwrap();
    world
}

fn evict(world: &mut World) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    world.post(&format!("{PODS}/p/eviction"), &eviction)
}

#[test]
fn eviction_asks_the_budget() {
    let mut world = guarded(&json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 1}));
    let refused = evict(&mut world);
    assert_eq!(reason(&refused), (429, "TooManyRequests"));
    assert_eq!(refused.1["details"]["causes"][0]["reason"], "DisruptionBudget");
    let mut world = guarded(&json!({"observedGeneration": 0, "disruptionsAllowed": 1}));
    assert_eq!(evict(&mut world).1["details"]["retryAfterSeconds"], 10);
    let mut world = guarded(&json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}));
    assert_eq!(evict(&mut world).0, 201);
    let (_, budget) = world.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/b");
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["disruptedPods"], json!({"p": "2026-01-02T03:04:05Z"}));
    assert_eq!(budget["status"]["conditions"][0]["reason"], "InsufficientPods");
    assert_eq!(world.get(&format!("{PODS}/p")).1["metadata"]["deletionGracePeriodSeconds"], 30);
}

#[test]
fn pods_nobody_waits_for_are_evicted_at_once() {
    let mut world = World::new();
    world.created(PODS, &pod("p"));
    assert_eq!(evict(&mut world).0, 201);
    assert_eq!(world.get(&format!("{PODS}/p")).0, 404);
}

#[test]
fn what_needs_a_kubelet_is_refused_clearly() {
    let mut world = World::new();
    world.created(PODS, &pod("p"));
    for subresource in ["log", "exec", "attach", "portforward", "proxy", "ephemeralcontainers"] {
        assert_eq!(reason(&world.get(&format!("{PODS}/p/{subresource}"))), (501, "NotImplemented"));
    }
}
