//! Takes from the caches what concerns one Service.

use std::sync::Arc;

use keleustes_objects::{EndpointSlice, InternedStr, Key, Labels, Node, Pod, Service};
use keleustes_plan::View;

use super::BY_SERVICE;

/// What the caches say about a key.
pub(super) enum Gathered {
    /// There is no such Service.
    Gone,
    /// There is, but its slices are somebody else's affair.
    Foreign,
    /// There is, and here is all that matters.
    Ours(Inputs),
}

/// A Service and what its slices depend on.
pub(super) struct Inputs {
    pub(super) service: Arc<Service>,
    /// The pods that it selects, sorted by name.
    pub(super) backends: Vec<SelectedPod>,
    /// The slices that are there, sorted by name, without those on their way out.
    pub(super) slices: Vec<Arc<EndpointSlice>>,
}

/// A selected pod.
pub(super) struct SelectedPod {
    pub(super) pod: Arc<Pod>,
    /// The zone of its node, empty if the node tells none; `None` if there is no such node.
    pub(super) zone: Option<InternedStr>,
}

/// Where a node says which zone it is in.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

impl Inputs {
    /// The nodes that selected pods are on and that are not there.
    pub(super) fn missing_nodes(&self) -> impl Iterator<Item = &InternedStr> {
        let astray = self.backends.iter().filter(|backend| backend.zone.is_none());
        astray.map(|backend| &backend.pod.node_name).filter(|node| !node.is_empty())
    }
}

impl Gathered {
    pub(super) fn gather(view: &View<'_>, key: &Key) -> Self {
        let Some(service) = view.get::<Service>(key) else { return Self::Gone };
        let Some(selector) = service.selector.as_ref().filter(|_| service.service_type != "ExternalName")
        else {
            return Self::Foreign;
        };
        let backend = |pod: &Arc<Pod>| {
            let node = view.get::<Node>(&Key::cluster(&*pod.node_name));
            SelectedPod { pod: pod.clone(), zone: node.map(|node| zone_of(node)) }
        };
        let slices = view.store::<EndpointSlice>().by_index(&BY_SERVICE, &key.to_string());
        Self::Ours(Inputs {
            service: service.clone(),
            backends: selected(view, &key.namespace, selector).map(backend).collect(),
            slices: slices.filter(|slice| slice.meta.deletion_timestamp.is_none()).cloned().collect(),
        })
    }
}

/// The zone that a node says it is in; empty if it says none.
pub(super) fn zone_of(node: &Node) -> InternedStr {
    node.meta.labels.value(ZONE).cloned().unwrap_or_default()
}

/// The pods of a namespace that a selector matches. Pods of one template stand side by side and share
/// their labels, so a comparison of addresses answers for nearly all of them.
fn selected<'v>(
    view: &View<'v>,
    namespace: &InternedStr,
    selector: &Labels,
) -> impl Iterator<Item = &'v Arc<Pod>> {
    let mut last: Option<(&'v Labels, bool)> = None;
    view.in_namespace::<Pod>(namespace).filter(move |pod| {
        let labels = &pod.meta.labels;
        let matches = match last {
            Some((seen, matched)) if seen == labels => matched,
            _ => selector.is_subset_of(labels),
        };
        last = Some((labels, matches));
        matches
    })
}
