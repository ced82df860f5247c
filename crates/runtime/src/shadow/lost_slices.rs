//! Services whose EndpointSlices were deleted or relabelled, or stay terminating: the original does not replace such a
//! slice at once, so that a missing slice is a known difference for these Services and for no others.
//!
//! What is kept is bounded. A loss that is forgotten makes the difference an unlisted one, never the opposite.

use std::collections::VecDeque;

use keleustes_objects::{Key, ObjectMeta, Resource, ResourceVersion};
use keleustes_plan::AnyChange;

/// How many losses are kept.
const KEPT_MAX: usize = 1000;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The controllers that write slices, and their names in the managed-by label.
const CONTROLLERS: [(&str, &str); 2] = [
    ("endpointslice-controller.k8s.io", "endpointslice-controller"),
    ("endpointslicemirroring-controller.k8s.io", MIRRORING),
];
const MIRRORING: &str = "endpointslice-mirroring-controller";

/// The losses, the oldest first.
#[derive(Debug, Default)]
pub(super) struct LostSlices(VecDeque<LostSlice>);

#[derive(Debug)]
struct LostSlice {
    controller: &'static str,
    /// The Service; Endpoints have the same name.
    service: Key,
    slice: Key,
    resource_version: ResourceVersion,
    loss: Loss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The slice is deleted. The original recreates it at the next change of the Service, or of the Endpoints.
    Deleted,
    /// The slice is terminating or has other labels. The original considers its cache stale and writes nothing.
    Blocking,
}

impl LostSlices {
    /// Takes note of a change of any object. `is_expected`: a decision of this process explains it.
    pub(super) fn changed(&mut self, resource: &Resource, change: &AnyChange, is_expected: bool) {
        let old = change.old.as_ref().map(|old| old.meta());
        let new = change.new.as_ref().map(|new| new.meta());
        match (&*resource.group, &*resource.plural) {
            ("discovery.k8s.io", "endpointslices") => self.slice_changed(old, new, is_expected),
            ("", "services") => self.end(change, false),
            ("", "endpoints") => self.end(change, true),
            _ => {}
        }
    }

    /// Whether changes of a resource matter.
    pub(super) fn depend_on(resource: &Resource) -> bool {
        matches!(
            (&*resource.group, &*resource.plural),
            ("discovery.k8s.io", "endpointslices") | ("", "services" | "endpoints")
        )
    }

    /// Whether a controller has lost a slice of a Service and nothing has replaced it.
    pub(super) fn contains(&self, controller: &str, service: &Key) -> bool {
        self.0.iter().any(|lost| lost.controller == controller && lost.service == *service)
    }

    fn slice_changed(&mut self, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>, is_expected: bool) {
        let before = old.and_then(writer_and_service);
        let after = new.and_then(writer_and_service);
        let is_terminating = |meta: &ObjectMeta| meta.deletion_timestamp.is_some();
        let is_same = old.zip(new).is_some_and(|(old, new)| old.uid == new.uid);
        if !is_same && let Some((controller, service)) = &after {
            self.0.retain(|lost| (lost.controller, &lost.service) != (*controller, service));
        }
        let (slice, lost, loss) = match (old, new) {
            (Some(slice), None) => (slice, before, Loss::Deleted),
            (_, Some(slice)) if is_terminating(slice) => (slice, after, Loss::Blocking),
            (Some(old), Some(slice)) if before != after && !is_terminating(old) => {
                (slice, before, Loss::Blocking)
            }
            _ => return,
        };
        let was_lost = self.0.iter().any(|lost| lost.slice == slice.key);
        self.0.retain(|lost| lost.slice != slice.key);
        let Some((controller, service)) = lost.filter(|_| !is_expected || was_lost) else { return };
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        let (slice, resource_version) = (slice.key.clone(), slice.resource_version.clone());
        self.0.push_back(LostSlice { controller, service, slice, resource_version, loss });
    }

    /// A Service or Endpoints changed: the original reconciles them. Watches of different kinds are not in step, so that a
    /// change may arrive that is older than the lost slice.
    fn end(&mut self, change: &AnyChange, only_mirroring: bool) {
        let Some(meta) = change.meta() else { return };
        let is_over = |lost: &LostSlice| {
            lost.service == meta.key
                && lost.loss == Loss::Deleted
                && (!only_mirroring || lost.controller == MIRRORING)
                && lost.resource_version.is_older_than(&meta.resource_version)
        };
        self.0.retain(|lost| !is_over(lost));
    }
}

/// The controller that writes a slice, and the Service that it belongs to, as its labels say.
fn writer_and_service(slice: &ObjectMeta) -> Option<(&'static str, Key)> {
    let managed_by = slice.labels.value(MANAGED_BY)?;
    let (_, controller) = CONTROLLERS.into_iter().find(|(label, _)| **managed_by == **label)?;
    let service = slice.labels.value(SERVICE_NAME)?;
    Some((controller, Key::namespaced(&*slice.key.namespace, &**service)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keleustes_objects::PartialObjectMeta;
    use keleustes_plan::AnyObject;
    use serde_json::{Value, json};

    use super::*;

    const SLICES: Resource =
        Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
    const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
    const ENDPOINTS: Resource = Resource::namespaced("", "v1", "endpoints", "Endpoints");
    const SLICE_CONTROLLER: &str = "endpointslice-controller";

    type Object = Option<Arc<dyn AnyObject>>;

    fn object(name: &str, version: u32, more: &Value) -> Object {
        let mut metadata =
            json!({"namespace": "shop", "name": name, "uid": name, "resourceVersion": version.to_string()});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object: PartialObjectMeta = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Some(Arc::new(object))
    }

    fn labels(service: &str, managed_by: &str) -> Value {
        json!({"labels": {SERVICE_NAME: service, MANAGED_BY: format!("{managed_by}.k8s.io")}})
    }

    fn slice(name: &str, version: u32) -> Object {
        object(name, version, &labels("web", SLICE_CONTROLLER))
    }

    fn terminating(version: u32) -> Object {
        let mut more = labels("web", SLICE_CONTROLLER);
        more["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object("web-a", version, &more)
    }

    fn changed(lost: &mut LostSlices, resource: &Resource, old: Object, new: Object) {
        lost.changed(resource, &AnyChange { old, new, resync: false }, false);
    }

    fn is_lost(lost: &LostSlices) -> bool {
        lost.contains(SLICE_CONTROLLER, &Key::namespaced("shop", "web"))
    }

    #[test]
    fn deleted_slice_is_lost_until_another_comes_or_the_service_changes() {
        let mut lost = LostSlices::default();
        changed(&mut lost, &SLICES, None, slice("web-a", 5));
        changed(&mut lost, &SLICES, slice("web-a", 5), slice("web-a", 6));
        assert!(!is_lost(&lost), "an update is no loss");
        changed(&mut lost, &SLICES, slice("web-a", 6), None);
        assert!(is_lost(&lost));
        assert!(!lost.contains(MIRRORING, &Key::namespaced("shop", "web")), "another controller's slice");
        assert!(!lost.contains(SLICE_CONTROLLER, &Key::namespaced("shop", "api")), "another Service");
        changed(&mut lost, &SERVICES, None, object("web", 4, &json!({})));
        assert!(is_lost(&lost), "the Service changed before");
        changed(&mut lost, &ENDPOINTS, None, object("web", 8, &json!({})));
        assert!(is_lost(&lost), "the controller does not read Endpoints");
        changed(&mut lost, &SERVICES, object("web", 4, &json!({})), object("web", 8, &json!({})));
        assert!(!is_lost(&lost));
        changed(&mut lost, &SLICES, slice("web-a", 9), None);
        changed(&mut lost, &SLICES, None, slice("web-b", 10));
        assert!(!is_lost(&lost), "it is replaced");
    }

    #[test]
    fn terminating_and_relabelled_slices_are_lost_whatever_the_service_does() {
        let mut lost = LostSlices::default();
        changed(&mut lost, &SLICES, None, terminating(5));
        changed(&mut lost, &SERVICES, None, object("web", 8, &json!({})));
        assert!(is_lost(&lost));
        changed(&mut lost, &SLICES, terminating(5), None);
        assert!(is_lost(&lost), "it is deleted");
        changed(&mut lost, &SERVICES, None, object("web", 9, &json!({})));
        assert!(!is_lost(&lost), "from now on the original may replace it");

        changed(&mut lost, &SLICES, slice("web-a", 10), object("web-a", 11, &json!({})));
        changed(&mut lost, &SERVICES, None, object("web", 12, &json!({})));
        assert!(is_lost(&lost));
    }

    #[test]
    fn mirrored_slice_is_lost_until_its_endpoints_change() {
        let mut lost = LostSlices::default();
        let mirrored = object("web-a", 5, &labels("web", "endpointslicemirroring-controller"));
        changed(&mut lost, &SLICES, mirrored, None);
        assert!(lost.contains(MIRRORING, &Key::namespaced("shop", "web")) && !is_lost(&lost));
        changed(&mut lost, &ENDPOINTS, None, object("web", 6, &json!({})));
        assert!(!lost.contains(MIRRORING, &Key::namespaced("shop", "web")));
    }

    #[test]
    fn deletion_that_was_expected_is_no_loss() {
        let mut lost = LostSlices::default();
        let deleted = AnyChange { old: slice("web-a", 5), new: None, resync: false };
        lost.changed(&SLICES, &deleted, true);
        assert!(!is_lost(&lost));
    }

    #[test]
    fn losses_are_bounded() {
        let mut lost = LostSlices::default();
        for number in 0..KEPT_MAX + 7 {
            changed(&mut lost, &SLICES, slice(&format!("web-{number}"), 5), None);
        }
        assert_eq!(lost.0.len(), KEPT_MAX);
    }
}
