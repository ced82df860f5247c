//! Proportional scaling: distributes a change of `spec.replicas` during a rollout over all ReplicaSets by
//! their sizes.

use keleustes_objects::Time;

/// A ReplicaSet as the calculation needs it.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    /// Its `spec.replicas`.
    pub(super) size: i32,
    /// Its max-replicas annotation: the most pods allowed when it was last resized.
    pub(super) previous_max: i32,
    /// Its creation time.
    pub(super) created_at: Option<Time>,
    /// Its name.
    pub(super) name: &'a str,
}

/// The new sizes with the indexes of their ReplicaSets, in the order in which they are resized: larger ones
/// first; of equals the newest first when scaling up and the oldest first when scaling down.
pub(super) fn spread(parts: &[Part<'_>], desired: i32, surge: i32) -> Vec<(usize, i32)> {
    let allowed = if desired > 0 { i64::from(desired) + i64::from(surge) } else { 0 };
    let change = allowed - parts.iter().map(|part| i64::from(part.size)).sum::<i64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&one, &other| {
        let (one, other) = (&parts[one], &parts[other]);
        let age = (one.created_at, one.name).cmp(&(other.created_at, other.name));
        other.size.cmp(&one.size).then(if change > 0 { age.reverse() } else { age })
    });
    let mut left = change;
    let mut sizes: Vec<(usize, i64)> = Vec::with_capacity(parts.len());
    for at in order {
        let part = &parts[at];
        // When scaling up no ReplicaSet shrinks, whatever its annotation says.
        let share = share(part, desired, surge).clamp(left.min(0), left.max(0));
        left -= share;
        sizes.push((at, i64::from(part.size) + share));
    }
    if let Some((_, size)) = sizes.first_mut() {
        *size += left;
    }
    let whole = |size: i64| i32::try_from(size.max(0)).unwrap_or(i32::MAX);
    sizes.into_iter().map(|(at, size)| (at, whole(size))).collect()
}

/// By how much a ReplicaSet would be resized if it were the only one.
fn share(part: &Part<'_>, desired: i32, surge: i32) -> i64 {
    let size = i64::from(part.size);
    if desired == 0 {
        return -size;
    }
    if part.previous_max <= 0 {
        return 0;
    }
    let (scaled, before) = (size * (i64::from(desired) + i64::from(surge)), i64::from(part.previous_max));
    // Rounds half up: all numbers are positive.
    (2 * scaled + before) / (2 * before) - size
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Distributes over ReplicaSets that are given newest first.
    fn spread_over(sizes: &[i32], before: i32, desired: i32, surge: i32) -> Vec<i32> {
        let names: Vec<String> = (0..sizes.len()).map(|at| format!("p{at}")).collect();
        let parts: Vec<_> = sizes
            .iter()
            .zip(&names)
            .enumerate()
            .map(|(at, (&size, name))| Part {
                size,
                previous_max: before,
                created_at: Some(Time::from_unix_seconds(1000 - i64::try_from(at).unwrap())),
                name,
            })
            .collect();
        let mut after = vec![0; sizes.len()];
        for (at, size) in spread(&parts, desired, surge) {
            after[at] = size;
        }
        after
    }

    /// Proves DEP-53, DEP-54.
    #[test]
    fn a_change_of_replicas_is_distributed_in_proportion() {
        for (before, desired, surge, sizes, expected) in [
            (5, 10, 0, vec![2, 3], vec![4, 6]),
            (5, 3, 0, vec![2, 3], vec![1, 2]),
            (9, 4, 0, vec![8, 1], vec![4, 0]),
            (7, 10, 0, vec![2, 3, 2], vec![3, 4, 3]),
            (13, 8, 0, vec![2, 8, 3], vec![1, 5, 2]),
            (3, 4, 0, vec![1, 1, 1], vec![2, 1, 1]),
            (3, 2, 0, vec![1, 1, 1], vec![1, 1, 0]),
            (12, 20, 2, vec![6, 6], vec![11, 11]),
            (13, 50, 6, vec![5, 8], vec![22, 34]),
            (6, 0, 0, vec![3, 2, 1], vec![0, 0, 0]),
            (4, 5, 0, vec![2, 2], vec![3, 2]),
            (10, 14, 0, vec![7, 3], vec![10, 4]),
        ] {
            assert_eq!(
                spread_over(&sizes, before, desired, surge),
                expected,
                "{before} to {desired}: {sizes:?}"
            );
        }
    }

    fn order(change: i32) -> Vec<usize> {
        let part = |size: i32, born: i64, name: &'static str| Part {
            size,
            previous_max: 10,
            created_at: Some(Time::from_unix_seconds(born)),
            name,
        };
        let parts = [part(2, 1, "a"), part(5, 2, "b"), part(2, 3, "c"), part(2, 3, "d")];
        spread(&parts, 11 + change, 0).into_iter().map(|(at, _)| at).collect()
    }

    /// Proves DEP-48, DEP-49, DEP-50, DEP-51, DEP-108.
    #[test]
    fn the_largest_replica_set_comes_first_and_gets_the_remainder() {
        assert_eq!(order(5), [1, 3, 2, 0]);
        assert_eq!(order(-5), [1, 0, 2, 3]);
        // Rounds half up: 1 of 2 becomes 2 of 3, and the remainder is taken from the first.
        assert_eq!(spread_over(&[1, 1], 2, 3, 0), [2, 1]);
        // Without the annotation the whole change goes to the first.
        assert_eq!(spread_over(&[2, 3], 0, 9, 0), [2, 7]);
        assert_eq!(spread_over(&[2, 3], 0, 1, 0), [2, 0], "no size is negative");
        // The products exceed 32 bits.
        assert_eq!(spread_over(&[1_000_000, 1_000_000], 2_000_000, 4_000_000, 0), [2_000_000, 2_000_000]);
        assert_eq!(spread_over(&[3, 2], 5, 5, 0), [3, 2], "nothing to distribute");
    }

    proptest! {
        /// If the sizes added up to the previous maximum, the new sizes add up to the new one.
        #[test]
        fn the_sizes_add_up_to_the_maximum(
            sizes in prop::collection::vec(1..60_i32, 1..6),
            (desired, surge) in (0..300_i32, 0..50_i32),
        ) {
            let before: i32 = sizes.iter().sum();
            let after = spread_over(&sizes, before, desired, surge);
            prop_assert!(after.iter().all(|size| *size >= 0));
            let allowed = if desired == 0 { 0 } else { desired + surge };
            prop_assert_eq!(after.iter().sum::<i32>(), allowed);
            // A larger ReplicaSet stays at least as large, except for the rounding remainder.
            for (one, size) in sizes.iter().zip(&after) {
                for (other, its) in sizes.iter().zip(&after) {
                    let slack = i32::try_from(sizes.len()).unwrap();
                    prop_assert!(one < other || size + slack >= *its);
                }
            }
        }

        /// With any annotation no size is negative and scaling up stays within the maximum.
        #[test]
        fn no_annotation_leads_beyond_the_bounds(
            sizes in prop::collection::vec(1..60_i32, 1..6),
            (before, desired, surge) in (0..400_i32, 0..300_i32, 0..50_i32),
        ) {
            let existing: i32 = sizes.iter().sum();
            let after = spread_over(&sizes, before, desired, surge);
            prop_assert!(after.iter().all(|size| *size >= 0));
            let allowed = if desired == 0 { 0 } else { desired + surge };
            prop_assert!(after.iter().sum::<i32>() <= allowed.max(existing));
        }
    }
}
