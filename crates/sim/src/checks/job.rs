//! Jobs: never more pods than may run at once, every pod that succeeded is counted exactly once, and in the end every Job that is not held has ended.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{
    active, controller, count, disowned, holds, named, number, pod_made_for, pods_of, status, uid,
};
use crate::witness::{Effect, text};

/// Where a pod says which of an indexed Job it is.
const INDEX: &str = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";

/// Counts along.
#[derive(Default)]
pub struct Jobs {
    /// By uid of the Job: the pods that were seen to succeed, and their indexes.
    succeeded: BTreeMap<String, BTreeSet<(String, String)>>,
    /// By uid of the Job: creates whose outcome its controller never learnt, which it may repeat.
    unknown: BTreeMap<String, i64>,
    /// By uid: how often users took a pod. One that is adopted again is counted again; the original does the same.
    taken: BTreeMap<String, i64>,
    /// By uid: the most pods that were to run at once at any time.
    most: BTreeMap<String, i64>,
}

impl Checker for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if let Some(owner) = pod_made_for(effect, &["Job"]) {
            return self.made(owner, effect, server);
        }
        if effect.route.resource == "jobs" {
            [&effect.before, &effect.after].into_iter().flatten().for_each(|job| self.see(job));
        }
        if let Some(owner) = effect.before.as_deref().and_then(controller).filter(|_| disowned(effect)) {
            *self.taken.entry(text(owner, "/uid").to_owned()).or_default() += 1;
        }
        let Some(after) = &effect.after else { return Ok(()) };
        match effect.route.resource.as_str() {
            "pods" if text(after, "/status/phase") == "Succeeded" => {
                if let Some(owner) = controller(after).filter(|owner| owner["kind"] == "Job") {
                    let pod = (uid(after).to_owned(), text(after, INDEX).to_owned());
                    self.succeeded.entry(text(owner, "/uid").to_owned()).or_default().insert(pod);
                }
                Ok(())
            }
            "jobs" => {
                let taken = self.taken.get(uid(after)).copied().unwrap_or_default();
                let (told, seen) = (number(after, "/status/succeeded"), self.seen(after) + taken);
                if told > seen {
                    Err(format!("{told} succeeded pods were told, {seen} were seen"))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("jobs.batch").iter().try_for_each(|job| {
            let ended = holds(job, "Complete") || holds(job, "Failed");
            let pods = pods_of(server, uid(job));
            status(job, "active", count(&pods, active))?;
            let stands = job.pointer("/spec/suspend") == Some(&Value::Bool(true))
                || number(job, "/spec/parallelism") == 0;
            if !ended && !stands {
                return Err(format!("{} has not ended", named(job)));
            }
            if holds(job, "Complete") {
                let wanted = number(job, "/spec/completions");
                if number(job, "/status/succeeded") < wanted {
                    return Err(format!("{} is complete without its completions", named(job)));
                }
            }
            let counted = pods.iter().all(|pod| active(pod) || !tracked(pod));
            if counted {
                Ok(())
            } else {
                Err(format!("{}: a pod that ended still waits to be counted", named(job)))
            }
        })
    }
}

impl Jobs {
    fn see(&mut self, job: &Value) {
        let most = self.most.entry(uid(job).to_owned()).or_default();
        *most = (*most).max(number(job, "/spec/parallelism"));
    }

    /// No more pods run than were ever to run at once, and of an index only one.
    fn made(&mut self, owner: &str, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if effect.lost {
            *self.unknown.entry(owner.to_owned()).or_default() += 1;
        }
        server.objects("jobs.batch").iter().for_each(|job| self.see(job));
        let unknown = self.unknown.get(owner).copied().unwrap_or_default();
        let pods = pods_of(server, owner);
        let (there, most) = (count(&pods, active), self.most.get(owner).copied().unwrap_or_default());
        if there > most + unknown {
            return Err(format!("{there} pods where {most} and {unknown} more were wanted at most"));
        }
        let index = text(&effect.body, INDEX);
        let same = count(&pods, |pod| active(pod) && !index.is_empty() && text(pod, INDEX) == index);
        if same > 1 + unknown { Err(format!("{same} pods of index {index}")) } else { Ok(()) }
    }

    /// How many successes there are to be told: one for each pod, or one for each index.
    fn seen(&self, job: &Value) -> i64 {
        let seen = self.succeeded.get(uid(job)).into_iter().flatten();
        let count = if text(job, "/spec/completionMode") == "Indexed" {
            seen.map(|(_, index)| index).collect::<BTreeSet<_>>().len()
        } else {
            seen.count()
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

fn tracked(pod: &Value) -> bool {
    let finalizers = pod.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|finalizer| finalizer == "batch.kubernetes.io/job-tracking")
}
