//! Generates actions about objects about which controllers only report something.

use crate::actions::{Action, LabelledPodChange, PolicyChange, TimedAction, UserAction};
use crate::generate::{FIRST_AT, NAMES};

/// At least this long, users change something about these objects.
const DURATION_MIN_MS: u64 = 30_000;

/// Actions about admission policies, until this time, with random numbers of their own.
pub(crate) fn policy_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x706f_6c69);
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let action = |rng: &mut fastrand::Rng| {
        let change = match rng.u8(..100) {
            ..65 => PolicyChange::Set(rng.u8(..4)),
            65..80 => PolicyChange::Label(rng.u8(..4)),
            _ => PolicyChange::Delete,
        };
        UserAction::ChangePolicy(NAMES[rng.usize(..2)].to_owned(), change)
    };
    let count = rng.usize(4..14);
    let timed =
        |_| TimedAction { at_ms: rng.u64(FIRST_AT..until_ms), action: Action::User(action(&mut rng)) };
    (0..count).map(timed).collect()
}

/// Actions about pods that use one volume with SELinux labels, until this time, with random numbers of their own.
pub(crate) fn labelled_pod_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7365_6c69);
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let mut times: Vec<u64> = (0..rng.usize(5..14)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(index, at_ms): (usize, u64)| {
        let (number, level) = (rng.u8(..4), rng.u8(..3));
        let change = match rng.u8(..100) {
            _ if index == 1 => LabelledPodChange::CreateVolume,
            ..70 => LabelledPodChange::Create(number, level),
            _ => LabelledPodChange::Delete(number),
        };
        TimedAction { at_ms, action: Action::User(UserAction::ChangeLabelledPods(change)) }
    };
    times.into_iter().enumerate().map(action).collect()
}
