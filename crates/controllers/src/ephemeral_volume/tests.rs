//! Pods with ephemeral volumes, and claims that exist, are missing or belong to others.

use keleustes_objects::{ApiError, ErrorReason};
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;

use super::*;

const GET: &str = "get pods a/p\n";
const COUNTED: &str = "measure ephemeral_volume_controller_create_total{} 1\n";
const FAILED: &str = "measure ephemeral_volume_controller_create_failures_total{} 1\n";
const CREATED: &str = "create persistentvolumeclaims a/p-v because an ephemeral volume has no claim\n";

fn the_loop() -> Loop {
    controller(EphemeralVolumeOptions::default()).loops.remove(0)
}

fn key() -> Key {
    Key::namespaced("a", "p")
}

/// A pod with these ephemeral volumes, and one that is not ephemeral.
fn pod(volumes: &[&str]) -> Value {
    let ephemeral = volumes.iter().map(|name| {
        json!({"name": name, "ephemeral": {"volumeClaimTemplate": {
            "metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}, "finalizers": ["x/y"], "name": "other"},
            "spec": {"accessModes": ["ReadWriteOnce"], "unknownToThisRelease": {"x": 1},
                     "resources": {"requests": {"storage": "1Gi"}}},
        }}})
    });
    let mut all = vec![json!({"name": "tmp", "emptyDir": {}})];
    all.extend(ephemeral);
    json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "p-uid", "resourceVersion": "3"},
        "spec": {"volumes": all}, "status": {"phase": "Pending"},
    })
}

/// A claim controlled by a pod of this UID.
fn claim(name: &str, owner: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": "c", "resourceVersion": "5", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]},
        "spec": {"accessModes": ["ReadOnlyMany"]},
    })
}

fn terminating(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:00:00Z");
    pod
}

fn cluster(pod: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop()).with::<Pod>(pod)
}

fn sync(mut cluster: RehearsalCluster) -> String {
    cluster.outline(&the_loop(), key())
}

/// The transcript of a failure, as event and as error of the reconcile.
fn failure(volume: &str, message: &str) -> String {
    format!(
        "event Warning FailedBinding on Pod a/p uid=p-uid: ephemeral volume {volume}: {message}\n\
         retry: pod a/p, ephemeral volume {volume}: {message}\n"
    )
}

/// Proves EPH-1, EPH-4, EPH-5, EPH-20, EPH-27.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller(EphemeralVolumeOptions { workers: 7 });
    assert_eq!(controller.name, "ephemeral-volume-controller");
    assert_eq!(
        (crate::names::aliases_of(controller.name), controller.service_account),
        (&["ephemeral-volume"][..], Some("ephemeral-volume-controller"))
    );
    assert!(controller.debug_handler.is_none());
    let verbs = |resource: &str| {
        let grants = controller.grants.iter().filter(|grant| grant.resource == resource);
        grants.flat_map(|grant| grant.verbs.iter().copied()).collect::<Vec<_>>()
    };
    assert_eq!(verbs("persistentvolumeclaims"), ["create", "get", "list", "watch"], "no update, no delete");
    assert_eq!(verbs("pods/finalizers"), ["update"]);
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("ephemeral_volume", 7, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    assert_eq!(EphemeralVolumeOptions::default().workers, 5);
    let kinds: Vec<_> = a_loop.watches.iter().map(|watch| watch.kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["pods", "persistentvolumeclaims"]);
    assert!(a_loop.starts_without.is_empty(), "both caches are synced first");
}

/// Proves EPH-2, EPH-42, EPH-43.
#[test]
fn only_new_pods_with_ephemeral_volumes_are_enqueued() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    assert_eq!(cluster.put::<Pod>(&a_loop, pod(&["v"])), ["a/p"]);
    let mut update = pod(&["v"]);
    update["metadata"]["resourceVersion"] = json!("4");
    assert!(cluster.put::<Pod>(&a_loop, update.clone()).is_empty(), "an update");
    let cached = cluster.view().get::<Pod>(&key()).unwrap().clone();
    assert!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty());
    update["metadata"]["uid"] = json!("another");
    update["metadata"]["resourceVersion"] = json!("5");
    assert_eq!(cluster.put::<Pod>(&a_loop, update), ["a/p"], "a new pod of the same name");
    assert!(cluster.take::<Pod>(&a_loop, &key()).is_empty(), "a deletion");
    assert!(cluster.put::<Pod>(&a_loop, pod(&[])).is_empty(), "no ephemeral volume");
    cluster.take::<Pod>(&a_loop, &key());
    assert!(cluster.put::<Pod>(&a_loop, terminating(pod(&["v"]))).is_empty());
    // Claims that come or change do not shorten the backoff of a failing pod.
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("p-v", "other")).is_empty());
    let mut own = claim("p-v", "p-uid");
    own["metadata"]["resourceVersion"] = json!("6");
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, own).is_empty());
}

/// Proves EPH-3, EPH-30, EPH-32, EPH-40, EPH-46.
#[test]
fn deleted_claim_enqueues_the_pods_that_refer_to_it() {
    let a_loop = the_loop();
    let mut names_it = pod(&["other"]);
    names_it["metadata"]["name"] = json!("q");
    names_it["spec"]["volumes"][0] = json!({"name": "d", "persistentVolumeClaim": {"claimName": "p-v"}});
    let mut plain = names_it.clone();
    plain["metadata"]["name"] = json!("r");
    plain["spec"]["volumes"].as_array_mut().unwrap().truncate(1);
    let claim_key = Key::namespaced("a", "p-v");
    let mut cluster = cluster(pod(&["v"]))
        .with::<Pod>(names_it)
        .with::<Pod>(plain)
        .with::<PersistentVolumeClaim>(claim("p-v", "p-uid"));
    assert_eq!(cluster.reconcile(&a_loop, key()), "");
    assert_eq!(cluster.take::<PersistentVolumeClaim>(&a_loop, &claim_key), ["a/p", "a/q"]);
    assert_eq!(cluster.outline(&a_loop, key()), format!("{GET}{COUNTED}{CREATED}"), "created again");
    // A relist that no longer shows the claim is a deletion like any other.
    let last: PersistentVolumeClaim = serde_json::from_value(claim("p-v", "old")).unwrap();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(last.into())), ["a/p", "a/q"]);
    let mut cluster =
        super::tests::cluster(terminating(pod(&["v"]))).with::<PersistentVolumeClaim>(claim("p-v", "p-uid"));
    assert!(cluster.take::<PersistentVolumeClaim>(&a_loop, &claim_key).is_empty(), "the pod is terminating");
}

/// Proves EPH-10, EPH-36, EPH-44.
#[test]
fn nothing_is_created_for_a_terminating_pod() {
    assert_eq!(sync(RehearsalCluster::of(&the_loop())), "");
    assert_eq!(sync(cluster(terminating(pod(&["v"])))), "");
    // Nor if only the API server knows.
    let mut replaced = pod(&["v"]);
    replaced["metadata"]["uid"] = json!("another");
    for live in [terminating(pod(&["v"])), replaced] {
        let cluster =
            RehearsalCluster::of(&the_loop()).with_cached::<Pod>(pod(&["v"])).with_live::<Pod>(live);
        assert_eq!(sync(cluster), GET);
    }
    assert_eq!(sync(RehearsalCluster::of(&the_loop()).with_cached::<Pod>(pod(&["v"]))), GET, "gone");
}

/// Proves EPH-12, EPH-13, EPH-16, EPH-17, EPH-18, EPH-31, EPH-45.
#[test]
fn claim_is_the_template_owned_by_the_pod() {
    let a_loop = the_loop();
    let mut cluster = cluster(pod(&["v"]));
    let created = cluster.bodies(&a_loop, key(), "create persistentvolumeclaims ");
    let wanted = json!({
        "metadata": {
            "name": "p-v", "namespace": "a", "labels": {"l": "1"}, "annotations": {"a": "2"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid",
                                 "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"accessModes": ["ReadWriteOnce"], "unknownToThisRelease": {"x": 1},
                 "resources": {"requests": {"storage": "1Gi"}}},
    });
    assert_eq!(created, [("p-v".to_owned(), wanted)]);
    let mut bare = pod(&["v"]);
    bare["spec"]["volumes"][1]["ephemeral"]["volumeClaimTemplate"]["metadata"] = Value::Null;
    let mut cluster = super::tests::cluster(bare);
    let created = cluster.bodies(&a_loop, key(), "create persistentvolumeclaims ");
    assert!(created[0].1["metadata"].get("labels").is_none());
}

/// Proves EPH-14, EPH-38.
#[test]
fn own_claim_costs_no_request() {
    assert_eq!(sync(cluster(pod(&["v"])).with::<PersistentVolumeClaim>(claim("p-v", "p-uid"))), "");
    let deleted = terminating(claim("p-v", "p-uid"));
    assert_eq!(
        sync(cluster(pod(&["v"])).with::<PersistentVolumeClaim>(deleted)),
        "",
        "also if it is deleted"
    );
}

/// Proves EPH-15, EPH-25, EPH-26, EPH-33, EPH-34.
#[test]
fn claim_that_the_pod_does_not_control_is_never_used() {
    let taken = failure("v", "PVC a/p-v was not created for pod a/p (pod is not owner)");
    let mut owned_only = claim("p-v", "p-uid");
    owned_only["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    let mut unowned = claim("p-v", "x");
    unowned["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    for claim in [claim("p-v", "another"), owned_only, unowned] {
        let mut cluster = cluster(pod(&["v"])).with::<PersistentVolumeClaim>(claim.clone());
        assert_eq!(cluster.reconcile(&the_loop(), key()), taken);
        let live = cluster.live_object::<PersistentVolumeClaim>(&Key::namespaced("a", "p-v"));
        assert_eq!(live, Some(&claim));
    }
    let controller = controller(EphemeralVolumeOptions::default());
    assert_eq!(controller.event_component, Some("ephemeral_volume"));
    let names: Vec<_> = controller.metrics.iter().map(|metric| metric.name).collect();
    assert_eq!(
        names,
        ["ephemeral_volume_controller_create_total", "ephemeral_volume_controller_create_failures_total"]
    );
}

/// Proves EPH-35.
#[test]
fn claim_of_another_namespace_is_another_claim() {
    let mut elsewhere = claim("p-v", "another");
    elsewhere["metadata"]["namespace"] = json!("b");
    let cluster = cluster(pod(&["v"])).with::<PersistentVolumeClaim>(elsewhere);
    assert_eq!(sync(cluster), format!("{GET}{COUNTED}{CREATED}"));
}

/// Proves EPH-19, EPH-39.
#[test]
fn finished_and_unscheduled_pods_get_their_claims() {
    for phase in ["Pending", "Succeeded", "Failed"] {
        let mut pod = pod(&["v"]);
        pod["status"]["phase"] = json!(phase);
        assert_eq!(sync(cluster(pod)), format!("{GET}{COUNTED}{CREATED}"), "{phase}");
    }
}

/// Proves EPH-21, EPH-25, EPH-26, EPH-44.
#[test]
fn refused_claim_is_an_event_and_is_retried() {
    let claim_key = Key::namespaced("a", "p-v");
    for reason in [
        ErrorReason::AlreadyExists,
        ErrorReason::Forbidden,
        ErrorReason::NamespaceTerminating,
        ErrorReason::Invalid,
    ] {
        let error = ApiError { reason, code: 403, message: "exceeded quota".to_owned(), retry_after: None };
        let cluster = cluster(pod(&["v"])).failing::<PersistentVolumeClaim>("create", &claim_key, error);
        let attempt = CREATED.trim_end();
        let wanted = failure("v", "create PVC p-v: exceeded quota");
        assert_eq!(
            sync(cluster),
            format!("{GET}{COUNTED}{attempt} FAILED: exceeded quota\n{FAILED}{wanted}"),
            "{reason:?}"
        );
    }
}

/// Proves EPH-22, EPH-37.
#[test]
fn claim_that_exists_already_is_judged_at_the_retry() {
    let a_loop = the_loop();
    let claim_key = Key::namespaced("a", "p-v");
    for (owner, wanted) in [
        ("p-uid", String::new()),
        ("another", failure("v", "PVC a/p-v was not created for pod a/p (pod is not owner)")),
    ] {
        let error = ApiError::transport(ErrorReason::AlreadyExists, "already exists");
        let mut cluster = cluster(pod(&["v"])).failing::<PersistentVolumeClaim>("create", &claim_key, error);
        assert!(cluster.reconcile(&a_loop, key()).contains("retry: "));
        cluster.put::<PersistentVolumeClaim>(&a_loop, claim("p-v", owner));
        assert_eq!(cluster.reconcile(&a_loop, key()), wanted);
    }
}

/// Proves EPH-11, EPH-41.
#[test]
fn first_failing_volume_ends_the_pass() {
    let error = ApiError::transport(ErrorReason::Invalid, "invalid");
    let transcript = sync(cluster(pod(&["v", "w", "x"])).failing::<PersistentVolumeClaim>(
        "create",
        &Key::namespaced("a", "p-w"),
        error,
    ));
    assert!(
        transcript
            .starts_with(&format!("{GET}{COUNTED}{CREATED}{COUNTED}create persistentvolumeclaims a/p-w"))
    );
    assert!(!transcript.contains("a/p-x"), "{transcript}");
    let taken = cluster(pod(&["v", "w", "x"])).with::<PersistentVolumeClaim>(claim("p-w", "another"));
    let transcript = sync(taken);
    assert!(
        transcript.starts_with(&format!("{GET}{COUNTED}{CREATED}event Warning FailedBinding")),
        "{transcript}"
    );
    assert!(!transcript.contains("a/p-x"), "{transcript}");
    let all = sync(cluster(pod(&["v", "w"])));
    assert_eq!(all.matches("create persistentvolumeclaims").count(), 2);
    assert_eq!(all.matches(GET).count(), 1, "the pod is read once");
}
