//! The reconcile of a pod: its eviction is scheduled, cancelled or carried out.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_objects::{ErrorReason, Key, Kind as _, Pod, ResourceVersion, Time, Uid};
use keleustes_plan::{
    Context, Delay, InvolvedObject, Memory, Now, OnFailure, Outcome, PatchKind, Plan, PlannedEvent,
    ReconcileError, Requeue, Write,
};
use serde_json::{Value, json};

use super::memory::EvictionMemory;
use super::pods::eviction_of;
use super::taints::{Eviction, RuleRef, no_execute_rules};
use super::{DELETED, DELETION_DURATION, DeviceTaintEvictionOptions, EvictionItem};
use crate::disruption_target;

const REASON: &str = "DeletionByDeviceTaintManager";
const MESSAGE: &str = "Device Taint manager: deleting due to NoExecute taint";
const BECAUSE: &str = "one of its devices has a NoExecute taint that its claim does not tolerate";

pub(super) async fn reconcile(
    options: &DeviceTaintEvictionOptions,
    memory: &Memory<EvictionMemory>,
    cx: &mut Context<'_>,
    key: &Key,
    uid: &Uid,
) -> Result<Requeue, ReconcileError> {
    let (found, now) = cx.gather(|view| {
        let pod = view.get::<Pod>(key).filter(|pod| pod.meta.uid == *uid);
        let eviction = pod.map(|pod| eviction_of(view, memory, pod, &no_execute_rules(view), options));
        (eviction, view.now())
    });
    let Some(eviction) = found else {
        memory.with(|memory| memory.forget(key, uid));
        return Ok(Requeue::Forget);
    };
    if memory.with(|memory| memory.is_evicted(uid)) {
        return Ok(Requeue::Forget);
    }
    let Some(eviction) = eviction else {
        cancel(memory, cx, key, uid, now).await;
        return Ok(Requeue::Forget);
    };
    memory.with(|memory| memory.schedule(key, uid, eviction.rules.clone()));
    report_to_rules(memory, cx, &eviction.rules, now);
    let wait = now.until(eviction.due);
    if !wait.is_zero() {
        return Ok(Requeue::KeepBackoff(Delay::of(wait, "tolerationSeconds")));
    }
    evict(memory, cx, key, uid, eviction).await.map(|()| Requeue::Forget)
}

/// Cancels a scheduled eviction and says so.
async fn cancel(memory: &Memory<EvictionMemory>, cx: &mut Context<'_>, key: &Key, uid: &Uid, now: Now) {
    let Some(rules) = memory.with(|memory| memory.forget(key, uid)) else { return };
    let mut plan = Plan::none();
    plan.record(event(key, uid, "Cancelling deletion"));
    // A plan without writes does not fail.
    cx.apply(plan).await;
    report_to_rules(memory, cx, &rules, now);
}

/// Has the status of these rules written after a while, so that it counts many pods at once.
fn report_to_rules(
    memory: &Memory<EvictionMemory>,
    cx: &mut Context<'_>,
    rules: &BTreeSet<RuleRef>,
    now: Now,
) {
    for rule in rules {
        memory.with(|memory| memory.delay_status(&rule.uid, now.monotonic));
        cx.enqueue(EvictionItem::Rule(rule.key.clone(), rule.uid.clone()));
    }
}

/// Marks the live pod and deletes it. A pod of another UID is left alone, and one that is terminating already is counted only.
async fn evict(
    memory: &Memory<EvictionMemory>,
    cx: &mut Context<'_>,
    key: &Key,
    uid: &Uid,
    eviction: Eviction,
) -> Result<(), ReconcileError> {
    let live = cx.fetch::<Pod>(key).await?.filter(|pod| pod.meta.uid == *uid);
    let Some(pod) = live else {
        finish(memory, key, uid);
        return Ok(());
    };
    if !pod.is_terminating() {
        let now = cx.gather(|view| view.now().wall);
        let mut plan = Plan::none();
        plan.record(event(key, uid, "Marking for deletion"));
        writes(&Arc::new(pod), now).into_iter().for_each(|write| plan.push(write));
        let applied = cx.apply(plan).await;
        let is_gone = applied.outcomes.iter().any(
            |outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == ErrorReason::NotFound),
        );
        if is_gone {
            finish(memory, key, uid);
            return Ok(());
        }
        applied.all_done()?;
    }
    finish(memory, key, uid);
    let now = cx.gather(|view| view.now());
    cx.measure(DELETED.increment(&[]));
    cx.measure(DELETION_DURATION.measurement(&[], seconds_since(now, eviction.due)));
    for rule in &eviction.rules {
        memory.with(|memory| memory.count(&rule.uid));
    }
    report_to_rules(memory, cx, &eviction.rules, now);
    Ok(())
}

fn finish(memory: &Memory<EvictionMemory>, key: &Key, uid: &Uid) {
    memory.with(|memory| {
        memory.forget(key, uid);
        memory.evicted(uid);
    });
}

#[allow(clippy::cast_precision_loss)] // A duration for a histogram whose last bucket is four minutes.
fn seconds_since(now: Now, due: Time) -> f64 {
    now.wall.seconds_since(due) as f64 + f64::from(now.wall_subsecond_nanoseconds) / 1e9
}

fn writes(pod: &Arc<Pod>, now: Time) -> Vec<Write> {
    let mut writes = Vec::new();
    if !disruption_target::has_condition(pod, REASON, MESSAGE) {
        let mut condition = disruption_target::condition(pod, REASON, MESSAGE, now);
        // Unlike other controllers, the original sets none here.
        condition.as_object_mut().map(|condition| condition.remove("observedGeneration"));
        let status: Value = json!({"status": {"conditions": [condition]}});
        writes.push(Write::patch(&**pod, PatchKind::Strategic, status).on_subresource("status"));
    }
    writes.push(Write::delete(&**pod));
    writes.into_iter().map(|write| write.because(BECAUSE).on_failure(OnFailure::StopAndRetry)).collect()
}

fn event(pod: &Key, uid: &Uid, message: &str) -> PlannedEvent {
    let involved = InvolvedObject::named(
        &Pod::RESOURCE,
        &pod.namespace,
        &pod.name,
        uid.clone(),
        ResourceVersion::default(),
    );
    PlannedEvent::normal(involved, "DeviceTaintManagerEviction", message)
}
