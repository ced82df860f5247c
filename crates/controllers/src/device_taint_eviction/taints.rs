//! When the devices of a claim require that its pods be evicted, and why.

use std::sync::Arc;

use keleustes_objects::{
    AllocatedDevice, DeviceTaintRule, InternedStr, Key, NO_EXECUTE, ResourceClaim, ResourceSlice, Taint,
    Time, Toleration, Uid,
};
use keleustes_plan::{Memory, Store, View};

use super::indexes::{
    RULES_BY_SELECTOR, SLICES_BY_POOL, SLICES_BY_TAINTED_DEVICE, device_value, pool_value, values_selecting,
};
use super::memory::EvictionMemory;

/// A rule that requires an eviction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleRef {
    /// Its key.
    pub(super) key: Key,
    /// Its UID.
    pub(super) uid: Uid,
}

/// An eviction that taints require: when, and because of which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Eviction {
    /// The earliest time that a taint sets.
    pub(super) due: Time,
    /// All rules that contribute, also those that are due later; sorted by name.
    pub(super) rules: std::collections::BTreeSet<RuleRef>,
}

impl Eviction {
    /// Joins two evictions of the same pod: the earlier time and all rules.
    pub(super) fn join(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(mut one), Some(other)) => {
                one.due = one.due.min(other.due);
                one.rules.extend(other.rules);
                Some(one)
            }
            (one, other) => one.or(other),
        }
    }
}

/// The rules that apply.
pub(super) enum Rules<'a> {
    /// Those with the effect `NoExecute`; none if rules are disabled.
    NoExecute(Option<&'a Store<DeviceTaintRule>>),
    /// This one, whatever its effect is, as in a dry run.
    Only(&'a Arc<DeviceTaintRule>),
}

impl<'a> Rules<'a> {
    /// The rules that select a device. A device has eight selectors, each of which is looked up.
    pub(super) fn selecting(&self, device: &AllocatedDevice) -> Vec<&'a Arc<DeviceTaintRule>> {
        match self {
            Self::NoExecute(Some(rules)) if !rules.is_empty() => {
                values_selecting(&device.driver, &device.pool, &device.device)
                    .flat_map(|value| rules.by_index(&RULES_BY_SELECTOR, &value))
                    .collect()
            }
            Self::NoExecute(_) => Vec::new(),
            Self::Only(rule) => [*rule].into_iter().filter(|rule| selects(rule, device)).collect(),
        }
    }
}

/// All rules with the effect `NoExecute`; none if rules are disabled.
pub(super) fn no_execute_rules<'a>(view: &View<'a>) -> Rules<'a> {
    Rules::NoExecute(view.store_if_synced())
}

/// The eviction that the taints of a claim's devices require; `None` if all are tolerated.
pub(super) fn eviction_for(
    view: &View<'_>,
    memory: &Memory<EvictionMemory>,
    claim: &ResourceClaim,
    rules: &Rules<'_>,
) -> Option<Eviction> {
    claim.allocated_devices.iter().flatten().fold(None, |eviction, device| {
        let by_rules = rules.selecting(device).into_iter().map(|rule| {
            let due = due(&rule.taint, &device.tolerations)?;
            let rule = RuleRef { key: rule.meta.key.clone(), uid: rule.meta.uid.clone() };
            Some(Eviction { due, rules: [rule].into() })
        });
        let by_slices = slice_taints(view, memory, device)
            .into_iter()
            .map(|taint| Some(Eviction { due: due(taint, &device.tolerations)?, rules: [].into() }));
        by_rules.chain(by_slices).fold(eviction, Eviction::join)
    })
}

/// Whether a rule selects an allocated device, be it published or not.
pub(super) fn selects(rule: &DeviceTaintRule, device: &AllocatedDevice) -> bool {
    let selector = rule.device_selector.as_ref();
    selector.is_some_and(|selector| selector.selects(&device.driver, &device.pool, &device.device))
}

/// The `NoExecute` taints that current slices publish for a device.
fn slice_taints<'a>(
    view: &View<'a>,
    memory: &Memory<EvictionMemory>,
    device: &AllocatedDevice,
) -> Vec<&'a Taint> {
    let value = device_value(&device.driver, &device.pool, &device.device);
    let slices: Vec<_> = view.store::<ResourceSlice>().by_index(&SLICES_BY_TAINTED_DEVICE, &value).collect();
    let Some(newest) = slices.iter().map(|slice| slice.pool_generation).max() else { return Vec::new() };
    let pool = (device.driver.clone(), device.pool.clone());
    let remembered = memory.with(|memory| memory.pools.current(&pool));
    // The events of slices may be a moment behind the cache. When they arrive, the pod is enqueued again.
    let current =
        remembered.or_else(|| current_generation(view, &pool.0, &pool.1)).map(|current| current.max(newest));
    slices
        .into_iter()
        .filter(|slice| Some(slice.pool_generation) == current)
        .flat_map(|slice| slice.devices.iter().filter(|published| published.name == device.device))
        .flat_map(|published| published.taints.iter().filter(|taint| taint.effect == NO_EXECUTE))
        .collect()
}

/// The highest generation of a pool, by a pass over its slices; slices of other generations do not count. Whether all slices
/// of the generation are there does not matter.
pub(super) fn current_generation(view: &View<'_>, driver: &InternedStr, pool: &InternedStr) -> Option<i64> {
    let slices = view.store::<ResourceSlice>().by_index(&SLICES_BY_POOL, &pool_value(driver, pool));
    slices.map(|slice| slice.pool_generation).max()
}

/// When a taint evicts; `None` if it is tolerated without limit, or has no start.
fn due(taint: &Taint, tolerations: &[Toleration]) -> Option<Time> {
    let added = taint.time_added?;
    let mut seconds: Option<i64> = None;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let tolerated = toleration.toleration_seconds?.max(0);
        seconds = Some(seconds.map_or(tolerated, |smallest| smallest.min(tolerated)));
    }
    Some(Time::from_unix_seconds(added.unix_seconds().saturating_add(seconds.unwrap_or(0))))
}

/// Whether a toleration is about a `NoExecute` taint. Unlike for scheduling, one without an effect is not.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let matches_value = match &*toleration.operator {
        "Exists" => true,
        "" | "Equal" => toleration.value == taint.value,
        _ => false,
    };
    let matches_key = toleration.key.is_empty() || toleration.key == taint.key;
    toleration.effect == NO_EXECUTE && matches_key && matches_value
}
