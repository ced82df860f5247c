//! The reconcile of a DeviceTaintRule: its condition says how many pods are, were or would be evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{
    DeviceTaintRule, InternedStr, Key, NO_EXECUTE, ResourceClaim, ResourceSlice, RuleCondition, Uid,
};
use keleustes_plan::{Context, Delay, Memory, Now, Plan, ReconcileError, Requeue, View, Write};
use serde_json::json;

use super::enqueue::claims_of;
use super::indexes::{SLICES_BY_POOL, slices_value};
use super::memory::{EvictionMemory, STATUS_PERIOD};
use super::pods::{eviction_of, pods_of};
use super::taints::{Rules, current_generation, no_execute_rules, selects};
use super::{DeviceTaintEvictionOptions, NAME};

const CONDITION: &str = "EvictionInProgress";

/// What a status that was written a moment ago waits for.
const STATUS_INTERVAL: &str = "the interval between two updates of its status";

pub(super) async fn reconcile(
    options: &DeviceTaintEvictionOptions,
    memory: &Memory<EvictionMemory>,
    cx: &mut Context<'_>,
    key: &Key,
    uid: &Uid,
) -> Result<Requeue, ReconcileError> {
    let (found, now) = cx.gather(|view| {
        let rules = view.store_if_synced::<DeviceTaintRule>();
        let rule = rules.and_then(|rules| rules.get(key)).filter(|rule| rule.meta.uid == *uid);
        (rule.cloned(), view.now())
    });
    let Some(rule) = found else { return Ok(Requeue::Forget) };
    if let Some(delay) = memory.with(|memory| memory.status_delay(uid, now.monotonic)) {
        return Ok(Requeue::KeepBackoff(Delay::of(delay, STATUS_INTERVAL)));
    }
    let current = rule.conditions.iter().find(|condition| condition.r#type == CONDITION);
    if let Some(delay) = current.and_then(|current| delay_after(current, &rule, now)) {
        return Ok(Requeue::KeepBackoff(Delay::of(delay, STATUS_INTERVAL)));
    }
    let evicted = memory.with(|memory| memory.evicted_by(uid));
    let wanted = cx.gather(|view| report(view, memory, &rule, evicted, options));
    if current.is_some_and(|current| wanted.is_reported_by(current, &rule)) {
        return Ok(Requeue::Forget);
    }
    let condition = json!({
        "type": CONDITION, "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
        "observedGeneration": rule.meta.generation, "lastTransitionTime": now.wall,
    });
    let fields = json!({"metadata": {"uid": rule.meta.uid}, "status": {"conditions": [condition]}});
    let write = Write::apply(&*rule, NAME, fields)
        .on_subresource("status")
        .because("the pods that it evicts have changed");
    let applied = cx.apply(Plan::of(write)).await;
    applied.all_done().map(|()| Requeue::Forget).map_err(|error| ReconcileError {
        because: format!("add condition to DeviceTaintRule status: {}", error.because),
        ..error
    })
}

/// How long the next status write of a rule must wait: one generation is reported every ten seconds.
fn delay_after(current: &RuleCondition, rule: &DeviceTaintRule, now: Now) -> Option<Duration> {
    if current.observed_generation != rule.meta.generation {
        return None;
    }
    let next = current.last_transition_time?.plus_seconds(STATUS_PERIOD.as_secs().cast_signed());
    Some(now.until(next)).filter(|delay| !delay.is_zero())
}

/// The contents of the condition.
struct Report {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Report {
    fn is_reported_by(&self, current: &RuleCondition, rule: &DeviceTaintRule) -> bool {
        current.status == self.status
            && current.reason == self.reason
            && *current.message == *self.message
            && current.observed_generation == rule.meta.generation
    }
}

fn report(
    view: &View<'_>,
    memory: &Memory<EvictionMemory>,
    rule: &Arc<DeviceTaintRule>,
    evicted: u64,
    options: &DeviceTaintEvictionOptions,
) -> Report {
    let mut report = match &*rule.taint.effect {
        NO_EXECUTE => in_progress(&pending(view, memory, rule, &no_execute_rules(view), options), evicted),
        "None" => {
            Report { status: "False", reason: "NoEffect", message: dry_run(view, memory, rule, options) }
        }
        _ => Report {
            status: "False",
            reason: "OtherEffect",
            message: "Eviction only happens for the NoExecute effect.".to_owned(),
        },
    };
    if evicted > 0 {
        let space = if report.message.is_empty() { "" } else { " " };
        let pods = count(evicted, "pod", "pods");
        report.message = format!("{}{space}{pods} evicted since starting the controller.", report.message);
    }
    report
}

/// The numbers of pods and of their namespaces.
struct PodCount {
    pods: u64,
    namespaces: u64,
}

fn in_progress(pending: &PodCount, evicted: u64) -> Report {
    if pending.pods == 0 {
        let reason = if evicted > 0 { "Completed" } else { "NotStarted" };
        return Report { status: "False", reason, message: String::new() };
    }
    let verb = if pending.pods == 1 { "needs" } else { "need" };
    let pods = count(pending.pods, "pod", "pods");
    let namespaces = count(pending.namespaces, "namespace", "different namespaces");
    let message = format!("{pods} {verb} to be evicted in {namespaces}.");
    Report { status: "True", reason: "PodsPendingEviction", message }
}

/// The pods that are evicted, now or later, because of a rule among others.
fn pending(
    view: &View<'_>,
    memory: &Memory<EvictionMemory>,
    rule: &Arc<DeviceTaintRule>,
    rules: &Rules<'_>,
    options: &DeviceTaintEvictionOptions,
) -> PodCount {
    let mut pods = BTreeSet::new();
    let candidates = claims_of(view, rule).into_iter().flat_map(|claim| pods_of(view, claim, options));
    for pod in candidates.filter(|pod| !pod.is_terminating()) {
        let eviction = eviction_of(view, memory, pod, rules, options);
        let is_of_rule = |eviction: &super::taints::Eviction| {
            eviction.rules.iter().any(|reason| reason.uid == rule.meta.uid)
        };
        if eviction.as_ref().is_some_and(is_of_rule) {
            pods.insert(&pod.meta.key);
        }
    }
    let namespaces: BTreeSet<_> = pods.iter().map(|key| &key.namespace).collect();
    PodCount { pods: pods.len() as u64, namespaces: namespaces.len() as u64 }
}

/// What would happen if the effect of a rule was `NoExecute`. Nothing is enqueued or remembered.
fn dry_run(
    view: &View<'_>,
    memory: &Memory<EvictionMemory>,
    rule: &Arc<DeviceTaintRule>,
    options: &DeviceTaintEvictionOptions,
) -> String {
    let would = pending(view, memory, rule, &Rules::Only(rule), options);
    let published = count(published_devices(view, rule), "published device", "published devices");
    let allocated = count(allocated_devices(view, rule), "allocated device", "allocated devices");
    let pods = count(would.pods, "pod", "pods");
    let namespaces = count(would.namespaces, "namespace", "different namespaces");
    format!(
        "{published} selected. {allocated} selected. {pods} would be evicted in {namespaces} if the effect was \
         NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )
}

/// The devices of current slices that a rule selects. Only a rule that selects all devices needs a pass over all slices.
pub(super) fn published_devices(view: &View<'_>, rule: &DeviceTaintRule) -> u64 {
    let Some(selector) = &rule.device_selector else { return 0 };
    let slices: Vec<&Arc<ResourceSlice>> = match slices_value(selector) {
        Some(value) => view.store::<ResourceSlice>().by_index(&SLICES_BY_POOL, &value).collect(),
        None => view.all::<ResourceSlice>().collect(),
    };
    let mut current: BTreeMap<(&InternedStr, &InternedStr), Option<i64>> = BTreeMap::new();
    let mut selected = 0;
    for slice in slices {
        let generation = current
            .entry((&slice.driver, &slice.pool))
            .or_insert_with(|| current_generation(view, &slice.driver, &slice.pool));
        if *generation == Some(slice.pool_generation) {
            let names = slice.devices.iter().map(|device| &device.name);
            selected +=
                names.filter(|name| selector.selects(&slice.driver, &slice.pool, name)).count() as u64;
        }
    }
    selected
}

/// The results of all allocations that a rule selects.
fn allocated_devices(view: &View<'_>, rule: &DeviceTaintRule) -> u64 {
    let selected = |claim: &&Arc<ResourceClaim>| {
        let devices = claim.allocated_devices.iter().flatten();
        devices.filter(|device| selects(rule, device)).count() as u64
    };
    claims_of(view, rule).iter().map(selected).sum()
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
