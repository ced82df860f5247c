//! Pods: admission, immutability, binding and eviction.

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[test]
fn new_pod_gets_service_account_priority_and_tolerations() {
    let mut server = TestServer::new();
    let pod = server.created(PODS, &pod("p"));
    let spec = &pod["spec"];
    assert_eq!((&spec["serviceAccountName"], &spec["priority"]), (&json!("default"), &json!(0)));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 300);
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let mut critical = super::pods::pod("q");
    critical["spec"]["priorityClassName"] = json!("nothing");
    assert_eq!(reason(&server.post(PODS, &critical)), (403, "Forbidden"));
    let class = json!({"metadata": {"name": "high"}, "value": 7});
    server.created("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    critical["spec"]["priorityClassName"] = json!("high");
    assert_eq!(server.created(PODS, &critical)["spec"]["priority"], 7);
}

#[test]
fn with_service_account_admission_pods_need_their_account() {
    let mut server = TestServer::with(KernelOptions { service_accounts: true, ..KernelOptions::default() });
    assert_eq!(reason(&server.post(PODS, &pod("p"))), (403, "Forbidden"));
    server.created("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    let pod = server.created(PODS, &pod("p"));
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    assert_eq!(pod["spec"]["volumes"][0]["name"], pod["spec"]["containers"][0]["volumeMounts"][0]["name"]);
}

/// The service account is checked first; pod overhead only if nothing else is wrong.
#[test]
fn pod_admission_reports_the_first_error() {
    let mut server = TestServer::with(KernelOptions { service_accounts: true, ..KernelOptions::default() });
    let refusal = |server: &mut TestServer, field: &str, value: Value| {
        let mut pod = pod("p");
        pod["spec"][field] = value;
        let (code, status) = server.post(PODS, &pod);
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    for (field, value) in [("priority", json!(7)), ("runtimeClassName", json!("none"))] {
        let (code, message) = refusal(&mut server, field, value);
        assert!(code == 403 && message.contains("error looking up service account"), "{message}");
    }
    server.created("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    let (code, message) = refusal(&mut server, "overhead", json!({"cpu": "1"}));
    assert!(code == 403 && message.contains("Pod Overhead set without"), "{message}");
    let mut wrong = pod("Wrong");
    wrong["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(reason(&server.post(PODS, &wrong)), (422, "Invalid"));
}

#[test]
fn scheduling_gates_cannot_be_added() {
    let mut server = TestServer::new();
    let mut pod = server.created(PODS, &pod("p"));
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    let (code, status) = server.put(&format!("{PODS}/p"), &pod);
    let causes = status["details"]["causes"].as_array().unwrap();
    assert_eq!((code, causes.len()), (422, 1), "{status}");
    assert_eq!(causes[0]["field"], "spec.schedulingGates[0].name");
}

#[test]
fn pod_spec_is_mostly_immutable() {
    let mut server = TestServer::new();
    let mut pod = server.created(PODS, &pod("p"));
    pod["spec"]["containers"][0]["image"] = json!("i:2");
    let (code, mut pod) = server.put(&format!("{PODS}/p"), &pod);
    assert_eq!((code, &pod["metadata"]["generation"]), (200, &json!(2)));
    pod["spec"]["nodeName"] = json!("n");
    assert_eq!(reason(&server.put(&format!("{PODS}/p"), &pod)), (422, "Invalid"));
}

#[test]
fn pod_can_be_bound_only_once() {
    let mut server = TestServer::new();
    server.created(PODS, &pod("p"));
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(server.post(&format!("{PODS}/p/binding"), &binding("q")).0, 400);
    let (code, status) = server.post(&format!("{PODS}/p/binding"), &binding("p"));
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    let (_, pod) = server.get(&format!("{PODS}/p"));
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(reason(&server.post(&format!("{PODS}/p/binding"), &binding("p"))), (409, "Conflict"));
    assert_eq!(server.post("/api/v1/namespaces/default/bindings", &binding("none")).0, 404);
}

/// A running and ready pod with a PodDisruptionBudget.
fn with_budget(status: &Value) -> TestServer {
    let mut server = TestServer::new();
    let mut pod = pod("p");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["spec"]["nodeName"] = json!("n");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    server.kernel.seed(pod, server.now).unwrap();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}, "status": status});
    server.kernel.seed(budget, server.now).unwrap();
    server
}

fn evict(server: &mut TestServer) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    server.post(&format!("{PODS}/p/eviction"), &eviction)
}

#[test]
fn eviction_respects_the_disruption_budget() {
    let mut server =
        with_budget(&json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 1}));
    let refused = evict(&mut server);
    assert_eq!(reason(&refused), (429, "TooManyRequests"));
    assert_eq!(refused.1["details"]["causes"][0]["reason"], "DisruptionBudget");
    let mut server = with_budget(&json!({"observedGeneration": 0, "disruptionsAllowed": 1}));
    assert_eq!(evict(&mut server).1["details"]["retryAfterSeconds"], 10);
    let mut server =
        with_budget(&json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}));
    assert_eq!(evict(&mut server).0, 201);
    let (_, budget) = server.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/b");
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["disruptedPods"], json!({"p": "2026-01-02T03:04:05Z"}));
    assert_eq!(budget["status"]["conditions"][0]["reason"], "InsufficientPods");
    assert_eq!(server.get(&format!("{PODS}/p")).1["metadata"]["deletionGracePeriodSeconds"], 30);
}

/// The cause of a refused eviction, with its code.
fn refusal(status: &Value) -> (u16, String) {
    let (code, refused) = evict(&mut with_budget(status));
    assert_eq!(refused["details"]["causes"][0]["reason"], "DisruptionBudget", "{refused}");
    (code, refused["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn refused_evictions_name_the_state_of_the_budget() {
    let condition = |reason: &str, message: &str| json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message}]);
    let status = |allowed: i64, current: i64, conditions: Value| {
        json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
               "desiredHealthy": 2, "expectedPods": 3, "conditions": conditions})
    };
    let about = "The disruption budget b";
    let none = || json!([]);
    for (status, code, cause) in [
        (status(0, 2, none()), 429, " needs 2 healthy pods and has 2 currently"),
        (
            status(0, 1, condition("SyncFailed", "no scale")),
            429,
            " does not allow evicting pods currently because it failed sync: no scale",
        ),
        (
            status(0, 3, condition("Odd", "why not")),
            429,
            " does not allow evicting pods currently (Odd): why not",
        ),
        (status(0, 3, none()), 429, " does not allow evicting pods currently"),
        (
            status(-1, 3, none()),
            403,
            " does not allow evicting pods currently: pdb disruptions allowed is negative",
        ),
    ] {
        assert_eq!(refusal(&status), (code, format!("{about}{cause}")));
    }
    let refused = evict(&mut with_budget(&status(-1, 3, none()))).1;
    let message = "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative";
    assert_eq!(
        (refused["message"].as_str(), &refused["details"]["kind"]),
        (Some(message), &json!("poddisruptionbudget"))
    );
}

#[test]
fn evictions_of_unready_pods_follow_the_policy_of_the_budget() {
    for (policy, current, evicted) in [
        (json!(null), 1, true),
        (json!("IfHealthyBudget"), 1, true),
        (json!(null), 0, false),
        (json!("IfHealthyBudget"), 0, false),
        (json!("AlwaysAllow"), 0, true),
    ] {
        let mut server = with_budget(&json!({"observedGeneration": 1, "disruptionsAllowed": 0,
            "currentHealthy": current, "desiredHealthy": 1, "expectedPods": 2}));
        let budget_path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b";
        let (_, mut budget) = server.get(budget_path);
        budget["spec"]["unhealthyPodEvictionPolicy"] = policy.clone();
        server.kernel.seed(budget, server.now).unwrap();
        let (_, mut pod) = server.get(&format!("{PODS}/p"));
        pod["status"]["conditions"][0]["status"] = json!("False");
        server.kernel.seed(pod, server.now).unwrap();
        assert_eq!(evict(&mut server).0, if evicted { 201 } else { 429 }, "{policy} {current}");
        let (_, budget) = server.get(budget_path);
        assert_eq!(budget["status"]["disruptedPods"], json!(null), "an unready pod is charged to no budget");
    }
}

#[test]
fn evictions_with_several_budgets_or_as_a_dry_run_change_nothing() {
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2});
    let mut server = with_budget(&status);
    let dry_run = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"dryRun": ["All"]}});
    assert_eq!(server.post(&format!("{PODS}/p/eviction"), &dry_run).0, 201);
    let second = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "c", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 0, "selector": {}}, "status": status});
    server.kernel.seed(second, server.now).unwrap();
    let (code, refused) = evict(&mut server);
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, refused["message"].as_str(), &refused["reason"]), (500, Some(message), &json!(null)));
    let (_, budget) = server.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/b");
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);
    let (_, pod) = server.get(&format!("{PODS}/p"));
    assert_eq!(
        (&pod["metadata"]["deletionTimestamp"], pod["status"]["conditions"].as_array().unwrap().len()),
        (&json!(null), 1)
    );
}

#[test]
fn malformed_disruption_budgets_are_refused() {
    let mut server = TestServer::new();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let refused = |server: &mut TestServer, spec: Value| {
        let (code, status) = server.post(budgets, &json!({"metadata": {"name": "b"}, "spec": spec}));
        (code, status["details"]["causes"][0]["field"].as_str().unwrap_or_default().to_owned())
    };
    let invalid = |field: &str| (422, field.to_owned());
    let expression = |operator: &str| json!({"matchExpressions": [{"key": "a", "operator": operator}]});
    assert_eq!(refused(&mut server, json!({"minAvailable": "101%"})), invalid("spec.minAvailable"));
    assert_eq!(refused(&mut server, json!({"maxUnavailable": "200%"})), invalid("spec.maxUnavailable"));
    assert_eq!(refused(&mut server, json!({"minAvailable": -1})), invalid("spec.minAvailable"));
    assert_eq!(refused(&mut server, json!({"maxUnavailable": "many"})), invalid("spec.maxUnavailable"));
    assert_eq!(refused(&mut server, json!({"minAvailable": 1, "maxUnavailable": 1})), invalid("spec"));
    for operator in ["Near", "In"] {
        let (code, field) =
            refused(&mut server, json!({"minAvailable": 1, "selector": expression(operator)}));
        assert!(code == 422 && field.starts_with("spec.selector.matchExpressions[0]"), "{code} {field}");
    }
    assert_eq!(
        refused(&mut server, json!({"unhealthyPodEvictionPolicy": "Odd"})),
        invalid("spec.unhealthyPodEvictionPolicy")
    );
    assert_eq!(refused(&mut server, json!({"minAvailable": 1, "selector": {}})).0, 201);
}

#[test]
fn pods_without_a_disruption_budget_are_evicted() {
    let mut server = TestServer::new();
    server.created(PODS, &pod("p"));
    assert_eq!(evict(&mut server).0, 201);
    assert_eq!(server.get(&format!("{PODS}/p")).0, 404);
}

#[test]
fn subresources_that_need_a_kubelet_return_501() {
    let mut server = TestServer::new();
    server.created(PODS, &pod("p"));
    for subresource in ["log", "exec", "attach", "portforward", "proxy", "ephemeralcontainers"] {
        assert_eq!(reason(&server.get(&format!("{PODS}/p/{subresource}"))), (501, "NotImplemented"));
    }
}

/// The embedder of the server supplies the text, because no container runs.
#[test]
fn log_of_a_container_is_what_the_embedder_returns() {
    let log: fn(&Value, &str) -> String = |pod, container| format!("{} {container}", pod["metadata"]["name"]);
    let mut server = TestServer::with(KernelOptions { container_log: Some(log), ..KernelOptions::default() });
    let mut two = pod("two");
    two["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "i:1"}));
    server.created(PODS, &pod("p"));
    server.created(PODS, &two);
    let mut text = |path: &str| {
        let request = Request::new(Method::GET, &format!("{PODS}/{path}"), String::new());
        match server.kernel.call(&request, server.now) {
            Reply::Document(document) => (document.code, String::from_utf8(document.body.to_vec()).unwrap()),
            Reply::Watch { .. } => panic!("a log is no watch"),
        }
    };
    assert_eq!(text("p/log"), (200, "\"p\" c".to_owned()));
    assert_eq!(text("two/log?container=d&follow=true"), (200, "\"two\" d".to_owned()));
    let (code, body) = text("two/log");
    assert!(code == 400 && body.contains("choose one of: [c d]"), "{body}");
    let (code, body) = text("p/log?container=x");
    assert!(code == 400 && body.contains("container x is not valid for pod p"), "{body}");
    assert_eq!(text("q/log").0, 404);
}
