//! Pod Security admission: what a namespace's labels refuse and warn about.

use super::*;
use crate::kernel::Document;

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

fn server_with(labels: &Value) -> TestServer {
    let mut server = TestServer::new();
    server.created("/api/v1/namespaces", &json!({"metadata": {"name": "n", "labels": labels}}));
    server
}

/// The response with its warnings.
fn document(server: &mut TestServer, method: Method, target: &str, body: &Value) -> Document {
    let request = Request::new(method, target, body.to_string());
    match server.kernel.call(&request, server.now) {
        Reply::Document(document) => document,
        Reply::Watch { .. } => panic!("a watch was opened"),
    }
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn hardened() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]})
}

const RESTRICTED: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
    securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
    securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
    securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
    securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

#[test]
fn pods_that_violate_the_level_are_refused() {
    let mut server = server_with(&json!({ENFORCE: "restricted"}));
    let (code, status) = server.post("/api/v1/namespaces/n/pods", &pod("p", &json!({})));
    assert_eq!(code, 403);
    let head = "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\":";
    assert_eq!(status["message"], format!("{head} {RESTRICTED}"));
    server.created("/api/v1/namespaces/n/pods", &pod("p", &hardened()));
}

#[test]
fn baseline_names_what_is_the_matter() {
    let mut server =
        server_with(&json!({ENFORCE: "baseline", "pod-security.kubernetes.io/warn": "privileged"}));
    let mut message = |spec: Value| {
        let (code, status) = server.post("/api/v1/namespaces/n/pods", &pod("p", &spec));
        assert_eq!(code, 403, "{status}");
        let head = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": ";
        status["message"].as_str().unwrap().strip_prefix(head).unwrap().to_owned()
    };
    let container =
        |context: Value| json!({"containers": [{"name": "c", "image": "i", "securityContext": context}]});
    assert_eq!(
        message(json!({"hostPID": true, "hostIPC": true})),
        "host namespaces (hostPID=true, hostIPC=true)"
    );
    assert_eq!(
        message(container(json!({"privileged": true}))),
        "privileged (container \"c\" must not set securityContext.privileged=true)"
    );
    assert_eq!(
        message(container(json!({"capabilities": {"add": ["NET_RAW", "BPF", "CHOWN"]}}))),
        "non-default capabilities (container \"c\" must not include \"BPF\", \"NET_RAW\" in \
         securityContext.capabilities.add)"
    );
    assert_eq!(
        message(
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/"}}]})
        ),
        "hostPath volumes (volumes \"v\", \"w\")"
    );
    assert_eq!(
        message(
            json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}]})
        ),
        "hostPort (container \"c\" uses hostPort 80)"
    );
    assert_eq!(
        message(
            json!({"containers": [{"name": "c", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1, "host": "h"}}}]})
        ),
        "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")"
    );
    assert_eq!(
        message(json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}}})),
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)"
    );
    assert_eq!(
        message(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
        "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")"
    );
    assert_eq!(
        message(json!({"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}})),
        "forbidden sysctls (net.core.somaxconn)"
    );
}

#[test]
fn checks_depend_on_the_version() {
    let sysctl = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}});
    for (version, code) in [("v1.31", 403), ("v1.32", 201), ("v1.99", 201), ("latest", 201)] {
        let labels = json!({ENFORCE: "baseline", "pod-security.kubernetes.io/enforce-version": version});
        let mut server = server_with(&labels);
        assert_eq!(server.post("/api/v1/namespaces/n/pods", &pod("p", &sysctl)).0, code, "{version}");
    }
}

#[test]
fn templates_are_warned_about_and_accepted() {
    let mut server = server_with(&json!({ENFORCE: "restricted"}));
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let target = "/apis/apps/v1/namespaces/n/deployments";
    let answer = document(&mut server, Method::POST, target, &deployment);
    assert_eq!(answer.code, 201);
    assert_eq!(answer.warnings, [format!("would violate PodSecurity \"restricted:latest\": {RESTRICTED}")]);
}

#[test]
fn updates_are_checked_only_if_an_image_changes() {
    let mut server = server_with(&json!({}));
    let mut stored = server.created("/api/v1/namespaces/n/pods", &pod("p", &json!({})));
    let namespace = json!({"metadata": {"name": "n", "labels": {ENFORCE: "restricted"}}});
    let answer = document(&mut server, Method::PUT, "/api/v1/namespaces/n", &namespace);
    assert_eq!(
        answer.warnings,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"restricted:latest\"",
            "p: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"
        ]
    );
    stored["metadata"]["labels"] = json!({"new": "label"});
    assert_eq!(server.put("/api/v1/namespaces/n/pods/p", &stored).0, 200);
    stored["spec"]["containers"][0]["image"] = json!("j");
    stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(server.put("/api/v1/namespaces/n/pods/p", &stored).0, 403);
}

#[test]
fn labels_of_namespaces_must_be_valid() {
    let mut server = TestServer::new();
    let labels = json!({ENFORCE: "odd", "pod-security.kubernetes.io/warn-version": "1.2"});
    let namespace = json!({"metadata": {"name": "n", "labels": labels}});
    let (code, status) = server.post("/api/v1/namespaces", &namespace);
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Namespace \"n\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"odd\": must be \
         one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \
         \"1.2\": must be \"latest\" or \"v1.x\"]"
    );
}
