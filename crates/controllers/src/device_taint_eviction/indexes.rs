//! The ways from a device to the slices that publish it, to the claims that hold it and to the rules that taint it, and from a
//! rule to the devices that it selects.

use keleustes_objects::{
    DeviceTaintRule, DeviceTaintSelector, InternedStr, NO_EXECUTE, ResourceClaim, ResourceSlice,
};
use keleustes_plan::Index;

/// Stands for every driver, pool or device. No name contains it.
const ANY: &str = "*";

/// The index value of the devices with these names; `None` stands for all. Pools may contain slashes; drivers and devices may
/// not, so values are unique.
fn value(driver: Option<&str>, pool: Option<&str>, device: Option<&str>) -> String {
    let [driver, pool, device] = [driver, pool, device].map(|name| name.unwrap_or(ANY));
    format!("{driver}/{device}/{pool}")
}

/// The index value of a pool.
pub(super) fn pool_value(driver: &str, pool: &str) -> String {
    value(Some(driver), Some(pool), None)
}

/// The index value of a device.
pub(super) fn device_value(driver: &str, pool: &str, device: &str) -> String {
    value(Some(driver), Some(pool), Some(device))
}

/// The index values of all selectors that select a device.
pub(super) fn values_selecting(driver: &str, pool: &str, device: &str) -> impl Iterator<Item = String> {
    (0..8_u8).map(move |set| {
        let name = |bit: u8, name| (set & bit != 0).then_some(name);
        value(name(1, driver), name(2, pool), name(4, device))
    })
}

/// The index value of the fewest claims that a selector may select; `None` if it selects all devices. A selector of a device
/// name and only one of driver and pool selects some of them.
pub(super) fn claims_value(selector: &DeviceTaintSelector) -> Option<String> {
    let (driver, pool, device) =
        (selector.driver.as_deref(), selector.pool.as_deref(), selector.device.as_deref());
    match (driver, pool, device) {
        (None, None, None) => None,
        (Some(_), Some(_), _) => Some(value(driver, pool, device)),
        (None, Some(_), _) => Some(value(None, pool, None)),
        (_, None, Some(_)) => Some(value(None, None, device)),
        (Some(_), None, None) => Some(value(driver, None, None)),
    }
}

/// The index value of the fewest slices that may publish a device that a selector selects; `None` if it selects all devices.
pub(super) fn slices_value(selector: &DeviceTaintSelector) -> Option<String> {
    match (&selector.driver, &selector.pool) {
        (Some(driver), Some(pool)) => Some(pool_value(driver, pool)),
        _ => claims_value(selector),
    }
}

/// Claims by the devices that are allocated for them: by device, pool, driver, name of the pool and name of the device.
pub(super) const CLAIMS_BY_DEVICE: Index<ResourceClaim> = Index {
    name: "allocated-device",
    values: |claim, emit| {
        for device in claim.allocated_devices.iter().flatten() {
            let (driver, pool, name) = (Some(&*device.driver), Some(&*device.pool), Some(&*device.device));
            for value in [
                value(driver, pool, name),
                value(driver, pool, None),
                value(driver, None, None),
                value(None, pool, None),
                value(None, None, name),
            ] {
                emit(InternedStr::from(&*value));
            }
        }
    },
};

/// Slices by their pool, driver, name of the pool and names of their devices.
pub(super) const SLICES_BY_POOL: Index<ResourceSlice> = Index {
    name: "pool",
    values: |slice, emit| {
        let (driver, pool) = (Some(&*slice.driver), Some(&*slice.pool));
        let mut emit = |value: String| emit(InternedStr::from(&*value));
        [value(driver, pool, None), value(driver, None, None), value(None, pool, None)]
            .into_iter()
            .for_each(&mut emit);
        slice.devices.iter().for_each(|device| emit(value(None, None, Some(&device.name))));
    },
};

/// Slices by their devices with a `NoExecute` taint, which are few.
pub(super) const SLICES_BY_TAINTED_DEVICE: Index<ResourceSlice> = Index {
    name: "tainted-device",
    values: |slice, emit| {
        let tainted = slice
            .devices
            .iter()
            .filter(|device| device.taints.iter().any(|taint| taint.effect == NO_EXECUTE));
        tainted.for_each(|device| {
            emit(InternedStr::from(&*device_value(&slice.driver, &slice.pool, &device.name)));
        });
    },
};

/// Rules with the effect `NoExecute` by their selector.
pub(super) const RULES_BY_SELECTOR: Index<DeviceTaintRule> = Index {
    name: "selector",
    values: |rule, emit| {
        if let Some(selector) = rule.device_selector.as_ref().filter(|_| rule.taint.effect == NO_EXECUTE) {
            let value =
                value(selector.driver.as_deref(), selector.pool.as_deref(), selector.device.as_deref());
            emit(InternedStr::from(&*value));
        }
    },
};
