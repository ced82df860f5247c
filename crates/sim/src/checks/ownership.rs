//! A controller deletes only objects that it controls, and adopts no object that has a controllerRef.

use std::collections::BTreeSet;

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{controller_ref, describe, loses_controller_ref, uid};
use crate::recorder::{ObservedWrite, text};

/// Compares the controllerRefs before and after each write.
#[derive(Default)]
pub struct Ownership {
    /// The UIDs of objects that users or the garbage collector released; their former controllers may not
    /// have observed it yet.
    released: BTreeSet<String>,
}

/// The kind whose dependents a controller may delete.
pub(super) fn owner_kind(component: &str) -> Option<&'static str> {
    Some(match component {
        "replicaset-controller" => "ReplicaSet",
        "replication-controller" => "ReplicationController",
        "statefulset-controller" => "StatefulSet",
        "daemon-set-controller" => "DaemonSet",
        "job-controller" => "Job",
        "deployment-controller" => "Deployment",
        _ => return None,
    })
}

impl Checker for Ownership {
    fn name(&self) -> &'static str {
        "ownership"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let Some(before) = write.before.as_ref().filter(|_| write.succeeded()) else { return Ok(()) };
        let owner = controller_ref(before);
        if (!write.by_manager() || write.component == "generic-garbage-collector")
            && loses_controller_ref(write)
        {
            self.released.insert(uid(before).to_owned());
            return Ok(());
        }
        if !write.by_manager() {
            return Ok(());
        }
        if let Some(kind) = owner_kind(&write.component)
            && write.request.method == Method::DELETE
            && owner.is_none_or(|owner| owner["kind"] != kind)
            && !self.released.contains(uid(before))
        {
            return Err(format!("deleted {}, which no {kind} controls", describe(before)));
        }
        let Some(after) = write.after.as_ref().filter(|after| uid(after) == uid(before)) else {
            return Ok(());
        };
        match (owner, controller_ref(after)) {
            (Some(old_owner), Some(new_owner)) if text(old_owner, "/uid") != text(new_owner, "/uid") => {
                Err(format!("adopted {}, which another owner controls", describe(before)))
            }
            _ => Ok(()),
        }
    }
}
