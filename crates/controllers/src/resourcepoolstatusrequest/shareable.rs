//! Summarizes the devices of a pool that several claims may share.

use std::collections::BTreeMap;

use keleustes_objects::{InternedStr, Quantity};
use serde_json::{Value, json};

use super::partitions::ENTRIES_MAX;
use super::pools::Pool;

/// `shareableSummary`, if the pool has shareable devices.
pub(super) fn summary(pool: &Pool<'_>) -> Result<Option<Value>, String> {
    let (mut unused, mut shared) = (0, 0);
    let mut totals = BTreeMap::<&InternedStr, Quantity>::new();
    for (_, device) in pool.devices().filter(|(_, device)| device.allow_multiple_allocations) {
        *(if pool.is_in_use(device) { &mut shared } else { &mut unused }) += 1;
        for (name, amount) in &device.capacity {
            let total = totals.entry(name).or_default();
            *total = total.plus(amount.value);
        }
    }
    if unused + shared == 0 {
        return Ok(None);
    }
    if totals.len() > ENTRIES_MAX {
        return Err(format!(
            "ShareableSummaryOverCap: pool {}/{} has {} shareable capacity keys, exceeding the maximum of {ENTRIES_MAX}",
            pool.driver,
            pool.name,
            totals.len()
        ));
    }
    let mut summary = json!({"fullyAvailableDevices": unused, "partiallyAvailableDevices": shared});
    let capacity: Vec<Value> = totals.iter().map(|(name, total)| capacity(pool, name, *total)).collect();
    if !capacity.is_empty() {
        summary["capacity"] = json!(capacity);
    }
    Ok(Some(summary))
}

fn capacity(pool: &Pool<'_>, name: &str, total: Quantity) -> Value {
    let consumed = pool.consumed.iter().find(|(known, _)| ***known == *name);
    let consumed = consumed.map_or_else(Quantity::default, |(_, consumed)| *consumed);
    let available = total.minus(consumed);
    let available = if available.is_negative() { Quantity::default() } else { available };
    json!({
        "name": name,
        "total": total.to_string(),
        "consumed": consumed.to_string(),
        "available": available.to_string(),
    })
}
