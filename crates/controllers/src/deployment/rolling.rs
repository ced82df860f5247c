//! One step of a rolling update: the newest grows as far as the surplus allows, the old ones shrink as far
//! as enough pods stay available.

/// What the arithmetic of a step needs to know of a ReplicaSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// How many pods it asks for.
    pub(super) asked: i32,
    /// How many of its pods are available.
    pub(super) available: i32,
}

/// How large the newest is to be, given what all together ask for.
pub(super) fn newest_target(wanted: i32, surge: i32, newest: i32, asked_by_all: i32) -> i32 {
    if newest >= wanted {
        return wanted;
    }
    let room = wanted.saturating_add(surge).saturating_sub(asked_by_all);
    if room <= 0 { newest } else { newest + room.min(wanted - newest) }
}

impl Size {
    /// How many of its pods are available and will be. A ReplicaSet that was just made smaller still tells
    /// of pods that are about to go; they must not be relied on.
    fn staying(self) -> i64 {
        self.available.min(self.asked).into()
    }
}

/// How large the old ones are to be, oldest first: pods that serve nobody go first, then as many others as
/// availability allows.
pub(super) fn old_targets(wanted: i32, unavailable_max: i32, newest: Size, old: &[Size]) -> Vec<i32> {
    let mut targets: Vec<i32> = old.iter().map(|size| size.asked).collect();
    let least = i64::from(wanted) - i64::from(unavailable_max);
    let asked: i64 = old.iter().map(|size| i64::from(size.asked)).sum();
    let mut may_go = newest.staying() + asked - least;
    if may_go <= 0 {
        return targets;
    }
    for (target, size) in targets.iter_mut().zip(old) {
        // A ReplicaSet whose pods are all available has nothing to clean up.
        may_go -= take(target, may_go.min(i64::from(size.asked) - size.staying()));
    }
    let mut may_go = newest.staying() + old.iter().map(|size| size.staying()).sum::<i64>() - least;
    for target in &mut targets {
        may_go -= take(target, may_go);
    }
    targets
}

/// Takes from a size at most so many, and tells how many.
fn take(size: &mut i32, at_most: i64) -> i64 {
    let taken = at_most.clamp(0, i64::from(*size).max(0));
    *size -= i32::try_from(taken).unwrap_or(*size);
    taken
}
