//! Evaluates the success policy against the succeeded indexes.

use keleustes_objects::SuccessPolicy;

use super::indexes::Indexes;

/// The index of the first matching rule.
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
            let succeeded_count = listed.overlap(succeeded);
            !listed.is_empty()
                && (succeeded_count == listed.count() || count.is_some_and(|count| succeeded_count >= count))
        }
        (None, count) => count.is_some_and(|count| succeeded.count() >= count),
    })
}
