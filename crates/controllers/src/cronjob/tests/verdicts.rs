//! The ladder from the time zone to the concurrency policy.

use std::time::Duration;

use super::*;

fn suspended(cron_job: &mut Value) {
    cron_job["spec"]["suspend"] = json!(true);
}

/// Proves CRON-15, CRON-21, CRON-24.
#[test]
fn terminating_and_suspended_cron_jobs_do_not_run() {
    assert_eq!(sync(minutely(|_| {}), &[]), runs());
    assert_eq!(sync(minutely(suspended), &[]), "");
    let terminating = |cron_job: &mut Value| cron_job["metadata"]["deletionTimestamp"] = json!(at(0));
    assert_eq!(sync(minutely(terminating), &[]), "");
    let mut suspended_and_invalid = cron_job("61 * * * *");
    suspended(&mut suspended_and_invalid);
    assert_eq!(sync(suspended_and_invalid, &[]), "", "checked before the schedule");
    let finished = minutely(|cron_job| {
        terminating(cron_job);
        cron_job["status"]["active"] = json!([entry("1")]);
    });
    let wanted = format!(
        "event Normal SawCompletedJob on CronJob a/sum uid=c1: Saw completed job: 1, condition: Failed\n{PUT}"
    );
    assert_eq!(sync(finished, &[job("1", &["Failed"])]), wanted, "the list is maintained");
}

/// Proves CRON-23.
#[test]
fn unknown_time_zone_is_reported_on_every_reconcile() {
    let unknown = |cron_job: &mut Value| cron_job["spec"]["timeZone"] = json!("Mars/\"Olympus\"");
    let wanted = "event Warning UnknownTimeZone on CronJob a/sum uid=c1: invalid timeZone: \"Mars/\\\"Olympus\\\"\": \
                  unknown time zone Mars/\"Olympus\"\n";
    assert_eq!(sync(minutely(unknown), &[]), wanted);
    let also_suspended = minutely(|cron_job| {
        unknown(cron_job);
        suspended(cron_job);
    });
    assert_eq!(sync(also_suspended, &[]), wanted);
}

/// Proves CRON-25.
#[test]
fn unparseable_schedule_is_reported() {
    let wanted = "event Warning UnparseableSchedule on CronJob a/sum uid=c1: unparseable schedule: \"61 * * * *\" : \
                  end of range (61) above maximum (59): 61\n";
    assert_eq!(sync(cron_job("61 * * * *"), &[]), wanted);
}

/// Proves CRON-26, CRON-27, CRON-73.
#[test]
fn zone_in_the_schedule_is_used_and_reported() {
    let unsupported = "event Warning UnsupportedSchedule on CronJob a/sum uid=c1: CRON_TZ or TZ used in schedule \
        \"TZ=Asia/Tokyo 0 17 * * *\" is not officially supported, see \
        https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details\n";
    let mut own_zone = cron_job("TZ=Asia/Tokyo 0 17 * * *");
    own_zone["spec"]["timeZone"] = json!("America/New_York");
    let transcript = sync(own_zone.clone(), &[]);
    assert!(transcript.starts_with(unsupported), "{transcript}");
    assert!(transcript.contains("Created job sum-30000000"), "17:00 in Tokyo is 08:00: {transcript}");
    suspended(&mut own_zone);
    assert_eq!(sync(own_zone, &[]), "", "only a reconcile that parses it reports it");
    let mut zoned = cron_job("0 17 * * *");
    zoned["spec"]["timeZone"] = json!("Asia/Tokyo");
    assert!(sync(zoned, &[]).contains("Created job sum-30000000"));
    let local = TimeZones::embedded().load("Asia/Tokyo").unwrap();
    let time_zones = TimeZones::new(std::sync::Arc::new(crate::cronjob::time_zones::embedded), local);
    let a_loop = controller(&CronJobOptions { workers: 1, time_zones }).loops.remove(0);
    let mut cluster = RehearsalCluster::of(&a_loop).with::<CronJob>(cron_job("0 17 * * *"));
    let transcript = cluster.outline(&a_loop, key("sum"));
    assert!(transcript.contains("Created job sum-30000000"), "the zone of the process: {transcript}");
}

#[test]
fn waiting_cron_job_loads_its_zone_once_per_reconcile() {
    let loaded = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = loaded.clone();
    let lookup = move |name: &str| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        crate::cronjob::time_zones::embedded(name)
    };
    let local = TimeZones::embedded().local().clone();
    let time_zones = TimeZones::new(std::sync::Arc::new(lookup), local);
    let a_loop = controller(&CronJobOptions { workers: 1, time_zones }).loops.remove(0);
    let mut zoned = cron_job("0 18 * * *");
    zoned["spec"]["timeZone"] = json!("Asia/Tokyo");
    let mut cluster = RehearsalCluster::of(&a_loop).with::<CronJob>(zoned);
    assert_eq!(cluster.outline(&a_loop, key("sum")), "requeue after 3600.1s\n");
    assert_eq!(loaded.load(std::sync::atomic::Ordering::Relaxed), 1);
}

/// Proves CRON-25, CRON-60.
#[test]
fn schedule_in_a_zone_is_parsed_like_one_with_that_prefix() {
    let zoned = |schedule: &str| {
        let mut zoned = cron_job(schedule);
        zoned["spec"]["timeZone"] = json!("Asia/Tokyo");
        sync(zoned, &[])
    };
    assert_eq!(zoned("  @every 1h  "), "requeue after 3540.1s\n", "spaces are trimmed");
    assert!(zoned("").contains("expected exactly 5 fields, found 0: []"), "{}", zoned(""));
}

/// Proves CRON-30, CRON-79.
#[test]
fn schedule_that_never_fires_is_reported_without_a_busy_loop() {
    let wanted = "event Warning InvalidSchedule on CronJob a/sum uid=c1: invalid schedule: 59 23 31 2 * : \
                  time difference between two schedules is less than 1 second\n";
    assert_eq!(sync(cron_job("59 23 31 2 *"), &[]), wanted);
}

/// Proves CRON-29, CRON-34, CRON-108.
#[test]
fn nothing_due_only_requeues() {
    assert_eq!(sync(cron_job("0 9 * * *"), &[]), "requeue after 3600.1s\n");
    let zero = |cron_job: &mut Value| cron_job["spec"]["startingDeadlineSeconds"] = json!(0);
    assert_eq!(sync(minutely(zero), &[]), WAIT, "no Job, no event, no status");
    let late = minutely(|cron_job| cron_job["spec"]["startingDeadlineSeconds"] = json!(10));
    let mut cluster = cluster(late, &[]);
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 10), 1);
    assert_eq!(outline(&mut cluster), "requeue after 50.099999999s\n");
}

/// Proves CRON-32, CRON-88.
#[test]
fn long_outage_runs_once_and_many_missed_times_are_reported() {
    let since =
        |seconds: i64| minutely(|cron_job| cron_job["status"]["lastScheduleTime"] = json!(at(-seconds)));
    assert_eq!(sync(since(100 * 60), &[]), runs());
    let warning = "event Warning TooManyMissedTimes on CronJob a/sum uid=c1: too many missed start times. \
                   Set or decrease .spec.startingDeadlineSeconds or check clock skew\n";
    assert_eq!(sync(since(101 * 60), &[]), format!("{warning}{}", runs()));
    let mut forbidden = since(365 * 86_400);
    forbidden["spec"]["concurrencyPolicy"] = json!("Forbid");
    forbidden["status"]["active"] = json!([entry("1")]);
    let transcript = sync(forbidden, &[job("1", &[])]);
    assert!(transcript.starts_with(warning) && !transcript.contains("create"), "{transcript}");
}

/// Proves CRON-35.
#[test]
fn time_that_has_run_is_not_run_again() {
    let done = minutely(|cron_job| cron_job["status"]["lastScheduleTime"] = json!(at(0)));
    assert_eq!(sync(done, &[]), WAIT);
    let listed = minutely(|cron_job| cron_job["status"]["active"] = json!([entry("sum-30000000")]));
    assert_eq!(sync(listed, &[job("sum-30000000", &[])]), WAIT, "by its name");
    let elsewhere = minutely(|cron_job| {
        let mut entry = entry("sum-30000000");
        entry["namespace"] = json!("b");
        cron_job["status"]["active"] = json!([entry]);
    });
    assert!(sync(elsewhere, &[job("sum-30000000", &[])]).contains("create"), "in another namespace");
}

/// Proves CRON-36, CRON-98.
#[test]
fn forbid_waits_for_the_running_job_and_then_runs_the_missed_time() {
    let forbidding = |active: Value| {
        minutely(|cron_job| {
            cron_job["spec"]["concurrencyPolicy"] = json!("Forbid");
            cron_job["status"]["active"] = active;
        })
    };
    let refused = "event Normal JobAlreadyActive on CronJob a/sum uid=c1: Not starting job because prior execution is running and \
                   concurrency policy is Forbid\n";
    let mut cluster = cluster(forbidding(json!([entry("1")])), &[job("1", &[])]);
    assert_eq!(outline(&mut cluster), format!("{refused}{WAIT}"));
    cluster.advance_clock(Duration::from_secs(130));
    let mut complete = job("1", &["Complete"]);
    complete["metadata"]["resourceVersion"] = json!("4");
    cluster.put::<Job>(&the_loop(), complete);
    let transcript = outline(&mut cluster);
    assert!(transcript.contains("Created job sum-30000002"), "the most recent missed minute: {transcript}");
    assert!(transcript.contains("event Normal SawCompletedJob"), "{transcript}");
}

/// Proves CRON-98.
#[test]
fn missed_time_past_the_deadline_is_not_made_up_for() {
    let forbidding = minutely(|cron_job| {
        cron_job["spec"]["concurrencyPolicy"] = json!("Forbid");
        cron_job["spec"]["startingDeadlineSeconds"] = json!(5);
        cron_job["status"]["active"] = json!([entry("1")]);
    });
    let mut cluster = cluster(forbidding, &[job("1", &["Complete"])]);
    cluster.advance_clock(Duration::from_secs(30));
    assert!(!outline(&mut cluster).contains("create"));
}

/// Proves CRON-37, CRON-99.
#[test]
fn replace_deletes_the_running_jobs_first() {
    let replacing = |entries: Value| {
        minutely(|cron_job| {
            cron_job["spec"]["concurrencyPolicy"] = json!("Replace");
            cron_job["status"]["active"] = entries;
        })
    };
    let replaced = "get jobs.batch a/1\ndelete jobs.batch a/1 because a new Job replaces it (Background)\n\
                    event Normal SuccessfulDelete on CronJob a/sum uid=c1: Deleted job 1\n";
    let mut cluster_with_one = cluster(replacing(json!([entry("1")])), &[job("1", &[])]);
    let status = written_status(&mut cluster_with_one);
    assert_eq!(status["active"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(status["active"][0]["name"], "sum-30000000");
    assert_eq!(sync(replacing(json!([entry("1")])), &[job("1", &[])]), format!("{replaced}{}", runs()));
    let mut recreated = job("1", &[]);
    recreated["metadata"]["uid"] = json!("2");
    let mut cluster = RehearsalCluster::of(&the_loop())
        .with::<CronJob>(replacing(json!([entry("1")])))
        .with_cached::<Job>(job("1", &[]))
        .with_live::<Job>(recreated);
    let status = written_status(&mut cluster);
    assert_eq!(
        status["active"].as_array().map(Vec::len),
        Some(2),
        "the entry of the old UID stays: {status}"
    );
}

/// Proves CRON-37, CRON-86.
#[test]
fn failed_replacement_creates_nothing() {
    let replacing = minutely(|cron_job| {
        cron_job["spec"]["concurrencyPolicy"] = json!("Replace");
        cron_job["status"]["active"] = json!([entry("1")]);
    });
    let one = || job("1", &[]);
    let mut gone =
        RehearsalCluster::of(&the_loop()).with::<CronJob>(replacing.clone()).with_cached::<Job>(one());
    let wanted = "get jobs.batch a/1\nevent Warning FailedGet on CronJob a/sum uid=c1: Get job: jobs.batch \"1\" not found\n\
                  retry: jobs.batch \"1\" not found\n";
    assert_eq!(outline(&mut gone), wanted);
    let mut dropped = RehearsalCluster::of(&the_loop()).with::<CronJob>(replacing.clone());
    let transcript = outline(&mut dropped);
    assert!(transcript.contains("MissingJob") && transcript.contains("create"), "{transcript}");
    let refused = |verb| {
        let cluster = cluster(replacing.clone(), &[one()]);
        outline(&mut cluster.failing::<Job>(verb, &key("1"), error(ErrorReason::Forbidden)))
    };
    let get = "get jobs.batch a/1\nevent Warning FailedGet on CronJob a/sum uid=c1: Get job: refused\nretry: refused\n";
    assert_eq!(refused("get"), get);
    let transcript = refused("delete");
    assert!(
        transcript.contains("event Warning FailedDelete on CronJob a/sum uid=c1: Deleted job: refused\n"),
        "{transcript}"
    );
    assert!(transcript.ends_with("retry: could not replace job a/1\n"), "{transcript}");
    assert!(!transcript.contains("create"), "{transcript}");
}

/// Proves CRON-38, CRON-97.
#[test]
fn only_listed_jobs_count_for_the_concurrency_policy() {
    for policy in ["Allow", "Whatever"] {
        let allowing = minutely(|cron_job| {
            cron_job["spec"]["concurrencyPolicy"] = json!(policy);
            cron_job["status"]["active"] = json!([entry("1")]);
        });
        assert_eq!(sync(allowing, &[job("1", &[])]), runs());
    }
    for policy in ["Forbid", "Replace"] {
        let unlisted = minutely(|cron_job| cron_job["spec"]["concurrencyPolicy"] = json!(policy));
        let transcript = sync(unlisted, &[job("manual", &[])]);
        assert!(transcript.contains("create") && !transcript.contains("delete"), "{transcript}");
    }
}

/// Proves CRON-11, CRON-110.
#[test]
fn clock_jumps_are_noticed_when_the_delay_ends() {
    let mut cluster =
        cluster(minutely(|cron_job| cron_job["status"]["lastScheduleTime"] = json!(at(0))), &[]);
    assert_eq!(outline(&mut cluster), WAIT);
    cluster.set_wall_clock(Time::from_unix_seconds(NOW - 3600), 0);
    assert_eq!(outline(&mut cluster), "requeue after 3660.1s\n", "back: nothing is due, a new delay");
    cluster.set_wall_clock(Time::from_unix_seconds(NOW + 3600), 0);
    let transcript = outline(&mut cluster);
    assert_eq!(transcript.matches("create").count(), 1, "forward: one run, for the most recent time");
    assert!(transcript.contains("sum-30000060"), "{transcript}");
}
