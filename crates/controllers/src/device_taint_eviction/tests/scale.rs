//! Work follows what a change concerns, not the number of devices, and the indexes find what passes over all objects find.

use keleustes_plan::Change;
use keleustes_plan::rehearsal::rows_read;

use super::super::enqueue::claims_of;
use super::super::rule::published_devices;
use super::super::taints::no_execute_rules;
use super::*;

const POOLS: usize = 1_250;
const DEVICES_PER_POOL: usize = 8;

fn pool(number: usize) -> String {
    format!("node-{number}")
}

/// Pod, claim and device `number`: the devices of a pool have the same names as those of every other pool.
fn user_of_device(number: usize) -> (Value, Value) {
    let (pool, device) = (pool(number / DEVICES_PER_POOL), format!("gpu-{}", number % DEVICES_PER_POOL));
    let mut pod = pod(&format!("web-{number}"));
    pod["spec"]["resourceClaims"][0]["resourceClaimName"] = json!(format!("c-{number}"));
    let mut claim = claim(&json!([]));
    claim["metadata"] =
        json!({"name": format!("c-{number}"), "namespace": "a", "uid": format!("u-c-{number}")});
    let result = &mut claim["status"]["allocation"]["devices"]["results"][0];
    (result["pool"], result["device"]) = (json!(pool), json!(device));
    let consumer = &mut claim["status"]["reservedFor"][0];
    (consumer["name"], consumer["uid"]) = (json!(format!("web-{number}")), json!(format!("u-web-{number}")));
    (pod, claim)
}

fn slice_of_pool(number: usize, generation: i64, tainted: Option<usize>) -> Value {
    let devices: Vec<_> = (0..DEVICES_PER_POOL)
        .map(|device| {
            let taints = if tainted == Some(device) { json!([taint("NoExecute")]) } else { json!([]) };
            json!({"name": format!("gpu-{device}"), "taints": taints})
        })
        .collect();
    json!({"metadata": {"name": pool(number), "uid": pool(number)}, "spec": {"driver": "d",
        "pool": {"name": pool(number), "generation": generation}, "devices": devices}})
}

/// 10,000 devices in 1,250 pools, each in use, and 1,000 rules for devices that no pod uses.
fn large_cluster() -> TestCluster {
    let mut cluster = without_pod(DeviceTaintEvictionOptions::default());
    for number in 0..POOLS * DEVICES_PER_POOL {
        let (pod, claim) = user_of_device(number);
        cluster.put::<ResourceClaim>(claim);
        cluster.put::<Pod>(pod);
    }
    for number in 0..POOLS {
        cluster.put::<ResourceSlice>(slice_of_pool(number, 1, None));
    }
    for number in 0..1_000 {
        let selector = json!({"driver": "d", "pool": pool(number), "device": "unused"});
        cluster.put::<DeviceTaintRule>(rule(&format!("other-{number}"), selector, taint("NoExecute")));
    }
    cluster
}

impl TestCluster {
    /// The items that a change enqueues, after they are reconciled once, and the rows that both read.
    fn work(&mut self, change: impl FnOnce(&mut Self) -> Vec<String>) -> (Vec<String>, u64) {
        rows_read(|| {
            let items = change(self);
            for text in &items {
                let (key, rest) = text.split_once(" kind=").expect("an item");
                let (kind, uid) = rest.split_once(" uid=").expect("an item");
                let (key, uid) = (key.parse().expect("a key"), uid.into());
                let item =
                    if kind == "pod" { EvictionItem::Pod(key, uid) } else { EvictionItem::Rule(key, uid) };
                let _ = self.rehearsal.reconcile(&self.a_loop, item);
            }
            items
        })
    }
}

#[test]
fn work_follows_the_devices_that_a_change_concerns() {
    let mut cluster = large_cluster();
    let mut rule_for = |selector: Value, effect: &str| {
        let rule = rule("r", selector, taint(effect));
        let work = cluster.work(|cluster| cluster.put::<DeviceTaintRule>(rule));
        // Deleted again, so that the next one starts from the same state.
        cluster.take::<DeviceTaintRule>(&Key::cluster("r"));
        (work.0.len(), work.1)
    };
    let device = json!({"driver": "d", "pool": "node-7", "device": "gpu-3"});
    let (items, rows) = rule_for(device.clone(), "NoExecute");
    assert_eq!(items, 2, "the rule and one pod");
    assert!((1..=30).contains(&rows), "{rows} rows for one device");
    // The dry run also reads the slices of the pool.
    let (items, rows) = rule_for(device, "None");
    assert!(items == 1 && rows <= 30, "{items} items, {rows} rows for a dry run on one device");
    for selector in [json!({"pool": "node-8"}), json!({"driver": "d", "pool": "node-9"})] {
        let (items, rows) = rule_for(selector.clone(), "NoExecute");
        assert_eq!(items, 1 + DEVICES_PER_POOL, "{selector}");
        assert!(rows <= 30 * 8, "{rows} rows for {selector}");
        let (_, rows) = rule_for(selector.clone(), "None");
        assert!(rows <= 30 * 8, "{rows} rows for a dry run on {selector}");
    }
    let (items, rows) = rule_for(json!({"pool": "node-10", "device": "gpu-3"}), "NoExecute");
    assert!(items == 2 && rows <= 60, "{items} items, {rows} rows for one device of a pool");
    let (items, rows) = rule_for(json!({"driver": "elsewhere"}), "NoExecute");
    assert!(items == 1 && rows <= 10, "{items} items, {rows} rows for a driver without devices");

    let (_, mut claim) = user_of_device(4_000);
    claim["status"]["allocation"]["devices"]["results"][0]["device"] = json!("gpu-9");
    let (items, rows) = cluster.work(|cluster| cluster.put::<ResourceClaim>(claim));
    assert_eq!(items, ["a/web-4000 kind=pod uid=u-web-4000"; 2], "for the old and the new state");
    assert!(rows <= 30, "{rows} rows for one claim");

    let (items, rows) = cluster.work(|cluster| cluster.put::<ResourceSlice>(slice_of_pool(600, 1, Some(5))));
    assert_eq!(items, ["a/web-4805 kind=pod uid=u-web-4805"]);
    assert!(rows <= 30, "{rows} rows for one device of a slice");
    let (items, rows) = cluster.work(|cluster| cluster.put::<ResourceSlice>(slice_of_pool(601, 2, Some(5))));
    assert_eq!(items, ["a/web-4813 kind=pod uid=u-web-4813"]);
    assert!(rows <= 40, "{rows} rows for another generation of a pool");
}

const SLICES: usize = 64;
const DEVICES_PER_SLICE: usize = 64;

/// Slice `number` of the only pool, whose devices have names of their own.
fn slice_of_large_pool(number: usize, generation: i64, is_tainted: impl Fn(usize) -> bool) -> Value {
    let devices: Vec<_> = (number * DEVICES_PER_SLICE..(number + 1) * DEVICES_PER_SLICE)
        .map(|device| {
            let taints = if is_tainted(device) { json!([taint("NoExecute")]) } else { json!([]) };
            json!({"name": format!("gpu-{device}"), "taints": taints})
        })
        .collect();
    json!({"metadata": {"name": format!("s-{number}"), "uid": format!("s-{number}")}, "spec": {"driver": "d",
        "pool": {"name": "rack", "generation": generation}, "devices": devices}})
}

/// One pool of 4,096 devices in 64 slices, each device in use.
fn large_pool(is_tainted: impl Fn(usize) -> bool) -> TestCluster {
    let mut cluster = without_pod(DeviceTaintEvictionOptions::default());
    for number in 0..SLICES * DEVICES_PER_SLICE {
        let (pod, mut claim) = user_of_device(number);
        let result = &mut claim["status"]["allocation"]["devices"]["results"][0];
        (result["pool"], result["device"]) = (json!("rack"), json!(format!("gpu-{number}")));
        cluster.put::<ResourceClaim>(claim);
        cluster.put::<Pod>(pod);
    }
    for number in 0..SLICES {
        cluster.put::<ResourceSlice>(slice_of_large_pool(number, 1, &is_tainted));
    }
    cluster
}

#[test]
fn work_follows_the_devices_that_a_change_concerns_in_a_large_pool() {
    let mut cluster = large_pool(|_| false);
    let tainting = slice_of_large_pool(30, 1, |device| device == 1_925);
    let (items, rows) = cluster.work(|cluster| cluster.put::<ResourceSlice>(tainting));
    assert_eq!(items, ["a/web-1925 kind=pod uid=u-web-1925"]);
    assert!(rows <= 30, "{rows} rows for one device of a slice");
    let device = json!({"driver": "d", "pool": "rack", "device": "gpu-77"});
    let by_rule = rule("r", device, taint("NoExecute"));
    let (items, rows) = cluster.work(|cluster| cluster.put::<DeviceTaintRule>(by_rule));
    assert!(items.len() == 2 && rows <= 30, "{items:?}, {rows} rows for one device");
    // The first slice of a new generation makes all others outdated, and the others then concern their own devices only.
    let of_next = |number| slice_of_large_pool(number, 2, |device| device % 1_000 == 0);
    let (items, rows) = cluster.work(|cluster| cluster.put::<ResourceSlice>(of_next(0)));
    assert_eq!(items, ["a/web-0 kind=pod uid=u-web-0", "a/web-1925 kind=pod uid=u-web-1925"]);
    assert!(rows <= 40 + SLICES as u64, "{rows} rows for the first slice of another generation");
    for number in 1..SLICES {
        let (items, rows) = cluster.work(|cluster| cluster.put::<ResourceSlice>(of_next(number)));
        let devices = number * DEVICES_PER_SLICE..(number + 1) * DEVICES_PER_SLICE;
        let tainted = devices.clone().filter(|device| device % 1_000 == 0).count();
        assert_eq!(items.len(), tainted + usize::from(devices.contains(&1_925)), "slice {number}: {items:?}");
        assert!(rows <= 40, "{rows} rows for slice {number} of another generation");
    }
}

/// A driver that sets a taint on all devices, and publishes the pool again.
#[test]
fn new_generation_of_a_tainted_pool_costs_as_much_as_its_devices() {
    let mut cluster = large_pool(|_| true);
    let (items, rows) = cluster.work(|cluster| {
        let slices = (0..SLICES).map(|number| slice_of_large_pool(number, 2, |_| true));
        slices.flat_map(|slice| cluster.put::<ResourceSlice>(slice)).collect()
    });
    // Once because the old generation is outdated, and once more with the slice of the new one.
    let devices = SLICES * DEVICES_PER_SLICE;
    assert!((devices..=2 * devices).contains(&items.len()), "{} items", items.len());
    assert!(rows <= 30 * devices as u64, "{rows} rows");
}

/// Generations as they are remembered are those of a pass over all slices, whatever changes.
#[test]
fn remembered_generations_are_those_of_the_slices() {
    use super::super::pools::{PoolGenerations, PoolName};
    use super::super::taints::current_generation;
    let mut generations = [0_usize; 2];
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let a_loop = controller(&DeviceTaintEvictionOptions::default()).loops.remove(0);
        let mut rehearsal = RehearsalCluster::of(&a_loop);
        let mut remembered = PoolGenerations::default();
        for step in 0..40 {
            let key = Key::cluster(format!("s-{}", random.u8(..6)));
            let old = rehearsal.view().get::<ResourceSlice>(&key).cloned();
            if old.is_some() && random.u8(..4) == 0 {
                rehearsal.take::<ResourceSlice>(&a_loop, &key);
            } else {
                let mut slice = slice(&key.name, random.i64(1..4), &json!([]));
                slice["spec"]["pool"]["name"] = json!(if random.bool() { "p" } else { "q" });
                slice["metadata"]["resourceVersion"] = json!(step.to_string());
                rehearsal.put::<ResourceSlice>(&a_loop, slice);
            }
            let view = rehearsal.view();
            let change = match (old, view.get::<ResourceSlice>(&key).cloned()) {
                (Some(old), Some(new)) => Change::updated(old, new),
                (None, Some(new)) => Change::added(new),
                (Some(old), None) => Change::deleted(old),
                (None, None) => continue,
            };
            // The first events are missed, as by a process that starts later.
            if step < 5 {
                continue;
            }
            let pools: [PoolName; 2] = ["p", "q"].map(|pool| ("d".into(), pool.into()));
            let before = pools.clone().map(|pool| remembered.current(&pool));
            let others = remembered.observe(&change, &view);
            for (pool, before) in pools.iter().zip(before) {
                let concerns = change.old_and_new().any(|slice| slice.pool == pool.1);
                let wanted = current_generation(&view, &pool.0, &pool.1);
                if before.is_some() || concerns {
                    assert_eq!(remembered.current(pool), wanted, "{pool:?} with seed {seed} at step {step}");
                }
                if before.is_some() {
                    assert_eq!(others.contains(pool), before != wanted, "{pool:?} with seed {seed}");
                    generations[usize::from(before != wanted)] += 1;
                }
            }
        }
    }
    assert!(generations.iter().all(|count| *count > 500), "{generations:?}");
}

/// Objects with few names, so that selectors select some of them.
fn random_cluster(random: &mut fastrand::Rng) -> TestCluster {
    const NAMES: [&str; 3] = ["x", "y", "z/w"];
    let mut cluster = without_pod(DeviceTaintEvictionOptions::default());
    let device = |random: &mut fastrand::Rng| {
        let [driver, pool, device] = [0; 3].map(|_| NAMES[random.usize(..2)]);
        json!({"request": "r", "driver": driver, "pool": if pool == "y" { NAMES[2] } else { pool }, "device": device})
    };
    for number in 0..8 {
        let mut claim = claim(&json!([]));
        claim["metadata"] =
            json!({"name": format!("c-{number}"), "namespace": "a", "uid": format!("u-{number}")});
        let results: Vec<_> = (0..random.usize(..3)).map(|_| device(random)).collect();
        claim["status"]["allocation"]["devices"]["results"] = json!(results);
        if random.bool() && number > 5 {
            claim["status"]["allocation"] = Value::Null;
        }
        cluster.put::<ResourceClaim>(claim);
        let place = device(random);
        let mut slice = slice(&format!("s-{number}"), random.i64(1..3), &json!([]));
        slice["spec"]["driver"] = place["driver"].clone();
        slice["spec"]["pool"]["name"] = place["pool"].clone();
        slice["spec"]["devices"] = json!([{"name": place["device"]}, {"name": "v"}]);
        cluster.put::<ResourceSlice>(slice);
    }
    for number in 0..12 {
        let place = device(random);
        let mut selector = json!({});
        for field in ["driver", "pool", "device"].into_iter().filter(|_| random.bool()) {
            selector[field] = place[field].clone();
        }
        let selector = if random.u8(..8) == 0 { Value::Null } else { selector };
        let effect = ["NoExecute", "NoSchedule", "None"][random.usize(..3)];
        let rule = rule(&format!("r-{number}"), selector, taint(effect));
        cluster.put::<DeviceTaintRule>(rule);
        if number > 9 {
            cluster.take::<DeviceTaintRule>(&Key::cluster(&*format!("r-{}", random.u8(..number))));
            break;
        }
    }
    cluster
}

/// What the indexes replace: passes over all claims, slices and rules.
#[test]
fn indexes_find_what_passes_over_all_objects_find() {
    let mut selected = [0_usize; 3];
    for seed in 0..300 {
        let cluster = random_cluster(&mut fastrand::Rng::with_seed(seed));
        let view = cluster.rehearsal.view();
        for rule in view.all::<DeviceTaintRule>() {
            let selects = |driver, pool, device| {
                rule.device_selector.as_ref().is_some_and(|selector| selector.selects(driver, pool, device))
            };
            let wanted: Vec<_> = view
                .all::<ResourceClaim>()
                .filter(|claim| {
                    let mut devices = claim.allocated_devices.iter().flatten();
                    devices.any(|device| selects(&device.driver, &device.pool, &device.device))
                })
                .collect();
            assert_eq!(claims_of(&view, rule), wanted, "claims of {rule:?} with seed {seed}");
            let is_current = |slice: &&std::sync::Arc<ResourceSlice>| {
                let mut others = view.all::<ResourceSlice>();
                !others.any(|other| {
                    (&other.driver, &other.pool) == (&slice.driver, &slice.pool)
                        && other.pool_generation > slice.pool_generation
                })
            };
            let published: usize = view
                .all::<ResourceSlice>()
                .filter(is_current)
                .map(|slice| {
                    slice.devices.iter().filter(|it| selects(&slice.driver, &slice.pool, &it.name)).count()
                })
                .sum();
            assert_eq!(published_devices(&view, rule), published as u64, "{rule:?} with seed {seed}");
            selected[0] += wanted.len();
            selected[1] += published;
        }
        for device in view.all::<ResourceClaim>().flat_map(|claim| claim.allocated_devices.iter().flatten()) {
            let mut found: Vec<_> = no_execute_rules(&view)
                .selecting(device)
                .into_iter()
                .map(|rule| rule.meta.key.to_string())
                .collect();
            found.sort();
            let wanted: Vec<_> = view
                .all::<DeviceTaintRule>()
                .filter(|rule| rule.taint.effect == "NoExecute")
                .filter(|rule| {
                    let selector = rule.device_selector.as_ref();
                    selector.is_some_and(|it| it.selects(&device.driver, &device.pool, &device.device))
                })
                .map(|rule| rule.meta.key.to_string())
                .collect();
            assert_eq!(found, wanted, "rules of {device:?} with seed {seed}");
            selected[2] += wanted.len();
        }
    }
    assert!(selected.iter().all(|count| *count > 1_000), "{selected:?}");
}
