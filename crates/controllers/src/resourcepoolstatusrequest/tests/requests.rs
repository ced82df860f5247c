//! When a request is answered, how often it is tried, and what is measured.

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::RateLimiter;

use super::*;

const INCOMPLETE: &str = "retry: incomplete pools detected, requeueing\n";

/// Proves RPSR-53, RPSR-66, RPSR-76.
#[test]
fn descriptor_matches_the_role_and_waits_for_all_caches() {
    let reads = |controller: &Controller, index: usize| -> Vec<String> {
        let a_loop = &controller.loops[index];
        assert!(a_loop.starts_without.is_empty(), "no cache may be missing");
        let mut plurals: Vec<_> =
            a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
        plurals.sort();
        plurals
    };
    let with_rules = controller(ENABLED);
    let all = ["devicetaintrules", "resourceclaims", "resourcepoolstatusrequests", "resourceslices"];
    assert_eq!(
        (reads(&with_rules, 0), reads(&with_rules, 1)),
        (all.map(str::to_owned).into(), all.map(str::to_owned).into())
    );
    let without = controller(ResourcePoolStatusOptions { enable_taint_rules: false, ..ENABLED });
    assert_eq!(reads(&without, 0), all[1..]);
    assert_eq!(with_rules.service_account, Some("resourcepoolstatusrequest-controller"));
    assert!(with_rules.event_component.is_none() && crate::names::aliases_of(with_rules.name).is_empty());
    let [answering, cleaning] = &with_rules.loops[..] else { panic!("two loops") };
    assert_eq!((answering.workers, answering.max_retries), (1, Some(5)));
    assert_eq!((answering.rate_limiter, answering.resync_period), (RateLimiter::DEFAULT, None));
    assert_eq!((cleaning.watches.len(), cleaning.initial_items.len()), (0, 1));
    assert_eq!(ResourcePoolStatusRequest::RESOURCE.api_version(), "resource.k8s.io/v1alpha3");
}

#[test]
fn controller_exists_only_with_its_gate() {
    assert!(controller_if_enabled(ResourcePoolStatusOptions::default()).is_none());
    assert!(controller_if_enabled(ENABLED).is_some());
    let by_default = crate::all_controllers(&crate::ControllersOptions::default());
    assert!(by_default.iter().all(|one| one.name != "resourcepoolstatusrequest-controller"));
}

/// Proves RPSR-75, RPSR-79.
#[test]
fn only_requests_without_status_are_enqueued_and_other_kinds_enqueue_nothing() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert_eq!(cluster.put::<ResourcePoolStatusRequest>(&a_loop, request(json!({}))), ["r"]);
    let mut answered = request(json!({}));
    answered["status"] = json!({});
    answered["metadata"]["resourceVersion"] = json!("8");
    assert!(cluster.put::<ResourcePoolStatusRequest>(&a_loop, answered.clone()).is_empty());
    answered["metadata"]["name"] = json!("other");
    assert!(cluster.put::<ResourcePoolStatusRequest>(&a_loop, answered).is_empty(), "also at a restart");
    assert!(cluster.take::<ResourcePoolStatusRequest>(&a_loop, &key()).is_empty());
    let watched: Vec<_> =
        a_loop.watches.iter().map(|watch| watch.kind.resource().plural.to_string()).collect();
    assert_eq!(watched, ["resourcepoolstatusrequests"]);
}

/// Proves RPSR-1, RPSR-64.
#[test]
fn missing_and_answered_requests_need_nothing() {
    let mut empty = Fixture { cluster: RehearsalCluster::of(&the_loop()) };
    assert_eq!(empty.reconcile(), "");
    let mut answered = request(json!({}));
    answered["status"] = json!({});
    let mut cluster = Fixture { cluster: RehearsalCluster::of(&the_loop()) }
        .with::<ResourcePoolStatusRequest>(answered.clone());
    assert_eq!(cluster.reconcile(), "", "also by an empty status");
    // The cache does not show yet that another client has answered.
    let cluster =
        RehearsalCluster::of(&the_loop()).with_cached::<ResourcePoolStatusRequest>(request(json!({})));
    let mut behind = Fixture { cluster: cluster.with_live::<ResourcePoolStatusRequest>(answered) };
    let transcript = behind.reconcile();
    assert!(!transcript.contains("measure"), "{transcript}");
    assert_eq!(behind.status(), json!({}));
}

/// Proves RPSR-9, RPSR-11, RPSR-69, RPSR-77.
#[test]
fn answer_has_one_condition_and_changes_nothing_else() {
    let mut fixture = asking(json!({"limit": 3})).with_slices([slice("s", "p", devices(&["x"]))]);
    fixture.reconcile();
    let live = fixture.cluster.live_object::<ResourcePoolStatusRequest>(&key()).unwrap().clone();
    let condition = json!({"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z",
        "reason": "CalculationComplete", "message": "Calculated status for 1 pools"});
    assert_eq!(live["status"]["conditions"], json!([condition]));
    let mut without = live;
    without.as_object_mut().unwrap().remove("status");
    assert_eq!(without, request(json!({"limit": 3})), "unknown fields are sent back");
    let none = asking(json!({})).with_slices([foreign_slice()]).status();
    assert_eq!(none["conditions"][0]["message"], "Calculated status for 0 pools");
    assert_eq!((&none["poolCount"], &none["pools"]), (&json!(0), &Value::Null));
}

fn foreign_slice() -> Value {
    let mut foreign = slice("f", "p", devices(&["x"]));
    foreign["spec"]["driver"] = json!("another");
    foreign
}

/// Proves RPSR-5, RPSR-6, RPSR-20, RPSR-52.
#[test]
fn incomplete_pool_keeps_the_whole_request_from_being_answered() {
    let mut partial = slice("s1", "p", devices(&["x"]));
    partial["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let complete = slice("s2", "q", devices(&["y"]));
    let mut fixture = asking(json!({})).with_slices([partial.clone(), complete]);
    assert_eq!(fixture.reconcile(), INCOMPLETE, "and nothing is measured");
    assert_eq!(fixture.status(), Value::Null);
    // The error itself is only in the computation.
    let decoded: ResourcePoolStatusRequest = serde_json::from_value(request(json!({}))).unwrap();
    let cluster = asking(json!({})).with_slices([partial.clone()]).cluster;
    let pools = pools::of_request(&cluster.view(), &decoded, false);
    let expected = json!({"driver": "d", "poolName": "p", "generation": 1, "validationError":
        "PoolIncomplete: pool d/p is incomplete: observed 1/2 slices at generation 1"});
    assert_eq!(pools[0].status, expected, "without counts");
    // More slices than expected are complete, and the first slice says how many are expected.
    let mut second = slice("s3", "p", devices(&["z"]));
    let pool = asking(json!({})).with_slices([slice("s1", "p", devices(&["x"])), second.clone()]).pool();
    assert_eq!((&pool["resourceSliceCount"], &pool["totalDevices"]), (&json!(2), &json!(2)));
    second["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let pool = asking(json!({})).with_slices([partial, second]).pool();
    assert_eq!(pool["resourceSliceCount"], 2);
}

/// Proves RPSR-8, RPSR-61.
#[test]
fn pools_are_sorted_and_limited() {
    let mut missing = slice("s0", "z", devices(&["x"]));
    missing["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let slices = ["c", "a", "b"].map(|pool| slice(&format!("s-{pool}"), pool, devices(&["x"])));
    let names = |status: &Value| -> Vec<String> {
        let pools = status["pools"].as_array().expect("pools").iter();
        pools.map(|pool| pool["poolName"].as_str().unwrap().to_owned()).collect()
    };
    let status =
        asking(json!({"limit": 2})).with_slices(slices.clone()).with_slices([missing.clone()]).status();
    assert_eq!((names(&status), &status["poolCount"]), (vec!["a".to_owned(), "b".to_owned()], &json!(4)));
    assert_eq!(status["conditions"][0]["message"], "Calculated status for 2 pools");
    let many = (0..101).map(|index| slice(&format!("s{index}"), &format!("p{index:03}"), devices(&["x"])));
    let status = asking(json!({})).with_slices(many).status();
    assert_eq!((names(&status).len(), &status["poolCount"]), (100, &json!(101)));
    assert_eq!(asking(json!({"limit": 4})).with_slices(slices).with_slices([missing]).status(), Value::Null);
}

/// Proves RPSR-2, RPSR-60.
#[test]
fn retries_end_and_the_next_try_reads_the_caches_again() {
    let a_loop = the_loop();
    let mut partial = slice("s1", "p", devices(&["x"]));
    partial["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let mut fixture = asking(json!({})).with_slices([partial]);
    assert_eq!(fixture.reconcile(), INCOMPLETE);
    assert_eq!(a_loop.max_retries, Some(5), "5, 10, 20, 40 and 80 ms");
    let mut second = slice("s2", "p", devices(&["y"]));
    second["spec"]["pool"]["resourceSliceCount"] = json!(2);
    assert!(fixture.cluster.put::<PoolSlice>(&a_loop, second).is_empty(), "a slice enqueues no request");
    assert_eq!(fixture.pool()["totalDevices"], 2);
}

/// Proves RPSR-50, RPSR-51, RPSR-78.
#[test]
fn status_writes_are_measured_and_retried() {
    let measured = |outcome: &str| {
        let prefix = "measure resourcepoolstatusrequest_controller";
        let errors = if outcome == "retry" {
            format!("{prefix}_request_processing_errors_total{{d}} 1\n")
        } else {
            String::new()
        };
        format!(
            "{errors}{prefix}_requests_processed_total{{d}} 1\n{prefix}_request_processing_duration_seconds{{d}} 0\n"
        )
    };
    let mut fixture = asking(json!({})).with_slices([slice("s", "p", devices(&["x"]))]);
    assert_eq!(fixture.reconcile(), format!("{WRITTEN}\n{}", measured("done")));
    for reason in [ErrorReason::Conflict, ErrorReason::Unavailable, ErrorReason::Forbidden] {
        let error = ApiError::transport(reason, "refused");
        let cluster = asking(json!({})).cluster;
        let cluster = cluster.failing::<ResourcePoolStatusRequest>("update", &key(), error);
        let transcript = Fixture { cluster }.reconcile();
        assert!(transcript.contains(&measured("retry")), "{transcript}");
        assert!(transcript.contains("retry: ") && transcript.ends_with("refused\n"), "{transcript}");
    }
    let bounds = match metrics::DURATION.metric_type {
        keleustes_plan::MetricType::Histogram(buckets) => buckets.bounds(),
        _ => panic!("a histogram"),
    };
    assert_eq!((bounds.len(), bounds[0], bounds[1]), (15, 0.001, 0.002));
}
