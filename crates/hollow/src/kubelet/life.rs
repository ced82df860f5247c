//! Keeps one pod's containers going, exiting and restarting as its template, its annotations and the time ask.

use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{ResourceVersion, Time};

use crate::clock::{after, since};
use crate::seen::{Phase, Pod, PodStatus, RestartPolicy, TemplateRef};

/// Parity: `pkg/kubelet`, the back-off of crashing containers.
const BACKOFF_FIRST: Duration = Duration::from_secs(10);
const BACKOFF_LONGEST: Duration = Duration::from_secs(300);
/// Containers that ran this long start with a short back-off again.
const BACKOFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// A pod that starts sooner than this is not first reported as being created: the write would be
/// outdated before anybody has read it.
const CREATING_REPORTED_FROM: Duration = Duration::from_millis(500);
/// What a process that had to be killed exits with.
const EXIT_KILLED: i32 = 137;

/// What pods do that wish for nothing else.
#[derive(Clone, Debug)]
pub(crate) struct PodDefaults {
    pub(crate) start_delay: Duration,
    /// Up to this much is added to the delay, by chance.
    pub(crate) start_spread: Duration,
    /// How long pods run that are not restarted always; nothing for endlessly.
    pub(crate) batch_run_for: Option<Duration>,
    pub(crate) termination_delay: Duration,
}

/// What a pod wants to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Its status.
    Status,
    /// Its removal from the API: all containers have ended and the status says so.
    Delete,
}

/// One pod on its node. It is not lost with the process: [`Life::of`] takes up what the status tells.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(super) template: TemplateRef,
    pub(super) generation: i64,
    pub(super) accepted_at: Timestamp,
    /// When the first container starts; nothing for never.
    starts_at: Option<Timestamp>,
    pub(super) stage: Stage,
    /// When each init container that has been started was, and when it exited.
    pub(super) inits: Vec<(Timestamp, Option<Timestamp>)>,
    pub(super) restarts: u32,
    /// How many restarts the next back-off is measured by.
    pub(super) crashes: u32,
    pub(super) last_exit: Option<Exit>,
    kill: Option<Kill>,
    gates_hold: bool,
    pub(super) conditions: Conditions,
    /// Whether the status has been written in this life.
    pub(super) was_reported: bool,
    /// The state of the pod after the last write; nothing while one is under way.
    written: Option<ResourceVersion>,
    status_is_due: bool,
    removal_is_asked: bool,
}

/// Where the containers of the pod are; those that are no init containers all move in step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    Creating,
    Initializing,
    Running { since: Timestamp },
    BackingOff { until: Timestamp, wait: Duration },
    Ended { phase: Phase, exit: Option<Exit>, past_deadline: bool },
}

/// How a container ended.
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

/// The conditions that a kubelet answers for, each with the time of its last change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditions {
    pub(super) scheduled: Switch,
    pub(super) sandboxed: Switch,
    pub(super) initialized: Switch,
    pub(super) containers_ready: Switch,
    pub(super) ready: Switch,
}

/// A truth and since when it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Switch {
    pub(super) on: bool,
    pub(super) since: Time,
}

impl Switch {
    fn turn(&mut self, on: bool, now: Timestamp) -> bool {
        let changed = self.on != on;
        if changed {
            *self = Self { on, since: crate::clock::stamp(now) };
        }
        changed
    }

    fn read(reported: &PodStatus, name: &str, now: Timestamp) -> Self {
        let since = reported.condition(name).and_then(|condition| condition.last_transition_time);
        Self { on: reported.holds(name), since: since.unwrap_or(crate::clock::stamp(now)) }
    }
}

enum Event {
    Start,
    EndInit,
    Exit(i32),
    Restart,
    Kill(i32),
    PassDeadline,
}

impl Life {
    /// The life of a pod that is seen for the first time: its start, or what its status tells.
    pub(crate) fn of(
        pod: &Pod,
        pod_defaults: &PodDefaults,
        chance: &mut fastrand::Rng,
        now: Timestamp,
    ) -> Self {
        let spread = pod_defaults.start_spread.mul_f64(chance.f64());
        let accepted_at = pod.reported.start_time.map_or(now, |time| moment(time, now));
        let mut life = Self {
            template: pod.template.clone(),
            generation: pod.generation,
            accepted_at,
            starts_at: None,
            stage: Stage::Creating,
            inits: Vec::new(),
            restarts: 0,
            crashes: 0,
            last_exit: None,
            kill: None,
            gates_hold: false,
            conditions: Conditions {
                scheduled: Switch::read(&pod.reported, "PodScheduled", now),
                sandboxed: Switch::read(&pod.reported, "PodReadyToStartContainers", now),
                initialized: Switch::read(&pod.reported, "Initialized", now),
                containers_ready: Switch::read(&pod.reported, "ContainersReady", now),
                ready: Switch::read(&pod.reported, "Ready", now),
            },
            was_reported: pod.reported.start_time.is_some(),
            written: Some(ResourceVersion::default()),
            status_is_due: false,
            removal_is_asked: false,
        };
        life.resume(&pod.reported, now);
        life.starts_at = life.start_after(pod_defaults.start_delay + spread);
        let starts_later = life.starts_at.is_none_or(|at| since(at, now) >= CREATING_REPORTED_FROM);
        life.status_is_due = !life.was_reported && life.stage == Stage::Creating && starts_later;
        life.observe(pod, pod_defaults, now);
        life
    }

    fn start_after(&self, usual: Duration) -> Option<Timestamp> {
        let wishes = &self.template.behaviour;
        (!wishes.never_start).then(|| after(self.accepted_at, wishes.start_delay.unwrap_or(usual)))
    }

    /// Takes up what an earlier process reported.
    fn resume(&mut self, reported: &PodStatus, now: Timestamp) {
        let Some(container) = reported.container_statuses.first() else { return };
        let exited = container.last_state.terminated.as_ref().or(container.state.terminated.as_ref());
        self.last_exit = exited.map(|exited| Exit {
            code: exited.exit_code,
            started_at: exited.started_at.map_or(now, |time| moment(time, now)),
            finished_at: exited.finished_at.map_or(now, |time| moment(time, now)),
        });
        self.restarts = container.restart_count;
        self.crashes = container.restart_count;
        if let Some(running) = &container.state.running {
            let since = running.started_at.map_or(now, |time| moment(time, now));
            self.skip_inits(since);
            self.stage = Stage::Running { since };
        } else if let Some(exit) = self.last_exit.clone().filter(|_| !reported.phase.is_final()) {
            self.skip_inits(exit.started_at);
            let wait = backoff(self.crashes);
            self.stage = Stage::BackingOff { until: after(exit.finished_at, wait), wait };
        }
    }

    fn skip_inits(&mut self, at: Timestamp) {
        let each = self.template.init_containers.iter();
        self.inits = each.map(|container| (at, (!container.is_sidecar).then_some(at))).collect();
    }

    /// Takes in what others did to the pod.
    pub(crate) fn observe(&mut self, pod: &Pod, pod_defaults: &PodDefaults, now: Timestamp) {
        if self.template != pod.template {
            self.template = pod.template.clone();
            self.starts_at = self.start_after(pod_defaults.start_delay);
        }
        self.generation = pod.generation;
        self.gates_hold = pod.template.readiness_gates.iter().all(|gate| pod.reported.holds(gate));
        // This process says so only of pods whose life has ended; so somebody else ended this one.
        if pod.reported.phase.is_final() && !self.has_ended() {
            let phase = pod.reported.phase;
            self.stage = Stage::Ended { phase, exit: None, past_deadline: false };
            self.status_is_due = false;
        }
        self.status_is_due |= self.was_contradicted(pod);
        if pod.meta.deletion_timestamp.is_some() {
            self.ask_to_end(pod.deletion_grace.unwrap_or(self.template.grace), pod_defaults, now);
        }
        self.advance(pod_defaults, now);
    }

    /// Whether somebody has written over what this life has reported, as happens while a node is silent.
    fn was_contradicted(&self, pod: &Pod) -> bool {
        let is_news = |written: &ResourceVersion| !pod.meta.resource_version.is_older_than(written);
        let reported = &pod.reported;
        self.was_reported
            && !self.has_ended()
            && self.written.as_ref().is_some_and(is_news)
            && (reported.holds("Ready") != self.conditions.ready.on
                || reported.holds("ContainersReady") != self.conditions.containers_ready.on)
    }

    fn ask_to_end(&mut self, grace: Duration, pod_defaults: &PodDefaults, now: Timestamp) {
        let delay = self.template.behaviour.termination_delay.unwrap_or(pod_defaults.termination_delay);
        let has_started = matches!(self.stage, Stage::Running { .. });
        let wait = if has_started { delay.min(grace) } else { Duration::ZERO };
        let code = if delay > grace { EXIT_KILLED } else { 0 };
        let at = after(now, wait);
        // A second deletion may shorten the time that is left, never lengthen it.
        if self.kill.as_ref().is_none_or(|kill| at < kill.at) {
            self.kill = Some(Kill { at, code });
        }
    }

    /// Lets happen what is due.
    pub(crate) fn advance(&mut self, pod_defaults: &PodDefaults, now: Timestamp) {
        while let Some((at, event)) = self.next_event(pod_defaults)
            && at <= now
        {
            self.happen(&event, pod_defaults, now);
        }
        self.settle_conditions(now);
    }

    /// When to look again.
    pub(crate) fn due(&self, pod_defaults: &PodDefaults, now: Timestamp) -> Option<Timestamp> {
        let event = self.next_event(pod_defaults).map(|(at, _)| at);
        [event, self.readiness(now).1].into_iter().flatten().min()
    }

    /// What is to be written.
    pub(crate) fn want(&self) -> Option<Want> {
        if self.status_is_due {
            return Some(Want::Status);
        }
        (self.kill.is_some() && self.has_ended() && !self.removal_is_asked).then_some(Want::Delete)
    }

    /// What was wanted is being written; if that fails, [`Life::on_write_failed`].
    pub(crate) fn granted(&mut self, want: Want) {
        match want {
            Want::Status => {
                self.status_is_due = false;
                self.was_reported = true;
                self.written = None;
            }
            Want::Delete => self.removal_is_asked = true,
        }
    }

    /// The write has made this of the pod.
    pub(crate) fn settled(&mut self, version: &ResourceVersion) {
        self.written = Some(version.clone());
    }

    pub(crate) fn on_write_failed(&mut self, want: Want) {
        match want {
            Want::Status => self.status_is_due = true,
            Want::Delete => self.removal_is_asked = false,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended { .. })
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    fn next_event(&self, pod_defaults: &PodDefaults) -> Option<(Timestamp, Event)> {
        let of_stage = match &self.stage {
            Stage::Creating => self.starts_at.map(|at| (at, Event::Start)),
            Stage::Initializing => self.next_init_end(),
            Stage::Running { since } => self.next_exit(*since, pod_defaults),
            Stage::BackingOff { until, .. } => Some((*until, Event::Restart)),
            Stage::Ended { .. } => return None,
        };
        let kill = self.kill.as_ref().map(|kill| (kill.at, Event::Kill(kill.code)));
        let deadline =
            self.template.active_for_max.map(|most| (after(self.accepted_at, most), Event::PassDeadline));
        // The first of equals wins: a pod that is deleted does not start any more.
        [kill, deadline, of_stage].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn next_init_end(&self) -> Option<(Timestamp, Event)> {
        let (started, _) = self.inits.last()?;
        let takes = self.template.behaviour.init_run_for.unwrap_or_default();
        Some((after(*started, takes), Event::EndInit))
    }

    fn next_exit(&self, started: Timestamp, pod_defaults: &PodDefaults) -> Option<(Timestamp, Event)> {
        let wishes = &self.template.behaviour;
        let is_batch = self.template.restart_policy != RestartPolicy::Always;
        let run_for = wishes.run_for.or(pod_defaults.batch_run_for.filter(|_| is_batch));
        let exit = run_for.map(|time| (after(started, time), Event::Exit(wishes.exit_code.unwrap_or(0))));
        let crashes = wishes.crash_times.is_none_or(|times| self.restarts < times);
        let crash = wishes.crash_after.filter(|_| crashes);
        let crash = crash.map(|time| (after(started, time), Event::Exit(wishes.exit_code.unwrap_or(1))));
        // A pod that crashes first and then runs to its end must end well, whatever it crashes with.
        let exit = match exit {
            Some((at, _)) if wishes.crash_after.is_some() => Some((at, Event::Exit(0))),
            exit => exit,
        };
        [crash, exit].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn happen(&mut self, event: &Event, pod_defaults: &PodDefaults, now: Timestamp) {
        match *event {
            Event::Start => self.start_next(now),
            Event::EndInit => {
                if let Some((_, finished)) = self.inits.last_mut() {
                    *finished = Some(now);
                }
                self.start_next(now);
            }
            Event::Exit(code) => self.exit(code, now),
            Event::Restart => {
                self.restarts += 1;
                self.stage = Stage::Running { since: now };
            }
            Event::Kill(code) => self.end(code, false, now),
            Event::PassDeadline => self.end(EXIT_KILLED, true, now),
        }
        // What is gone within the same moment is not reported.
        let passes = matches!(self.next_event(pod_defaults), Some((at, _)) if at <= now);
        self.status_is_due |= !passes;
    }

    /// Starts sidecars up to the next init container, that one, or else what the pod is for.
    fn start_next(&mut self, now: Timestamp) {
        while let Some(container) = self.template.init_containers.get(self.inits.len()) {
            self.inits.push((now, None));
            if !container.is_sidecar {
                self.stage = Stage::Initializing;
                return;
            }
        }
        self.stage = Stage::Running { since: now };
    }

    fn exit(&mut self, code: i32, now: Timestamp) {
        let Stage::Running { since: started_at } = self.stage else { return };
        let exit = Exit { code, started_at, finished_at: now };
        let restarts = match self.template.restart_policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        };
        if !restarts {
            let phase = if code == 0 { Phase::Succeeded } else { Phase::Failed };
            self.stage = Stage::Ended { phase, exit: Some(exit), past_deadline: false };
            return;
        }
        if since(now, started_at) >= BACKOFF_FORGOTTEN_AFTER {
            self.crashes = 0;
        }
        let wait = backoff(self.crashes);
        self.crashes += 1;
        self.last_exit = Some(exit);
        self.stage = Stage::BackingOff { until: after(now, wait), wait };
    }

    /// Ends all containers for good.
    fn end(&mut self, code: i32, past_deadline: bool, now: Timestamp) {
        let exit = match &self.stage {
            Stage::Running { since } => Some(Exit { code, started_at: *since, finished_at: now }),
            Stage::BackingOff { .. } => self.last_exit.clone(),
            _ => None,
        };
        let ended_well = !past_deadline && exit.as_ref().is_some_and(|exit| exit.code == 0);
        let phase = if ended_well { Phase::Succeeded } else { Phase::Failed };
        self.stage = Stage::Ended { phase, exit, past_deadline };
    }

    /// Whether the containers are ready, and when that may change with nothing else happening.
    fn readiness(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        let Stage::Running { since: started } = self.stage else { return (false, None) };
        let wishes = &self.template.behaviour;
        if wishes.never_ready {
            return (false, None);
        }
        let ready_at = after(started, wishes.ready_after.unwrap_or_default());
        if now < ready_at {
            return (false, Some(ready_at));
        }
        let Some(period) = wishes.readiness_flips else { return (true, None) };
        let flips = since(now, ready_at).as_nanos() / period.as_nanos().max(1);
        let next = period.saturating_mul(u32::try_from(flips + 1).unwrap_or(u32::MAX));
        (flips.is_multiple_of(2), Some(after(ready_at, next)))
    }

    fn settle_conditions(&mut self, now: Timestamp) {
        let containers_ready = self.readiness(now).0;
        let is_initialized = match self.stage {
            Stage::Creating | Stage::Initializing => self.template.init_containers.is_empty(),
            Stage::Running { .. } | Stage::BackingOff { .. } => true,
            Stage::Ended { .. } => self.conditions.initialized.on,
        };
        let has_sandbox = !matches!(self.stage, Stage::Creating | Stage::Ended { .. });
        let conditions = &mut self.conditions;
        conditions.scheduled.turn(true, now);
        // These change together with the stage, which is reported anyway.
        conditions.initialized.turn(is_initialized, now);
        conditions.sandboxed.turn(has_sandbox, now);
        let mut changed = conditions.containers_ready.turn(containers_ready, now);
        changed |= conditions.ready.turn(containers_ready && self.gates_hold, now);
        self.status_is_due |= changed && !self.ended_elsewhere();
    }

    /// Whether the end was somebody else's doing, whose words are not to be written over.
    fn ended_elsewhere(&self) -> bool {
        matches!(&self.stage, Stage::Ended { exit: None, past_deadline: false, .. } if !self.status_is_due)
    }
}

/// How long a container waits for its restart after this many before.
fn backoff(restarts: u32) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        more => BACKOFF_FIRST.saturating_mul(1 << (more - 1).min(10)).min(BACKOFF_LONGEST),
    }
}

fn moment(time: Time, now: Timestamp) -> Timestamp {
    Timestamp::from_second(time.unix_seconds()).unwrap_or(now)
}
