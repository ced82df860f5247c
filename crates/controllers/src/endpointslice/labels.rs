//! The labels of slices: those of their Service, and three reserved ones.

use keleustes_objects::{EndpointSlice, InternedStr, Labels, Service};

use super::MANAGED_BY;
use crate::service_endpoints::HEADLESS;
use crate::service_endpoints::slices::{MANAGED_BY as MANAGED_BY_KEY, SERVICE_NAME};

/// The desired labels of the slices of a Service.
pub(super) fn desired(service: &Service) -> Labels {
    let own = [
        (SERVICE_NAME, Some(InternedStr::from(&*service.meta.key.name))),
        (MANAGED_BY_KEY, Some(InternedStr::from(MANAGED_BY))),
        (HEADLESS, service.is_headless().then(InternedStr::default)),
    ];
    let own = own.into_iter().filter_map(|(key, value)| Some((InternedStr::from(key), value?)));
    mirrored(&service.meta.labels).cloned().chain(own).collect()
}

/// Whether the labels of a slice differ from those of its Service. The reserved labels are not compared; the
/// next write updates them.
pub(super) fn have_changed(slice: &EndpointSlice, service: &Service) -> bool {
    !mirrored(&slice.meta.labels).eq(mirrored(&service.meta.labels))
}

fn mirrored(labels: &Labels) -> impl Iterator<Item = &(InternedStr, InternedStr)> {
    labels.iter().filter(|(key, _)| ![SERVICE_NAME, MANAGED_BY_KEY, HEADLESS].contains(&key.as_str()))
}
