//! ReplicaSets and ReplicationControllers: never more pods than were ever wanted, and in the end exactly as
//! many as wanted.

use std::collections::BTreeMap;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{
    MaxReplicas, condition_is_true, count, expect_equal, expect_observed, expect_status, is_active,
    namespace, number, pod_created_for, pods_of, uid,
};
use crate::recorder::ObservedWrite;

/// Counts pods per owner.
#[derive(Default)]
pub struct Replicas {
    /// By UID of the owner: creates whose result its controller never received, and which it may repeat.
    unconfirmed_creates: BTreeMap<String, i64>,
    max_wanted: MaxReplicas,
}

const KINDS: [&str; 2] = ["replicasets.apps", "replicationcontrollers"];

impl Checker for Replicas {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if matches!(write.request.resource.as_str(), "replicasets" | "replicationcontrollers") {
            self.max_wanted.observe_write(write);
        }
        let created_for = pod_created_for(write, &["ReplicaSet", "ReplicationController"]);
        let Some(owner) = created_for else { return Ok(()) };
        if write.response_lost {
            *self.unconfirmed_creates.entry(owner.to_owned()).or_default() += 1;
        }
        KINDS.iter().flat_map(|kind| server.objects(kind)).for_each(|set| self.max_wanted.observe(&set));
        let active_pods = count(&pods_of(server, &write.request.namespace, owner), is_active);
        let Some(max_wanted) = self.max_wanted.get(owner) else { return Ok(()) };
        let allowed = max_wanted + self.unconfirmed_creates.get(owner).copied().unwrap_or_default();
        if active_pods > allowed {
            Err(format!("{active_pods} pods where at most {allowed} were ever wanted"))
        } else {
            Ok(())
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        KINDS.iter().flat_map(|kind| server.objects(kind)).try_for_each(|set| {
            let wanted = number(&set, "/spec/replicas");
            let pods = pods_of(server, namespace(&set), uid(&set));
            let ready = count(&pods, |pod| is_active(pod) && condition_is_true(pod, "Ready"));
            expect_equal(&set, "the number of pods", count(&pods, is_active), wanted)?;
            expect_equal(&set, "the number of ready pods", ready, wanted)?;
            expect_observed(&set)?;
            expect_status(&set, "replicas", wanted)?;
            expect_status(&set, "readyReplicas", wanted)
        })
    }
}
