//! ResourcePoolStatusRequests: each is answered at most once, with the counts of slices as they were at some time, and in a
//! storm without faults with the newest ones; whole pools keep no request waiting. Only old requests are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use keleustes_objects::Time;
use serde_json::{Value, json};

use super::Checker;
use super::objects::{describe, number};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};
use crate::storm::START_NANOSECONDS;
use crate::user_gated::POOL_DRIVER;

/// How long an answered request is kept, and one without an answer.
const ANSWERED_SECONDS: i64 = 60 * 60;
const PENDING_SECONDS: i64 = 24 * 60 * 60;

/// Follows the slices of pools, and the answers about them.
#[derive(Default)]
pub struct PoolRequests {
    faults: Faults,
    has_clock_jumped: bool,
    /// By name of a slice: every spec that it has had; `None` where it does not exist.
    slices: BTreeMap<String, Vec<Option<Value>>>,
    /// When a slice last changed.
    changed_at: Duration,
    /// Pools of which slices were missing at some time.
    were_incomplete: BTreeSet<String>,
}

/// Old requests, and one that is not old enough, as they are when a storm begins, and a pool of which slices are missing: it
/// keeps the old request from being answered.
pub(crate) fn initial_objects() -> [Value; 4] {
    let request = |name: &str, created: &str, answered: Option<&str>| {
        let condition = |at| {
            json!([{"type": "Complete", "status": "True", "reason": "CalculationComplete",
            "message": "Calculated status for 0 pools", "lastTransitionTime": at}])
        };
        let mut request = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"driver": "old.example.com"}});
        if let Some(at) = answered {
            request["status"] = json!({"poolCount": 0, "conditions": condition(at)});
        }
        request
    };
    let pool = json!({"name": "old", "generation": 1, "resourceSliceCount": 2});
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "old"},
        "spec": {"driver": "old.example.com", "pool": pool, "allNodes": true, "devices": []}});
    [
        slice,
        request("old-answered", "2025-12-31T12:00:00Z", Some("2025-12-31T20:00:00Z")),
        // No storm lasts that long.
        request("answered-later", "2025-12-31T12:00:00Z", Some("2026-01-01T06:00:00Z")),
        request("old-pending", "2025-12-20T00:00:00Z", None),
    ]
}

impl Checker for PoolRequests {
    fn name(&self) -> &'static str {
        "resourcepoolstatusrequest-controller"
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn on_clock_jump(&mut self) {
        self.has_clock_jumped = true;
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        if request.resource == "resourceslices" && write.succeeded() {
            self.observe_slices(write, server);
        }
        let is_checked = write.by_manager() && write.succeeded();
        let Some(before) = write.before.as_deref().filter(|_| is_checked) else { return Ok(()) };
        if request.resource != "resourcepoolstatusrequests" {
            return Ok(());
        }
        if request.method == Method::DELETE {
            return self.check_age(before, write.at);
        }
        if !before["status"].is_null() {
            return Err(format!("{} is answered twice", describe(before)));
        }
        let Some(after) = write.after.as_deref() else { return Ok(()) };
        self.check_answer(after, write.at)
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for request in server.objects("resourcepoolstatusrequests.resource.k8s.io") {
            if text(&request, "/metadata/name").starts_with("old-") {
                return Err(format!("{} is old and is left", describe(&request)));
            }
            let wanted = text(&request, "/spec/poolName");
            let may_wait = self.were_incomplete.iter().any(|pool| wanted.is_empty() || pool == wanted);
            // After six failures a request is not tried again.
            if request["status"].is_null() && !may_wait && self.faults.is_calm() {
                return Err(format!("{} is not answered", describe(&request)));
            }
        }
        Ok(())
    }
}

impl PoolRequests {
    fn observe_slices(&mut self, write: &ObservedWrite, server: &ApiServer) {
        let name = match write.request.name.as_str() {
            "" => text(&write.body, "/metadata/name"),
            name => name,
        };
        let slice = server.object("resourceslices.resource.k8s.io", "", name);
        let spec = slice.map(|slice| slice["spec"].clone());
        let states = self.slices.entry(name.to_owned()).or_insert_with(|| vec![None]);
        if states.last() == Some(&spec) {
            return;
        }
        states.push(spec);
        self.changed_at = write.at;
        let newest: Vec<&Value> = self.slices.values().filter_map(|states| states.last()?.as_ref()).collect();
        let pools: BTreeSet<&str> = newest.iter().map(|spec| text(spec, "/pool/name")).collect();
        let incomplete: Vec<_> =
            pools.into_iter().filter(|pool| answer(pool, &newest) == Some(None)).collect();
        self.were_incomplete.extend(incomplete.into_iter().map(str::to_owned));
    }

    /// Each listed pool has the counts of slices that existed. Two slices may come from two moments, because a cache that is
    /// filled again shows them one by one.
    fn check_answer(&self, request: &Value, at: Duration) -> Result<(), String> {
        let listed = request.pointer("/status/pools").and_then(Value::as_array);
        let listed: Vec<&Value> = listed.into_iter().flatten().collect();
        let (count, wanted) = (number(request, "/status/poolCount"), text(request, "/spec/poolName"));
        let limit = request.pointer("/spec/limit").and_then(Value::as_i64).unwrap_or(100);
        let names: Vec<&str> = listed.iter().map(|pool| text(pool, "/poolName")).collect();
        let has_length = i64::try_from(names.len()) == Ok(count.min(limit));
        let is_about_it = names.iter().all(|name| wanted.is_empty() || *name == wanted);
        if !has_length || !is_about_it || !names.is_sorted() {
            return Err(format!("{} lists {names:?} of {count} pools", describe(request)));
        }
        for pool in listed {
            let wrong = || Err(format!("{} lists {pool}, as it never was", describe(request)));
            if !self.possible_answers(text(pool, "/poolName")).contains(&Some(counts(pool))) {
                return wrong();
            }
        }
        if !self.faults.is_calm() || !self.faults.caches_know(self.changed_at, at) {
            return Ok(());
        }
        let newest: Vec<&Value> = self.slices.values().filter_map(|states| states.last()?.as_ref()).collect();
        let pools: BTreeSet<&str> = newest.iter().map(|spec| text(spec, "/pool/name")).collect();
        let pools: Vec<&str> =
            pools.into_iter().filter(|pool| wanted.is_empty() || *pool == wanted).collect();
        let expected: Vec<_> = pools.iter().map(|pool| answer(pool, &newest).flatten()).collect();
        let listed = request.pointer("/status/pools").and_then(Value::as_array);
        let found: Vec<_> = listed.into_iter().flatten().map(|pool| Some(counts(pool))).collect();
        if i64::try_from(pools.len()) != Ok(count) || expected[..found.len()] != found {
            return Err(format!("{} does not list its {} pools as they are", describe(request), pools.len()));
        }
        Ok(())
    }

    /// The answers about a pool for every combination of states of its slices.
    fn possible_answers(&self, pool: &str) -> Vec<Option<Counts>> {
        let is_its =
            |spec: &Option<Value>| spec.as_ref().is_some_and(|spec| text(spec, "/pool/name") == pool);
        let mut combinations: Vec<Vec<&Value>> = vec![Vec::new()];
        for states in self.slices.values().filter(|states| states.iter().any(is_its)) {
            let longer = combinations.iter().flat_map(|slices| {
                states.iter().map(|spec| slices.iter().copied().chain(spec).collect::<Vec<_>>())
            });
            combinations = longer.collect();
        }
        combinations.iter().filter_map(|slices| answer(pool, slices)).collect()
    }

    fn check_age(&self, request: &Value, at: Duration) -> Result<(), String> {
        let now = START_NANOSECONDS / 1_000_000_000 + i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
        let seconds = |pointer: &str| {
            let time = request.pointer(pointer).cloned().unwrap_or_default();
            serde_json::from_value::<Time>(time).map_or(i64::MAX / 2, Time::unix_seconds)
        };
        let expires_at = if request["status"].is_null() {
            seconds("/metadata/creationTimestamp") + PENDING_SECONDS
        } else {
            seconds("/status/conditions/0/lastTransitionTime") + ANSWERED_SECONDS
        };
        if now < expires_at && !self.has_clock_jumped {
            return Err(format!("{} is deleted {} s too early", describe(request), expires_at - now));
        }
        Ok(())
    }
}

/// What an answer says about a pool: generation, slices, all devices and those that are tainted.
type Counts = (i64, i64, i64, i64);

fn counts(pool: &Value) -> Counts {
    let of = |field: &str| number(pool, &format!("/{field}"));
    // No claim has a device of these pools.
    let available = of("totalDevices") - of("unavailableDevices");
    let unavailable = if of("availableDevices") == available { of("unavailableDevices") } else { -1 };
    (of("generation"), of("resourceSliceCount"), of("totalDevices"), unavailable)
}

/// The answer about a pool with these slices: `None` if it has none, and `Some(None)` if some are missing.
fn answer(pool: &str, slices: &[&Value]) -> Option<Option<Counts>> {
    let of_pool =
        || slices.iter().filter(|spec| text(spec, "/pool/name") == pool && spec["driver"] == POOL_DRIVER);
    let generation = of_pool().map(|spec| number(spec, "/pool/generation")).max()?;
    let newest: Vec<_> = of_pool().filter(|spec| number(spec, "/pool/generation") == generation).collect();
    let found = i64::try_from(newest.len()).unwrap_or(i64::MAX);
    if found < newest.iter().map(|spec| number(spec, "/pool/resourceSliceCount")).min()? {
        return Some(None);
    }
    let devices = || newest.iter().flat_map(|spec| spec["devices"].as_array().into_iter().flatten());
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let tainted = devices().filter(|device| device.pointer("/taints/0").is_some()).count();
    Some(Some((generation, found, count(devices().count()), count(tainted))))
}
