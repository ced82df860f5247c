//! Generates actions about kinds that API servers serve only with feature gates.

use crate::actions::{Action, PodGroupChange, PoolChange, StorageVersionChange, TimedAction, UserAction};
use crate::generate::{FIRST_AT, NAMES, NAMESPACES};

/// At least this long, users change something about these kinds.
const DURATION_MIN_MS: u64 = 40_000;

/// Actions about kinds behind feature gates, until this time, with random numbers of their own.
pub(crate) fn gated_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6761_7465);
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let mut actions = Vec::new();
    // The first actions of each theme create something to work on.
    actions.extend(timed(10..28, until_ms, &mut rng, pod_group_action));
    actions.extend(timed(8..24, until_ms, &mut rng, storage_version_action));
    actions.extend(timed(8..20, until_ms, &mut rng, pool_action));
    actions
}

fn timed(
    count: std::ops::Range<usize>,
    until_ms: u64,
    rng: &mut fastrand::Rng,
    action: fn(usize, &mut fastrand::Rng) -> UserAction,
) -> Vec<TimedAction> {
    let mut times: Vec<u64> = (0..rng.usize(count)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let timed = |(index, at_ms)| TimedAction { at_ms, action: Action::User(action(index, rng)) };
    times.into_iter().enumerate().map(timed).collect()
}

fn pod_group_action(index: usize, rng: &mut fastrand::Rng) -> UserAction {
    let number = rng.u8(..3);
    let change = match rng.u8(..100) {
        _ if index == 0 => PodGroupChange::Create,
        _ if index < 3 => PodGroupChange::CreatePod(number),
        ..18 => PodGroupChange::Create,
        18..40 => PodGroupChange::CreatePod(number),
        40..62 => PodGroupChange::Delete,
        62..74 => PodGroupChange::FinishPod(number),
        74..92 => PodGroupChange::DeletePod(number),
        _ => PodGroupChange::ReplacePod(number),
    };
    // PodGroups of one name in two namespaces have nothing to do with each other.
    let namespace = NAMESPACES[usize::from(rng.u8(..5) == 0)];
    let name = NAMES[usize::from(index > 3 && rng.u8(..4) == 0)];
    UserAction::ChangePodGroup(namespace.to_owned(), name.to_owned(), change)
}

fn storage_version_action(index: usize, rng: &mut fastrand::Rng) -> UserAction {
    let (server, resource, version) = (rng.u8(..3), rng.u8(..2), rng.u8(..2));
    let change = match rng.u8(..100) {
        _ if index == 0 => StorageVersionChange::StartServer(0),
        _ if index == 1 => StorageVersionChange::Record(0, resource, version),
        ..20 => StorageVersionChange::StartServer(server),
        20..58 => StorageVersionChange::Record(server, resource, version),
        58..78 => StorageVersionChange::StopServer(server),
        78..86 => StorageVersionChange::RestartServer(server),
        86..91 => StorageVersionChange::CreateForeignLease(server),
        91..95 => StorageVersionChange::DeleteForeignLease(server),
        _ => StorageVersionChange::Delete(resource),
    };
    UserAction::ChangeStorageVersions(change)
}

fn pool_action(index: usize, rng: &mut fastrand::Rng) -> UserAction {
    // The last pool is always whole, so that requests about it must be answered.
    let (pool, devices, request) = (rng.u8(..3), rng.u8(..5), rng.u8(..4));
    let change = match rng.u8(..100) {
        _ if index == 0 => PoolChange::Publish(pool, devices),
        ..22 => PoolChange::Publish(pool, devices),
        22..32 if pool < 2 => PoolChange::PublishHalf(pool, devices),
        32..40 if pool < 2 => PoolChange::PublishRest(pool, devices),
        22..45 => PoolChange::Delete(pool),
        45..85 => {
            let limit = Some(rng.u8(1..4)).filter(|_| rng.u8(..3) == 0);
            PoolChange::CreateRequest(request, Some(pool).filter(|_| rng.u8(..3) > 0), limit)
        }
        _ => PoolChange::DeleteRequest(request),
    };
    UserAction::ChangePools(change)
}
