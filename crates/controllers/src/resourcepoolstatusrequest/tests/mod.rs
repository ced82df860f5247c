//! Requests about pools of driver `d`, and what the caches hold.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

mod cleanup;
mod counts;
mod partitions;
mod requests;
mod shareable;

use keleustes_objects::{Key, Kind};
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const WRITTEN: &str =
    "edit resourcepoolstatusrequests.resource.k8s.io/status r because the pools were counted";

const ENABLED: ResourcePoolStatusOptions =
    ResourcePoolStatusOptions { enabled: true, enable_taint_rules: true };

fn the_loop() -> Loop {
    controller(ENABLED).loops.remove(0)
}

fn key() -> Key {
    Key::cluster("r")
}

/// Request `r` for driver `d`.
fn request(mut spec: Value) -> Value {
    spec["driver"] = json!("d");
    json!({"metadata": {"name": "r", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2027-01-15T07:59:00Z"},
        "spec": spec, "unknownToThisRelease": {"kept": true}})
}

/// A slice of driver `d`, the only one of its pool.
fn slice(name: &str, pool: &str, devices: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "2"},
        "spec": {"driver": "d", "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": devices}})
}

/// Devices with these names.
fn devices(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

/// An allocated claim with these results for pool `p` of driver `d`, each changed by what is given.
fn claim(namespace: &str, name: &str, results: &[(&str, Value)]) -> Value {
    let result = |(device, more): &(&str, Value)| {
        let mut result = json!({"request": "q", "driver": "d", "pool": "p", "device": device});
        for (field, value) in more.as_object().into_iter().flatten() {
            result[field] = value.clone();
        }
        result
    };
    let results: Vec<Value> = results.iter().map(result).collect();
    json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "4"},
        "status": {"allocation": {"devices": {"results": results}}}})
}

fn rule(name: &str, selector: Value, effect: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "5"},
        "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}})
}

struct Fixture {
    cluster: RehearsalCluster,
}

/// A cluster with request `r`.
fn asking(spec: Value) -> Fixture {
    Fixture { cluster: RehearsalCluster::of(&the_loop()).with::<ResourcePoolStatusRequest>(request(spec)) }
}

impl Fixture {
    fn with<T: Kind>(self, object: Value) -> Self {
        Self { cluster: self.cluster.with::<T>(object) }
    }

    fn with_slices(self, slices: impl IntoIterator<Item = Value>) -> Self {
        slices.into_iter().fold(self, Fixture::with::<PoolSlice>)
    }

    fn reconcile(&mut self) -> String {
        self.cluster.reconcile(&the_loop(), key())
    }

    /// The status after a reconcile; `null` if there is none.
    fn status(mut self) -> Value {
        self.reconcile();
        self.cluster.live_object::<ResourcePoolStatusRequest>(&key()).expect("the request")["status"].clone()
    }

    /// The only pool of the status.
    fn pool(self) -> Value {
        let status = self.status();
        assert_eq!(status["pools"].as_array().map(Vec::len), Some(1), "{status}");
        status["pools"][0].clone()
    }
}
