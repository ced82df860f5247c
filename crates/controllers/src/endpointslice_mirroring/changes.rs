//! Compares the desired endpoints with the mirrored slices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{
    Annotations, Endpoint, EndpointPort, EndpointSlice, Endpoints, FullMeta as _, Labels,
};

use super::MANAGED_BY;
use super::desired::{Desired, PortGroup};
use crate::service_endpoints::{
    AddressType, EndpointIdentity, LAST_CHANGE_TRIGGER_TIME, PortSet, Totals, is_same, slices,
};

/// The annotation in which `kubectl apply` keeps the applied object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What mirrored slices have besides endpoints: the metadata of their Endpoints.
pub(super) struct MirroredMeta {
    pub(super) labels: Labels,
    pub(super) annotations: Annotations,
}

impl MirroredMeta {
    pub(super) fn of(endpoints: &Endpoints) -> Self {
        let labels = endpoints.meta.labels.with(slices::SERVICE_NAME, &*endpoints.meta.key.name);
        let is_copied = |key: &str| ![LAST_CHANGE_TRIGGER_TIME, LAST_APPLIED].contains(&key);
        let annotations = endpoints.annotations().iter().filter(|(key, _)| is_copied(key));
        Self {
            labels: labels.with(slices::MANAGED_BY, MANAGED_BY),
            annotations: annotations.cloned().collect(),
        }
    }
}

/// The new content of a slice.
pub(super) struct Draft {
    pub(super) address_type: AddressType,
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Vec<Endpoint>,
    /// Whether it was meant for a new slice, even if it reuses another one.
    pub(super) is_new: bool,
}

/// The changes to the mirrored slices of one Endpoints object.
#[derive(Default)]
pub(super) struct SliceChanges {
    pub(super) create: Vec<Draft>,
    /// Slices that get a new content.
    pub(super) update: Vec<(Arc<EndpointSlice>, Draft)>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    /// The numbers of endpoints that are added, updated and removed.
    pub(super) added: usize,
    pub(super) updated: usize,
    pub(super) removed: usize,
    /// The totals after the changes.
    pub(super) totals: Totals,
}

impl SliceChanges {
    pub(super) fn of(
        endpoints: &Endpoints,
        meta: &MirroredMeta,
        existing: &[Arc<EndpointSlice>],
        desired: Desired,
        max_endpoints_per_subset: usize,
    ) -> Self {
        let mut changes = Self::default();
        let mut by_group: BTreeMap<(&str, PortSet), Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            by_group.entry((&slice.address_type, PortSet::of(&slice.ports))).or_default().push(slice);
        }
        for ((address_type, ports), group) in desired.groups {
            let existing = by_group.remove(&(address_type.as_str(), ports)).unwrap_or_default();
            let number_of_endpoints = group.endpoints.len();
            let (created, deleted) = (changes.create.len(), changes.delete.len());
            changes.add_group(endpoints, meta, &existing, (address_type, group), max_endpoints_per_subset);
            changes.totals.endpoints += number_of_endpoints;
            changes.totals.slices +=
                existing.len() + changes.create.len() - created - (changes.delete.len() - deleted);
            changes.totals.desired_slices += number_of_endpoints.div_ceil(max_endpoints_per_subset.max(1));
        }
        changes.delete.extend(by_group.into_values().flatten().cloned());
        changes.reuse();
        changes
    }

    fn add_group(
        &mut self,
        endpoints: &Endpoints,
        meta: &MirroredMeta,
        existing: &[&Arc<EndpointSlice>],
        (address_type, group): (AddressType, PortGroup),
        max_endpoints_per_subset: usize,
    ) {
        if group.endpoints.is_empty() {
            self.removed += existing.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
            return self.delete.extend(existing.iter().map(|slice| Arc::clone(slice)));
        }
        let kept = existing.first();
        self.delete.extend(existing.iter().skip(1).map(|slice| Arc::clone(slice)));
        let differs = kept.map(|slice| self.count_differences(slice, &group));
        if let (Some(slice), Some(false)) = (kept, differs) {
            let is_same_meta = slice.meta.labels == meta.labels && *slice.annotations() == meta.annotations;
            if is_same_meta && !has_former_owner(slice, endpoints) {
                return;
            }
        }
        let PortGroup { ports, endpoints: desired } = group;
        if kept.is_none() {
            self.added += desired.len();
        }
        let endpoints = desired.into_values().take(max_endpoints_per_subset.max(1)).collect();
        let draft = Draft { address_type, ports, endpoints, is_new: kept.is_none() };
        match kept {
            Some(slice) => self.update.push((Arc::clone(slice), draft)),
            None => self.create.push(draft),
        }
    }

    /// Counts how the endpoints of a slice differ from the desired ones. Returns whether they do.
    fn count_differences(&mut self, slice: &EndpointSlice, group: &PortGroup) -> bool {
        let (mut updated, mut removed, mut found) = (0, 0, BTreeSet::new());
        for current in &slice.endpoints {
            let identity = EndpointIdentity::of(current);
            match group.endpoints.get(&identity) {
                // A second occurrence of the same endpoint is one too many.
                Some(_) if found.contains(&identity) => removed += 1,
                Some(desired) => {
                    updated += usize::from(!is_same(desired, current));
                    found.insert(identity);
                }
                None => removed += 1,
            }
        }
        let added = group.endpoints.len() - found.len();
        self.added += added;
        self.updated += updated;
        self.removed += removed;
        added + updated + removed > 0
    }

    /// Reuses slices to delete for slices to create of the same address type: one write instead of two, and the
    /// endpoints are never absent in between.
    fn reuse(&mut self) {
        for slice in std::mem::take(&mut self.delete) {
            let at = self.create.iter().position(|draft| slice.address_type == draft.address_type.as_str());
            match at {
                Some(at) => self.update.push((slice, self.create.remove(at))),
                None => self.delete.push(slice),
            }
        }
    }
}

/// Whether a slice is owned by former Endpoints of the same name; the garbage collector would delete it.
fn has_former_owner(slice: &EndpointSlice, endpoints: &Endpoints) -> bool {
    let (name, uid) = (&endpoints.meta.key.name, &endpoints.meta.uid);
    let mut owners = slice.meta.owner_references.iter();
    owners.any(|owner| owner.kind == "Endpoints" && owner.name == *name && owner.uid != *uid)
}
