//! What the controller remembers in the process.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{Key, Uid};
use keleustes_plan::Measurement;

use super::backoff::BackoffRecord;

/// What the controller remembers. All of it may be lost at any moment: a new process replaces failed
/// pods a little early, lists pods afresh (so that none shows a finalizer it has lost), and begins its
/// figures anew.
#[derive(Default)]
pub(super) struct JobMemory {
    /// Failures since the last success, by Job.
    backoffs: BTreeMap<Key, (Uid, BackoffRecord)>,
    /// Pods that have lost their finalizer while the cache may still show it, by Job.
    released: BTreeMap<Key, BTreeSet<Uid>>,
    /// Figures that came up where nothing can be measured, added up; the next turn tells them.
    figures: BTreeMap<(&'static str, Vec<String>), Measurement>,
}

impl JobMemory {
    /// The failures of one life of a Job.
    pub(super) fn backoff(&self, job: &Key, uid: &Uid) -> BackoffRecord {
        let known = self.backoffs.get(job).filter(|(of, _)| of == uid);
        known.map_or_else(BackoffRecord::default, |(_, record)| *record)
    }

    pub(super) fn remember_backoff(&mut self, job: &Key, uid: &Uid, record: BackoffRecord) {
        self.backoffs.insert(job.clone(), (uid.clone(), record));
    }

    /// Forgets all about a Job that is over or gone.
    pub(super) fn forget(&mut self, job: &Key) {
        self.backoffs.remove(job);
        self.released.remove(job);
    }

    /// Remembers that a pod has lost its finalizer.
    pub(super) fn release(&mut self, job: &Key, pod: &Uid) {
        self.released.entry(job.clone()).or_default().insert(pod.clone());
    }

    /// The pods that have lost their finalizer, of those that the cache shows with it. Others need not be
    /// remembered any longer.
    pub(super) fn released(&mut self, job: &Key, shown: &BTreeSet<Uid>) -> BTreeSet<Uid> {
        let Some(released) = self.released.get_mut(job) else { return BTreeSet::new() };
        released.retain(|uid| shown.contains(uid));
        let still_shown = released.clone();
        if still_shown.is_empty() {
            self.released.remove(job);
        }
        still_shown
    }

    /// Notes a count, to be told by the next turn.
    pub(super) fn note(&mut self, count: Measurement) {
        let name = (count.metric.name, count.labels.clone());
        let sum = self.figures.remove(&name).map_or(0.0, |before| before.value) + count.value;
        self.figures.insert(name, Measurement { value: sum, ..count });
    }

    pub(super) fn take_measurements(&mut self) -> impl Iterator<Item = Measurement> + use<> {
        std::mem::take(&mut self.figures).into_values()
    }
}
