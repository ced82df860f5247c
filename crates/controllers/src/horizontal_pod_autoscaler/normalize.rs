//! Limits a proposal: stabilization over recent recommendations, scaling policies, and the bounds of the spec.
//!
//! Parity: pkg/controller/podautoscaler/horizontal.go, normalizeDesiredReplicas and what it calls.

use std::time::Duration;

use keleustes_objects::{HorizontalPodAutoscalerBehavior, ScalingPolicy, ScalingRules};

/// A proposal of the past, before it was limited. Times are those of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recommendation {
    pub(super) replicas: i32,
    pub(super) at: Duration,
}

/// A change of the size of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScaleEvent {
    /// By how many replicas, without sign.
    pub(super) replicas: i32,
    pub(super) at: Duration,
    /// Marked for reuse: it was older than the longest period of a policy when another event was stored.
    pub(super) is_outdated: bool,
}

/// What the controller remembers of one autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    pub(super) recommendations: Vec<Recommendation>,
    pub(super) scale_ups: Vec<ScaleEvent>,
    pub(super) scale_downs: Vec<ScaleEvent>,
}

/// A proposal and its bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposed {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

/// A reason and a message of a condition.
pub(super) type Because = (&'static str, &'static str);

/// The limited proposal and what the conditions `AbleToScale` and `ScalingLimited` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Normalized {
    pub(super) desired: i32,
    pub(super) able_to_scale: Because,
    pub(super) is_limited: bool,
    pub(super) limited: Because,
}

const READY_FOR_NEW_SCALE: Because = ("ReadyForNewScale", "recommended size matches current size");
const SCALE_UP_STABILIZED: Because = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const SCALE_DOWN_STABILIZED: Because = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN_RANGE: Because = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: Because =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: Because =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const SCALE_UP_LIMIT: Because =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const SCALE_DOWN_LIMIT: Because =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

impl History {
    /// Stores the size at the first reconcile of a process: it holds back scaling for one window after a restart.
    pub(super) fn record_initial(&mut self, replicas: i32, now: Duration) {
        if self.recommendations.is_empty() {
            self.recommendations.push(Recommendation { replicas, at: now });
        }
    }

    /// Limits a proposal of an autoscaler without `behavior`.
    pub(super) fn normalize(&mut self, proposed: Proposed, window: Duration, now: Duration) -> Normalized {
        let (mut stabilized, mut outdated) = (proposed.desired, None);
        for (index, one) in self.recommendations.iter().enumerate() {
            if one.at + window < now {
                outdated = Some(index);
            } else {
                stabilized = stabilized.max(one.replicas);
            }
        }
        self.recommend(proposed.desired, outdated, now);
        let (desired, limited) = limit_by_default(Proposed { desired: stabilized, ..proposed });
        let is_stable = stabilized == proposed.desired;
        let able_to_scale = if is_stable { READY_FOR_NEW_SCALE } else { SCALE_DOWN_STABILIZED };
        Normalized { desired, able_to_scale, is_limited: desired != stabilized, limited }
    }

    /// Limits a proposal of an autoscaler with `behavior`.
    pub(super) fn normalize_with(
        &mut self,
        proposed: Proposed,
        behavior: &Behavior,
        now: Duration,
    ) -> Normalized {
        let stabilized = self.stabilize(proposed, behavior, now);
        let able_to_scale = if stabilized == proposed.desired {
            READY_FOR_NEW_SCALE
        } else if proposed.desired >= proposed.current {
            SCALE_UP_STABILIZED
        } else {
            SCALE_DOWN_STABILIZED
        };
        let (desired, limited) =
            self.limit_by_policies(Proposed { desired: stabilized, ..proposed }, behavior, now);
        Normalized { desired, able_to_scale, is_limited: desired != stabilized, limited }
    }

    fn stabilize(&mut self, proposed: Proposed, behavior: &Behavior, now: Duration) -> i32 {
        let (up_window, down_window) = (seconds(behavior.up.window), seconds(behavior.down.window));
        let (mut up, mut down, mut outdated) = (proposed.desired, proposed.desired, None);
        for (index, one) in self.recommendations.iter().enumerate() {
            let (up_end, down_end) = (nanoseconds(one.at) + up_window, nanoseconds(one.at) + down_window);
            let now = nanoseconds(now);
            if up_end > now {
                up = up.min(one.replicas);
            }
            if down_end > now {
                down = down.max(one.replicas);
            }
            if up_end < now && down_end < now {
                outdated = Some(index);
            }
        }
        self.recommend(proposed.desired, outdated, now);
        proposed.current.max(up).min(down)
    }

    fn recommend(&mut self, replicas: i32, outdated: Option<usize>, now: Duration) {
        let new = Recommendation { replicas, at: now };
        match outdated.and_then(|index| self.recommendations.get_mut(index)) {
            Some(reused) => *reused = new,
            None => self.recommendations.push(new),
        }
    }

    fn limit_by_policies(&self, proposed: Proposed, behavior: &Behavior, now: Duration) -> (i32, Because) {
        let Proposed { current, desired, min, max } = proposed;
        if desired > current {
            let limit = self.scale_up_limit(current, &behavior.up, now).max(current);
            let (bound, because) = if max > limit { (limit, SCALE_UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > bound {
                return (bound, because);
            }
        } else if desired < current {
            let limit = self.scale_down_limit(current, &behavior.down, now).min(current);
            let (bound, because) = if min < limit { (limit, SCALE_DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < bound {
                return (bound, because);
            }
        }
        (desired, WITHIN_RANGE)
    }

    fn scale_up_limit(&self, current: i32, rules: &Rules, now: Duration) -> i32 {
        let selected = match rules.select {
            Select::Disabled => return current,
            Select::Min => (i32::MAX, i32::min as fn(i32, i32) -> i32),
            Select::Max => (i32::MIN, i32::max as fn(i32, i32) -> i32),
        };
        self.limit(current, rules, now, selected, |start, policy| match &*policy.r#type {
            "Pods" => Some(start.saturating_add(policy.value)),
            // Rounded up, because otherwise a small target would never grow.
            "Percent" => Some(rounded((f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil())),
            _ => None,
        })
    }

    fn scale_down_limit(&self, current: i32, rules: &Rules, now: Duration) -> i32 {
        let selected = match rules.select {
            Select::Disabled => return current,
            Select::Min => (i32::MIN, i32::max as fn(i32, i32) -> i32),
            Select::Max => (i32::MAX, i32::min as fn(i32, i32) -> i32),
        };
        self.limit(current, rules, now, selected, |start, policy| match &*policy.r#type {
            "Pods" => Some(start.saturating_sub(policy.value)),
            "Percent" => Some(rounded(f64::from(start) * (1.0 - f64::from(policy.value) / 100.0))),
            _ => None,
        })
    }

    /// The limit that the policies select. A policy of unknown type repeats the value of the one before.
    fn limit(
        &self,
        current: i32,
        rules: &Rules,
        now: Duration,
        (initial, select): (i32, fn(i32, i32) -> i32),
        propose: impl Fn(i32, &ScalingPolicy) -> Option<i32>,
    ) -> i32 {
        let (mut limit, mut proposed) = (initial, 0);
        for policy in &rules.policies {
            let changed = |events: &[ScaleEvent]| changed_within(policy.period_seconds, events, now);
            let start = i64::from(current) - changed(&self.scale_ups) + changed(&self.scale_downs);
            let start = i32::try_from(start).unwrap_or(if start < 0 { i32::MIN } else { i32::MAX });
            proposed = propose(start, policy).unwrap_or(proposed);
            limit = select(limit, proposed);
        }
        limit
    }

    /// Stores a change of the size, for the policies.
    pub(super) fn record_scale(&mut self, behavior: &Behavior, from: i32, to: i32, now: Duration) {
        let (events, rules) = if to > from {
            (&mut self.scale_ups, &behavior.up)
        } else {
            (&mut self.scale_downs, &behavior.down)
        };
        let longest =
            rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or_default().max(0);
        for event in events.iter_mut() {
            event.is_outdated |= nanoseconds(event.at) + seconds(longest) < nanoseconds(now);
        }
        let replicas = to.abs_diff(from);
        let new =
            ScaleEvent { replicas: i32::try_from(replicas).unwrap_or(i32::MAX), at: now, is_outdated: false };
        match events.iter_mut().rfind(|event| event.is_outdated) {
            Some(reused) => *reused = new,
            None => events.push(new),
        }
    }
}

/// The bounds of an autoscaler without `behavior`: at most twice the current size, or 4.
fn limit_by_default(proposed: Proposed) -> (i32, Because) {
    let Proposed { current, desired, min, max } = proposed;
    let limit = current.saturating_mul(2).max(4);
    let (bound, because) = if max > limit { (limit, SCALE_UP_LIMIT) } else { (max, TOO_MANY) };
    if desired < min {
        (min, TOO_FEW)
    } else if desired > bound {
        (bound, because)
    } else {
        (desired, WITHIN_RANGE)
    }
}

/// `spec.behavior` with all defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behavior {
    up: Rules,
    down: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules {
    window: i32,
    select: Select,
    policies: Vec<ScalingPolicy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Select {
    Max,
    Min,
    Disabled,
}

impl Behavior {
    /// Adds the defaults, which an API server has set but for the window of scaling down.
    pub(super) fn of(behavior: &HorizontalPodAutoscalerBehavior, downscale_window: Duration) -> Self {
        let policy = |r#type: &str, value| ScalingPolicy { r#type: r#type.into(), value, period_seconds: 15 };
        let up = ScalingRules {
            policies: vec![policy("Pods", 4), policy("Percent", 100)],
            ..ScalingRules::default()
        };
        let down = ScalingRules { policies: vec![policy("Percent", 100)], ..ScalingRules::default() };
        let downscale_window = i32::try_from(downscale_window.as_secs()).unwrap_or(i32::MAX);
        Self {
            up: Rules::of(behavior.scale_up.as_ref().unwrap_or(&up), 0),
            down: Rules::of(behavior.scale_down.as_ref().unwrap_or(&down), downscale_window),
        }
    }
}

impl Rules {
    fn of(rules: &ScalingRules, window: i32) -> Self {
        Self {
            window: rules.stabilization_window_seconds.unwrap_or(window),
            select: match rules.select_policy.as_deref() {
                Some("Disabled") => Select::Disabled,
                Some("Min") => Select::Min,
                _ => Select::Max,
            },
            policies: rules.policies.clone(),
        }
    }
}

/// How many replicas were added or removed within a period.
fn changed_within(period_seconds: i32, events: &[ScaleEvent], now: Duration) -> i64 {
    let is_recent = |event: &&ScaleEvent| nanoseconds(event.at) + seconds(period_seconds) > nanoseconds(now);
    events.iter().filter(is_recent).map(|event| i64::from(event.replicas)).sum()
}

fn seconds(seconds: i32) -> i128 {
    i128::from(seconds) * super::calculator::SECOND
}

fn nanoseconds(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
fn rounded(number: f64) -> i32 {
    number as i32
}
