//! How soon a status must be known.

use keleustes_plan::{Applied, Outcome, StatusUrgency};

/// What is new about a status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusChange {
    /// Somebody waits for it: what was asked for is reached, or is known to be asked for, or is in trouble.
    pub(crate) is_milestone: bool,
    /// The turn has made or deleted pods, or asked for more or fewer, so that the counts are old already.
    pub(crate) is_superseded: bool,
}

/// Whether a plan has changed anything. What was refused in a way that is as good as success has not, and nothing
/// will be seen of it.
pub(crate) fn changed_anything(applied: &Applied) -> bool {
    applied.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Done { name, .. } if !name.is_empty()))
}

impl StatusChange {
    /// How soon it must be known. Counts on the way to a goal are for people who look on; of a thousand pods that
    /// come up they need not be told one by one.
    pub(crate) fn status_urgency(self) -> StatusUrgency {
        match self {
            Self { is_milestone: true, .. } => StatusUrgency::Immediate,
            Self { is_superseded: true, .. } => StatusUrgency::Superseded,
            Self { .. } => StatusUrgency::Coalesce,
        }
    }
}
