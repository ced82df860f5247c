//! Carries out what the elector decides: takes the Lease, keeps it, gives it back.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use keleustes_objects::{ApiError, ErrorReason, Resource};
use keleustes_plan::PlannedEvent;
use kube::Client;

use super::config::{InvalidElectionConfig, LeaderElectionConfig};
use super::elector::{ElectionStep, Elector, MonotonicTime, Standing};
use super::leadership::{Leadership, SentAt};
use super::predecessor::{HANDOVER_ANNOTATION, Handover, Predecessor};
use super::record::LeaseRecord;
use super::single_object::{Change, SingleObject};
use crate::clock::Clocks;

static LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

/// Who wants to know about the election. Every method does nothing unless it is given.
pub trait ElectionObserver: Send + Sync {
    /// Something happened that people should see as an event on the Lease.
    fn event(&self, _event: PlannedEvent) {}
    /// Whether this process leads, for `leader_election_master_status`; called once before the first try.
    fn leading(&self, _lease_name: &str, _leading: bool) {}
    /// A renewal had to read the Lease first, for `leader_election_slowpath_total`.
    fn slow_path(&self, _lease_name: &str) {}
}

/// A process that wants to lead.
pub struct LeaderElection {
    settings: LeaderElectionConfig,
    clocks: Clocks,
    chance: fastrand::Rng,
    observer: Arc<dyn ElectionObserver>,
    elector: Elector,
    lease: SingleObject,
    leadership: Leadership,
    /// Our name may be on the Lease: a write of it was begun and not refused.
    may_hold: bool,
    /// Whoever had the Lease before our name came onto it.
    predecessor: Predecessor,
    /// What passes from one leader to the next.
    handover: Option<Arc<dyn Handover>>,
    /// The silence that was last prepared for.
    prepared: Option<MonotonicTime>,
}

/// A process that leads. Nothing renews the Lease unless [`Leading::hold`] runs.
pub struct Leading(LeaderElection);

/// How leading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermEnd {
    /// The Lease could not be renewed in time. Another process may lead from now on: end this one at once.
    Lost,
    /// It was asked to stop.
    Stopped {
        /// Whether the Lease was given back, so that another can take it without waiting.
        released: bool,
    },
}

/// Why a try did not lead to holding the Lease; the next try will tell more.
struct Missed(String);

impl LeaderElection {
    /// Prepares to compete; nothing is sent yet.
    ///
    /// # Errors
    /// If the durations would not keep two leaders apart.
    pub fn new(
        client: Client,
        settings: LeaderElectionConfig,
        clocks: Clocks,
        chance: fastrand::Rng,
        observer: Arc<dyn ElectionObserver>,
    ) -> Result<Self, InvalidElectionConfig> {
        settings.validate()?;
        Ok(Self {
            elector: Elector::new(settings.clone(), clocks.monotonic()),
            lease: SingleObject::new(client, &LEASES, settings.lease.clone(), settings.request_timeout()),
            leadership: Leadership::elected(&settings, clocks.clone()),
            settings,
            clocks,
            chance,
            observer,
            may_hold: false,
            predecessor: Predecessor::default(),
            handover: None,
            prepared: None,
        })
    }

    /// Leaves a note to the next leader, written when the work under the Lease has ended, and prepares to take over
    /// from one that will leave none.
    #[must_use]
    pub fn with_handover(mut self, handover: Arc<dyn Handover>) -> Self {
        self.handover = Some(handover);
        self
    }

    /// The guard for everything that writes, and the health check; good before and after the Lease is won.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Looks at the Lease once, without trying for it. If nobody has it then nor when it is tried for, whoever had it
    /// before had fallen silent by now. Not being able to look is no matter.
    pub async fn read_lease(&mut self) {
        if let Err(Missed(reason)) = self.read().await {
            tracing::debug!(lock = %self.settings.lease, %reason, "the lease was not looked at");
        }
    }

    /// Only looks at the Lease, without trying for it, until `until` resolves. One that has not changed for its
    /// whole duration by then can be taken with the first try.
    pub async fn observe_lease_until(&mut self, until: impl Future<Output = ()>) {
        let mut until = pin!(until);
        let mut changes = self.lease.changes(self.settings.retry_period);
        loop {
            tokio::select! {
                biased;
                () = &mut until => return,
                Some(change) = changes.next() => self.learn(change),
            }
        }
    }

    /// Stands by until this process leads; `None` if `stop` came first.
    pub async fn acquire(mut self, stop: impl Future<Output = ()>) -> Option<Leading> {
        let mut stop = pin!(stop);
        self.observer.leading(&self.settings.lease.name, false);
        let mut changes = self.lease.changes(self.settings.retry_period);
        tracing::info!(lock = %self.settings.lease, "Attempting to acquire leader lease...");
        loop {
            let won = match self.elector.next(self.clocks.monotonic()) {
                ElectionStep::Try | ElectionStep::Renew => tokio::select! {
                    biased;
                    () = &mut stop => break,
                    won = self.try_once() => won,
                },
                // A claim that succeeded too late to be used: it is looked at afresh.
                ElectionStep::Lost => {
                    self.elector.step_down(self.clocks.monotonic());
                    continue;
                }
                ElectionStep::WaitUntil(moment) => {
                    self.prepare();
                    let holder_writes_end_at =
                        self.elector.holder_writes_end_at().filter(|from| self.prepared != Some(*from));
                    let until =
                        self.clocks.instant(holder_writes_end_at.map_or(moment, |from| from.min(moment)));
                    tokio::select! {
                        biased;
                        () = &mut stop => break,
                        Some(change) = changes.next() => self.learn(change),
                        () = tokio::time::sleep_until(until) => {}
                    }
                    continue;
                }
            };
            // A process that slept between sending and now may have won a lease that is over already.
            if won && self.leadership.still_held() {
                return Some(self.lead());
            }
        }
        if self.may_hold && self.settings.release_on_stop {
            // The answer to a claim was not waited for; nobody should have to wait for it to run out.
            self.leadership.revoke();
            self.release().await;
        }
        None
    }

    /// Prepares to take over, once for each silence of whoever leads.
    fn prepare(&mut self) {
        let holder_writes_end_at =
            self.elector.holder_writes_end_at().filter(|from| *from <= self.clocks.monotonic());
        if holder_writes_end_at.is_some() && holder_writes_end_at != self.prepared {
            self.prepared = holder_writes_end_at;
            self.handover.iter().for_each(|handover| handover.prepare_takeover());
        }
    }

    fn lead(self) -> Leading {
        tracing::info!(lock = %self.settings.lease, "Successfully acquired lease");
        self.observer.leading(&self.settings.lease.name, true);
        self.tell("became leader");
        Leading(self)
    }

    /// What the watch brings, unless a read was faster.
    fn learn(&mut self, change: Change) {
        let now = self.clocks.monotonic();
        if !self.lease.take(change) {
            return;
        }
        match self.lease.seen() {
            Some(lease) => self.elector.observe(LeaseRecord::of(lease), now),
            None => self.elector.observe_absence(now),
        }
    }

    /// One try to take or to renew.
    async fn try_once(&mut self) -> bool {
        self.elector.trying(self.clocks.monotonic());
        let missed = match self.claim().await {
            Ok(()) => return true,
            Err(Missed(reason)) => reason,
        };
        tracing::debug!(lock = %self.settings.lease, reason = %missed, "the lease was not taken or renewed");
        self.elector.failed(self.clocks.monotonic(), &mut self.chance);
        false
    }

    /// Claims the Lease: without a look if it is surely ours, else after reading it.
    async fn claim(&mut self) -> Result<(), Missed> {
        if self.elector.may_renew_without_read(self.clocks.monotonic()) && self.write_claim().await.is_ok() {
            return Ok(());
        }
        self.read().await?;
        match self.elector.standing(self.clocks.monotonic()) {
            Standing::Open => {}
            Standing::HeldByOther { .. } => return Err(Missed("held by another".to_owned())),
            Standing::NotAppointed => return Err(Missed("not appointed, or the term is to end".to_owned())),
            Standing::Superseded => {
                // Known now, so nothing more is written, although renewing is tried until its deadline.
                self.leadership.revoke();
                return Err(Missed("taken by another".to_owned()));
            }
        }
        if self.elector.is_observed_holder() {
            self.observer.slow_path(&self.settings.lease.name);
        } else {
            self.predecessor = Predecessor::of(self.lease.seen(), self.elector.holder_writes_end_at());
        }
        self.write_claim().await
    }

    async fn read(&mut self) -> Result<(), Missed> {
        match self.lease.read().await {
            Ok(lease) => self.elector.observe(LeaseRecord::of(lease), self.clocks.monotonic()),
            Err(failure) if failure.reason == ErrorReason::NotFound => {
                self.elector.observe_absence(self.clocks.monotonic());
            }
            Err(failure) => return Err(Missed(failure.to_string())),
        }
        Ok(())
    }

    async fn write_claim(&mut self) -> Result<(), Missed> {
        // Others may count from the moment this leaves, so both clocks are read before.
        let sent =
            SentAt { monotonic: self.clocks.monotonic(), wall_nanoseconds: self.clocks.wall_nanoseconds() };
        let claim = self.elector.claim(self.wall());
        self.may_hold = true;
        self.lease.annotate(HANDOVER_ANNOTATION, None);
        self.lease.write(claim.spec()).await.map_err(|failure| Missed(failure.to_string()))?;
        self.elector.claimed(claim, sent.monotonic, self.clocks.monotonic());
        self.leadership.renewed(sent);
        Ok(())
    }

    /// Gives the Lease back, if it is still in our name.
    async fn release(&mut self) -> bool {
        let deadline = self.settings.renew_deadline;
        let released = tokio::time::timeout(deadline, self.write_release()).await;
        let reason = match released {
            Ok(Ok(released)) => return released,
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "the lease kept changing".to_owned(),
        };
        tracing::warn!(lock = %self.settings.lease, %reason, "Failed to release lease");
        false
    }

    /// The original does not look whose name is on the Lease it has just read; here that is checked, or
    /// an orderly stop could end the term of a successor.
    async fn write_release(&mut self) -> Result<bool, ApiError> {
        loop {
            let record = match self.lease.read().await.map(LeaseRecord::of) {
                Ok(record) if record.holder == self.settings.identity => record,
                Ok(_) => return Ok(false),
                Err(failure) if failure.reason == ErrorReason::NotFound => return Ok(false),
                Err(failure) => return Err(failure),
            };
            let now = Some(self.wall());
            let freed = LeaseRecord {
                holder: String::new(),
                duration_seconds: 1,
                acquired_at: now,
                renewed_at: now,
                transitions: record.transitions,
                ..LeaseRecord::default()
            };
            self.lease.annotate(
                HANDOVER_ANNOTATION,
                self.handover.as_ref().and_then(|handover| handover.handover_record()),
            );
            match self.lease.write(freed.spec()).await {
                Ok(()) => return Ok(true),
                // Changed between reading and writing: look again.
                Err(failure) if failure.reason == ErrorReason::Conflict => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.clocks.wall_nanoseconds().into())
            .unwrap_or_else(|_| unreachable!("64 bits of nanoseconds end in 2262, the calendar in 9999"))
    }

    fn tell(&self, what: &str) {
        let message = format!("{} {what}", self.settings.identity);
        self.observer.event(PlannedEvent::normal(self.lease.involved(), "LeaderElection", message));
    }
}

impl Leading {
    /// Whoever led before.
    #[must_use]
    pub fn predecessor(&self) -> &Predecessor {
        &self.0.predecessor
    }

    /// The guard for everything that writes.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.0.leadership()
    }

    /// Keeps the Lease until it is lost or `stop` resolves.
    ///
    /// Run it beside the workers from the start, and let `stop` resolve only after they have ended: from then
    /// on [`Leadership::still_held`] is false and another process may lead at any moment.
    pub async fn hold(self, stop: impl Future<Output = ()>) -> TermEnd {
        let mut election = self.0;
        let mut stop = pin!(stop);
        loop {
            let now = election.clocks.monotonic();
            let lost_at = election.clocks.instant(election.elector.lost_at().unwrap_or(now));
            match election.elector.next(now) {
                ElectionStep::Lost => return election.lose(),
                ElectionStep::Try | ElectionStep::Renew => tokio::select! {
                    biased;
                    () = &mut stop => return election.end().await,
                    // Before the try: after a long pause its answer, though it may be there, comes too late.
                    () = tokio::time::sleep_until(lost_at) => {}
                    _ = election.try_once() => {}
                },
                ElectionStep::WaitUntil(moment) => {
                    let until = election.clocks.instant(moment);
                    tokio::select! {
                        biased;
                        () = &mut stop => return election.end().await,
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
            }
        }
    }
}

impl LeaderElection {
    fn lose(self) -> TermEnd {
        self.leadership.revoke();
        self.observer.leading(&self.settings.lease.name, false);
        tracing::error!(lock = %self.settings.lease, "Failed to renew lease");
        self.tell("stopped leading");
        TermEnd::Lost
    }

    async fn end(mut self) -> TermEnd {
        // First of all: from here on nothing of ours may be written.
        self.leadership.revoke();
        self.observer.leading(&self.settings.lease.name, false);
        let released = self.settings.release_on_stop && self.release().await;
        self.tell("stopped leading");
        TermEnd::Stopped { released }
    }
}
