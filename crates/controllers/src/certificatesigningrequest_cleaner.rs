//! Deletes CertificateSigningRequests that are denied, failed, issued or pending for too long, or whose certificate
//! has expired.
//!
//! There is one item: a pass over all requests, requeued an hour after it ended.
//!
//! Parity: pkg/controller/certificates/cleaner/cleaner.go.

use std::time::Duration;

use keleustes_objects::{CertificateSigningRequest, Time};
use keleustes_plan::{Controller, Grant, Loop, NEXT_PASS, Now, OnFailure, Pass, Plan, View, Write};

/// Delay from the end of one pass to the start of the next.
const POLLING_INTERVAL: Duration = Duration::from_secs(3600);
/// How long an issued request is kept after its approval, and a denied or failed one after that.
const FINISHED_EXPIRATION: Duration = Duration::from_secs(3600);
/// How long a request without conditions is kept, and an approved one that is not issued.
const PENDING_EXPIRATION: Duration = Duration::from_secs(24 * 3600);

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Builds the controller. It shares its service account with the approving and the signing controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("certificatesigningrequest-cleaner-controller")
        .service_account("certificate-controller")
        .may_write(&[Grant {
            group: "certificates.k8s.io",
            resource: "certificatesigningrequests",
            verbs: &["delete", "get", "list", "watch"],
        }])
        .with_loop(
            Loop::deciding("certificatesigningrequest_cleaner", decide)
                .reads::<CertificateSigningRequest>()
                .initial_item(Pass),
        )
}

fn decide(view: &View<'_>, _: &Pass) -> Plan {
    let now = view.now();
    let obsolete = view.all::<CertificateSigningRequest>().filter_map(|request| {
        let because = obsolete_because(request, now)?;
        Some(Write::delete(&**request).on_failure(OnFailure::LogOnly).because(because))
    });
    let mut plan = Plan::none();
    plan.push_parallel(obsolete.collect());
    plan.requeue_after(POLLING_INTERVAL, NEXT_PASS);
    plan
}

/// Why a request is to be deleted, if it is.
fn obsolete_because(request: &CertificateSigningRequest, now: Now) -> Option<&'static str> {
    let has = |wanted: &str| request.conditions.iter().any(|condition| condition.r#type == wanted);
    let has_old = |wanted: &str, age: Duration| {
        let mut of_type = request.conditions.iter().filter(|condition| condition.r#type == wanted);
        of_type.any(|condition| is_older_than(condition.last_update_time, age, now))
    };
    if request.is_issued && has_old(APPROVED, FINISHED_EXPIRATION) {
        return Some("it was issued and approved more than an hour ago");
    }
    if has_old(DENIED, FINISHED_EXPIRATION) {
        return Some("it was denied more than an hour ago");
    }
    if has_old(FAILED, FINISHED_EXPIRATION) {
        return Some("it failed more than an hour ago");
    }
    if request.conditions.is_empty()
        && is_older_than(request.meta.creation_timestamp, PENDING_EXPIRATION, now)
    {
        return Some("it has been pending for more than 24 hours");
    }
    let is_expired = request.not_after.is_some_and(|time| now.wall_nanoseconds() > nanoseconds(time));
    if has(APPROVED) && is_expired {
        return Some("its certificate has expired");
    }
    let is_unissued = !request.is_issued && has_old(APPROVED, PENDING_EXPIRATION);
    is_unissued.then_some("it was approved more than 24 hours ago and is not issued")
}

/// Whether a timestamp is set and was longer ago than this.
fn is_older_than(time: Option<Time>, age: Duration, now: Now) -> bool {
    let age = i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
    time.is_some_and(|time| now.wall_nanoseconds() - nanoseconds(time) > age)
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.unix_seconds()) * 1_000_000_000
}

#[cfg(test)]
mod tests;
