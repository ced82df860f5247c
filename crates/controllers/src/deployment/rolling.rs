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

/// How large the old ones are to be, oldest first: pods that serve nobody go first, then as many others as
/// availability allows.
pub(super) fn old_targets(wanted: i32, unavailable_max: i32, newest: Size, old: &[Size]) -> Vec<i32> {
    let mut targets: Vec<i32> = old.iter().map(|size| size.asked).collect();
    let least = wanted - unavailable_max;
    let asked = newest.asked + targets.iter().sum::<i32>();
    let mut may_go = asked - least - (newest.asked - newest.available);
    if may_go <= 0 {
        return targets;
    }
    for (target, size) in targets.iter_mut().zip(old) {
        // A ReplicaSet whose pods are all available has nothing to clean up.
        let going = (size.asked - size.available).clamp(0, may_go);
        *target -= going;
        may_go -= going;
    }
    let mut may_go = newest.available + old.iter().map(|size| size.available).sum::<i32>() - least;
    for target in &mut targets {
        let going = may_go.clamp(0, *target);
        *target -= going;
        may_go -= going;
    }
    targets
}
