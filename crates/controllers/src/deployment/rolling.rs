//! One step of a rolling update: the new ReplicaSet is scaled up within maxSurge, the old ones are scaled
//! down within maxUnavailable.

/// A ReplicaSet as the calculation needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Its `spec.replicas`.
    pub(super) replicas: i32,
    /// Its `status.availableReplicas`.
    pub(super) available: i32,
}

/// The size of the new ReplicaSet, given the total replicas of all ReplicaSets.
pub(super) fn new_set_target(desired: i32, surge: i32, new_set: i32, total_replicas: i32) -> i32 {
    if new_set >= desired {
        return desired;
    }
    let room = desired.saturating_add(surge).saturating_sub(total_replicas);
    if room <= 0 { new_set } else { new_set + room.min(desired - new_set) }
}

impl Size {
    /// Available pods that remain after the resize. The status of a ReplicaSet that was just scaled down
    /// still counts pods that are about to be deleted; they must not be relied on.
    fn available_after_resize(self) -> i64 {
        self.available.min(self.replicas).into()
    }
}

/// The sizes of the old ReplicaSets, oldest first: unavailable pods are removed first, then as many others as
/// maxUnavailable allows.
pub(super) fn old_targets(desired: i32, unavailable_max: i32, new_set: Size, old: &[Size]) -> Vec<i32> {
    let mut targets: Vec<i32> = old.iter().map(|size| size.replicas).collect();
    let min_available = i64::from(desired) - i64::from(unavailable_max);
    let replicas: i64 = old.iter().map(|size| i64::from(size.replicas)).sum();
    let mut removable = new_set.available_after_resize() + replicas - min_available;
    if removable <= 0 {
        return targets;
    }
    for (target, size) in targets.iter_mut().zip(old) {
        // A ReplicaSet whose pods are all available has no unhealthy ones to clean up.
        removable -=
            shrink_by(target, removable.min(i64::from(size.replicas) - size.available_after_resize()));
    }
    let mut removable = new_set.available_after_resize()
        + old.iter().map(|size| size.available_after_resize()).sum::<i64>()
        - min_available;
    for target in &mut targets {
        removable -= shrink_by(target, removable);
    }
    targets
}

/// Reduces a size by at most `at_most`, and returns by how much.
fn shrink_by(size: &mut i32, at_most: i64) -> i64 {
    let taken = at_most.clamp(0, i64::from(*size).max(0));
    *size -= i32::try_from(taken).unwrap_or(*size);
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(replicas: i32, available: i32) -> Size {
        Size { replicas, available }
    }

    /// Proves DEP-55, DEP-56.
    #[test]
    fn the_new_replica_set_grows_within_max_surge() {
        for (desired, surge, new_set, total_replicas, expected) in [
            (10, 0, 0, 10, 0),
            (10, 2, 0, 10, 2),
            (10, 2, 5, 10, 7),
            (10, 20, 5, 10, 10),
            (10, 0, 5, 5, 10),
            (10, 2, 3, 15, 3),
            (10, 2, 12, 12, 10),
            (0, 2, 1, 1, 0),
        ] {
            let target = new_set_target(desired, surge, new_set, total_replicas);
            assert_eq!(target, expected, "{desired} {surge} {new_set} {total_replicas}");
        }
    }

    /// Proves DEP-57, DEP-58, DEP-59, DEP-61.
    #[test]
    fn old_replica_sets_shrink_within_max_unavailable() {
        for (new_set, old, expected) in [
            (size(0, 0), vec![size(10, 8)], vec![8]),
            (size(0, 0), vec![size(10, 9)], vec![8]),
            (size(0, 0), vec![size(10, 10)], vec![8]),
            (size(2, 0), vec![size(8, 8)], vec![8]),
            (size(2, 2), vec![size(8, 8)], vec![6]),
            (size(4, 4), vec![size(3, 0), size(5, 5)], vec![0, 4]),
            (size(10, 10), vec![size(1, 1), size(1, 0)], vec![0, 0]),
            // The status of a ReplicaSet that was just scaled down still counts pods that are about to be
            // deleted.
            (size(0, 0), vec![size(4, 5), size(6, 8)], vec![2, 6]),
        ] {
            assert_eq!(old_targets(10, 2, new_set, &old), expected, "{new_set:?} {old:?}");
        }
    }

    /// A cluster whose ReplicaSets reach their sizes with a delay and report their status late.
    #[derive(Clone, Debug)]
    struct Cluster {
        desired: i32,
        surge: i32,
        unavailable: i32,
        /// The new ReplicaSet first.
        sets: Vec<Pods>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Pods {
        replicas: i32,
        available: i32,
        /// The reported available replicas, possibly outdated.
        reported: i32,
    }

    impl Pods {
        fn size(self) -> Size {
            size(self.replicas, self.reported)
        }
    }

    impl Cluster {
        fn replicas(&self) -> i32 {
            self.sets.iter().map(|set| set.replicas).sum()
        }

        /// Available pods that no ReplicaSet is about to delete.
        fn available_after_resize(&self) -> i32 {
            self.sets.iter().map(|set| set.available.min(set.replicas)).sum()
        }

        /// How many of them the statuses report.
        fn reported_available(&self) -> i32 {
            self.sets.iter().map(|set| set.reported.min(set.replicas)).sum()
        }

        /// One reconcile of the Deployment controller.
        fn step(&mut self) -> bool {
            let (new_set, replicas) = (self.sets[0], self.replicas());
            let target = new_set_target(self.desired, self.surge, new_set.replicas, replicas);
            if target != new_set.replicas {
                self.sets[0].replicas = target;
                return true;
            }
            let old: Vec<_> = self.sets[1..].iter().map(|set| set.size()).collect();
            let targets = old_targets(self.desired, self.unavailable, new_set.size(), &old);
            let moved = self.sets[1..].iter().zip(&targets).any(|(set, target)| set.replicas != *target);
            self.sets[1..].iter_mut().zip(targets).for_each(|(set, target)| set.replicas = target);
            moved
        }

        /// One ReplicaSet makes pods available or deletes surplus ones, and may report it.
        fn run_replica_set(&mut self, at: usize, pods: i32, reports: bool) {
            let count = self.sets.len();
            let set = &mut self.sets[at % count];
            set.available = (set.available + pods).min(set.replicas);
            if reports {
                set.reported = set.available;
            }
        }

        fn is_done(&self) -> bool {
            self.sets[0].replicas == self.desired && self.replicas() == self.desired
        }
    }

    prop_compose! {
        /// A cluster whose initial statuses are accurate.
        fn cluster()(
            desired in 0..30_i32, surge in 0..8_i32, unavailable in 0..8_i32,
            sets in prop::collection::vec((0..20_i32, 0..20_i32), 2..5),
        ) -> Cluster {
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
            let sets = sets.into_iter().map(|(replicas, available)| {
                let available = available.min(replicas);
                Pods { replicas, available, reported: available }
            });
            Cluster { desired, surge, unavailable: unavailable.min(desired), sets: sets.collect() }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// In any order of events, no step exceeds maxSurge or removes available pods below the reported
        /// minimum.
        #[test]
        fn no_step_exceeds_surge_or_unavailability(
            mut cluster in cluster(),
            actions in prop::collection::vec((0..8_usize, 0..5_i32, any::<bool>(), any::<bool>()), 0..80),
        ) {
            let most = (cluster.desired + cluster.surge).max(cluster.replicas());
            for (at, pods, reports, steps) in actions {
                cluster.run_replica_set(at, pods, reports);
                if steps {
                    let (min_available, before) = (cluster.desired - cluster.unavailable, cluster.reported_available());
                    cluster.step();
                    prop_assert!(cluster.replicas() <= most, "{:?}", cluster);
                    prop_assert!(cluster.reported_available() >= min_available.min(before), "{:?} knew {}", cluster, before);
                    prop_assert!(cluster.reported_available() <= cluster.available_after_resize(), "{:?}", cluster);
                    prop_assert!(cluster.sets.iter().all(|set| set.replicas >= 0));
                }
            }
        }

        /// If pods become available and statuses report it, every rollout completes.
        #[test]
        fn every_rollout_completes(mut cluster in cluster()) {
            let mut steps = 0;
            while !cluster.is_done() {
                cluster.step();
                for at in 0..cluster.sets.len() {
                    cluster.run_replica_set(at, 1, true);
                }
                steps += 1;
                prop_assert!(steps < 500, "{:?}", cluster);
            }
        }
    }
}
