//! A pod's conditions: the five that every pod has in a few bytes, any other one whole.

use serde::Deserialize;

use crate::condition::{FALSE, TRUE, UNKNOWN};
use crate::{ArcStr, Condition, InternedStr, Pod, Time};

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell.
    Unknown,
}

impl ConditionStatus {
    fn read(text: &str) -> Option<Self> {
        match text {
            TRUE => Some(Self::True),
            FALSE => Some(Self::False),
            UNKNOWN => Some(Self::Unknown),
            _ => None,
        }
    }

    /// The status as the API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => TRUE,
            Self::False => FALSE,
            Self::Unknown => UNKNOWN,
        }
    }
}

/// Since when, or from when on, a pod has been ready for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It is available.
    Now,
    /// It is ready and will be available at that moment, if it stays so.
    At(Time),
    /// It is not ready, or does not say since when it is.
    No,
}

/// The conditions that kubelets and schedulers write on every pod.
const USUAL: [&str; 5] =
    ["Ready", "ContainersReady", "Initialized", "PodScheduled", "PodReadyToStartContainers"];

/// What the usual conditions say. Of their times only that of `Ready` is read by anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UsualConditions {
    statuses: [Option<ConditionStatus>; USUAL.len()],
    ready_changed_at: Option<Time>,
}

/// A condition on the wire. [`Condition`] itself also keeps unknown fields, which takes a slower way
/// through the parser than the most frequent kind of a cluster should go.
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

impl UsualConditions {
    /// Takes the usual conditions out of the list; the others are kept whole.
    pub(super) fn sort_out(conditions: Box<[WireCondition]>) -> (Self, Box<[Condition]>) {
        let mut usual = Self::default();
        let unusual = conditions.into_iter().filter(|condition| !usual.takes(condition));
        let unusual = unusual.map(Condition::from).collect();
        (usual, unusual)
    }

    fn takes(&mut self, condition: &WireCondition) -> bool {
        let Some(at) = USUAL.iter().position(|usual| condition.r#type == *usual) else { return false };
        let Some(status) = ConditionStatus::read(&condition.status) else { return false };
        if self.statuses[at].is_some() {
            return false; // A second one of the same type; the first counts.
        }
        self.statuses[at] = Some(status);
        if at == 0 {
            self.ready_changed_at = condition.last_transition_time;
        }
        true
    }
}

impl Pod {
    /// What a condition says, if the pod has it.
    #[must_use]
    pub fn condition(&self, r#type: &str) -> Option<ConditionStatus> {
        let usual = USUAL.iter().position(|usual| *usual == r#type);
        usual.and_then(|at| self.conditions.statuses[at]).or_else(|| {
            let unusual = self.full_condition(r#type)?;
            ConditionStatus::read(&unusual.status)
        })
    }

    /// A condition that is kept whole. `Ready`, `ContainersReady`, `Initialized`, `PodScheduled` and
    /// `PodReadyToStartContainers` are not.
    #[must_use]
    pub fn full_condition(&self, r#type: &str) -> Option<&Condition> {
        self.full_conditions().iter().find(|condition| condition.r#type == r#type)
    }

    /// Whether its `Ready` condition holds.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.statuses[0] == Some(ConditionStatus::True)
    }

    /// When its `Ready` condition changed last, whatever it says.
    #[must_use]
    pub fn ready_changed_at(&self) -> Option<Time> {
        self.conditions.ready_changed_at
    }

    /// Since when it has been ready, if it is and says so.
    #[must_use]
    pub fn ready_since(&self) -> Option<Time> {
        self.ready_changed_at().filter(|_| self.is_ready())
    }

    /// Whether it has been ready for that many seconds, or when it will have been.
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

    /// Whether it has been ready for that many seconds.
    #[must_use]
    pub fn is_available(&self, min_ready_seconds: i32, now: Time) -> bool {
        self.availability(min_ready_seconds, now) == Availability::Now
    }
}
