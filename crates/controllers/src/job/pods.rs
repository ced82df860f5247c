//! How many pods a Job wants, which of them go, and what new ones look like.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Job, Pod};
use keleustes_plan::{Plan, Write};
use serde_json::{Map, Value, json};

use super::backoff::{self, REQUEUE_DELAY_MIN, finished_at};
use super::view::{JobView, Member, counted_failures, failures_of, ignored_failures};
use super::{COMPLETION_INDEX, TRACKING_FINALIZER, is_tracked_or_adopted, tracking};
use crate::workloads::pod_creation::pod_from_template;
use crate::workloads::pod_ranking::phase_rank;
use crate::workloads::pod_writes;

/// The most pods that one turn makes, or removes because there are too many.
const BURST: usize = 500;

/// The longest prefix to which the server adds five characters of its own.
const NAME_PREFIX_MAX: usize = 58;

const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// What is to be done about the number of pods.
#[derive(Debug, PartialEq)]
pub(super) enum PodChanges {
    /// There are as many as wanted.
    None,
    /// These are to go, without being counted.
    Remove(Vec<Arc<Pod>>),
    /// So many are to be made, each with its index if the Job has indexes.
    Create(Vec<Option<i64>>),
    /// Some are to be made, but not before this time has passed.
    Wait(Duration),
}

/// Decides about the number of pods. Removing comes before making; a turn does one of the two.
pub(super) fn decide(facts: &JobView) -> PodChanges {
    let active: Vec<&Member> = facts.active().collect();
    if facts.job.spec.suspend {
        return PodChanges::Remove(active.into_iter().map(|member| member.pod.clone()).collect());
    }
    let there = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let wanted = wanted(facts, there);
    let mut surplus = surplus(facts, active, usize::try_from(there - wanted).unwrap_or(0));
    surplus.truncate(BURST);
    if !surplus.is_empty() {
        return PodChanges::Remove(surplus);
    }
    let expected_back = if facts.only_replace_failed_pods() { facts.terminating().count() } else { 0 };
    let missing = wanted - there - i64::try_from(expected_back).unwrap_or(i64::MAX);
    let missing = usize::try_from(missing).unwrap_or(0).min(BURST);
    if missing == 0 { PodChanges::None } else { creations(facts, missing) }
}

/// How many pods are to be active.
fn wanted(facts: &JobView, there: i64) -> i64 {
    let parallelism = i64::from(facts.job.spec.parallelism);
    match facts.job.spec.completions {
        // One success is enough, so nobody is started after it; who runs may go on.
        None if facts.succeeded > 0 => there,
        None => parallelism,
        Some(completions) => (i64::from(completions) - i64::from(facts.succeeded)).min(parallelism).max(0),
    }
}

/// The pods that are too many: those without a place among the indexes, and as many others as it takes.
fn surplus(facts: &JobView, active: Vec<&Member>, at_least: usize) -> Vec<Arc<Pod>> {
    let (mut surplus, mut others) = (Vec::new(), Vec::new());
    if facts.job.is_indexed() {
        let mut by_index: BTreeMap<Option<i64>, Vec<Arc<Pod>>> = BTreeMap::new();
        for member in active {
            by_index.entry(facts.index_in_range(member)).or_default().push(member.pod.clone());
        }
        for (index, mut pods) in by_index {
            sort_for_removal(&mut pods);
            others.extend(index.and_then(|_| pods.pop()));
            surplus.append(&mut pods);
        }
    } else {
        others = active.into_iter().map(|member| member.pod.clone()).collect();
    }
    if surplus.len() < at_least {
        sort_for_removal(&mut others);
        let more = at_least - surplus.len();
        surplus.extend(others.into_iter().take(more));
    }
    surplus
}

/// Sorts pods, the first to be removed first: those that have done the least.
fn sort_for_removal(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| {
        let (restarts, sidecar_restarts) = pod.max_restarts();
        (
            (!pod.node_name.is_empty(), phase_rank(pod.phase), pod.is_ready()),
            // Who does not say since when counts as the newest.
            pod.ready_since().map(Reverse),
            (Reverse(restarts), Reverse(sidecar_restarts)),
            pod.meta.creation_timestamp.map(Reverse),
            pod.meta.key.name.clone(),
        )
    });
}

fn creations(facts: &JobView, missing: usize) -> PodChanges {
    let per_index = facts.job.spec.backoff_limit_per_index.is_some();
    let left = if per_index { Duration::ZERO } else { facts.backoff.remaining(facts.now) };
    if !left.is_zero() {
        return PodChanges::Wait(left.max(REQUEUE_DELAY_MIN));
    }
    let Some(indexes) = &facts.indexes else { return PodChanges::Create(vec![None; missing]) };
    let mut taken = indexes.succeeded.with(facts.active().filter_map(|member| member.index));
    if facts.only_replace_failed_pods() {
        taken = taken.with(facts.terminating().filter_map(|member| member.index));
    }
    if let Some(failed) = &indexes.failed {
        taken = taken.union(failed);
    }
    let pending = taken.lowest_missing(facts.completions(), missing);
    let wait_of = |index: &i64| {
        indexes.replaced.get(index).map_or(Duration::ZERO, |pod| {
            backoff::remaining(failures_of(pod).saturating_add(1), finished_at(pod), facts.now)
        })
    };
    let (due, waiting): (Vec<i64>, Vec<i64>) = pending.iter().partition(|index| wait_of(index).is_zero());
    match waiting.iter().map(wait_of).min() {
        Some(shortest) if due.is_empty() => PodChanges::Wait(shortest.max(REQUEUE_DELAY_MIN)),
        _ if due.is_empty() => PodChanges::None,
        _ => PodChanges::Create(due.into_iter().map(Some).collect()),
    }
}

/// Makes pods.
pub(super) fn create(facts: &JobView, places: &[Option<i64>]) -> Plan {
    let mut template = facts.job.spec.template.json();
    if facts.job.is_indexed() {
        add_index_variable(&mut template);
    }
    let body = |index: &Option<i64>| body(facts, template.clone(), *index);
    let bodies: Result<Vec<Value>, &'static str> = places.iter().map(body).collect();
    match bodies {
        Ok(bodies) => {
            let because = "there are fewer pods than the Job wants";
            let create = |body| pod_writes::create(&*facts.job, body, because);
            let mut plan = Plan::none();
            plan.push_slow_start(bodies.into_iter().map(create).collect());
            plan
        }
        Err(why) => Plan::error(why),
    }
}

fn body(
    facts: &JobView,
    mut template: Map<String, Value>,
    index: Option<i64>,
) -> Result<Value, &'static str> {
    let job = &*facts.job;
    if let Some(index) = index {
        let text = json!(index.to_string());
        for part in ["annotations", "labels"] {
            *entry(&mut template, &["metadata", part, COMPLETION_INDEX]) = text.clone();
        }
        if job.spec.backoff_limit_per_index.is_some() {
            let (counted, ignored) = failures_so_far(facts, index);
            *entry(&mut template, &["metadata", "annotations", FAILURE_COUNT]) = json!(counted.to_string());
            if ignored > 0 {
                *entry(&mut template, &["metadata", "annotations", IGNORED_FAILURE_COUNT]) =
                    json!(ignored.to_string());
            }
        }
        let name = &job.meta.key.name;
        *entry(&mut template, &["spec", "hostname"]) = json!(format!("{name}-{index}"));
    }
    let mut body = pod_from_template::<Job>(&template, &job.meta)?;
    let metadata = &mut body["metadata"];
    if let Some(index) = index {
        metadata["generateName"] = json!(name_prefix(&job.meta.key.name, index));
    }
    match &mut metadata["finalizers"] {
        Value::Array(held) if held.iter().any(|finalizer| *finalizer == *TRACKING_FINALIZER) => {}
        Value::Array(held) => held.push(json!(TRACKING_FINALIZER)),
        none => *none = json!([TRACKING_FINALIZER]),
    }
    Ok(body)
}

/// How often an index has failed, once its last pod is counted: what counts, and what policy ignores.
fn failures_so_far(facts: &JobView, index: i64) -> (i32, i32) {
    let replaced = facts.indexes.as_ref().and_then(|indexes| indexes.replaced.get(&index));
    let Some(pod) = replaced else { return (0, 0) };
    let (counted, ignored) = (counted_failures(pod), ignored_failures(pod));
    if facts.judgement(pod).counts() {
        (counted.saturating_add(1), ignored)
    } else {
        (counted, ignored.saturating_add(1))
    }
}

/// What the name of a pod of an index begins with; a long name of the Job is cut.
fn name_prefix(job: &str, index: i64) -> String {
    let end = format!("-{index}-");
    let mut length = job.len().min(NAME_PREFIX_MAX.saturating_sub(end.len()));
    while !job.is_char_boundary(length) {
        length -= 1;
    }
    format!("{}{end}", &job[..length])
}

/// A place in a tree of objects; what is missing on the way is made.
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

/// Lets every container know its index, unless it defines the variable itself.
fn add_index_variable(template: &mut Map<String, Value>) {
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    for part in ["initContainers", "containers"] {
        let containers = template.get_mut("spec").and_then(|spec| spec.get_mut(part));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            match &mut container["env"] {
                Value::Array(env) if env.iter().any(|there| there["name"] == INDEX_VARIABLE) => {}
                Value::Array(env) => env.push(variable.clone()),
                none => *none = json!([variable]),
            }
        }
    }
}

/// Takes the finalizers off pods that are to go without being counted; those that hold none need nothing.
pub(super) fn release(pods: &[Arc<Pod>]) -> Plan {
    let mut plan = Plan::none();
    let held = pods.iter().filter(|pod| is_tracked_or_adopted(pod));
    plan.push_parallel(held.map(|pod| tracking::release(pod, "it is not to be counted")).collect());
    plan
}

/// Deletes pods.
pub(super) fn delete<'a>(job: &Job, pods: impl Iterator<Item = &'a Arc<Pod>>, because: &'static str) -> Plan {
    let mut plan = Plan::none();
    let delete = |pod: &Arc<Pod>| -> Write { pod_writes::delete(job, pod, because) };
    plan.push_parallel(pods.map(delete).collect());
    plan
}
