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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(asked: i32, available: i32) -> Size {
        Size { asked, available }
    }

    /// Proves DEP-55, DEP-56.
    #[test]
    fn the_newest_grows_into_the_room_there_is() {
        for (wanted, surge, newest, asked_by_all, expected) in [
            (10, 0, 0, 10, 0),
            (10, 2, 0, 10, 2),
            (10, 2, 5, 10, 7),
            (10, 20, 5, 10, 10),
            (10, 0, 5, 5, 10),
            (10, 2, 3, 15, 3),
            (10, 2, 12, 12, 10),
            (0, 2, 1, 1, 0),
        ] {
            let target = newest_target(wanted, surge, newest, asked_by_all);
            assert_eq!(target, expected, "{wanted} {surge} {newest} {asked_by_all}");
        }
    }

    /// Proves DEP-57, DEP-58, DEP-59, DEP-61.
    #[test]
    fn the_old_ones_shrink_as_far_as_enough_stay_available() {
        for (newest, old, expected) in [
            (size(0, 0), vec![size(10, 8)], vec![8]),
            (size(0, 0), vec![size(10, 9)], vec![8]),
            (size(0, 0), vec![size(10, 10)], vec![8]),
            (size(2, 0), vec![size(8, 8)], vec![8]),
            (size(2, 2), vec![size(8, 8)], vec![6]),
            (size(4, 4), vec![size(3, 0), size(5, 5)], vec![0, 4]),
            (size(10, 10), vec![size(1, 1), size(1, 0)], vec![0, 0]),
            // What was just made smaller still tells of pods that are about to go.
            (size(0, 0), vec![size(4, 5), size(6, 8)], vec![2, 6]),
        ] {
            assert_eq!(old_targets(10, 2, newest, &old), expected, "{newest:?} {old:?}");
        }
    }

    /// A cluster in which ReplicaSets get what they ask for in their own time, and tell of it late.
    #[derive(Clone, Debug)]
    struct Cluster {
        wanted: i32,
        surge: i32,
        unavailable: i32,
        /// The newest first.
        sets: Vec<Pods>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Pods {
        asked: i32,
        available: i32,
        /// What its status says, which may be old.
        told: i32,
    }

    impl Pods {
        fn seen(self) -> Size {
            size(self.asked, self.told)
        }
    }

    impl Cluster {
        fn asked(&self) -> i32 {
            self.sets.iter().map(|set| set.asked).sum()
        }

        /// Available pods that no ReplicaSet is about to delete.
        fn staying(&self) -> i32 {
            self.sets.iter().map(|set| set.available.min(set.asked)).sum()
        }

        /// How many of them are known of.
        fn known(&self) -> i32 {
            self.sets.iter().map(|set| set.told.min(set.asked)).sum()
        }

        /// One turn of the controller.
        fn step(&mut self) -> bool {
            let (newest, asked) = (self.sets[0], self.asked());
            let target = newest_target(self.wanted, self.surge, newest.asked, asked);
            if target != newest.asked {
                self.sets[0].asked = target;
                return true;
            }
            let old: Vec<_> = self.sets[1..].iter().map(|set| set.seen()).collect();
            let targets = old_targets(self.wanted, self.unavailable, newest.seen(), &old);
            let moved = self.sets[1..].iter().zip(&targets).any(|(set, target)| set.asked != *target);
            self.sets[1..].iter_mut().zip(targets).for_each(|(set, target)| set.asked = target);
            moved
        }

        /// One ReplicaSet makes pods available or deletes surplus ones, and perhaps tells of it.
        fn work(&mut self, at: usize, pods: i32, tells: bool) {
            let count = self.sets.len();
            let set = &mut self.sets[at % count];
            set.available = (set.available + pods).min(set.asked);
            if tells {
                set.told = set.available;
            }
        }

        fn is_done(&self) -> bool {
            self.sets[0].asked == self.wanted && self.asked() == self.wanted
        }
    }

    prop_compose! {
        /// A cluster whose statuses are true to begin with.
        fn cluster()(
            wanted in 0..30_i32, surge in 0..8_i32, unavailable in 0..8_i32,
            sets in prop::collection::vec((0..20_i32, 0..20_i32), 2..5),
        ) -> Cluster {
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
            let sets = sets.into_iter().map(|(asked, available)| {
                let available = available.min(asked);
                Pods { asked, available, told: available }
            });
            Cluster { wanted, surge, unavailable: unavailable.min(wanted), sets: sets.collect() }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// In whatever order things happen, a step neither asks for more than is allowed nor takes
        /// available pods away of which not enough are known.
        #[test]
        fn no_step_leads_beyond_the_bounds(
            mut cluster in cluster(),
            doings in prop::collection::vec((0..8_usize, 0..5_i32, any::<bool>(), any::<bool>()), 0..80),
        ) {
            let most = (cluster.wanted + cluster.surge).max(cluster.asked());
            for (at, pods, tells, steps) in doings {
                cluster.work(at, pods, tells);
                if steps {
                    let (least, before) = (cluster.wanted - cluster.unavailable, cluster.known());
                    cluster.step();
                    prop_assert!(cluster.asked() <= most, "{:?}", cluster);
                    prop_assert!(cluster.known() >= least.min(before), "{:?} knew {}", cluster, before);
                    prop_assert!(cluster.known() <= cluster.staying(), "{:?}", cluster);
                    prop_assert!(cluster.sets.iter().all(|set| set.asked >= 0));
                }
            }
        }

        /// When pods become available and statuses tell of it, every rollout ends.
        #[test]
        fn every_rollout_ends(mut cluster in cluster()) {
            let mut steps = 0;
            while !cluster.is_done() {
                cluster.step();
                for at in 0..cluster.sets.len() {
                    cluster.work(at, 1, true);
                }
                steps += 1;
                prop_assert!(steps < 500, "{:?}", cluster);
            }
        }
    }
}
