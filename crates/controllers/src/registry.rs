//! The list of all controllers. A new one is a line here and a module beside this one.

use keleustes_plan::Controller;

/// What controllers are told by flags and files.
#[derive(Default)]
pub struct ControllersOptions {
    /// For the token controller, which only runs with a key to sign with.
    pub serviceaccount_token: Option<crate::serviceaccount_token::ServiceAccountTokenOptions>,
    /// For StatefulSets.
    pub statefulset: crate::statefulset::StatefulSetOptions,
    /// For DaemonSets.
    pub daemonset: crate::daemonset::DaemonSetOptions,
    /// For Deployments.
    pub deployment: crate::deployment::DeploymentOptions,
    /// For EndpointSlices.
    pub endpointslice: crate::endpointslice::EndpointSliceOptions,
    /// For Jobs.
    pub job: crate::job::JobOptions,
    /// For ReplicaSets.
    pub replicaset: crate::replicaset::ReplicaSetOptions,
    /// For ReplicationControllers.
    pub replicationcontroller: crate::replicaset::ReplicaSetOptions,
    /// For the pod garbage collector.
    pub pod_garbage_collector: crate::pod_garbage_collector::PodGarbageCollectorOptions,
    /// For nodes that are lost.
    pub node_lifecycle: crate::node_lifecycle::NodeLifecycleOptions,
    /// For the eviction of pods from tainted nodes.
    pub taint_eviction: crate::taint_eviction::TaintEvictionOptions,
    /// For the config maps that carry the CA.
    pub root_ca_certificate_publisher:
        crate::root_ca_certificate_publisher::RootCaCertificatePublisherOptions,
    /// For the garbage collector.
    pub garbage_collector: crate::garbage_collector::GarbageCollectorOptions,
    /// For the namespace controller.
    pub namespace: crate::namespace::NamespaceOptions,
}

/// All controllers that can run with these settings, in the order in which they start.
#[must_use]
pub fn all_controllers(settings: &ControllersOptions) -> Vec<Controller> {
    [
        // First, because others may need a token before they can do anything.
        settings.serviceaccount_token.as_ref().map(crate::serviceaccount_token::controller),
        Some(crate::endpointslice::controller(&settings.endpointslice)),
        Some(crate::replicationcontroller::controller(&settings.replicationcontroller)),
        Some(crate::pod_garbage_collector::controller(settings.pod_garbage_collector)),
        Some(crate::namespace::controller(&settings.namespace)),
        Some(crate::serviceaccount::controller()),
        crate::garbage_collector::controller_if_enabled(&settings.garbage_collector),
        Some(crate::daemonset::controller(&settings.daemonset)),
        Some(crate::job::controller(&settings.job)),
        Some(crate::deployment::controller(&settings.deployment)),
        Some(crate::replicaset::controller(&settings.replicaset)),
        Some(crate::statefulset::controller(&settings.statefulset)),
        Some(crate::node_lifecycle::controller(settings.node_lifecycle)),
        Some(crate::taint_eviction::controller(settings.taint_eviction)),
        Some(crate::clusterrole_aggregation::controller()),
        Some(crate::root_ca_certificate_publisher::controller(&settings.root_ca_certificate_publisher)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
