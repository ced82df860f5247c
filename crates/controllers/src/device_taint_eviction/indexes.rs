//! The ways from a device to the slices that publish it and to the claims that hold it.

use keleustes_objects::{InternedStr, NO_EXECUTE, ResourceClaim, ResourceSlice};
use keleustes_plan::Index;

/// The index value of a pool.
pub(super) fn pool_value(driver: &str, pool: &str) -> InternedStr {
    InternedStr::from(&*format!("{driver}/{pool}"))
}

/// The index value of a device. Pools may contain slashes; devices may not, so values are unique.
pub(super) fn device_value(driver: &str, pool: &str, device: &str) -> InternedStr {
    InternedStr::from(&*format!("{driver}/{pool}/{device}"))
}

/// Claims by the devices that are allocated for them.
pub(super) const CLAIMS_BY_DEVICE: Index<ResourceClaim> = Index {
    name: "allocated-device",
    values: |claim, emit| {
        for device in claim.allocated_devices.iter().flatten() {
            emit(device_value(&device.driver, &device.pool, &device.device));
        }
    },
};

/// Slices by their pool.
pub(super) const SLICES_BY_POOL: Index<ResourceSlice> =
    Index { name: "pool", values: |slice, emit| emit(pool_value(&slice.driver, &slice.pool)) };

/// Slices by their devices with a `NoExecute` taint, which are few.
pub(super) const SLICES_BY_TAINTED_DEVICE: Index<ResourceSlice> = Index {
    name: "tainted-device",
    values: |slice, emit| {
        let tainted = slice
            .devices
            .iter()
            .filter(|device| device.taints.iter().any(|taint| taint.effect == NO_EXECUTE));
        tainted.for_each(|device| emit(device_value(&slice.driver, &slice.pool, &device.name)));
    },
};
