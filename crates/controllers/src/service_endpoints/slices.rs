//! The labels that connect EndpointSlices with a Service and with the controller that manages them, and the enqueueing
//! of changes that other clients make to slices.

use keleustes_objects::{EndpointSlice, Key};

use keleustes_plan::Change;

/// The label with the name of the Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the controller that manages the slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The longest name of an object.
const NAME_MAX: usize = 253;

/// The Service in a slice's label.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.meta.labels.value(SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(Key::namespaced(&*slice.meta.key.namespace, name.as_str()))
}

/// Whether the managed-by label of a slice has this value.
pub(crate) fn is_managed_by(slice: &EndpointSlice, controller: &str) -> bool {
    slice.meta.labels.value(MANAGED_BY).is_some_and(|value| *value == controller)
}

/// `generateName` of the slices of a Service.
pub(crate) fn generate_name(service: &str) -> String {
    let dash = if service.len() < NAME_MAX { "-" } else { "" };
    format!("{service}{dash}")
}

/// The Services that a change of a slice by another client concerns: one, or two if the label with its name changed.
pub(crate) fn services_of_change(
    change: &Change<EndpointSlice>,
    controller: &str,
    is_own_write: impl Fn(&Key) -> bool,
) -> Vec<Key> {
    let (slice, service) = (change.latest(), service_of(change.latest()));
    if let (Some(old), Some(new)) = (change.old(), change.new()) {
        let old_service = service_of(old);
        if service != old_service {
            return [service, old_service].into_iter().flatten().collect();
        }
        if is_managed_by(old, controller) != is_managed_by(new, controller) {
            return service.into_iter().collect();
        }
        // A change of annotations, for example, does not change the generation.
        if old.meta.uid == new.meta.uid && new.meta.generation <= old.meta.generation {
            return Vec::new();
        }
    }
    let is_foreign = |service: &Key| is_managed_by(slice, controller) && !is_own_write(service);
    service.filter(is_foreign).into_iter().collect()
}
