//! Combines the proposals of all metrics: the largest wins, and a failed metric stops scaling down.
//!
//! Parity: pkg/controller/podautoscaler/horizontal.go, computeReplicasForMetrics.

use keleustes_objects::MetricStatus;

use super::proposal::{MetricFailure, Proposal};

/// An error of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyncError {
    pub(super) message: String,
    /// Whether the spec is at fault, and not a server.
    pub(super) is_spec: bool,
}

impl SyncError {
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_spec: false }
    }
}

/// What all metrics together propose.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Combined {
    /// The last values, in the order of the spec.
    pub(super) statuses: Vec<MetricStatus>,
    /// The largest proposal and the name of its metric; or the metric that keeps the target from being scaled.
    pub(super) best: Result<(i32, String), Option<MetricFailure>>,
    /// The error of failed metrics, also if the others are enough.
    pub(super) error: Option<SyncError>,
}

/// Combines the proposals, in the order of the spec.
pub(super) fn combine(proposals: Vec<Result<Proposal, MetricFailure>>, current: i32) -> Combined {
    let (mut replicas, mut name) = (0, String::new());
    let (mut failures, mut first_failure) = (0, None);
    let (mut statuses, all) = (Vec::new(), proposals.len());
    for proposal in proposals {
        match proposal {
            Ok(proposal) => {
                statuses.push(proposal.status);
                // While the best one is zero the next one replaces it, even if it is not larger. Parity: the original
                // uses zero for "none yet", which shows in messages.
                if replicas == 0 || proposal.replicas > replicas {
                    (replicas, name) = (proposal.replicas, proposal.name);
                }
            }
            Err(failure) => {
                statuses.push(MetricStatus::default());
                failures += 1;
                first_failure.get_or_insert(failure);
            }
        }
    }
    let error = first_failure.as_ref().map(|first: &MetricFailure| SyncError {
        message: format!(
            "invalid metrics ({failures} invalid out of {all}), first error is: {}",
            first.error
        ),
        is_spec: first.is_spec,
    });
    let is_stuck = failures >= all || (failures > 0 && replicas < current);
    let best = if is_stuck { Err(first_failure) } else { Ok((replicas, name)) };
    // The API server sets a default metric, so that only a foreign one could send none.
    let error =
        error.or_else(|| is_stuck.then(|| SyncError::internal("no metrics to compute replicas from")));
    Combined { statuses, best, error }
}
