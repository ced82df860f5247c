//! Generates actions about device claims that several pods share.

use crate::actions::{Action, DeviceChange, TimedAction, UserAction};
use crate::generate::{FIRST_AT, NAMES, NAMESPACES};

/// At least this long, users change something about shared claims.
const DURATION_MIN_MS: u64 = 30_000;

/// Actions about shared claims, until this time, with random numbers of their own.
pub(crate) fn shared_claim_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7368_6172);
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let mut times: Vec<u64> = (0..rng.usize(10..24)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(index, at_ms): (usize, u64)| {
        let number = rng.u8(..3);
        let change = match rng.u8(..100) {
            // The first actions create something to work on.
            _ if index == 0 => DeviceChange::CreateSharedClaim,
            _ if index < 3 => DeviceChange::CreateSharingPod(number),
            ..10 => DeviceChange::CreateSharedClaim,
            10..38 => DeviceChange::CreateSharingPod(number),
            38..62 => DeviceChange::AllocateShared,
            62..76 => DeviceChange::FinishSharingPod(number),
            76..94 => DeviceChange::DeleteSharingPod(number),
            _ => DeviceChange::DeleteSharedClaim,
        };
        // Most pods share one claim.
        let (namespace, name) =
            (NAMESPACES[usize::from(rng.u8(..8) == 0)], NAMES[usize::from(rng.u8(..6) == 0)]);
        let action = UserAction::ChangeDevices(namespace.to_owned(), name.to_owned(), change);
        TimedAction { at_ms, action: Action::User(action) }
    };
    times.into_iter().enumerate().map(action).collect()
}
