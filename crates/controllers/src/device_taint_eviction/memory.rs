//! What the controller remembers about evictions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use keleustes_objects::{Key, Uid};

use super::pools::PoolGenerations;
use super::taints::RuleRef;

/// How many UIDs of evicted pods are remembered.
const EVICTED_MAX: usize = 500;

/// How far two status writes of one rule are apart.
pub(super) const STATUS_PERIOD: Duration = Duration::from_secs(10);

/// Scheduled evictions, evicted pods and the counts of rules.
///
/// Lost on failover: scheduled evictions are computed again from the caches, with the same times; the counts of rules restart
/// at zero, as in the original.
#[derive(Clone, Debug, Default)]
pub(super) struct EvictionMemory {
    /// The generations of pools.
    pub(super) pools: PoolGenerations,
    /// The rules because of which a pod is to be evicted.
    scheduled: BTreeMap<(Key, Uid), BTreeSet<RuleRef>>,
    evicted: BTreeSet<Uid>,
    /// Oldest first.
    evicted_order: VecDeque<Uid>,
    /// How many pods were evicted because of a rule.
    evicted_by_rule: BTreeMap<Uid, u64>,
    /// When the status of a rule may be written at the earliest, on the monotonic clock.
    rule_status_due: BTreeMap<Uid, Duration>,
}

impl EvictionMemory {
    /// Remembers a scheduled eviction.
    pub(super) fn schedule(&mut self, pod: &Key, uid: &Uid, rules: BTreeSet<RuleRef>) {
        self.scheduled.insert((pod.clone(), uid.clone()), rules);
    }

    /// Forgets a scheduled eviction and returns its rules; `None` if none was scheduled.
    pub(super) fn forget(&mut self, pod: &Key, uid: &Uid) -> Option<BTreeSet<RuleRef>> {
        self.scheduled.remove(&(pod.clone(), uid.clone()))
    }

    pub(super) fn is_evicted(&self, uid: &Uid) -> bool {
        self.evicted.contains(uid)
    }

    /// Remembers an evicted pod, which is not evicted again.
    pub(super) fn evicted(&mut self, uid: &Uid) {
        if self.evicted.insert(uid.clone()) {
            self.evicted_order.push_back(uid.clone());
        }
        if self.evicted_order.len() > EVICTED_MAX
            && let Some(oldest) = self.evicted_order.pop_front()
        {
            self.evicted.remove(&oldest);
        }
    }

    /// Counts an evicted pod for a rule.
    pub(super) fn count(&mut self, rule: &Uid) {
        *self.evicted_by_rule.entry(rule.clone()).or_default() += 1;
    }

    pub(super) fn evicted_by(&self, rule: &Uid) -> u64 {
        self.evicted_by_rule.get(rule).copied().unwrap_or(0)
    }

    /// Drops what is known about a deleted rule.
    pub(super) fn forget_rule(&mut self, rule: &Uid) {
        self.evicted_by_rule.remove(rule);
        self.rule_status_due.remove(rule);
    }

    /// Lets the status of a rule be written after a period, or earlier if that was decided before.
    pub(super) fn delay_status(&mut self, rule: &Uid, now: Duration) {
        self.rule_status_due.entry(rule.clone()).or_insert(now + STATUS_PERIOD);
    }

    /// Lets the status of a rule be written at once.
    pub(super) fn hurry_status(&mut self, rule: &Uid) {
        self.rule_status_due.insert(rule.clone(), Duration::ZERO);
    }

    /// How long the status of a rule has to wait; `None` if it may be written now.
    pub(super) fn status_delay(&mut self, rule: &Uid, now: Duration) -> Option<Duration> {
        let due = *self.rule_status_due.get(rule)?;
        if due > now {
            return Some(due - now);
        }
        self.rule_status_due.remove(rule);
        None
    }
}
