//! Who is to write next: nodes before pods, each once, none while its last answer is outstanding or it must wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{ApiError, ErrorReason};

use super::{Sent, Who};
use crate::clock::after;

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LONGEST: Duration = Duration::from_secs(30);

/// Everybody who has something to write.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// A lease that is renewed late looks like a dead node, so nodes do not queue behind pods.
    nodes: VecDeque<Who>,
    others: VecDeque<Who>,
    queued: BTreeSet<Who>,
    under_way: BTreeMap<Who, Sent>,
    failed: BTreeMap<Who, Patience>,
}

/// How often somebody failed in a row, and until when to wait.
#[derive(Debug)]
pub(super) struct Patience {
    failures: u32,
    until: Timestamp,
}

impl Outbox {
    pub(super) fn push(&mut self, who: &Who, now: Timestamp) {
        if self.under_way.contains_key(who) || self.patience(who).is_some_and(|until| until > now) {
            return;
        }
        if self.queued.insert(who.clone()) {
            match who {
                Who::Node(_) => self.nodes.push_back(who.clone()),
                _ => self.others.push_back(who.clone()),
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<Who> {
        let who = self.nodes.pop_front().or_else(|| self.others.pop_front())?;
        self.queued.remove(&who);
        Some(who)
    }

    pub(super) fn sent(&mut self, who: Who, sent: Sent) {
        self.under_way.insert(who, sent);
    }

    pub(super) fn answered(&mut self, who: &Who) -> Option<Sent> {
        self.under_way.remove(who)
    }

    /// Until when somebody must wait, if at all.
    pub(super) fn patience(&self, who: &Who) -> Option<Timestamp> {
        self.failed.get(who).map(|patience| patience.until)
    }

    /// Forgets earlier failures.
    pub(super) fn calm(&mut self, who: &Who) {
        self.failed.remove(who);
    }

    /// Remembers a failure and tells until when to wait.
    pub(super) fn fail(
        &mut self,
        who: &Who,
        failure: &ApiError,
        chance: &mut fastrand::Rng,
        now: Timestamp,
    ) -> Timestamp {
        let patience =
            self.failed.entry(who.clone()).or_insert(Patience { failures: 0, until: Timestamp::MIN });
        let usual = RETRY_FIRST.saturating_mul(1 << patience.failures.min(10)).min(RETRY_LONGEST);
        // What the server refuses for good is asked for again only in case somebody mends it.
        let is_final = matches!(
            failure.reason,
            ErrorReason::Invalid | ErrorReason::Forbidden | ErrorReason::Unauthorized | ErrorReason::Other
        );
        let wait = if is_final { RETRY_LONGEST } else { failure.retry_after.unwrap_or(usual) };
        patience.failures += 1;
        patience.until = after(now, wait.mul_f64(1.0 + 0.5 * chance.f64()));
        patience.until
    }
}
