//! LimitRanger: defaults of containers, and limits of containers, pods and claims.

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn with_limits(limits: &Value) -> TestServer {
    let mut server = TestServer::new();
    let range = json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}});
    server.created("/api/v1/namespaces/default/limitranges", &range);
    server
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

/// The message of a refused pod.
fn refused(server: &mut TestServer, resources: &Value) -> String {
    let (code, status) = server.post(PODS, &pod("p", resources));
    assert_eq!(code, 403, "{status}");
    let message = status["message"].as_str().unwrap();
    message.strip_prefix("pods \"p\" is forbidden: ").unwrap().to_owned()
}

#[test]
fn containers_get_the_defaults_they_lack() {
    let mut server = with_limits(
        &json!([{"type": "Container", "default": {"cpu": "500m", "memory": "64Mi"}, "defaultRequest": {"cpu": "100m"}}]),
    );
    let mut sent = pod("p", &json!({"requests": {"memory": "32Mi"}}));
    sent["spec"]["initContainers"] = json!([{"name": "init", "image": "i"}]);
    let pod = server.created(PODS, &sent);
    let all =
        json!({"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}});
    let mut own = all.clone();
    own["requests"]["memory"] = json!("32Mi");
    assert_eq!(pod["spec"]["containers"][0]["resources"], own);
    assert_eq!(pod["spec"]["initContainers"][0]["resources"], all);
    assert_eq!(
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c; \
         cpu, memory request for init container init; cpu, memory limit for init container init"
    );
    // Elsewhere it has no effect.
    server.created("/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    let other = server.created("/api/v1/namespaces/other/pods", &sent);
    assert_eq!(other["spec"]["initContainers"][0]["resources"], json!({}));
}

#[test]
fn containers_outside_the_limits_are_refused() {
    let mut server = with_limits(&json!([{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"},
        "maxLimitRequestRatio": {"cpu": "2"}}]));
    let refused = |server: &mut TestServer, request: &str, limit: &str| {
        refused(server, &json!({"requests": {"cpu": request}, "limits": {"cpu": limit}}))
    };
    assert_eq!(
        refused(&mut server, "50m", "100m"),
        "minimum cpu usage per Container is 100m, but request is 50m"
    );
    assert_eq!(
        refused(&mut server, "1", "1500m"),
        "maximum cpu usage per Container is 1, but limit is 1500m"
    );
    assert_eq!(
        refused(&mut server, "300m", "1"),
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333"
    );
    assert_eq!(
        refused(&mut server, "50m", "2"),
        "[minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 1, but limit is \
         2, cpu max limit to request ratio per Container is 2, but provided ratio is 40.000000]"
    );
    server.created(PODS, &pod("p", &json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})));
}

#[test]
fn pods_are_limited_as_a_whole() {
    let mut server = with_limits(&json!([{"type": "Pod", "max": {"cpu": "1"}}]));
    assert_eq!(refused(&mut server, &json!({})), "maximum cpu usage per Pod is 1.  No limit is specified");
    let mut sent = pod("p", &json!({"limits": {"cpu": "600m"}}));
    let second = json!({"name": "d", "image": "i", "resources": {"limits": {"cpu": "600m"}}});
    sent["spec"]["containers"].as_array_mut().unwrap().push(second);
    let (code, status) = server.post(PODS, &sent);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods \"p\" is forbidden: maximum cpu usage per Pod is 1, but limit is 1200m"
    );
    sent["spec"]["containers"][1]["resources"]["limits"]["cpu"] = json!("400m");
    server.created(PODS, &sent);
}

#[test]
fn claims_are_limited_by_their_request() {
    let limits =
        json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]);
    let mut server = with_limits(&limits);
    let claim = |size: &str| {
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": size}}}})
    };
    let (code, status) = server.post(CLAIMS, &claim("512Mi"));
    assert_eq!(code, 403);
    let head = "persistentvolumeclaims \"c\" is forbidden:";
    let why = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi";
    assert_eq!(status["message"], format!("{head} {why}"));
    let (_, status) = server.post(CLAIMS, &claim("3Gi"));
    let why = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi";
    assert_eq!(status["message"], format!("{head} {why}"));
    server.created(CLAIMS, &claim("2Gi"));
}
