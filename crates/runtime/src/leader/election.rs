//! Executes the elector's decisions: acquires, renews and releases the Lease.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use keleustes_objects::{ApiError, ErrorReason, Resource};
use keleustes_plan::{BoxFuture, PlannedEvent};
use kube::Client;

use super::config::{InvalidElectionConfig, LeaderElectionConfig};
use super::elector::{ElectionStep, Elector, MonotonicTime, Standing};
use super::leadership::{Leadership, SentAt};
use super::predecessor::{HANDOVER_ANNOTATION, Handover, Predecessor, annotation};
use super::process_lock::ProcessLock;
use super::record::LeaseRecord;
use super::single_object::{Change, SingleObject};
use crate::clock::Clocks;
use crate::failure_log::FailureLog;

static LEASES: Resource = Resource::built_in("coordination.k8s.io", "Lease");

/// The annotation that names the program of the leader: its identity, a space, and its name and version. The original
/// keeps annotations of the Lease, so this one means something only while it starts with the holder's identity.
pub const LEADER_ANNOTATION: &str = "keleustes.io/leader";

/// How long the release of the Lease waits for the last event to be written.
const LAST_EVENT_WITHIN: Duration = Duration::from_millis(500);

/// Observes the election. The default methods do nothing.
pub trait ElectionObserver: Send + Sync {
    /// An event to record on the Lease.
    fn event(&self, _event: PlannedEvent) {}
    /// Returns when the events so far have been written.
    fn events_written(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    /// Whether this process leads, for `leader_election_master_status`; called once before the first try.
    fn leading(&self, _lease_name: &str, _leading: bool) {}
    /// A renewal had to read the Lease first, for `leader_election_slowpath_total`.
    fn slow_path(&self, _lease_name: &str) {}
}

/// A process that competes for a Lease.
pub struct LeaderElection {
    config: LeaderElectionConfig,
    clocks: Clocks,
    random: fastrand::Rng,
    observer: Arc<dyn ElectionObserver>,
    elector: Elector,
    lease: SingleObject,
    leadership: Leadership,
    /// Whether the Lease may name this process: a write was sent and not refused.
    may_hold: bool,
    /// The previous holder of the Lease.
    predecessor: Predecessor,
    /// The state that is handed over from one leader to the next.
    handover: Option<Arc<dyn Handover>>,
    /// Knows which processes on this machine have ended; `None` without such a lock, or once it is taken.
    process_lock: Option<Arc<dyn ProcessLock>>,
    /// Which failures are logged.
    failures: FailureLog,
    /// The end of the holder's writes for which a takeover was last prepared.
    prepared_for: Option<MonotonicTime>,
}

/// A process that leads. The Lease is renewed only while [`Leading::hold`] runs.
pub struct Leading(LeaderElection);

/// How a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermEnd {
    /// The Lease was not renewed in time. Another process may lead from now on: end this one immediately.
    Lost,
    /// The process was asked to stop.
    Stopped {
        /// Whether the Lease was released, so that another process can take it without waiting.
        released: bool,
    },
}

/// Why a try did not acquire or renew the Lease.
enum TryFailed {
    /// Another process holds it.
    Held(&'static str),
    /// The request failed, or a conflict.
    Request(ApiError),
}

impl From<ApiError> for TryFailed {
    fn from(error: ApiError) -> Self {
        Self::Request(error)
    }
}

impl LeaderElection {
    /// Prepares to compete; nothing is sent yet.
    ///
    /// # Errors
    /// If the configuration would allow two leaders.
    pub fn new(
        client: Client,
        config: LeaderElectionConfig,
        clocks: Clocks,
        random: fastrand::Rng,
        observer: Arc<dyn ElectionObserver>,
    ) -> Result<Self, InvalidElectionConfig> {
        config.validate()?;
        Ok(Self {
            elector: Elector::new(config.clone(), clocks.monotonic()),
            lease: SingleObject::new(client, &LEASES, config.lease.clone(), config.request_timeout()),
            leadership: Leadership::elected(&config, clocks.clone()),
            failures: FailureLog::new(clocks.clone()),
            config,
            clocks,
            random,
            observer,
            may_hold: false,
            predecessor: Predecessor::default(),
            handover: None,
            process_lock: None,
            prepared_for: None,
        })
    }

    /// Writes a handover record for the next leader when the Lease is released, and prepares the takeover
    /// from a leader that leaves none.
    #[must_use]
    pub fn with_handover(mut self, handover: Arc<dyn Handover>) -> Self {
        self.handover = Some(handover);
        self
    }

    /// Takes the Lease of a process that this lock proves to have ended without waiting for its expiry.
    #[must_use]
    pub fn with_process_lock(mut self, lock: Arc<dyn ProcessLock>) -> Self {
        self.process_lock = Some(lock);
        self
    }

    /// The check before each write, and the health check; usable before and after the Lease is acquired.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Reads the Lease once, without trying to acquire it. If the Lease has no holder now and when it is
    /// acquired, the previous leader's writes had ended by now. A failed read does not matter.
    pub async fn read_lease(&mut self) {
        self.take_process_lock();
        if let Err(TryFailed::Request(error)) = self.read().await {
            tracing::debug!(lock = %self.config.lease, %error, "lease not read");
        }
    }

    /// Only watches the Lease, without trying to acquire it, until `until` resolves. A Lease that has not
    /// changed for its whole duration by then can be taken with the first try.
    pub async fn observe_lease_until(&mut self, until: impl Future<Output = ()>) {
        let mut until = pin!(until);
        let mut changes = self.lease.changes(self.config.retry_period);
        loop {
            tokio::select! {
                biased;
                () = &mut until => return,
                Some(change) = changes.next() => self.observe(change),
            }
        }
    }

    /// Stands by until this process leads; `None` if `stop` resolves first.
    pub async fn acquire(mut self, stop: impl Future<Output = ()>) -> Option<Leading> {
        let mut stop = pin!(stop);
        self.observer.leading(&self.config.lease.name, false);
        let mut changes = self.lease.changes(self.config.retry_period);
        tracing::info!(lock = %self.config.lease, "Attempting to acquire leader lease...");
        loop {
            let acquired = match self.elector.next(self.clocks.monotonic()) {
                ElectionStep::Try | ElectionStep::Renew => tokio::select! {
                    biased;
                    () = &mut stop => break,
                    acquired = self.try_once() => acquired,
                },
                // A claim that succeeded too late to be used: the election starts over.
                ElectionStep::Lost => {
                    self.elector.step_down(self.clocks.monotonic());
                    continue;
                }
                ElectionStep::WaitUntil(moment) => {
                    self.prepare_takeover();
                    let holder_writes_end_at =
                        self.elector.holder_writes_end_at().filter(|from| self.prepared_for != Some(*from));
                    let until =
                        self.clocks.instant(holder_writes_end_at.map_or(moment, |from| from.min(moment)));
                    tokio::select! {
                        biased;
                        () = &mut stop => break,
                        Some(change) = changes.next() => self.observe(change),
                        () = tokio::time::sleep_until(until) => {}
                    }
                    continue;
                }
            };
            // A process that was suspended after sending may have acquired a lease that has expired already.
            if acquired && self.leadership.still_held() {
                return Some(self.lead());
            }
        }
        if self.may_hold && self.config.release_on_stop {
            // The response to a claim was not awaited; other processes should not have to wait for its
            // expiry.
            self.leadership.revoke();
            self.release().await;
        }
        None
    }

    /// Prepares the takeover, once for each time the holder stops renewing.
    fn prepare_takeover(&mut self) {
        let holder_writes_end_at =
            self.elector.holder_writes_end_at().filter(|from| *from <= self.clocks.monotonic());
        if holder_writes_end_at.is_some() && holder_writes_end_at != self.prepared_for {
            self.prepared_for = holder_writes_end_at;
            self.handover.iter().for_each(|handover| handover.prepare_takeover());
        }
    }

    fn lead(self) -> Leading {
        tracing::info!(lock = %self.config.lease, "Successfully acquired lease");
        self.observer.leading(&self.config.lease.name, true);
        self.record_event("became leader");
        Leading(self)
    }

    /// What the watch brings, unless a read was faster.
    fn observe(&mut self, change: Change) {
        let now = self.clocks.monotonic();
        if !self.lease.take(change) {
            return;
        }
        match self.lease.observed() {
            Some(lease) => self.elector.observe(LeaseRecord::of(lease), now),
            None => self.elector.observe_absence(now),
        }
        self.fence_unless_holder();
    }

    /// An edit that leaves this process as the holder is found by the next renewal, as in the original.
    fn observe_while_leading(&mut self, change: Change) {
        let names_this_process = matches!(&change, Change::Current(lease) if LeaseRecord::of(lease).holder == self.config.identity);
        if !names_this_process {
            self.observe(change);
        }
    }

    /// Nothing is written while the Lease is known not to name this process, whatever the time of the last renewal:
    /// it was deleted, cleared or taken. A claim that succeeds allows writes again.
    fn fence_unless_holder(&self) {
        if !self.elector.is_observed_holder() {
            self.leadership.revoke();
        }
    }

    /// One try to acquire or renew the Lease.
    async fn try_once(&mut self) -> bool {
        self.take_process_lock();
        self.elector.trying(self.clocks.monotonic());
        match self.claim().await {
            Ok(()) => return true,
            Err(TryFailed::Held(reason)) => {
                tracing::debug!(lock = %self.config.lease, reason, "lease not acquired or renewed");
            }
            Err(TryFailed::Request(error)) => self.log_failure(&error),
        }
        self.elector.failed(self.clocks.monotonic(), &mut self.random);
        false
    }

    /// Asks once for the processes on this machine that have ended. While another one lives, the next try asks again.
    fn take_process_lock(&mut self) {
        let Some(lock) = &self.process_lock else { return };
        match lock.take(&self.config.identity) {
            Ok(Some(ended)) => {
                tracing::debug!(lock = %self.config.lease, ?ended, "processes on this machine that have ended");
                self.elector.observe_ended(ended, self.clocks.monotonic());
                self.process_lock = None;
            }
            Ok(None) => {
                tracing::debug!(lock = %self.config.lease, "another process has the lease lock file");
            }
            Err(error) => {
                if let Some(others) = self.failures.note(&error) {
                    tracing::warn!(lock = %self.config.lease, error, others, "Failed to take the lease lock file");
                }
            }
        }
    }

    /// Logs a failed request. A conflict is no failure: another process was faster.
    fn log_failure(&self, error: &ApiError) {
        let (lock, verb) =
            (&self.config.lease, if self.elector.is_observed_holder() { "renew" } else { "acquire" });
        if error.reason == ErrorReason::Conflict {
            tracing::debug!(%lock, %error, "Failed to {verb} lease, retrying");
        } else if let Some(others) = self.failures.note(&error.to_string()) {
            tracing::warn!(%lock, %error, others, "Failed to {verb} lease, retrying");
        }
    }

    /// Claims the Lease: without a read if this process certainly holds it, else after reading it.
    async fn claim(&mut self) -> Result<(), TryFailed> {
        if self.elector.may_renew_without_read(self.clocks.monotonic()) && self.write_claim().await.is_ok() {
            return Ok(());
        }
        self.read().await?;
        self.fence_unless_holder();
        match self.elector.standing(self.clocks.monotonic()) {
            Standing::Open => {}
            Standing::HeldByOther { .. } => {
                return Err(TryFailed::Held("held by another process, or not released by it"));
            }
            Standing::NotAppointed => {
                return Err(TryFailed::Held("not chosen by the API server, or another holder is preferred"));
            }
            Standing::Superseded => return Err(TryFailed::Held("taken by another process")),
        }
        if self.elector.is_observed_holder() {
            self.observer.slow_path(&self.config.lease.name);
        } else {
            self.predecessor = Predecessor::of(self.lease.observed(), self.elector.holder_writes_end_at());
        }
        self.write_claim().await
    }

    async fn read(&mut self) -> Result<(), TryFailed> {
        match self.lease.read().await {
            Ok(lease) => self.elector.observe(LeaseRecord::of(lease), self.clocks.monotonic()),
            Err(failure) if failure.reason == ErrorReason::NotFound => {
                self.elector.observe_absence(self.clocks.monotonic());
            }
            Err(failure) => return Err(failure.into()),
        }
        Ok(())
    }

    async fn write_claim(&mut self) -> Result<(), TryFailed> {
        // Other processes may count from the moment this is sent, so both clocks are read before.
        let sent =
            SentAt { monotonic: self.clocks.monotonic(), wall_nanoseconds: self.clocks.wall_nanoseconds() };
        let claim = self.elector.claim(self.wall());
        self.may_hold = true;
        self.lease.annotate(HANDOVER_ANNOTATION, None);
        let program = self.config.program.as_ref();
        self.lease.annotate(
            LEADER_ANNOTATION,
            program.map(|program| format!("{} {program}", self.config.identity)),
        );
        self.lease.write(claim.spec()).await?;
        self.elector.claimed(claim, sent.monotonic, self.clocks.monotonic());
        self.leadership.renewed(sent);
        Ok(())
    }

    /// Releases the Lease, if this process still holds it.
    async fn release(&mut self) -> bool {
        let deadline = self.config.renew_deadline;
        let released = tokio::time::timeout(deadline, self.write_release()).await;
        let reason = match released {
            Ok(Ok(released)) => return released,
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "timed out on conflicts".to_owned(),
        };
        tracing::warn!(lock = %self.config.lease, %reason, "Failed to release lease");
        false
    }

    /// The original does not check the holder of the Lease it has just read; without this check a graceful
    /// shutdown could end the term of a successor.
    async fn write_release(&mut self) -> Result<bool, ApiError> {
        loop {
            let record = match self.lease.read().await.map(LeaseRecord::of) {
                Ok(record) if record.holder == self.config.identity => record,
                Ok(_) => return Ok(false),
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(false),
                Err(failure) => return Err(failure),
            };
            let now = Some(self.wall());
            let released_record = LeaseRecord {
                holder: String::new(),
                duration_seconds: 1,
                acquired_at: now,
                renewed_at: now,
                transitions: record.transitions,
                ..LeaseRecord::default()
            };
            let left = self.handover.as_ref().and_then(|handover| handover.handover_record());
            let left = left.and_then(|left| annotation(left, record.transitions));
            self.lease.annotate(HANDOVER_ANNOTATION, left);
            self.lease.annotate(LEADER_ANNOTATION, None);
            match self.lease.write(released_record.spec()).await {
                Ok(()) => return Ok(true),
                // Changed between read and write: read again.
                Err(failure) if failure.reason == ErrorReason::Conflict => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.clocks.wall_nanoseconds().into())
            .unwrap_or_else(|_| unreachable!("64 bits of nanoseconds end in 2262, the calendar in 9999"))
    }

    fn record_event(&self, verb: &str) {
        let program = self.config.program.as_ref().map(|program| format!(" ({program})"));
        let message = format!("{} {verb}{}", self.config.identity, program.unwrap_or_default());
        self.observer.event(PlannedEvent::normal(self.lease.involved(), "LeaderElection", message));
    }
}

impl Leading {
    /// The previous leader.
    #[must_use]
    pub fn predecessor(&self) -> &Predecessor {
        &self.0.predecessor
    }

    /// The check before each write.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.0.leadership()
    }

    /// Renews the Lease until it is lost or `stop` resolves. The Lease is also watched: one that was deleted or
    /// cleared by hand is taken back immediately, and one that another process holds ends the term.
    ///
    /// Run it beside the workers from the start, and let `stop` resolve only after they have ended: from then
    /// on [`Leadership::still_held`] is false and another process may lead at any moment.
    pub async fn hold(self, stop: impl Future<Output = ()>) -> TermEnd {
        let mut election = self.0;
        let mut stop = pin!(stop);
        let mut changes = election.lease.changes(election.config.retry_period);
        loop {
            let now = election.clocks.monotonic();
            let lost_at = election.clocks.instant(election.elector.lost_at().unwrap_or(now));
            match election.elector.next(now) {
                ElectionStep::Lost => return election.end_lost(),
                ElectionStep::Try | ElectionStep::Renew => tokio::select! {
                    biased;
                    () = &mut stop => return election.end_stopped().await,
                    // Before the try: after a long pause its response, though it may have arrived, is too
                    // late.
                    () = tokio::time::sleep_until(lost_at) => {}
                    _ = election.try_once() => {}
                },
                ElectionStep::WaitUntil(moment) => {
                    let until = election.clocks.instant(moment);
                    tokio::select! {
                        biased;
                        () = &mut stop => return election.end_stopped().await,
                        Some(change) = changes.next() => election.observe_while_leading(change),
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
            }
        }
    }
}

impl LeaderElection {
    fn end_lost(self) -> TermEnd {
        self.leadership.revoke();
        self.observer.leading(&self.config.lease.name, false);
        tracing::error!(lock = %self.config.lease, "Failed to renew lease");
        self.record_stopped_leading();
        TermEnd::Lost
    }

    async fn end_stopped(mut self) -> TermEnd {
        // First of all: from here on this process must not write.
        self.leadership.revoke();
        self.observer.leading(&self.config.lease.name, false);
        self.record_stopped_leading();
        // Once the Lease is released, another process leads.
        let _ = tokio::time::timeout(LAST_EVENT_WITHIN, self.observer.events_written()).await;
        let released = self.config.release_on_stop && !self.has_write_in_flight() && self.release().await;
        TermEnd::Stopped { released }
    }

    /// A write that was sent before this process stopped leading may still take effect. Another process then waits
    /// for the Lease to expire, as after a crash.
    fn has_write_in_flight(&self) -> bool {
        let in_flight = self.handover.as_ref().is_some_and(|handover| handover.has_write_in_flight());
        if in_flight {
            tracing::warn!(lock = %self.config.lease, "a write is still in flight, the lease is not released");
        }
        in_flight
    }

    /// Only while the Lease still names this process: no event is written while another process leads.
    fn record_stopped_leading(&self) {
        if self.elector.is_observed_holder() {
            self.record_event("stopped leading");
        }
    }
}
