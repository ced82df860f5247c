//! maxSurge and maxUnavailable of a rollout as numbers.

use keleustes_objects::{DeploymentSpec, IntOrString, Rounding};

use super::inputs::ROLLING_UPDATE;

/// The bounds of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Pods allowed above `spec.replicas`.
    pub(super) surge: i32,
    /// Pods that may be unavailable.
    pub(super) unavailable: i32,
}

impl Bounds {
    /// The bounds of a Deployment. Only RollingUpdate has any.
    pub(super) fn of(spec: &DeploymentSpec) -> Self {
        if spec.strategy.r#type != ROLLING_UPDATE {
            return Self { surge: 0, unavailable: 0 };
        }
        let rolling = spec.strategy.rolling_update.clone().unwrap_or_default();
        let resolved =
            Self::resolve(rolling.max_surge.as_ref(), rolling.max_unavailable.as_ref(), spec.replicas);
        Self { unavailable: resolved.unavailable.clamp(0, spec.replicas.max(0)), ..resolved }
    }

    /// Resolves percentages: maxSurge rounds up, maxUnavailable rounds down. If both are 0 the rollout could
    /// not proceed, so maxUnavailable becomes 1.
    pub(super) fn resolve(
        surge: Option<&IntOrString>,
        unavailable: Option<&IntOrString>,
        replicas: i32,
    ) -> Self {
        let number = |value: Option<&IntOrString>, rounding| {
            value.map_or(Some(0), |value| value.scaled(replicas, rounding)).unwrap_or(0).max(0)
        };
        let surge = number(surge, Rounding::Up);
        let unavailable = number(unavailable, Rounding::Down);
        Self { surge, unavailable: if surge == 0 && unavailable == 0 { 1 } else { unavailable } }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<IntOrString> {
        (text != "nil")
            .then(|| text.parse::<i32>().map_or_else(|_| IntOrString::from(text), IntOrString::from))
    }

    fn resolved(surge: &str, unavailable: &str, replicas: i32) -> (i32, i32) {
        let bounds = Bounds::resolve(parsed(surge).as_ref(), parsed(unavailable).as_ref(), replicas);
        (bounds.surge, bounds.unavailable)
    }

    /// Proves DEP-41, DEP-43.
    #[test]
    fn percentages_are_resolved_and_never_both_zero() {
        for (surge, unavailable, replicas, expected) in [
            ("39%", "39%", 10, (4, 3)),
            ("nil", "39%", 10, (0, 3)),
            ("39%", "nil", 10, (4, 0)),
            ("nil", "nil", 10, (0, 1)),
            ("0%", "0%", 0, (0, 1)),
            ("2", "3", 10, (2, 3)),
            ("0", "0", 10, (0, 1)),
            ("25%", "25%", 1, (1, 0)),
        ] {
            assert_eq!(resolved(surge, unavailable, replicas), expected, "{surge} {unavailable} {replicas}");
        }
    }

    /// Proves DEP-42.
    #[test]
    fn only_a_rolling_update_has_bounds_and_max_unavailable_is_at_most_replicas() {
        let spec = |strategy: &str, unavailable: i32, replicas: i32| -> DeploymentSpec {
            serde_json::from_value(serde_json::json!({
                "replicas": replicas,
                "strategy": {"type": strategy, "rollingUpdate": {"maxSurge": 2, "maxUnavailable": unavailable}},
            }))
            .unwrap()
        };
        let bounds = |spec: DeploymentSpec| (Bounds::of(&spec).surge, Bounds::of(&spec).unavailable);
        assert_eq!(bounds(spec("RollingUpdate", 3, 10)), (2, 3));
        assert_eq!(bounds(spec("RollingUpdate", 30, 10)), (2, 10));
        assert_eq!(bounds(spec("RollingUpdate", 3, 0)), (2, 0));
        assert_eq!(bounds(spec("Recreate", 3, 10)), (0, 0));
    }

    proptest! {
        #[test]
        fn a_rollout_can_always_proceed_within_its_percentages(
            (surge, unavailable, replicas) in (0..=100_i32, 0..=100_i32, 0..5000_i32)
        ) {
            let (up, down) = resolved(&format!("{surge}%"), &format!("{unavailable}%"), replicas);
            prop_assert!(up + down > 0);
            prop_assert!(i64::from(up) * 100 >= i64::from(surge) * i64::from(replicas));
            prop_assert!(down <= 1 || i64::from(down) * 100 <= i64::from(unavailable) * i64::from(replicas));
        }
    }
}
