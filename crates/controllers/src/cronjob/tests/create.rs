//! The creation of a Job and the write of the status.

use std::time::Duration;

use super::*;

const PATH: &str = "/apis/batch/v1/namespaces/a/jobs/sum-30000000";
const CREATE: &str = "create jobs.batch a/sum-30000000 because a scheduled time is due";

fn due() -> Value {
    minutely(|_| {})
}

/// The body of the Job that is created.
fn created(cron_job: Value) -> Value {
    let mut bodies = cluster(cron_job, &[]).bodies(&the_loop(), key("sum"), "create jobs.batch ");
    assert_eq!(bodies.len(), 1);
    bodies.remove(0).1
}

/// Proves CRON-42, CRON-90, CRON-109.
#[test]
fn job_is_named_after_the_minute() {
    assert_eq!(created(due())["metadata"]["name"], "sum-30000000");
    let mut every = cron_job("@every 20s");
    every["status"]["lastScheduleTime"] = json!(at(20));
    let mut within = cluster(every.clone(), &[]);
    within.set_wall_clock(Time::from_unix_seconds(NOW + 40), 0);
    assert!(outline(&mut within).contains(&creates("sum-30000000", 0)), "the same minute, the same name");
    every["status"]["active"] = json!([entry("sum-30000000")]);
    let mut listed = cluster(every, &[job("sum-30000000", &[])]);
    listed.set_wall_clock(Time::from_unix_seconds(NOW + 40), 0);
    assert_eq!(outline(&mut listed), "requeue after 20.1s\n", "already done");
    let long = minutely(|cron_job| cron_job["metadata"]["name"] = json!("n".repeat(60)));
    let mut cluster = RehearsalCluster::of(&the_loop()).with::<CronJob>(long);
    let transcript = cluster.outline(&the_loop(), key(&"n".repeat(60)));
    assert!(transcript.contains(&format!("create jobs.batch a/{}-30000000", "n".repeat(60))), "{transcript}");
}

/// Proves CRON-43, CRON-66, CRON-101.
#[test]
fn job_is_made_from_the_template() {
    let spec =
        json!({"podFailurePolicy": {"rules": []}, "managedBy": "example.com/x", "comes": {"later": [1]}});
    let templated = minutely(|cron_job| {
        cron_job["spec"]["timeZone"] = json!("Asia/Tokyo");
        cron_job["spec"]["jobTemplate"] = json!({
            "metadata": {"name": "not-this", "labels": {"app": "sum"}, "finalizers": ["not/this"],
                         "ownerReferences": [{"name": "not-this"}],
                         "annotations": {"kept": "1", "batch.kubernetes.io/cronjob-scheduled-timestamp": "not this"}},
            "spec": spec,
        });
    });
    let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "sum", "uid": "c1", "controller": true,
                       "blockOwnerDeletion": true});
    let wanted = json!({
        "metadata": {
            "name": "sum-30000000", "namespace": "a", "labels": {"app": "sum"}, "ownerReferences": [owner],
            "creationTimestamp": at(0),
            "annotations": {"kept": "1",
                            "batch.kubernetes.io/cronjob-scheduled-timestamp": "2027-01-15T17:00:00+09:00"},
        },
        "spec": spec,
    });
    assert_eq!(created(templated), wanted);
    let stamp = |cron_job: Value| {
        created(cron_job)["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
            .clone()
    };
    assert_eq!(stamp(due()), "2027-01-15T08:00:00Z");
    assert_eq!(stamp(cron_job("TZ=Asia/Tokyo * * * * *")), "2027-01-15T08:00:00Z");
}

/// Proves REV-76.
#[test]
fn a_field_of_a_newer_api_server_starts_and_replaces_no_job() {
    let newer = |mut cron_job: Value| {
        cron_job["spec"]["jobTemplate"]["invented"] = json!({"by": "default"});
        cron_job["spec"]["jobTemplate"]["spec"] =
            json!({"invented": true, "template": {"spec": {"invented": {"by": "default"}}}});
        cron_job
    };
    let mut running = cron_job("0 9 * * *");
    running["status"] = json!({"lastScheduleTime": at(-23 * 3600), "active": [entry("1")]});
    assert_eq!(sync(newer(running), &[job("1", &[])]), "requeue after 3600.1s\n");
    // A time that is due runs once, and the Job gets the field.
    assert_eq!(sync(newer(due()), &[]), runs());
    assert_eq!(created(newer(due()))["spec"], newer(due())["spec"]["jobTemplate"]["spec"]);
}

/// Proves CRON-44, CRON-65, CRON-75.
#[test]
fn created_job_is_listed_and_the_time_recorded() {
    assert_eq!(sync(due(), &[]), runs());
    let mut cluster = cluster(due(), &[]);
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 7), 0);
    let transcript = outline(&mut cluster);
    assert!(transcript.starts_with(&creates("sum-30000000", 7)), "{transcript}");
    let bodies = cluster.bodies(&the_loop(), key("sum"), "put cronjobs.batch/status ");
    let (body, active) = (&bodies[0].1, &bodies[0].1["status"]["active"]);
    assert_eq!(body["metadata"]["resourceVersion"], "5");
    assert_eq!(body["status"]["lastScheduleTime"], at(0));
    assert_eq!((&active[0]["name"], &active[0]["kind"]), (&json!("sum-30000000"), &json!("Job")));
}

/// Proves CRON-45, CRON-80, CRON-111.
#[test]
fn existing_job_is_listed_if_it_is_the_cron_jobs_own() {
    let exists = |cron_job: Value, existing: Option<Value>| {
        let cluster =
            cluster(cron_job, &[]).failing_at("create", PATH, error(ErrorReason::AlreadyExists), None);
        existing.into_iter().fold(cluster, RehearsalCluster::with_live::<Job>)
    };
    let tried = format!("{CREATE} FAILED: refused\nget jobs.batch a/sum-30000000\n");
    let own = job("sum-30000000", &[]);
    assert_eq!(outline(&mut exists(due(), Some(own.clone()))), format!("{tried}{PUT}{WAIT}"));
    let status = written_status(&mut exists(due(), Some(own.clone())));
    assert_eq!(
        (&status["active"][0]["uid"], &status["lastScheduleTime"]),
        (&json!("sum-30000000"), &json!(at(0)))
    );
    let finished = job("sum-30000000", &["Complete"]);
    assert_eq!(outline(&mut exists(due(), Some(finished))), format!("{tried}{PUT}{WAIT}"), "finished or not");
    let mut foreign = own.clone();
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("c0");
    assert_eq!(outline(&mut exists(due(), Some(foreign))), tried, "no event and no requeue");
    assert_eq!(
        outline(&mut exists(due(), None)),
        format!("{tried}retry: jobs.batch \"sum-30000000\" not found\n")
    );
    let mut down = exists(due(), Some(own)).failing_at("get", PATH, error(ErrorReason::Unavailable), None);
    assert_eq!(outline(&mut down), format!("{tried}retry: refused\n"));
}

/// Proves CRON-45.
#[test]
fn existing_listed_job_changes_nothing() {
    // Listed under the UID of the existing Job, but under another name, so that the time does not count as done.
    let mut listed = entry("renamed");
    listed["uid"] = json!("sum-30000000");
    let cron_job = minutely(|cron_job| cron_job["status"]["active"] = json!([listed]));
    let mut cluster = cluster(cron_job, &[job("sum-30000000", &[])]).failing_at(
        "create",
        PATH,
        error(ErrorReason::AlreadyExists),
        None,
    );
    assert_eq!(outline(&mut cluster), format!("{CREATE} FAILED: refused\nget jobs.batch a/sum-30000000\n"));
}

/// Proves CRON-46, CRON-90, CRON-100.
#[test]
fn failed_create_is_retried_with_backoff_only() {
    let failing = |reason| cluster(due(), &[]).failing_at("create", PATH, error(reason), None);
    for reason in [ErrorReason::Forbidden, ErrorReason::Invalid, ErrorReason::Unavailable] {
        let wanted = format!(
            "{CREATE} FAILED: refused\nevent Warning FailedCreate on CronJob a/sum uid=c1: Error creating job: refused\nretry: refused\n"
        );
        let mut cluster = failing(reason);
        assert_eq!(outline(&mut cluster), wanted, "no status write and no delay");
        cluster.advance_clock(Duration::from_secs(120));
        assert!(outline(&mut cluster).contains("Created job sum-30000002"), "the most recent time again");
    }
    let terminating = format!("{CREATE} FAILED: refused\nretry: refused\n");
    assert_eq!(outline(&mut failing(ErrorReason::NamespaceTerminating)), terminating, "no event");
}

/// Proves CRON-14, CRON-65.
#[test]
fn status_is_written_before_an_error_is_returned_and_its_own_error_replaces_it() {
    let path = "/apis/batch/v1/namespaces/a/cronjobs/sum";
    let listed = || minutely(|cron_job| cron_job["status"]["active"] = json!([entry("1")]));
    let failing = || {
        cluster(listed(), &[job("1", &["Failed"])]).failing_at(
            "create",
            PATH,
            error(ErrorReason::Forbidden),
            None,
        )
    };
    let transcript = outline(&mut failing());
    assert!(transcript.ends_with(&format!("{PUT}retry: refused\n")), "{transcript}");
    let conflict = ApiError::transport(ErrorReason::Conflict, "conflict");
    let retried = format!("retry: {}: conflict\n", PUT.trim_end());
    let transcript = outline(&mut failing().failing_at("update", path, conflict.clone(), None));
    assert!(transcript.ends_with(&retried), "{transcript}");
    let transcript = outline(&mut cluster(due(), &[]).failing_at("update", path, conflict, None));
    assert!(transcript.ends_with(&retried), "the Job exists, and the next reconcile lists it");
}

/// Proves CRON-65, CRON-68.
#[test]
fn only_the_status_of_a_cron_job_is_written() {
    let transcript = sync(due(), &[]);
    assert_eq!(transcript.matches("put ").count(), 1, "{transcript}");
    assert!(!transcript.contains("put cronjobs.batch a/sum"), "{transcript}");
}

/// Proves CRON-112.
#[test]
fn objects_that_the_server_would_refuse_are_tolerated() {
    for change in [
        json!({"schedule": ""}),
        json!({"schedule": "TZ=x"}),
        json!({"timeZone": ""}),
        json!({"timeZone": "Local"}),
        json!({"startingDeadlineSeconds": -5}),
        json!({"successfulJobsHistoryLimit": -1, "failedJobsHistoryLimit": -1}),
        json!({"startingDeadlineSeconds": i64::MAX}),
        json!({"startingDeadlineSeconds": i64::MIN}),
        json!({"jobTemplate": null}),
    ] {
        let mut odd = due();
        for (field, value) in change.as_object().unwrap() {
            odd["spec"][field] = value.clone();
        }
        let _ = sync(odd.clone(), &[job("1", &["Failed"])]);
        odd["status"] = json!({"lastScheduleTime": "0001-01-01T00:00:00Z"});
        odd["metadata"]["creationTimestamp"] = Value::Null;
        let _ = sync(odd, &[]);
    }
}
