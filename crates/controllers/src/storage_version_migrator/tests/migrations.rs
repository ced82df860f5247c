//! The migration loop: which objects are patched, and how a migration ends.

use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::rehearsal::is_retried_because;

use super::*;

fn object(namespace: &str, name: &str, resource_version: &str) -> Value {
    let mut object = json!({"metadata": {"name": name, "resourceVersion": resource_version}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn with_objects(cluster: RehearsalCluster, objects: &[Value]) -> RehearsalCluster {
    let things = things().resource;
    objects.iter().fold(cluster, |cluster, one| cluster.with_live_resource(&things, one.clone()))
}

/// A cluster in which the migration `m` reaches up to the resourceVersion 100.
fn migrating(objects: &[Value]) -> RehearsalCluster {
    with_objects(cluster(MIGRATE, &[migration("m", NOW, at("100"))]), objects)
}

fn reconcile(cluster: &mut RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(MIGRATE), Key::cluster("m"))
}

/// The keys of the patched objects, in order.
fn patched(transcript: &str) -> Vec<String> {
    let patches = transcript.lines().filter_map(|line| line.strip_prefix("patch things.example.org "));
    patches.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn conditions_after(transcript: &str) -> Vec<String> {
    conditions_of(&written_status(transcript, "m"))
}

const SUCCEEDED: &str = "Succeeded=True StorageVersionMigrationSucceeded: Migration completed";

fn path(namespace: &str, name: &str) -> String {
    things().resource.object_path(&Key::namespaced(namespace, name))
}

fn status(code: u16, reason: &str, message: &str) -> ApiError {
    ApiError::from_status(code, reason, message, [], 0)
}

/// Proves SVM-36, SVM-37, SVM-42, SVM-44, SVM-45.
#[test]
fn objects_that_are_not_newer_get_an_empty_patch_with_their_resource_version() {
    let objects = [
        object("a", "old", "99"),
        object("b", "same", "100"),
        object("b", "newer", "101"),
        object("b", "long", "99999999999999999999"),
    ];
    let transcript = reconcile(&mut migrating(&objects));
    let patch = |key: &str, version: &str| {
        let body = json!({"kind": "Thing", "apiVersion": "example.org/v2", "metadata": {"resourceVersion": version}});
        format!("patch things.example.org {key} because its resource is migrated: {body}")
    };
    let lines: Vec<_> = transcript.lines().collect();
    assert_eq!(lines[0], "page of at most 500 things.example.org");
    assert_eq!(lines[1..3], [patch("a/old", "99"), patch("b/same", "100")]);
    assert_eq!(lines.len(), 4, "{transcript}");
    let status = written_status(&transcript, "m");
    let message = "Running=True MigrationRunning: The migration is running, 4 objects verified migrated";
    assert_eq!(conditions_of(&status), [message, SUCCEEDED]);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], LONG_AGO, "the status did not flip");
    assert_eq!(
        (&status["conditions"][1]["lastTransitionTime"], &status["resourceVersion"]),
        (&json!(NOW), &json!("100"))
    );
}

/// Proves SVM-30, SVM-71, SVM-72.
#[test]
fn only_migrations_with_a_resource_version_that_have_not_ended_are_migrated() {
    for status in [
        json!({}),
        running(),
        json!({"conditions": [condition("Succeeded", "True")], "resourceVersion": "100"}),
        json!({"conditions": [condition("Running", "True"), condition("Failed", "True")], "resourceVersion": "100"}),
    ] {
        let mut cluster =
            with_objects(cluster(MIGRATE, &[migration("m", NOW, status)]), &[object("a", "x", "1")]);
        assert_eq!(reconcile(&mut cluster), "");
    }
    assert_eq!(reconcile(&mut cluster(MIGRATE, &[])), "");
    // Running is not looked at.
    let by_hand = migration("m", NOW, json!({"resourceVersion": "100"}));
    let transcript = reconcile(&mut with_objects(cluster(MIGRATE, &[by_hand]), &[object("a", "x", "1")]));
    assert_eq!(patched(&transcript), ["a/x"]);
    assert_eq!(conditions_after(&transcript).len(), 2);
}

/// Proves SVM-67.
#[test]
fn empty_resource_succeeds_at_once() {
    let transcript = reconcile(&mut migrating(&[]));
    assert_eq!(
        conditions_after(&transcript),
        ["Running=True MigrationRunning: The migration is running", SUCCEEDED]
    );
}

/// Proves SVM-31.
#[test]
fn resource_that_is_no_longer_served_fails_the_migration_after_a_minute() {
    let of = |created: &str| {
        let mut cluster = cluster(MIGRATE, &[migration("m", created, at("100"))]);
        cluster = cluster.with_discovery(Ok(discovery(&[])));
        reconcile(&mut cluster)
    };
    assert_eq!(of(BEFORE), "retry: resource does not exist in rest mapper, requeuing to attempt again\n");
    let failed = "Failed=True StorageVersionMigrationFailed: migration encountered unhandled error: unable to obtain \
                  GVR from discovery";
    assert_eq!(conditions_after(&of(LONG_AGO))[1], failed);
}

/// Proves SVM-32, SVM-85.
#[test]
fn resource_without_a_monitor_is_retried_forever() {
    for created in [NOW, LONG_AGO] {
        let mut cluster = cluster(MIGRATE, &[migration("m", created, at("100"))])
            .with_monitor(&things().resource, MonitorState::Missing);
        let expected = "retry: no monitor found for resource example.org/v2, Resource=things\n";
        assert_eq!(reconcile(&mut cluster), expected);
    }
    // The monitor of another version does not count.
    let v1 = served("example.org", "v1", "things", "Thing").resource;
    let mut cluster = cluster(MIGRATE, &[migration("m", NOW, at("100"))])
        .with_monitor(&things().resource, MonitorState::Missing)
        .with_monitor(&v1, MonitorState::Reached("1000".into()));
    assert!(reconcile(&mut cluster).starts_with("retry: no monitor found"));
}

/// Proves SVM-33, SVM-43, SVM-81.
#[test]
fn monitor_that_is_not_synced_fails_an_old_migration() {
    let of = |created: &str| {
        let cluster = cluster(MIGRATE, &[migration("m", created, at("100"))]);
        reconcile(&mut cluster.with_monitor(&things().resource, MonitorState::Listing))
    };
    assert_eq!(of(BEFORE), "retry: resource does not exist in GC, requeuing to attempt again\n");
    let failed = "Failed=True StorageVersionMigrationFailed: migration encountered unhandled error: resource does not \
                  exist in GC: %!w(<nil>)";
    assert_eq!(conditions_after(&of(LONG_AGO))[1], failed);
}

/// Proves SVM-34.
#[test]
fn migration_waits_until_the_monitor_has_reached_its_resource_version() {
    let of = |reached: &str| {
        let cluster = migrating(&[object("a", "x", "1")]);
        reconcile(&mut cluster.with_monitor(&things().resource, MonitorState::Reached(reached.into())))
    };
    assert_eq!(
        of("99"),
        "retry: GC cache is not up to date, requeuing to attempt again. gcListResourceVersion: 99, \
         listResourceVersion: 100\n"
    );
    assert_eq!((patched(&of("100")).len(), patched(&of("101")).len()), (1, 1));
    let failed = "Failed=True StorageVersionMigrationFailed: migration encountered unhandled error: error comparing \
                  resource versions between GC and SVM resource: resource version is not well formed: x";
    assert_eq!(conditions_after(&of("x"))[1], failed);
}

/// Proves SVM-36.
#[test]
fn object_with_a_malformed_resource_version_fails_the_migration() {
    let transcript = reconcile(&mut migrating(&[object("a", "good", "1"), object("a", "odd", "1a")]));
    assert!(patched(&transcript).is_empty());
    let failed = "Failed=True StorageVersionMigrationFailed: migration encountered unhandled error: resource version \
                  is not well formed: 1a";
    assert_eq!(conditions_after(&transcript)[1], failed);
}

/// Proves SVM-38, SVM-69.
#[test]
fn objects_that_were_changed_or_deleted_meanwhile_are_done() {
    let objects = [object("a", "changed", "1"), object("a", "gone", "2"), object("a", "same", "3")];
    let mut cluster = migrating(&objects)
        .failing_at("patch", &path("a", "changed"), status(409, "Conflict", "changed"), None)
        .failing_at("patch", &path("a", "gone"), status(404, "NotFound", "gone"), None);
    let transcript = reconcile(&mut cluster);
    assert_eq!(patched(&transcript), ["a/changed", "a/gone", "a/same"]);
    let running = "Running=True MigrationRunning: The migration is running, 3 objects verified migrated";
    assert_eq!(conditions_after(&transcript), [running, SUCCEEDED]);
}

/// Proves SVM-39, SVM-44, SVM-82.
#[test]
fn transient_errors_are_reported_and_retried() {
    let objects = [object("a", "a", "1"), object("a", "b", "2"), object("a", "c", "300")];
    for error in [
        status(500, "InternalError", "boom"),
        status(503, "ServiceUnavailable", "boom"),
        status(504, "Timeout", "boom"),
        status(500, "ServerTimeout", "boom"),
        status(429, "TooManyRequests", "boom"),
        status(500, "", "boom"),
        status(503, "", "boom"),
        status(504, "", "boom"),
        ApiError { reason: ErrorReason::Other, ..status(429, "", "boom") },
        ApiError::transport(ErrorReason::ConnectionLost, "boom"),
        ApiError::transport(ErrorReason::ConnectionRefused, "boom"),
    ] {
        let mut cluster = migrating(&objects).failing_at("patch", &path("a", "b"), error.clone(), None);
        let transcript = reconcile(&mut cluster);
        assert_eq!(patched(&transcript), ["a/a", "a/b"], "{error:?}");
        let running = "Running=True MigrationRunning: The migration is running, 1/3 objects not yet migrated; \
                       transient error: boom";
        assert_eq!(conditions_after(&transcript), [running], "{error:?}");
        assert!(is_retried_because(&transcript, "boom"), "{transcript}");
    }
}

/// Proves SVM-39, SVM-68.
#[test]
fn retry_continues_with_the_object_that_failed() {
    let objects = [object("a", "a", "1"), object("a", "b", "2"), object("a", "c", "3")];
    let mut cluster = migrating(&objects).failing_at(
        "patch",
        &path("a", "b"),
        status(503, "ServiceUnavailable", "down"),
        Some(1),
    );
    let (a_loop, item) = (the_loop(MIGRATE), Key::cluster("m"));
    assert_eq!(patched(&cluster.reconcile(&a_loop, item.clone())), ["a/a", "a/b"]);
    let second = cluster.reconcile(&a_loop, item.clone());
    assert_eq!(patched(&second), ["a/b", "a/c"]);
    assert!(!second.contains("page"), "{second}");
    assert_eq!(conditions_after(&second)[1], SUCCEEDED);
    // A new process begins again; patches of objects that were rewritten meanwhile conflict.
    assert_eq!(patched(&cluster.reconcile(&the_loop(MIGRATE), item)).len(), 3);
}

/// Proves SVM-39, SVM-83.
#[test]
fn failed_write_of_a_transient_error_changes_nothing() {
    let svm = "/apis/storagemigration.k8s.io/v1/storageversionmigrations/m";
    let mut cluster = migrating(&[object("a", "a", "1")])
        .failing_at("patch", &path("a", "a"), status(503, "ServiceUnavailable", "down"), None)
        .failing_at("update", svm, status(409, "Conflict", "changed"), None);
    assert!(is_retried_because(&reconcile(&mut cluster), "down"));
    // A write that was not sent, because the process does not lead any more, does not fail the migration either.
    let not_sent = ApiError::transport(ErrorReason::Other, "not sent: this process does not lead any more");
    let mut cluster =
        migrating(&[object("a", "a", "1")]).failing_at("patch", &path("a", "a"), not_sent, None);
    assert!(!reconcile(&mut cluster).contains("Failed"));
}

/// Proves SVM-41, SVM-77.
#[test]
fn other_errors_end_the_migration_at_the_first_object() {
    let objects =
        [object("a", "a", "1"), object("a", "b", "2"), object("a", "c", "3"), object("a", "d", "200")];
    for error in [
        status(403, "Forbidden", "denied"),
        status(400, "BadRequest", "denied"),
        status(422, "Invalid", "denied"),
        status(401, "Unauthorized", "denied"),
    ] {
        let mut cluster = migrating(&objects).failing_at("patch", &path("a", "b"), error, None);
        let transcript = reconcile(&mut cluster);
        assert_eq!(patched(&transcript), ["a/a", "a/b"]);
        assert_eq!(
            conditions_after(&transcript),
            [
                "Running=True MigrationRunning: The migration is running, 2/4 objects not yet migrated",
                "Failed=True StorageVersionMigrationFailed: 2/4 not yet migrated. migration encountered unhandled \
                 error: denied",
            ]
        );
        assert!(!transcript.contains("retry: "), "{transcript}");
        assert_eq!(transcript.matches("put storageversionmigrations").count(), 1);
    }
}

/// Proves SVM-41.
#[test]
fn failure_that_cannot_be_recorded_is_retried() {
    let svm = "/apis/storagemigration.k8s.io/v1/storageversionmigrations/m";
    let mut cluster = migrating(&[object("a", "a", "1")])
        .failing_at("patch", &path("a", "a"), status(403, "Forbidden", "denied"), Some(1))
        .failing_at("update", svm, status(503, "ServiceUnavailable", "down"), Some(1));
    let (a_loop, item) = (the_loop(MIGRATE), Key::cluster("m"));
    assert!(is_retried_because(&cluster.reconcile(&a_loop, item.clone()), "down"));
    let second = cluster.reconcile(&a_loop, item);
    assert_eq!(
        (patched(&second), conditions_after(&second)[1].as_str()),
        (vec!["a/a".to_owned()], SUCCEEDED)
    );
}

/// Proves SVM-84.
#[test]
fn conflict_of_the_closing_update_repeats_the_update() {
    let svm = "/apis/storagemigration.k8s.io/v1/storageversionmigrations/m";
    let mut cluster = migrating(&[object("a", "a", "1")]).failing_at(
        "update",
        svm,
        status(409, "Conflict", "changed"),
        Some(1),
    );
    let (a_loop, item) = (the_loop(MIGRATE), Key::cluster("m"));
    assert!(is_retried_because(&cluster.reconcile(&a_loop, item.clone()), "changed"));
    let second = cluster.reconcile(&a_loop, item);
    assert!(patched(&second).is_empty(), "{second}");
    assert_eq!(conditions_after(&second)[1], SUCCEEDED);
}

/// Proves SVM-68, SVM-90.
#[test]
fn new_process_verifies_all_objects_again_before_the_closing_update() {
    let svm = "/apis/storagemigration.k8s.io/v1/storageversionmigrations/m";
    let mut cluster = migrating(&[object("a", "a", "1"), object("a", "b", "2"), object("b", "c", "101")])
        .failing_at("update", svm, status(503, "ServiceUnavailable", "down"), Some(1));
    let first = reconcile(&mut cluster);
    assert_eq!(patched(&first), ["a/a", "a/b"]);
    assert!(is_retried_because(&first, "down"), "{first}");
    // The patches have written the objects, and another one was created meanwhile.
    let written = [object("a", "a", "102"), object("a", "b", "103"), object("b", "d", "104")];
    let second = reconcile(&mut with_objects(cluster, &written));
    assert!(second.starts_with("page of at most 500 things.example.org\n"), "{second}");
    assert!(patched(&second).is_empty(), "{second}");
    let running = "Running=True MigrationRunning: The migration is running, 4 objects verified migrated";
    assert_eq!(conditions_after(&second), [running, SUCCEEDED]);
}

/// Proves SVM-40.
#[test]
fn retry_after_of_the_server_is_obeyed() {
    let error = ApiError::from_status(429, "TooManyRequests", "slow down", [], 7);
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    let retry = keleustes_plan::ReconcileError::from_api_error(&error, "x");
    assert_eq!(retry.retry_after, Some(Duration::from_secs(7)));
    let mut cluster = migrating(&[object("a", "a", "1")]).failing_at("patch", &path("a", "a"), error, None);
    let requeue = cluster.requeue(&the_loop(MIGRATE), Key::cluster("m"));
    assert_eq!(requeue.unwrap_err().retry_after, Some(Duration::from_secs(7)));
}

/// Proves SVM-37, SVM-89.
#[test]
fn objects_of_all_namespaces_are_patched_whatever_their_state() {
    let mut terminating = object("b", "terminating", "2");
    terminating["metadata"]["deletionTimestamp"] = json!(NOW);
    terminating["metadata"]["finalizers"] = json!(["example.org/hold"]);
    let mut immutable = object("c", "immutable", "3");
    immutable["immutable"] = json!(true);
    let transcript =
        reconcile(&mut migrating(&[object("a", "system:node role", "1"), terminating, immutable]));
    let lines: Vec<_> = transcript.lines().filter(|line| line.starts_with("patch ")).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("patch things.example.org a/system:node role because"));
    let key = Key::namespaced("a", "system:node role");
    let path = things().resource.object_path(&key);
    assert_eq!(path, "/apis/example.org/v2/namespaces/a/things/system:node%20role");
}

#[test]
fn large_resource_is_listed_in_pages_and_patched_in_slices() {
    let objects: Vec<_> = (0..1201).map(|n| object("a", &format!("n{n:04}"), "5")).collect();
    let (a_loop, item) = (the_loop(MIGRATE), Key::cluster("m"));
    let mut cluster = migrating(&objects);
    let first = cluster.reconcile(&a_loop, item.clone());
    assert_eq!(first.matches("page of at most 500").count(), 3);
    assert!(
        first.ends_with("requeue after 0ns\n") && !first.contains("put "),
        "another migration gets the worker"
    );
    let mut all = patched(&first);
    assert_eq!(all.len(), super::super::migration::SLICE);
    for _ in 0..11 {
        let next = cluster.reconcile(&a_loop, item.clone());
        assert!(next.ends_with("requeue after 0ns\n") && !next.contains("page"), "{next}");
        all.extend(patched(&next));
    }
    let last = cluster.reconcile(&a_loop, item);
    all.extend(patched(&last));
    assert_eq!(
        all,
        objects
            .iter()
            .map(|one| format!("a/{}", one["metadata"]["name"].as_str().unwrap()))
            .collect::<Vec<_>>()
    );
    let running = "Running=True MigrationRunning: The migration is running, 1201 objects verified migrated";
    assert_eq!(conditions_after(&last), [running, SUCCEEDED]);
}

#[test]
fn expired_continue_token_leads_to_a_list_without_pages() {
    let mut cluster = migrating(&[object("a", "a", "1")]).failing_at(
        "list",
        "/apis/example.org/v2/things",
        status(410, "Expired", "too old"),
        Some(1),
    );
    let transcript = reconcile(&mut cluster);
    assert!(transcript.starts_with("page of at most 500 things.example.org\npage things.example.org\n"));
    assert_eq!(patched(&transcript), ["a/a"]);
}

/// Proves SVM-87.
#[test]
fn failing_list_of_one_resource_does_not_end_its_migration() {
    let mut cluster = migrating(&[object("a", "a", "1")]).failing_at(
        "list",
        "/apis/example.org/v2/things",
        status(500, "InternalError", "conversion webhook failed"),
        None,
    );
    let transcript = reconcile(&mut cluster);
    assert!(is_retried_because(&transcript, "conversion webhook failed") && !transcript.contains("put "));
}

#[test]
fn deleted_migration_is_not_continued() {
    let objects: Vec<_> = (0..150).map(|n| object("a", &format!("n{n:04}"), "5")).collect();
    let (a_loop, item) = (the_loop(MIGRATE), Key::cluster("m"));
    let mut cluster = migrating(&objects);
    assert_eq!(patched(&cluster.reconcile(&a_loop, item.clone())).len(), 100);
    cluster.take::<StorageVersionMigration>(&a_loop, &item);
    assert_eq!(cluster.reconcile(&a_loop, item.clone()), "");
    // One of the same name with another UID begins with its own list.
    let mut again = migration("m", NOW, at("100"));
    again["metadata"]["uid"] = json!("another");
    cluster.put::<StorageVersionMigration>(&a_loop, again);
    assert!(cluster.reconcile(&a_loop, item).starts_with("page "));
}

/// Proves SVM-91.
#[test]
fn webhook_that_cannot_be_reached_keeps_the_migration_running() {
    let message = "Internal error occurred: failed calling webhook \"a.example.org\": connection refused";
    let mut cluster = migrating(&[object("a", "a", "1")]).failing_at(
        "patch",
        &path("a", "a"),
        status(500, "InternalError", message),
        None,
    );
    let (a_loop, item) = (the_loop(MIGRATE), Key::cluster("m"));
    let running = format!(
        "Running=True MigrationRunning: The migration is running, 1/1 objects not yet migrated; transient error: {message}"
    );
    for _ in 0..3 {
        let transcript = cluster.reconcile(&a_loop, item.clone());
        assert_eq!(conditions_after(&transcript), [running.as_str()]);
        assert!(is_retried_because(&transcript, message));
    }
    // The same message is not written again.
    let mut status = at("100");
    status["conditions"][0]["message"] = json!(running.split_once(": ").unwrap().1);
    let mut written = migration("m", NOW, status);
    written["metadata"]["resourceVersion"] = json!("8");
    cluster.put::<StorageVersionMigration>(&a_loop, written);
    assert!(!cluster.reconcile(&a_loop, item).contains("put "));
}
