//! An object that names an owner in another namespace has no controller: no workload controller writes to it, deletes
//! it or counts it. Only the garbage collector deletes it, because its owner does not exist in its own namespace.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{
    controller_ref, describe, is_terminating, loses_controller_ref, namespace, number, uid,
};
use super::ownership::owner_kind;
use crate::recorder::{ObservedWrite, text};

/// Remembers the objects with an owner elsewhere, and how many dependents every owner ever had in its own namespace.
#[derive(Default)]
pub struct OwnersElsewhere {
    /// The UIDs of the objects that name an owner in another namespace.
    dependents: BTreeSet<String>,
    /// The UIDs of the owners that they name.
    named_owners: BTreeSet<String>,
    /// By UID of the owner: how many dependents were ever created or adopted by a controller.
    own: BTreeMap<String, i64>,
}

impl Checker for OwnersElsewhere {
    fn name(&self) -> &'static str {
        "owners elsewhere"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if !write.succeeded() {
            return Ok(());
        }
        self.observe(write, server);
        let Some(before) = write.before.as_deref().filter(|_| write.by_manager()) else { return Ok(()) };
        let is_workload_controller = owner_kind(&write.component).is_some();
        // A ReplicaSet is also an owner: its own controller writes its status.
        let manages_it =
            write.component == "replicaset-controller" && write.request.resource == "replicasets";
        if is_workload_controller && !manages_it && self.dependents.contains(uid(before)) {
            return Err(format!("wrote to {}, whose owner is in another namespace", describe(before)));
        }
        let Some(after) = &write.after else { return Ok(()) };
        if self.named_owners.contains(uid(after)) {
            let own = self.own.get(uid(after)).copied().unwrap_or_default();
            // Like the original's, the Job controller counts pods that a terminating namespace refuses as active.
            let home = server.object("namespaces", "", namespace(after));
            let is_torn_down =
                write.request.resource == "jobs" && home.is_none_or(|home| is_terminating(&home));
            return if is_torn_down { Ok(()) } else { check_status(&write.request.resource, after, own) };
        }
        Ok(())
    }
}

impl OwnersElsewhere {
    fn observe(&mut self, write: &ObservedWrite, server: &ApiServer) {
        if let Some(before) = write.before.as_deref().filter(|_| loses_controller_ref(write)) {
            self.dependents.remove(uid(before));
        }
        let request = &write.request;
        if request.method == Method::POST && request.subresource.is_empty() {
            let Some(owner) = controller_ref(&write.body) else { return };
            let owner = text(owner, "/uid");
            if write.by_manager() {
                *self.own.entry(owner.to_owned()).or_default() += 1;
            } else {
                self.observe_created_by_user(write, owner, server);
            }
            return;
        }
        // Adopted.
        let (Some(before), Some(after)) = (&write.before, &write.after) else { return };
        if let Some(owner) = controller_ref(after).filter(|_| controller_ref(before).is_none()) {
            *self.own.entry(text(owner, "/uid").to_owned()).or_default() += 1;
        }
    }

    fn observe_created_by_user(&mut self, write: &ObservedWrite, owner: &str, server: &ApiServer) {
        let request = &write.request;
        let is_elsewhere =
            |there: &Value| uid(there) == owner && !["", &request.namespace].contains(&namespace(there));
        let name = text(&write.body, "/metadata/name");
        let created = server.object(&request.full_resource(), &request.namespace, name);
        let Some(created) = created else { return };
        if server.snapshot().iter().any(|there| is_elsewhere(there)) {
            self.dependents.insert(uid(&created).to_owned());
            self.named_owners.insert(owner.to_owned());
        } else {
            // The original has created it.
            *self.own.entry(owner.to_owned()).or_default() += 1;
        }
    }
}

/// No status counts more dependents than the owner ever had.
fn check_status(resource: &str, owner: &Value, own: i64) -> Result<(), String> {
    let fields: &[&str] = match resource {
        "replicasets" | "replicationcontrollers" | "statefulsets" => &["replicas"],
        "daemonsets" => &["currentNumberScheduled"],
        "jobs" => &["active", "succeeded", "failed"],
        // It counts the pods of its ReplicaSets.
        "deployments" if own == 0 => &["replicas"],
        _ => &[],
    };
    for field in fields {
        let counted = number(owner, &format!("/status/{field}"));
        if counted > own {
            return Err(format!(
                "{}: status.{field} is {counted}, but it only ever had {own} dependents in its own namespace",
                describe(owner)
            ));
        }
    }
    Ok(())
}
