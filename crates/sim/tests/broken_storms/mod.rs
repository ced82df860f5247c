//! Runs storms with a controller that is broken on purpose.

use std::sync::Arc;

use keleustes_controllers::all_controllers;
use keleustes_objects::{Key, Kind};
use keleustes_plan::{Controller, Grant, Loop, Plan, View};
use keleustes_sim::actions::{Action, Schedule, TimedAction, UserAction};
use keleustes_sim::storm::{Report, StormOptions, controller_options, play};

pub(crate) const EVERYTHING: &[Grant] = &[Grant {
    group: "*",
    resource: "*",
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
}];

/// Runs a storm with one more controller, or one in the place of that with its name.
pub(crate) fn play_with(actions: &[(u64, UserAction)], broken: fn() -> Controller) -> Report {
    let storage = actions.iter().any(|(_, action)| matches!(action, UserAction::ChangeStorage(..)));
    let gated_kinds = actions.iter().any(|(_, action)| {
        matches!(
            action,
            UserAction::ChangePodGroup(..)
                | UserAction::ChangePools(..)
                | UserAction::ChangeStorageVersions(..)
        )
    });
    let timed = |(at_ms, action)| TimedAction { at_ms, action: Action::User(action) };
    let actions = actions.iter().cloned().map(timed).collect();
    let schedule =
        Schedule { seed: 11, managers: 1, nodes: 2, storage, gated_kinds, actions, ..Schedule::default() };
    let controllers = Arc::new(move || {
        let broken = broken();
        let mut controllers = all_controllers(&controller_options());
        controllers.retain(|there| there.name != broken.name);
        controllers.push(broken);
        controllers
    });
    play(&schedule, &StormOptions { controllers, ..StormOptions::default() })
}

pub(crate) fn expect_violation(report: &Report, words: &str) {
    assert!(report.violations.iter().any(|line| line.contains(words)), "{:#?}", report.violations);
}

/// The same storm with the shipped controllers holds.
pub(crate) fn expect_no_violation(actions: &[(u64, UserAction)]) {
    let report = play_with(actions, || Controller::new("idle-controller"));
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// A controller that decides about each object of a kind.
pub(crate) fn controller_of<T: Kind>(
    name: &'static str,
    account: &'static str,
    extend: fn(Loop) -> Loop,
    decide: fn(&View<'_>, &Arc<T>) -> Plan,
) -> Controller {
    let decide = move |view: &View<'_>, item: &Key| {
        view.get::<T>(item).map_or_else(Plan::none, |object| decide(view, object))
    };
    let a_loop =
        Loop::deciding(name, decide).enqueue_on::<T>(|change, _, queue| queue.add(change.latest().key()));
    Controller::new(name).service_account(account).may_write(EVERYTHING).with_loop(extend(a_loop))
}
