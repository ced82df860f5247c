//! A Job and its pods in a rehearsal cluster, and the transcript of one reconcile.

use keleustes_objects::{ApiError, ErrorReason, Job, Key, Kind, Pod, Time};
use keleustes_plan::Controller;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::super::{JobOptions, TRACKING_FINALIZER, controller};

/// The time of all tests, in Unix seconds.
pub(super) const NOW: i64 = 1_800_000_000;

pub(super) struct JobFixture {
    pub(super) controller: Controller,
    pub(super) cluster: RehearsalCluster,
}

/// The requests, events and measurements of one reconcile.
pub(super) struct Transcript(pub(super) String);

/// A Job with these overrides of the defaults.
pub(super) fn job(overrides: &Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "j", "namespace": "a", "uid": "j-1", "generation": 1, "resourceVersion": "7"},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "selector": {"matchLabels": {"job": "j"}},
            "template": {"metadata": {"labels": {"job": "j"}},
                         "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
        },
    });
    merge(&mut job, overrides);
    job
}

/// A pod of the Job, in a phase, with these overrides of the defaults.
pub(super) fn pod(name: &str, phase: &str, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("{name}-1"), "resourceVersion": "3",
            "creationTimestamp": at(-1000), "labels": {"job": "j"}, "finalizers": [TRACKING_FINALIZER],
            "ownerReferences": [owner()],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {"phase": phase},
    });
    merge(&mut pod, more);
    pod
}

/// The controllerRef to the Job.
pub(super) fn owner() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true,
           "blockOwnerDeletion": true})
}

/// A timestamp, in seconds from now.
pub(super) fn at(seconds: i64) -> String {
    Time::from_unix_seconds(NOW + seconds).to_string()
}

/// A pod of an Indexed Job.
pub(super) fn indexed(name: &str, phase: &str, index: &str, more: &Value) -> Value {
    let mut pod = pod(name, phase, more);
    pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(index);
    pod
}

/// The status of a terminated container.
pub(super) fn terminated(code: i32, seconds: i64) -> Value {
    json!({"status": {"containerStatuses": [
        {"name": "c", "state": {"terminated": {"exitCode": code, "finishedAt": at(seconds)}}}]}})
}

/// An Indexed Job.
pub(super) fn indexed_spec(completions: i32, more: &Value) -> Value {
    let mut job = job(&json!({"spec": {"completionMode": "Indexed", "completions": completions,
                                       "parallelism": completions}}));
    merge(&mut job, more);
    job
}

pub(super) fn merge(base: &mut Value, more: &Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more.clone(),
    }
}

impl JobFixture {
    pub(super) fn of(job: Value) -> Self {
        Self::with_options(&JobOptions::default(), job)
    }

    pub(super) fn with_options(options: &JobOptions, job: Value) -> Self {
        let controller = controller(options);
        let cluster = RehearsalCluster::of(&controller.loops[0]).with::<Job>(job);
        Self { controller, cluster }
    }

    pub(super) fn pods(mut self, pods: impl IntoIterator<Item = Value>) -> Self {
        for pod in pods {
            self.cluster = self.cluster.with::<Pod>(pod);
        }
        self
    }

    /// Makes requests for a pod fail.
    pub(super) fn failing(mut self, verb: &str, name: &str, reason: ErrorReason) -> Self {
        let failure = ApiError::transport(reason, "refused");
        self.cluster = self.cluster.failing::<Pod>(verb, &Key::namespaced("a", name), failure);
        self
    }

    /// Makes requests for the Job fail, all or the first `times` of them.
    pub(super) fn failing_job(mut self, verb: &str, reason: ErrorReason, times: Option<u32>) -> Self {
        let path = Job::RESOURCE.object_path(&Key::namespaced("a", "j"));
        self.cluster = self.cluster.failing_at(verb, &path, ApiError::transport(reason, "refused"), times);
        self
    }

    pub(super) fn reconcile(&mut self) -> Transcript {
        Transcript(self.cluster.reconcile(&self.controller.loops[0], Key::namespaced("a", "j")))
    }

    /// Changes the Job in the cluster.
    pub(super) fn change_job(&mut self, mut job: Value) {
        let old = self.cluster.view().get::<Job>(&Key::namespaced("a", "j")).cloned();
        let old = old.map_or(7, |old| old.meta.resource_version.to_string().parse().unwrap_or(7));
        job["metadata"]["resourceVersion"] = json!((old + 1).to_string());
        self.cluster.put::<Job>(&self.controller.loops[0], job);
    }
}

impl Transcript {
    fn lines<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter(move |line| line.starts_with(prefix))
    }

    fn bodies(&self, prefix: &str) -> Vec<Value> {
        let body = |line: &str| line.split_once(": {").map(|(_, rest)| format!("{{{rest}"));
        self.lines(prefix).filter_map(body).map(|text| serde_json::from_str(&text).unwrap()).collect()
    }

    fn names<'a>(&'a self, prefix: &'a str) -> Vec<&'a str> {
        self.lines(prefix).map(|line| line.split(' ').nth(2).unwrap().trim_start_matches("a/")).collect()
    }

    /// The statuses that were written, in order.
    pub(super) fn statuses(&self) -> Vec<Value> {
        self.bodies("put jobs.batch/status").into_iter().map(|mut body| body["status"].take()).collect()
    }

    /// The last status that was written.
    pub(super) fn status(&self) -> Value {
        self.statuses().pop().unwrap_or_else(|| panic!("no status was written: {}", self.0))
    }

    /// The pods that were created.
    pub(super) fn created(&self) -> Vec<Value> {
        self.bodies("create pods")
    }

    /// The pods that were deleted.
    pub(super) fn deleted(&self) -> Vec<&str> {
        self.names("delete pods")
    }

    /// The pods that were patched, also without success.
    pub(super) fn patched(&self) -> Vec<&str> {
        self.names("patch pods")
    }

    /// The recorded events.
    pub(super) fn events(&self) -> Vec<&str> {
        self.lines("event ").map(|line| line.trim_start_matches("event ")).collect()
    }

    /// The measurements of a metric: labels and value.
    pub(super) fn measured(&self, metric: &str) -> Vec<&str> {
        let prefix = format!("measure job_controller_{metric}");
        let own: Vec<&str> = self.0.lines().filter(|line| line.starts_with(&prefix)).collect();
        own.into_iter().map(|line| line.split_once('{').unwrap().1).collect()
    }

    /// The verbs, resources and names of all requests, in order.
    pub(super) fn requests(&self) -> Vec<String> {
        let words = |line: &str| line.split(' ').take(3).collect::<Vec<_>>().join(" ");
        let is_request = |line: &&str| {
            !["event", "measure", "requeue", "retry"].contains(&line.split([' ', ':']).next().unwrap())
        };
        self.0.lines().filter(is_request).map(words).collect()
    }

    /// The conditions of the last status: type, status, reason.
    pub(super) fn conditions(&self) -> Vec<String> {
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let status = self.status();
        let list = status["conditions"].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|condition| {
                format!(
                    "{}={} {}",
                    text(condition, "type"),
                    text(condition, "status"),
                    text(condition, "reason")
                )
            })
            .collect()
    }

    pub(super) fn requeue_after(&self) -> Option<&str> {
        self.lines("requeue after ").next().map(|line| line.trim_start_matches("requeue after "))
    }

    pub(super) fn is_retried(&self) -> bool {
        self.lines("retry: ").next().is_some()
    }
}
