//! The list of all controllers. A new one is a line here and a module beside this one.

use keleustes_plan::Controller;

use crate::{
    clusterrole_aggregation, deployment, namespace, pod_garbage_collector, replicaset, replicationcontroller,
    serviceaccount, serviceaccount_token, taint_eviction,
};

/// What controllers are told by flags and files.
#[derive(Default)]
pub struct Settings {
    /// For the token controller, which only runs with a key to sign with.
    pub serviceaccount_token: Option<serviceaccount_token::Settings>,
    /// For Deployments.
    pub deployment: deployment::Settings,
    /// For ReplicaSets.
    pub replicaset: replicaset::Settings,
    /// For ReplicationControllers.
    pub replicationcontroller: replicaset::Settings,
    /// For the pod garbage collector.
    pub pod_garbage_collector: pod_garbage_collector::Settings,
    /// For the eviction of pods from tainted nodes.
    pub taint_eviction: taint_eviction::Settings,
    /// For the namespace controller.
    pub namespace: namespace::Settings,
}

/// All controllers that can run with these settings, in the order in which they start.
#[must_use]
pub fn all(settings: &Settings) -> Vec<Controller> {
    [
        // First, because others may need a token before they can do anything.
        settings.serviceaccount_token.as_ref().map(serviceaccount_token::controller),
        Some(replicationcontroller::controller(&settings.replicationcontroller)),
        Some(pod_garbage_collector::controller(settings.pod_garbage_collector)),
        Some(namespace::controller(&settings.namespace)),
        Some(serviceaccount::controller()),
        Some(deployment::controller(&settings.deployment)),
        Some(replicaset::controller(&settings.replicaset)),
        Some(taint_eviction::controller(settings.taint_eviction)),
        Some(clusterrole_aggregation::controller()),
    ]
    .into_iter()
    .flatten()
    .collect()
}
