//! Assigns desired endpoints to slices so that as few slices as possible change.
//!
//! Every changed slice is sent in full to every node of the cluster. So a slice is only written if something
//! in it changed, and new endpoints first go to slices that change anyway. Slices are never merged or
//! rebalanced for their own sake.
//!
//! Parity: staging/src/k8s.io/endpointslice/reconciler.go.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{Endpoint, EndpointPort, EndpointSlice, Service, Uid};

use super::endpoints::{DesiredEndpoints, PortGroup};
use super::labels;
use crate::service_endpoints::{AddressType, EndpointIdentity, PortSet, Totals, is_same};

/// A slice to create or update.
pub(super) struct Draft {
    /// The existing slice that it updates; `None` for a new slice.
    pub(super) origin: Option<Arc<EndpointSlice>>,
    pub(super) ports: Arc<[EndpointPort]>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) because: &'static str,
}

/// The changes to the slices of one Service and address type.
#[derive(Default)]
pub(super) struct SliceChanges {
    pub(super) create: Vec<Draft>,
    pub(super) update: Vec<Draft>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    pub(super) unchanged: Vec<Arc<EndpointSlice>>,
    /// The number of endpoints that no slice had before.
    pub(super) added: usize,
    /// The number of endpoints that are removed from slices.
    pub(super) removed: usize,
    /// The totals after the changes.
    pub(super) totals: Totals,
}

impl Draft {
    /// An update of an existing slice.
    pub(super) fn of(slice: &Arc<EndpointSlice>, because: &'static str) -> Self {
        Self::with(slice, slice.endpoints.to_vec(), because)
    }

    fn with(slice: &Arc<EndpointSlice>, endpoints: Vec<Endpoint>, because: &'static str) -> Self {
        Self { origin: Some(slice.clone()), ports: Arc::from(&*slice.ports), endpoints, because }
    }

    fn empty(ports: Arc<[EndpointPort]>, because: &'static str) -> Self {
        Self { origin: None, ports, endpoints: Vec::new(), because }
    }
}

impl SliceChanges {
    /// Assigns the desired endpoints to the slices of an address type.
    pub(super) fn pack(
        service: &Service,
        address_type: AddressType,
        slices: &[Arc<EndpointSlice>],
        desired: DesiredEndpoints,
        max_endpoints_per_slice: usize,
    ) -> Self {
        let mut changes = Self::default();
        let mut by_ports: BTreeMap<PortSet, Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in slices {
            if is_owned(slice, &service.meta.uid) {
                by_ports.entry(PortSet::of(&slice.ports)).or_default().push(slice);
            } else {
                changes.delete.push(slice.clone());
            }
        }
        for (ports, group) in desired.groups {
            let existing = by_ports.remove(&ports).unwrap_or_default();
            changes.pack_group(service, &existing, group, max_endpoints_per_slice);
        }
        changes.delete.extend(by_ports.into_values().flatten().cloned());
        changes.keep_placeholder(service, address_type, slices.len());
        changes.totals.desired_slices = changes.totals.desired_slices.max(1);
        changes
    }

    fn pack_group(
        &mut self,
        service: &Service,
        existing: &[&Arc<EndpointSlice>],
        group: PortGroup,
        max_endpoints_per_slice: usize,
    ) {
        let PortGroup { ports, endpoints: mut unplaced } = group;
        let desired = unplaced.len();
        let (mut update, mut unchanged, mut create) = (Vec::new(), Vec::new(), Vec::new());
        let mut deleted = 0;
        for slice in existing {
            let kept = Kept::of(slice, &mut unplaced);
            self.removed += kept.removed;
            if kept.is_changed && kept.endpoints.is_empty() {
                self.delete.push(Arc::clone(slice));
                deleted += 1;
            } else if kept.is_changed {
                update.push(Draft::with(slice, kept.endpoints, "endpoints of the slice changed"));
            } else if labels::have_changed(slice, service) {
                update.push(Draft::of(slice, "labels of the Service changed"));
            } else {
                unchanged.push(Arc::clone(slice));
            }
        }
        self.added += unplaced.len();
        fill_fullest_first(&mut update, &mut unplaced, max_endpoints_per_slice);
        while !unplaced.is_empty() {
            let mut draft = match tightest_fit(&unchanged, unplaced.len(), max_endpoints_per_slice) {
                Some(at) => Draft::of(&unchanged.remove(at), "new endpoints are added to the slice"),
                None => Draft::empty(ports.clone(), "new endpoints need a slice"),
            };
            fill(&mut draft, &mut unplaced, max_endpoints_per_slice);
            if draft.origin.is_some() { &mut update } else { &mut create }.push(draft);
        }
        self.totals.endpoints += desired;
        self.totals.slices += existing.len() + create.len() - deleted;
        self.totals.desired_slices += desired.div_ceil(max_endpoints_per_slice.max(1));
        self.create.append(&mut create);
        self.update.append(&mut update);
        self.unchanged.append(&mut unchanged);
    }

    /// If no slice would remain, an empty one is kept or created: it shows that there are no endpoints, as
    /// opposed to a Service that has not been reconciled yet.
    fn keep_placeholder(&mut self, service: &Service, address_type: AddressType, existing: usize) {
        if existing != self.delete.len() || !self.create.is_empty() {
            return;
        }
        let is_placeholder = |slice: &EndpointSlice| {
            let is_bare = slice.endpoints.is_empty() && slice.ports.is_empty();
            is_bare
                && slice.address_type == address_type.as_str()
                && slice.meta.labels == labels::desired(service)
        };
        match &self.delete[..] {
            [slice] if is_placeholder(slice) => self.unchanged.append(&mut self.delete),
            _ => self.create.push(Draft::empty(Arc::default(), "the Service has no endpoints")),
        }
        self.totals.slices += 1;
    }
}

/// Whether a slice is owned by the Service with this UID.
pub(super) fn is_owned(slice: &EndpointSlice, service: &Uid) -> bool {
    let owners = &slice.meta.owner_references;
    owners.iter().any(|owner| owner.uid == *service && owner.kind == "Service" && owner.api_version == "v1")
}

/// The desired endpoints that a slice already has.
struct Kept {
    endpoints: Vec<Endpoint>,
    removed: usize,
    is_changed: bool,
}

impl Kept {
    /// Removes the slice's endpoints from the unplaced ones, so that no other slice keeps them as well.
    fn of(slice: &EndpointSlice, unplaced: &mut BTreeMap<EndpointIdentity, Endpoint>) -> Self {
        let mut endpoints = Vec::with_capacity(slice.endpoints.len());
        let mut differs = false;
        for current in &slice.endpoints {
            if let Some(desired) = unplaced.remove(&EndpointIdentity::of(current)) {
                differs |= !is_same(&desired, current);
                endpoints.push(desired);
            }
        }
        let removed = slice.endpoints.len() - endpoints.len();
        Self { endpoints, removed, is_changed: differs || removed > 0 }
    }
}

/// Fills slices that change anyway, the fullest first.
fn fill_fullest_first(
    drafts: &mut [Draft],
    unplaced: &mut BTreeMap<EndpointIdentity, Endpoint>,
    max_endpoints_per_slice: usize,
) {
    let mut order: Vec<_> = (0..drafts.len()).collect();
    order.sort_by_key(|at| Reverse(drafts[*at].endpoints.len()));
    for at in order {
        fill(&mut drafts[at], unplaced, max_endpoints_per_slice);
    }
}

fn fill(
    draft: &mut Draft,
    unplaced: &mut BTreeMap<EndpointIdentity, Endpoint>,
    max_endpoints_per_slice: usize,
) {
    while draft.endpoints.len() < max_endpoints_per_slice.max(1)
        && let Some((_, endpoint)) = unplaced.pop_first()
    {
        draft.endpoints.push(endpoint);
    }
}

/// The slice that is closest to full after it has taken all unplaced endpoints.
fn tightest_fit(
    slices: &[Arc<EndpointSlice>],
    unplaced: usize,
    max_endpoints_per_slice: usize,
) -> Option<usize> {
    if unplaced >= max_endpoints_per_slice {
        return None;
    }
    let free = |slice: &EndpointSlice| max_endpoints_per_slice.checked_sub(unplaced + slice.endpoints.len());
    let fitting = slices.iter().enumerate().filter_map(|(at, slice)| Some((free(slice)?, at)));
    fitting.min().map(|(_, at)| at)
}
