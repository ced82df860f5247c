//! DaemonSets: never more than one pod on a node beside the surge, and in the end one on every node.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{
    active, controlled, count, holds, named, number, observed, pod_made_for, pods_of, same, status, uid,
};
use crate::witness::{Effect, text};

/// Counts pods by node.
#[derive(Default)]
pub struct DaemonSets {
    /// By uid of the owner: creates whose outcome its controller never learnt, which it may repeat.
    unknown: BTreeMap<String, i64>,
    /// Revisions that went with their owner, by namespace and name. A set of the same name and template may have used
    /// one of them until then, as with the original, and makes its own in its next turn.
    collected: BTreeSet<(String, String)>,
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
        if effect.author == "generic-garbage-collector" && route.resource == "controllerrevisions" {
            self.collected.insert((route.namespace.clone(), route.name.clone()));
        }
        let Some(owner) = pod_made_for(effect, &["DaemonSet"]) else { return Ok(()) };
        if effect.lost {
            *self.unknown.entry(owner.to_owned()).or_default() += 1;
        }
        let node = meant_for(&effect.body);
        let there = count(&pods_of(server, owner), |pod| active(pod) && meant_for(pod) == node);
        // A surge adds one beside the old one.
        let sets = server.objects("daemonsets.apps");
        let surge = "/spec/updateStrategy/rollingUpdate/maxSurge";
        let surge = sets.iter().find(|set| uid(set) == owner).map_or(1, |set| number(set, surge));
        let allowed = 1 + surge + self.unknown.get(owner).copied().unwrap_or_default();
        if there > allowed { Err(format!("{there} pods for node {node}")) } else { Ok(()) }
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let nodes = server.objects("nodes");
        server.objects("daemonsets.apps").iter().try_for_each(|set| {
            observed(set)?;
            let pods: Vec<_> = pods_of(server, uid(set)).into_iter().filter(|pod| active(pod)).collect();
            for node in &nodes {
                let name = text(node, "/metadata/name");
                let here = |pod: &Value| text(pod, "/spec/nodeName") == name;
                same(set, &format!("the number of pods on {name}"), count(&pods, here), 1)?;
                if !pods.iter().all(|pod| !here(pod) || holds(pod, "Ready")) {
                    return Err(format!("{}: its pod on {name} is not ready", named(set)));
                }
            }
            let wanted = count(&nodes, |_| true);
            same(set, "the number of pods", count(&pods, |_| true), wanted)?;
            // Not one for each hash: a pod may have that of a revision which went with a set of the same name, or is
            // that of a StatefulSet of the same name and template.
            let (namespace, name) = (text(set, "/metadata/namespace"), text(set, "/metadata/name"));
            let fits =
                |place: &str, revision: &str| place == namespace && revision.starts_with(&format!("{name}-"));
            let borrowed = (self.collected.iter()).any(|(place, revision)| fits(place, revision))
                || (server.objects("controllerrevisions.apps").iter())
                    .any(|there| fits(text(there, "/metadata/namespace"), text(there, "/metadata/name")));
            if wanted > 0 && !borrowed && controlled(server, "controllerrevisions.apps", uid(set)).is_empty()
            {
                return Err(format!("{}: it has no revision", named(set)));
            }
            for field in
                ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"]
            {
                status(set, field, wanted)?;
            }
            Ok(())
        })
    }
}
