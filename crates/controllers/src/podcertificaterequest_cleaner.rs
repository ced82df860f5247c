//! Deletes PodCertificateRequests that are at least 15 minutes old.
//!
//! There is one item: a pass over all requests, requeued five minutes after it ended. An API server that does not serve
//! the kind only keeps this controller from starting.
//!
//! Parity: pkg/controller/certificates/cleaner/pcrcleaner.go.

use std::time::Duration;

use keleustes_objects::{ErrorReason, PodCertificateRequest};
use keleustes_plan::{Controller, Grant, Loop, NEXT_PASS, Now, OnFailure, Pass, Plan, View, Write};

/// Delay from the end of one pass to the start of the next.
const POLLING_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The age at which a request is deleted.
const THRESHOLD_SECONDS: i64 = 15 * 60;

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("podcertificaterequest-cleaner-controller")
        .service_account("podcertificaterequestcleaner")
        .may_write(&[Grant {
            group: "certificates.k8s.io",
            resource: "podcertificaterequests",
            verbs: &["delete", "get", "list", "watch"],
        }])
        .with_loop(
            Loop::deciding("podcertificaterequest_cleaner", decide)
                .reads::<PodCertificateRequest>()
                .initial_item(Pass),
        )
}

fn decide(view: &View<'_>, _: &Pass) -> Plan {
    let now = view.now();
    let old = view.all::<PodCertificateRequest>().filter(|request| is_old(request, now)).map(|request| {
        Write::delete(&**request)
            .ignoring_errors(&[ErrorReason::NotFound])
            .on_failure(OnFailure::LogOnly)
            .because("it is at least 15 minutes old")
    });
    let mut plan = Plan::none();
    plan.push_parallel(old.collect());
    plan.requeue_after(POLLING_INTERVAL, NEXT_PASS);
    plan
}

/// Whether a request has reached the threshold. One without creationTimestamp counts as infinitely old, as a zero time
/// does in Go.
fn is_old(request: &PodCertificateRequest, now: Now) -> bool {
    request.meta.creation_timestamp.is_none_or(|created| now.wall >= created.plus_seconds(THRESHOLD_SECONDS))
}

#[cfg(test)]
mod tests;
