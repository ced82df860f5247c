//! Which migration of a resource runs, up to which resourceVersion, and which objects are patched.
#![expect(clippy::needless_pass_by_value, reason = "JSON is written in place")]

mod migrations;
mod resource_versions;
mod running;

use keleustes_objects::{DiscoveredResources, GroupVersion};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{KindEntry, MonitorState, RateLimiter};
use serde_json::{Value, json};

use super::*;

/// The clock of a rehearsal: 1,800,000,000 seconds after 1970.
const NOW: &str = "2027-01-15T08:00:00Z";
const BEFORE: &str = "2027-01-15T07:59:30Z";
const LONG_AGO: &str = "2027-01-15T07:00:00Z";

const RUNNER: usize = 0;
const RECORD: usize = 1;
const MIGRATE: usize = 2;

fn the_controller() -> Controller {
    controller(&GarbageCollectorOptions::default()).unwrap().unwrap()
}

fn the_loop(index: usize) -> Loop {
    the_controller().loops.remove(index)
}

/// A migration of `things.example.org`.
fn migration(name: &str, created: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "7", "creationTimestamp": created,
                     "annotations": {"kept": "yes"}},
        "spec": {"resource": {"group": "example.org", "resource": "things"}}, "status": status,
    })
}

fn of_resource(mut migration: Value, group: &str, resource: &str) -> Value {
    migration["spec"]["resource"] = json!({"group": group, "resource": resource});
    migration
}

fn condition(r#type: &str, status: &str) -> Value {
    let reason = if r#type == "Running" { "MigrationRunning" } else { "Ended" };
    json!({"type": r#type, "status": status, "reason": reason, "message": "The migration is running",
           "lastTransitionTime": LONG_AGO})
}

fn running() -> Value {
    json!({"conditions": [condition("Running", "True")]})
}

/// The status of a migration whose resourceVersion is known.
fn at(resource_version: &str) -> Value {
    json!({"conditions": [condition("Running", "True")], "resourceVersion": resource_version})
}

fn served(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> ApiResource {
    ApiResource {
        resource: Resource::namespaced(group, version, plural, kind),
        preferred: true,
        singular: kind.to_lowercase(),
        verbs: ["create", "delete", "get", "list", "patch", "update", "watch"].map(str::to_owned).to_vec(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}

fn things() -> ApiResource {
    served("example.org", "v2", "things", "Thing")
}

fn discovery(resources: &[ApiResource]) -> DiscoveredResources {
    let version = |one: &ApiResource| GroupVersion {
        group: one.resource.group.to_string(),
        version: one.resource.version.to_string(),
        preferred: one.preferred,
    };
    DiscoveredResources {
        resources: resources.to_vec(),
        versions: resources.iter().map(version).collect(),
        ..DiscoveredResources::default()
    }
}

/// A cluster that serves `things.example.org`, whose monitor has reached the resourceVersion 1000.
fn cluster(index: usize, migrations: &[Value]) -> RehearsalCluster {
    let reached = MonitorState::Reached("1000".into());
    let cluster = RehearsalCluster::of(&the_loop(index))
        .with_discovery(Ok(discovery(&[things()])))
        .with_monitor(&things().resource, reached);
    migrations.iter().fold(cluster, |cluster, one| cluster.with::<StorageVersionMigration>(one.clone()))
}

/// The status that the last line of a transcript writes to a migration.
fn written_status(transcript: &str, name: &str) -> Value {
    let beginning = format!("put storageversionmigrations.storagemigration.k8s.io/status {name} because ");
    let line = transcript.lines().rfind(|line| line.starts_with(&beginning)).expect("a written status");
    let (_, body) = line.split_once(": {").expect("a body");
    let body: Value = serde_json::from_str(&format!("{{{body}")).expect("JSON");
    assert_eq!(body["metadata"]["annotations"], json!({"kept": "yes"}), "the whole metadata is sent");
    assert_eq!(body["metadata"]["resourceVersion"], "7", "the write has a precondition");
    body["status"].clone()
}

/// `type=status reason message` of every condition of a status.
fn conditions_of(status: &Value) -> Vec<String> {
    let text = |condition: &Value| {
        let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        format!("{}={} {}: {}", of("type"), of("status"), of("reason"), of("message"))
    };
    status["conditions"].as_array().into_iter().flatten().map(text).collect()
}

/// Proves SVM-51, SVM-86.
#[test]
fn three_loops_have_the_original_s_queues_workers_and_limits() {
    let controller = the_controller();
    let loops: Vec<_> = controller.loops.iter().map(|one| (one.queue, one.workers)).collect();
    assert_eq!(
        loops,
        [
            ("resource-version-controller", 1),
            ("resource-version-controller", 1),
            ("storage-version-migrator-controller", 5),
        ]
    );
    assert!(controller.loops.iter().all(|one| one.max_retries.is_none()));
    assert!(controller.loops.iter().all(|one| one.rate_limiter == RateLimiter::DEFAULT));
    assert_eq!((controller.qps_multiplier.qps, controller.qps_multiplier.burst), (20, 100));
    assert_eq!((controller.service_account, controller.event_component), (Some(NAME), None));
    assert!(controller.metrics.is_empty());
    assert_eq!(crate::names::aliases_of(controller.name), ["svm"]);
    // All wait for the cache of a kind that need not be served, and no other controller does.
    let kind = KindEntry::of::<StorageVersionMigration>();
    assert!(kind.projection().optional);
    assert!(controller.loops.iter().all(|one| one.reads == [kind.clone()] && one.starts_without.is_empty()));
}

/// Proves OPT-111.
#[test]
fn process_does_not_start_without_garbage_collector() {
    let disabled = GarbageCollectorOptions { enabled: false, ..GarbageCollectorOptions::default() };
    let error = controller(&disabled).err().unwrap();
    assert_eq!(
        (error.controller, &*error.to_string()),
        (NAME, "storage version migrator requires garbage collector")
    );
}

/// Proves SVM-73.
#[test]
fn monitors_observe_what_the_garbage_collector_observes() {
    let observer = the_controller().observer.unwrap();
    assert!(observer.ignores(&served("", "v1", "events", "Event")));
    assert!(observer.ignores(&served("events.k8s.io", "v1", "events", "Event")));
    assert!(!observer.ignores(&served("example.org", "v1", "events", "Event")));
    assert!(!observer.ignores(&things()));
    assert!(!observer.delays_start() && observer.queue().is_none());
}

#[test]
fn changes_enqueue_the_resource_or_the_migration() {
    let of = |index: usize| {
        let (a_loop, mut cluster) = (the_loop(index), cluster(index, &[]));
        let added = cluster.put::<StorageVersionMigration>(&a_loop, migration("m", NOW, json!({})));
        let updated = cluster.put::<StorageVersionMigration>(&a_loop, migration("m", NOW, running()));
        (added, updated, cluster.take::<StorageVersionMigration>(&a_loop, &Key::cluster("m")))
    };
    let resource = || vec!["example.org/things".to_owned()];
    let (added, updated, deleted) = of(RUNNER);
    assert_eq!((added, deleted), (resource(), resource()));
    assert!(!updated.is_empty() && updated.iter().all(|item| item == "example.org/things"));
    let name = || vec!["m".to_owned()];
    assert_eq!(of(RECORD), (name(), name(), Vec::new()));
    assert_eq!(of(MIGRATE), (name(), name(), Vec::new()));
}
