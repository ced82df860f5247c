//! Whether the indexes that have succeeded are enough, by the first rule of the success policy that is
//! met.

use keleustes_objects::SuccessPolicy;

use super::indexes::Indexes;

/// The position of the first rule that is met.
pub(super) fn first_matching_rule(
    policy: &SuccessPolicy,
    succeeded: &Indexes,
    completions: i32,
) -> Option<usize> {
    if succeeded.is_empty() {
        return None;
    }
    policy.rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(listed), count) => {
            let listed = Indexes::parse(listed, completions);
            let there = listed.overlap(succeeded);
            !listed.is_empty() && (there == listed.count() || count.is_some_and(|count| there >= count))
        }
        (None, count) => count.is_some_and(|count| succeeded.count() >= count),
    })
}
