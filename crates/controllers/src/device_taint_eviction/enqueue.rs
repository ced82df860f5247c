//! Which pods and rules a change enqueues.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::{DeviceTaintRule, InternedStr, NO_EXECUTE, Pod, ResourceClaim, ResourceSlice, Taint};
use keleustes_plan::{Change, Effects, Memory, View};

use super::indexes::{CLAIMS_BY_DEVICE, SLICES_BY_POOL, claims_value, device_value, pool_value};
use super::memory::{EvictionMemory, STATUS_PERIOD};
use super::pods::pods_of;
use super::pools::pool_of;
use super::taints::selects;
use super::{DeviceTaintEvictionOptions, EvictionItem};

/// Enqueues items on changes.
#[derive(Clone)]
pub(super) struct Enqueuer {
    pub(super) options: DeviceTaintEvictionOptions,
    pub(super) memory: Memory<EvictionMemory>,
}

impl Enqueuer {
    /// Enqueues a bound pod that appears, is bound, or gets other claims.
    pub(super) fn pod_changed(&self, change: &Change<Pod>, queue: &mut Effects) {
        let pod = change.latest();
        let replaced = change.old().filter(|old| change.is_deletion() || old.meta.uid != pod.meta.uid);
        if let Some(gone) = replaced {
            let rules = self.memory.with(|memory| memory.forget(&gone.meta.key, &gone.meta.uid));
            for rule in rules.into_iter().flatten() {
                queue.add_after(EvictionItem::Rule(rule.key.clone(), rule.uid.clone()), STATUS_PERIOD);
            }
        }
        let fields = |pod: &Arc<Pod>| {
            (pod.meta.uid.clone(), pod.node_name.clone(), pod.resource_claim_statuses().to_vec())
        };
        let is_relevant = !change.is_deletion() && change.old().map(fields) != change.new().map(fields);
        if is_relevant && !pod.node_name.is_empty() && !pod.spec.resource_claims().is_empty() {
            queue.add(EvictionItem::Pod(pod.meta.key.clone(), pod.meta.uid.clone()));
        }
    }

    /// Enqueues the pods that a claim is or was reserved for, if it is or was allocated.
    pub(super) fn claim_changed(&self, change: &Change<ResourceClaim>, view: &View<'_>, queue: &mut Effects) {
        for claim in change.old_and_new() {
            self.enqueue_pods_of(claim, view, queue);
        }
    }

    fn enqueue_pods_of(&self, claim: &ResourceClaim, view: &View<'_>, queue: &mut Effects) {
        for pod in pods_of(view, claim, &self.options) {
            if !pod.node_name.is_empty() {
                queue.add(EvictionItem::Pod(pod.meta.key.clone(), pod.meta.uid.clone()));
            }
        }
    }

    /// Enqueues the pods that use a device whose `NoExecute` taints change.
    pub(super) fn slice_changed(&self, change: &Change<ResourceSlice>, view: &View<'_>, queue: &mut Effects) {
        let generation = |slice: &Arc<ResourceSlice>| (pool_of(slice), slice.pool_generation);
        let (old, new) = (tainted(change.old()), tainted(change.new()));
        let mut devices: BTreeSet<String> = BTreeSet::new();
        if change.old().map(generation) == change.new().map(generation) {
            devices.extend(old.symmetric_difference(&new).map(|(device, _)| device.clone()));
        } else {
            devices.extend(old.into_iter().chain(new).map(|(device, _)| device));
        }
        // Another generation of a pool is the current one now, which concerns all its tainted devices.
        for (driver, pool) in self.memory.with(|memory| memory.pools.observe(change, view)) {
            for slice in view.store::<ResourceSlice>().by_index(&SLICES_BY_POOL, &pool_value(&driver, &pool))
            {
                devices.extend(tainted(Some(slice)).into_iter().map(|(device, _)| device));
            }
        }
        for device in &devices {
            for claim in view.store::<ResourceClaim>().by_index(&CLAIMS_BY_DEVICE, device) {
                self.enqueue_pods_of(claim, view, queue);
            }
        }
    }

    /// Enqueues a rule whose spec changes, before the pods that use a device which it selects or selected.
    pub(super) fn rule_changed(
        &self,
        change: &Change<DeviceTaintRule>,
        view: &View<'_>,
        queue: &mut Effects,
    ) {
        let spec = |rule: &Arc<DeviceTaintRule>| {
            (rule.meta.uid.clone(), rule.device_selector.clone(), rule.taint.clone())
        };
        if change.old().map(spec) == change.new().map(spec) {
            return;
        }
        let gone = change.old().filter(|old| change.new().is_none_or(|new| new.meta.uid != old.meta.uid));
        if let Some(gone) = gone {
            self.memory.with(|memory| memory.forget_rule(&gone.meta.uid));
        }
        if let Some(rule) = change.new() {
            self.memory.with(|memory| memory.hurry_status(&rule.meta.uid));
            queue.add(EvictionItem::Rule(rule.meta.key.clone(), rule.meta.uid.clone()));
        }
        for rule in change.old_and_new().filter(|rule| rule.taint.effect == NO_EXECUTE) {
            for claim in claims_of(view, rule) {
                self.enqueue_pods_of(claim, view, queue);
            }
        }
    }
}

/// The allocated claims with a device that a rule selects. Only a rule that selects all devices needs a pass over all claims.
pub(super) fn claims_of<'a>(view: &View<'a>, rule: &DeviceTaintRule) -> Vec<&'a Arc<ResourceClaim>> {
    let Some(selector) = &rule.device_selector else { return Vec::new() };
    let has_selected = |claim: &&'a Arc<ResourceClaim>| {
        claim.allocated_devices.iter().flatten().any(|device| selects(rule, device))
    };
    match claims_value(selector) {
        Some(value) => {
            view.store::<ResourceClaim>().by_index(&CLAIMS_BY_DEVICE, &value).filter(has_selected).collect()
        }
        None => view.all::<ResourceClaim>().filter(has_selected).collect(),
    }
}

/// The `NoExecute` taints of a slice's devices, by the index value of the device.
fn tainted(slice: Option<&Arc<ResourceSlice>>) -> BTreeSet<(String, TaintFields)> {
    let mut tainted = BTreeSet::new();
    if let Some(slice) = slice {
        for device in &slice.devices {
            for taint in device.taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
                tainted.insert((device_value(&slice.driver, &slice.pool, &device.name), fields(taint)));
            }
        }
    }
    tainted
}

type TaintFields = (InternedStr, InternedStr, Option<i64>);

fn fields(taint: &Taint) -> TaintFields {
    (taint.key.clone(), taint.value.clone(), taint.time_added.map(keleustes_objects::Time::unix_seconds))
}
