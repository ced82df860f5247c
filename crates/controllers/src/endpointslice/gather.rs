//! Reads the inputs of one Service from the caches.

use std::sync::Arc;

use keleustes_objects::{EndpointSlice, InternedStr, Key, Node, Pod, Service};
use keleustes_plan::View;

use super::BY_SERVICE;
use crate::service_endpoints::{pod_selector, selected_pods};

/// What the caches hold for a key.
pub(super) enum Gathered {
    NotFound,
    /// The Service has no selector or is of type ExternalName.
    NotManaged,
    Managed(Inputs),
}

/// A Service and the objects that its slices depend on.
pub(super) struct Inputs {
    pub(super) service: Arc<Service>,
    /// The pods that it selects, sorted by name.
    pub(super) selected_pods: Vec<SelectedPod>,
    /// Its slices, sorted by name, without terminating ones.
    pub(super) slices: Vec<Arc<EndpointSlice>>,
}

pub(super) struct SelectedPod {
    pub(super) pod: Arc<Pod>,
    /// The zone of its node, empty if the node has no zone label; `None` if the node does not exist.
    pub(super) zone: Option<InternedStr>,
}

/// The node label with the node's zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

impl Inputs {
    /// The selected pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.selected_pods.iter().map(|selected| &*selected.pod)
    }

    /// The names of nodes that selected pods are bound to and that do not exist.
    pub(super) fn missing_nodes(&self) -> impl Iterator<Item = &InternedStr> {
        let without_node = self.selected_pods.iter().filter(|selected| selected.zone.is_none());
        without_node.map(|selected| &selected.pod.node_name).filter(|node| !node.is_empty())
    }
}

impl Gathered {
    pub(super) fn gather(view: &View<'_>, key: &Key) -> Self {
        let Some(service) = view.get::<Service>(key) else { return Self::NotFound };
        let Some(selector) = pod_selector(service) else { return Self::NotManaged };
        let select = |pod: &Arc<Pod>| {
            let node = view.get::<Node>(&Key::cluster(&*pod.node_name));
            SelectedPod { pod: pod.clone(), zone: node.map(|node| zone_of(node)) }
        };
        let slices = view.store::<EndpointSlice>().by_index(&BY_SERVICE, &key.to_string());
        Self::Managed(Inputs {
            service: service.clone(),
            selected_pods: selected_pods(view, &key.namespace, selector).map(select).collect(),
            slices: slices.filter(|slice| slice.meta.deletion_timestamp.is_none()).cloned().collect(),
        })
    }
}

/// The zone of a node; empty if it has no zone label.
pub(super) fn zone_of(node: &Node) -> InternedStr {
    node.meta.labels.value(ZONE).cloned().unwrap_or_default()
}
