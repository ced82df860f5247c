//! Reduces a failing schedule to the actions it needs to fail.

use crate::actions::Schedule;

/// The schedule with only these of its actions, by index.
#[must_use]
pub fn with_only(schedule: &Schedule, indexes: &[usize]) -> Schedule {
    let actions = indexes.iter().filter_map(|index| schedule.actions.get(*index)).cloned().collect();
    Schedule { actions, ..schedule.clone() }
}

/// The indexes of actions that are enough to fail: none of them can be removed alone.
///
/// Halves are removed first, then smaller parts, then single actions, until no removal keeps the failure.
pub fn minimal_failing(schedule: &Schedule, mut fails: impl FnMut(&Schedule) -> bool) -> Vec<usize> {
    let mut indexes: Vec<usize> = (0..schedule.actions.len()).collect();
    let mut size = indexes.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let before = indexes.len();
        while start < indexes.len() {
            let end = (start + size).min(indexes.len());
            let without: Vec<_> = indexes[..start].iter().chain(&indexes[end..]).copied().collect();
            if fails(&with_only(schedule, &without)) {
                indexes = without;
            } else {
                start = end;
            }
        }
        if size == 1 && indexes.len() == before {
            return indexes;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{Action, TimedAction};

    #[test]
    fn only_the_needed_actions_are_kept() {
        let actions = (0..37).map(|at| TimedAction { at_ms: at, action: Action::Compact }).collect();
        let schedule = Schedule { seed: 1, managers: 1, nodes: 1, actions, ..Schedule::default() };
        let mut runs = 0;
        let minimal_failing = minimal_failing(&schedule, |schedule| {
            runs += 1;
            let has = |at: u64| schedule.actions.iter().any(|timed| timed.at_ms == at);
            has(3) && has(17) && has(36)
        });
        assert_eq!(minimal_failing, [3, 17, 36]);
        assert!(runs < 80, "{runs}");
    }
}
