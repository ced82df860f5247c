//! The resource version loop: the resourceVersion up to which a migration reaches.

use keleustes_objects::{ApiError, CustomResourceDefinition, Kind as _};
use std::time::Duration;

use super::*;

fn reconcile(cluster: &mut RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(RECORD), Key::cluster("m"))
}

fn result(migration: Value, discovered: DiscoveredResources) -> String {
    reconcile(&mut cluster(RECORD, &[migration]).with_discovery(Ok(discovered)))
}

fn failure(transcript: &str) -> String {
    let status = written_status(transcript, "m");
    assert!(status.get("resourceVersion").is_none());
    conditions_of(&status).into_iter().find(|one| one.starts_with("Failed=True")).expect("a failure")
}

const NOT_FOUND: &str = "retry: resource does not exist in our rest mapper, requeuing to attempt again\n";

/// Proves SVM-20, SVM-26, SVM-28, SVM-45, SVM-80.
#[test]
fn resource_version_of_an_empty_list_is_recorded() {
    let transcript = reconcile(&mut cluster(RECORD, &[migration("m", NOW, running())]));
    assert!(
        transcript.starts_with("discover\npage of at most 1 things.example.org in @fake:svm_ns!\nput "),
        "{transcript}"
    );
    assert_eq!(written_status(&transcript, "m"), at("1000"));
    for (name, status) in [
        ("not running", json!({})),
        ("not running", json!({"conditions": [condition("Running", "False")]})),
        ("terminal", json!({"conditions": [condition("Running", "True"), condition("Failed", "True")]})),
        ("terminal", json!({"conditions": [condition("Running", "True"), condition("Succeeded", "True")]})),
        ("known", at("12")),
    ] {
        assert_eq!(reconcile(&mut cluster(RECORD, &[migration("m", NOW, status)])), "", "{name}");
    }
    assert_eq!(reconcile(&mut cluster(RECORD, &[])), "", "deleted");
}

/// Proves SVM-26.
#[test]
fn cluster_scoped_resources_are_listed_plainly() {
    let mut nodes = served("example.org", "v1", "things", "Thing");
    nodes.resource.namespaced = false;
    let transcript = result(migration("m", NOW, running()), discovery(&[nodes.clone()]));
    assert!(transcript.contains("\npage of at most 1 things.example.org\n"), "{transcript}");
    let unavailable = ApiError::from_status(503, "ServiceUnavailable", "down", [], 0);
    let mut failing = cluster(RECORD, &[migration("m", NOW, running())])
        .with_discovery(Ok(discovery(&[nodes])))
        .failing_at("list", "/apis/example.org/v1/things", unavailable, None);
    let transcript = reconcile(&mut failing);
    let retry = "retry: error getting latest resourceVersion for example.org/v1, Resource=things: down\n";
    assert!(transcript.ends_with(retry) && !transcript.contains("put "), "{transcript}");
}

/// Proves SVM-21, SVM-74.
#[test]
fn first_listed_version_counts_and_other_spellings_do_not() {
    let two = [served("example.org", "v3", "things", "Thing"), things()];
    let transcript = result(migration("m", NOW, running()), discovery(&two));
    assert_eq!(written_status(&transcript, "m"), at("1000"));
    for (group, resource) in
        [("example.org", "thing"), ("example", "things"), ("", "things"), ("nope", "nopes")]
    {
        let other = of_resource(migration("m", NOW, running()), group, resource);
        assert_eq!(
            result(other, discovery(&[things()])),
            format!("discover\n{NOT_FOUND}"),
            "{group}/{resource}"
        );
    }
}

/// Proves SVM-21.
#[test]
fn failed_discovery_is_retried_without_limit() {
    let old = migration("m", LONG_AGO, running());
    let error = ApiError::from_status(503, "ServiceUnavailable", "down", [], 0);
    let mut cluster = cluster(RECORD, std::slice::from_ref(&old)).with_discovery(Err(error));
    assert_eq!(reconcile(&mut cluster), "retry: discovery failed: down\n");
    let mut partial = discovery(&[]);
    partial.failed.insert("example.org/v2".to_owned(), "stale".to_owned());
    let transcript = result(old.clone(), partial);
    assert!(transcript.starts_with("retry: ") && transcript.ends_with("stale\n"), "{transcript}");
    // The failure of another group says nothing about this one.
    let mut other = discovery(&[]);
    other.failed.insert("metrics.k8s.io/v1beta1".to_owned(), "down".to_owned());
    assert!(failure(&result(old, other)).ends_with(": resource does not exist in discovery"));
}

/// Proves SVM-22, SVM-81.
#[test]
fn resource_that_is_not_served_fails_a_migration_that_is_older_than_a_minute() {
    let none = || discovery(&[]);
    let expected = "Failed=True StorageVersionMigrationFailed: resource does not exist in discovery";
    assert!(result(migration("m", BEFORE, running()), none()).ends_with(NOT_FOUND));
    assert!(result(migration("m", "2027-01-15T07:59:01Z", running()), none()).ends_with(NOT_FOUND));
    assert_eq!(failure(&result(migration("m", "2027-01-15T07:59:00Z", running()), none())), expected);
    assert_eq!(failure(&result(migration("m", LONG_AGO, running()), none())), expected);
}

/// Proves SVM-22.
#[test]
fn missing_resource_is_discovered_again_every_ten_seconds() {
    let (a_loop, mut cluster) = (the_loop(RECORD), cluster(RECORD, &[migration("m", NOW, running())]));
    cluster = cluster.with_discovery(Ok(discovery(&[])));
    let mut discoveries = |by: u64| {
        cluster.advance_clock(Duration::from_secs(by));
        cluster.reconcile(&a_loop, Key::cluster("m")).matches("discover\n").count()
    };
    assert_eq!([0, 1, 9, 1, 10, 1].map(&mut discoveries), [1, 0, 0, 1, 0, 1]);
}

/// Proves SVM-23, SVM-25.
#[test]
fn resource_without_the_verbs_cannot_be_migrated() {
    let message = "Failed=True StorageVersionMigrationFailed: resource \"example.org/v2, Resource=things\" does not \
                   support discovery operations: [update patch list]";
    for missing in ["update", "patch", "list"] {
        let mut limited = things();
        limited.verbs.retain(|verb| verb != missing);
        let transcript = result(migration("m", NOW, running()), discovery(&[limited]));
        assert_eq!(failure(&transcript), message);
        assert!(!transcript.contains("page"), "{transcript}");
    }
    let mut enough = things();
    enough.verbs = ["list", "patch", "update"].map(str::to_owned).to_vec();
    assert_eq!(
        written_status(&result(migration("m", NOW, running()), discovery(&[enough])), "m"),
        at("1000")
    );
}

/// Proves SVM-24.
#[test]
fn version_that_vanishes_between_two_discoveries_fails_the_migration_and_errors_are_retried() {
    let resource = things().resource;
    let check = |discovered: &DiscoveredResources| super::super::served::is_migratable(discovered, &resource);
    assert_eq!(check(&discovery(&[])), Ok(false), "the version is not served");
    let mut failed = discovery(&[]);
    failed.failed.insert("example.org/v2".to_owned(), "down".to_owned());
    assert!(check(&failed).unwrap_err().because.ends_with("failed: down"));
    failed.resources.push(things());
    assert_eq!(check(&failed), Ok(true), "a partial answer lists it");
    let without = discovery(&[served("example.org", "v2", "others", "Other")]);
    let why = "resource \"example.org/v2, Resource=things\" not found in discovery";
    assert_eq!(check(&without).unwrap_err().because, why);
}

/// Proves SVM-27.
#[test]
fn malformed_resource_version_fails_the_migration() {
    for malformed in ["", "0", "012", "12a", "-1"] {
        let mut cluster = cluster(RECORD, &[migration("m", NOW, running())]).with_list_version(malformed);
        let message = format!(
            "Failed=True StorageVersionMigrationFailed: latest resourceVersion for example.org/v2, Resource=things is \
             not valid: resource version is not well formed: {malformed}"
        );
        assert_eq!(failure(&reconcile(&mut cluster)), message);
    }
}

/// Proves SVM-25.
#[test]
fn resources_are_printed_as_in_the_original() {
    let core = served("", "v1", "secrets", "Secret").resource;
    assert_eq!(super::super::served::gvr(&core), "/v1, Resource=secrets");
    let definitions = super::super::served::gvr(&CustomResourceDefinition::RESOURCE);
    assert_eq!(definitions, "apiextensions.k8s.io/v1, Resource=customresourcedefinitions");
}

/// Proves SVM-35.
#[test]
fn resource_versions_compare_as_integers_of_any_length() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let compare = |one: &str, other: &str| super::super::served::compare(&one.into(), &other.into());
    for (one, other, order) in [
        ("9", "10", Less),
        ("10", "9", Greater),
        ("10", "10", Equal),
        ("99999999999999999999", "100000000000000000000", Less),
        ("100000000000000000001", "100000000000000000000", Greater),
    ] {
        assert_eq!(compare(one, other), Ok(order));
    }
    assert_eq!(compare("0", "1"), Err("resource version is not well formed: 0".to_owned()));
    assert_eq!(compare("1", "x"), Err("resource version is not well formed: x".to_owned()));
    assert_eq!(compare("", "x"), Err("resource version is not well formed: ".to_owned()));
}
