//! The runner: one migration of a resource at a time, and its CustomResourceDefinition.

use keleustes_objects::{ApiError, CustomResourceDefinition, ErrorReason};

use super::*;

fn item(group: &str, resource: &str) -> MigratedResource {
    MigratedResource { group: group.into(), resource: resource.into() }
}

fn reconcile(cluster: &mut RehearsalCluster) -> String {
    cluster.reconcile(&the_loop(RUNNER), item("example.org", "things"))
}

/// The names of the migrations whose status a reconcile writes, each with what becomes of it.
fn written(migrations: &[Value]) -> Vec<String> {
    let transcript = reconcile(&mut cluster(RUNNER, migrations));
    let beginning = "put storageversionmigrations.storagemigration.k8s.io/status ";
    let puts = transcript.lines().filter_map(|line| line.strip_prefix(beginning));
    puts.map(|line| line.split(": ").next().unwrap().to_owned()).collect()
}

const PROMOTED: &str = "because no other migration of the resource is running";
const CLEANED_UP: &str = "because the migration has ended";

fn definition(observed_generation: Option<i64>) -> Value {
    let mut definition = json!({
        "metadata": {"name": "things.example.org", "uid": "u-crd", "resourceVersion": "50", "generation": 3},
        "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
        "status": {"storedVersions": ["v1", "v2"], "conditions": [{"type": "Established", "status": "True"}]},
    });
    if let Some(generation) = observed_generation {
        let migrating =
            json!({"type": "StorageMigrating", "status": "True", "observedGeneration": generation});
        definition["status"]["conditions"].as_array_mut().unwrap().push(migrating);
    }
    definition
}

/// What a reconcile applies to the definition.
fn applied(cluster: &mut RehearsalCluster) -> Value {
    let beginning = "apply customresourcedefinitions.apiextensions.k8s.io/status ";
    let mut bodies = cluster.bodies(&the_loop(RUNNER), item("example.org", "things"), beginning);
    assert_eq!(bodies.len(), 1);
    let (name, body) = bodies.remove(0);
    assert_eq!(name, "things.example.org");
    assert_eq!(body["metadata"]["resourceVersion"], "50", "the apply has a precondition");
    body["status"].clone()
}

fn ended(r#type: &str) -> Value {
    json!({"conditions": [condition("Running", "True"), condition(r#type, "True")]})
}

/// Proves SVM-2, SVM-61.
#[test]
fn oldest_migration_is_promoted_and_ties_go_by_name() {
    let (old, new) = (migration("z", BEFORE, json!({})), migration("a", NOW, json!({})));
    assert_eq!(written(&[new.clone(), old.clone()]), [format!("z {PROMOTED}")]);
    let same = migration("b", NOW, json!({}));
    assert_eq!(written(&[same, new.clone()]), [format!("a {PROMOTED}")]);
    // Younger ones wait while one is running, whatever their order.
    let active = migration("m", NOW, running());
    assert!(written(&[old.clone(), active, new.clone()]).is_empty());
    // A terminating migration is promoted as any other.
    let mut terminating = old;
    terminating["metadata"]["deletionTimestamp"] = json!(NOW);
    assert_eq!(written(&[terminating, new]), [format!("z {PROMOTED}")]);
}

/// Proves SVM-1, SVM-2, SVM-3, SVM-72, SVM-90.
#[test]
fn ended_migrations_are_cleaned_up_before_the_next_is_promoted() {
    let next = migration("next", NOW, json!({}));
    for r#type in ["Succeeded", "Failed"] {
        let done = migration("done", BEFORE, ended(r#type));
        let expected = [format!("done {CLEANED_UP}"), format!("next {PROMOTED}")];
        assert_eq!(written(&[next.clone(), done.clone()]), expected);
        // A failed cleanup stops the pass.
        let error = ApiError::from_status(409, "Conflict", "changed", [], 0);
        let mut cluster = cluster(RUNNER, &[next.clone(), done]).failing::<StorageVersionMigration>(
            "update",
            &Key::cluster("done"),
            error,
        );
        let transcript = reconcile(&mut cluster);
        assert!(
            transcript.contains("FAILED: changed\nretry: ") && !transcript.contains("status next"),
            "{transcript}"
        );
        // One that was cleaned up is never touched again.
        let over = json!({"conditions": [condition("Running", "False"), condition(r#type, "True")]});
        assert!(written(&[migration("over", BEFORE, over)]).is_empty());
    }
    // Conditions that are not True do not count.
    let status = json!({"conditions": [condition("Running", "Unknown"), condition("Succeeded", "False")]});
    assert_eq!(written(&[migration("m", NOW, status)]), [format!("m {PROMOTED}")]);
}

/// Proves SVM-4, SVM-85.
#[test]
fn resources_are_independent_and_compared_literally() {
    let others = [
        of_resource(migration("a", BEFORE, running()), "example.com", "things"),
        of_resource(migration("b", BEFORE, running()), "example.org", "thing"),
        of_resource(migration("c", BEFORE, running()), "", "things"),
        of_resource(migration("d", BEFORE, json!({})), "example.org", "others"),
        migration("m", NOW, json!({})),
    ];
    assert_eq!(written(&others), [format!("m {PROMOTED}")]);
}

/// Proves SVM-6, SVM-66.
#[test]
fn promotion_sets_running_and_needs_no_definition() {
    let mut cluster = cluster(RUNNER, &[migration("m", NOW, json!({"later": 1}))]);
    let transcript = reconcile(&mut cluster);
    assert!(
        transcript.starts_with("get customresourcedefinitions.apiextensions.k8s.io things.example.org\n")
    );
    assert!(!transcript.contains("apply"), "{transcript}");
    let condition = json!({"type": "Running", "status": "True", "reason": "MigrationRunning",
        "message": "The migration is running", "lastTransitionTime": NOW});
    assert_eq!(written_status(&transcript, "m"), json!({"conditions": [condition], "later": 1}));
    let core = of_resource(migration("m", NOW, json!({})), "", "secrets");
    let transcript = super::cluster(RUNNER, &[core]).reconcile(&the_loop(RUNNER), item("", "secrets"));
    assert!(
        transcript.starts_with("get customresourcedefinitions.apiextensions.k8s.io secrets.\n"),
        "{transcript}"
    );
}

/// Proves SVM-88.
#[test]
fn unknown_fields_of_the_status_are_sent_back() {
    let status = json!({"later": {"a": 1}, "conditions": [
        {"type": "Running", "status": "True", "lastTransitionTime": LONG_AGO, "sinceWhen": "x"},
        {"type": "Succeeded", "status": "True", "lastTransitionTime": LONG_AGO, "more": 2}]});
    let written = written_status(&reconcile(&mut cluster(RUNNER, &[migration("m", NOW, status)])), "m");
    assert_eq!(written["later"], json!({"a": 1}));
    assert_eq!(
        (&written["conditions"][0]["sinceWhen"], &written["conditions"][1]["more"]),
        (&json!("x"), &json!(2))
    );
}

/// Proves SVM-7, SVM-65.
#[test]
fn cleanup_sets_running_to_false() {
    let mut done = migration("m", BEFORE, ended("Succeeded"));
    done["metadata"]["generation"] = json!(4);
    let transcript = reconcile(&mut cluster(RUNNER, &[done]));
    assert!(!transcript.contains("apply"), "the definition is gone: {transcript}");
    let status = written_status(&transcript, "m");
    let running = json!({"type": "Running", "status": "False", "reason": "MigrationCompleted",
        "message": "Migration completed", "lastTransitionTime": NOW, "observedGeneration": 4});
    assert_eq!(status["conditions"], json!([running, condition("Succeeded", "True")]));
}

/// Proves SVM-70.
#[test]
fn condition_that_was_set_to_false_by_hand_blocks_the_resource() {
    let stuck = json!({"conditions": [condition("Running", "False")]});
    let migrations = [migration("m", BEFORE, stuck.clone()), migration("younger", NOW, json!({}))];
    let transcript = reconcile(&mut cluster(RUNNER, &migrations));
    assert_eq!(written_status(&transcript, "m"), stuck);
    assert!(!transcript.contains("status younger"));
}

/// Proves SVM-5.
#[test]
fn definition_is_marked_before_the_migration_runs() {
    let with_definition = |migrations: &[Value]| {
        cluster(RUNNER, migrations).with_live::<CustomResourceDefinition>(definition(None))
    };
    let status = applied(&mut with_definition(&[migration("m", NOW, json!({}))]));
    let condition = json!({"type": "StorageMigrating", "status": "True", "reason": "MigrationRunning",
        "message": "Migration m is running", "observedGeneration": 3, "lastTransitionTime": NOW});
    assert_eq!(status["conditions"], json!([condition]));
    let transcript = reconcile(&mut with_definition(&[migration("m", NOW, json!({}))]));
    let place = |text: &str| transcript.find(text).unwrap_or_else(|| panic!("{text} in {transcript}"));
    assert!(place("apply customresourcedefinitions") < place("put storageversionmigrations"));
}

/// Proves SVM-8, SVM-9, SVM-63, SVM-64.
#[test]
fn stored_versions_are_trimmed_if_the_definition_did_not_change_meanwhile() {
    let end_of = |r#type: &str, observed: Option<i64>| {
        let mut cluster = cluster(RUNNER, &[migration("m", NOW, ended(r#type))])
            .with_live::<CustomResourceDefinition>(definition(observed));
        let status = applied(&mut cluster);
        assert_eq!(status["conditions"].as_array().unwrap().len(), 1, "other conditions are not applied");
        assert_eq!(status["conditions"][0]["observedGeneration"], 3);
        (conditions_of(&status).remove(0), status["storedVersions"].clone())
    };
    let succeeded = "StorageMigrating=False MigrationSucceeded: The migration has succeeded";
    assert_eq!(
        end_of("Succeeded", Some(3)),
        (format!("{succeeded} and the stored versions have been updated"), json!(["v2"]))
    );
    let mismatch =
        format!("{succeeded} but the stored versions have not been updated due to a generation mismatch");
    assert_eq!(end_of("Succeeded", Some(2)), (mismatch.clone(), json!(["v1", "v2"])));
    // Without the condition nothing is known about the generation at the start.
    assert_eq!(end_of("Succeeded", None), (mismatch, json!(["v1", "v2"])));
    let failed = "StorageMigrating=False MigrationFailed: The migration has failed".to_owned();
    assert_eq!(end_of("Failed", Some(3)), (failed.clone(), json!(["v1", "v2"])), "objects may remain in v1");
    assert_eq!(end_of("Failed", Some(2)), (failed, json!(["v1", "v2"])));
}

/// The first report has replaced the generation of the start.
#[test]
fn end_that_was_reported_is_not_reported_again() {
    let mut reported = definition(Some(3));
    let condition = &mut reported["status"]["conditions"][1];
    condition["status"] = json!("False");
    condition["reason"] = json!("MigrationSucceeded");
    let mut cluster = cluster(RUNNER, &[migration("m", NOW, ended("Succeeded"))])
        .with_live::<CustomResourceDefinition>(reported);
    let transcript = reconcile(&mut cluster);
    assert!(
        !transcript.contains("apply ") && transcript.contains("put storageversionmigrations"),
        "{transcript}"
    );
}

/// Proves SVM-75.
#[test]
fn stored_versions_stay_if_the_server_keeps_no_observed_generation() {
    let mut dropped = definition(Some(3));
    dropped["status"]["conditions"][1].as_object_mut().unwrap().remove("observedGeneration");
    let mut cluster = cluster(RUNNER, &[migration("m", NOW, ended("Succeeded"))])
        .with_live::<CustomResourceDefinition>(dropped);
    assert_eq!(applied(&mut cluster)["storedVersions"], json!(["v1", "v2"]));
}

/// Proves SVM-79.
#[test]
fn apply_at_the_start_keeps_the_stored_versions() {
    let mut trimmed = definition(Some(3));
    trimmed["status"]["storedVersions"] = json!(["v2"]);
    let mut cluster =
        cluster(RUNNER, &[migration("m", NOW, json!({}))]).with_live::<CustomResourceDefinition>(trimmed);
    assert_eq!(applied(&mut cluster)["storedVersions"], json!(["v2"]));
    let mut none = definition(None);
    none["status"]["storedVersions"] = json!([]);
    let mut cluster =
        super::cluster(RUNNER, &[migration("m", NOW, json!({}))]).with_live::<CustomResourceDefinition>(none);
    assert_eq!(applied(&mut cluster).get("storedVersions"), None);
}

/// Proves SVM-10.
#[test]
fn conflict_with_another_writer_of_the_definition_is_retried_five_times() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org";
    let conflict = ApiError::from_status(409, "Conflict", "changed", [], 0);
    let gets = |times: u32| {
        let mut cluster = cluster(RUNNER, &[migration("m", NOW, json!({}))])
            .with_live::<CustomResourceDefinition>(definition(None))
            .failing_at("patch", path, conflict.clone(), Some(times));
        let transcript = reconcile(&mut cluster);
        let promoted = transcript.contains(PROMOTED);
        (transcript.lines().filter(|line| line.starts_with("get ")).count(), promoted)
    };
    assert_eq!(gets(0), (1, true));
    assert_eq!(gets(4), (5, true));
    assert_eq!(gets(5), (5, false));
}

/// Proves SVM-78.
#[test]
fn failing_definition_keeps_the_migration_from_starting() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org";
    let of = |verb: &str, error: ApiError| {
        let mut cluster = cluster(RUNNER, &[migration("m", NOW, json!({}))])
            .with_live::<CustomResourceDefinition>(definition(None))
            .failing_at(verb, path, error, None);
        reconcile(&mut cluster)
    };
    let unavailable = ApiError::from_status(503, "ServiceUnavailable", "down", [], 0);
    for verb in ["get", "patch"] {
        let transcript = of(verb, unavailable.clone());
        assert!(transcript.contains("retry: ") && !transcript.contains("put "), "{transcript}");
    }
    // It disappears between the read and the apply: one pass fails.
    let gone = ApiError::transport(ErrorReason::NotFound, "gone");
    let transcript = of("patch", gone);
    assert!(transcript.ends_with("gone\n") && !transcript.contains("put "), "{transcript}");
}

/// Proves SVM-62.
#[test]
fn deleted_migration_makes_room_for_the_next() {
    let (a_loop, next) = (the_loop(RUNNER), migration("next", NOW, json!({})));
    let mut cluster = cluster(RUNNER, &[migration("m", BEFORE, running()), next])
        .with_live::<CustomResourceDefinition>(definition(Some(3)));
    assert_eq!(reconcile(&mut cluster), "");
    cluster.take::<StorageVersionMigration>(&a_loop, &Key::cluster("m"));
    assert!(reconcile(&mut cluster).contains(&format!("status next {PROMOTED}")));
    // With none left, nothing is written to the definition.
    cluster.take::<StorageVersionMigration>(&a_loop, &Key::cluster("next"));
    assert_eq!(reconcile(&mut cluster), "");
}
