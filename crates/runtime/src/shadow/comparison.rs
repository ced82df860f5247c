//! Compares what the controllers of this process want with what happens in the cluster. Pure: time is passed in.
//!
//! A *decision* is a write that a reconcile wants at this moment. It stays pending while reconciles of its item want it. A
//! change that a watch delivers and that a pending decision explains is an *agreement*. A decision that disappears without
//! such a change is *withdrawn*: the cluster changed in another way. One that is still wanted after the window is
//! a difference: only this process would write it, or the leader has written the object and this process still
//! wants another content.
//!
//! All that is kept is bounded; what does not fit is counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use keleustes_objects::Resource;
use keleustes_plan::{AnyChange, Item};
use serde::Serialize;

use super::effect::{Collection, Effect, Observed, WriteEffect};
use super::known;
use super::lost_slices::LostSlices;

/// How many pending decisions are kept.
const PENDING_MAX: usize = 20_000;
/// How many differences, and how many foreign changes, are kept.
const KEPT_MAX: usize = 500;
/// How many of the latest decisions are kept, to tell what was expected after a foreign change.
const RECENT_MAX: usize = 2000;
/// How many expected writes are shown with a foreign change.
const EXPECTED_MAX: usize = 3;
/// Longer texts are cut.
const TEXT_BYTES_MAX: usize = 400;

/// When something happened, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time.
    pub monotonic: Duration,
    /// The wall clock, in milliseconds since 1970.
    pub unix_milliseconds: i64,
}

/// Whose decision it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decider {
    /// The controller.
    pub controller: &'static str,
    /// Its queue.
    pub queue: &'static str,
    /// The item that was reconciled.
    pub item: Item,
}

/// A write that a reconcile wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it changes.
    pub effect: WriteEffect,
    /// Why.
    pub because: String,
}

impl Wanted {
    /// One line, with the controller.
    fn line(&self, controller: &str) -> String {
        let WriteEffect { collection, .. } = &self.effect;
        let (verb, resource, name) = (self.effect.verb(), collection.resource(), self.effect.name());
        let slash = if collection.namespace.is_empty() { "" } else { "/" };
        cut(format!(
            "{controller}: {verb} {resource} {}{slash}{name} because {}",
            collection.namespace, self.because
        ))
    }
}

/// A decision that is neither made by the leader nor withdrawn.
#[derive(Clone, Debug)]
struct Pending {
    /// How many equal writes are wanted, such as pods of one ReplicaSet.
    count: usize,
    because: String,
    first_wanted: Moment,
    /// When the leader last did it, and how often since it was first wanted.
    agreed_at: Option<Duration>,
    agreed: usize,
    is_reported: bool,
    /// Whether it was reported as known because a slice was lost.
    follows_loss: bool,
}

/// A decision that was made lately, pending or not.
#[derive(Clone, Debug)]
struct Recent {
    at: Duration,
    decider: Decider,
    collection: Collection,
    line: String,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DifferenceKind {
    /// Only this process would make the write.
    OnlyOurs,
    /// The leader has written the object, and this process still wants to write it.
    OtherContent,
    /// Only the leader made the write.
    OnlyLeader,
}

impl DifferenceKind {
    /// The value of the metric's label, and the word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnlyOurs => "only ours",
            Self::OtherContent => "other content",
            Self::OnlyLeader => "only leader",
        }
    }
}

/// Where this process and the leader differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The kind.
    pub kind: DifferenceKind,
    /// The controller; for a write of the leader the one that most likely made it.
    pub controller: String,
    /// The verb and the subresource.
    pub verb: String,
    /// The resource, as kubectl takes it.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name, or the beginning of a generated one with `*`.
    pub name: String,
    /// Why this process wants the write, or what it wants instead.
    pub reason: String,
    /// Why the difference is known; `None` for an unlisted one.
    pub known: Option<&'static str>,
    /// When it was first noticed, in milliseconds since 1970.
    pub first_unix_milliseconds: i64,
    /// When it was last noticed.
    pub last_unix_milliseconds: i64,
    /// How often.
    pub count: u64,
    /// Whether this process no longer wants the write.
    pub resolved: bool,
}

/// A change of an object of a controller by neither manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignChange {
    /// The verb.
    pub verb: &'static str,
    /// The resource, as kubectl takes it.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The field manager that made it; empty for a deletion, which leaves no trace.
    pub by: String,
    /// What the controllers of this process want after it.
    pub expected: Vec<String>,
    /// When it was noticed, in milliseconds since 1970.
    pub unix_milliseconds: i64,
}

/// The counts of one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Writes that were wanted.
    pub decisions: u64,
    /// Writes of the leader that this process would have made, too.
    pub agreements: u64,
    /// Decisions that disappeared without a write of the leader.
    pub withdrawn: u64,
    /// Differences that are not listed as known.
    pub differences: u64,
    /// Differences that are.
    pub known_differences: u64,
}

/// What has happened since the last call, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A write was wanted.
    Decision(&'static str),
    /// The leader made a write that was wanted.
    Agreement(String),
    /// A decision disappeared.
    Withdrawn(&'static str),
    /// A difference was noticed.
    Difference(String, DifferenceKind, bool),
    /// An object was changed by neither manager.
    Foreign(String),
}

/// Compares decisions with changes.
#[derive(Debug)]
pub struct Comparison {
    window: Duration,
    pending: BTreeMap<Decider, BTreeMap<WriteEffect, Pending>>,
    /// Who has pending decisions in a collection.
    places: BTreeMap<Collection, BTreeSet<Decider>>,
    pending_count: usize,
    counts: BTreeMap<String, Counts>,
    differences: VecDeque<Difference>,
    foreign: VecDeque<ForeignChange>,
    /// The latest decisions, the oldest first.
    recent: VecDeque<Recent>,
    lost_slices: LostSlices,
    counted: Vec<Counted>,
    /// Decisions and differences that did not fit.
    pub not_kept: u64,
}

impl Comparison {
    /// Nothing is pending. A decision that is wanted for longer than the window is a difference.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            pending: BTreeMap::new(),
            places: BTreeMap::new(),
            pending_count: 0,
            counts: BTreeMap::new(),
            differences: VecDeque::new(),
            foreign: VecDeque::new(),
            recent: VecDeque::new(),
            lost_slices: LostSlices::default(),
            counted: Vec::new(),
            not_kept: 0,
        }
    }

    /// A reconcile of an item has ended: these are the writes that it wants, in place of those that it wanted before.
    /// Returns the delay after which it must be reconciled again, if it wants any.
    pub fn decided(&mut self, decider: &Decider, wanted: Vec<Wanted>, now: Moment) -> Option<Duration> {
        let mut before = self.remove(decider);
        let mut after: BTreeMap<WriteEffect, Pending> = BTreeMap::new();
        for Wanted { effect, because } in wanted {
            let known = || {
                before.get(&effect).cloned().map(|known| Pending {
                    count: 0,
                    because: because.clone(),
                    ..known
                })
            };
            let new = Pending {
                count: 0,
                because: because.clone(),
                first_wanted: now,
                agreed_at: None,
                agreed: 0,
                is_reported: false,
                follows_loss: false,
            };
            after.entry(effect.clone()).or_insert_with(|| known().unwrap_or(new)).count += 1;
        }
        for (effect, pending) in &after {
            let known = before.remove(effect).map_or(0, |known| known.count);
            if known < pending.count {
                let wanted = Wanted { effect: effect.clone(), because: pending.because.clone() };
                self.remember(decider, &wanted, now);
            }
            for _ in known..pending.count {
                self.count(decider.controller).decisions += 1;
                self.counted.push(Counted::Decision(decider.controller));
            }
        }
        for (effect, gone) in before {
            self.disappeared(decider, &effect, &gone);
        }
        let delay = self.report_overdue(decider, &mut after, now);
        self.insert(decider, after);
        delay
    }

    /// Reports what has been wanted for too long, and says when to look again.
    fn report_overdue(
        &mut self,
        decider: &Decider,
        wanted: &mut BTreeMap<WriteEffect, Pending>,
        now: Moment,
    ) -> Option<Duration> {
        let mut delay: Option<Duration> = None;
        let has_lost_slice = self.lost_slices.contains(decider.controller, decider.item.key());
        for (effect, pending) in wanted {
            if pending.follows_loss && !has_lost_slice {
                // Its reason is gone, and the leader has a window to make the write.
                *pending = Pending {
                    first_wanted: now,
                    agreed_at: None,
                    is_reported: false,
                    follows_loss: false,
                    ..pending.clone()
                };
            }
            let since = pending.agreed_at.unwrap_or(pending.first_wanted.monotonic);
            let age = now.monotonic.saturating_sub(since);
            if age >= self.window && !pending.is_reported {
                pending.is_reported = true;
                let kind = match pending.agreed {
                    0 => DifferenceKind::OnlyOurs,
                    _ => DifferenceKind::OtherContent,
                };
                let times =
                    if pending.count > 1 { format!(" ({} times)", pending.count) } else { String::new() };
                let reason = format!("wanted{times} because {}", pending.because);
                let what = (kind, decider.controller, effect.verb());
                let is_known = self.differ(what, effect, &reason, has_lost_slice, now);
                pending.follows_loss = is_known && has_lost_slice;
            }
            let again = next_look(age, self.window);
            delay = Some(delay.map_or(again, |earlier| earlier.min(again)));
        }
        delay
    }

    fn disappeared(&mut self, decider: &Decider, effect: &WriteEffect, gone: &Pending) {
        if gone.is_reported {
            let (resource, name) = (effect.collection.resource(), effect.name());
            let is_it = |there: &&mut Difference| {
                (there.controller.as_str(), &there.resource, &there.name)
                    == (decider.controller, &resource, &name)
                    && there.namespace == effect.collection.namespace
            };
            self.differences.iter_mut().filter(is_it).for_each(|there| there.resolved = true);
        } else if gone.agreed == 0 {
            self.count(decider.controller).withdrawn += 1;
            self.counted.push(Counted::Withdrawn(decider.controller));
        }
    }

    /// A watch has delivered a change. Returns the controller whose pending decision explains it: an agreement.
    pub fn observed(&mut self, observed: &Observed, now: Moment) -> Option<&'static str> {
        let deciders = self.places.get(&observed.collection)?;
        // First those that the leader has not dealt with, and of these the object itself.
        let mut best: Option<((bool, bool), &Decider, WriteEffect)> = None;
        for decider in deciders {
            let Some(pending) = self.pending.get(decider) else { continue };
            for (effect, one) in pending.iter().filter(|(effect, _)| effect.explains(observed)) {
                let rank = (one.agreed >= one.count, effect.name() != observed.name);
                if best.as_ref().is_none_or(|(lowest, ..)| rank < *lowest) {
                    best = Some((rank, decider, effect.clone()));
                }
            }
        }
        let (_, decider, effect) = best?;
        let (decider, controller) = (decider.clone(), decider.controller);
        if let Some(one) = self.pending.get_mut(&decider).and_then(|pending| pending.get_mut(&effect)) {
            one.agreed += 1;
            one.agreed_at = Some(now.monotonic);
        }
        self.count_agreement(controller);
        Some(controller)
    }

    /// A watch has delivered a change of any kind, which may explain a known difference. `is_expected`: a decision explains
    /// it.
    pub fn note_change(&mut self, resource: &Resource, change: &AnyChange, is_expected: bool) {
        self.lost_slices.changed(resource, change, is_expected);
    }

    /// A change was found to be what a controller of this process would have made.
    pub fn agreed(&mut self, decider: &Decider, wanted: &Wanted, now: Moment) {
        self.remember(decider, wanted, now);
        self.count_agreement(decider.controller);
    }

    /// A change was found to follow from a deletion.
    pub fn count_agreement(&mut self, controller: &str) {
        self.count(controller).agreements += 1;
        self.counted.push(Counted::Agreement(controller.to_owned()));
    }

    fn remember(&mut self, decider: &Decider, wanted: &Wanted, now: Moment) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent {
            at: now.monotonic,
            decider: decider.clone(),
            collection: wanted.effect.collection.clone(),
            line: wanted.line(decider.controller),
        });
    }

    /// What reconciles of these items have wanted since a change: first in the collection of the changed object.
    #[must_use]
    pub fn wanted_since(&self, since: Duration, observed: &Observed, deciders: &[Decider]) -> Vec<String> {
        let is_wanted = |one: &&Recent| one.at >= since && deciders.contains(&one.decider);
        let mut wanted: Vec<_> = self.recent.iter().filter(is_wanted).collect();
        wanted.sort_by_key(|one| one.collection != observed.collection);
        let mut lines: Vec<String> = Vec::new();
        for Recent { line, .. } in wanted {
            if lines.len() < EXPECTED_MAX && !lines.contains(line) {
                lines.push(line.clone());
            }
        }
        lines
    }

    /// The leader made a change that no controller of this process would have made.
    pub fn only_leader(&mut self, controller: &str, observed: &Observed, reason: &str, now: Moment) {
        let effect = WriteEffect {
            collection: observed.collection.clone(),
            effect: Effect::Update { name: observed.name.clone(), subresource: "" },
        };
        let verb = observed.change.verb().to_owned();
        self.differ((DifferenceKind::OnlyLeader, controller, verb), &effect, reason, false, now);
    }

    /// An object of a controller was changed by neither manager.
    pub fn foreign(&mut self, observed: &Observed, by: &str, expected: Vec<String>, now: Moment) {
        let resource = observed.collection.resource();
        self.counted.push(Counted::Foreign(resource.clone()));
        let change = ForeignChange {
            verb: observed.change.verb(),
            resource,
            namespace: observed.collection.namespace.clone(),
            name: observed.name.clone(),
            by: by.to_owned(),
            expected: expected.into_iter().map(cut).collect(),
            unix_milliseconds: now.unix_milliseconds,
        };
        if self.foreign.len() >= KEPT_MAX {
            self.foreign.pop_front();
        }
        self.foreign.push_back(change);
    }

    /// Reports a difference, and returns whether it is known.
    fn differ(
        &mut self,
        (kind, controller, verb): (DifferenceKind, &str, String),
        effect: &WriteEffect,
        reason: &str,
        has_lost_slice: bool,
        now: Moment,
    ) -> bool {
        let (resource, namespace) = (effect.collection.resource(), effect.collection.namespace.clone());
        let mut difference = Difference {
            kind,
            controller: controller.to_owned(),
            verb,
            resource,
            namespace,
            name: effect.name(),
            reason: cut(reason.to_owned()),
            known: None,
            first_unix_milliseconds: now.unix_milliseconds,
            last_unix_milliseconds: now.unix_milliseconds,
            count: 1,
            resolved: false,
        };
        difference.known = known::reason(&difference, has_lost_slice);
        let is_known = difference.known.is_some();
        let counts = self.count(controller);
        match is_known {
            true => counts.known_differences += 1,
            false => counts.differences += 1,
        }
        self.counted.push(Counted::Difference(controller.to_owned(), kind, is_known));
        let same = self.differences.iter_mut().find(|there| there.is_same(&difference));
        if let Some(there) = same {
            there.count += 1;
            there.last_unix_milliseconds = now.unix_milliseconds;
            there.resolved = false;
            there.reason = difference.reason;
            return is_known;
        }
        if self.differences.len() >= KEPT_MAX {
            // A known difference is worth less than an unlisted one.
            let at = self.differences.iter().position(|there| there.known.is_some()).unwrap_or(0);
            self.differences.remove(at);
            self.not_kept += 1;
        }
        self.differences.push_back(difference);
        is_known
    }

    fn count(&mut self, controller: &str) -> &mut Counts {
        self.counts.entry(controller.to_owned()).or_default()
    }

    fn remove(&mut self, decider: &Decider) -> BTreeMap<WriteEffect, Pending> {
        let removed = self.pending.remove(decider).unwrap_or_default();
        self.pending_count -= removed.len();
        for effect in removed.keys() {
            if let Some(there) = self.places.get_mut(&effect.collection) {
                there.remove(decider);
                if there.is_empty() {
                    self.places.remove(&effect.collection);
                }
            }
        }
        removed
    }

    fn insert(&mut self, decider: &Decider, mut wanted: BTreeMap<WriteEffect, Pending>) {
        while self.pending_count + wanted.len() > PENDING_MAX && wanted.pop_last().is_some() {
            self.not_kept += 1;
        }
        if wanted.is_empty() {
            return;
        }
        self.pending_count += wanted.len();
        for effect in wanted.keys() {
            self.places.entry(effect.collection.clone()).or_default().insert(decider.clone());
        }
        self.pending.insert(decider.clone(), wanted);
    }

    /// What is to be added to the metrics since the last call.
    pub fn take_counted(&mut self) -> Vec<Counted> {
        std::mem::take(&mut self.counted)
    }

    /// The counts of every controller that wanted something.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<String, Counts> {
        &self.counts
    }

    /// The differences, the oldest first.
    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter()
    }

    /// The changes by neither manager, the oldest first.
    pub fn foreign_changes(&self) -> impl Iterator<Item = &ForeignChange> {
        self.foreign.iter()
    }

    /// How many decisions of a controller are pending.
    #[must_use]
    pub fn pending_of(&self, controller: &str) -> usize {
        let own = self.pending.iter().filter(|(decider, _)| decider.controller == controller);
        own.map(|(_, pending)| pending.len()).sum()
    }
}

impl Difference {
    fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.controller, &self.verb, &self.resource, &self.namespace, &self.name)
            == (other.kind, &other.controller, &other.verb, &other.resource, &other.namespace, &other.name)
            && self.known == other.known
    }
}

/// When to reconcile an item again whose decision is pending for so long: soon at first, because the caches may move
/// without an event for the item; once it is reported, to see whether it is still wanted.
fn next_look(age: Duration, window: Duration) -> Duration {
    match age.as_secs() {
        _ if age >= window => Duration::from_secs(60),
        0..5 => Duration::from_secs(1),
        _ => Duration::from_secs(5).min(window - age),
    }
    .max(Duration::from_millis(500))
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests;
