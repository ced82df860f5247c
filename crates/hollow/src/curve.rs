//! Values over time in annotations: a quantity, or points between which the value changes evenly.

use std::time::Duration;

use keleustes_objects::Quantity;

use crate::duration;

/// A value over time, in milli units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Curve {
    /// At least one, with increasing times.
    points: Vec<(Duration, i64)>,
}

const POINTS_MAX: usize = 100;

impl Curve {
    /// Parses `300m`, or points such as `0s=100m,2m=1.5,4m=100m`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut points: Vec<(Duration, i64)> = Vec::new();
        for point in text.split(',') {
            let (time, value) = match point.trim().split_once('=') {
                Some((time, value)) => (duration::parse(time.trim())?, value.trim()),
                None if points.is_empty() => (Duration::ZERO, point.trim()),
                None => return None,
            };
            let is_later = points.last().is_none_or(|(last, _)| *last < time);
            if !is_later || points.len() == POINTS_MAX {
                return None;
            }
            points.push((time, Quantity::parse(value)?.milli()));
        }
        Some(Self { points })
    }

    /// The lowest value.
    pub(crate) fn lowest(&self) -> i64 {
        self.points.iter().map(|(_, value)| *value).min().unwrap_or_default()
    }

    /// The value at a time. After its last point a curve begins again.
    pub(crate) fn at(&self, elapsed: Duration) -> i64 {
        let last = self.points.last().map_or(Duration::ZERO, |(time, _)| *time);
        let at = match last.as_nanos() {
            0 => 0,
            period => elapsed.as_nanos() % period,
        };
        let next = self.points.iter().position(|(time, _)| time.as_nanos() > at);
        match next {
            Some(0) => self.points[0].1,
            Some(next) => {
                let ((from, low), (to, high)) = (self.points[next - 1], self.points[next]);
                let share = |nanos: u128| i128::try_from(nanos).unwrap_or(i128::MAX);
                let (passed, whole) = (share(at - from.as_nanos()), share((to - from).as_nanos()));
                let change = (i128::from(high) - i128::from(low)) * passed / whole;
                i64::try_from(i128::from(low) + change).unwrap_or(low)
            }
            None => self.points.last().map_or(0, |(_, value)| *value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, seconds: u64) -> i64 {
        Curve::parse(text).unwrap().at(Duration::from_secs(seconds))
    }

    #[test]
    fn curve_changes_evenly_between_its_points_and_begins_again() {
        assert_eq!((at("300m", 0), at("300m", 9999)), (300, 300));
        let tide = "0s=100m, 60s=1.1, 2m=100m";
        assert_eq!([0, 30, 60, 90, 120, 150].map(|second| at(tide, second)), [100, 600, 1100, 600, 100, 600]);
        let late = "10s=1,20s=2";
        assert_eq!([0, 10, 15, 20].map(|second| at(late, second)), [1000, 1000, 1500, 1000]);
        assert_eq!([0, 5].map(|second| at("1,10s=2", second)), [1000, 1500]);
    }

    #[test]
    fn malformed_curves_are_refused() {
        for text in ["", "high", "1,2", "10s=1,5s=2", "10s=1,10s=2", "10=1", "10s", "10s=1,"] {
            assert_eq!(Curve::parse(text), None, "{text:?}");
        }
        let long: Vec<String> = (0..=POINTS_MAX).map(|second| format!("{second}s=1")).collect();
        assert_eq!(Curve::parse(&long.join(",")), None);
    }
}
