//! Counts the devices of each pool that a request asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keleustes_objects::{
    ArcStr, DeviceTaintRule, InternedStr, NO_EXECUTE, NO_SCHEDULE, PoolClaim, PoolDevice, PoolSlice,
    Quantity, ResourcePoolStatusRequest,
};
use keleustes_plan::View;
use serde_json::{Value, json};

use super::{partitions, shareable};

/// The API limits `validationError` to this number of bytes.
const ERROR_BYTES_MAX: usize = 256;

/// The answer about one pool.
pub(super) struct PoolAnswer {
    /// An entry of `status.pools`.
    pub(super) status: Value,
    /// Whether slices of the pool are missing. Then the request is not answered yet.
    pub(super) is_incomplete: bool,
}

impl PoolAnswer {
    pub(super) fn has_validation_error(&self) -> bool {
        !self.status["validationError"].is_null()
    }
}

/// The slices of a pool's highest generation, and what claims use of it.
pub(super) struct Pool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    pub(super) slices: Vec<&'a Arc<PoolSlice>>,
    /// The devices that are allocated to a claim without admin access, also those that no slice lists any more.
    pub(super) in_use: BTreeSet<&'a InternedStr>,
    /// What these claims take from capacities.
    pub(super) consumed: BTreeMap<&'a ArcStr, Quantity>,
}

impl<'a> Pool<'a> {
    /// The devices with their slices.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&'a PoolSlice, &'a PoolDevice)> {
        self.slices.iter().flat_map(|&slice| slice.devices.iter().map(move |device| (&**slice, device)))
    }

    pub(super) fn is_in_use(&self, device: &PoolDevice) -> bool {
        self.in_use.contains(&device.name)
    }
}

/// The pools that a request asks for, sorted by name.
pub(super) fn of_request(
    view: &View<'_>,
    request: &ResourcePoolStatusRequest,
    enable_taint_rules: bool,
) -> Vec<PoolAnswer> {
    let rules: Vec<&Arc<DeviceTaintRule>> =
        if enable_taint_rules { view.all::<DeviceTaintRule>().collect() } else { Vec::new() };
    let pools = gather(view, request);
    pools.values().map(|pool| answer(pool, request, &rules)).collect()
}

fn gather<'a>(view: &View<'a>, request: &'a ResourcePoolStatusRequest) -> BTreeMap<&'a str, Pool<'a>> {
    let mut pools = BTreeMap::<&str, Pool<'_>>::new();
    let is_wanted = |slice: &&Arc<PoolSlice>| {
        slice.driver == request.driver && (request.pool_name.is_empty() || slice.pool == request.pool_name)
    };
    for slice in view.all::<PoolSlice>().filter(is_wanted) {
        let pool = pools.entry(slice.pool.as_str()).or_insert_with(|| Pool {
            driver: request.driver.as_str(),
            name: slice.pool.as_str(),
            slices: Vec::new(),
            in_use: BTreeSet::new(),
            consumed: BTreeMap::new(),
        });
        let highest = pool.slices.first().map_or(i64::MIN, |first| first.pool_generation);
        if slice.pool_generation > highest {
            pool.slices.clear();
        }
        if slice.pool_generation >= highest {
            pool.slices.push(slice);
        }
    }
    for claim in view.all::<PoolClaim>() {
        let results = claim.results.iter();
        for result in results.filter(|result| result.driver == request.driver && !result.admin_access) {
            let Some(pool) = pools.get_mut(result.pool.as_str()) else { continue };
            pool.in_use.insert(&result.device);
            for (capacity, share) in &result.consumed_capacity {
                let sum = pool.consumed.entry(capacity).or_default();
                *sum = sum.plus(*share);
            }
        }
    }
    pools
}

fn answer(
    pool: &Pool<'_>,
    request: &ResourcePoolStatusRequest,
    rules: &[&Arc<DeviceTaintRule>],
) -> PoolAnswer {
    let slices = &pool.slices;
    let (generation, expected) =
        slices.first().map_or((0, 0), |first| (first.pool_generation, first.slice_count));
    let mut status = json!({"driver": pool.driver, "poolName": pool.name, "generation": generation});
    let node = slices.first().map_or("", |first| first.node_name.as_str());
    if !node.is_empty() && slices.iter().all(|slice| slice.node_name == node) {
        status["nodeName"] = json!(node);
    }
    let is_incomplete = i64::try_from(slices.len()).is_ok_and(|observed| observed < expected);
    if is_incomplete {
        let error = format!(
            "PoolIncomplete: pool {}/{} is incomplete: observed {}/{expected} slices at generation {generation}",
            pool.driver,
            pool.name,
            slices.len()
        );
        status["validationError"] = json!(shortened(&error));
        return PoolAnswer { status, is_incomplete };
    }
    let total = pool.devices().count();
    let unavailable = pool.devices().filter(|(slice, device)| is_unavailable(slice, device, rules)).count();
    let allocated = pool.in_use.len();
    status["resourceSliceCount"] = json!(slices.len());
    status["totalDevices"] = json!(total);
    status["allocatedDevices"] = json!(allocated);
    status["unavailableDevices"] = json!(unavailable);
    status["availableDevices"] = json!(total.saturating_sub(allocated).saturating_sub(unavailable));
    add_summaries(&mut status, pool, request);
    PoolAnswer { status, is_incomplete }
}

/// Adds the summaries of partitions and shareable devices. The first error is reported, and no partitions beside it.
fn add_summaries(status: &mut Value, pool: &Pool<'_>, request: &ResourcePoolStatusRequest) {
    let default_attribute = request.default_partition_type_attribute.as_deref();
    let partitions = partitions::summary(pool, default_attribute);
    let shareable = shareable::summary(pool);
    let error = partitions.as_ref().err().or(shareable.as_ref().err()).cloned();
    if let Ok(Some(summary)) = shareable {
        status["shareableSummary"] = summary;
    }
    match (partitions, error) {
        (_, Some(error)) => status["validationError"] = json!(shortened(&error)),
        (Ok(summary), None) if !summary.is_empty() => status["partitionSummary"] = json!(summary),
        _ => {}
    }
}

/// Whether a taint of the device or a rule keeps new claims away. Tolerations do not matter.
fn is_unavailable(slice: &PoolSlice, device: &PoolDevice, rules: &[&Arc<DeviceTaintRule>]) -> bool {
    let excludes = |effect: &InternedStr| *effect == NO_SCHEDULE || *effect == NO_EXECUTE;
    device.taints.iter().any(|taint| excludes(&taint.effect))
        || rules.iter().any(|rule| {
            let selector = rule.device_selector.as_ref();
            excludes(&rule.taint.effect)
                && selector.is_some_and(|selector| selector.selects(&slice.driver, &slice.pool, &device.name))
        })
}

/// An error cut to what the API accepts.
fn shortened(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR_BYTES_MAX)]
}
