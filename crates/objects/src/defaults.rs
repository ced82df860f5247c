//! API defaults of pods and of pod templates in other kinds.
//!
//! Parity: pkg/apis/core/v1/defaults.go of Kubernetes v1.37.

use serde_json::{Value, json};

/// Sets the defaults of a pod: those of templates, and those of pods only.
pub fn pod(object: &mut Value) {
    let known = object["status"].get("podIP").filter(|address| **address != "").cloned();
    let first = object.pointer("/status/podIPs/0/ip").cloned();
    match (known, first) {
        // If `podIP` and `podIPs` differ, `podIP` wins.
        (Some(known), first) if first.as_ref() != Some(&known) => {
            object["status"]["podIPs"] = json!([{ "ip": known }]);
        }
        (None, Some(first)) => object["status"]["podIP"] = first,
        _ => {}
    }
    let spec = &mut object["spec"];
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    for list in ["containers", "initContainers"] {
        items(spec, list).for_each(requests_follow_limits);
    }
    set_default(spec, "enableServiceLinks", json!(true));
    if spec["hostNetwork"] == true {
        host_ports(spec);
    }
    pod_spec(spec);
}

/// Sets the defaults of a pod template.
pub fn template(template: &mut Value) {
    if let Some(spec) = template.get_mut("spec") {
        pod_spec(spec);
    }
}

fn pod_spec(spec: &mut Value) {
    set_default(spec, "restartPolicy", json!("Always"));
    set_default(spec, "terminationGracePeriodSeconds", json!(30));
    set_default(spec, "dnsPolicy", json!("ClusterFirst"));
    set_default(spec, "schedulerName", json!("default-scheduler"));
    set_default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, list).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
    // The deprecated `serviceAccount` equals `serviceAccountName`.
    let account = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    if let Some(account) = account {
        spec["serviceAccountName"] = account.clone();
        spec["serviceAccount"] = account;
    }
}

/// With `hostNetwork`, `hostPort` defaults to `containerPort`.
fn host_ports(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            for port in items(container, "ports") {
                let number = port["containerPort"].clone();
                set_default(port, "hostPort", number);
            }
        }
    }
}

fn requests_follow_limits(container: &mut Value) {
    let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned() else {
        return;
    };
    for (name, amount) in limits {
        let resources = &mut container["resources"];
        set_default(resources, "requests", json!({}));
        set_default(&mut resources["requests"], &name, amount);
    }
}

fn container(container: &mut Value) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    // The tag follows the last colon, unless that colon precedes the port of a registry.
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    let floating = !image.contains('@') && (matches!(tag, "" | "latest") || tag.contains('/'));
    set_default(container, "imagePullPolicy", json!(if floating { "Always" } else { "IfNotPresent" }));
    set_default(container, "terminationMessagePath", json!("/dev/termination-log"));
    set_default(container, "terminationMessagePolicy", json!("File"));
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = present(container, name) {
            probe(found);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(action) = container.pointer_mut(&format!("/lifecycle/{hook}")) {
            http_get(action);
        }
    }
    for port in items(container, "ports") {
        set_default(port, "protocol", json!("TCP"));
    }
    for variable in items(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom").and_then(|v| present(v, "fieldRef")) {
            set_default(source, "apiVersion", json!("v1"));
        }
    }
}

fn probe(probe: &mut Value) {
    set_default(probe, "timeoutSeconds", json!(1));
    set_default(probe, "periodSeconds", json!(10));
    set_default(probe, "successThreshold", json!(1));
    set_default(probe, "failureThreshold", json!(3));
    http_get(probe);
    if let Some(call) = present(probe, "grpc") {
        set_default(call, "service", json!(""));
    }
}

fn http_get(action: &mut Value) {
    if let Some(get) = present(action, "httpGet") {
        set_default(get, "path", json!("/"));
        set_default(get, "scheme", json!("HTTP"));
    }
}

fn volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |map| map.keys().filter(|k| *k != "name").count());
    if sources == 0 {
        set_default(volume, "emptyDir", json!({}));
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = present(volume, kind) {
            set_default(source, "defaultMode", json!(0o644));
            downward(source);
        }
    }
    if let Some(path) = present(volume, "hostPath") {
        set_default(path, "type", json!(""));
    }
    if let Some(projected) = present(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(token) = present(source, "serviceAccountToken") {
                set_default(token, "expirationSeconds", json!(3600));
            }
            if let Some(fields) = present(source, "downwardAPI") {
                downward(fields);
            }
        }
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        set_default(spec, "volumeMode", json!("Filesystem"));
    }
}

fn downward(source: &mut Value) {
    for item in items(source, "items") {
        if let Some(field) = present(item, "fieldRef") {
            set_default(field, "apiVersion", json!("v1"));
        }
    }
}

/// Sets a field that is missing or null, and creates the object around it if that is null.
pub fn set_default(object: &mut Value, field: &str, value: Value) {
    if object.is_null() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut()
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), value);
    }
}

/// The items of a list, if there is one.
pub fn items<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// A field that is present and not null.
pub fn present<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    object.get_mut(field).filter(|value| !value.is_null())
}
