//! ReplicaSets and ReplicationControllers: never more pods than were ever asked for, and in the end as many as are.

use std::collections::BTreeMap;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{Most, active, count, holds, number, observed, pod_made_for, pods_of, same, status, uid};
use crate::witness::Effect;

/// Counts pods.
#[derive(Default)]
pub struct Replicas {
    /// By uid of the owner: creates whose outcome its controller never learnt, which it may repeat.
    unknown: BTreeMap<String, i64>,
    most: Most,
}

const KINDS: [&str; 2] = ["replicasets.apps", "replicationcontrollers"];

impl Checker for Replicas {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if matches!(effect.route.resource.as_str(), "replicasets" | "replicationcontrollers") {
            self.most.see_both(effect);
        }
        let made = pod_made_for(effect, &["ReplicaSet", "ReplicationController"]);
        let Some(owner) = made else { return Ok(()) };
        if effect.lost {
            *self.unknown.entry(owner.to_owned()).or_default() += 1;
        }
        KINDS.iter().flat_map(|kind| server.objects(kind)).for_each(|set| self.most.see(&set));
        let there = count(&pods_of(server, owner), active);
        let Some(most) = self.most.of(owner) else { return Ok(()) };
        let allowed = most + self.unknown.get(owner).copied().unwrap_or_default();
        if there > allowed {
            Err(format!("{there} pods where {allowed} were wanted at most"))
        } else {
            Ok(())
        }
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        KINDS.iter().flat_map(|kind| server.objects(kind)).try_for_each(|set| {
            let wanted = number(&set, "/spec/replicas");
            let pods = pods_of(server, uid(&set));
            let ready = count(&pods, |pod| active(pod) && holds(pod, "Ready"));
            same(&set, "the number of pods", count(&pods, active), wanted)?;
            same(&set, "the number of ready pods", ready, wanted)?;
            observed(&set)?;
            status(&set, "replicas", wanted)?;
            status(&set, "readyReplicas", wanted)
        })
    }
}
