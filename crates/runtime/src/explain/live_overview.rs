//! What the live page shows besides one object: every controller, what items wait for and why, the latest decisions.

use std::cmp::Reverse;

use keleustes_objects::Resource;
use keleustes_plan::Item;
use serde::Serialize;

use super::Explainer;
use super::diagnosis::{Finding, Weight};
use super::explanation::ManagerState;
use super::waiting::{LastErrors, failing_watches, held_back};
use crate::inspection::Overview;
use crate::loops::RunningLoop;
use crate::queue::ItemState;

/// How many items of each sort are looked at in one loop.
const ITEMS_OF_A_LOOP_MAX: usize = 20;
/// How many items are shown.
const WAITING_MAX: usize = 40;

/// What every controller is doing, and what its items wait for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveOverview {
    /// The controllers and the latest decisions.
    #[serde(flatten)]
    pub overview: Overview,
    /// The holder of the Lease, if it could be read.
    pub leader: Option<String>,
    /// Items that wait, those that fail first.
    pub waiting: Vec<WaitingItem>,
    /// How many more there are.
    pub waiting_not_shown: usize,
}

/// An item of a queue that waits, or a loop that does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingItem {
    /// The controller.
    pub controller: &'static str,
    /// The item as logs show it; empty if all items of the loop wait.
    pub item: String,
    /// The resource of the object that the item is named after, as kubectl takes it; empty if it is named otherwise.
    pub resource: String,
    /// The namespace of that object.
    pub namespace: String,
    /// The name of that object.
    pub name: String,
    /// What it waits for.
    pub because: String,
    /// Whether something refuses or fails, so that it does not pass by itself.
    pub failing: bool,
}

impl Explainer {
    /// What every controller is doing, and what its items wait for.
    #[must_use]
    pub fn live_overview(&self, manager: &ManagerState, decisions_max: usize) -> LiveOverview {
        let overview = self.inspection.overview(&self.caches, decisions_max);
        let running = self.inspection.running();
        let states: Vec<_> =
            running.iter().map(|a_loop| a_loop.queue.some_waiting(ITEMS_OF_A_LOOP_MAX)).collect();
        let by_loop = || running.iter().map(|a_loop| &**a_loop).zip(states.iter().map(Vec::as_slice));
        let errors = self.last_errors(by_loop());
        let (mut found, mut all) = (Vec::new(), 0);
        for (a_loop, states) in by_loop() {
            let counts = a_loop.queue.counts();
            all += counts.waiting + counts.processing;
            found.extend(self.waiting_of(a_loop, states, &errors));
        }
        found.sort_by_key(|(weight, _)| Reverse(*weight));
        found.truncate(WAITING_MAX);
        LiveOverview {
            overview,
            leader: manager.leader.clone(),
            waiting_not_shown: all.saturating_sub(found.len()),
            waiting: found.into_iter().map(|(_, item)| item).collect(),
        }
    }

    fn waiting_of(
        &self,
        a_loop: &RunningLoop,
        states: &[ItemState],
        errors: &LastErrors,
    ) -> Vec<(Weight, WaitingItem)> {
        let mut found: Vec<_> =
            failing_watches(a_loop).into_iter().map(|finding| of(a_loop, None, finding)).collect();
        let held = a_loop.gate.held(ITEMS_OF_A_LOOP_MAX);
        for item in &held {
            let first = held_back(a_loop, item.key()).into_iter().next();
            found.extend(first.map(|finding| of(a_loop, Some(item), finding)));
        }
        for state in states {
            if held.contains(&state.item) {
                continue;
            }
            // A periodic pass that is due later is not news; it is counted.
            let is_shown =
                |finding: &Finding| a_loop.spec.keyed_by.is_some() || finding.weight > Weight::Passing;
            let finding = self.queue_state(a_loop, state, None, errors).filter(is_shown);
            found.extend(finding.map(|finding| of(a_loop, Some(&state.item), finding)));
        }
        found
    }
}

fn of(a_loop: &RunningLoop, item: Option<&Item>, finding: Finding) -> (Weight, WaitingItem) {
    let resource = a_loop.spec.keyed_by.as_ref().map(|kind| Resource::to_string(kind.resource()));
    let key = item.map(Item::key);
    let waiting = WaitingItem {
        controller: a_loop.controller,
        item: item.map(ToString::to_string).unwrap_or_default(),
        resource: resource.filter(|_| item.is_some()).unwrap_or_default(),
        namespace: key.map(|key| key.namespace.to_string()).unwrap_or_default(),
        name: key.map(|key| key.name.to_string()).unwrap_or_default(),
        because: finding.text,
        failing: finding.weight == Weight::Refused,
    };
    (finding.weight, waiting)
}
