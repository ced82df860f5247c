//! Receives the changes of all kinds that controllers write, and finds out about those that no decision explains.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use keleustes_objects::{Key, Uid};
use keleustes_plan::{AnyChange, KindEntry};
use tokio_util::sync::CancellationToken;

use super::Shadow;
use super::attribution::{self, Author};
use super::effect::{Observed, ObservedChange};
use super::hindsight::{Answer, Hindsight, NO_CONTROLLER};
use super::lost_slices::LostSlices;
use crate::caches::{Cache, EventHandler};
use crate::explain::Explainer;

/// After which delays a change is checked again. Watches of different kinds are not in step: what explains a change may
/// arrive after it.
const RETRIES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// To how many changes a view is rewound: a change, and those before it.
const STEPS_BACK: usize = 6;

/// How many live reads per second find out who made a change, and how many at once.
const READS_PER_SECOND: f64 = 20.0;
const READS_BURST: f64 = 100.0;

/// A change that no pending decision explained when it arrived.
pub(super) struct Unexplained {
    pub(super) kind: KindEntry,
    pub(super) change: AnyChange,
    pub(super) observed: Observed,
    /// When it arrived, and its number among all changes.
    at: Duration,
    number: u64,
    /// How often it was looked at already.
    attempts: usize,
    /// The field manager of another client that made it; empty if it is not known.
    by: Option<String>,
    /// For a deletion: objects of the same owner that have come since.
    pub(super) replacements: Vec<Key>,
}

/// A creation that a watch has delivered lately.
pub(super) struct Created {
    at: Duration,
    kind: KindEntry,
    owner: Uid,
    key: Key,
}

/// How many of the latest creations are kept.
const CREATED_MAX: usize = 2000;

/// Compares the changes of one cache with the pending decisions.
struct CacheObserver {
    shadow: Shadow,
    kind: KindEntry,
    /// Whether changes are compared. Others only explain some that are.
    is_compared: bool,
    /// The objects that exist at the start are not changes.
    is_started: AtomicBool,
}

impl EventHandler for CacheObserver {
    fn on_changes(&self, changes: &[AnyChange]) {
        if !self.is_started.load(Ordering::Acquire) {
            changes.iter().for_each(|change| self.note_change(change, false));
            return;
        }
        let at = self.shadow.now().monotonic;
        for change in changes.iter().filter(|change| !change.resync && !change.is_unchanged()) {
            let number = self.shadow.0.latest.lock().add(at, &self.kind, change);
            let observed = Observed::of(self.kind.resource(), change).filter(|_| self.is_compared);
            let Some(observed) = observed else {
                self.note_change(change, false);
                continue;
            };
            self.remember_creation(change, &observed);
            let explained = self.shadow.compare(|comparison, now| comparison.observed(&observed, now));
            self.note_change(change, explained.is_some());
            if explained.is_none() {
                let (kind, change) = (self.kind.clone(), change.clone());
                let unexplained = Unexplained {
                    kind,
                    change,
                    observed,
                    at,
                    number,
                    attempts: 0,
                    by: None,
                    replacements: Vec::new(),
                };
                self.shadow.add_unexplained(unexplained);
            }
        }
    }
}

impl CacheObserver {
    /// A change that is not compared may still be the reason of a known difference.
    fn note_change(&self, change: &AnyChange, is_expected: bool) {
        let resource = self.kind.resource();
        if LostSlices::depend_on(resource) {
            self.shadow.compare(|comparison, _| comparison.note_change(resource, change, is_expected));
        }
    }

    fn remember_creation(&self, change: &AnyChange, observed: &Observed) {
        let Some((meta, owner)) = change.meta().zip(observed.owner.clone()) else { return };
        if observed.change == ObservedChange::Created {
            let mut created = self.shadow.0.created.lock();
            if created.len() >= CREATED_MAX {
                created.pop_front();
            }
            let at = self.shadow.now().monotonic;
            created.push_back(Created { at, kind: self.kind.clone(), owner, key: meta.key.clone() });
        }
    }
}

impl Shadow {
    /// The objects that have come since one of the same owner was deleted.
    fn replacements_of(&self, change: &Unexplained) -> Vec<Key> {
        let (observed, created) = (&change.observed, self.0.created.lock());
        let is_replacement = |one: &&Created| {
            one.at >= change.at && one.kind == change.kind && Some(&one.owner) == observed.owner.as_ref()
        };
        let is_deletion = observed.change == ObservedChange::Deleted;
        created.iter().filter(|_| is_deletion).filter(is_replacement).map(|one| one.key.clone()).collect()
    }

    /// Observes the caches and compares until it is stopped. The controllers must be registered for inspection.
    pub async fn run(&self, explainer: Explainer, stop: CancellationToken) {
        let hindsight = Hindsight::new(explainer);
        let (mut observers, mut budget) = (Vec::new(), Budget::default());
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = async {
                tokio::join!(self.observe(&hindsight, &mut observers), self.check(&hindsight, &mut budget));
            } => {}
        }
        for (cache, observer) in observers {
            cache.remove_event_handler(&observer);
        }
    }

    /// Observes each cache once it is synced.
    async fn observe(&self, hindsight: &Hindsight, observers: &mut Vec<(Arc<Cache>, Arc<dyn EventHandler>)>) {
        let mut synced: FuturesUnordered<_> = hindsight
            .caches()
            .into_iter()
            .map(async |(cache, is_compared)| {
                cache.wait_for_sync().await;
                (cache, is_compared)
            })
            .collect();
        while let Some((cache, is_compared)) = synced.next().await {
            let (kind, shadow) = (cache.entry().clone(), self.clone());
            let observer =
                Arc::new(CacheObserver { shadow, kind, is_compared, is_started: AtomicBool::new(false) });
            let handler: Arc<dyn EventHandler> = observer.clone();
            cache.add_event_handler(handler.clone());
            observer.is_started.store(true, Ordering::Release);
            observers.push((cache, handler));
        }
    }

    /// Looks at unexplained changes, one after the other, and at some of them again later.
    async fn check(&self, hindsight: &Hindsight, budget: &mut Budget) {
        let mut later: BTreeMap<(Duration, u64), Unexplained> = BTreeMap::new();
        let mut number = 0;
        loop {
            let now = self.now().monotonic;
            let is_due = later.first_key_value().is_some_and(|((due, _), _)| *due <= now);
            let next = match is_due {
                true => later.pop_first().map(|(_, change)| change),
                false => self.0.unexplained.lock().pop_front(),
            };
            let Some(mut change) = next else {
                let due = later.first_key_value().map(|((due, _), _)| self.0.clocks.instant(*due));
                let timer = async {
                    match due {
                        Some(due) => tokio::time::sleep_until(due).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = self.0.arrived.notified() => {}
                    () = timer => {}
                }
                continue;
            };
            if !self.is_settled(hindsight, &mut change, budget).await {
                let delay = RETRIES[change.attempts];
                change.attempts += 1;
                number += 1;
                later.insert((self.now().monotonic + delay, number), change);
            }
        }
    }

    /// Finds out about a change. Returns false if it must be looked at again.
    async fn is_settled(&self, hindsight: &Hindsight, change: &mut Unexplained, budget: &mut Budget) -> bool {
        let (is_first, is_last) = (change.attempts == 0, change.attempts == RETRIES.len());
        if change.by.is_some() {
            if is_last {
                self.report_foreign(hindsight, change);
            }
            return is_last;
        }
        if !is_first && self.compare(|comparison, now| comparison.observed(&change.observed, now)).is_some() {
            return true;
        }
        change.replacements = self.replacements_of(change);
        let (suspect, reason) = match self.ask(hindsight, change).await {
            Answer::Wanted(by) => {
                let (decider, wanted) = *by;
                self.compare(|comparison, now| comparison.agreed(&decider, &wanted, now));
                return true;
            }
            Answer::NotWanted(suspect, reason) => (suspect, reason),
        };
        if let Some(controller) = hindsight.collector_of(change) {
            self.compare(|comparison, _| comparison.count_agreement(controller));
            return true;
        }
        if change.observed.change == ObservedChange::Deleted {
            if is_last && change.observed.is_controlled() {
                self.report_foreign(hindsight, change);
            }
            return is_last;
        }
        if !is_first && !is_last {
            return false;
        }
        if !budget.take(self.now().monotonic) {
            self.count_unchecked();
            return true;
        }
        match hindsight.author_of(change).await {
            Author::Leader => {
                if is_last {
                    let observed = &change.observed;
                    self.compare(|comparison, now| comparison.only_leader(suspect, observed, &reason, now));
                }
                is_last
            }
            // Without a controller for it here, the leader has none either.
            Author::Either(_) if suspect != NO_CONTROLLER => {
                if is_last {
                    self.count_unchecked();
                }
                is_last
            }
            // What is expected after it may still have to be decided.
            Author::Other(by) | Author::Either(by) => {
                change.by = Some(by);
                !change.observed.is_controlled() || is_last
            }
            // It had an author that was in doubt when it was new, and has been overwritten since.
            Author::Unknown if is_last => {
                self.count_unchecked();
                true
            }
            Author::Unknown => {
                // It was overwritten before its author could be read, as repaired changes are.
                change.by = change.observed.is_spec_changed.then(String::new);
                !change.observed.is_controlled() || change.by.is_none()
            }
        }
    }

    /// Asks in a view without the change, then in one that is rewound to it and, the last time, to the changes before it.
    async fn ask(&self, hindsight: &Hindsight, change: &Unexplained) -> Answer {
        let steps = match change.attempts {
            0 => 0,
            attempts if attempts < RETRIES.len() => 1,
            _ => STEPS_BACK,
        };
        let mut answer = hindsight.ask(change, change.attempts > 0).await;
        for before in 0..steps {
            if matches!(answer, Answer::Wanted(_)) {
                break;
            }
            let undo = self.0.latest.lock().rewind(change.number, &change.kind, &change.change, before);
            answer = match (answer, hindsight.ask_without(change, &undo, true).await) {
                (_, wanted @ Answer::Wanted(_)) => wanted,
                (first, Answer::NotWanted(..)) => first,
            };
        }
        answer
    }

    fn report_foreign(&self, hindsight: &Hindsight, change: &Unexplained) {
        let deciders = hindsight.deciders_after(change);
        self.compare(|comparison, now| {
            let expected = comparison.wanted_since(change.at, &change.observed, &deciders);
            comparison.foreign(&change.observed, change.by.as_deref().unwrap_or_default(), expected, now);
        });
    }
}

/// A token bucket for live reads.
struct Budget {
    tokens: f64,
    refilled_at: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { tokens: READS_BURST, refilled_at: Duration::ZERO }
    }
}

impl Budget {
    fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * READS_PER_SECOND).min(READS_BURST);
        self.refilled_at = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

impl Hindsight {
    async fn author_of(&self, change: &Unexplained) -> Author {
        let Some(meta) = change.change.meta() else { return Author::Unknown };
        let version = meta.resource_version.to_string();
        let what = (change.observed.change, version.as_str());
        let names = self.controller_names();
        attribution::author(self.client(), change.kind.resource(), &meta.key, what, &names).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_reads_are_limited() {
        let mut budget = Budget::default();
        let taken = (0..150).filter(|_| budget.take(Duration::from_secs(1))).count();
        assert_eq!(taken, 100);
        assert_eq!((0..50).filter(|_| budget.take(Duration::from_secs(2))).count(), 20);
    }
}
