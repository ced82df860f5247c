//! Running attaches and detaches, and the backoff after failed ones.
//!
//! An operation has a key: the volume and the node if several nodes may have the volume, the volume alone if not, so
//! that nothing happens to such a volume on two nodes at once.
//!
//! Parity: pkg/volume/util/nestedpendingoperations.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_rate::Backoff;

use super::desired::PodReference;
use super::volume::{NodeName, VolumeName, VolumeSpec};

/// The delay after the first failure; each further one doubles it.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// The longest delay.
const MAX_BACKOFF: Duration = Duration::from_secs(122);
/// How long an attach or a detach waits for the external attacher.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// What the external attacher reports counts only after this time: it may be left over from an earlier attempt.
const FIRST_CHECK: Duration = Duration::from_millis(500);

/// The two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Attaches a volume.
    Attach,
    /// Detaches it.
    Detach,
}

impl OperationKind {
    /// Its name in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Attach => "volume_attach",
            Self::Detach => "volume_detach",
        }
    }
}

/// An operation that has been started.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// What it does.
    pub(super) kind: OperationKind,
    /// What is known about the volume.
    pub(super) spec: Option<VolumeSpec>,
    /// The pods that get events about the result of an attach.
    pub(super) pods: Vec<PodReference>,
    /// When it was started.
    pub(super) started_at: Duration,
    /// The VolumeAttachment, once the external attacher is waited for.
    pub(super) waiting: Option<Waiting>,
}

/// An operation that waits for the external attacher.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// The name of the VolumeAttachment.
    pub(super) attachment: String,
    /// The driver's name of the volume, for messages.
    pub(super) handle: String,
    /// Since when.
    pub(super) since: Duration,
}

impl Waiting {
    /// Whether errors count that the VolumeAttachment shows.
    pub(super) fn counts_errors(&self, now: Duration) -> bool {
        now >= self.since + FIRST_CHECK
    }

    /// Whether the wait is over.
    pub(super) fn has_timed_out(&self, now: Duration) -> bool {
        now >= self.since + WAIT_MAX
    }

    /// When the wait must be looked at again without an event.
    fn next_check(&self, now: Duration) -> Duration {
        let first = self.since + FIRST_CHECK;
        if now < first { first } else { self.since + WAIT_MAX }
    }
}

/// Whether an operation may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// It may.
    Granted,
    /// Another one is running.
    Pending,
    /// An earlier one failed; it may start at this time.
    BackoffUntil(Duration),
}

/// All operations.
#[derive(Clone, Default)]
pub(super) struct Operations {
    /// By volume: one entry for each key that is running or in backoff.
    entries: BTreeMap<VolumeName, Vec<Entry>>,
    /// The running ones by node and volume.
    running: BTreeMap<NodeName, BTreeMap<VolumeName, Running>>,
}

#[derive(Clone)]
struct Entry {
    /// The node of the key; `None` if the key is the volume alone.
    node: Option<NodeName>,
    kind: OperationKind,
    is_pending: bool,
    backoff: Backoff,
    /// What the entry was before its running operation started; `None` if that operation added it.
    replaced: Option<Replaced>,
}

/// An entry whose last operation failed.
#[derive(Clone)]
struct Replaced {
    node: Option<NodeName>,
    kind: OperationKind,
    backoff: Backoff,
}

impl Operations {
    /// Whether an operation may start.
    pub(super) fn permission(
        &self,
        volume: &VolumeName,
        node: Option<&NodeName>,
        kind: OperationKind,
        now: Duration,
    ) -> Permission {
        match self.find(volume, node) {
            None => Permission::Granted,
            Some((_, entry)) if entry.is_pending => Permission::Pending,
            Some((_, entry)) if entry.kind == kind && entry.backoff.is_waiting(now) => {
                Permission::BackoffUntil(entry.backoff.until())
            }
            Some(_) => Permission::Granted,
        }
    }

    /// The entry that a key conflicts with: a running one first, then that of the same key.
    fn find(&self, volume: &VolumeName, node: Option<&NodeName>) -> Option<(usize, &Entry)> {
        let matches = |entry: &Entry| match (&entry.node, node) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let mut found: Option<(usize, &Entry)> = None;
        let entries = self.entries.get(volume).into_iter().flatten().enumerate();
        for (at, entry) in entries.filter(|(_, entry)| matches(entry)) {
            if entry.is_pending {
                return Some((at, entry));
            }
            if found.is_none() || entry.node.as_ref() == node {
                found = Some((at, entry));
            }
        }
        found
    }

    /// Starts an operation that [`Operations::permission`] granted.
    pub(super) fn start(
        &mut self,
        volume: &VolumeName,
        key_node: Option<NodeName>,
        node: &NodeName,
        running: Running,
    ) {
        let (kind, now) = (running.kind, running.started_at);
        let found = self.find(volume, key_node.as_ref()).map(|(at, _)| at);
        let entries = self.entries.entry(volume.clone()).or_default();
        if let Some(entry) = found.and_then(|at| entries.get_mut(at)) {
            let (node, backoff) = (entry.node.take(), entry.backoff);
            entry.replaced = Some(Replaced { node, kind: entry.kind, backoff });
            if entry.backoff.is_waiting(now) && entry.kind != kind {
                // An attach must not wait because a detach failed, nor the other way round.
                entry.backoff = Backoff::default();
            }
            (entry.node, entry.kind, entry.is_pending) = (key_node, kind, true);
        } else {
            let backoff = Backoff::default();
            entries.push(Entry { node: key_node, kind, is_pending: true, backoff, replaced: None });
        }
        self.running.entry(node.clone()).or_default().insert(volume.clone(), running);
    }

    /// Ends an operation that was not tried, as if it had never started: an earlier one that failed keeps its
    /// backoff.
    pub(super) fn cancel(&mut self, volume: &VolumeName, node: &NodeName) {
        self.remove_running(volume, node);
        self.end(volume, node, |entry| {
            let Some(Replaced { node, kind, backoff }) = entry.replaced.take() else { return true };
            (entry.node, entry.kind, entry.backoff, entry.is_pending) = (node, kind, backoff, false);
            false
        });
    }

    /// Ends an operation and returns it.
    pub(super) fn complete(
        &mut self,
        volume: &VolumeName,
        node: &NodeName,
        succeeded: bool,
        now: Duration,
    ) -> Option<Running> {
        let running = self.remove_running(volume, node)?;
        self.end(volume, node, |entry| {
            (entry.is_pending, entry.replaced) = (false, None);
            if !succeeded {
                entry.backoff.record_failure(now, INITIAL_BACKOFF, MAX_BACKOFF);
            }
            succeeded
        });
        Some(running)
    }

    /// Changes the pending entry of an operation and removes it if `change` says so.
    fn end(&mut self, volume: &VolumeName, node: &NodeName, change: impl Fn(&mut Entry) -> bool) {
        let Some(entries) = self.entries.get_mut(volume) else { return };
        let is_of_it = |entry: &Entry| entry.is_pending && entry.node.as_ref().is_none_or(|of| of == node);
        entries.retain_mut(|entry| !is_of_it(entry) || !change(entry));
        if entries.is_empty() {
            self.entries.remove(volume);
        }
    }

    fn remove_running(&mut self, volume: &VolumeName, node: &NodeName) -> Option<Running> {
        let volumes = self.running.get_mut(node)?;
        let running = volumes.remove(volume);
        if volumes.is_empty() {
            self.running.remove(node);
        }
        running
    }

    /// The running operations on a node.
    pub(super) fn running_on(&self, node: &NodeName) -> impl Iterator<Item = (&VolumeName, &Running)> {
        self.running.get(node).into_iter().flatten()
    }

    /// Lets an operation wait for the external attacher.
    pub(super) fn wait(&mut self, volume: &VolumeName, node: &NodeName, waiting: Waiting) {
        let running = self.running.get_mut(node).and_then(|volumes| volumes.get_mut(volume));
        if let Some(running) = running {
            running.waiting = Some(waiting);
        }
    }

    /// When a running operation on a node must be looked at again without an event.
    pub(super) fn next_check(&self, node: &NodeName, now: Duration) -> Option<Duration> {
        let waiting = self.running_on(node).filter_map(|(_, running)| running.waiting.as_ref());
        waiting.map(|waiting| waiting.next_check(now)).min()
    }

    /// Whether an operation on a volume and node is running.
    pub(super) fn is_running(&self, volume: &VolumeName, node: &NodeName) -> bool {
        self.running.get(node).is_some_and(|volumes| volumes.contains_key(volume))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(kind: OperationKind, now: Duration) -> Running {
        Running { kind, spec: None, pods: Vec::new(), started_at: now, waiting: None }
    }

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    use OperationKind::{Attach, Detach};
    use Permission::{BackoffUntil, Granted, Pending};

    /// Proves AD-60.
    #[test]
    fn failures_double_the_backoff_and_another_operation_resets_it() {
        let (volume, node) = (VolumeName::from("v"), NodeName::from("n"));
        let mut operations = Operations::default();
        let fail = |operations: &mut Operations, kind, now| {
            operations.start(&volume, None, &node, running(kind, now));
            operations.complete(&volume, &node, false, now).unwrap();
        };
        fail(&mut operations, Attach, at(0));
        assert_eq!(operations.permission(&volume, None, Attach, at(499)), BackoffUntil(at(500)));
        assert_eq!(operations.permission(&volume, None, Attach, at(500)), Granted);
        fail(&mut operations, Attach, at(500));
        assert_eq!(operations.permission(&volume, None, Attach, at(1499)), BackoffUntil(at(1500)));
        // The other operation may run at once, with a new backoff.
        assert_eq!(operations.permission(&volume, None, Detach, at(600)), Granted);
        fail(&mut operations, Detach, at(600));
        assert_eq!(operations.permission(&volume, None, Detach, at(601)), BackoffUntil(at(1100)));
        assert_eq!(operations.permission(&volume, None, Attach, at(601)), Granted);
        // After the backoff, either continues the doubling.
        fail(&mut operations, Attach, at(1100));
        assert_eq!(operations.permission(&volume, None, Attach, at(1101)), BackoffUntil(at(2100)));
        let mut now = at(2100);
        for _ in 0..12 {
            fail(&mut operations, Attach, now);
            let BackoffUntil(until) = operations.permission(&volume, None, Attach, now) else {
                panic!("no backoff")
            };
            now = until;
        }
        fail(&mut operations, Attach, now);
        assert_eq!(operations.permission(&volume, None, Attach, now), BackoffUntil(now + MAX_BACKOFF));
        assert_eq!(MAX_BACKOFF, Duration::from_secs(122));
        // A success clears it.
        operations.start(&volume, None, &node, running(Attach, now + MAX_BACKOFF));
        operations.complete(&volume, &node, true, now + MAX_BACKOFF).unwrap();
        fail(&mut operations, Attach, now);
        assert_eq!(operations.permission(&volume, None, Attach, now), BackoffUntil(now + INITIAL_BACKOFF));
    }

    /// Proves AD-60.
    #[test]
    fn canceled_operation_leaves_the_backoff_of_another_one() {
        let (volume, one, two) = (VolumeName::from("v"), NodeName::from("n1"), NodeName::from("n2"));
        let mut operations = Operations::default();
        let fail = |operations: &mut Operations, now| {
            operations.start(&volume, None, &one, running(Detach, now));
            operations.complete(&volume, &one, false, now).unwrap();
        };
        fail(&mut operations, at(0));
        fail(&mut operations, at(500));
        for now in [at(600), at(700)] {
            assert_eq!(operations.permission(&volume, None, Attach, now), Granted);
            operations.start(&volume, None, &two, running(Attach, now));
            assert_eq!(operations.permission(&volume, None, Detach, now), Pending);
            operations.cancel(&volume, &two);
            assert_eq!(operations.permission(&volume, None, Detach, now), BackoffUntil(at(1500)));
        }
        fail(&mut operations, at(1500));
        assert_eq!(operations.permission(&volume, None, Detach, at(1501)), BackoffUntil(at(3500)), "doubled");
        // The key of the earlier operation is restored, too.
        let mut operations = Operations::default();
        operations.start(&volume, Some(one.clone()), &one, running(Detach, at(0)));
        operations.complete(&volume, &one, false, at(0)).unwrap();
        operations.start(&volume, None, &two, running(Attach, at(1)));
        operations.cancel(&volume, &two);
        assert_eq!(operations.permission(&volume, Some(&one), Detach, at(1)), BackoffUntil(at(500)));
        assert_eq!(operations.permission(&volume, Some(&two), Detach, at(1)), Granted);
        // Without an earlier failure nothing is left.
        let mut operations = Operations::default();
        operations.start(&volume, None, &two, running(Attach, at(0)));
        operations.cancel(&volume, &two);
        assert!(operations.entries.is_empty());
    }

    /// Proves AD-61.
    #[test]
    fn a_key_without_node_conflicts_with_every_operation_on_the_volume() {
        let (volume, other) = (VolumeName::from("v"), VolumeName::from("w"));
        let (one, two) = (NodeName::from("n1"), NodeName::from("n2"));
        let mut operations = Operations::default();
        operations.start(&volume, Some(one.clone()), &one, running(Attach, at(0)));
        let permission = |operations: &Operations, node: Option<&NodeName>| {
            operations.permission(&volume, node, Detach, at(1))
        };
        assert_eq!(permission(&operations, Some(&one)), Pending);
        assert_eq!(permission(&operations, Some(&two)), Granted, "another node");
        assert_eq!(permission(&operations, None), Pending, "the whole volume");
        assert_eq!(operations.permission(&other, None, Detach, at(1)), Granted, "another volume");
        operations.complete(&volume, &one, true, at(2)).unwrap();
        operations.start(&volume, None, &one, running(Attach, at(2)));
        assert_eq!(permission(&operations, Some(&two)), Pending, "a key without node is the whole volume");
        operations.cancel(&volume, &one);
        assert_eq!(permission(&operations, None), Granted);
    }
}
