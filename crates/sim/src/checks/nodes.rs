//! Nodes and the pods on them: who is silent is said to be, and loses its pods; in the end every node is ready and free of taints, and no pod is on a node that is gone.

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{active, holds, named};
use crate::witness::text;

/// Looks at nodes, and for pods without one.
pub struct Nodes;

impl Checker for Nodes {
    fn name(&self) -> &'static str {
        "node-lifecycle-controller, taint-eviction-controller and pod-garbage-collector-controller"
    }

    fn silent(&self, server: &ApiServer, silent: &BTreeSet<String>) -> Result<(), String> {
        let (nodes, pods) = (server.objects("nodes"), server.objects("pods"));
        let is_silent = |node: &Value| silent.contains(text(node, "/metadata/name"));
        // If none is left that speaks, rather the manager is cut off, and nobody is driven away.
        let some_speak = nodes.iter().any(|node| !is_silent(node) && holds(node, "Ready"));
        for node in &nodes {
            let is_lost = is_silent(node);
            if is_lost {
                lost(node, some_speak)?;
            }
            for pod in pods.iter().filter(|pod| text(pod, "/spec/nodeName") == text(node, "/metadata/name")) {
                if active(pod) && !stays(pod, node) {
                    return Err(format!("{} is still on {}", named(pod), named(node)));
                }
                if is_lost && active(pod) && holds(pod, "Ready") {
                    return Err(format!("{} is said to be ready on {}", named(pod), named(node)));
                }
            }
        }
        Ok(())
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let nodes = server.objects("nodes");
        for node in &nodes {
            if !holds(node, "Ready") {
                return Err(format!("{} is not ready", named(node)));
            }
            if node.pointer("/spec/taints/0").is_some() {
                return Err(format!("{} is tainted", named(node)));
            }
        }
        let names: BTreeSet<_> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
        let pods = server.objects("pods");
        let lost = pods.iter().find(|pod| {
            let node = text(pod, "/spec/nodeName");
            !node.is_empty() && !names.contains(node)
        });
        lost.map_or(Ok(()), |pod| Err(format!("{} is on a node that is gone", named(pod))))
    }
}

/// What is said of a node that is silent.
fn lost(node: &Value, some_speak: bool) -> Result<(), String> {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let unknown = |there: &Value| there["type"] == "Ready" && there["status"] == "Unknown";
    if !conditions.into_iter().flatten().any(unknown) {
        return Err(format!("{} is silent, and nobody says so", named(node)));
    }
    let effects = ["NoSchedule", "NoExecute"];
    for effect in effects.iter().take(if some_speak { 2 } else { 1 }) {
        if !has_taint(node, UNREACHABLE, effect) {
            return Err(format!("{} is silent, and has no taint {effect}", named(node)));
        }
    }
    Ok(())
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().any(|taint| taint["key"] == key && taint["effect"] == effect)
}

/// Whether a pod tolerates all that drives pods off its node: nobody tolerates what users put there, and those that
/// were made for DaemonSets tolerate that a node is silent.
fn stays(pod: &Value, node: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    let for_set = tolerations.into_iter().flatten().any(|there| there["key"] == UNREACHABLE);
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let drives_off = |taint: &&Value| taint["effect"] == "NoExecute";
    taints.into_iter().flatten().filter(drives_off).all(|taint| for_set && taint["key"] == UNREACHABLE)
}
