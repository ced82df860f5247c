//! Which pods back a Service, and what is published of them.

use std::sync::Arc;

use keleustes_objects::{ArcStr, InternedStr, Labels, Pod, Service, TargetRef};
use keleustes_plan::View;

/// The selector of a Service whose endpoints are its pods; `None` if it has no selector or is of type ExternalName.
pub(crate) fn pod_selector(service: &Service) -> Option<&Labels> {
    service.selector.as_ref().filter(|_| service.service_type != "ExternalName")
}

/// The pods of a namespace that match a selector. Adjacent pods of one template share their interned labels,
/// so that a pointer comparison decides for nearly all of them.
pub(crate) fn selected_pods<'v>(
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

/// Whether a pod may be listed at all: it has an address and is not terminal.
pub(crate) fn has_endpoint(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.pod_ips().is_empty()
}

/// The hostname of a pod below the name of its Service; empty if its subdomain is another one.
pub(crate) fn hostname(service: &Service, pod: &Pod) -> ArcStr {
    let is_below = **pod.spec.subdomain() == *service.meta.key.name;
    if is_below { pod.hostname().into() } else { ArcStr::default() }
}

/// The reference from an endpoint to its pod.
pub(crate) fn target_ref(pod: &Pod) -> TargetRef {
    TargetRef {
        kind: "Pod".into(),
        namespace: pod.meta.key.namespace.clone(),
        name: pod.meta.key.name.clone(),
        uid: pod.meta.uid.clone(),
        ..TargetRef::default()
    }
}
