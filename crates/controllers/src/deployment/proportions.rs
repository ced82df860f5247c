//! Spreads a change of the wanted number over all ReplicaSets of a rollout that is under way, each in
//! proportion to its size.

use keleustes_objects::Time;

/// What the arithmetic needs to know of a ReplicaSet.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    /// Its size.
    pub(super) size: i32,
    /// How many pods were allowed in all when it was last sized.
    pub(super) allowed_before: i32,
    /// When it was made.
    pub(super) created_at: Option<Time>,
    /// Its name.
    pub(super) name: &'a str,
}

/// The order in which parts are given or lose, by their places: larger ones first; of equals the newest
/// gains first and the oldest loses first. With each its new size.
pub(super) fn spread(parts: &[Part<'_>], wanted: i32, surge: i32) -> Vec<(usize, i32)> {
    let allowed = if wanted > 0 { i64::from(wanted) + i64::from(surge) } else { 0 };
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
        let share = if left == 0 { 0 } else { share(part, wanted, surge) };
        let share = if change > 0 { share.min(left) } else { share.max(left) };
        left -= share;
        sizes.push((at, i64::from(part.size) + share));
    }
    if let Some((_, size)) = sizes.first_mut() {
        *size += left;
    }
    let whole = |size: i64| i32::try_from(size.max(0)).unwrap_or(i32::MAX);
    sizes.into_iter().map(|(at, size)| (at, whole(size))).collect()
}

/// What a part would gain or lose if there were no other.
fn share(part: &Part<'_>, wanted: i32, surge: i32) -> i64 {
    let size = i64::from(part.size);
    if wanted == 0 {
        return -size;
    }
    if part.allowed_before <= 0 {
        return 0;
    }
    let (scaled, before) = (size * (i64::from(wanted) + i64::from(surge)), i64::from(part.allowed_before));
    // Half goes up: all numbers are positive.
    (2 * scaled + before) / (2 * before) - size
}
