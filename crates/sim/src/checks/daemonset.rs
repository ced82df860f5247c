//! DaemonSets: never more than one pod on a node beside the surge, and in the end one on every node.

use std::collections::BTreeMap;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{active, controller, holds, named, number, observed, pods_of, same, uid};
use crate::witness::{Effect, text};

/// Counts pods by node.
#[derive(Default)]
pub struct DaemonSets {
    /// By uid of the owner: creates whose outcome its controller never learnt, which it may repeat.
    unknown: BTreeMap<String, usize>,
}

/// The node that a pod of a DaemonSet is for, placed or not.
fn meant_for(pod: &Value) -> &str {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    text(pod, &format!("{terms}/matchFields/0/values/0"))
}

impl Checker for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        let route = &effect.route;
        let creates =
            effect.by_manager() && effect.done() && route.resource == "pods" && route.method == Method::POST;
        let Some(owner) = controller(&effect.body).filter(|_| creates) else { return Ok(()) };
        if text(owner, "/kind") != "DaemonSet" {
            return Ok(());
        }
        let owner = text(owner, "/uid");
        if effect.lost {
            *self.unknown.entry(owner.to_owned()).or_default() += 1;
        }
        let node = meant_for(&effect.body);
        let there = pods_of(server, owner);
        let there = there.iter().filter(|pod| active(pod) && meant_for(pod) == node).count();
        // A surge adds one beside the old one.
        let allowed = 2 + self.unknown.get(owner).copied().unwrap_or_default();
        if there > allowed { Err(format!("{there} pods for node {node}")) } else { Ok(()) }
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let nodes = server.objects("nodes");
        server.objects("daemonsets.apps").iter().try_for_each(|set| {
            observed(set)?;
            let pods: Vec<_> = pods_of(server, uid(set)).into_iter().filter(|pod| active(pod)).collect();
            for node in &nodes {
                let name = text(node, "/metadata/name");
                let here: Vec<_> = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == name).collect();
                same(
                    set,
                    &format!("the number of pods on {name}"),
                    i64::try_from(here.len()).unwrap_or(0),
                    1,
                )?;
                if !here.iter().all(|pod| holds(pod, "Ready")) {
                    return Err(format!("{}: its pod on {name} is not ready", named(set)));
                }
            }
            let wanted = i64::try_from(nodes.len()).unwrap_or(0);
            same(set, "the number of pods", i64::try_from(pods.len()).unwrap_or(0), wanted)?;
            for field in
                ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"]
            {
                same(set, field, number(set, &format!("/status/{field}")), wanted)?;
            }
            Ok(())
        })
    }
}
