//! Ranges of nodes: no two nodes share one, and the range of a node never changes; in the end every node has one.

use std::collections::BTreeMap;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, uid};
use crate::recorder::{ObservedWrite, text};

/// Compares the ranges of all nodes.
pub struct NodeRanges;

impl Checker for NodeRanges {
    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if write.request.resource != "nodes" || !write.succeeded() {
            return Ok(());
        }
        if let (Some(before), Some(after)) = (&write.before, &write.after) {
            let (old, new) = (&before["spec"]["podCIDRs"], &after["spec"]["podCIDRs"]);
            if uid(before) == uid(after) && old.is_array() && old != new {
                return Err(format!("the range of {} changes from {old} to {new}", describe(after)));
            }
        }
        check_distinct(server)
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        check_distinct(server)?;
        let nodes = server.objects("nodes");
        let without = nodes.iter().find(|node| text(node, "/spec/podCIDR").is_empty());
        without.map_or(Ok(()), |node| Err(format!("{} has no range", describe(node))))
    }
}

fn check_distinct(server: &ApiServer) -> Result<(), String> {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for node in server.objects("nodes") {
        let ranges = node.pointer("/spec/podCIDRs").and_then(Value::as_array);
        for range in ranges.into_iter().flatten().filter_map(Value::as_str) {
            if let Some(other) = owners.insert(range.to_owned(), describe(&node)) {
                return Err(format!("{} and {other} share {range}", describe(&node)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use serde_json::json;

    use super::*;

    #[test]
    fn shared_and_missing_ranges_are_reported() {
        let server = ApiServer::builder().build();
        let seed = |name: &str, range: &str| {
            let spec = json!({"podCIDR": range, "podCIDRs": [range]});
            let spec = if range.is_empty() { json!({}) } else { spec };
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
            server.seed(node).unwrap();
        };
        seed("a", "10.244.0.0/24");
        seed("b", "10.244.1.0/24");
        assert_eq!(NodeRanges.check_converged(&server), Ok(()));
        seed("b", "10.244.0.0/24");
        assert_eq!(
            NodeRanges.check_converged(&server),
            Err("Node /b and Node /a share 10.244.0.0/24".to_owned())
        );
        seed("b", "");
        assert_eq!(NodeRanges.check_converged(&server), Err("Node /b has no range".to_owned()));
    }

    #[test]
    fn changed_range_is_reported() {
        let server = ApiServer::builder().build();
        let node = |uid: &str, ranges: &[&str]| {
            let ranges = if ranges.is_empty() { Value::Null } else { json!(ranges) };
            let metadata = json!({"name": "a", "uid": uid});
            Some(Arc::new(json!({"kind": "Node", "metadata": metadata, "spec": {"podCIDRs": ranges}})))
        };
        let check = |before, after| {
            let patch = ObservedWrite::of_manager("node-controller", &Method::PATCH, "/api/v1/nodes/a");
            NodeRanges.on_write(&ObservedWrite { before, after, ..patch }, &server)
        };
        let (first, second) = ("10.244.0.0/24", "10.244.1.0/24");
        assert_eq!(check(node("1", &[]), node("1", &[first])), Ok(()));
        assert_eq!(check(node("1", &[first]), node("1", &[first])), Ok(()));
        assert_eq!(check(node("1", &[first]), node("2", &[second])), Ok(()), "another node of the same name");
        let error = check(node("1", &[first]), node("1", &[second])).unwrap_err();
        assert_eq!(error, format!("the range of Node /a changes from [\"{first}\"] to [\"{second}\"]"));
        let error = check(node("1", &[first]), node("1", &[])).unwrap_err();
        assert_eq!(error, format!("the range of Node /a changes from [\"{first}\"] to null"));
    }
}
