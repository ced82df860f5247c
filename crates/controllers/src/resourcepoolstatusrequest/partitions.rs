//! Summarizes the partitions of a pool: devices that draw from shared counters, grouped by an attribute.

use std::collections::BTreeMap;

use keleustes_objects::{ConsumedCounters, InternedStr, PoolDevice, Quantity};
use serde_json::{Value, json};

use super::pools::Pool;
use crate::cronjob::schedule::quote;

/// The API limits the lists of a pool's status to this number of entries.
pub(super) const ENTRIES_MAX: usize = 32;

/// The counters of a pool by set and name.
type Counters<'a> = BTreeMap<&'a InternedStr, BTreeMap<&'a InternedStr, Quantity>>;

/// The devices of one type.
#[derive(Default)]
struct Group<'a> {
    total: u32,
    unused: Vec<&'a PoolDevice>,
    /// What each of its devices takes from counters, as text.
    cost: String,
}

/// The entries of `partitionSummary`, sorted by attribute and type; none if no device has a grouping attribute.
pub(super) fn summary<'a>(pool: &Pool<'a>, default_attribute: Option<&'a str>) -> Result<Vec<Value>, String> {
    // An attribute of the request stands in only if no slice with devices declares one.
    let declares = |attribute: &InternedStr| !attribute.is_empty();
    let is_declared = pool.devices().any(|(slice, _)| declares(&slice.partition_type_attribute));
    let default_attribute = default_attribute.filter(|_| !is_declared).unwrap_or_default();
    if !is_declared && (default_attribute.is_empty() || pool.devices().next().is_none()) {
        return Ok(Vec::new());
    }
    let mut devices = pool.devices().map(|(slice, device)| {
        let declared = slice.partition_type_attribute.as_str();
        (if declared.is_empty() { default_attribute } else { declared }, device)
    });
    let (driver, name) = (pool.driver, pool.name);
    if pool.slices.iter().all(|slice| slice.shared_counters.is_empty()) {
        return Err(format!(
            "PartitionTypeMissing: pool {driver}/{name} declares partitionTypeAttribute but publishes no sharedCounters"
        ));
    }
    let mut groups = BTreeMap::<(&str, &str), Group<'_>>::new();
    devices.try_for_each(|(attribute, device)| add_to_group(&mut groups, pool, attribute, device))?;
    if groups.len() > ENTRIES_MAX {
        return Err(format!(
            "PartitionSummaryOverCap: pool {driver}/{name} has {} partition types, exceeding the maximum of {ENTRIES_MAX}",
            groups.len()
        ));
    }
    let left = counters_left(pool);
    let entry = |(&(attribute, r#type), group): (&(&str, &str), &Group<'_>)| {
        let allocatable = allocatable(group, left.clone());
        json!({"attribute": attribute, "type": r#type, "total": group.total, "allocatable": allocatable})
    };
    Ok(groups.iter().map(entry).collect())
}

/// Adds a device to the group of its type. Devices that draw from no counter are no partitions.
fn add_to_group<'a>(
    groups: &mut BTreeMap<(&'a str, &'a str), Group<'a>>,
    pool: &Pool<'a>,
    attribute: &'a str,
    device: &'a PoolDevice,
) -> Result<(), String> {
    if attribute.is_empty() || device.consumes_counters.is_empty() {
        return Ok(());
    }
    let (driver, name) = (pool.driver, pool.name);
    let Some(r#type) = partition_type(driver, device, attribute) else {
        return Err(format!(
            "PartitionTypeMissing: device {} in pool {driver}/{name} does not carry partition type attribute {}",
            quote(&device.name),
            quote(attribute)
        ));
    };
    let group = groups.entry((attribute, r#type)).or_default();
    let cost = cost(&device.consumes_counters);
    if group.total == 0 {
        group.cost = cost;
    } else if group.cost != cost {
        return Err(format!(
            "PartitionCostMismatch: devices of partition type {} in pool {driver}/{name} consume different counters",
            quote(r#type)
        ));
    }
    group.total += 1;
    if !pool.is_in_use(device) {
        group.unused.push(device);
    }
    Ok(())
}

/// The value of a grouping attribute, if it is a string. The domain of a bare name is the driver.
fn partition_type<'a>(driver: &str, device: &'a PoolDevice, attribute: &str) -> Option<&'a str> {
    let named = |name: &str| device.attributes.iter().find(|(known, _)| known.as_str() == name);
    let bare = || named(attribute.strip_prefix(driver)?.strip_prefix('/')?);
    named(attribute).or_else(bare).and_then(|(_, found)| found.string.as_deref())
}

/// The shared counters of a pool without what devices in use take; may be negative.
fn counters_left<'a>(pool: &Pool<'a>) -> Counters<'a> {
    let mut left = Counters::new();
    for set in pool.slices.iter().flat_map(|slice| &slice.shared_counters) {
        let counters = set.counters.iter().map(|(name, amount)| (name, amount.value));
        left.entry(&set.name).or_default().extend(counters);
    }
    for (_, device) in pool.devices().filter(|(_, device)| pool.is_in_use(device)) {
        deduct(&mut left, &device.consumes_counters);
    }
    left
}

/// How many unused devices of a group fit into the counters, one after another.
fn allocatable(group: &Group<'_>, mut left: Counters<'_>) -> u32 {
    let mut fitting = 0;
    for device in &group.unused {
        if fits(&left, &device.consumes_counters) {
            deduct(&mut left, &device.consumes_counters);
            fitting += 1;
        }
    }
    fitting
}

fn fits(left: &Counters<'_>, cost: &[ConsumedCounters]) -> bool {
    cost.iter().all(|part| {
        let set = left.get(&part.counter_set);
        part.counters.iter().all(|(name, amount)| {
            set.and_then(|set| set.get(name)).is_some_and(|available| *available >= amount.value)
        })
    })
}

fn deduct(left: &mut Counters<'_>, cost: &[ConsumedCounters]) {
    for part in cost {
        let Some(set) = left.get_mut(&part.counter_set) else { continue };
        for (name, amount) in &part.counters {
            if let Some(available) = set.get_mut(name) {
                *available = available.minus(amount.value);
            }
        }
    }
}

/// A cost as text, in which amounts are equal if their canonical texts are.
fn cost(parts: &[ConsumedCounters]) -> String {
    let amounts = parts.iter().flat_map(|part| {
        let counters = part.counters.iter();
        counters.map(move |(name, amount)| format!("{}/{name}={}", part.counter_set, amount.value))
    });
    let mut amounts: Vec<String> = amounts.collect();
    amounts.sort();
    amounts.join(",")
}
