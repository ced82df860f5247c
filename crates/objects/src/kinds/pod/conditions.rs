//! Pod conditions: the five that every pod has are stored in a few bytes, all others with all fields.

use serde::Deserialize;

use crate::condition::{FALSE, TRUE, UNKNOWN};
use crate::{ArcStr, Condition, InternedStr, Pod, Time};

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

impl ConditionStatus {
    fn parse(text: &str) -> Option<Self> {
        match text {
            TRUE => Some(Self::True),
            FALSE => Some(Self::False),
            UNKNOWN => Some(Self::Unknown),
            _ => None,
        }
    }

    /// The API's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => TRUE,
            Self::False => FALSE,
            Self::Unknown => UNKNOWN,
        }
    }
}

/// Whether a pod is available: ready for `minReadySeconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It is available.
    Now,
    /// It is ready and becomes available at this time, if it stays ready.
    At(Time),
    /// It is not ready, or the time since which it is ready is unknown.
    No,
}

/// The conditions that the scheduler and the kubelet write on every pod.
const COMMON: [&str; 5] =
    ["Ready", "ContainersReady", "Initialized", "PodScheduled", "PodReadyToStartContainers"];

/// The statuses of the common conditions. Of their timestamps controllers read only that of `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommonConditions {
    statuses: [Option<ConditionStatus>; COMMON.len()],
    positions: Positions,
    ready_changed_at: Option<Time>,
}

/// The position of each common condition in `status.conditions`, in four bits each. The three bytes fit where the struct
/// would have padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Positions([u8; 3]);

impl Positions {
    /// The last position that four bits hold. Conditions from there on are sorted by their place in [`COMMON`].
    const LAST: usize = 15;

    fn get(&self, common: usize) -> usize {
        usize::from(self.0[common / 2] >> (4 * (common % 2)) & 0xf)
    }

    fn set(&mut self, common: usize, position: usize) {
        // The minimum is below 16.
        let position = u8::try_from(position.min(Self::LAST)).unwrap_or(0xf);
        self.0[common / 2] |= position << (4 * (common % 2));
    }
}

/// A condition as decoded. [`Condition`] itself also collects unknown fields, which makes serde buffer every field; that
/// is too slow for pods.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireCondition {
    r#type: InternedStr,
    status: InternedStr,
    reason: InternedStr,
    message: ArcStr,
    last_transition_time: Option<Time>,
    last_probe_time: Option<Time>,
    observed_generation: Option<i64>,
}

impl From<WireCondition> for Condition {
    fn from(wire: WireCondition) -> Self {
        Self {
            r#type: wire.r#type,
            status: wire.status,
            reason: wire.reason,
            message: wire.message,
            last_transition_time: wire.last_transition_time,
            last_probe_time: wire.last_probe_time,
            observed_generation: wire.observed_generation,
            ..Self::default()
        }
    }
}

impl CommonConditions {
    /// Splits the common conditions off; the others keep all fields.
    pub(super) fn split(conditions: Box<[WireCondition]>) -> (Self, Box<[Condition]>) {
        let mut common = Self::default();
        let conditions = conditions.into_iter().enumerate();
        let others = conditions.filter(|(position, condition)| !common.takes(condition, *position));
        let others = others.map(|(_, condition)| Condition::from(condition)).collect();
        (common, others)
    }

    fn takes(&mut self, condition: &WireCondition, position: usize) -> bool {
        let Some(at) = COMMON.iter().position(|common| condition.r#type == *common) else { return false };
        let Some(status) = ConditionStatus::parse(&condition.status) else { return false };
        if self.statuses[at].is_some() {
            return false; // A second condition of the same type; the first one counts.
        }
        self.statuses[at] = Some(status);
        self.positions.set(at, position);
        if at == 0 {
            self.ready_changed_at = condition.last_transition_time;
        }
        true
    }
}

impl Pod {
    /// The status of a condition, if the pod has it.
    #[must_use]
    pub fn condition(&self, r#type: &str) -> Option<ConditionStatus> {
        let common = COMMON.iter().position(|common| *common == r#type);
        common.and_then(|at| self.conditions.statuses[at]).or_else(|| {
            let full = self.full_condition(r#type)?;
            ConditionStatus::parse(&full.status)
        })
    }

    /// The type and the status of each condition, in the order of `status.conditions`.
    pub fn conditions(&self) -> impl Iterator<Item = (&str, &str)> {
        let CommonConditions { statuses, positions, .. } = &self.conditions;
        let mut common: Vec<_> = (0..COMMON.len())
            .filter_map(|at| Some((positions.get(at), COMMON[at], statuses[at]?.as_str())))
            .collect();
        common.sort_by_key(|(position, ..)| *position);
        let mut common = common.into_iter().peekable();
        let mut others =
            self.full_conditions().iter().map(|other| (&*other.r#type, &*other.status)).peekable();
        (0..).map_while(move |position| {
            let is_common = |next: &(usize, &str, &str)| next.0 <= position || others.peek().is_none();
            match common.next_if(is_common) {
                Some((_, r#type, status)) => Some((r#type, status)),
                None => others.next(),
            }
        })
    }

    /// A condition with all fields. `Ready`, `ContainersReady`, `Initialized`, `PodScheduled` and
    /// `PodReadyToStartContainers` are not stored that way.
    #[must_use]
    pub fn full_condition(&self, r#type: &str) -> Option<&Condition> {
        self.full_conditions().iter().find(|condition| condition.r#type == r#type)
    }

    /// Whether its `Ready` condition is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.statuses[0] == Some(ConditionStatus::True)
    }

    /// `lastTransitionTime` of its `Ready` condition, whatever its status.
    #[must_use]
    pub fn ready_changed_at(&self) -> Option<Time> {
        self.conditions.ready_changed_at
    }

    /// The time since which it is ready, if it is ready and that is known.
    #[must_use]
    pub fn ready_since(&self) -> Option<Time> {
        self.ready_changed_at().filter(|_| self.is_ready())
    }

    /// Whether it has been ready for this many seconds, or when it will have been.
    #[must_use]
    pub fn availability(&self, min_ready_seconds: i32, now: Time) -> Availability {
        if !self.is_ready() {
            return Availability::No;
        }
        if min_ready_seconds == 0 {
            return Availability::Now;
        }
        match self.ready_since().map(|since| since.plus_seconds(min_ready_seconds.into())) {
            Some(due) if due <= now => Availability::Now,
            Some(due) => Availability::At(due),
            None => Availability::No,
        }
    }

    /// Whether it has been ready for this many seconds.
    #[must_use]
    pub fn is_available(&self, min_ready_seconds: i32, now: Time) -> bool {
        self.availability(min_ready_seconds, now) == Availability::Now
    }
}
