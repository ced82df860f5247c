//! Fits wanted endpoints into slices, so that as few slices as possible change.
//!
//! Every slice that changes is sent whole to every node of the cluster. So a slice is touched only if
//! something in it changed, and new endpoints go first where something changed anyway. Slices are never
//! merged or levelled for the sake of order.
//!
//! Parity: staging/src/k8s.io/endpointslice/reconciler.go.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{Endpoint, EndpointPort, EndpointSlice, ResourceVersion, Service, TargetRef, Uid};

use super::endpoints::{AddressType, DesiredEndpoints, EndpointIdentity, PortGroup, PortSet};
use super::labels;
use super::memory::Totals;

/// A slice as it is to be.
pub(super) struct Draft {
    /// The slice that it replaces; none if it is a new one.
    pub(super) origin: Option<Arc<EndpointSlice>>,
    pub(super) ports: Arc<[EndpointPort]>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) because: &'static str,
}

/// What is to become of the slices of one Service in one family.
#[derive(Default)]
pub(super) struct SliceChanges {
    pub(super) create: Vec<Draft>,
    pub(super) update: Vec<Draft>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    pub(super) unchanged: Vec<Arc<EndpointSlice>>,
    /// How many endpoints no slice had before.
    pub(super) added: usize,
    /// How many endpoints slices had that are not wanted any more.
    pub(super) removed: usize,
    /// What there will be in the end.
    pub(super) totals: Totals,
}

impl Draft {
    /// A slice that is there, to be changed.
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
    /// Fits what is wanted into the slices of a family.
    pub(super) fn fit(
        service: &Service,
        family: AddressType,
        slices: &[Arc<EndpointSlice>],
        wanted: DesiredEndpoints,
        max_endpoints_per_slice: usize,
    ) -> Self {
        let mut lists = Self::default();
        let mut by_ports: BTreeMap<PortSet, Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in slices {
            if is_owned(slice, &service.meta.uid) {
                by_ports.entry(PortSet::of(&slice.ports)).or_default().push(slice);
            } else {
                lists.delete.push(slice.clone());
            }
        }
        for (ports, group) in wanted.groups {
            let there = by_ports.remove(&ports).unwrap_or_default();
            lists.fit_group(service, &there, group, max_endpoints_per_slice);
        }
        lists.delete.extend(by_ports.into_values().flatten().cloned());
        lists.keep_a_placeholder(service, family, slices.len());
        lists.totals.desired_slices = lists.totals.desired_slices.max(1);
        lists
    }

    fn fit_group(
        &mut self,
        service: &Service,
        there: &[&Arc<EndpointSlice>],
        group: PortGroup,
        max_endpoints_per_slice: usize,
    ) {
        let PortGroup { ports, endpoints: mut left } = group;
        let wanted = left.len();
        let (mut update, mut unchanged, mut create) = (Vec::new(), Vec::new(), Vec::new());
        let mut deleted = 0;
        for slice in there {
            let kept = Kept::of(slice, &mut left);
            self.removed += kept.removed;
            if kept.is_changed && kept.endpoints.is_empty() {
                self.delete.push(Arc::clone(slice));
                deleted += 1;
            } else if kept.is_changed {
                update.push(Draft::with(slice, kept.endpoints, "its endpoints changed"));
            } else if labels::have_changed(slice, service) {
                update.push(Draft::of(slice, "the labels of its Service changed"));
            } else {
                unchanged.push(Arc::clone(slice));
            }
        }
        self.added += left.len();
        fill_up(&mut update, &mut left, max_endpoints_per_slice);
        while !left.is_empty() {
            let mut draft = match tightest_fit(&unchanged, left.len(), max_endpoints_per_slice) {
                Some(at) => Draft::of(&unchanged.remove(at), "it takes up new endpoints"),
                None => Draft::empty(ports.clone(), "there are new endpoints"),
            };
            fill(&mut draft, &mut left, max_endpoints_per_slice);
            if draft.origin.is_some() { &mut update } else { &mut create }.push(draft);
        }
        self.totals.endpoints += wanted;
        self.totals.slices += there.len() + create.len() - deleted;
        self.totals.desired_slices += wanted.div_ceil(max_endpoints_per_slice.max(1));
        self.create.append(&mut create);
        self.update.append(&mut update);
        self.unchanged.append(&mut unchanged);
    }

    /// Where no slice would be left, an empty one says that there are no endpoints, as opposed to that
    /// nobody has looked yet.
    fn keep_a_placeholder(&mut self, service: &Service, family: AddressType, there: usize) {
        if there != self.delete.len() || !self.create.is_empty() {
            return;
        }
        let is_placeholder = |slice: &EndpointSlice| {
            let is_bare = slice.endpoints.is_empty() && slice.ports.is_empty();
            is_bare && slice.address_type == family.as_str() && slice.meta.labels == labels::wanted(service)
        };
        match &self.delete[..] {
            [slice] if is_placeholder(slice) => self.unchanged.append(&mut self.delete),
            _ => self.create.push(Draft::empty(Arc::default(), "there are no endpoints")),
        }
        self.totals.slices += 1;
    }
}

/// Whether a slice belongs to this life of a Service.
pub(super) fn is_owned(slice: &EndpointSlice, service: &Uid) -> bool {
    let owners = &slice.meta.owner_references;
    owners.iter().any(|owner| owner.uid == *service && owner.kind == "Service" && owner.api_version == "v1")
}

/// What a slice has of what is wanted.
struct Kept {
    endpoints: Vec<Endpoint>,
    removed: usize,
    is_changed: bool,
}

impl Kept {
    /// Takes what a slice has from what is left to be placed, so that no other slice has it, too.
    fn of(slice: &EndpointSlice, left: &mut BTreeMap<EndpointIdentity, Endpoint>) -> Self {
        let mut endpoints = Vec::with_capacity(slice.endpoints.len());
        let mut differs = false;
        for there in &slice.endpoints {
            if let Some(wanted) = left.remove(&EndpointIdentity::of(there)) {
                differs |= !is_same(&wanted, there);
                endpoints.push(wanted);
            }
        }
        let removed = slice.endpoints.len() - endpoints.len();
        Self { endpoints, removed, is_changed: differs || removed > 0 }
    }
}

/// Whether two endpoints of one identity are equal. Who should prefer them is seen to later.
fn is_same(wanted: &Endpoint, there: &Endpoint) -> bool {
    wanted.node_name == there.node_name
        && wanted.zone == there.zone
        && wanted.conditions == there.conditions
        && is_same_target(wanted.target_ref.as_ref(), there.target_ref.as_ref())
}

/// Whether two references mean the same life of an object, in whatever state.
fn is_same_target(wanted: Option<&TargetRef>, there: Option<&TargetRef>) -> bool {
    let parts = |target: &TargetRef| {
        let mut rest = target.rest.as_deref().cloned().unwrap_or_default();
        rest.resource_version = ResourceVersion::default();
        (target.kind.clone(), target.namespace.clone(), target.name.clone(), target.uid.clone(), rest)
    };
    wanted.map(parts) == there.map(parts)
}

/// Fills slices that change anyway, the fullest first.
fn fill_up(
    drafts: &mut [Draft],
    left: &mut BTreeMap<EndpointIdentity, Endpoint>,
    max_endpoints_per_slice: usize,
) {
    let mut order: Vec<_> = (0..drafts.len()).collect();
    order.sort_by_key(|at| Reverse(drafts[*at].endpoints.len()));
    for at in order {
        fill(&mut drafts[at], left, max_endpoints_per_slice);
    }
}

fn fill(draft: &mut Draft, left: &mut BTreeMap<EndpointIdentity, Endpoint>, max_endpoints_per_slice: usize) {
    while draft.endpoints.len() < max_endpoints_per_slice.max(1)
        && let Some((_, endpoint)) = left.pop_first()
    {
        draft.endpoints.push(endpoint);
    }
}

/// The slice that is closest to full once it has taken all that is left.
fn tightest_fit(slices: &[Arc<EndpointSlice>], left: usize, max_endpoints_per_slice: usize) -> Option<usize> {
    if left >= max_endpoints_per_slice {
        return None;
    }
    let room = |slice: &EndpointSlice| max_endpoints_per_slice.checked_sub(left + slice.endpoints.len());
    let fitting = slices.iter().enumerate().filter_map(|(at, slice)| Some((room(slice)?, at)));
    fitting.min().map(|(_, at)| at)
}
