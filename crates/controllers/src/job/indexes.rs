//! Sets of indexes, written as intervals: `0-2,5,7,8`.

use std::fmt;

/// A set of indexes. Its intervals are sorted, disjoint and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<Interval>);

/// All indexes from the first to the last, inclusive.
type Interval = (i64, i64);

impl Indexes {
    /// Parses intervals, cut off at the number of completions. Malformed intervals are skipped.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let completions = i64::from(completions);
        let mut intervals = Vec::new();
        for interval in text.split(',') {
            let mut limits = interval.split('-').map(str::parse::<i64>);
            let Some(Ok(first)) = limits.next() else { continue };
            if first >= completions {
                break;
            }
            let last = match limits.next() {
                Some(Err(_)) => continue,
                Some(Ok(last)) => last.min(completions - 1),
                None => first,
            };
            if last >= first {
                intervals.push((first, last));
            }
        }
        Self::of_intervals(intervals)
    }

    /// The set with these indexes added.
    pub(super) fn with(&self, indexes: impl IntoIterator<Item = i64>) -> Self {
        let more = indexes.into_iter().map(|index| (index, index));
        Self::of_intervals(self.0.iter().copied().chain(more).collect())
    }

    /// The union of both sets.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self::of_intervals(self.0.iter().chain(&other.0).copied().collect())
    }

    fn of_intervals(mut intervals: Vec<Interval>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of indexes in the set.
    pub(super) fn count(&self) -> i32 {
        let count: i64 = self.0.iter().map(|(first, last)| last - first + 1).sum();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    pub(super) fn contains(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// The number of indexes that both sets contain.
    pub(super) fn overlap(&self, other: &Self) -> i32 {
        // An index that both sets contain is counted twice in the sum and once in the union.
        self.count().saturating_add(other.count()).saturating_sub(self.union(other).count())
    }

    /// The lowest indexes below a bound that the set does not contain, at most `at_most` of them.
    pub(super) fn lowest_missing(&self, bound: i32, at_most: usize) -> Vec<i64> {
        let end = (i64::from(bound), i64::from(bound));
        let mut from = 0;
        let mut missing = Vec::new();
        for (first, last) in self.0.iter().copied().chain([end]) {
            let room = at_most - missing.len();
            missing.extend((from..first.min(end.0)).take(room));
            from = from.max(last.saturating_add(1));
        }
        missing
    }
}

/// Ascending intervals. Two adjacent indexes are written as two indexes, not as an interval.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn listed(set: &BTreeSet<i64>) -> Indexes {
        Indexes::default().with(set.iter().copied())
    }

    /// Proves JOB-85.
    #[test]
    fn indexes_are_written_as_ascending_intervals() {
        for (indexes, text) in
            [(vec![], ""), (vec![3], "3"), (vec![4, 3], "3,4"), (vec![5, 3, 4, 9, 0], "0,3-5,9")]
        {
            assert_eq!(Indexes::default().with(indexes).to_string(), text);
        }
    }

    /// Proves JOB-86.
    #[test]
    fn malformed_intervals_are_skipped_and_high_indexes_are_cut_off() {
        for (text, completions, read) in [
            ("", 5, ""),
            ("0,1,2", 5, "0-2"),
            ("x,1,2-y,3-4", 9, "1,3,4"),
            ("1-9", 5, "1-4"),
            ("1,5,2", 5, "1"),
            ("3-1,2", 5, "2"),
            ("0-1,2-3", 9, "0-3"),
            ("-1", 5, ""),
            ("0-4", 0, ""),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), read, "{text}");
        }
    }

    proptest! {
        /// Compares every operation with a `BTreeSet`.
        #[test]
        fn indexes_behave_like_a_btree_set(
            one in prop::collection::btree_set(0_i64..40, 0..30),
            other in prop::collection::btree_set(0_i64..40, 0..30),
            completions in 0_i32..45,
            at_most in 0_usize..45,
        ) {
            let (set, others) = (listed(&one), listed(&other));
            prop_assert_eq!(set.count() as usize, one.len());
            prop_assert_eq!(set.is_empty(), one.is_empty());
            let below: BTreeSet<i64> = one.range(..i64::from(completions)).copied().collect();
            prop_assert_eq!(Indexes::parse(&set.to_string(), completions), listed(&below));
            prop_assert_eq!(set.union(&others), listed(&one.union(&other).copied().collect()));
            prop_assert_eq!(set.overlap(&others) as usize, one.intersection(&other).count());
            for index in 0..45 {
                prop_assert_eq!(set.contains(index), one.contains(&index));
            }
            let missing: Vec<i64> =
                (0..i64::from(completions)).filter(|index| !one.contains(index)).take(at_most).collect();
            prop_assert_eq!(set.lowest_missing(completions, at_most), missing);
        }
    }
}
