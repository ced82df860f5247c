//! Computes a number of replicas from the values of one metric.
//!
//! Replicas are computed with floats, in the original's order of operations: exact arithmetic gives other sizes.
//!
//! Parity: pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{ArcStr, ConditionStatus, Pod, PodPhase, Quantity, Time};

/// Nanoseconds since 1970, or of a duration.
pub(super) type Nanoseconds = i128;

/// What a metrics API reports about one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// When it was taken.
    pub(super) timestamp: i128,
    /// The time over which it was taken.
    pub(super) window: i128,
    /// The value in milli units.
    pub(super) value: i64,
}

/// Samples by pod name.
pub(super) type Samples = BTreeMap<ArcStr, Sample>;

/// By how much the ratio of a metric to its target may differ from 1 without an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    /// Below 1.
    pub(super) down: f64,
    /// Above 1.
    pub(super) up: f64,
}

impl Tolerances {
    fn contain(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// The pods of a target and the rules by which they count.
#[derive(Clone, Debug)]
pub(super) struct Pods<'a> {
    /// All pods that the selector matches.
    pub(super) pods: &'a [Arc<Pod>],
    /// The wall clock.
    pub(super) now: i128,
    /// How long after its start the CPU usage of a pod counts only under conditions.
    pub(super) cpu_initialization_period: i128,
    /// How long after its start a change of readiness is the initial one.
    pub(super) initial_readiness_delay: i128,
    /// Whether requests of whole pods are honored.
    pub(super) pod_level_resources: bool,
}

/// The number of replicas and the value that the status shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calculated {
    /// The replicas.
    pub(super) replicas: i32,
    /// The value in milli units.
    pub(super) usage: i64,
    /// The percentage of the requests, for targets of utilization.
    pub(super) utilization: Option<i32>,
}

/// Whose request is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requested<'a> {
    /// The resource.
    pub(super) resource: &'a str,
    /// The container; empty for the whole pod.
    pub(super) container: &'a str,
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_SAMPLES: &str = "did not receive metrics for targeted pods (pods might be unready)";
const CPU: &str = "cpu";

struct Groups<'a> {
    ready: usize,
    unready: Vec<&'a ArcStr>,
    missing: Vec<&'a ArcStr>,
    ignored: Vec<&'a ArcStr>,
}

impl Pods<'_> {
    /// The replicas for a target of utilization: a percentage of the requests.
    pub(super) fn for_utilization(
        &self,
        current: i32,
        target: i32,
        tolerances: Tolerances,
        mut samples: Samples,
        requested: Requested<'_>,
    ) -> Result<Calculated, String> {
        let groups = self.group_and_filter(&mut samples, requested.resource)?;
        let requests = self.requests(requested)?;
        let (ratio, utilization, usage) = utilization_ratio(&samples, &requests, target)?;
        let calculated = |replicas| Ok(Calculated { replicas, usage, utilization: Some(utilization) });
        let fill = |name: &ArcStr| {
            let request = requests.get(name).copied().unwrap_or_default();
            saturate(i128::from(request) * i128::from(target.max(100)) / 100)
        };
        if let Some(replicas) = groups.without_filling(current, ratio, tolerances) {
            return calculated(replicas);
        }
        groups.fill(&mut samples, ratio, fill);
        let (second, ..) = utilization_ratio(&samples, &requests, target)?;
        calculated(after_filling(current, ratio, second, tolerances, samples.len()))
    }

    /// The replicas for a target value per pod. The rules for CPU apply if that is the resource.
    pub(super) fn for_average(
        &self,
        current: i32,
        target: i64,
        tolerances: Tolerances,
        mut samples: Samples,
        resource: &str,
    ) -> Result<Calculated, String> {
        let groups = self.group_and_filter(&mut samples, resource)?;
        let (ratio, usage) = usage_ratio(&samples, target);
        let calculated = |replicas| Ok(Calculated { replicas, usage, utilization: None });
        if let Some(replicas) = groups.without_filling(current, ratio, tolerances) {
            return calculated(replicas);
        }
        groups.fill(&mut samples, ratio, |_| target);
        let (second, _) = usage_ratio(&samples, target);
        calculated(after_filling(current, ratio, second, tolerances, samples.len()))
    }

    /// The replicas for a target value of one object or of an external metric.
    pub(super) fn for_value(
        &self,
        current: i32,
        target: i64,
        tolerances: Tolerances,
        usage: i64,
    ) -> Result<Calculated, String> {
        let ratio = float(usage) / float(target);
        let calculated = |replicas| Ok(Calculated { replicas, usage, utilization: None });
        if current == 0 {
            return calculated(ceiling(ratio));
        }
        if tolerances.contain(ratio) {
            return calculated(current);
        }
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let is_ready = |pod: &&Arc<Pod>| pod.phase == PodPhase::Running && pod.is_ready();
        calculated(ceiling(ratio * count(self.pods.iter().filter(is_ready).count())))
    }

    /// Groups the pods, and discards the samples of pods that are ignored or unready.
    fn group_and_filter(&self, samples: &mut Samples, resource: &str) -> Result<Groups<'_>, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let groups = self.group(samples, resource);
        for name in groups.ignored.iter().chain(&groups.unready) {
            samples.remove(*name);
        }
        if samples.is_empty() {
            return Err(NO_SAMPLES.to_owned());
        }
        Ok(groups)
    }

    fn group(&self, samples: &Samples, resource: &str) -> Groups<'_> {
        let mut groups = Groups { ready: 0, unready: Vec::new(), missing: Vec::new(), ignored: Vec::new() };
        for pod in self.pods {
            let name = &pod.meta.key.name;
            if pod.is_terminating() || pod.phase == PodPhase::Failed {
                groups.ignored.push(name);
            } else if pod.phase == PodPhase::Pending {
                groups.unready.push(name);
            } else if let Some(sample) = samples.get(name) {
                if resource == CPU && self.is_unready_for_cpu(pod, sample) {
                    groups.unready.push(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.push(name);
            }
        }
        groups
    }

    /// Whether the CPU usage of a pod is that of its start, and not of its work.
    fn is_unready_for_cpu(&self, pod: &Pod, sample: &Sample) -> bool {
        let (Some((is_false, changed_at)), Some(start)) = (ready_condition(pod), pod.start_time()) else {
            return true;
        };
        let start = nanoseconds(start);
        if start + self.cpu_initialization_period > self.now {
            is_false || sample.timestamp < changed_at + sample.window
        } else {
            is_false && start + self.initial_readiness_delay > changed_at
        }
    }

    /// The requests of all pods in milli units.
    fn requests(&self, requested: Requested<'_>) -> Result<BTreeMap<&ArcStr, i64>, String> {
        let of_pod = |pod: &'_ Arc<Pod>| match pod.spec.pod_level_requests() {
            Some(requests) if self.pod_level_resources && requested.container.is_empty() => {
                let Requested { resource, .. } = requested;
                let request = requests.amount(resource).map(Quantity::milli);
                request.ok_or_else(|| {
                    format!("missing pod-level request for {resource} in Pod {}", pod.meta.key.name)
                })
            }
            _ => request_of_containers(pod, requested),
        };
        self.pods.iter().map(|pod| Ok((&pod.meta.key.name, of_pod(pod)?))).collect()
    }
}

fn request_of_containers(pod: &Pod, requested: Requested<'_>) -> Result<i64, String> {
    let Requested { resource, container } = requested;
    let name = &pod.meta.key.name;
    let mut total: i64 = 0;
    for one in pod.spec.containers().iter().chain(pod.spec.sidecars()) {
        if !container.is_empty() && one.name != container {
            continue;
        }
        let request = one.requests().amount(resource).ok_or_else(|| {
            format!("missing request for {resource} in container {} of Pod {name}", one.name)
        })?;
        total = total.saturating_add(request.milli());
        if !container.is_empty() {
            return Ok(total);
        }
    }
    if container.is_empty() {
        return Ok(total);
    }
    Err(format!("container {container} not found in Pod {name}"))
}

/// The replicas for a target value per pod of a metric that is not measured per pod.
///
/// The base is the number of replicas that exist, not the number that is wanted.
pub(super) fn for_value_per_pod(
    status_replicas: i32,
    target: i64,
    tolerances: Tolerances,
    usage: i64,
) -> Calculated {
    let ratio = float(usage) / (float(target) * f64::from(status_replicas));
    let replicas =
        if tolerances.contain(ratio) { status_replicas } else { ceiling(float(usage) / float(target)) };
    let average =
        if usage == i64::MAX { usage } else { ceiling_i64(float(usage) / f64::from(status_replicas)) };
    Calculated { replicas, usage: average, utilization: None }
}

impl Groups<'_> {
    fn scales_up_with_unready(&self, ratio: f64) -> bool {
        !self.unready.is_empty() && ratio > 1.0
    }

    /// The replicas if no pod has to be filled in.
    fn without_filling(&self, current: i32, ratio: f64, tolerances: Tolerances) -> Option<i32> {
        if self.scales_up_with_unready(ratio) || !self.missing.is_empty() {
            return None;
        }
        Some(if tolerances.contain(ratio) { current } else { ceiling(ratio * count(self.ready)) })
    }

    /// Fills in pods without samples, so that they hold back scaling in either direction.
    fn fill(&self, samples: &mut Samples, ratio: f64, at_scale_down: impl Fn(&ArcStr) -> i64) {
        let mut add = |name: &ArcStr, value| {
            samples.insert(name.clone(), Sample { value, ..Sample::default() });
        };
        if ratio < 1.0 {
            self.missing.iter().for_each(|name| add(name, at_scale_down(name)));
        } else if ratio > 1.0 {
            self.missing.iter().for_each(|name| add(name, 0));
        }
        if self.scales_up_with_unready(ratio) {
            self.unready.iter().for_each(|name| add(name, 0));
        }
    }
}

/// The replicas after pods were filled in. A change of direction keeps the current number.
fn after_filling(current: i32, first: f64, second: f64, tolerances: Tolerances, samples: usize) -> i32 {
    let turns = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
    if tolerances.contain(second) || turns {
        return current;
    }
    let replicas = ceiling(second * count(samples));
    let contradicts = (second < 1.0 && replicas > current) || (second > 1.0 && replicas < current);
    if contradicts { current } else { replicas }
}

/// The ratio to the target, the percentage, and the average value. Samples of unknown pods do not count.
fn utilization_ratio(
    samples: &Samples,
    requests: &BTreeMap<&ArcStr, i64>,
    target: i32,
) -> Result<(f64, i32, i64), String> {
    let (mut usage, mut requested, mut entries) = (0_i128, 0_i128, 0_i128);
    for (name, sample) in samples {
        if let Some(request) = requests.get(name) {
            usage += i128::from(sample.value);
            requested += i128::from(*request);
            entries += 1;
        }
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percentage = usage * 100 / requested;
    let percentage = i32::try_from(percentage).unwrap_or(if percentage < 0 { i32::MIN } else { i32::MAX });
    Ok((f64::from(percentage) / f64::from(target), percentage, saturate(usage / entries)))
}

/// The ratio to the target, and the average value.
fn usage_ratio(samples: &Samples, target: i64) -> (f64, i64) {
    let total: i128 = samples.values().map(|sample| i128::from(sample.value)).sum();
    let average = saturate(total / i128::try_from(samples.len().max(1)).unwrap_or(1));
    (float(average) / float(target), average)
}

/// Whether the `Ready` condition is false, and when it changed; `None` if there is none.
fn ready_condition(pod: &Pod) -> Option<(bool, Nanoseconds)> {
    /// Go's zero time, the first of January of year 1.
    const NO_TIME: Nanoseconds = -62_135_596_800 * SECOND;
    let time = |time: Option<Time>| time.map_or(NO_TIME, nanoseconds);
    match (pod.condition("Ready"), pod.full_condition("Ready")) {
        (Some(status), _) => Some((status == ConditionStatus::False, time(pod.ready_changed_at()))),
        (None, Some(odd)) => Some((false, time(odd.last_transition_time))),
        (None, None) => None,
    }
}

pub(super) const SECOND: Nanoseconds = 1_000_000_000;

fn nanoseconds(time: Time) -> Nanoseconds {
    Nanoseconds::from(time.unix_seconds()) * SECOND
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[expect(clippy::cast_precision_loss, reason = "the original rounds as well")]
fn float(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^52 pods")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Rounds up; capped at the largest number of replicas, and zero if it is not a number.
#[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
fn ceiling(number: f64) -> i32 {
    number.ceil() as i32
}

#[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
fn ceiling_i64(number: f64) -> i64 {
    number.ceil() as i64
}
