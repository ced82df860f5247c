//! PodGroups in use are kept: none loses its finalizer while a pod that has not finished names it and every cache knows that
//! pod. In the end no deleted PodGroup waits for its finalizer without such a pod.
//!
//! The controller decides by its caches alone, as the original does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, is_terminating, namespace, uid};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};

pub(super) const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Follows the pods of PodGroups.
#[derive(Default)]
pub struct PodGroups {
    faults: Faults,
    /// By UID of a pod that names a PodGroup: since when it exists.
    pods: BTreeMap<String, Duration>,
}

fn has_finalizer(group: &Value) -> bool {
    let finalizers = group.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn group_of(pod: &Value) -> &str {
    text(pod, "/spec/schedulingGroup/podGroupName")
}

/// The pods that keep a PodGroup: of its namespace, with its name, in any phase but the last ones. Terminating ones count.
fn users(group: &Value, server: &ApiServer) -> Vec<Arc<Value>> {
    let mut pods = server.objects("pods");
    pods.retain(|pod| {
        namespace(pod) == namespace(group)
            && group_of(pod) == text(group, "/metadata/name")
            && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
    });
    pods
}

impl Checker for PodGroups {
    fn name(&self) -> &'static str {
        "podgroup-protection-controller"
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if write.request.resource == "pods" {
            // A created pod has no name in its path, but its node soon updates it.
            if let Some(pod) = write.after.as_deref().filter(|pod| !group_of(pod).is_empty()) {
                self.pods.entry(uid(pod).to_owned()).or_insert(write.at);
            }
        }
        let is_checked = write.request.resource == "podgroups" && write.by_manager() && write.succeeded();
        let Some(before) = write.before.as_deref().filter(|before| is_checked && has_finalizer(before))
        else {
            return Ok(());
        };
        if write.after.as_deref().is_some_and(has_finalizer) {
            return Ok(());
        }
        if !is_terminating(before) {
            return Err(format!("living {} lost its finalizer", describe(before)));
        }
        let known = users(before, server).into_iter().find(|pod| {
            let since = self.pods.get(uid(pod));
            since.is_some_and(|since| self.faults.caches_know(*since, write.at))
        });
        known.map_or(Ok(()), |pod| {
            Err(format!("{} lost its finalizer while {} uses it", describe(before), describe(&pod)))
        })
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for group in &server.objects("podgroups.scheduling.k8s.io") {
            let (protected, terminating) = (has_finalizer(group), is_terminating(group));
            if terminating && protected && users(group, server).is_empty() {
                return Err(format!("{} is deleted and unused, and has its finalizer", describe(group)));
            }
            if !terminating && !protected {
                return Err(format!("{} has no finalizer", describe(group)));
            }
        }
        Ok(())
    }
}
