//! Generates the faults of a schedule.

use crate::actions::{
    Action, Fault, FaultEffect, Kind, LeaseTampering, ListedKind, ObjectRef, Party, RequestClass,
    TimedAction, UserAction,
};
use crate::generate::{NAMES, NAMESPACES, ORIGINAL_TERMS, QUICK_HANDOVERS, ScheduleGenerator};

impl ScheduleGenerator {
    /// A fault and the actions that belong to it, each with a delay in milliseconds.
    pub(crate) fn fault_actions(&mut self) -> Vec<(u64, Action)> {
        match self.rng.u8(..100) {
            ..4 => self.stale_cache(),
            4..8 => self.small_pages(),
            8..14 if self.managers > 1 => self.takeover_with_stalled_watches(),
            14..20 => self.freeze_after_create(),
            20..25 if QUICK_HANDOVERS && self.managers > 1 => self.quick_handovers(),
            25..29 if ORIGINAL_TERMS && self.managers > 1 => self.original_term(),
            _ => vec![(0, self.single_fault())],
        }
    }

    /// A manager shuts down, and the original leads before another manager does. The handover record on the lease is then that of
    /// an earlier term, and the other managers have observed what it covers, but not what the original has written.
    fn original_term(&mut self) -> Vec<(u64, Action)> {
        let (leader, duration_ms) = (self.rng.usize(..self.managers), self.rng.u64(20_000..90_000));
        let stalled_class = self.pick(&[RequestClass::Watches, RequestClass::Pods]);
        let stop_at = self.rng.u64(500..3_000);
        let stall_at = stop_at + self.rng.u64(..1_000);
        let mut actions = Vec::new();
        for standby in (0..self.managers).filter(|manager| *manager != leader) {
            let refused = manager_fault(standby, RequestClass::LeaderLease, FaultEffect::Reject(503), 4_000);
            let stalled = manager_fault(standby, stalled_class, FaultEffect::StallWatches, duration_ms);
            actions.extend([(stop_at - 100, refused), (stall_at, stalled)]);
        }
        let term_ms = self.rng.u64(500..8_000);
        let set = ObjectRef {
            kind: Kind::ReplicaSet,
            namespace: NAMESPACES[0].to_owned(),
            name: self.pick(&NAMES).to_owned(),
        };
        let create_at = stop_at + self.rng.u64(..term_ms);
        actions.extend([
            (stop_at, Action::StopLeader),
            (stop_at, Action::User(UserAction::LeadAsOriginal(term_ms, 1))),
            (create_at, Action::User(self.create_action(set))),
        ]);
        actions
    }

    /// A manager that restarts or relists is served from caches that are behind and stay so.
    fn stale_cache(&mut self) -> Vec<(u64, Action)> {
        let (manager, duration_ms) = (self.rng.usize(..self.managers), self.rng.u64(2_000..60_000));
        let manager_fault = |requests, effect| manager_fault(manager, requests, effect, duration_ms);
        let mut actions = vec![
            manager_fault(RequestClass::Reads, FaultEffect::StaleCache),
            manager_fault(RequestClass::Watches, FaultEffect::StaleCache),
        ];
        if self.rng.bool() {
            actions.push(manager_fault(RequestClass::WatchLists, FaultEffect::Reject(400)));
        }
        actions.push(manager_fault(RequestClass::Watches, FaultEffect::StallWatches));
        actions.push(match self.rng.u8(..3) {
            0 => Action::CrashManager(manager),
            1 => Action::CutWatches,
            _ => Action::ExpireWatches,
        });
        actions.into_iter().map(|action| (0, action)).collect()
    }

    /// Lists in small pages, whose continue token may expire between two pages.
    fn small_pages(&mut self) -> Vec<(u64, Action)> {
        let (manager, duration_ms) = (self.rng.usize(..self.managers), self.rng.u64(2_000..60_000));
        let manager_fault = |requests, effect| manager_fault(manager, requests, effect, duration_ms);
        let mut actions = vec![manager_fault(RequestClass::WatchLists, FaultEffect::Reject(400))];
        if self.rng.bool() {
            actions.push(manager_fault(
                RequestClass::ContinuedLists,
                self.pick(&[FaultEffect::Reject(410), FaultEffect::TruncateResponse]),
            ));
        }
        actions.push(manager_fault(RequestClass::Reads, FaultEffect::SmallPages));
        actions.push(Action::ExpireWatches);
        actions.into_iter().map(|action| (0, action)).collect()
    }

    /// A new object is created whose watch events the standby does not receive, and then the leader
    /// crashes.
    fn takeover_with_stalled_watches(&mut self) -> Vec<(u64, Action)> {
        let (stalled, duration_ms) = (self.rng.usize(..self.managers), self.rng.u64(30_000..90_000));
        let create = self.creation();
        let create_at = self.rng.u64(..1_000);
        vec![
            (0, manager_fault(stalled, RequestClass::Watches, FaultEffect::StallWatches, duration_ms)),
            (create_at, Action::User(create)),
            (create_at + self.rng.u64(200..6_000), Action::CrashManager((stalled + 1) % self.managers)),
        ]
    }

    /// A new object is created whose watch events all managers but one do not receive, and two leaders in a row shut
    /// down: the second one has led for a moment only, and may never have caught up with the first.
    fn quick_handovers(&mut self) -> Vec<(u64, Action)> {
        let (up_to_date, duration_ms) = (self.rng.usize(..self.managers), self.rng.u64(10_000..90_000));
        let stalled_class =
            self.pick(&[RequestClass::Watches, RequestClass::Pods, RequestClass::ReplicaSets]);
        let stalled = (0..self.managers).filter(|manager| *manager != up_to_date);
        let mut actions: Vec<_> = stalled
            .map(|manager| (0, manager_fault(manager, stalled_class, FaultEffect::StallWatches, duration_ms)))
            .collect();
        let create = self.creation();
        let create_at = self.rng.u64(..1_000);
        let first_stop_at = create_at + self.rng.u64(50..4_000);
        let second_stop_at = first_stop_at + self.rng.u64(30..3_000);
        actions.extend([
            (create_at, Action::User(create)),
            (first_stop_at, Action::StopLeader),
            (second_stop_at, Action::StopLeader),
        ]);
        actions
    }

    /// The machine freezes for longer than the lease duration just after a new object was created.
    fn freeze_after_create(&mut self) -> Vec<(u64, Action)> {
        let create = self.creation();
        vec![
            (0, Action::User(create)),
            (self.rng.u64(5..200), Action::FreezeMachine(self.rng.u64(10_000..40_000))),
        ]
    }

    /// The lease is deleted or cleared by hand while there is work to do, and a manager may end soon afterwards. This
    /// is drawn only in storms without other faults: a leader that cannot read its lease cannot know that it was
    /// deleted.
    pub(crate) fn lease_tampering(&mut self) -> Vec<(u64, Action)> {
        let tampering = self.pick(&[LeaseTampering::Delete, LeaseTampering::ClearHolder]);
        let (first, second) = (self.creation(), self.creation());
        let at = self.rng.u64(..2_000);
        let mut actions = vec![
            (0, Action::User(first)),
            (at, Action::User(UserAction::TamperWithLease(tampering))),
            (at + self.rng.u64(..2_500), Action::User(second)),
        ];
        let manager = self.rng.usize(..self.managers);
        let end_at = at + self.rng.u64(..4_000);
        match self.rng.u8(..4) {
            0 => actions.push((end_at, Action::CrashManager(manager))),
            1 => actions.push((end_at, Action::StopManager(manager))),
            _ => {}
        }
        actions
    }

    /// Lists of one kind fail from some time on, and managers crash or shut down soon afterwards: the next leader starts
    /// without the kind.
    pub(crate) fn failing_lists(&mut self, storm_ms: u64) -> Vec<TimedAction> {
        let at = self.rng.u64(..storm_ms);
        let kind = self.pick(&ListedKind::ALL);
        let mut actions = vec![(at, Action::FailLists(kind))];
        for manager in 0..self.managers {
            let end_at = at + self.rng.u64(..10_000);
            match self.rng.u8(..4) {
                0 => {}
                1 => actions.push((end_at, Action::StopManager(manager))),
                _ => actions.push((end_at, Action::CrashManager(manager))),
            }
        }
        let create = self.creation();
        actions.push((at + self.rng.u64(..20_000), Action::User(create)));
        actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action }).collect()
    }

    /// A single fault.
    fn single_fault(&mut self) -> Action {
        let manager = self.rng.usize(..self.managers);
        let node = self.rng.usize(..self.nodes);
        match self.rng.u8(..100) {
            ..44 => Action::Fault(self.request_fault(manager)),
            44..46 => Action::SkewServerClock(self.pick(&[-300, -60, -2, 2, 60, 300])),
            46..48 => Action::PauseManager(manager, self.rng.u64(1_000..40_000)),
            48..50 => Action::FreezeMachine(self.rng.u64(1_000..40_000)),
            50..52 => Action::RotateCertificates(manager, self.rng.u64(500..20_000)),
            52..66 => Action::CrashManager(manager),
            66..70 => Action::StopManager(manager),
            70..74 => Action::Compact,
            74..78 => Action::ExpireWatches,
            78..82 => Action::CutWatches,
            82..86 => Action::RestartApiServer(self.rng.u64(200..15_000)),
            86..88 => Action::SkewManagerClock(manager, self.pick(&[-300, -60, -2, 2, 60, 300])),
            88..94 => Action::FailNode(node),
            _ => Action::RecoverNode(node),
        }
    }

    fn request_fault(&mut self, manager: usize) -> Fault {
        let effect = match self.rng.u8(..100) {
            // Less than the leader's safety margin: a later write may arrive in the next leader's term.
            ..16 => FaultEffect::DelayRequest(self.rng.u64(50..3_000)),
            16..26 => FaultEffect::DelayResponse(self.rng.u64(50..30_000)),
            26..41 => FaultEffect::Reject(self.pick(&[401, 409, 409, 410, 429, 500, 503, 504])),
            41..43 => FaultEffect::TruncateResponse,
            43..52 => FaultEffect::ApplyThenReject(self.pick(&[500, 504])),
            52..60 => FaultEffect::DropRequest,
            60..70 => FaultEffect::DropResponse,
            70..74 => FaultEffect::Hang,
            74..90 => FaultEffect::StallWatches,
            90..95 => FaultEffect::BreakWatches,
            95..98 => FaultEffect::ExpireWatches,
            _ => FaultEffect::StaleCache,
        };
        let requests = match effect {
            FaultEffect::StaleCache => RequestClass::All,
            FaultEffect::TruncateResponse => {
                self.pick(&[RequestClass::Reads, RequestClass::Writes, RequestClass::Pods])
            }
            FaultEffect::Reject(410) => self.pick(&[
                RequestClass::Reads,
                RequestClass::Watches,
                RequestClass::WatchLists,
                RequestClass::Pods,
            ]),
            FaultEffect::StallWatches | FaultEffect::BreakWatches | FaultEffect::ExpireWatches => {
                self.pick(&[
                    RequestClass::Watches,
                    RequestClass::Pods,
                    RequestClass::ReplicaSets,
                    RequestClass::EndpointSlices,
                ])
            }
            // Other writes do not retry after a conflict: they rely on the watch event of the conflicting
            // change, and an injected conflict has none.
            FaultEffect::Reject(409) => self.pick(&[RequestClass::StatusWrites, RequestClass::Creates]),
            _ => self.pick(&[
                RequestClass::Writes,
                RequestClass::Creates,
                RequestClass::StatusWrites,
                RequestClass::Deletes,
                RequestClass::Reads,
                RequestClass::Watches,
                RequestClass::Pods,
                RequestClass::LeaderLease,
                RequestClass::TokenRequests,
                RequestClass::All,
            ]),
        };
        let nodes = self.rng.u8(..100) < 8;
        let party = if nodes { Party::Nodes } else { Party::Manager(manager) };
        let percent = self.pick(&[10, 30, 60, 100]);
        Fault { party, requests, effect, percent, duration_ms: self.rng.u64(500..90_000) }
    }
}

/// A fault on all requests of this class of a manager.
fn manager_fault(manager: usize, requests: RequestClass, effect: FaultEffect, duration_ms: u64) -> Action {
    Action::Fault(Fault { party: Party::Manager(manager), requests, effect, percent: 100, duration_ms })
}
