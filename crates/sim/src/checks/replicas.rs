//! ReplicaSets and ReplicationControllers: never more pods than were ever asked for, and in the end as many as are.

use std::collections::BTreeMap;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{active, controller, holds, number, observed, pods_of, same};
use crate::witness::{Effect, text};

/// Counts pods.
#[derive(Default)]
pub struct Replicas {
    /// By uid of the owner: creates whose outcome its controller never learnt, which it may repeat.
    unknown: BTreeMap<String, i64>,
    /// By uid: the most replicas that were asked for at any time.
    most: BTreeMap<String, i64>,
}

const KINDS: [&str; 2] = ["replicasets.apps", "replicationcontrollers"];

impl Checker for Replicas {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        let route = &effect.route;
        if matches!(route.resource.as_str(), "replicasets" | "replicationcontrollers") {
            for object in [&effect.before, &effect.after].into_iter().flatten() {
                self.remember(object);
            }
        }
        let creates =
            effect.by_manager() && effect.done() && route.resource == "pods" && route.method == Method::POST;
        let Some(owner) = controller(&effect.body).filter(|_| creates) else { return Ok(()) };
        if !matches!(text(owner, "/kind"), "ReplicaSet" | "ReplicationController") {
            return Ok(());
        }
        let uid = text(owner, "/uid");
        if effect.lost {
            *self.unknown.entry(uid.to_owned()).or_default() += 1;
        }
        KINDS.iter().flat_map(|kind| server.objects(kind)).for_each(|set| self.remember(&set));
        let there = pods_of(server, uid).iter().filter(|pod| active(pod)).count();
        let there = i64::try_from(there).unwrap_or(i64::MAX);
        let Some(most) = self.most.get(uid) else { return Ok(()) };
        let allowed = most + self.unknown.get(uid).copied().unwrap_or_default();
        if there > allowed {
            Err(format!("{there} pods where {allowed} were wanted at most"))
        } else {
            Ok(())
        }
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        KINDS.iter().flat_map(|kind| server.objects(kind)).try_for_each(|set| {
            let wanted = number(&set, "/spec/replicas");
            let pods = pods_of(server, super::look::uid(&set));
            let count = |fits: &dyn Fn(&Value) -> bool| {
                i64::try_from(pods.iter().filter(|pod| fits(pod)).count()).unwrap_or(i64::MAX)
            };
            same(&set, "the number of pods", count(&active), wanted)?;
            same(&set, "the number of ready pods", count(&|pod| active(pod) && holds(pod, "Ready")), wanted)?;
            observed(&set)?;
            same(&set, "status.replicas", number(&set, "/status/replicas"), wanted)?;
            same(&set, "status.readyReplicas", number(&set, "/status/readyReplicas"), wanted)
        })
    }
}

impl Replicas {
    fn remember(&mut self, set: &Value) {
        let most = self.most.entry(super::look::uid(set).to_owned()).or_default();
        *most = (*most).max(number(set, "/spec/replicas"));
    }
}
