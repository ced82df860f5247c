//! The state that the controller keeps in the process.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{Key, Uid};

use super::backoff::BackoffRecord;

/// The state that the controller keeps in the process. All of it may be lost at any time: a new process may
/// replace failed pods early, and lists all pods, so that its cache shows no finalizer that has been removed.
#[derive(Clone, Default)]
pub(super) struct JobMemory {
    /// Failures since the last success, by Job.
    backoffs: BTreeMap<Key, (Uid, BackoffRecord)>,
    /// Pods whose tracking finalizer has been removed while the cache may still show it, by Job.
    finalizer_removed: BTreeMap<Key, BTreeSet<Uid>>,
}

impl JobMemory {
    /// The failures of the Job with this UID.
    pub(super) fn backoff(&self, job: &Key, uid: &Uid) -> BackoffRecord {
        let known = self.backoffs.get(job).filter(|(of, _)| of == uid);
        known.map_or_else(BackoffRecord::default, |(_, record)| *record)
    }

    pub(super) fn remember_backoff(&mut self, job: &Key, uid: &Uid, record: BackoffRecord) {
        self.backoffs.insert(job.clone(), (uid.clone(), record));
    }

    /// Drops the state of a Job that is finished or deleted.
    pub(super) fn forget(&mut self, job: &Key) {
        self.backoffs.remove(job);
        self.finalizer_removed.remove(job);
    }

    /// Records that the tracking finalizer of a pod has been removed.
    pub(super) fn note_finalizer_removed(&mut self, job: &Key, pod: &Uid) {
        self.finalizer_removed.entry(job.clone()).or_default().insert(pod.clone());
    }

    /// The pods without a tracking finalizer among those that the cache shows with it. The others are
    /// dropped from the memory.
    pub(super) fn finalizer_removed(&mut self, job: &Key, shown: &BTreeSet<Uid>) -> BTreeSet<Uid> {
        let Some(removed) = self.finalizer_removed.get_mut(job) else { return BTreeSet::new() };
        removed.retain(|uid| shown.contains(uid));
        let still_shown = removed.clone();
        if still_shown.is_empty() {
            self.finalizer_removed.remove(job);
        }
        still_shown
    }
}
