//! Which slices, claims, taints and rules count.

use super::*;

/// Proves RPSR-3, RPSR-15, RPSR-17.
#[test]
fn devices_are_counted_per_pool_of_the_driver() {
    let mut other_driver = slice("s3", "p", devices(&["x", "y", "z"]));
    other_driver["spec"]["driver"] = json!("D");
    let slices =
        [slice("s1", "p", devices(&["x", "y", "z"])), slice("s2", "q", devices(&["x"])), other_driver];
    let fixture = |spec: Value| {
        asking(spec)
            .with_slices(slices.clone())
            .with::<PoolClaim>(claim("a", "c1", &[("x", json!({}))]))
            // Shared, observed, and of other pools and drivers.
            .with::<PoolClaim>(claim("b", "c2", &[("x", json!({})), ("z", json!({"adminAccess": true}))]))
            .with::<PoolClaim>(claim(
                "b",
                "c3",
                &[("y", json!({"driver": "D"})), ("y", json!({"pool": "other"}))],
            ))
            .with::<PoolClaim>(json!({"metadata": {"namespace": "a", "name": "c4"}, "status": {}}))
    };
    let expected = json!({"driver": "d", "poolName": "p", "generation": 1, "resourceSliceCount": 1,
        "totalDevices": 3, "allocatedDevices": 1, "availableDevices": 2, "unavailableDevices": 0});
    let pools = fixture(json!({})).status()["pools"].clone();
    assert_eq!((pools.as_array().unwrap().len(), &pools[0]), (2, &expected));
    assert_eq!((&pools[1]["poolName"], &pools[1]["allocatedDevices"]), (&json!("q"), &json!(0)));
    assert_eq!(fixture(json!({"poolName": "p"})).pool(), expected);
    assert_eq!(fixture(json!({"poolName": ""})).status()["poolCount"], 2);
    assert_eq!(fixture(json!({"poolName": "P"})).status()["poolCount"], 0);
}

/// Proves RPSR-4, RPSR-70.
#[test]
fn only_the_highest_generation_counts() {
    let at = |name: &str, generation: i64, names: &[&str]| {
        let mut slice = slice(name, "p", devices(names));
        slice["spec"]["pool"]["generation"] = json!(generation);
        slice
    };
    let mut old = at("a-old", 1, &["x", "y"]);
    old["spec"]["pool"]["resourceSliceCount"] = json!(7);
    let pool = asking(json!({})).with_slices([old, at("b-new", 2, &["z"]), at("c-old", 1, &["w"])]).pool();
    assert_eq!((&pool["generation"], &pool["totalDevices"]), (&json!(2), &json!(1)));
    assert_eq!((&pool["resourceSliceCount"], &pool["validationError"]), (&json!(1), &Value::Null));
    let empty = asking(json!({"defaultPartitionTypeAttribute": "d/t"})).with_slices([at("s", 3, &[])]).pool();
    let expected = json!({"driver": "d", "poolName": "p", "generation": 3, "resourceSliceCount": 1,
        "totalDevices": 0, "allocatedDevices": 0, "availableDevices": 0, "unavailableDevices": 0});
    assert_eq!(empty, expected);
}

/// Proves RPSR-16.
#[test]
fn node_name_is_reported_if_all_slices_have_it() {
    let pool = |nodes: &[Option<&str>]| {
        let slices = nodes.iter().enumerate().map(|(index, node)| {
            let mut slice = slice(&format!("s{index}"), "p", devices(&[]));
            slice["spec"]["pool"]["resourceSliceCount"] = json!(nodes.len());
            slice["spec"]["nodeName"] = json!(node);
            slice
        });
        asking(json!({})).with_slices(slices).pool()["nodeName"].clone()
    };
    assert_eq!(pool(&[Some("n"), Some("n")]), json!("n"));
    for others in [&[Some("n"), Some("m")][..], &[Some("n"), None], &[None, Some("n")], &[None], &[Some("")]]
    {
        assert_eq!(pool(others), Value::Null, "{others:?}");
    }
}

/// Proves RPSR-18.
#[test]
fn taints_and_rules_make_devices_unavailable() {
    let tainted =
        |effect: &str| json!([{"name": "x", "taints": [{"key": "k", "effect": effect}]}, {"name": "y"}]);
    let unavailable = |fixture: Fixture| fixture.pool()["unavailableDevices"].clone();
    for (effect, count) in [("NoSchedule", 1), ("NoExecute", 1), ("None", 0), ("Strange", 0)] {
        let by_taint = asking(json!({})).with_slices([slice("s", "p", tainted(effect))]);
        assert_eq!(unavailable(by_taint), json!(count), "{effect}");
        let by_rule = asking(json!({})).with_slices([slice("s", "p", devices(&["x", "y"]))]);
        let by_rule = by_rule.with::<DeviceTaintRule>(rule("r", json!({"device": "y"}), effect));
        assert_eq!(unavailable(by_rule), json!(count), "a rule with {effect}");
    }
    let selected = |selector: Value| {
        let fixture = asking(json!({})).with_slices([slice("s", "p", tainted("NoSchedule"))]);
        unavailable(fixture.with::<DeviceTaintRule>(rule("r", selector, "NoExecute")))
    };
    assert_eq!(selected(json!({})), 2, "an empty selector selects all devices");
    assert_eq!(selected(Value::Null), 1, "no selector selects none");
    assert_eq!(selected(json!({"driver": "d", "pool": "p", "device": "x"})), 1, "a device counts once");
    for other in [json!({"driver": "e"}), json!({"pool": "q"}), json!({"device": "z"})] {
        assert_eq!(selected(other.clone()), 1, "{other}");
    }
    // Without the gate rules do not count.
    let without =
        controller(ResourcePoolStatusOptions { enable_taint_rules: false, ..ENABLED }).loops.remove(0);
    let cluster = RehearsalCluster::of(&without).with::<ResourcePoolStatusRequest>(request(json!({})));
    let mut cluster = cluster.with::<PoolSlice>(slice("s", "p", devices(&["x"])));
    cluster.reconcile(&without, key());
    let live = cluster.live_object::<ResourcePoolStatusRequest>(&key()).unwrap();
    assert_eq!(live["status"]["pools"][0]["unavailableDevices"], 0);
}

/// Proves RPSR-19, RPSR-62, RPSR-63.
#[test]
fn available_devices_are_never_negative() {
    let tainted = json!([{"name": "x", "taints": [{"key": "k", "effect": "NoExecute"}]}, {"name": "y"}]);
    let used = [("x", json!({})), ("gone", json!({})), ("also-gone", json!({}))];
    let fixture = |results: &[(&str, Value)]| {
        asking(json!({}))
            .with_slices([slice("s", "p", tainted.clone())])
            .with::<PoolClaim>(claim("a", "c", results))
    };
    let pool = fixture(&used[..1]).pool();
    assert_eq!(
        (&pool["unavailableDevices"], &pool["availableDevices"]),
        (&json!(1), &json!(0)),
        "subtracted twice"
    );
    let pool = fixture(&used).pool();
    assert_eq!((&pool["allocatedDevices"], &pool["availableDevices"]), (&json!(3), &json!(0)));
}

/// Proves RPSR-21.
#[test]
fn validation_errors_are_cut() {
    let name = "p".repeat(300);
    let mut slice = slice("s", &name, json!([{"name": "x"}]));
    slice["spec"]["partitionTypeAttribute"] = json!("d/t");
    let error = asking(json!({})).with_slices([slice]).pool()["validationError"].clone();
    assert_eq!(error.as_str().map(str::len), Some(256));
    assert!(error.as_str().unwrap().starts_with("PartitionTypeMissing: pool d/ppp"));
}
