//! Queue of writers: nodes before pods, each once, none while its request is in flight or its backoff runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use keleustes_objects::{ApiError, ErrorReason};

use super::{InFlightWrite, Writer};
use crate::clock::after;

const BACKOFF_BASE: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Writers with a write due.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// A late Lease renewal looks like a dead node, so nodes do not queue behind pods.
    nodes: VecDeque<Writer>,
    others: VecDeque<Writer>,
    queued: BTreeSet<Writer>,
    in_flight: BTreeMap<Writer, InFlightWrite>,
    backoffs: BTreeMap<Writer, Backoff>,
}

/// Consecutive failures and the end of the backoff.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    until: Timestamp,
}

impl WriteQueue {
    pub(super) fn push(&mut self, writer: &Writer, now: Timestamp) {
        if self.in_flight.contains_key(writer) || self.backoff_end(writer).is_some_and(|until| until > now) {
            return;
        }
        if self.queued.insert(writer.clone()) {
            match writer {
                Writer::Node(_) => self.nodes.push_back(writer.clone()),
                _ => self.others.push_back(writer.clone()),
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<Writer> {
        let writer = self.nodes.pop_front().or_else(|| self.others.pop_front())?;
        self.queued.remove(&writer);
        Some(writer)
    }

    pub(super) fn sent(&mut self, writer: Writer, sent: InFlightWrite) {
        self.in_flight.insert(writer, sent);
    }

    pub(super) fn take_in_flight(&mut self, writer: &Writer) -> Option<InFlightWrite> {
        self.in_flight.remove(writer)
    }

    /// The end of a writer's backoff, if any.
    pub(super) fn backoff_end(&self, writer: &Writer) -> Option<Timestamp> {
        self.backoffs.get(writer).map(|backoff| backoff.until)
    }

    /// Resets the backoff.
    pub(super) fn reset_backoff(&mut self, writer: &Writer) {
        self.backoffs.remove(writer);
    }

    /// Records a failure and returns the end of the backoff.
    pub(super) fn record_failure(
        &mut self,
        writer: &Writer,
        error: &ApiError,
        rng: &mut fastrand::Rng,
        now: Timestamp,
    ) -> Timestamp {
        let backoff =
            self.backoffs.entry(writer.clone()).or_insert(Backoff { failures: 0, until: Timestamp::MIN });
        let exponential = BACKOFF_BASE.saturating_mul(1 << backoff.failures.min(10)).min(BACKOFF_MAX);
        // Errors that a retry does not fix get the longest backoff, in case the cause is fixed.
        let is_final = matches!(
            error.reason,
            ErrorReason::Invalid | ErrorReason::Forbidden | ErrorReason::Unauthorized | ErrorReason::Other
        );
        let wait = if is_final { BACKOFF_MAX } else { error.retry_after.unwrap_or(exponential) };
        backoff.failures += 1;
        backoff.until = after(now, wait.mul_f64(1.0 + 0.5 * rng.f64()));
        backoff.until
    }
}
