//! How many pods a rollout may have too many, and how many too few.

use keleustes_objects::{DeploymentSpec, IntOrString, Rounding};

use super::facts::ROLLING_UPDATE;

/// The bounds of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The surplus that is allowed.
    pub(super) surge: i32,
    /// How many may be missing.
    pub(super) unavailable: i32,
}

impl Bounds {
    /// The bounds that a Deployment sets. Only a rolling update has any.
    pub(super) fn of(spec: &DeploymentSpec) -> Self {
        if spec.strategy.r#type != ROLLING_UPDATE {
            return Self { surge: 0, unavailable: 0 };
        }
        let rolling = spec.strategy.rolling_update.clone().unwrap_or_default();
        let resolved =
            Self::resolve(rolling.max_surge.as_ref(), rolling.max_unavailable.as_ref(), spec.replicas);
        Self { unavailable: resolved.unavailable.clamp(0, spec.replicas.max(0)), ..resolved }
    }

    /// Turns shares into numbers: a share of surplus rounds up, one of loss down. Both zero would leave
    /// no way to move, so then one pod may be missing.
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
