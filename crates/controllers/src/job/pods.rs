//! How many pods a Job needs, which surplus pods are deleted, and the bodies of new pods.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Job, Pod};
use keleustes_plan::{Plan, Write};
use serde_json::{Map, Value, json};

use super::backoff::{self, REQUEUE_DELAY_MIN, finished_at};
use super::view::{JobView, Member, counted_failures, ignored_failures, total_failures};
use super::{COMPLETION_INDEX, TRACKING_FINALIZER, is_tracked_or_adopted, tracking};
use crate::workloads::pod_creation::pod_from_template;
use crate::workloads::pod_ranking::phase_rank;
use crate::workloads::pod_writes;

/// The maximum number of pods that one reconcile creates, or deletes as surplus.
const BURST: usize = 500;

/// The longest generateName prefix: the API server appends five characters, and names end at 63.
const NAME_PREFIX_MAX: usize = 58;

const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The change of the number of active pods.
#[derive(Debug, PartialEq)]
pub(super) enum PodChanges {
    /// No change.
    None,
    /// Delete these pods without counting them.
    Delete(Vec<Arc<Pod>>),
    /// Create one pod per entry; the entry is the completion index of an Indexed Job. There is no entry if
    /// pods are missing but every index has failed, succeeded or has a pod.
    Create(Vec<Option<i64>>),
    /// Create pods after this backoff.
    Wait(Duration),
}

/// Decides how many pods to create or delete. Deletions come first; one reconcile does only one of the two.
pub(super) fn decide(inputs: &JobView) -> PodChanges {
    let active: Vec<&Member> = inputs.active().collect();
    if inputs.job.spec.suspend {
        return PodChanges::Delete(active.into_iter().map(|member| member.pod.clone()).collect());
    }
    let active_count = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let wanted = wanted(inputs, active_count);
    let mut surplus = surplus(inputs, active, usize::try_from(active_count - wanted).unwrap_or(0));
    surplus.truncate(BURST);
    if !surplus.is_empty() {
        return PodChanges::Delete(surplus);
    }
    let terminating = if inputs.only_replace_failed_pods() { inputs.terminating().count() } else { 0 };
    let missing = wanted - active_count - i64::try_from(terminating).unwrap_or(i64::MAX);
    let missing = usize::try_from(missing).unwrap_or(0).min(BURST);
    if missing == 0 { PodChanges::None } else { creations(inputs, missing) }
}

/// The desired number of active pods.
fn wanted(inputs: &JobView, active_count: i64) -> i64 {
    let parallelism = i64::from(inputs.job.spec.parallelism);
    match inputs.job.spec.completions {
        // One success completes the Job: no further pod is started, and running pods may finish.
        None if inputs.succeeded > 0 => active_count,
        None => parallelism,
        Some(completions) => (i64::from(completions) - i64::from(inputs.succeeded)).min(parallelism).max(0),
    }
}

/// The surplus pods: those without a valid or with a duplicate index, then others up to `at_least`.
fn surplus(inputs: &JobView, active: Vec<&Member>, at_least: usize) -> Vec<Arc<Pod>> {
    let (mut surplus, mut others) = (Vec::new(), Vec::new());
    if inputs.job.is_indexed() {
        let mut by_index: BTreeMap<Option<i64>, Vec<Arc<Pod>>> = BTreeMap::new();
        for member in active {
            by_index.entry(inputs.index_in_range(member)).or_default().push(member.pod.clone());
        }
        for (index, mut pods) in by_index {
            sort_for_deletion(&mut pods);
            others.extend(index.and_then(|_| pods.pop()));
            surplus.append(&mut pods);
        }
    } else {
        others = active.into_iter().map(|member| member.pod.clone()).collect();
    }
    if surplus.len() < at_least {
        sort_for_deletion(&mut others);
        let more = at_least - surplus.len();
        surplus.extend(others.into_iter().take(more));
    }
    surplus
}

/// Sorts pods so that those with the least progress come first and are deleted first.
fn sort_for_deletion(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| {
        let (restarts, sidecar_restarts) = pod.max_restarts();
        (
            (!pod.node_name.is_empty(), phase_rank(pod.phase), pod.is_ready()),
            // A ready pod without a transition time counts as the most recently ready one.
            pod.ready_since().map(Reverse),
            (Reverse(restarts), Reverse(sidecar_restarts)),
            pod.meta.creation_timestamp.map(Reverse),
            pod.meta.key.name.clone(),
        )
    });
}

fn creations(inputs: &JobView, missing: usize) -> PodChanges {
    let per_index = inputs.job.spec.backoff_limit_per_index.is_some();
    let left = if per_index { Duration::ZERO } else { inputs.backoff.remaining(inputs.now) };
    if !left.is_zero() {
        return PodChanges::Wait(left.max(REQUEUE_DELAY_MIN));
    }
    let Some(indexes) = &inputs.indexes else { return PodChanges::Create(vec![None; missing]) };
    let mut taken = indexes.succeeded.with(inputs.active().filter_map(|member| member.index));
    if inputs.only_replace_failed_pods() {
        taken = taken.with(inputs.terminating().filter_map(|member| member.index));
    }
    if let Some(failed) = &indexes.failed {
        taken = taken.union(failed);
    }
    let pending = taken.lowest_missing(inputs.completions(), missing);
    let wait_of = |index: &i64| {
        indexes.pods_to_replace.get(index).map_or(Duration::ZERO, |pod| {
            backoff::remaining(total_failures(pod).saturating_add(1), finished_at(pod), inputs.now)
        })
    };
    let (due, waiting): (Vec<i64>, Vec<i64>) = pending.iter().partition(|index| wait_of(index).is_zero());
    match waiting.iter().map(wait_of).min() {
        Some(shortest) if due.is_empty() => PodChanges::Wait(shortest.max(REQUEUE_DELAY_MIN)),
        _ => PodChanges::Create(due.into_iter().map(Some).collect()),
    }
}

pub(super) fn create(inputs: &JobView, indexes: &[Option<i64>]) -> Plan {
    let mut template = inputs.job.spec.template.json();
    if inputs.job.is_indexed() {
        add_index_variable(&mut template);
    }
    let body = |index: &Option<i64>| body(inputs, template.clone(), *index);
    let bodies: Result<Vec<Value>, &'static str> = indexes.iter().map(body).collect();
    match bodies {
        Ok(bodies) => {
            let because = "the Job has fewer active pods than desired";
            let create = |body| pod_writes::create(&*inputs.job, body, because);
            let mut plan = Plan::none();
            plan.push_slow_start(bodies.into_iter().map(create).collect());
            plan
        }
        Err(why) => Plan::error(why),
    }
}

fn body(
    inputs: &JobView,
    mut template: Map<String, Value>,
    index: Option<i64>,
) -> Result<Value, &'static str> {
    let job = &*inputs.job;
    if let Some(index) = index {
        let text = json!(index.to_string());
        for part in ["annotations", "labels"] {
            *entry(&mut template, &["metadata", part, COMPLETION_INDEX]) = text.clone();
        }
        if job.spec.backoff_limit_per_index.is_some() {
            let (counted, ignored) = failures_so_far(inputs, index);
            *entry(&mut template, &["metadata", "annotations", FAILURE_COUNT]) = json!(counted.to_string());
            if ignored > 0 {
                *entry(&mut template, &["metadata", "annotations", IGNORED_FAILURE_COUNT]) =
                    json!(ignored.to_string());
            }
        }
        let name = &job.meta.key.name;
        *entry(&mut template, &["spec", "hostname"]) = json!(format!("{name}-{index}"));
    }
    if let Some(group) = &inputs.pod_group {
        *entry(&mut template, &["spec", "schedulingGroup"]) = json!({"podGroupName": group});
    }
    let mut body = pod_from_template::<Job>(&template, &job.meta)?;
    let metadata = &mut body["metadata"];
    if let Some(index) = index {
        metadata["generateName"] = json!(name_prefix(&job.meta.key.name, index));
    }
    match &mut metadata["finalizers"] {
        Value::Array(finalizers) if finalizers.iter().any(|finalizer| *finalizer == *TRACKING_FINALIZER) => {}
        Value::Array(finalizers) => finalizers.push(json!(TRACKING_FINALIZER)),
        none => *none = json!([TRACKING_FINALIZER]),
    }
    Ok(body)
}

/// The counted and the ignored failures of an index, including the failure of the pod that is being
/// replaced.
fn failures_so_far(inputs: &JobView, index: i64) -> (i32, i32) {
    let failed_pod = inputs.indexes.as_ref().and_then(|indexes| indexes.pods_to_replace.get(&index));
    let Some(pod) = failed_pod else { return (0, 0) };
    let (counted, ignored) = (counted_failures(pod), ignored_failures(pod));
    if inputs.failure_policy_match(pod).counts_as_failure() {
        (counted.saturating_add(1), ignored)
    } else {
        (counted, ignored.saturating_add(1))
    }
}

/// The generateName of a pod of an Indexed Job. A long Job name is truncated.
fn name_prefix(job: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let mut length = job.len().min(NAME_PREFIX_MAX.saturating_sub(suffix.len()));
    while !job.is_char_boundary(length) {
        length -= 1;
    }
    format!("{}{suffix}", &job[..length])
}

/// The value at a path. Missing objects on the path are created.
fn entry<'t>(tree: &'t mut Map<String, Value>, path: &[&str]) -> &'t mut Value {
    let Some((first, rest)) = path.split_first() else { unreachable!("paths are written out above") };
    let mut value = tree.entry(*first).or_insert(Value::Null);
    for part in rest {
        if !value.is_object() {
            *value = json!({});
        }
        value = &mut value[*part];
    }
    value
}

/// Adds the index variable to every container that does not define it itself.
fn add_index_variable(template: &mut Map<String, Value>) {
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    for part in ["initContainers", "containers"] {
        let containers = template.get_mut("spec").and_then(|spec| spec.get_mut(part));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            match &mut container["env"] {
                Value::Array(env) if env.iter().any(|variable| variable["name"] == INDEX_VARIABLE) => {}
                Value::Array(env) => env.push(variable.clone()),
                none => *none = json!([variable]),
            }
        }
    }
}

/// Removes the finalizer from pods that are deleted without being counted. Pods without it need no write.
pub(super) fn remove_finalizers(pods: &[Arc<Pod>]) -> Plan {
    let mut plan = Plan::none();
    let tracked = pods.iter().filter(|pod| is_tracked_or_adopted(pod));
    plan.push_parallel(
        tracked
            .map(|pod| tracking::remove_tracking_finalizer(pod, "the pod is deleted without being counted"))
            .collect(),
    );
    plan
}

pub(super) fn delete<'a>(job: &Job, pods: impl Iterator<Item = &'a Arc<Pod>>, because: &'static str) -> Plan {
    let mut plan = Plan::none();
    let delete = |pod: &Arc<Pod>| -> Write { pod_writes::delete(job, pod, because) };
    plan.push_parallel(pods.map(delete).collect());
    plan
}
