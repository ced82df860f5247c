//! What is remembered of Services between their turns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_objects::{EndpointSlice, InternedStr, Key, ResourceVersion, Service, Time, Uid};

use super::endpoints::AddressType;
use super::zones::{HintsPerZone, ZoneCpuRatios};

/// What is remembered. A new process begins without it, which costs nothing but this: the first write for a
/// Service is dated with the Service's creation, hints in proportion to CPUs are announced once more, and
/// every Service with slices is looked at again, all of which the original does, too.
#[derive(Default)]
pub(super) struct EndpointSliceMemory {
    services: BTreeMap<Key, Known>,
    /// The zones of the cluster, once somebody has looked.
    zones: Option<ZoneCpuRatios>,
    totals: Totals,
    distributions: BTreeMap<InternedStr, usize>,
}

/// What is remembered of one Service.
#[derive(Default)]
struct Known {
    /// Whether it has had a turn.
    had_turn: bool,
    /// When it was created, as of its last turn.
    created_at: Option<Time>,
    /// The earliest of the changes of its pods since its last turn.
    pods_changed_at: Option<Time>,
    /// Until when changes of its pods are gathered because it has just been written.
    gathers_until: Duration,
    /// For how long that is.
    gathering: Duration,
    /// What was written for it and has not been seen to arrive in the cache.
    written: Vec<(Uid, Written)>,
    totals: Totals,
    /// The `trafficDistribution` that it is counted under; empty if it is not.
    distribution: InternedStr,
    hints: Option<Box<Hinted>>,
    /// The nodes that its pods are on and that were not there in its last turn.
    missing_nodes: BTreeSet<InternedStr>,
}

/// Hints in proportion to CPUs, which few Services have.
#[derive(Default)]
struct Hinted {
    is_populated: bool,
    counts: BTreeMap<AddressType, HintsPerZone>,
}

/// How much there is, of one Service or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) endpoints: usize,
    pub(super) slices: usize,
    /// How many slices would do.
    pub(super) desired_slices: usize,
}

/// A write of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It led to this state.
    State(ResourceVersion),
    /// It ended the slice.
    End,
}

impl EndpointSliceMemory {
    fn known(&mut self, service: &Key) -> &mut Known {
        self.services.entry(service.clone()).or_default()
    }

    /// Notes when a pod of a Service changed.
    pub(super) fn pod_changed(&mut self, service: &Key, at: Option<Time>) {
        let known = self.known(service);
        known.pods_changed_at = [known.pods_changed_at, at].into_iter().flatten().min();
    }

    /// How long a Service still gathers changes of its pods.
    pub(super) fn debounce_remaining(&self, service: &Key, now: Duration) -> Duration {
        self.services.get(service).map_or(Duration::ZERO, |known| known.gathers_until.saturating_sub(now))
    }

    /// Begins a turn of a Service. Answers with the time of the earliest change that it is about.
    pub(super) fn begin_turn(&mut self, service: &Service) -> Option<Time> {
        let known = self.known(&service.meta.key);
        // The turn would not have come before the caches had seen them.
        known.written.clear();
        let pods_changed_at = known.pods_changed_at.take();
        let before = std::mem::replace(&mut known.created_at, service.meta.creation_timestamp);
        if !std::mem::replace(&mut known.had_turn, true) {
            return service.meta.creation_timestamp;
        }
        let is_newer = service.meta.creation_timestamp > before;
        [pods_changed_at, service.meta.creation_timestamp.filter(|_| is_newer)].into_iter().flatten().min()
    }

    /// Lets changes of a Service's pods gather from now on, for so long. If there was hardly a pause since they
    /// last gathered they do so for twice as long as then, up to a bound.
    pub(super) fn start_debounce(
        &mut self,
        service: &Key,
        now: Duration,
        at_first: Duration,
        at_most: Duration,
    ) {
        let known = self.known(service);
        let (until, before) = (known.gathers_until, known.gathering);
        let at_least = match now {
            // Two writes of one turn.
            now if now < until => before,
            now if now < until + before => (2 * before).min(at_most),
            _ => Duration::ZERO,
        };
        known.gathering = at_first.max(at_least);
        known.gathers_until = now + known.gathering;
    }

    /// Lets a Service have its next turn at once.
    pub(super) fn cancel_debounce(&mut self, service: &Key) {
        if let Some(known) = self.services.get_mut(service) {
            known.gathers_until = Duration::ZERO;
        }
    }

    /// Notes a write of our own that the cache has not seen yet.
    pub(super) fn wrote(&mut self, service: &Key, slice: Uid, written: Written) {
        self.known(service).written.push((slice, written));
    }

    /// Whether what the cache shows of a slice, or of its end, is our own work. Who asks has seen it.
    pub(super) fn is_own_write(&mut self, service: &Key, slice: &EndpointSlice, is_gone: bool) -> bool {
        let Some(known) = self.services.get_mut(service) else { return false };
        let Some(at) = known.written.iter().position(|(uid, _)| *uid == slice.meta.uid) else { return false };
        match &known.written[at].1 {
            Written::End if is_gone => {
                known.written.swap_remove(at);
                true
            }
            // It may still be shown as it was before it ended.
            Written::End => true,
            Written::State(_) if is_gone => false,
            Written::State(version) => {
                let (is_it, is_later) = (
                    slice.meta.resource_version == *version,
                    version.is_older_than(&slice.meta.resource_version),
                );
                if is_it || is_later {
                    known.written.swap_remove(at);
                }
                !is_later
            }
        }
    }

    /// Notes the nodes of a Service's pods that are not there.
    pub(super) fn misses<'n>(&mut self, service: &Key, nodes: impl Iterator<Item = &'n InternedStr>) {
        self.known(service).missing_nodes = nodes.cloned().collect();
    }

    /// The Services that miss a node.
    pub(super) fn missing(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.services.iter().filter(|(_, known)| known.missing_nodes.contains(node)).map(|(key, _)| key)
    }

    /// The zones of the cluster, if somebody has looked at them.
    pub(super) fn zones(&self) -> Option<&ZoneCpuRatios> {
        self.zones.as_ref()
    }

    /// Takes in a new look at the zones. Answers with the Services whose hints they do not bear any more.
    pub(super) fn survey(&mut self, zones: ZoneCpuRatios) -> Vec<Key> {
        let is_overloaded = |known: &Known| {
            let mut counts = known.hints.iter().flat_map(|hints| hints.counts.values());
            counts.any(|counts| zones.overload(counts))
        };
        let overloaded = self.services.iter().filter(|(_, known)| is_overloaded(known));
        let overloaded = overloaded.map(|(key, _)| key.clone()).collect();
        self.zones = Some(zones);
        overloaded
    }

    /// Notes the hints of a Service. Answers whether it had any before.
    pub(super) fn hinted(&mut self, service: &Key, family: AddressType, counts: HintsPerZone) -> bool {
        let hints = self.known(service).hints.get_or_insert_default();
        hints.counts.insert(family, counts);
        std::mem::replace(&mut hints.is_populated, true)
    }

    /// Notes that a Service has no hints in a family. Answers whether it had any before, in any family.
    pub(super) fn remove_hint_counts(&mut self, service: &Key, family: AddressType) -> bool {
        let known = self.known(service);
        let Some(hints) = &mut known.hints else { return false };
        let had_hints = std::mem::replace(&mut hints.is_populated, false);
        hints.counts.remove(&family);
        if hints.counts.is_empty() {
            known.hints = None;
        }
        had_hints
    }

    /// Counts a Service with what it has, under its `trafficDistribution` if that is heeded.
    pub(super) fn count(&mut self, service: &Key, totals: Totals, distribution: Option<&InternedStr>) {
        let distribution = distribution.cloned().unwrap_or_default();
        let known = self.services.entry(service.clone()).or_default();
        let (before, left) = (
            std::mem::replace(&mut known.totals, totals),
            std::mem::replace(&mut known.distribution, distribution),
        );
        let entered = known.distribution.clone();
        self.totals = self.totals.plus(totals).minus(before);
        self.recount(&left, &entered);
    }

    /// Moves one Service from one `trafficDistribution` to another. One that nobody has any more stays, as
    /// zero: it would otherwise look as if nobody measured it.
    fn recount(&mut self, left: &InternedStr, entered: &InternedStr) {
        if let Some(count) = self.distributions.get_mut(left) {
            *count -= 1;
        }
        if !entered.is_empty() {
            *self.distributions.entry(entered.clone()).or_default() += 1;
        }
    }

    /// Forgets a Service.
    pub(super) fn forget(&mut self, service: &Key) {
        if let Some(known) = self.services.remove(service) {
            self.totals = self.totals.minus(known.totals);
            self.recount(&known.distribution, &InternedStr::default());
        }
    }

    /// How much all Services have.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// How many Services have which `trafficDistribution`.
    pub(super) fn distributions(&self) -> impl Iterator<Item = (&InternedStr, usize)> {
        self.distributions.iter().map(|(distribution, count)| (distribution, *count))
    }
}

impl Totals {
    fn plus(self, more: Self) -> Self {
        Self {
            endpoints: self.endpoints + more.endpoints,
            slices: self.slices + more.slices,
            desired_slices: self.desired_slices + more.desired_slices,
        }
    }

    fn minus(self, less: Self) -> Self {
        Self {
            endpoints: self.endpoints - less.endpoints,
            slices: self.slices - less.slices,
            desired_slices: self.desired_slices - less.desired_slices,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(version: &str) -> EndpointSlice {
        let metadata = json!({"namespace": "a", "name": "web-1", "uid": "u", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    /// Proves EPS-11, EPS-13, EPS-14.
    #[test]
    fn our_own_writes_are_told_from_those_of_others() {
        let service = Key::namespaced("a", "web");
        let after = |written: Written| {
            let mut recall = EndpointSliceMemory::default();
            recall.wrote(&service, Uid::from("u"), written);
            recall
        };
        let wrote = || after(Written::State("5".into()));
        assert!(!EndpointSliceMemory::default().is_own_write(&service, &slice("5"), false));
        assert!(wrote().is_own_write(&service, &slice("5"), false));
        assert!(wrote().is_own_write(&service, &slice("4"), false), "what it was before is no news");
        assert!(!wrote().is_own_write(&service, &slice("6"), false), "somebody has changed it since");
        assert!(!wrote().is_own_write(&service, &slice("5"), true), "somebody has deleted it");
        assert!(!wrote().is_own_write(&Key::namespaced("a", "other"), &slice("5"), false));
        let ended = || after(Written::End);
        assert!(ended().is_own_write(&service, &slice("5"), true));
        assert!(ended().is_own_write(&service, &slice("5"), false), "on its way out");
        // Each is known once: the same change again is somebody else's.
        for (mut recall, is_gone) in [(wrote(), false), (ended(), true)] {
            assert!(recall.is_own_write(&service, &slice("5"), is_gone));
            assert!(!recall.is_own_write(&service, &slice("5"), is_gone));
        }
    }
}
