//! Which records of API servers are removed, and what becomes of the common version.

use keleustes_objects::ApiError;
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::{RehearsalCluster, is_retried_because};
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2027-01-15T08:00:00Z";
const LONG_AGO: &str = "2027-01-15T07:00:00Z";

fn the_loop(queue: &str) -> Loop {
    controller().loops.into_iter().find(|one| one.queue == queue).unwrap()
}

fn lease(namespace: &str, name: &str, label: Option<&str>) -> Value {
    let labels = label.map_or(json!({}), |label| json!({IDENTITY_LABEL: label}));
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("u-{name}"), "resourceVersion": "3",
        "labels": labels}})
}

fn identity(name: &str) -> Value {
    lease("kube-system", name, Some(KUBE_APISERVER))
}

fn record(server: &str, version: &str) -> Value {
    json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": ["v1", "v2"],
           "servedVersions": ["v1"], "later": server})
}

fn condition(status: &str) -> Value {
    let (reason, message) = match status {
        "True" => ("CommonEncodingVersionSet", "Common encoding version set"),
        _ => ("CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    json!({"type": "AllEncodingVersionsEqual", "status": status, "reason": reason, "message": message,
           "lastTransitionTime": LONG_AGO, "observedGeneration": 1})
}

/// A StorageVersion with these records and the status that follows from them.
fn version(name: &str, records: &[(&str, &str)]) -> Value {
    let first = records.first().map(|(_, version)| *version);
    let common = first.filter(|first| records.iter().all(|(_, version)| version == first));
    let status = if common.is_some() { "True" } else { "False" };
    let mut object = json!({
        "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "9", "generation": 1},
        "spec": {},
        "status": {"storageVersions": records.iter().map(|(server, version)| record(server, version)).collect::<Vec<_>>(),
                   "conditions": [condition(status), {"type": "Other", "status": "True"}], "later": true},
    });
    if let Some(common) = common {
        object["status"]["commonEncodingVersion"] = json!(common);
    }
    object
}

fn cluster(queue: &str, leases: &[Value], versions: &[Value]) -> RehearsalCluster {
    let mut cluster = RehearsalCluster::of(&the_loop(queue));
    for lease in leases {
        cluster = cluster.with::<Lease>(lease.clone());
    }
    versions.iter().fold(cluster, |cluster, version| cluster.with::<StorageVersion>(version.clone()))
}

/// The status that a transcript writes to a StorageVersion.
fn written(transcript: &str, name: &str) -> Value {
    let beginning = format!("put storageversions.internal.apiserver.k8s.io/status {name} because ");
    let line = transcript.lines().find(|line| line.starts_with(&beginning));
    let (_, body) = line.unwrap_or_else(|| panic!("{transcript}")).split_once(": {").unwrap();
    let body: Value = serde_json::from_str(&format!("{{{body}")).unwrap();
    assert_eq!(body["metadata"]["resourceVersion"], "9", "the write has a precondition");
    body["status"].clone()
}

fn servers(status: &Value) -> Vec<&str> {
    let records = status["storageVersions"].as_array().unwrap().iter();
    records.map(|record| record["apiServerID"].as_str().unwrap()).collect()
}

fn after_deleted_lease(leases: &[Value], versions: &[Value], name: &str) -> String {
    cluster(LEASES, leases, versions).reconcile(&the_loop(LEASES), Key::cluster(name))
}

fn after_change_of(leases: &[Value], versions: &[Value], name: &str) -> String {
    cluster(STORAGE_VERSIONS, leases, versions).reconcile(&the_loop(STORAGE_VERSIONS), Key::cluster(name))
}

/// Proves SVGC-20, SVGC-38, SVGC-41.
#[test]
fn two_loops_with_one_worker_each_wait_for_both_caches() {
    let controller = controller();
    let loops: Vec<_> = controller
        .loops
        .iter()
        .map(|one| (one.queue, one.workers, one.max_retries, one.rate_limiter))
        .collect();
    let limiter = RateLimiter::DEFAULT;
    assert_eq!(loops, [(LEASES, 1, None, limiter), (STORAGE_VERSIONS, 1, None, limiter)]);
    assert!(controller.loops.iter().all(|one| one.reads.len() == 2 && one.starts_without.is_empty()));
    let optional = |one: &Loop| one.reads.iter().filter(|kind| kind.projection().optional).count();
    assert!(controller.loops.iter().all(|one| optional(one) == 1), "StorageVersions need not be served");
    assert_eq!(controller.service_account, Some("storage-version-garbage-collector"));
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
}

/// Proves SVGC-1, SVGC-2, SVGC-37.
#[test]
fn only_the_deletion_of_an_identity_lease_is_enqueued() {
    let a_loop = the_loop(LEASES);
    let deletion_of = |lease: Value| {
        let mut cluster = cluster(LEASES, &[], &[]);
        let key = Key::namespaced(
            lease["metadata"]["namespace"].as_str().unwrap(),
            lease["metadata"]["name"].as_str().unwrap(),
        );
        assert!(cluster.put::<Lease>(&a_loop, lease.clone()).is_empty(), "added");
        assert!(cluster.put::<Lease>(&a_loop, lease).is_empty(), "updated");
        cluster.take::<Lease>(&a_loop, &key)
    };
    assert_eq!(deletion_of(identity("a")), ["a"]);
    assert!(deletion_of(lease("kube-system", "a", None)).is_empty());
    assert!(deletion_of(lease("kube-system", "a", Some("other"))).is_empty());
    assert!(deletion_of(lease("default", "a", Some(KUBE_APISERVER))).is_empty());
    // The loss of the label enqueues nothing, and the last state decides at the deletion.
    let mut cluster = cluster(LEASES, &[identity("a")], &[]);
    let mut unlabelled = lease("kube-system", "a", None);
    unlabelled["metadata"]["resourceVersion"] = json!("4");
    assert!(cluster.put::<Lease>(&a_loop, unlabelled).is_empty());
    assert!(cluster.take::<Lease>(&a_loop, &Key::namespaced("kube-system", "a")).is_empty());
}

/// Proves SVGC-3, SVGC-32, SVGC-39.
#[test]
fn storage_version_with_a_record_without_lease_is_enqueued() {
    let a_loop = the_loop(STORAGE_VERSIONS);
    let leases = [
        identity("a"),
        lease("kube-system", "unlabelled", None),
        lease("default", "b", Some(KUBE_APISERVER)),
    ];
    let enqueued = |records: &[(&str, &str)]| {
        let mut cluster = cluster(STORAGE_VERSIONS, &leases, &[]);
        let added = cluster.put::<StorageVersion>(&a_loop, version("apps.x", records));
        let updated = cluster.put::<StorageVersion>(&a_loop, version("apps.x", records));
        assert_eq!(added, updated);
        assert!(cluster.take::<StorageVersion>(&a_loop, &Key::cluster("apps.x")).is_empty(), "deleted");
        !added.is_empty()
    };
    assert!(!enqueued(&[("a", "v1")]));
    assert!(!enqueued(&[]));
    assert!(enqueued(&[("a", "v1"), ("gone", "v1")]));
    assert!(enqueued(&[("unlabelled", "v1")]));
    assert!(enqueued(&[("b", "v1")]));
}

/// Proves SVGC-4, SVGC-44.
#[test]
fn lease_that_exists_again_keeps_its_records() {
    let versions = [version("apps.x", &[("a", "v1")])];
    for lease in [identity("a"), lease("kube-system", "a", None)] {
        assert_eq!(
            after_deleted_lease(&[lease], &versions, "a"),
            "get leases.coordination.k8s.io kube-system/a\n"
        );
    }
    // The next change of the StorageVersion finds that it is no identity Lease.
    assert!(after_change_of(&[lease("kube-system", "a", None)], &versions, "apps.x").contains("delete "));
    // A Lease of that name in another namespace keeps nothing.
    let elsewhere = lease("default", "a", Some(KUBE_APISERVER));
    assert!(after_deleted_lease(std::slice::from_ref(&elsewhere), &versions, "a").contains("delete "));
    assert!(after_change_of(&[elsewhere], &versions, "apps.x").contains("delete "));
}

/// Proves SVGC-4.
#[test]
fn failed_read_of_the_lease_is_retried() {
    let error = ApiError::from_status(503, "ServiceUnavailable", "down", [], 0);
    let mut cluster = cluster(LEASES, &[], &[version("apps.x", &[("a", "v1")])]).failing::<Lease>(
        "get",
        &Key::namespaced("kube-system", "a"),
        error,
    );
    let transcript = cluster.reconcile(&the_loop(LEASES), Key::cluster("a"));
    assert!(is_retried_because(&transcript, "down") && !transcript.contains("list"), "{transcript}");
}

/// Proves SVGC-5, SVGC-31.
#[test]
fn deleted_lease_touches_only_storage_versions_that_name_it() {
    let mut inconsistent = version("apps.wrong", &[("b", "v1")]);
    inconsistent["status"]["commonEncodingVersion"] = json!("v7");
    let versions = [
        version("apps.x", &[("a", "v1"), ("stale", "v1"), ("b", "v1"), ("a", "v2")]),
        inconsistent,
        version("apps.empty", &[]),
    ];
    let transcript = after_deleted_lease(&[identity("b")], &versions, "a");
    assert_eq!(servers(&written(&transcript, "apps.x")), ["stale", "b"], "records of other servers stay");
    assert_eq!(transcript.matches("put ").count() + transcript.matches("delete ").count(), 1, "{transcript}");
    let transcript = after_deleted_lease(&[identity("b")], &versions, "absent");
    assert!(!transcript.contains("put ") && !transcript.contains("delete "), "{transcript}");
    let error = ApiError::from_status(500, "InternalError", "boom", [], 0);
    let mut failing = cluster(LEASES, &[], &versions).failing_at(
        "list",
        "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions",
        error,
        None,
    );
    assert!(is_retried_because(&failing.reconcile(&the_loop(LEASES), Key::cluster("a")), "boom"));
}

/// Proves SVGC-6, SVGC-35.
#[test]
fn failure_of_one_storage_version_does_not_keep_the_others() {
    let versions =
        [version("apps.a", &[("a", "v1"), ("b", "v1")]), version("apps.b", &[("a", "v1"), ("b", "v1")])];
    let error = ApiError::from_status(409, "Conflict", "changed", [], 0);
    let mut cluster =
        cluster(LEASES, &[], &versions).failing::<StorageVersion>("update", &Key::cluster("apps.a"), error);
    let transcript = cluster.reconcile(&the_loop(LEASES), Key::cluster("a"));
    assert_eq!(servers(&written(&transcript, "apps.b")), ["b"]);
    assert!(is_retried_because(&transcript, "changed"));
}

/// Proves SVGC-7.
#[test]
fn records_without_an_identity_lease_are_removed() {
    let leases = [identity("a"), lease("kube-system", "other", Some("other"))];
    let records = [("a", "v1"), ("gone", "v1"), ("other", "v1"), ("", "v1"), ("a/b", "v1")];
    let transcript = after_change_of(&leases, &[version("apps.x", &records)], "apps.x");
    assert_eq!(servers(&written(&transcript, "apps.x")), ["a"]);
    let unchanged = after_change_of(&leases, &[version("apps.x", &[("a", "v1")])], "apps.x");
    assert!(!unchanged.contains("put "), "{unchanged}");
    assert_eq!(
        after_change_of(&leases, &[], "apps.x"),
        "get storageversions.internal.apiserver.k8s.io apps.x\n"
    );
    let error = ApiError::from_status(500, "InternalError", "boom", [], 0);
    let mut failing =
        cluster(STORAGE_VERSIONS, &[], &[]).failing::<StorageVersion>("get", &Key::cluster("apps.x"), error);
    assert!(is_retried_because(
        &failing.reconcile(&the_loop(STORAGE_VERSIONS), Key::cluster("apps.x")),
        "boom"
    ));
}

/// Proves SVGC-33, SVGC-34, SVGC-36.
#[test]
fn record_of_a_running_server_survives_a_failing_read_of_its_lease() {
    for code in [500, 429, 504, 403] {
        let error = ApiError::from_status(code, "", "no answer", [], 0);
        let mut cluster =
            cluster(STORAGE_VERSIONS, &[identity("a")], &[version("apps.x", &[("a", "v1"), ("gone", "v1")])])
                .failing::<Lease>("get", &Key::namespaced("kube-system", "a"), error);
        let transcript = cluster.reconcile(&the_loop(STORAGE_VERSIONS), Key::cluster("apps.x"));
        assert!(
            is_retried_because(&transcript, "no answer") && !transcript.contains("put "),
            "{code}: {transcript}"
        );
    }
    // A Lease that expired, or that the cache does not have yet, exists.
    let mut expired = identity("a");
    expired["spec"] = json!({"leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"});
    let mut cluster =
        cluster(STORAGE_VERSIONS, &[], &[version("apps.x", &[("a", "v1")])]).with_live::<Lease>(expired);
    let transcript = cluster.reconcile(&the_loop(STORAGE_VERSIONS), Key::cluster("apps.x"));
    assert!(!transcript.contains("put ") && !transcript.contains("delete "), "{transcript}");
}

/// Proves SVGC-8, SVGC-46.
#[test]
fn storage_version_without_records_is_deleted_and_not_updated() {
    let versions = [version("apps.x", &[("a", "v1")])];
    for transcript in [after_deleted_lease(&[], &versions, "a"), after_change_of(&[], &versions, "apps.x")] {
        let expected = "delete storageversions.internal.apiserver.k8s.io apps.x because none of its API servers exists at 9\n";
        assert!(transcript.ends_with(expected) && !transcript.contains("put "), "{transcript}");
    }
    // A record that was added meanwhile changes the resourceVersion.
    let conflict = ApiError::from_status(409, "Conflict", "changed", [], 0);
    let mut cluster = cluster(LEASES, &[], &versions).failing::<StorageVersion>(
        "delete",
        &Key::cluster("apps.x"),
        conflict,
    );
    assert!(is_retried_because(&cluster.reconcile(&the_loop(LEASES), Key::cluster("a")), "changed"));
}

/// Proves SVGC-8, SVGC-9, SVGC-10, SVGC-30, SVGC-40, SVGC-45.
#[test]
fn remaining_records_keep_their_order_and_agree_on_a_version() {
    let versions = [version("apps.x", &[("one", "v1"), ("two", "v2"), ("three", "v2")])];
    let status =
        written(&after_deleted_lease(&[identity("two"), identity("three")], &versions, "one"), "apps.x");
    assert_eq!(status["storageVersions"], json!([record("two", "v2"), record("three", "v2")]));
    assert_eq!(status["commonEncodingVersion"], "v2");
    let mut expected = condition("True");
    expected["lastTransitionTime"] = json!(NOW);
    assert_eq!(status["conditions"], json!([expected, {"type": "Other", "status": "True"}]));
    assert_eq!(status["later"], true, "unknown fields are sent back");
    let status = written(&after_deleted_lease(&[], &versions, "two"), "apps.x");
    assert_eq!(servers(&status), ["one", "three"]);
    assert_eq!((&status["conditions"][0], status.get("commonEncodingVersion")), (&condition("False"), None));
}

/// Proves SVGC-11.
#[test]
fn transition_time_follows_the_status_and_the_common_version() {
    let since = |records: &[(&str, &str)], common: Option<&str>, status: Option<&str>| {
        let mut version = version("apps.x", records);
        version["status"]["commonEncodingVersion"] = json!(common);
        version["status"]["conditions"] = status.map_or(json!([]), |status| json!([condition(status)]));
        let status = written(&after_deleted_lease(&[], &[version], "gone"), "apps.x");
        let of_type = status["conditions"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(of_type["type"], "AllEncodingVersionsEqual");
        of_type["lastTransitionTime"].as_str().unwrap().to_owned()
    };
    let (shrinks, flips) = ([("gone", "v1"), ("a", "v1")], [("gone", "v1"), ("a", "v2")]);
    assert_eq!(since(&shrinks, Some("v1"), Some("True")), LONG_AGO);
    assert_eq!(since(&flips, None, Some("False")), NOW, "the status changes");
    assert_eq!(since(&shrinks, Some("v0"), Some("True")), NOW, "another common version");
    assert_eq!(since(&shrinks, None, Some("True")), LONG_AGO, "no common version before");
    assert_eq!(since(&shrinks, Some("v1"), None), NOW, "no condition before");
    let differ = [("gone", "v1"), ("a", "v1"), ("b", "v2")];
    assert_eq!(since(&differ, None, Some("False")), LONG_AGO);
}

/// Proves SVGC-42, SVGC-43.
#[test]
fn leases_deleted_at_the_same_time_are_handled_one_after_the_other() {
    let a_loop = the_loop(LEASES);
    let mut cluster = cluster(LEASES, &[], &[version("apps.x", &[("a", "v1"), ("b", "v1")])]);
    let status = written(&cluster.reconcile(&a_loop, Key::cluster("a")), "apps.x");
    assert_eq!(servers(&status), ["b"]);
    cluster.put::<StorageVersion>(&a_loop, version("apps.x", &[("b", "v1")]));
    assert!(cluster.reconcile(&a_loop, Key::cluster("b")).contains("delete "));
    // After a restart the StorageVersions that still name a deleted server are enqueued by themselves.
    let a_loop = the_loop(STORAGE_VERSIONS);
    let mut restarted = super::tests::cluster(STORAGE_VERSIONS, &[], &[]);
    assert_eq!(restarted.put::<StorageVersion>(&a_loop, version("apps.y", &[("a", "v1")])), ["apps.y"]);
}
