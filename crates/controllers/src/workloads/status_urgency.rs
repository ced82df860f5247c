//! How soon a status write is sent.

use keleustes_plan::{Applied, Outcome, StatusUrgency};

/// What a new status changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusChange {
    /// A user or a controller waits for it: the goal is reached, the generation is observed, or an error is
    /// reported.
    pub(crate) is_milestone: bool,
    /// A count of ready, available or existing pods decreases: a client that reads the old counts would rely on
    /// pods that are lost.
    pub(crate) is_loss: bool,
    /// The reconcile has created or deleted pods or resized a ReplicaSet, so the counts are already outdated.
    pub(crate) is_superseded: bool,
}

/// Whether a plan has changed anything. A write whose error was ignored has changed nothing, and no watch
/// event follows from it.
pub(crate) fn changed_anything(applied: &Applied) -> bool {
    applied.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Done { name, .. } if !name.is_empty()))
}

/// Whether any count is lower than before.
pub(crate) fn any_decreased<const N: usize>(old: [i32; N], new: [i32; N]) -> bool {
    old.iter().zip(&new).any(|(old, new)| new < old)
}

impl StatusChange {
    /// How soon the status is written. Only progress towards the goal is coalesced: of a thousand pods that start,
    /// not every one needs a status write.
    pub(crate) fn status_urgency(self) -> StatusUrgency {
        match self {
            Self { is_milestone: true, .. } | Self { is_loss: true, .. } => StatusUrgency::Immediate,
            Self { is_superseded: true, .. } => StatusUrgency::Superseded,
            Self { .. } => StatusUrgency::Coalesce,
        }
    }
}
