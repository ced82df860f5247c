//! Controllers that only record events about volumes write nothing else, and record them where there is a reason: a claim
//! that waits for a larger volume, and pods that use one volume with different SELinux labels. In a storm without faults
//! these events are there in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, is_active, is_terminating, namespace, uid};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};
use crate::user_reports::LABELLED_CLAIM;

/// How long a claim may wait for a larger volume, and pods may exist, without an event.
const EVENT_WITHIN: Duration = Duration::from_secs(5);

/// The reason and the UID of the object that an event is about, if a controller has created it.
fn created_event<'a>(write: &'a ObservedWrite, component: &str) -> Option<(&'a str, &'a str)> {
    let creates = write.request.resource == "events" && write.request.method == Method::POST;
    let is_its = creates && write.by_manager() && write.component == component && write.succeeded();
    is_its.then(|| (text(&write.body, "/reason"), text(&write.body, "/involvedObject/uid")))
}

fn expect_only_events(write: &ObservedWrite, component: &str) -> Result<(), String> {
    let writes = write.by_manager() && write.component == component && write.request.resource != "events";
    if writes { Err("more than an event is written".to_owned()) } else { Ok(()) }
}

/// Follows the sizes of claims and the events about them.
#[derive(Default)]
pub struct ExpansionEvents {
    faults: Faults,
    now: Duration,
    /// By UID: since when a claim that is bound asks for more than it has.
    growing: BTreeMap<String, Duration>,
    /// Claims that waited long enough for an event.
    waited: BTreeSet<String>,
    /// Claims that asked for more than they had at some time.
    grew: BTreeSet<String>,
    recorded: BTreeSet<String>,
}

const EXPANDER: &str = "expand-controller";

/// The size at a JSON pointer of a claim. Users and the CSI driver write all sizes in the same way.
fn gibibytes(claim: &Value, pointer: &str) -> i64 {
    text(claim, pointer).trim_end_matches("Gi").parse().unwrap_or_default()
}

/// Whether a bound claim asks for more than it has.
fn asks_for_more(claim: &Value) -> bool {
    let wanted = gibibytes(claim, "/spec/resources/requests/storage");
    text(claim, "/status/phase") == "Bound" && wanted > gibibytes(claim, "/status/capacity/storage")
}

impl Checker for ExpansionEvents {
    fn name(&self) -> &'static str {
        "persistentvolume-expander-controller"
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        self.now = self.now.max(write.at);
        let waited = self.growing.iter().filter(|(_, since)| write.at > **since + EVENT_WITHIN);
        self.waited.extend(waited.map(|(uid, _)| uid.clone()));
        if write.request.resource == "persistentvolumeclaims" && write.succeeded() {
            let before = write.before.as_deref().map(|claim| uid(claim).to_owned());
            match write.after.as_deref().filter(|claim| asks_for_more(claim)) {
                Some(claim) => {
                    self.grew.insert(uid(claim).to_owned());
                    // A claim without a capacity was bound by a user alone.
                    if gibibytes(claim, "/status/capacity/storage") > 0 {
                        self.growing.entry(uid(claim).to_owned()).or_insert(write.at);
                    }
                }
                None => drop(before.and_then(|uid| self.growing.remove(&uid))),
            }
        }
        expect_only_events(write, EXPANDER)?;
        let Some((reason, claim)) = created_event(write, EXPANDER) else { return Ok(()) };
        if reason != "ExternalExpanding" || !self.grew.contains(claim) {
            return Err(format!("{reason} is recorded about a claim that did not grow"));
        }
        self.recorded.insert(claim.to_owned());
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let missing =
            |claim: &&Arc<Value>| self.waited.contains(uid(claim)) && !self.recorded.contains(uid(claim));
        let claims = server.objects("persistentvolumeclaims");
        match claims.iter().find(missing).filter(|_| self.faults.is_calm()) {
            Some(claim) => Err(format!("no event says that {} waits for its resizer", describe(claim))),
            None => Ok(()),
        }
    }
}

/// Follows pods that use one volume with SELinux labels, and the events about them.
#[derive(Default)]
pub struct LabelConflictEvents {
    faults: Faults,
    /// By namespace: the levels of all pods that users have created with the claim.
    levels: BTreeMap<String, BTreeSet<String>>,
    recorded: BTreeSet<String>,
}

const SELINUX: &str = "selinux-warning-controller";

fn level(pod: &Value) -> Option<&str> {
    let uses = text(pod, "/spec/volumes/0/persistentVolumeClaim/claimName") == LABELLED_CLAIM;
    uses.then(|| text(pod, "/spec/securityContext/seLinuxOptions/level"))
}

impl Checker for LabelConflictEvents {
    fn name(&self) -> &'static str {
        SELINUX
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let creates_pod = write.request.resource == "pods" && write.request.method == Method::POST;
        if let Some(level) = level(&write.body).filter(|_| creates_pod) {
            self.levels.entry(write.request.namespace.clone()).or_default().insert(level.to_owned());
        }
        expect_only_events(write, SELINUX)?;
        let Some((reason, pod)) = created_event(write, SELINUX) else { return Ok(()) };
        let levels = self.levels.get(&write.request.namespace).map_or(0, BTreeSet::len);
        if reason != "SELinuxLabelConflict" || levels < 2 {
            return Err(format!("{reason} is recorded about a pod without a conflict"));
        }
        self.recorded.insert(pod.to_owned());
        Ok(())
    }

    /// Two pods that both exist for some time have an event each.
    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let mut pods = server.objects("pods");
        pods.retain(|pod| is_active(pod) && level(pod).is_some());
        let conflicts = |pod: &&Arc<Value>| {
            pods.iter().any(|other| namespace(other) == namespace(pod) && level(other) != level(pod))
        };
        let is_bound = |pod: &Value| {
            let claim = server.object("persistentvolumeclaims", namespace(pod), LABELLED_CLAIM);
            claim.is_some_and(|claim| !is_terminating(&claim) && text(&claim, "/status/phase") == "Bound")
        };
        let silent = pods.iter().filter(conflicts).find(|pod| !self.recorded.contains(uid(pod)));
        match silent.filter(|pod| self.faults.is_calm() && is_bound(pod)) {
            Some(pod) => Err(format!("no event says that the label of {} conflicts", describe(pod))),
            None => Ok(()),
        }
    }
}
