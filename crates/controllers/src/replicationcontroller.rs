//! Keeps as many active pods as a ReplicationController asks for: the algorithm of ReplicaSets on an
//! older kind.
//!
//! Parity: pkg/controller/replication.

use std::borrow::Cow;

use keleustes_objects::{ReplicaSetStatus, ReplicationController, Template};
use keleustes_plan::{Controller, Grant, View};

use crate::replicaset::{AGE_RATIO, Replicated, Settings, the_loop};

/// The controller.
#[must_use]
pub fn controller(settings: &Settings) -> Controller {
    Controller::new("replicationcontroller-controller")
        .also_known_as(&["replicationcontroller"])
        .works_as("replication-controller")
        .records_events_as("replication-controller")
        .measures([&AGE_RATIO])
        .may_write(&[
            Grant { group: "", resource: "replicationcontrollers", verbs: &["get"] },
            Grant { group: "", resource: "replicationcontrollers/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        ])
        .runs(the_loop::<ReplicationController>("replicationmanager", settings))
}

impl Replicated for ReplicationController {
    fn replicas(&self) -> i32 {
        self.spec.replicas
    }

    fn template(&self) -> &Template {
        &self.spec.template
    }

    fn status(&self) -> Cow<'_, ReplicaSetStatus> {
        let status = &self.status;
        Cow::Owned(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions: status.conditions.clone(),
            unknown: status.unknown.clone(),
        })
    }

    const TELLS_TERMINATING: bool = false;

    /// These have no families: nobody manages them.
    fn family<'a>(&self, _: &View<'a>) -> Vec<&'a Self> {
        Vec::new()
    }
}
