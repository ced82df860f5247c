//! The list of all controllers. A new one is a line here and a module beside this one.

use keleustes_plan::Controller;

/// Options of all controllers, from flags and files.
#[derive(Default)]
pub struct ControllersOptions {
    /// Token controller; it only runs with a signing key.
    pub serviceaccount_token: Option<crate::serviceaccount_token::ServiceAccountTokenOptions>,
    /// StatefulSet controller.
    pub statefulset: crate::statefulset::StatefulSetOptions,
    /// DaemonSet controller.
    pub daemonset: crate::daemonset::DaemonSetOptions,
    /// Deployment controller.
    pub deployment: crate::deployment::DeploymentOptions,
    /// EndpointSlice controller.
    pub endpointslice: crate::endpointslice::EndpointSliceOptions,
    /// Job controller.
    pub job: crate::job::JobOptions,
    /// ReplicaSet controller.
    pub replicaset: crate::replicaset::ReplicaSetOptions,
    /// ReplicationController controller.
    pub replicationcontroller: crate::replicaset::ReplicaSetOptions,
    /// Pod garbage collector.
    pub pod_garbage_collector: crate::pod_garbage_collector::PodGarbageCollectorOptions,
    /// Node lifecycle controller.
    pub node_lifecycle: crate::node_lifecycle::NodeLifecycleOptions,
    /// Taint eviction controller.
    pub taint_eviction: crate::taint_eviction::TaintEvictionOptions,
    /// Root CA certificate publisher.
    pub root_ca_certificate_publisher:
        crate::root_ca_certificate_publisher::RootCaCertificatePublisherOptions,
    /// Garbage collector.
    pub garbage_collector: crate::garbage_collector::GarbageCollectorOptions,
    /// Namespace controller.
    pub namespace: crate::namespace::NamespaceOptions,
}

/// All controllers that can run with these options, in start order.
#[must_use]
pub fn all_controllers(options: &ControllersOptions) -> Vec<Controller> {
    [
        // First, because other controllers may need a token before they can send requests.
        options.serviceaccount_token.as_ref().map(crate::serviceaccount_token::controller),
        Some(crate::endpointslice::controller(&options.endpointslice)),
        Some(crate::replicationcontroller::controller(&options.replicationcontroller)),
        Some(crate::pod_garbage_collector::controller(options.pod_garbage_collector)),
        Some(crate::namespace::controller(&options.namespace)),
        Some(crate::serviceaccount::controller()),
        crate::garbage_collector::controller_if_enabled(&options.garbage_collector),
        Some(crate::daemonset::controller(&options.daemonset)),
        Some(crate::job::controller(&options.job)),
        Some(crate::deployment::controller(&options.deployment)),
        Some(crate::replicaset::controller(&options.replicaset)),
        Some(crate::statefulset::controller(&options.statefulset)),
        Some(crate::node_lifecycle::controller(options.node_lifecycle)),
        Some(crate::taint_eviction::controller(options.taint_eviction)),
        Some(crate::clusterrole_aggregation::controller()),
        Some(crate::root_ca_certificate_publisher::controller(&options.root_ca_certificate_publisher)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
