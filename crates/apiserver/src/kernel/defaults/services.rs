//! Defaults of Services that need no allocation.

use serde_json::{Value, json};

use super::{items, present, set_default};

pub(super) fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "type", json!("ClusterIP"));
    set_default(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "None" {
        spec.as_object_mut().and_then(|spec| spec.remove("sessionAffinityConfig"));
    }
    if spec["sessionAffinity"] == "ClientIP" {
        set_default(spec, "sessionAffinityConfig", json!({}));
        set_default(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        set_default(&mut spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds", json!(10_800));
    }
    for port in items(spec, "ports") {
        let number = port["port"].clone();
        let unset =
            present(port, "targetPort").is_none_or(|target| *target == json!(0) || *target == json!(""));
        if unset {
            port["targetPort"] = number;
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let reached = kind == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|list| !list.is_empty());
    if reached || matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set_default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "ExternalName" {
        spec.as_object_mut().and_then(|spec| spec.remove("internalTrafficPolicy"));
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
        let ways_in = object.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
        for way_in in ways_in.into_iter().flatten().filter(|way_in| way_in["ip"].is_string()) {
            set_default(way_in, "ipMode", json!("VIP"));
        }
    }
}
