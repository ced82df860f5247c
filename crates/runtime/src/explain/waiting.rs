//! What an item of a running loop waits for: the gate, its backoff, a rate limit, a delay, coalesced statuses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_client::layers::LimitedBy;
use keleustes_objects::{Key, Resource};
use keleustes_plan::Item;

use super::Explainer;
use super::diagnosis::{Finding, Weight, duration};
use crate::caches::Cache;
use crate::loops::RunningLoop;
use crate::queue::ItemState;

/// The errors of failing items, by controller and item as logs show it.
pub(super) type LastErrors = BTreeMap<(String, String), String>;

impl Explainer {
    /// What an item of a loop waits for, one line each. Empty on a standby.
    pub(super) fn waiting(&self, controller: &str, queue: &str, item: &Item) -> Vec<String> {
        let Some(a_loop) = self.inspection.running_loop(controller, queue) else {
            let state = self.inspection.leads().then(|| self.why_not_started(controller));
            return state.flatten().into_iter().collect();
        };
        self.waiting_in(&a_loop, item.key()).into_iter().map(|finding| finding.text).collect()
    }

    /// Why a controller of a leader does not run.
    fn why_not_started(&self, controller: &str) -> Option<String> {
        let overview = self.inspection.overview(&self.caches, 0);
        let found = overview.controllers.into_iter().find(|there| there.name == controller)?;
        if found.unsynced.is_empty() {
            return Some("the controller has not started yet".to_owned());
        }
        Some(format!(
            "the controller has not started: it waits for the caches of {}",
            found.unsynced.join("; ")
        ))
    }

    /// What the items of a key wait for, and how likely that explains anything.
    pub(super) fn waiting_in(&self, a_loop: &RunningLoop, key: &Key) -> Vec<Finding> {
        let now = self.clocks.monotonic();
        let mut found = held_back(a_loop, key);
        let held_until = a_loop.status_coalescer.lock().held_until(key).filter(|until| *until > now);
        if let Some(until) = held_until {
            let text = format!("its status update is coalesced until {}", self.at(until));
            found.push(Finding { weight: Weight::Passing, text });
        }
        let states = a_loop.queue.states(&|item| item.key() == key);
        let errors = self.last_errors([(a_loop, states.as_slice())]);
        for state in &states {
            found.extend(self.queue_state(a_loop, state, held_until, &errors));
        }
        found.extend(failing_watches(a_loop));
        found
    }

    pub(super) fn queue_state(
        &self,
        a_loop: &RunningLoop,
        state: &ItemState,
        status_held_until: Option<Duration>,
        errors: &LastErrors,
    ) -> Option<Finding> {
        let now = self.clocks.monotonic();
        if state.failures > 0 {
            let error = errors.get(&(a_loop.controller.to_owned(), state.item.to_string())).cloned();
            let until = match state.due {
                _ if state.processing_since.is_some() => match self.rate_limit_wait(a_loop, state) {
                    Some(wait) => format!("the next attempt is {wait}"),
                    None => "the next attempt has begun".to_owned(),
                },
                Some(due) if due > now => format!("the next attempt is at {}", self.at(due)),
                _ => "the next attempt is due".to_owned(),
            };
            let error = error.unwrap_or_else(|| "the error is no longer in the journal".to_owned());
            let attempts = state.failures;
            let text = format!("{error} ({} failed {attempts} times, {until})", a_loop.controller);
            return Some(Finding { weight: Weight::Refused, text });
        }
        if let Some(since) = state.processing_since {
            let took = duration(whole_seconds(now.saturating_sub(since)));
            let wait = self.rate_limit_wait(a_loop, state).map(|wait| format!(", {wait}"));
            let text = format!("it is being reconciled for {took}{}", wait.unwrap_or_default());
            return Some(Finding { weight: Weight::Passing, text });
        }
        if state.queued {
            let depth = a_loop.queue.counts().queued;
            let text = format!("it is queued, {depth} items are in the queue");
            return Some(Finding { weight: Weight::Passing, text });
        }
        let due = state.due.filter(|due| *due > now && status_held_until != Some(*due))?;
        let text = format!("the controller looks again at {}", self.at(due));
        Some(Finding { weight: Weight::Passing, text })
    }

    /// Since when the running reconcile of an item waits for a rate limit.
    fn rate_limit_wait(&self, a_loop: &RunningLoop, state: &ItemState) -> Option<String> {
        let (limited_by, since) = a_loop.rate_limit_wait(&state.item)?;
        let whose = match limited_by {
            LimitedBy::Client => "--kube-api-qps",
            LimitedBy::ApiServer => "Retry-After of the API server",
        };
        let ago = self.clocks.monotonic().saturating_sub(since);
        let since = jiff::Timestamp::from_nanosecond(
            i128::from(self.clocks.wall_nanoseconds()) - i128::try_from(ago.as_nanos()).unwrap_or(0),
        );
        let since = since.unwrap_or_default().strftime("%H:%M:%S");
        Some(format!("waiting for the rate limit since {since} ({whose})"))
    }

    /// The errors of the latest failed reconciles of the items that fail.
    pub(super) fn last_errors<'a>(
        &self,
        states: impl IntoIterator<Item = (&'a RunningLoop, &'a [ItemState])>,
    ) -> LastErrors {
        let failing = states.into_iter().flat_map(|(a_loop, states)| {
            let failing = states.iter().filter(|state| state.failures > 0);
            failing.map(|state| (a_loop.controller.to_owned(), state.item.to_string()))
        });
        self.inspection.journal().latest_failures(&failing.collect())
    }

    /// What the controllers whose items are named after an object wait for, except delays that are part of their work.
    pub(super) fn waiting_for(&self, resource: &Resource, key: &Key) -> Vec<Finding> {
        let running = self.inspection.running();
        let keyed = running.iter().filter(|a_loop| {
            let kind = a_loop.spec.keyed_by.as_ref();
            kind.is_some_and(|kind| crate::inspection::is_same(kind.resource(), resource))
        });
        let found = keyed.flat_map(|a_loop| self.waiting_in(a_loop, key));
        found.filter(|finding| finding.weight > Weight::Passing).collect()
    }

    /// Monotonic time as wall-clock time.
    fn at(&self, monotonic: Duration) -> String {
        let ahead = monotonic.saturating_sub(self.clocks.monotonic());
        let nanoseconds =
            i128::from(self.clocks.wall_nanoseconds()) + i128::try_from(ahead.as_nanos()).unwrap_or(0);
        let time = jiff::Timestamp::from_nanosecond(nanoseconds).unwrap_or_default();
        let ahead = if ahead < Duration::from_secs(2) {
            format!("{} ms", ahead.as_millis())
        } else {
            duration(whole_seconds(ahead))
        };
        format!("{} (in {ahead})", time.strftime("%H:%M:%S"))
    }
}

/// Why the gate holds a key back.
pub(super) fn held_back(a_loop: &RunningLoop, key: &Key) -> Vec<Finding> {
    let (pending, at_most) = a_loop.gate.pending(key);
    let at_most = duration(whole_seconds(at_most));
    let finding = |text: String| Finding {
        weight: Weight::Passing,
        text: format!("{text}; the key is held for {at_most} at most"),
    };
    pending.into_iter().map(finding).collect()
}

/// The watches that a loop needs and that fail.
pub(super) fn failing_watches(a_loop: &RunningLoop) -> Vec<Finding> {
    let finding = |cache: &Arc<Cache>| {
        let (failure, resource) = (cache.last_failure()?, cache.entry().resource());
        let text = format!("the watch of {resource} fails, what is cached may be old: {failure}");
        Some(Finding { weight: Weight::Refused, text })
    };
    a_loop.reader.caches().iter().filter_map(finding).collect()
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
