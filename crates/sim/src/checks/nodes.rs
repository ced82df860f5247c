//! Nodes and the pods on them: in the end every node is ready and free of taints, and no pod is on a node that is gone.

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{holds, named};
use crate::witness::text;

/// Looks at nodes, and for pods without one.
pub struct Nodes;

impl Checker for Nodes {
    fn name(&self) -> &'static str {
        "node-lifecycle-controller, taint-eviction-controller and pod-garbage-collector-controller"
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
