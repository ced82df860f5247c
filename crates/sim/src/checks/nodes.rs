//! Nodes: one without heartbeats is marked unreachable and its pods are evicted; in the end every node is
//! ready and untainted, and no pod is bound to a node that does not exist.

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, is_active};
use crate::recorder::text;

/// Checks nodes and the pods bound to them.
pub struct Nodes;

impl Checker for Nodes {
    fn name(&self) -> &'static str {
        "node-lifecycle-controller, taint-eviction-controller and pod-garbage-collector-controller"
    }

    fn check_silent_nodes(&self, server: &ApiServer, silent: &BTreeSet<String>) -> Result<(), String> {
        let (nodes, pods) = (server.objects("nodes"), server.objects("pods"));
        let is_silent = |node: &Value| silent.contains(text(node, "/metadata/name"));
        // If no node is ready, the manager itself is more likely cut off, and evicts nothing.
        let some_ready = nodes.iter().any(|node| !is_silent(node) && condition_is_true(node, "Ready"));
        for node in &nodes {
            let is_unreachable = is_silent(node);
            if is_unreachable {
                check_marked_unreachable(node, some_ready)?;
            }
            for pod in pods.iter().filter(|pod| text(pod, "/spec/nodeName") == text(node, "/metadata/name")) {
                if is_active(pod) && !tolerates_taints(pod, node) {
                    return Err(format!("{} is still on {}", describe(pod), describe(node)));
                }
                if is_unreachable && is_active(pod) && condition_is_true(pod, "Ready") {
                    return Err(format!("{} is still marked ready on {}", describe(pod), describe(node)));
                }
            }
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let nodes = server.objects("nodes");
        for node in &nodes {
            if !condition_is_true(node, "Ready") {
                return Err(format!("{} is not ready", describe(node)));
            }
            if node.pointer("/spec/taints/0").is_some() {
                return Err(format!("{} is tainted", describe(node)));
            }
        }
        let names: BTreeSet<_> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
        let pods = server.objects("pods");
        let unbound = pods.iter().find(|pod| {
            let node = text(pod, "/spec/nodeName");
            !node.is_empty() && !names.contains(node)
        });
        unbound.map_or(Ok(()), |pod| Err(format!("{} is bound to a node that does not exist", describe(pod))))
    }
}

/// The conditions and taints that a node without heartbeats must have.
fn check_marked_unreachable(node: &Value, some_ready: bool) -> Result<(), String> {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let unknown = |there: &Value| there["type"] == "Ready" && there["status"] == "Unknown";
    if !conditions.into_iter().flatten().any(unknown) {
        return Err(format!(
            "{} sends no heartbeats, and its Ready condition is not Unknown",
            describe(node)
        ));
    }
    let effects = ["NoSchedule", "NoExecute"];
    for write in effects.iter().take(if some_ready { 2 } else { 1 }) {
        if !has_taint(node, UNREACHABLE, write) {
            return Err(format!("{} sends no heartbeats, and has no {write} taint", describe(node)));
        }
    }
    Ok(())
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn has_taint(node: &Value, key: &str, write: &str) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().any(|taint| taint["key"] == key && taint["effect"] == write)
}

/// Whether a pod tolerates all NoExecute taints of its node: no pod tolerates the users' taint, and the
/// pods of DaemonSets tolerate `unreachable`.
fn tolerates_taints(pod: &Value, node: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    let of_daemon_set = tolerations.into_iter().flatten().any(|there| there["key"] == UNREACHABLE);
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let evicts = |taint: &&Value| taint["effect"] == "NoExecute";
    taints.into_iter().flatten().filter(evicts).all(|taint| of_daemon_set && taint["key"] == UNREACHABLE)
}
