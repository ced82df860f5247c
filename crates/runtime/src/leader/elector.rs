//! Decides when to try, when to renew, what to write and when to give up, from Lease records and clock
//! readings alone.

use std::time::Duration;

use jiff::Timestamp;

use super::config::{JITTER_FACTOR, LeaderElectionConfig};
use super::process_lock::EndedProcesses;
use super::record::LeaseRecord;

/// A reading of the monotonic clock: the time since a fixed moment.
pub type MonotonicTime = Duration;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// Try to acquire the lease.
    Try,
    /// Renew the held lease.
    Renew,
    /// Nothing before this time, unless the lease changes.
    WaitUntil(MonotonicTime),
    /// The lease was not renewed in time: stop writing and end.
    Lost,
}

/// What the last observed record means for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This process holds it, or may take it.
    Open,
    /// Another process holds it, until this time at least.
    HeldByOther {
        /// When it may be taken if it does not change.
        expires_at: MonotonicTime,
    },
    /// This process leads, yet another process has led since its last renewal. The term is over even if the
    /// lease has no holder again: what was written in between is not known here.
    Superseded,
    /// In a coordinated election: the lease does not name this process, or no longer.
    NotAppointed,
}

/// The state of one process in one election.
#[derive(Debug)]
pub struct Elector {
    config: LeaderElectionConfig,
    observed: Option<Observed>,
    /// The last record of a lease that was deleted while another process held it, and when its absence was first
    /// observed: only that process deletes its right to write.
    deleted: Option<Observed>,
    /// Since when the lease has been observed as released, or as missing without a known holder.
    unheld_since: Option<MonotonicTime>,
    /// Processes whose Lease need not expire, because they have ended.
    ended: EndedProcesses,
    phase: Phase,
}

#[derive(Debug)]
struct Observed {
    record: LeaseRecord,
    /// When this record was first observed here; the only time that counts for its expiry.
    at: MonotonicTime,
}

#[derive(Debug)]
enum Phase {
    Standby {
        /// The next try by the retry period.
        try_at: MonotonicTime,
        /// The next try at all: by the retry period, by expiry, or because the lease was observed without a
        /// holder.
        next_try_at: MonotonicTime,
    },
    Leading {
        /// The number of transitions at the start of this term.
        transitions: i64,
        tried_at: MonotonicTime,
        try_at: MonotonicTime,
        /// The end of this renewal round.
        lost_at: MonotonicTime,
    },
}

impl Elector {
    /// A process that has observed nothing yet and tries immediately.
    #[must_use]
    pub fn new(config: LeaderElectionConfig, now: MonotonicTime) -> Self {
        Self {
            config,
            observed: None,
            deleted: None,
            unheld_since: None,
            ended: EndedProcesses::default(),
            phase: Phase::Standby { try_at: now, next_try_at: now },
        }
    }

    /// The processes with these identities have ended, so a Lease that names one of them has no writer.
    pub fn observe_ended(&mut self, identities: Vec<String>, now: MonotonicTime) {
        self.ended = EndedProcesses::new(identities, now);
        self.schedule_after_change(now);
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self, now: MonotonicTime) -> ElectionStep {
        match self.phase {
            Phase::Standby { next_try_at, .. } if now >= next_try_at => ElectionStep::Try,
            Phase::Standby { next_try_at, .. } => ElectionStep::WaitUntil(next_try_at),
            Phase::Leading { lost_at, .. } if now >= lost_at => ElectionStep::Lost,
            Phase::Leading { try_at, .. } if now >= try_at => ElectionStep::Renew,
            Phase::Leading { try_at, lost_at, .. } => ElectionStep::WaitUntil(try_at.min(lost_at)),
        }
    }

    /// While leading: when the lease is lost unless renewed.
    #[must_use]
    pub fn lost_at(&self) -> Option<MonotonicTime> {
        match self.phase {
            Phase::Leading { lost_at, .. } => Some(lost_at),
            Phase::Standby { .. } => None,
        }
    }

    /// A record was read or watched. Only a changed record counts.
    pub fn observe(&mut self, record: LeaseRecord, now: MonotonicTime) {
        if self.observed.as_ref().is_some_and(|observed| observed.record.is_same_as(&record)) {
            return;
        }
        self.unheld_since = record.is_released().then_some(now);
        self.observed = Some(Observed { record, at: now });
        self.deleted = None;
        self.schedule_after_change(now);
    }

    /// The lease does not exist.
    pub fn observe_absence(&mut self, now: MonotonicTime) {
        let is_standby = matches!(self.phase, Phase::Standby { .. });
        if let Some(Observed { record, .. }) = self.observed.take() {
            let has_holder = !record.is_released() && record.holder != self.config.identity;
            self.deleted = (is_standby && has_holder).then_some(Observed { record, at: now });
            self.unheld_since = self.deleted.is_none().then_some(now);
        } else if self.deleted.is_none() {
            self.unheld_since.get_or_insert(now);
        }
        self.schedule_after_change(now);
    }

    /// A standby tries when the lease may be taken. A leader whose lease does not name it any more tries to take it
    /// back immediately, unless another process has led since.
    fn schedule_after_change(&mut self, now: MonotonicTime) {
        let (standing, is_holder) = (self.standing(now), self.is_observed_holder());
        match &mut self.phase {
            Phase::Standby { try_at, next_try_at } => {
                *next_try_at = match standing {
                    Standing::HeldByOther { expires_at } => expires_at.min(*try_at),
                    Standing::NotAppointed => *try_at,
                    Standing::Open | Standing::Superseded => now,
                };
            }
            Phase::Leading { lost_at, .. } if standing == Standing::Superseded => *lost_at = now,
            Phase::Leading { try_at, .. } if !is_holder => *try_at = now,
            Phase::Leading { .. } => {}
        }
    }

    /// What the last observed record means for this process now.
    #[must_use]
    pub fn standing(&self, now: MonotonicTime) -> Standing {
        if self.config.coordinated {
            return self.coordinated_standing(now);
        }
        let Some(Observed { record, .. }) = self.last_record() else { return Standing::Open };
        let has_ended = self.ended.known_at(&record.holder).is_some();
        if record.holder == self.config.identity || (record.is_released() || has_ended) && !self.leads() {
            return Standing::Open;
        }
        if let Phase::Leading { transitions, .. } = self.phase
            && !(record.holder.is_empty() && record.transitions == transitions)
        {
            return Standing::Superseded;
        }
        // Also if its holder was cleared by hand or the lease was deleted: the holder may not know that yet.
        let expires_at = self.expires_at().unwrap_or_default();
        if !self.leads() && expires_at > now { Standing::HeldByOther { expires_at } } else { Standing::Open }
    }

    fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leading { .. })
    }

    /// The last record, also of a lease that was deleted while another process held it.
    fn last_record(&self) -> Option<&Observed> {
        self.observed.as_ref().or(self.deleted.as_ref())
    }

    /// Where the API server chooses the holder, a process writes only to an unexpired lease that names it as
    /// the holder and has no preferred holder: a preferred holder ends its term.
    fn coordinated_standing(&self, now: MonotonicTime) -> Standing {
        let Some(Observed { record, .. }) = &self.observed else { return Standing::NotAppointed };
        if record.holder != self.config.identity {
            return if self.leads() { Standing::Superseded } else { Standing::NotAppointed };
        }
        if record.preferred_holder.is_empty() && self.expires_at().is_some_and(|expires_at| expires_at >= now)
        {
            Standing::Open
        } else {
            Standing::NotAppointed
        }
    }

    /// Whether this process is known to hold the lease and it has not expired, so that it can be renewed
    /// without a read. A coordinated election always reads first, because the API server may have changed the
    /// lease.
    #[must_use]
    pub fn may_renew_without_read(&self, now: MonotonicTime) -> bool {
        !self.config.coordinated
            && self.is_observed_holder()
            && self.expires_at().is_some_and(|expires_at| expires_at > now)
    }

    /// Whether the last observed record names this process.
    #[must_use]
    pub fn is_observed_holder(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.record.holder == self.config.identity)
    }

    /// What to write in order to acquire or renew the lease.
    #[must_use]
    pub fn claim(&self, wall: Timestamp) -> LeaseRecord {
        let (acquired_at, transitions) = match &self.observed {
            None => (Some(wall), 0),
            Some(Observed { record, .. }) if record.holder == self.config.identity => {
                (record.acquired_at, record.transitions)
            }
            Some(Observed { record, .. }) => (Some(wall), record.transitions + 1),
        };
        // A plain election replaces the whole spec, as the original does.
        let strategy = match &self.observed {
            Some(Observed { record, .. }) if self.config.coordinated => record.strategy.clone(),
            _ => String::new(),
        };
        LeaseRecord {
            holder: self.config.identity.clone(),
            duration_seconds: self.config.lease_duration_seconds(),
            acquired_at,
            renewed_at: Some(wall),
            transitions,
            strategy,
            preferred_holder: String::new(),
        }
    }

    /// The claim was written: sent at one time, confirmed at another.
    ///
    /// A renewal round begins one retry period from now and lasts for the renew deadline, as in the original;
    /// but it always ends before other processes may take over, which the original does not check.
    pub fn claimed(&mut self, claim: LeaseRecord, sent_at: MonotonicTime, now: MonotonicTime) {
        let try_at = now + self.config.retry_period;
        let valid_for_others = self.config.valid_for_others();
        self.phase = Phase::Leading {
            transitions: claim.transitions,
            tried_at: sent_at,
            try_at,
            lost_at: (try_at + self.config.renew_deadline).min(sent_at + valid_for_others),
        };
        self.observed = Some(Observed { record: claim, at: now });
        self.deleted = None;
        self.unheld_since = None;
    }

    /// A try began now; the next one in the same round is counted from here.
    pub fn trying(&mut self, now: MonotonicTime) {
        if let Phase::Leading { tried_at, .. } = &mut self.phase {
            *tried_at = now;
        }
    }

    /// A try to acquire or renew the lease failed.
    pub fn failed(&mut self, now: MonotonicTime, random: &mut fastrand::Rng) {
        let retry_period = self.config.retry_period;
        let expires_at = match self.standing(now) {
            Standing::HeldByOther { expires_at } => Some(expires_at),
            Standing::Open | Standing::Superseded | Standing::NotAppointed => None,
        };
        match &mut self.phase {
            Phase::Standby { try_at, next_try_at } => {
                *try_at = now + retry_period.mul_f64(1.0 + random.f64() * JITTER_FACTOR);
                *next_try_at = expires_at.map_or(*try_at, |expires_at| expires_at.min(*try_at));
            }
            Phase::Leading { tried_at, try_at, .. } => *try_at = now.max(*tried_at + retry_period),
        }
    }

    /// An acquired lease is not used; the election starts over.
    pub fn step_down(&mut self, now: MonotonicTime) {
        self.phase = Phase::Standby { try_at: now, next_try_at: now };
    }

    /// Since when the lease has been observed as released or its holder is known to have ended, or else from when on its
    /// holder writes nothing any more unless it renews; a holder that was cleared by hand still counts as the holder. That is before the lease
    /// expires; it is `None` for a holder with another configuration.
    #[must_use]
    pub fn holder_writes_end_at(&self) -> Option<MonotonicTime> {
        if self.unheld_since.is_some() {
            return self.unheld_since;
        }
        let Observed { record, at } = self.last_record()?;
        if let Some(ended_by) = self.ended.known_at(&record.holder).filter(|_| !self.config.coordinated) {
            return Some(ended_by);
        }
        let is_held_by_other = record.holder != self.config.identity;
        let is_configured_alike =
            !self.config.coordinated && record.duration_seconds == self.config.lease_duration_seconds();
        let holder_writes_end_at = *at + self.config.holder_may_write_for();
        (is_held_by_other && is_configured_alike && Some(holder_writes_end_at) < self.expires_at())
            .then_some(holder_writes_end_at)
    }

    fn expires_at(&self) -> Option<MonotonicTime> {
        let Observed { record, at } = self.last_record()?;
        Some(*at + Duration::from_secs(record.duration_seconds.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elector() -> Elector {
        Elector::new(LeaderElectionConfig::new("me".to_owned()), at(0.0))
    }

    fn at(seconds: f64) -> MonotonicTime {
        // Far from zero, as real clocks are.
        Duration::from_secs_f64(1_000.0 + seconds)
    }

    fn wall(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn random() -> fastrand::Rng {
        fastrand::Rng::with_seed(1)
    }

    fn held_by(holder: &str, renewed: i64) -> LeaseRecord {
        LeaseRecord {
            holder: holder.to_owned(),
            duration_seconds: 15,
            acquired_at: Some(wall(-500)),
            renewed_at: Some(wall(renewed)),
            transitions: 4,
            ..LeaseRecord::default()
        }
    }

    fn released(released_at: i64) -> LeaseRecord {
        let at = Some(wall(released_at));
        LeaseRecord { duration_seconds: 1, acquired_at: at, renewed_at: at, ..held_by("", 0) }
    }

    fn leading_since(sent_at: f64, known_at: f64) -> Elector {
        let mut elector = elector();
        let claim = elector.claim(wall(0));
        elector.claimed(claim, at(sent_at), at(known_at));
        elector
    }

    /// Proves LE-11, LE-12, LE-13: only a change of holder counts.
    #[test]
    fn claims_count_transitions_only_between_holders() {
        let mut elector = elector();
        let created = elector.claim(wall(7));
        assert_eq!((created.acquired_at, created.renewed_at), (Some(wall(7)), Some(wall(7))));
        assert_eq!((created.transitions, created.duration_seconds, &*created.holder), (0, 15, "me"));

        for (holder, acquired_at, transitions) in
            [("other", wall(9), 5), ("", wall(9), 5), ("me", wall(-500), 4)]
        {
            elector.observe(held_by(holder, 0), at(0.0));
            let claim = elector.claim(wall(9));
            assert_eq!((claim.acquired_at, claim.renewed_at), (Some(acquired_at), Some(wall(9))), "{holder}");
            assert_eq!((claim.transitions, &*claim.holder), (transitions, "me"), "{holder}");
        }
    }

    #[test]
    fn writes_of_the_previous_holder_end_when_the_lease_is_first_observed_without_holder() {
        let mut elector = elector();
        assert_eq!(elector.holder_writes_end_at(), None);
        elector.observe_absence(at(1.0));
        elector.observe_absence(at(2.0));
        assert_eq!(elector.holder_writes_end_at(), Some(at(1.0)));
        elector.observe(held_by("other", 0), at(3.0));
        assert_eq!(
            elector.holder_writes_end_at(),
            Some(at(3.0) + LeaderElectionConfig::new(String::new()).holder_may_write_for())
        );
        elector.observe(released(4), at(4.0));
        elector.observe(released(4), at(5.0));
        assert_eq!(elector.holder_writes_end_at(), Some(at(4.0)));
        elector.observe_absence(at(6.0));
        assert_eq!(elector.holder_writes_end_at(), Some(at(6.0)));
        let claim = elector.claim(wall(7));
        elector.claimed(claim, at(7.0), at(7.0));
        assert_eq!(elector.holder_writes_end_at(), None);
    }

    /// Proves LE-22, LE-24, LE-26, LE-27, LE-28.
    #[test]
    fn held_lease_is_not_taken_until_observed_unchanged_for_its_own_duration() {
        let mut elector = elector();
        // Its times are hours in the past and do not count; its own duration counts, not ours.
        let mut record = held_by("other", -9_999);
        record.duration_seconds = 30;
        elector.observe(record.clone(), at(1.0));
        assert_eq!(elector.standing(at(30.9)), Standing::HeldByOther { expires_at: at(31.0) });
        assert_eq!(elector.standing(at(31.0)), Standing::Open);
        // Reading it again does not extend it; a renewal does, even one by a clock that runs behind.
        elector.observe(record.clone(), at(20.0));
        assert_eq!(elector.standing(at(31.0)), Standing::Open);
        record.renewed_at = Some(wall(-99_999));
        elector.observe(record, at(30.0));
        assert_eq!(elector.standing(at(31.0)), Standing::HeldByOther { expires_at: at(60.0) });
    }

    #[test]
    fn lease_of_an_ended_process_is_open_and_of_no_other() {
        let mut elector = elector();
        elector.observe_ended(vec!["dead".to_owned(), String::new()], at(1.0));
        assert_eq!(elector.standing(at(1.0)), Standing::Open, "no lease");
        elector.observe(held_by("other", 0), at(2.0));
        assert_eq!(elector.standing(at(2.0)), Standing::HeldByOther { expires_at: at(17.0) });
        // Cleared by hand: its holder may live.
        elector.observe(held_by("", 0), at(3.0));
        assert_eq!(elector.standing(at(3.0)), Standing::HeldByOther { expires_at: at(18.0) });
        elector.observe(held_by("dead", 0), at(4.0));
        assert_eq!(elector.standing(at(4.0)), Standing::Open);
        assert_eq!(elector.next(at(4.0)), ElectionStep::Try);
        assert_eq!(elector.holder_writes_end_at(), Some(at(1.0)), "it wrote nothing since");
        // Deleted by hand meanwhile.
        elector.observe_absence(at(5.0));
        assert_eq!(elector.standing(at(5.0)), Standing::Open);
    }

    #[test]
    fn process_that_ends_while_its_lease_is_observed_frees_it() {
        let mut elector = elector();
        elector.observe(held_by("dead", 0), at(1.0));
        elector.failed(at(1.0), &mut random());
        assert_eq!(elector.standing(at(2.0)), Standing::HeldByOther { expires_at: at(16.0) });
        elector.observe_ended(vec!["dead".to_owned()], at(2.0));
        assert_eq!(elector.standing(at(2.0)), Standing::Open);
        assert_eq!(elector.next(at(2.0)), ElectionStep::Try);
    }

    #[test]
    fn leader_that_another_process_superseded_does_not_lead_again_because_that_process_ended() {
        let mut elector = leading_since(0.0, 0.0);
        elector.observe_ended(vec!["dead".to_owned()], at(0.5));
        elector.observe(held_by("dead", 1), at(1.0));
        assert_eq!(elector.standing(at(1.0)), Standing::Superseded);
    }

    #[test]
    fn ended_process_does_not_matter_where_the_api_server_chooses_the_holder() {
        let config = LeaderElectionConfig { coordinated: true, ..LeaderElectionConfig::new("me".to_owned()) };
        let mut elector = Elector::new(config, at(0.0));
        elector.observe_ended(vec!["dead".to_owned()], at(1.0));
        elector.observe(held_by("dead", 0), at(1.0));
        assert_eq!(elector.standing(at(1.0)), Standing::NotAppointed);
        assert_eq!(elector.holder_writes_end_at(), None);
    }

    #[test]
    fn holder_with_the_same_config_stops_writing_before_its_lease_expires() {
        let mut elector = elector();
        assert_eq!(elector.holder_writes_end_at(), None);
        elector.observe(held_by("other", 0), at(1.0));
        assert_eq!(elector.holder_writes_end_at(), Some(at(14.0)));
        elector.observe(held_by("other", 2), at(3.0));
        assert_eq!(elector.holder_writes_end_at(), Some(at(16.0)), "the holder has renewed");
        let other_duration = LeaseRecord { duration_seconds: 30, ..held_by("other", 3) };
        for record in [held_by("me", 3), other_duration] {
            elector.observe(record.clone(), at(4.0));
            assert_eq!(elector.holder_writes_end_at(), None, "{record:?}");
        }
        // A leader may write for nearly as long as its lease lasts: there is no earlier time.
        let config = LeaderElectionConfig {
            renew_deadline: Duration::from_secs(13),
            ..LeaderElectionConfig::new("me".to_owned())
        };
        let mut elector = Elector::new(config, at(0.0));
        elector.observe(held_by("other", 0), at(1.0));
        assert_eq!(elector.holder_writes_end_at(), None);
    }

    /// Proves LE-15, LE-28.
    #[test]
    fn released_lease_and_one_that_never_had_a_holder_are_taken_immediately() {
        for record in [released(0), LeaseRecord::default()] {
            let mut elector = elector();
            elector.failed(at(0.0), &mut random());
            elector.observe(record, at(0.5));
            assert_eq!(elector.standing(at(0.5)), Standing::Open);
            assert_eq!(elector.next(at(0.5)), ElectionStep::Try);
        }
        let mut elector = elector();
        elector.failed(at(0.0), &mut random());
        elector.observe_absence(at(0.5));
        assert_eq!(elector.next(at(0.5)), ElectionStep::Try);
    }

    #[test]
    fn lease_that_was_deleted_or_cleared_by_hand_is_taken_when_its_holder_can_no_longer_write() {
        for is_deleted in [true, false] {
            let mut elector = elector();
            elector.observe(held_by("other", 0), at(0.0));
            if is_deleted {
                elector.observe_absence(at(1.0));
                elector.observe_absence(at(2.0));
            } else {
                elector.observe(held_by("", 0), at(1.0));
                elector.observe(held_by("", 0), at(2.0));
            }
            elector.failed(at(14.0), &mut random());
            assert_eq!(elector.standing(at(15.9)), Standing::HeldByOther { expires_at: at(16.0) });
            assert_eq!(elector.next(at(14.0)), ElectionStep::WaitUntil(at(16.0)));
            assert_eq!(elector.standing(at(16.0)), Standing::Open);
            assert_eq!(elector.holder_writes_end_at(), Some(at(14.0)));
            // Its holder takes it back.
            elector.observe(held_by("other", 2), at(2.0));
            assert_eq!(elector.standing(at(16.9)), Standing::HeldByOther { expires_at: at(17.0) });
        }
    }

    /// Proves LE-30.
    #[test]
    fn standby_tries_immediately_and_then_after_a_period_with_jitter() {
        let mut elector = elector();
        assert_eq!(elector.next(at(0.0)), ElectionStep::Try);
        let mut random = random();
        let mut waits = Vec::new();
        for _ in 0..500 {
            elector.failed(at(0.0), &mut random);
            let ElectionStep::WaitUntil(moment) = elector.next(at(0.0)) else {
                panic!("no wait after a failed try")
            };
            waits.push((moment - at(0.0)).as_secs_f64());
        }
        waits.sort_by(f64::total_cmp);
        assert!(waits[0] >= 2.0 && waits[0] < 2.1, "{}", waits[0]);
        assert!(waits[499] < 4.4 && waits[499] > 4.3, "{}", waits[499]);
    }

    #[test]
    fn standby_tries_at_expiry_and_on_changes_but_only_once_for_each() {
        let mut elector = elector();
        elector.observe(held_by("other", 0), at(0.0));
        elector.failed(at(14.0), &mut random());
        assert_eq!(elector.next(at(14.0)), ElectionStep::WaitUntil(at(15.0)));
        assert_eq!(elector.next(at(15.0)), ElectionStep::Try);
        // The write failed for some other reason: the same expiry does not cause a hot loop.
        elector.failed(at(15.0), &mut random());
        let ElectionStep::WaitUntil(moment) = elector.next(at(15.0)) else { panic!("a hot loop") };
        assert!(moment >= at(17.0));
        elector.observe(released(14), at(15.5));
        assert_eq!(elector.next(at(15.5)), ElectionStep::Try);
        // Nor does observing the same record again.
        elector.observe(released(15), at(15.5));
        assert_eq!(elector.next(at(15.5)), ElectionStep::Try);
        elector.failed(at(15.5), &mut random());
        elector.observe(released(15), at(15.6));
        assert!(matches!(elector.next(at(15.6)), ElectionStep::WaitUntil(_)));
        // A renewal is no reason to try before its expiry.
        elector.failed(at(15.5), &mut random());
        elector.observe(held_by("other", 15), at(15.6));
        assert!(matches!(elector.next(at(15.6)), ElectionStep::WaitUntil(_)));
    }

    /// Proves LE-32, LE-36.
    #[test]
    fn leader_renews_each_period_and_gives_up_at_the_renew_deadline() {
        let mut elector = leading_since(0.0, 0.0);
        assert_eq!(elector.next(at(1.9)), ElectionStep::WaitUntil(at(2.0)));
        assert_eq!(elector.next(at(2.0)), ElectionStep::Renew);
        // Tries within a round begin one period apart, however long each takes.
        elector.trying(at(2.0));
        elector.failed(at(2.5), &mut random());
        assert_eq!(elector.next(at(2.5)), ElectionStep::WaitUntil(at(4.0)));
        elector.trying(at(4.0));
        elector.failed(at(9.0), &mut random());
        assert_eq!(elector.next(at(9.0)), ElectionStep::Renew);
        elector.trying(at(11.0));
        elector.failed(at(11.0), &mut random());
        assert_eq!(elector.next(at(11.0)), ElectionStep::WaitUntil(at(12.0)));
        assert_eq!(elector.next(at(12.0)), ElectionStep::Lost);
        // After a pause nothing else is even considered.
        assert_eq!(leading_since(0.0, 0.0).next(at(60.0)), ElectionStep::Lost);
    }

    #[test]
    fn leader_gives_up_before_others_may_take_over_with_any_valid_config() {
        let rows = [(15.0, 14.0, 2.0), (2.9, 2.5, 0.5), (15.9, 15.8, 1.0), (60.0, 40.0, 30.0)];
        for (lease, deadline, retry) in rows {
            let config = LeaderElectionConfig {
                lease_duration: Duration::from_secs_f64(lease),
                renew_deadline: Duration::from_secs_f64(deadline),
                retry_period: Duration::from_secs_f64(retry),
                ..LeaderElectionConfig::new("me".to_owned())
            };
            config.validate().unwrap();
            let mut leader = Elector::new(config.clone(), at(0.0));
            let claim = leader.claim(wall(0));
            // Another process can observe the claim as early as it is sent; but an earlier renewal in the
            // same second looks the same.
            let mut other = Elector::new(LeaderElectionConfig::new("other".to_owned()), at(-1.0));
            other.observe(claim.clone(), at(-0.99));
            other.observe(claim.clone(), at(0.0));
            leader.claimed(claim, at(0.0), at(0.3));
            let lost_at = leader.lost_at().unwrap();
            assert!(config.trusted_for() <= lost_at - at(0.0));
            let just_before = lost_at - Duration::from_millis(1);
            assert!(matches!(other.standing(just_before), Standing::HeldByOther { .. }), "{config:?}");
        }
    }

    /// Proves LE-20, LE-105.
    #[test]
    fn only_an_unexpired_own_lease_is_renewed_without_read() {
        let mut elector = elector();
        assert!(!elector.may_renew_without_read(at(0.0)));
        let claim = elector.claim(wall(0));
        elector.claimed(claim, at(0.0), at(0.0));
        assert!(elector.may_renew_without_read(at(14.9)));
        assert!(!elector.may_renew_without_read(at(15.0)));
        elector.observe(held_by("other", 3), at(3.0));
        assert!(!elector.may_renew_without_read(at(3.0)));
    }

    /// Proves LE-35, LE-102, LE-103.
    #[test]
    fn leader_reclaims_a_lease_with_cleared_holder_but_not_one_held_by_another_meanwhile() {
        let mut elector = leading_since(0.0, 0.0);
        let released = LeaseRecord { holder: String::new(), ..elector.claim(wall(1)) };
        elector.observe(released.clone(), at(1.0));
        assert_eq!(elector.standing(at(1.0)), Standing::Open);
        assert_eq!(elector.next(at(1.0)), ElectionStep::Renew, "it does not wait for its next renewal");
        assert_eq!(elector.claim(wall(2)).transitions, 1);
        elector.observe_absence(at(1.5));
        assert_eq!((elector.standing(at(1.5)), elector.next(at(1.5))), (Standing::Open, ElectionStep::Renew));
        // Released by another process that held it meanwhile.
        elector.observe(LeaseRecord { transitions: 1, ..released.clone() }, at(2.0));
        assert_eq!(elector.standing(at(2.0)), Standing::Superseded);
        // Held by another process, however short its lease is.
        let taken = LeaseRecord { holder: "other".to_owned(), duration_seconds: 1, ..released };
        elector.observe(taken, at(2.0));
        assert_eq!(elector.standing(at(9.0)), Standing::Superseded);
        assert_eq!(elector.next(at(2.0)), ElectionStep::Lost);
    }

    fn chosen(holder: &str, preferred: &str) -> LeaseRecord {
        LeaseRecord {
            holder: holder.to_owned(),
            preferred_holder: preferred.to_owned(),
            strategy: "OldestEmulationVersion".to_owned(),
            duration_seconds: 5,
            acquired_at: None,
            renewed_at: Some(wall(0)),
            transitions: 2,
        }
    }

    fn coordinated() -> Elector {
        Elector::new(
            LeaderElectionConfig { coordinated: true, ..LeaderElectionConfig::new("me".to_owned()) },
            at(0.0),
        )
    }

    /// Proves LE-74.
    #[test]
    fn coordinated_election_never_takes_a_lease() {
        let mut elector = coordinated();
        assert_eq!(
            elector.standing(at(0.0)),
            Standing::NotAppointed,
            "there is no lease, and none is created"
        );
        elector.failed(at(0.0), &mut random());
        elector.observe_absence(at(0.1));
        assert!(
            matches!(elector.next(at(0.1)), ElectionStep::WaitUntil(_)),
            "a missing lease is not created"
        );
        for holder in ["", "other"] {
            elector.observe(chosen(holder, ""), at(0.2));
            for seconds in [0.2, 60.0] {
                assert_eq!(elector.standing(at(seconds)), Standing::NotAppointed, "{holder}");
            }
            assert!(matches!(elector.next(at(0.2)), ElectionStep::WaitUntil(_)), "{holder}");
        }
        elector.observe(chosen("me", ""), at(0.3));
        assert_eq!(elector.next(at(0.3)), ElectionStep::Try, "a chosen process claims immediately");
    }

    /// Proves LE-75.
    #[test]
    fn chosen_process_renews_an_unexpired_lease_and_keeps_other_fields() {
        let mut elector = coordinated();
        elector.observe(chosen("me", ""), at(0.0));
        assert_eq!(elector.standing(at(5.0)), Standing::Open);
        assert_eq!(elector.standing(at(5.1)), Standing::NotAppointed, "it was observed too long ago");
        let claim = elector.claim(wall(1));
        let renewed = LeaseRecord { renewed_at: Some(wall(1)), duration_seconds: 15, ..chosen("me", "") };
        assert_eq!(claim, renewed);
        elector.claimed(claim, at(0.0), at(0.0));
        assert!(!elector.may_renew_without_read(at(2.0)), "a read always comes first");
    }

    /// Proves LE-76.
    #[test]
    fn preferred_holder_ends_the_term_at_the_renew_deadline() {
        let mut elector = coordinated();
        elector.observe(chosen("me", ""), at(0.0));
        let claim = elector.claim(wall(0));
        elector.claimed(claim.clone(), at(0.0), at(0.0));
        elector.observe(LeaseRecord { preferred_holder: "other".to_owned(), ..claim.clone() }, at(2.0));
        assert_eq!(elector.standing(at(2.0)), Standing::NotAppointed);
        elector.failed(at(2.0), &mut random());
        assert!(matches!(elector.next(at(11.9)), ElectionStep::Renew));
        assert_eq!(elector.next(at(12.0)), ElectionStep::Lost);
        // Held by another process, or by none, it is not ours any more: this process must not write
        // meanwhile.
        for holder in ["other", ""] {
            elector.observe(LeaseRecord { holder: holder.to_owned(), ..claim.clone() }, at(3.0));
            assert_eq!(elector.standing(at(3.0)), Standing::Superseded);
        }
    }
}
