//! Ranges of nodes: those of no two nodes overlap, and the range of a node never changes; in the end every node has one.

use std::net::IpAddr;

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

/// An address range: the bits of the address aligned to the left, the length of the prefix, and whether it is of IPv6.
#[derive(Clone, Copy)]
struct Range {
    bits: u128,
    prefix: u32,
    is_ipv6: bool,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (bits, is_ipv6) = match address.parse().ok()? {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, false),
            IpAddr::V6(address) => (u128::from(address), true),
        };
        Some(Self { bits, prefix: prefix.parse().ok()?, is_ipv6 })
    }

    /// Whether one of them contains the other.
    fn overlaps(self, other: Self) -> bool {
        let shared = self.prefix.min(other.prefix);
        let differing = (self.bits ^ other.bits).leading_zeros();
        self.is_ipv6 == other.is_ipv6 && differing >= shared
    }
}

fn check_distinct(server: &ApiServer) -> Result<(), String> {
    let mut known: Vec<(String, Range, String)> = Vec::new();
    for node in server.objects("nodes") {
        let name = describe(&node);
        let ranges = node.pointer("/spec/podCIDRs").and_then(Value::as_array);
        for text in ranges.into_iter().flatten().filter_map(Value::as_str) {
            let range = Range::parse(text).ok_or_else(|| format!("{name} has {text}, which is no range"))?;
            if let Some((other, _, its)) = known.iter().find(|(_, one, _)| one.overlaps(range)) {
                return Err(format!("{text} of {name} overlaps {its} of {other}"));
            }
            known.push((name.clone(), range, text.to_owned()));
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
        for (range, is_free) in [
            ("10.244.0.0/24", false),
            ("10.244.0.128/25", false),
            ("10.244.0.0/16", false),
            ("10.245.0.0/16", true),
            // The bits of 10.244.0.0, in the other family.
            ("af4::/24", true),
        ] {
            seed("b", range);
            let overlap = format!("{range} of Node /b overlaps 10.244.0.0/24 of Node /a");
            let expected = if is_free { Ok(()) } else { Err(overlap) };
            assert_eq!(NodeRanges.check_converged(&server), expected);
        }
        seed("b", "10.244.1.0");
        let no_range = "Node /b has 10.244.1.0, which is no range".to_owned();
        assert_eq!(NodeRanges.check_converged(&server), Err(no_range));
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
