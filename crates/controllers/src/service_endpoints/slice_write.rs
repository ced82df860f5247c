//! A write of an EndpointSlice, and its result.

use keleustes_objects::{EndpointSlice, ErrorReason, Key, Kind as _, Uid};
use keleustes_plan::{Applied, Context, Outcome, Plan, ReconcileError, Write};

use super::own_writes::{OwnWrite, is_observed};

/// One write and its error text.
pub(crate) struct SliceWrite {
    pub(crate) operation: Operation,
    pub(crate) write: Write,
    /// The error text prefix if it fails.
    pub(crate) error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// The value of the `operation` label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A write that succeeded.
pub(crate) struct WrittenSlice {
    pub(crate) operation: Operation,
    /// The slice and what was written, unless the cache shows it already.
    pub(crate) unobserved: Option<(Uid, OwnWrite)>,
}

/// Why a write did not succeed.
pub(crate) enum SliceWriteError {
    /// The namespace is terminating, so that further writes are pointless.
    NamespaceTerminating,
    /// An error to retry.
    Retry(ReconcileError),
}

impl SliceWrite {
    /// Sends the write. The owner, such as `Service a/web`, is part of the error text.
    pub(crate) async fn send(
        self,
        cx: &mut Context<'_>,
        owner: &str,
    ) -> Result<WrittenSlice, SliceWriteError> {
        let Self { operation, write, error } = self;
        let target = write.target.clone();
        let Applied { mut outcomes, error: retry } = cx.apply(Plan::of(write)).await;
        let why = match outcomes.pop() {
            Some(Outcome::Done { resource_version: version, uid, name, .. }) => {
                let namespace = target.key.namespace.clone();
                let (slice, uid, written) = match operation {
                    Operation::Create => (Key { namespace, name }, uid, OwnWrite::Version(version)),
                    Operation::Update => (target.key, target.uid, OwnWrite::Version(version)),
                    Operation::Delete => (target.key, target.uid, OwnWrite::Deleted),
                };
                let is_seen = cx.gather(|view| is_observed(view, &slice, &uid, &written));
                return Ok(WrittenSlice { operation, unobserved: (!is_seen).then_some((uid, written)) });
            }
            Some(Outcome::Failed(failure)) => {
                let is_create = operation == Operation::Create;
                if is_create && failure.reason == ErrorReason::NamespaceTerminating {
                    return Err(SliceWriteError::NamespaceTerminating);
                }
                failure.to_string()
            }
            // Another client deleted the slice; the next reconcile places its endpoints again.
            Some(Outcome::Unneeded) => format!("{} {:?} not found", EndpointSlice::RESOURCE, target.key.name),
            Some(Outcome::NotSent) | None => {
                retry.as_ref().map_or_else(String::new, |retry| retry.because.clone())
            }
        };
        let because = format!("{error} for {owner}: {why}");
        Err(SliceWriteError::Retry(match retry {
            Some(retry) => ReconcileError { because, ..retry },
            None => ReconcileError::because(because),
        }))
    }
}
