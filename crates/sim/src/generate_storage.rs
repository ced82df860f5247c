//! Generates actions about volumes that a CSI driver provisions and attaches, and the faults of that driver.

use crate::actions::{
    Action, Attaching, DriverFault, DriverOperation, Fault, FaultEffect, Party, ReclaimPolicy, RequestClass,
    StorageChange, StorageKind, TimedAction, UserAction, VolumeChange,
};
use crate::generate::{FIRST_AT, NAMES, NAMESPACES};

/// At least this long, users change something about storage.
const DURATION_MIN_MS: u64 = 60_000;

/// Actions about storage, until this time, with random numbers of their own.
pub(crate) fn storage_actions(seed: u64, nodes: usize, with_faults: bool, until_ms: u64) -> Vec<TimedAction> {
    let mut generator = StorageGenerator { rng: fastrand::Rng::with_seed(seed ^ 0x7374_6f72), nodes };
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let count = generator.rng.usize(16..48);
    let mut times: Vec<u64> = (0..count).map(|_| generator.rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(index, at_ms): (usize, u64)| {
        let action = if with_faults && generator.rng.u8(..100) < 20 {
            generator.fault()
        } else {
            Action::User(generator.user_action(index))
        };
        TimedAction { at_ms, action }
    };
    times.into_iter().enumerate().map(action).collect()
}

/// Actions about VolumeAttributesClasses, until this time, with random numbers of their own.
pub(crate) fn attributes_class_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6174_7472);
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let action = |rng: &mut fastrand::Rng| {
        let number = rng.u8(1..3);
        let change = match rng.u8(..100) {
            ..35 => StorageChange::SetAttributes(number),
            35..60 => StorageChange::ModifyVolume,
            60..85 => StorageChange::SetAttributesClass(number, false),
            _ => StorageChange::SetAttributesClass(number, true),
        };
        let (namespace, name) = (NAMESPACES[usize::from(rng.u8(..5) == 0)], NAMES[rng.usize(..2)]);
        UserAction::ChangeStorage(namespace.to_owned(), name.to_owned(), change)
    };
    let count = rng.usize(8..20);
    let timed =
        |_| TimedAction { at_ms: rng.u64(FIRST_AT..until_ms), action: Action::User(action(&mut rng)) };
    (0..count).map(timed).collect()
}

/// Actions about volumes that the binder itself reclaims, until this time, with random numbers of their own.
pub(crate) fn host_path_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x686f_7374);
    let until_ms = until_ms.max(FIRST_AT + DURATION_MIN_MS);
    let mut times: Vec<u64> = (0..rng.usize(8..20)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let mut actions = Vec::new();
    for (index, at_ms) in times.into_iter().enumerate() {
        let (namespace, name) = (NAMESPACES[usize::from(rng.u8(..5) == 0)], NAMES[rng.usize(..2)]);
        let policies = [ReclaimPolicy::Retain, ReclaimPolicy::Delete, ReclaimPolicy::Recycle];
        let policy = policies[rng.usize(..policies.len())];
        let mut push = |at_ms, change| {
            let action = UserAction::ChangeVolumes(namespace.to_owned(), name.to_owned(), change);
            actions.push(TimedAction { at_ms, action: Action::User(action) });
        };
        match rng.u8(..100) {
            // The first actions create something to work on.
            _ if index == 0 => push(at_ms, VolumeChange::CreateHostPath(policy)),
            _ if index == 1 => push(at_ms, VolumeChange::CreateClaim),
            ..25 => push(at_ms, VolumeChange::CreateHostPath(policy)),
            25..50 => push(at_ms, VolumeChange::CreateClaim),
            50..70 => push(at_ms, VolumeChange::DeleteClaim),
            70..85 => push(at_ms, VolumeChange::SetReclaimPolicy(policy)),
            // The user keeps the data at the last moment.
            _ => {
                push(at_ms, VolumeChange::SetReclaimPolicy(ReclaimPolicy::Retain));
                push(at_ms + rng.u64(..2_000), VolumeChange::DeleteClaim);
            }
        }
    }
    actions
}

struct StorageGenerator {
    rng: fastrand::Rng,
    nodes: usize,
}

impl StorageGenerator {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    fn user_action(&mut self, index: usize) -> UserAction {
        let node = self.rng.usize(..self.nodes);
        let roll = self.rng.u8(..100);
        // The first actions create something to work on.
        match roll {
            90..93 if index > 6 => return UserAction::DrainNode(node),
            93..95 if index > 6 => return UserAction::DeleteNode(node),
            95..98 if index > 6 => return UserAction::SetOutOfService(node, self.rng.u8(..3) > 0),
            98.. => return UserAction::SetUnschedulable(node, false),
            _ => {}
        }
        let number = self.rng.u8(..3);
        let change = match self.rng.u8(..100) {
            ..20 => StorageChange::CreateClaim {
                class: self.pick(&[
                    StorageKind::Deleted,
                    StorageKind::Deleted,
                    StorageKind::Retained,
                    StorageKind::Delayed,
                ]),
                shared: self.rng.u8(..4) == 0,
            },
            20..48 => StorageChange::CreatePod(number, node, self.rng.u8(..5) == 0),
            48..68 => StorageChange::DeletePod(number, self.rng.u8(..4) == 0),
            68..74 => StorageChange::DeleteClaim,
            74..79 => StorageChange::GrowClaim,
            79..84 => StorageChange::SelectNode(node),
            84..88 => StorageChange::Retain(self.rng.bool()),
            88..97 => StorageChange::SetAttaching(self.attaching()),
            _ => StorageChange::DeleteAttachment,
        };
        let (namespace, name) = (NAMESPACES[usize::from(self.rng.u8(..5) == 0)], self.pick(&NAMES[..2]));
        UserAction::ChangeStorage(namespace.to_owned(), name.to_owned(), change)
    }

    fn attaching(&mut self) -> Attaching {
        match self.rng.u8(..10) {
            ..3 => Attaching::Works,
            3..5 => Attaching::AttachesAfter(self.rng.u16(1..150)),
            5..7 => Attaching::AttachFails,
            7..9 => Attaching::DetachesAfter(self.rng.u16(1..150)),
            _ => Attaching::DetachFails,
        }
    }

    fn fault(&mut self) -> Action {
        match self.rng.u8(..100) {
            ..55 => {
                let operation = self.pick(&[
                    DriverOperation::Provision,
                    DriverOperation::Provision,
                    DriverOperation::Delete,
                    DriverOperation::Expand,
                ]);
                let fault = match self.rng.u8(..4) {
                    0 => DriverFault::Refuse,
                    1 => DriverFault::LoseResponse,
                    2 => DriverFault::Partial,
                    _ => DriverFault::Hang(self.rng.u64(1_000..60_000)),
                };
                Action::FailDriver(operation, fault, self.rng.u32(1..4))
            }
            55..75 => Action::FailNode(self.rng.usize(..self.nodes)),
            75..90 => Action::RecoverNode(self.rng.usize(..self.nodes)),
            _ => {
                let effect = match self.rng.u8(..4) {
                    0 => FaultEffect::DropResponse,
                    1 => FaultEffect::DropRequest,
                    2 => FaultEffect::DelayResponse(self.rng.u64(100..20_000)),
                    _ => FaultEffect::StallWatches,
                };
                let requests = match effect {
                    FaultEffect::StallWatches => RequestClass::Watches,
                    _ => RequestClass::Writes,
                };
                let (percent, duration_ms) = (self.pick(&[30, 100]), self.rng.u64(500..60_000));
                Action::Fault(Fault { party: Party::Driver, requests, effect, percent, duration_ms })
            }
        }
    }
}
