//! DaemonSets: never more than one pod per node plus the surge, and in the end one on every node.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{
    condition_is_true, controlled_by, count, describe, expect_equal, expect_observed, expect_status,
    is_active, namespace, number, pod_created_for, pods_of, uid,
};
use crate::recorder::{ObservedWrite, text};

/// Counts pods per node.
#[derive(Default)]
pub struct DaemonSets {
    /// By UID of the owner: creates whose result its controller never received, and which it may repeat.
    unconfirmed_creates: BTreeMap<String, i64>,
    /// Revisions that were garbage collected with their owner, by namespace and name. A DaemonSet with the
    /// same name and template may have used one of them until then, as with the original, and creates its
    /// own in its next reconcile.
    collected: BTreeSet<(String, String)>,
}

/// The node that a DaemonSet's pod targets, bound or not.
fn target_node(pod: &Value) -> &str {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    text(pod, &format!("{terms}/matchFields/0/values/0"))
}

impl Checker for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        if write.component == "generic-garbage-collector" && request.resource == "controllerrevisions" {
            self.collected.insert((request.namespace.clone(), request.name.clone()));
        }
        let Some(owner) = pod_created_for(write, &["DaemonSet"]) else { return Ok(()) };
        if write.response_lost {
            *self.unconfirmed_creates.entry(owner.to_owned()).or_default() += 1;
        }
        let node = target_node(&write.body);
        let existing = count(&pods_of(server, &write.request.namespace, owner), |pod| {
            is_active(pod) && target_node(pod) == node
        });
        // A surge adds one pod beside the old one.
        let sets = server.objects("daemonsets.apps");
        let surge = "/spec/updateStrategy/rollingUpdate/maxSurge";
        let surge = sets.iter().find(|set| uid(set) == owner).map_or(1, |set| number(set, surge));
        let allowed = 1 + surge + self.unconfirmed_creates.get(owner).copied().unwrap_or_default();
        if existing > allowed { Err(format!("{existing} pods for node {node}")) } else { Ok(()) }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let nodes = server.objects("nodes");
        server.objects("daemonsets.apps").iter().try_for_each(|set| {
            expect_observed(set)?;
            let pods: Vec<_> =
                pods_of(server, namespace(set), uid(set)).into_iter().filter(|pod| is_active(pod)).collect();
            for node in &nodes {
                let name = text(node, "/metadata/name");
                let here = |pod: &Value| text(pod, "/spec/nodeName") == name;
                expect_equal(set, &format!("the number of pods on {name}"), count(&pods, here), 1)?;
                if !pods.iter().all(|pod| !here(pod) || condition_is_true(pod, "Ready")) {
                    return Err(format!("{}: its pod on {name} is not ready", describe(set)));
                }
            }
            let wanted = count(&nodes, |_| true);
            expect_equal(set, "the number of pods", count(&pods, |_| true), wanted)?;
            // Not one revision per hash: a pod may carry the hash of a revision that was collected with a
            // DaemonSet of the same name, or of a revision that belongs to a StatefulSet of the same name
            // and template.
            let (own_namespace, name) = (namespace(set), text(set, "/metadata/name"));
            let fits = |place: &str, revision: &str| {
                place == own_namespace && revision.starts_with(&format!("{name}-"))
            };
            let borrowed = (self.collected.iter()).any(|(place, revision)| fits(place, revision))
                || (server.objects("controllerrevisions.apps").iter())
                    .any(|there| fits(namespace(there), text(there, "/metadata/name")));
            if wanted > 0
                && !borrowed
                && controlled_by(server, "controllerrevisions.apps", own_namespace, uid(set)).is_empty()
            {
                return Err(format!("{}: it has no revision", describe(set)));
            }
            for field in
                ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"]
            {
                expect_status(set, field, wanted)?;
            }
            Ok(())
        })
    }
}
