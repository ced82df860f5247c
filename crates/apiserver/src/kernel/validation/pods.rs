//! Validation of pods and pod templates.

use serde_json::{Value, json};

use super::super::metadata::meta;
use super::super::naming;
use super::super::status::FieldError;
use super::super::types::Quantity;
use super::{Errors, host_access, is_set, list, refuse_resource_name, refuse_text, text};

/// The annotation of mirror pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod.
pub(super) fn pod(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    spec("spec", &new["spec"], errors);
    for (list, containers) in containers_of(&new["spec"]) {
        for (at, container) in containers.iter().enumerate() {
            let image = text(container, "/image");
            if image.trim() != image {
                let field = format!("spec.{list}[{at}].image");
                let why = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(&field, &json!(image), why));
            }
        }
    }
    if old.is_none()
        && !text(new, "/spec/nodeName").is_empty()
        && !list(new, "/spec/schedulingGates").is_empty()
    {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
    if let Some(mirror) = meta(new, "annotations").and_then(|a| a.get(MIRROR))
        && text(new, "/spec/nodeName").is_empty()
    {
        let field = format!("metadata.annotations[{MIRROR}]");
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(&field, mirror, why));
    }
    if let Some(old) = old {
        let mirrors = |pod: &Value| meta(pod, "annotations").is_some_and(|a| a.get(MIRROR).is_some());
        if mirrors(new) && !mirrors(old) {
            let field = format!("metadata.annotations[{MIRROR}]");
            errors.push(FieldError::forbidden(&field, "may not add mirror pod annotation"));
        }
        pod_update(old, new, errors);
    }
}

/// An update through a pod subresource.
pub(super) fn subresource(part: &str, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if part != "resize" {
        return;
    }
    spec("spec", &new["spec"], errors);
    let count = |pod: &Value, name: &str| list(&pod["spec"], &format!("/{name}")).len();
    for name in ["containers", "initContainers"] {
        if old.is_some_and(|old| count(old, name) != count(new, name)) {
            let why = format!("{name} may not be added or removed on resize");
            errors.push(FieldError::forbidden(&format!("spec.{name}"), &why));
        }
    }
    let class = super::super::prepare::qos_class;
    if let Some(old) = old.filter(|old| class(old) != class(new)) {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", &json!(class(old)), why));
    }
    let running = |status: &&Value| is_set(status, "/state/running");
    let first = list(new, "/status/containerStatuses").iter().find(running);
    if first.is_some_and(|status| !is_set(status, "/resources")) {
        errors.push(FieldError::forbidden("spec", "Pod running on node without support for resize"));
    }
}

fn containers_of(spec: &Value) -> [(&'static str, &[Value]); 2] {
    [("containers", list(spec, "/containers")), ("initContainers", list(spec, "/initContainers"))]
}

/// A pod spec.
pub(super) fn spec(path: &str, spec: &Value, errors: &mut Errors) {
    volumes(path, spec, errors);
    for (name, containers) in containers_of(spec) {
        for (at, container) in containers.iter().enumerate() {
            let path = format!("{path}.{name}[{at}]");
            if name == "initContainers" {
                init_container(&path, spec, container, errors);
            }
            resources(&format!("{path}.resources"), &container["resources"], errors);
            handlers(&path, container, errors);
            mounts(&path, spec, container, errors);
            let context = &container["securityContext"];
            if context["allowPrivilegeEscalation"] == false && context["privileged"] == true {
                let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
                errors.push(FieldError::invalid(&format!("{path}.securityContext"), context, why));
            }
        }
    }
    tolerations(path, spec, errors);
    if text(spec, "/dnsPolicy") == "None" && !is_set(spec, "/dnsConfig") {
        let why = "must provide `dnsConfig` when `dnsPolicy` is None";
        errors.push(FieldError::required(&format!("{path}.dnsConfig"), why));
    }
    host_access::spec(path, spec, errors);
    for (at, gate) in list(spec, "/schedulingGates").iter().enumerate() {
        let name = text(gate, "/name");
        refuse_text(&format!("{path}.schedulingGates[{at}]"), name, &naming::qualified(name), errors);
    }
}

fn init_container(path: &str, spec: &Value, container: &Value, errors: &mut Errors) {
    let name = &container["name"];
    if list(spec, "/containers").iter().any(|other| other["name"] == *name) {
        errors.push(FieldError::duplicate(&format!("{path}.name"), name));
    }
    if text(container, "/restartPolicy") == "Always" {
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if is_set(container, &format!("/{field}")) {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(&format!("{path}.{field}"), why));
        }
    }
}

/// Each volume has exactly one source.
fn volumes(path: &str, spec: &Value, errors: &mut Errors) {
    for (at, volume) in list(spec, "/volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{at}]");
        let sources = volume
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, value)| *name != "name" && !value.is_null());
        let sources: Vec<&String> = sources.map(|(name, _)| name).collect();
        if sources.is_empty() {
            errors.push(FieldError::required(&path, "must specify a volume type"));
        }
        for second in sources.iter().skip(1) {
            errors.push(FieldError::forbidden(
                &format!("{path}.{second}"),
                "may not specify more than 1 volume type",
            ));
        }
    }
}

fn mounts(path: &str, spec: &Value, container: &Value, errors: &mut Errors) {
    let mounts = list(container, "/volumeMounts");
    for (at, mount) in mounts.iter().enumerate() {
        let path = format!("{path}.volumeMounts[{at}]");
        if !list(spec, "/volumes").iter().any(|volume| volume["name"] == mount["name"]) {
            errors.push(FieldError::not_found(&format!("{path}.name"), &mount["name"]));
        }
        if mounts[..at].iter().any(|other| other["mountPath"] == mount["mountPath"]) {
            errors.push(FieldError::invalid(
                &format!("{path}.mountPath"),
                &mount["mountPath"],
                "must be unique",
            ));
        }
    }
}

/// Each probe and lifecycle hook has exactly one handler.
fn handlers(path: &str, container: &Value, errors: &mut Errors) {
    const KINDS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
    let holders =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    for pointer in holders {
        let Some(handler) = container.pointer(pointer).filter(|handler| handler.is_object()) else {
            continue;
        };
        let path = format!("{path}{}", pointer.replace('/', "."));
        let mut given = KINDS.into_iter().filter(|kind| is_set(handler, &format!("/{kind}")));
        if given.next().is_none() {
            errors.push(FieldError::required(&path, "must specify a handler type"));
        }
        for second in given {
            let why = "may not specify more than 1 handler type";
            errors.push(FieldError::forbidden(&format!("{path}.{second}"), why));
        }
    }
}

/// Requests must not exceed limits.
fn resources(path: &str, resources: &Value, errors: &mut Errors) {
    let amount = |kind: &str, name: &str| resources[kind][name].as_str().and_then(Quantity::parse);
    for kind in ["limits", "requests"] {
        for name in resources[kind].as_object().into_iter().flat_map(serde_json::Map::keys) {
            refuse_resource_name(&format!("{path}.{kind}[{name}]"), name, true, errors);
        }
    }
    for (name, shown) in resources["requests"].as_object().into_iter().flatten() {
        let (Some(request), Some(limit)) = (amount("requests", name), amount("limits", name)) else {
            continue;
        };
        if request > limit {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(&format!("{path}.requests"), shown, &why));
        }
    }
}

fn tolerations(path: &str, spec: &Value, errors: &mut Errors) {
    for (at, toleration) in list(spec, "/tolerations").iter().enumerate() {
        let path = format!("{path}.tolerations[{at}]");
        let word = |field: &str| text(toleration, &format!("/{field}"));
        if !word("key").is_empty() {
            refuse_text(&format!("{path}.key"), word("key"), &naming::qualified(word("key")), errors);
        } else if word("operator") != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&format!("{path}.operator"), &json!(word("operator")), why));
        }
        if is_set(toleration, "/tolerationSeconds") && word("effect") != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&format!("{path}.effect"), &json!(word("effect")), why));
        }
        match word("operator") {
            "" | "Equal" => {
                refuse_text(
                    &format!("{path}.operator"),
                    word("value"),
                    &naming::label_value(word("value")),
                    errors,
                );
            }
            "Exists" if !word("value").is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(&format!("{path}.operator"), &json!(word("value")), why));
            }
            "Exists" => {}
            other => {
                let supported = "\"Equal\", \"Exists\"";
                errors.push(FieldError::not_supported(&format!("{path}.operator"), other, supported));
            }
        }
    }
}

/// Only a few fields of a pod are mutable.
fn pod_update(old: &Value, new: &Value, errors: &mut Errors) {
    let count = |pod: &Value, name: &str| list(&pod["spec"], &format!("/{name}")).len();
    for name in ["containers", "initContainers"] {
        if count(old, name) != count(new, name) {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(&format!("spec.{name}"), why));
            return;
        }
    }
    deadline(old, new, errors);
    let before = list(&old["spec"], "/tolerations");
    let kept = |toleration: &Value| {
        list(&new["spec"], "/tolerations").iter().any(|other| {
            let bare = |value: &Value| super::without(value, &["tolerationSeconds"]);
            bare(other) == bare(toleration)
        })
    };
    if !before.iter().all(kept) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    let gates = |pod: &'_ Value| list(&pod["spec"], "/schedulingGates").to_vec();
    let known = gates(old);
    for (at, gate) in gates(new).iter().enumerate().filter(|(_, gate)| !known.contains(gate)) {
        let why =
            format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "/name"));
        errors.push(FieldError::forbidden(&format!("spec.schedulingGates[{at}].name"), &why));
    }
    if fixed_part(old, old) != fixed_part(old, new) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                   to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// activeDeadlineSeconds can only be set or lowered.
fn deadline(old: &Value, new: &Value, errors: &mut Errors) {
    let seconds = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let why = match (seconds(old), seconds(new)) {
        (Some(_), None) => "must not update from a positive integer to nil value".to_owned(),
        (Some(before), Some(after)) if after > before => {
            "must be less than or equal to previous value".to_owned()
        }
        _ => return,
    };
    let value = seconds(new).map_or(Value::Null, Value::from);
    errors.push(FieldError::invalid("spec.activeDeadlineSeconds", &value, &why));
}

fn fixed_part(old: &Value, pod: &Value) -> Value {
    let mut spec = super::without(&pod["spec"], &["activeDeadlineSeconds", "tolerations", "schedulingGates"]);
    // A negative grace period may become one second.
    if old
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|seconds| seconds < 0)
    {
        spec = super::without(&spec, &["terminationGracePeriodSeconds"]);
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().and_then(|map| map.remove("image"));
        }
    }
    // A gated pod's node selector and affinity may be extended.
    if is_set(old, "/spec/schedulingGates") {
        spec = super::without(&spec, &["nodeSelector", "affinity"]);
    }
    spec
}
