//! ResourceSlices and ResourceClaims with what a pool's status counts: attributes, capacities and counters.
//!
//! Only the controller of ResourcePoolStatusRequests reads these projections, and only with its feature gate. The
//! controllers that always run keep the smaller [`crate::ResourceSlice`] and [`crate::ResourceClaim`].

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{
    ArcStr, InternedStr, Kind, Object, ObjectMeta, Projection, Quantity, Resource, ResourceClaim,
    ResourceSlice, Taint, WireMeta,
};

/// A ResourceSlice with its devices and counters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WireSlice")]
pub struct PoolSlice {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.driver`.
    pub driver: InternedStr,
    /// `spec.pool.name`.
    pub pool: InternedStr,
    /// `spec.pool.generation`.
    pub pool_generation: i64,
    /// `spec.pool.resourceSliceCount`: how many slices the pool has in this generation.
    pub slice_count: i64,
    /// `spec.nodeName`; empty if the devices are not local to one node.
    pub node_name: InternedStr,
    /// `spec.partitionTypeAttribute`; empty if the slice declares none.
    pub partition_type_attribute: InternedStr,
    /// `spec.sharedCounters`.
    pub shared_counters: Box<[CounterSet]>,
    /// `spec.devices`.
    pub devices: Box<[PoolDevice]>,
}

/// A set of counters that devices share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CounterSet {
    /// Its name in the pool.
    pub name: InternedStr,
    /// The counters by name.
    #[serde(deserialize_with = "null_is_default")]
    pub counters: BTreeMap<InternedStr, Amount>,
}

/// What a device takes from one set of counters.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumedCounters {
    /// The name of the set.
    pub counter_set: InternedStr,
    /// The amounts by counter.
    #[serde(deserialize_with = "null_is_default")]
    pub counters: BTreeMap<InternedStr, Amount>,
}

/// A counter or a capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Amount {
    /// The quantity.
    #[serde(deserialize_with = "null_is_default")]
    pub value: Quantity,
}

/// A device with what it offers and takes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolDevice {
    /// Its name in the pool.
    pub name: InternedStr,
    /// Its attributes by qualified or bare name.
    #[serde(deserialize_with = "null_is_default")]
    pub attributes: BTreeMap<InternedStr, DeviceAttribute>,
    /// Its capacities by qualified or bare name.
    #[serde(deserialize_with = "null_is_default")]
    pub capacity: BTreeMap<InternedStr, Amount>,
    /// What it takes from shared counters.
    #[serde(deserialize_with = "null_is_empty")]
    pub consumes_counters: Box<[ConsumedCounters]>,
    /// Its taints.
    #[serde(deserialize_with = "null_is_empty")]
    pub taints: Box<[Taint]>,
    /// Whether several claims may share it.
    #[serde(deserialize_with = "null_is_default")]
    pub allow_multiple_allocations: bool,
}

/// An attribute of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceAttribute {
    /// Its value, if it is a string.
    pub string: Option<InternedStr>,
}

/// A ResourceClaim with the results of its allocation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "WireClaim")]
pub struct PoolClaim {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `status.allocation.devices.results`.
    pub results: Box<[PoolResult]>,
}

/// An allocated device with what the claim takes from its capacity.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolResult {
    /// The DRA driver.
    pub driver: InternedStr,
    /// The pool of the driver.
    pub pool: InternedStr,
    /// The device in the pool.
    pub device: InternedStr,
    /// Whether the claim only observes the device.
    #[serde(deserialize_with = "null_is_default")]
    pub admin_access: bool,
    /// The share of each capacity.
    #[serde(deserialize_with = "null_is_default")]
    pub consumed_capacity: BTreeMap<ArcStr, Quantity>,
}

impl Object for PoolSlice {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PoolSlice {
    const RESOURCE: Resource = ResourceSlice::RESOURCE;
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

impl Object for PoolClaim {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PoolClaim {
    const RESOURCE: Resource = ResourceClaim::RESOURCE;
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct WireSlice {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSliceSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSliceSpec {
    driver: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    pool: WirePool,
    #[serde(deserialize_with = "null_is_default")]
    node_name: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    partition_type_attribute: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    shared_counters: Box<[CounterSet]>,
    #[serde(deserialize_with = "null_is_empty")]
    devices: Box<[PoolDevice]>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePool {
    name: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    generation: i64,
    #[serde(deserialize_with = "null_is_default")]
    resource_slice_count: i64,
}

impl From<WireSlice> for PoolSlice {
    fn from(wire: WireSlice) -> Self {
        let WireSliceSpec { driver, pool, node_name, partition_type_attribute, shared_counters, devices } =
            wire.spec;
        Self {
            meta: wire.metadata.into(),
            driver,
            pool: pool.name,
            pool_generation: pool.generation,
            slice_count: pool.resource_slice_count,
            node_name,
            partition_type_attribute,
            shared_counters,
            devices,
        }
    }
}

#[derive(Deserialize)]
struct WireClaim {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_default")]
    allocation: WireAllocation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAllocation {
    #[serde(deserialize_with = "null_is_default")]
    devices: WireResults,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireResults {
    #[serde(deserialize_with = "null_is_empty")]
    results: Box<[PoolResult]>,
}

impl From<WireClaim> for PoolClaim {
    fn from(wire: WireClaim) -> Self {
        Self { meta: wire.metadata.into(), results: wire.status.allocation.devices.results }
    }
}
