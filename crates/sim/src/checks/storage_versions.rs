//! StorageVersions lose only records of API servers without an identity Lease, and keep all others as they were; in the end
//! no record of a server without a Lease is left.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};
use crate::user_gated::{IDENTITY_LABEL, IDENTITY_NAMESPACE};

/// Follows identity Leases and the records of their API servers.
#[derive(Default)]
pub struct StorageVersions {
    faults: Faults,
    /// By name.
    leases: BTreeMap<String, IdentityLease>,
    /// By name of a StorageVersion: when it was last written.
    written_at: BTreeMap<String, Duration>,
}

#[derive(Default)]
struct IdentityLease {
    /// Since when it exists; `None` if it does not.
    since: Option<Duration>,
    was_deleted: bool,
}

fn is_identity_lease(lease: &Value) -> bool {
    let (label, value) = IDENTITY_LABEL;
    lease["metadata"]["labels"][label] == value
}

fn records(version: &Value) -> &[Value] {
    let records = version.pointer("/status/storageVersions").and_then(Value::as_array);
    records.map(Vec::as_slice).unwrap_or_default()
}

impl Checker for StorageVersions {
    fn name(&self) -> &'static str {
        "storageversion-garbage-collector-controller"
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        if request.resource == "leases" && request.namespace == IDENTITY_NAMESPACE {
            self.observe_lease(write);
        }
        if request.resource != "storageversions" || !write.succeeded() {
            return Ok(());
        }
        let judged = if write.by_manager() { self.check(write) } else { Ok(()) };
        self.written_at.insert(request.name.clone(), write.at);
        judged
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for version in server.objects("storageversions.internal.apiserver.k8s.io") {
            for id in records(&version).iter().map(|record| text(record, "/apiServerID")) {
                let lease = server.object("leases.coordination.k8s.io", IDENTITY_NAMESPACE, id);
                if !lease.is_some_and(|lease| is_identity_lease(&lease)) {
                    return Err(format!("{} has a record of {id}, which has no Lease", describe(&version)));
                }
            }
        }
        Ok(())
    }
}

impl StorageVersions {
    fn observe_lease(&mut self, write: &ObservedWrite) {
        if write.request.name.is_empty() || !write.succeeded() {
            return;
        }
        let lease = self.leases.entry(write.request.name.clone()).or_default();
        if !write.after.as_deref().is_some_and(is_identity_lease) {
            (lease.since, lease.was_deleted) = (None, true);
        } else if lease.since.is_none() {
            lease.since = Some(write.at);
        }
    }

    fn check(&self, write: &ObservedWrite) -> Result<(), String> {
        let before = write.before.as_deref().unwrap_or(&Value::Null);
        let after = write.after.as_deref().unwrap_or(&Value::Null);
        let left = records(after);
        let (kept, dropped): (Vec<&Value>, Vec<_>) =
            records(before).iter().partition(|record| left.contains(record));
        if !kept.into_iter().eq(left) {
            return Err(format!("{} gets other records than it had", describe(before)));
        }
        if dropped.is_empty() {
            return Err(format!("{} is written, and no record of it is dropped", describe(before)));
        }
        for id in dropped.into_iter().map(|record| text(record, "/apiServerID")) {
            if self.is_alive(id, write) {
                return Err(format!("{} loses the record of {id}, which has a Lease", describe(before)));
            }
        }
        if write.request.method == Method::DELETE {
            return Ok(());
        }
        let agree = !text(after, "/status/commonEncodingVersion").is_empty();
        if left.is_empty() || agree != condition_is_true(after, "AllEncodingVersionsEqual") {
            return Err(format!("{} has the status {}", describe(before), after["status"]));
        }
        Ok(())
    }

    /// Whether an API server has had its Lease whenever the controller can have read it.
    ///
    /// A record is dropped from the newest StorageVersion. The loop of StorageVersions reads the Leases after it; that of
    /// deleted Leases, which concerns those that once were deleted, reads the Lease before.
    fn is_alive(&self, id: &str, write: &ObservedWrite) -> bool {
        let Some(lease) = self.leases.get(id) else { return false };
        let Some(since) = lease.since else { return false };
        let changed_at = self.written_at.get(&write.request.name).copied().unwrap_or_default();
        let was_read_later = since < changed_at && !lease.was_deleted;
        was_read_later || self.faults.caches_know(since, write.at)
    }
}
