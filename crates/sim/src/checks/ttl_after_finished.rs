//! Finished Jobs are deleted when their TTL is over, not earlier, and no others.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::cronjob::{SLACK_SECONDS, time, wall_seconds};
use super::objects::{describe, is_terminating, uid};
use crate::recorder::{LiveRead, ObservedWrite, text};

const COMPONENT: &str = "ttl-after-finished-controller";

/// Compares deletions with the live read before each.
#[derive(Default)]
pub struct FinishedJobs {
    /// The time of the last write, since the start of the storm.
    now: Duration,
    /// By process instance and UID of a Job: what the controller last read live.
    read: BTreeMap<(u32, String), LiveJob>,
    /// Whether the clock of a manager has jumped. It sets the time at which Jobs finish and decides when a TTL is over.
    has_clock_jumped: bool,
}

struct LiveJob {
    /// When it expires, in seconds since 1970; `None` if it has no TTL or is not finished.
    expires_at: Option<i64>,
}

fn expires_at(job: &Value) -> Option<i64> {
    let ttl = job.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64)?;
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array)?;
    let finish = conditions.iter().find(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && condition["status"] == "True"
    })?;
    Some(time(finish, "/lastTransitionTime")? + ttl)
}

impl Checker for FinishedJobs {
    fn name(&self) -> &'static str {
        COMPONENT
    }

    fn on_live_read(&mut self, read: &LiveRead<'_>) {
        if let Some(job) = read.found.filter(|found| read.component == COMPONENT && found["kind"] == "Job") {
            let key = (read.process_instance, uid(job).to_owned());
            self.read.insert(key, LiveJob { expires_at: expires_at(job) });
        }
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        self.now = self.now.max(write.at);
        let deletes = write.component == COMPONENT && write.request.method == Method::DELETE;
        let Some(job) =
            write.before.as_deref().filter(|_| deletes && write.by_manager() && write.succeeded())
        else {
            return Ok(());
        };
        let Some(read) = self.read.get(&(write.process_instance, uid(job).to_owned())) else {
            return Err(format!("{} is deleted without a live read", describe(job)));
        };
        match read.expires_at {
            None => Err(format!("{} is deleted and has no TTL or is not finished", describe(job))),
            Some(expires_at) if expires_at > wall_seconds(write.at) && !self.has_clock_jumped => {
                let early = expires_at - wall_seconds(write.at);
                Err(format!("{} is deleted {early} s before its TTL is over", describe(job)))
            }
            Some(_) => Ok(()),
        }
    }

    fn on_clock_jump(&mut self) {
        self.has_clock_jumped = true;
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let now = wall_seconds(self.now);
        let jobs = server.objects("jobs.batch");
        let is_late = |job: &Value| expires_at(job).is_some_and(|at| at + SLACK_SECONDS < now);
        match jobs.iter().find(|job| is_late(job) && !is_terminating(job)) {
            Some(job) => Err(format!("{} has outlived its TTL", describe(job))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// A Job that finishes with the storm's start, or does not finish.
    fn job(spec: &Value, status: &str) -> Value {
        let conditions =
            json!([{"type": "Complete", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        json!({"kind": "Job", "metadata": {"namespace": "default", "name": "oar", "uid": "u"},
            "spec": spec, "status": {"conditions": conditions}})
    }

    fn deletion(at_seconds: u64, job: &Value) -> ObservedWrite {
        let path = "/apis/batch/v1/namespaces/default/jobs/oar";
        ObservedWrite {
            at: Duration::from_secs(at_seconds),
            before: Some(Arc::new(job.clone())),
            ..ObservedWrite::of_manager(COMPONENT, &Method::DELETE, path)
        }
    }

    #[test]
    fn deletion_that_the_live_job_does_not_permit_is_reported() {
        let server = ApiServer::builder().build();
        let check = |at_seconds: u64, read: &Value, jumps: bool| {
            let mut checker = FinishedJobs::default();
            if jumps {
                checker.on_clock_jump();
            }
            checker.on_live_read(&LiveRead {
                at: Duration::from_secs(1),
                process_instance: 1,
                component: COMPONENT,
                request: &deletion(0, read).request,
                found: Some(read),
            });
            checker.on_write(&deletion(at_seconds, &job(&json!({}), "True")), &server)
        };
        let finished = job(&json!({"ttlSecondsAfterFinished": 5}), "True");
        assert_eq!(check(5, &finished, false), Ok(()), "the TTL was removed after the read");
        let error = Err("Job default/oar is deleted 1 s before its TTL is over".to_owned());
        assert_eq!(check(4, &finished, false), error);
        assert_eq!(check(4, &finished, true), Ok(()), "the clock of the manager may be ahead");
        let error = Err("Job default/oar is deleted and has no TTL or is not finished".to_owned());
        assert_eq!(check(5, &job(&json!({"ttlSecondsAfterFinished": 5}), "False"), false), error);
        assert_eq!(check(5, &job(&json!({}), "True"), false), error);
        let unread = FinishedJobs::default().on_write(&deletion(5, &finished), &server);
        assert_eq!(unread, Err("Job default/oar is deleted without a live read".to_owned()));
    }
}
