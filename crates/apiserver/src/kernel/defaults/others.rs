//! Defaults of the kinds that have few.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::metadata::{meta_mut, meta_str};
use super::{items, present, set_default};

/// The label with the namespace's own name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn namespace(object: &mut Value) {
    if object["status"]["phase"].as_str().unwrap_or_default().is_empty() {
        set_default(&mut object["status"], "phase", json!("Active"));
    }
    let name = meta_str(object, "name").to_owned();
    if name.is_empty() {
        return;
    }
    let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
    if labels.is_object() {
        labels[NAMESPACE_NAME_LABEL] = json!(name);
    }
}

pub(super) fn secret(object: &mut Value) {
    set_default(object, "type", json!("Opaque"));
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = map.remove("stringData") else {
        return;
    };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (key, value) in plain {
        data[key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

/// Container limits: max is the default of default, and default and min are defaults of defaultRequest.
pub(super) fn limit_range(object: &mut Value) {
    for limit in items(&mut object["spec"], "limits").filter(|limit| limit["type"] == "Container") {
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let Some(amounts) = limit.get(from).and_then(Value::as_object).cloned() else {
                continue;
            };
            set_default(limit, to, json!({}));
            for (name, amount) in amounts {
                set_default(&mut limit[to], &name, amount);
            }
        }
    }
}

pub(super) fn node(object: &mut Value) {
    let capacity =
        object.pointer("/status/capacity").filter(|c| c.as_object().is_some_and(|c| !c.is_empty()));
    if let Some(capacity) = capacity.cloned() {
        set_default(&mut object["status"], "allocatable", capacity);
    }
    let spec = &mut object["spec"];
    if let Some(range) = present(spec, "podCIDR").filter(|range| **range != json!("")).cloned() {
        // If podCIDR and podCIDRs disagree, podCIDR wins.
        if spec.pointer("/podCIDRs/0") != Some(&range) {
            spec["podCIDRs"] = json!([range]);
        }
    } else if let Some(first) = spec.pointer("/podCIDRs/0").cloned() {
        spec["podCIDR"] = first;
    }
}

pub(super) fn persistent_volume(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    set_default(spec, "volumeMode", json!("Filesystem"));
    if let Some(path) = present(spec, "hostPath") {
        set_default(path, "type", json!(""));
    }
    set_default(&mut object["status"], "phase", json!("Pending"));
}

pub(super) fn persistent_volume_claim(object: &mut Value) {
    set_default(&mut object["spec"], "volumeMode", json!("Filesystem"));
    set_default(&mut object["status"], "phase", json!("Pending"));
}

pub(super) fn role_binding(object: &mut Value) {
    if let Some(role) = present(object, "roleRef")
        && role["apiGroup"].as_str().unwrap_or_default().is_empty()
    {
        role["apiGroup"] = json!(RBAC_GROUP);
    }
    for subject in items(object, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set_default(subject, "apiGroup", json!(RBAC_GROUP));
        }
    }
}

pub(super) fn endpoints(object: &mut Value) {
    for subset in items(object, "subsets") {
        for port in items(subset, "ports") {
            set_default(port, "protocol", json!("TCP"));
        }
    }
}

pub(super) fn endpoint_slice(object: &mut Value) {
    for port in items(object, "ports") {
        set_default(port, "name", json!(""));
        set_default(port, "protocol", json!("TCP"));
    }
}

pub(super) fn ingress_class(object: &mut Value) {
    if let Some(parameters) = object.pointer_mut("/spec/parameters").filter(|p| p.is_object()) {
        set_default(parameters, "scope", json!("Cluster"));
    }
}

pub(super) fn ingress(object: &mut Value) {
    for rule in items(&mut object["spec"], "rules") {
        if let Some(http) = present(rule, "http") {
            for path in items(http, "paths") {
                set_default(path, "pathType", json!("ImplementationSpecific"));
            }
        }
    }
}

pub(super) fn network_policy(object: &mut Value) {
    let spec = &mut object["spec"];
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            for port in items(rule, "ports") {
                set_default(port, "protocol", json!("TCP"));
            }
        }
    }
    let has_egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    set_default(
        spec,
        "policyTypes",
        if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
    );
}

pub(super) fn storage_class(object: &mut Value) {
    set_default(object, "reclaimPolicy", json!("Delete"));
    set_default(object, "volumeBindingMode", json!("Immediate"));
}

pub(super) fn csi_driver(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "attachRequired", json!(true));
    set_default(spec, "fsGroupPolicy", json!("ReadWriteOnceWithFSType"));
    for off in [
        "podInfoOnMount",
        "preventPodSchedulingIfMissing",
        "requiresRepublish",
        "seLinuxMount",
        "storageCapacity",
    ] {
        set_default(spec, off, json!(false));
    }
    set_default(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

pub(super) fn webhooks(object: &mut Value) {
    let mutating = object["kind"] == "MutatingWebhookConfiguration";
    for hook in items(object, "webhooks") {
        set_default(hook, "failurePolicy", json!("Fail"));
        set_default(hook, "timeoutSeconds", json!(10));
        if mutating {
            set_default(hook, "reinvocationPolicy", json!("Never"));
        }
        if let Some(service) = hook.pointer_mut("/clientConfig/service") {
            set_default(service, "port", json!(443));
        }
        matching(hook, "rules");
    }
}

fn matching(constraints: &mut Value, rules: &str) {
    set_default(constraints, "matchPolicy", json!("Equivalent"));
    set_default(constraints, "namespaceSelector", json!({}));
    set_default(constraints, "objectSelector", json!({}));
    for rule in items(constraints, rules) {
        set_default(rule, "scope", json!("*"));
    }
}

pub(super) fn admission_policy(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "failurePolicy", json!("Fail"));
    if let Some(constraints) = present(spec, "matchConstraints") {
        matching(constraints, "resourceRules");
    }
}

pub(super) fn definition(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "conversion", json!({}));
    set_default(&mut spec["conversion"], "strategy", json!("None"));
    let kind = spec.pointer("/names/kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(names) = present(spec, "names") {
        set_default(names, "singular", json!(kind.to_lowercase()));
        if !kind.is_empty() {
            set_default(names, "listKind", json!(format!("{kind}List")));
        }
    }
}

pub(super) fn api_service(object: &mut Value) {
    if let Some(service) = object.pointer_mut("/spec/service").filter(|service| service.is_object()) {
        set_default(service, "port", json!(443));
    }
}

pub(super) fn device_requests(devices: Option<&mut Value>) {
    let Some(devices) = devices else { return };
    for request in items(devices, "requests") {
        if let Some(exactly) = present(request, "exactly") {
            count(exactly);
        }
        items(request, "firstAvailable").for_each(count);
    }
}

fn count(request: &mut Value) {
    set_default(request, "allocationMode", json!("ExactCount"));
    if request["allocationMode"] == "ExactCount" {
        set_default(request, "count", json!(1));
    }
}

pub(super) fn flow_schema(object: &mut Value) {
    if object["spec"]["matchingPrecedence"].as_i64().unwrap_or(0) == 0 {
        object["spec"]["matchingPrecedence"] = json!(1000);
    }
}

pub(super) fn priority_level(object: &mut Value) {
    if let Some(limited) = object.pointer_mut("/spec/limited").filter(|limited| limited.is_object()) {
        set_default(limited, "nominalConcurrencyShares", json!(30));
        set_default(limited, "lendablePercent", json!(0));
        if let Some(queuing) =
            limited.pointer_mut("/limitResponse/queuing").filter(|queuing| queuing.is_object())
        {
            for (field, number) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
                if queuing[field].as_i64().unwrap_or(0) == 0 {
                    queuing[field] = json!(number);
                }
            }
        }
    }
    if let Some(exempt) = object.pointer_mut("/spec/exempt").filter(|exempt| exempt.is_object()) {
        set_default(exempt, "nominalConcurrencyShares", json!(0));
        set_default(exempt, "lendablePercent", json!(0));
    }
}
