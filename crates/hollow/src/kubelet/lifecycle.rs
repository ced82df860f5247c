//! State machine of one pod: starts, terminates and restarts its containers according to template,
//! annotations and time.

use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{ResourceVersion, Time};

use crate::clock::{after, since};
use crate::projections::{Phase, Pod, PodStatus, RestartPolicy, TemplateRef};

/// Parity: `pkg/kubelet`, the back-off of crashing containers.
const BACKOFF_BASE: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A container that ran this long starts with the shortest backoff again.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(600);
/// A pod that starts sooner is not reported as `ContainerCreating` first: that status would be outdated
/// immediately.
const REPORT_CREATING_FROM: Duration = Duration::from_millis(500);
/// Exit code of a killed process.
const EXIT_KILLED: i32 = 137;

/// Default behaviour of pods.
#[derive(Clone, Debug)]
pub(crate) struct PodDefaults {
    pub(crate) start_delay: Duration,
    /// Upper bound of a random addition to the delay.
    pub(crate) start_spread: Duration,
    /// How long pods run whose restart policy is not `Always`; `None` for ever.
    pub(crate) batch_run_for: Option<Duration>,
    /// The exit code of containers that are terminated gracefully and would not be restarted always.
    pub(crate) batch_killed_code: i32,
    pub(crate) termination_delay: Duration,
}

/// The next write of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodWrite {
    /// Patch the status.
    Status,
    /// Delete it with grace period zero: all containers have terminated, and the status says so.
    Delete,
}

/// One pod on its node. After a restart of the process, [`PodLifecycle::of`] continues from the pod's status.
#[derive(Clone, Debug)]
pub(crate) struct PodLifecycle {
    pub(super) template: TemplateRef,
    pub(super) generation: i64,
    pub(super) start_time: Timestamp,
    /// When the first container starts; `None` for never.
    starts_at: Option<Timestamp>,
    /// Volumes of the pod cannot be mounted yet, so no container starts.
    waits_for_volumes: bool,
    pub(super) stage: PodStage,
    /// Start and exit times of the started init containers.
    pub(super) init_runs: Vec<(Timestamp, Option<Timestamp>)>,
    pub(super) restarts: u32,
    /// The number of restarts that determines the next backoff.
    pub(super) crashes: u32,
    pub(super) last_exit: Option<Exit>,
    kill: Option<Kill>,
    readiness_gates_true: bool,
    pub(super) conditions: Conditions,
    /// Whether the status was written for this UID.
    pub(super) was_reported: bool,
    /// ResourceVersion after the last status write; `None` while one is in flight.
    written: Option<ResourceVersion>,
    status_update_due: bool,
    deletion_sent: bool,
}

/// The stage of the containers; all containers except init containers change together.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodStage {
    Creating,
    Initializing,
    Running { since: Timestamp },
    BackingOff { until: Timestamp, wait: Duration },
    Terminated { phase: Phase, exit: Option<Exit>, past_deadline: bool },
}

/// How a container terminated.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) started_at: Timestamp,
    pub(super) finished_at: Timestamp,
}

#[derive(Clone, Debug)]
struct Kill {
    at: Timestamp,
    code: i32,
}

/// The conditions set by the kubelet, with their transition times.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditions {
    pub(super) scheduled: ConditionState,
    pub(super) sandboxed: ConditionState,
    pub(super) initialized: ConditionState,
    pub(super) containers_ready: ConditionState,
    pub(super) ready: ConditionState,
}

/// A condition status and its transition time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ConditionState {
    pub(super) on: bool,
    pub(super) since: Time,
}

impl ConditionState {
    fn set(&mut self, on: bool, now: Timestamp) -> bool {
        let changed = self.on != on;
        if changed {
            *self = Self { on, since: crate::clock::stamp(now) };
        }
        changed
    }

    fn read(status: &PodStatus, name: &str, now: Timestamp) -> Self {
        let since = status.condition(name).and_then(|condition| condition.last_transition_time);
        Self { on: status.condition_is_true(name), since: since.unwrap_or(crate::clock::stamp(now)) }
    }
}

enum Event {
    Start,
    InitExit,
    Exit(i32),
    Restart,
    Kill(i32),
    DeadlineExceeded,
}

impl PodLifecycle {
    /// A pod observed for the first time: new, or continued from its status.
    pub(crate) fn of(
        pod: &Pod,
        pod_defaults: &PodDefaults,
        waits_for_volumes: bool,
        rng: &mut fastrand::Rng,
        now: Timestamp,
    ) -> Self {
        let spread = pod_defaults.start_spread.mul_f64(rng.f64());
        let start_time = pod.status.start_time.map_or(now, |time| timestamp_of(time, now));
        let mut lifecycle = Self {
            template: pod.template.clone(),
            generation: pod.generation,
            start_time,
            starts_at: None,
            waits_for_volumes,
            stage: PodStage::Creating,
            init_runs: Vec::new(),
            restarts: 0,
            crashes: 0,
            last_exit: None,
            kill: None,
            readiness_gates_true: false,
            conditions: Conditions {
                scheduled: ConditionState::read(&pod.status, "PodScheduled", now),
                sandboxed: ConditionState::read(&pod.status, "PodReadyToStartContainers", now),
                initialized: ConditionState::read(&pod.status, "Initialized", now),
                containers_ready: ConditionState::read(&pod.status, "ContainersReady", now),
                ready: ConditionState::read(&pod.status, "Ready", now),
            },
            was_reported: pod.status.start_time.is_some(),
            written: Some(ResourceVersion::default()),
            status_update_due: false,
            deletion_sent: false,
        };
        lifecycle.resume(&pod.status, now);
        lifecycle.starts_at = lifecycle.start_at(pod_defaults.start_delay + spread);
        let starts_later = lifecycle.starts_at.is_none_or(|at| since(at, now) >= REPORT_CREATING_FROM);
        lifecycle.status_update_due =
            !lifecycle.was_reported && lifecycle.stage == PodStage::Creating && starts_later;
        lifecycle.observe(pod, pod_defaults, now);
        lifecycle
    }

    /// Whether volumes of the pod cannot be mounted yet.
    pub(crate) fn wait_for_volumes(&mut self, waits: bool, now: Timestamp) {
        if self.waits_for_volumes && !waits {
            self.starts_at = self.starts_at.map(|at| at.max(now));
        }
        self.waits_for_volumes = waits;
        // It may last, so it is reported as `ContainerCreating`.
        self.status_update_due |= self.is_waiting_for_volumes() && !self.was_reported;
    }

    fn start_at(&self, usual: Duration) -> Option<Timestamp> {
        let behaviour = &self.template.behaviour;
        (!behaviour.never_start).then(|| after(self.start_time, behaviour.start_delay.unwrap_or(usual)))
    }

    /// Continues from the status that an earlier process reported.
    fn resume(&mut self, status: &PodStatus, now: Timestamp) {
        let Some(container) = status.container_statuses.first() else { return };
        let exited = container.last_state.terminated.as_ref().or(container.state.terminated.as_ref());
        self.last_exit = exited.map(|exited| Exit {
            code: exited.exit_code,
            started_at: exited.started_at.map_or(now, |time| timestamp_of(time, now)),
            finished_at: exited.finished_at.map_or(now, |time| timestamp_of(time, now)),
        });
        self.restarts = container.restart_count;
        self.crashes = container.restart_count;
        if let Some(running) = &container.state.running {
            let since = running.started_at.map_or(now, |time| timestamp_of(time, now));
            self.complete_init_containers(since);
            self.stage = PodStage::Running { since };
        } else if let Some(exit) = self.last_exit.clone().filter(|_| !status.phase.is_final()) {
            self.complete_init_containers(exit.started_at);
            let wait = backoff(self.crashes);
            self.stage = PodStage::BackingOff { until: after(exit.finished_at, wait), wait };
        }
    }

    fn complete_init_containers(&mut self, at: Timestamp) {
        let each = self.template.init_containers.iter();
        self.init_runs = each.map(|container| (at, (!container.is_sidecar).then_some(at))).collect();
    }

    /// Applies an observed pod.
    pub(crate) fn observe(&mut self, pod: &Pod, pod_defaults: &PodDefaults, now: Timestamp) {
        if self.template != pod.template {
            self.template = pod.template.clone();
            self.starts_at = self.start_at(pod_defaults.start_delay);
        }
        self.generation = pod.generation;
        self.readiness_gates_true =
            pod.template.readiness_gates.iter().all(|gate| pod.status.condition_is_true(gate));
        // This process reports a terminal phase only for terminated pods, so another client set it.
        if pod.status.phase.is_final() && !self.has_terminated() {
            let phase = pod.status.phase;
            self.stage = PodStage::Terminated { phase, exit: None, past_deadline: false };
            self.status_update_due = false;
        }
        self.status_update_due |= self.was_overwritten(pod);
        if pod.meta.deletion_timestamp.is_some() {
            self.begin_termination(
                pod.deletion_grace_period.unwrap_or(self.template.grace_period),
                pod_defaults,
                now,
            );
        }
        self.advance(pod_defaults, now);
    }

    /// Whether another client overwrote the reported conditions, as the node lifecycle controller does while
    /// a node is failed.
    fn was_overwritten(&self, pod: &Pod) -> bool {
        let is_newer = |written: &ResourceVersion| !pod.meta.resource_version.is_older_than(written);
        let status = &pod.status;
        self.was_reported
            && !self.has_terminated()
            && self.written.as_ref().is_some_and(is_newer)
            && (status.condition_is_true("Ready") != self.conditions.ready.on
                || status.condition_is_true("ContainersReady") != self.conditions.containers_ready.on)
    }

    fn begin_termination(&mut self, grace_period: Duration, pod_defaults: &PodDefaults, now: Timestamp) {
        let delay = self.template.behaviour.termination_delay.unwrap_or(pod_defaults.termination_delay);
        let has_started = matches!(self.stage, PodStage::Running { .. });
        let wait = if has_started { delay.min(grace_period) } else { Duration::ZERO };
        let is_batch = self.template.restart_policy != RestartPolicy::Always;
        let code = match delay > grace_period {
            true => EXIT_KILLED,
            false if is_batch => pod_defaults.batch_killed_code,
            false => 0,
        };
        let at = after(now, wait);
        // A second deletion may shorten the grace period, never extend it.
        if self.kill.as_ref().is_none_or(|kill| at < kill.at) {
            self.kill = Some(Kill { at, code });
        }
    }

    /// Applies the events that are due.
    pub(crate) fn advance(&mut self, pod_defaults: &PodDefaults, now: Timestamp) {
        while let Some((at, event)) = self.next_event(pod_defaults)
            && at <= now
        {
            self.apply_event(&event, pod_defaults, now);
        }
        self.update_conditions(now);
    }

    /// When the next event or readiness change is due.
    pub(crate) fn due(&self, pod_defaults: &PodDefaults, now: Timestamp) -> Option<Timestamp> {
        let event = self.next_event(pod_defaults).map(|(at, _)| at);
        [event, self.readiness(now).1].into_iter().flatten().min()
    }

    /// The write that is due.
    pub(crate) fn next_write(&self) -> Option<PodWrite> {
        if self.status_update_due {
            return Some(PodWrite::Status);
        }
        (self.kill.is_some() && self.has_terminated() && !self.deletion_sent).then_some(PodWrite::Delete)
    }

    /// Records that a write is sent; if it fails, call [`PodLifecycle::on_write_failed`].
    pub(crate) fn mark_sent(&mut self, write: PodWrite) {
        match write {
            PodWrite::Status => {
                self.status_update_due = false;
                self.was_reported = true;
                self.written = None;
            }
            PodWrite::Delete => self.deletion_sent = true,
        }
    }

    /// Records the resourceVersion of a completed status write.
    pub(crate) fn on_written(&mut self, version: &ResourceVersion) {
        self.written = Some(version.clone());
    }

    pub(crate) fn on_write_failed(&mut self, write: PodWrite) {
        match write {
            PodWrite::Status => self.status_update_due = true,
            PodWrite::Delete => self.deletion_sent = false,
        }
    }

    pub(crate) fn has_terminated(&self) -> bool {
        matches!(self.stage, PodStage::Terminated { .. })
    }

    /// Whether no container has started.
    pub(crate) fn is_creating(&self) -> bool {
        matches!(self.stage, PodStage::Creating)
    }

    pub(crate) fn is_waiting_for_volumes(&self) -> bool {
        self.is_creating() && self.waits_for_volumes
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.stage, PodStage::Running { .. })
    }

    fn next_event(&self, pod_defaults: &PodDefaults) -> Option<(Timestamp, Event)> {
        let of_stage = match &self.stage {
            PodStage::Creating if self.waits_for_volumes => None,
            PodStage::Creating => self.starts_at.map(|at| (at, Event::Start)),
            PodStage::Initializing => self.next_init_exit(),
            PodStage::Running { since } => self.next_exit(*since, pod_defaults),
            PodStage::BackingOff { until, .. } => Some((*until, Event::Restart)),
            PodStage::Terminated { .. } => return None,
        };
        let kill = self.kill.as_ref().map(|kill| (kill.at, Event::Kill(kill.code)));
        let deadline =
            self.template.active_deadline.map(|most| (after(self.start_time, most), Event::DeadlineExceeded));
        // At equal times the first wins: a deleted pod does not start any more.
        [kill, deadline, of_stage].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn next_init_exit(&self) -> Option<(Timestamp, Event)> {
        let (started, _) = self.init_runs.last()?;
        let takes = self.template.behaviour.init_run_for.unwrap_or_default();
        Some((after(*started, takes), Event::InitExit))
    }

    fn next_exit(&self, started: Timestamp, pod_defaults: &PodDefaults) -> Option<(Timestamp, Event)> {
        let behaviour = &self.template.behaviour;
        let is_batch = self.template.restart_policy != RestartPolicy::Always;
        let run_for = behaviour.run_for.or(pod_defaults.batch_run_for.filter(|_| is_batch));
        let exit = run_for.map(|time| (after(started, time), Event::Exit(behaviour.exit_code.unwrap_or(0))));
        let crashes = behaviour.crash_times.is_none_or(|times| self.restarts < times);
        let crash = behaviour.crash_after.filter(|_| crashes);
        let crash = crash.map(|time| (after(started, time), Event::Exit(behaviour.exit_code.unwrap_or(1))));
        // A pod with `crash-after` that finally runs to its end exits with 0, whatever code it crashes with.
        let exit = match exit {
            Some((at, _)) if behaviour.crash_after.is_some() => Some((at, Event::Exit(0))),
            exit => exit,
        };
        [crash, exit].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn apply_event(&mut self, event: &Event, pod_defaults: &PodDefaults, now: Timestamp) {
        match *event {
            Event::Start => self.start_next(now),
            Event::InitExit => {
                if let Some((_, finished)) = self.init_runs.last_mut() {
                    *finished = Some(now);
                }
                self.start_next(now);
            }
            Event::Exit(code) => self.exit(code, now),
            Event::Restart => {
                self.restarts += 1;
                self.stage = PodStage::Running { since: now };
            }
            Event::Kill(code) => self.terminate(code, false, now),
            Event::DeadlineExceeded => self.terminate(EXIT_KILLED, true, now),
        }
        // A stage that ends at the same instant is not reported.
        let passes = matches!(self.next_event(pod_defaults), Some((at, _)) if at <= now);
        self.status_update_due |= !passes;
    }

    /// Starts the sidecars up to and including the next init container, or else the main containers.
    fn start_next(&mut self, now: Timestamp) {
        while let Some(container) = self.template.init_containers.get(self.init_runs.len()) {
            self.init_runs.push((now, None));
            if !container.is_sidecar {
                self.stage = PodStage::Initializing;
                return;
            }
        }
        self.stage = PodStage::Running { since: now };
    }

    fn exit(&mut self, code: i32, now: Timestamp) {
        let PodStage::Running { since: started_at } = self.stage else { return };
        let exit = Exit { code, started_at, finished_at: now };
        let restarts = match self.template.restart_policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        };
        if !restarts {
            let phase = if code == 0 { Phase::Succeeded } else { Phase::Failed };
            self.stage = PodStage::Terminated { phase, exit: Some(exit), past_deadline: false };
            return;
        }
        if since(now, started_at) >= BACKOFF_RESET_AFTER {
            self.crashes = 0;
        }
        let wait = backoff(self.crashes);
        self.crashes += 1;
        self.last_exit = Some(exit);
        self.stage = PodStage::BackingOff { until: after(now, wait), wait };
    }

    /// Terminates all containers finally.
    fn terminate(&mut self, code: i32, past_deadline: bool, now: Timestamp) {
        let exit = match &self.stage {
            PodStage::Running { since } => Some(Exit { code, started_at: *since, finished_at: now }),
            PodStage::BackingOff { .. } => self.last_exit.clone(),
            _ => None,
        };
        let succeeded = !past_deadline && exit.as_ref().is_some_and(|exit| exit.code == 0);
        let phase = if succeeded { Phase::Succeeded } else { Phase::Failed };
        self.stage = PodStage::Terminated { phase, exit, past_deadline };
    }

    /// Whether the containers are ready, and when that changes by time alone.
    fn readiness(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        let PodStage::Running { since: started } = self.stage else { return (false, None) };
        let behaviour = &self.template.behaviour;
        if behaviour.never_ready {
            return (false, None);
        }
        let ready_at = after(started, behaviour.ready_after.unwrap_or_default());
        if now < ready_at {
            return (false, Some(ready_at));
        }
        let Some(period) = behaviour.readiness_flips else { return (true, None) };
        let flips = since(now, ready_at).as_nanos() / period.as_nanos().max(1);
        let next = period.saturating_mul(u32::try_from(flips + 1).unwrap_or(u32::MAX));
        (flips.is_multiple_of(2), Some(after(ready_at, next)))
    }

    fn update_conditions(&mut self, now: Timestamp) {
        let containers_ready = self.readiness(now).0;
        let is_initialized = match self.stage {
            PodStage::Creating | PodStage::Initializing => self.template.init_containers.is_empty(),
            PodStage::Running { .. } | PodStage::BackingOff { .. } => true,
            PodStage::Terminated { .. } => self.conditions.initialized.on,
        };
        let has_sandbox = !matches!(self.stage, PodStage::Creating | PodStage::Terminated { .. });
        let conditions = &mut self.conditions;
        conditions.scheduled.set(true, now);
        // These change only together with the stage, which is reported anyway.
        conditions.initialized.set(is_initialized, now);
        conditions.sandboxed.set(has_sandbox, now);
        let mut changed = conditions.containers_ready.set(containers_ready, now);
        changed |= conditions.ready.set(containers_ready && self.readiness_gates_true, now);
        self.status_update_due |= changed && !self.terminated_externally();
    }

    /// Whether another client set the terminal phase; its status must not be overwritten.
    fn terminated_externally(&self) -> bool {
        matches!(&self.stage, PodStage::Terminated { exit: None, past_deadline: false, .. } if !self.status_update_due)
    }
}

/// The backoff before the next restart.
fn backoff(restarts: u32) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        more => BACKOFF_BASE.saturating_mul(1 << (more - 1).min(10)).min(BACKOFF_MAX),
    }
}

fn timestamp_of(time: Time, now: Timestamp) -> Timestamp {
    Timestamp::from_second(time.unix_seconds()).unwrap_or(now)
}
