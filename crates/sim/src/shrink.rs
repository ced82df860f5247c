//! Cuts a schedule that fails down to what it needs to fail.

use crate::deeds::Schedule;

/// The schedule with only these of its deeds, by their places.
#[must_use]
pub fn only(schedule: &Schedule, places: &[usize]) -> Schedule {
    let deeds = places.iter().filter_map(|place| schedule.deeds.get(*place)).cloned().collect();
    Schedule { deeds, ..schedule.clone() }
}

/// The places of deeds that are enough to fail: none of them can be left out alone.
///
/// Halves go first, then smaller parts, then single deeds, as long as something still can go.
pub fn needed(schedule: &Schedule, mut fails: impl FnMut(&Schedule) -> bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..schedule.deeds.len()).collect();
    let mut size = places.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let before = places.len();
        while start < places.len() {
            let end = (start + size).min(places.len());
            let without: Vec<_> = places[..start].iter().chain(&places[end..]).copied().collect();
            if fails(&only(schedule, &without)) {
                places = without;
            } else {
                start = end;
            }
        }
        if size == 1 && places.len() == before {
            return places;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deeds::{Deed, Timed};

    #[test]
    fn what_is_not_needed_goes() {
        let deeds = (0..37).map(|at| Timed { at, deed: Deed::Compact }).collect();
        let schedule = Schedule { seed: 1, managers: 1, nodes: 1, roles: false, deeds };
        let mut tries = 0;
        let needed = needed(&schedule, |schedule| {
            tries += 1;
            let has = |at: u64| schedule.deeds.iter().any(|timed| timed.at == at);
            has(3) && has(17) && has(36)
        });
        assert_eq!(needed, [3, 17, 36]);
        assert!(tries < 80, "{tries}");
    }
}
