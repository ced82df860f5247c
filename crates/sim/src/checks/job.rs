//! Jobs: never more active pods than parallelism allows, every succeeded pod is counted exactly once, and
//! in the end every Job that is neither suspended nor at parallelism 0 has finished.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{
    condition_is_true, controller_ref, count, describe, expect_status, is_active, namespace, number,
    pod_created_for, pods_of, released_by_user, uid,
};
use crate::recorder::{ObservedWrite, text};

/// The annotation with the completion index of a pod.
const INDEX: &str = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";

/// Counts pods independently of the controller.
#[derive(Default)]
pub struct Jobs {
    /// By UID of the Job: the pods that succeeded, and their indexes.
    succeeded: BTreeMap<String, BTreeSet<(String, String)>>,
    /// By UID of the Job: creates whose result its controller never received, and which it may repeat.
    unconfirmed_creates: BTreeMap<String, i64>,
    /// By UID of the Job: how often users removed the owner references of one of its pods. A pod that is
    /// adopted again is counted again; the original does the same.
    released: BTreeMap<String, i64>,
    /// By UID of the Job: the highest parallelism it ever had.
    max_wanted: BTreeMap<String, i64>,
}

impl Checker for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if let Some(owner) = pod_created_for(write, &["Job"]) {
            return self.check_pod_created(owner, write, server);
        }
        if write.request.resource == "jobs" {
            [&write.before, &write.after].into_iter().flatten().for_each(|job| self.observe(job));
        }
        if let Some(owner) =
            write.before.as_deref().and_then(controller_ref).filter(|_| released_by_user(write))
        {
            *self.released.entry(text(owner, "/uid").to_owned()).or_default() += 1;
        }
        let Some(after) = &write.after else { return Ok(()) };
        match write.request.resource.as_str() {
            "pods" if text(after, "/status/phase") == "Succeeded" => {
                let is_own = |owner: &&Value| {
                    let job = server.object("jobs.batch", namespace(after), text(owner, "/name"));
                    owner["kind"] == "Job" && job.is_some_and(|job| uid(&job) == text(owner, "/uid"))
                };
                if let Some(owner) = controller_ref(after).filter(is_own) {
                    let pod = (uid(after).to_owned(), text(after, INDEX).to_owned());
                    self.succeeded.entry(text(owner, "/uid").to_owned()).or_default().insert(pod);
                }
                Ok(())
            }
            "jobs" => {
                let released = self.released.get(uid(after)).copied().unwrap_or_default();
                let (reported, observed) =
                    (number(after, "/status/succeeded"), self.observed(after) + released);
                if reported > observed {
                    Err(format!("{reported} succeeded pods are in the status, {observed} were observed"))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("jobs.batch").iter().try_for_each(|job| {
            let ended = condition_is_true(job, "Complete") || condition_is_true(job, "Failed");
            let pods = pods_of(server, namespace(job), uid(job));
            expect_status(job, "active", count(&pods, is_active))?;
            let is_held = job.pointer("/spec/suspend") == Some(&Value::Bool(true))
                || number(job, "/spec/parallelism") == 0;
            if !ended && !is_held {
                return Err(format!("{} has not finished", describe(job)));
            }
            if condition_is_true(job, "Complete") {
                let wanted = number(job, "/spec/completions");
                if number(job, "/status/succeeded") < wanted {
                    return Err(format!("{} is complete without its completions", describe(job)));
                }
            }
            let all_counted = pods.iter().all(|pod| is_active(pod) || !has_tracking_finalizer(pod));
            if all_counted {
                Ok(())
            } else {
                Err(format!("{}: a finished pod still has its tracking finalizer", describe(job)))
            }
        })
    }
}

impl Jobs {
    fn observe(&mut self, job: &Value) {
        let max_wanted = self.max_wanted.entry(uid(job).to_owned()).or_default();
        *max_wanted = (*max_wanted).max(number(job, "/spec/parallelism"));
    }

    /// No more pods are active than the highest parallelism, and only one of each index.
    fn check_pod_created(
        &mut self,
        owner: &str,
        write: &ObservedWrite,
        server: &ApiServer,
    ) -> Result<(), String> {
        if write.response_lost {
            *self.unconfirmed_creates.entry(owner.to_owned()).or_default() += 1;
        }
        server.objects("jobs.batch").iter().for_each(|job| self.observe(job));
        let unconfirmed_creates = self.unconfirmed_creates.get(owner).copied().unwrap_or_default();
        let pods = pods_of(server, &write.request.namespace, owner);
        let (there, max_wanted) =
            (count(&pods, is_active), self.max_wanted.get(owner).copied().unwrap_or_default());
        if there > max_wanted + unconfirmed_creates {
            return Err(format!(
                "{there} pods, more than the parallelism of {max_wanted} and {unconfirmed_creates} unconfirmed creates"
            ));
        }
        let index = text(&write.body, INDEX);
        let of_same_index =
            count(&pods, |pod| is_active(pod) && !index.is_empty() && text(pod, INDEX) == index);
        if of_same_index > 1 + unconfirmed_creates {
            Err(format!("{of_same_index} pods of index {index}"))
        } else {
            Ok(())
        }
    }

    /// How many successes the status may report: one for each pod, or one for each index.
    fn observed(&self, job: &Value) -> i64 {
        let observed = self.succeeded.get(uid(job)).into_iter().flatten();
        let count = if text(job, "/spec/completionMode") == "Indexed" {
            observed.map(|(_, index)| index).collect::<BTreeSet<_>>().len()
        } else {
            observed.count()
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

fn has_tracking_finalizer(pod: &Value) -> bool {
    let finalizers = pod.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|finalizer| finalizer == "batch.kubernetes.io/job-tracking")
}
