//! A token Secret through its life: unused, marked, deleted; and everything that protects it.

use keleustes_objects::{ApiError, Kind as _};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Action, Step};
use serde_json::Value;

use super::*;

// The clock of a rehearsal is 2027-01-15T08:00:00Z; the limit date of a year before is 2026-01-15.

fn the_loop() -> Loop {
    controller(LegacyTokenCleanerOptions::default()).loops.remove(0)
}

/// A generated Secret that was never used.
fn secret() -> Value {
    json!({
        "metadata": {
            "name": "builder-token-x", "namespace": "a", "uid": "s", "resourceVersion": "7",
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "annotations": {"kubernetes.io/service-account.name": "builder",
                            "kubernetes.io/service-account.uid": "u"},
        },
        "type": "kubernetes.io/service-account-token",
    })
}

fn labelled(key: &str, value: &str) -> Value {
    let mut secret = secret();
    secret["metadata"]["labels"] = json!({key: value});
    secret
}

fn account() -> Value {
    json!({"metadata": {"name": "builder", "namespace": "a", "uid": "u"},
           "secrets": [{"name": "other"}, {"name": "builder-token-x"}]})
}

fn tracking(since: &str) -> Value {
    json!({"metadata": {"namespace": "kube-system", "name": LegacyTokenTracking::NAME}, "data": {"since": since}})
}

fn cluster(secret: Value) -> RehearsalCluster {
    RehearsalCluster::of(&the_loop())
        .with_live::<LegacyTokenTracking>(tracking("2020-01-01"))
        .with::<ServiceAccount>(account())
        .with::<TokenSecret>(secret)
}

/// What a pass does, without the live read and the requeueing that every pass has.
fn outcome(cluster: RehearsalCluster) -> String {
    outcome_in(cluster, &the_loop())
}

fn outcome_in(mut cluster: RehearsalCluster, a_loop: &Loop) -> String {
    let transcript = cluster.outline(a_loop, Pass);
    let got = format!("get configmaps kube-system/{}\n", LegacyTokenTracking::NAME);
    let writes = transcript.strip_prefix(&got).expect("one live read");
    writes.strip_suffix("requeue after 86400s\n").expect("the next pass in 24 hours").to_owned()
}

const MARKED: &str =
    "patch secrets a/builder-token-x because its token has not been used for the clean-up period\n";
const DELETED: &str =
    "delete secrets a/builder-token-x because its token has been invalid for the clean-up period at 7\n";

/// Proves LSTC-2, LSTC-3, LSTC-35, LSTC-55.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller(LegacyTokenCleanerOptions::default());
    assert_eq!(controller.name, "legacy-serviceaccount-token-cleaner-controller");
    assert_eq!(crate::names::aliases_of(controller.name), ["legacy-service-account-token-cleaner"]);
    assert_eq!(controller.service_account, Some("legacy-service-account-token-cleaner"));
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.workers, a_loop.watches.len(), a_loop.initial_items.len()), (1, 0, 1));
    assert_eq!((a_loop.reads.len(), a_loop.starts_without.len()), (3, 0), "it waits for all three caches");
    assert!(controller.grants.iter().all(|grant| grant.resource != "serviceaccounts"));
    let writes = cluster(secret()).outline(a_loop, Pass);
    assert!(
        writes
            .starts_with("get configmaps kube-system/kube-apiserver-legacy-service-account-token-tracking\n")
    );
}

/// Proves LSTC-1, LSTC-40.
#[test]
fn default_period_is_a_year() {
    assert_eq!(LegacyTokenCleanerOptions::default().clean_up_period, Duration::from_secs(8760 * 3600));
    let mut cluster = cluster(secret());
    assert!(cluster.outline(&the_loop(), Pass).contains(MARKED));
    let mut marked = labelled(INVALID_SINCE, "2027-01-15");
    marked["metadata"]["resourceVersion"] = json!("8");
    cluster.put::<TokenSecret>(&the_loop(), marked);
    cluster.advance_clock(Duration::from_secs(365 * 24 * 3600));
    assert!(!cluster.outline(&the_loop(), Pass).contains("delete"), "L is the day of the mark");
    cluster.advance_clock(SYNC_INTERVAL);
    assert!(cluster.outline(&the_loop(), Pass).contains("delete secrets a/builder-token-x"));
}

/// Proves LSTC-11, LSTC-46, LSTC-60.
#[test]
fn pass_ends_without_a_tracking_date() {
    let without = || {
        RehearsalCluster::of(&the_loop())
            .with::<ServiceAccount>(account())
            .with::<TokenSecret>(labelled(INVALID_SINCE, "2021-01-01"))
    };
    assert_eq!(outcome(without()), "", "no ConfigMap");
    let mut other = tracking("x");
    other["data"] = json!({"other": "2020-01-01"});
    assert_eq!(outcome(without().with_live::<LegacyTokenTracking>(other.clone())), "");
    other["data"] = Value::Null;
    assert_eq!(outcome(without().with_live::<LegacyTokenTracking>(other)), "");
    for since in ["", "2022-12-27-1", "2020-1-1", "2020-02-30", " 2020-01-01", "yesterday"] {
        assert_eq!(outcome(without().with_live::<LegacyTokenTracking>(tracking(since))), "", "{since:?}");
    }
    let recreated = without().with_live::<LegacyTokenTracking>(tracking("2027-01-10"));
    assert_eq!(outcome(recreated), "", "re-created with a new date: marked Secrets wait, too");
    assert_eq!(outcome(without().with_live::<LegacyTokenTracking>(tracking("2020-01-01"))), DELETED);
}

/// Proves LSTC-12.
#[test]
fn period_counts_from_the_day_after_tracking_began() {
    // A year after 2026-01-16T00:00:00Z is 2027-01-16T00:00:00Z, sixteen hours from now.
    let at = |after: Duration| {
        let cluster = RehearsalCluster::of(&the_loop())
            .with_live::<LegacyTokenTracking>(tracking("2026-01-15"))
            .with::<ServiceAccount>(account())
            .with::<TokenSecret>(secret());
        outcome(cluster.with_clock_advanced(after))
    };
    assert_eq!(at(Duration::from_secs(16 * 3600) - Duration::from_nanos(1)), "");
    assert_eq!(at(Duration::from_secs(16 * 3600)), MARKED);
}

/// Proves LSTC-49.
#[test]
fn failed_live_read_ends_the_pass() {
    for reason in [ErrorReason::Forbidden, ErrorReason::Other, ErrorReason::Unavailable] {
        let key = Key::namespaced("kube-system", LegacyTokenTracking::NAME);
        let failure = ApiError::transport(reason, "refused");
        let mut cluster = cluster(secret()).failing::<LegacyTokenTracking>("get", &key, failure);
        let transcript = cluster.reconcile(&the_loop(), Pass);
        assert!(transcript.contains("retry: reading kube-system/kube-apiserver-legacy"), "{transcript}");
        assert!(!transcript.contains("secrets"), "{transcript}");
    }
}

/// Proves LSTC-13.
#[test]
fn only_token_secrets_are_cached() {
    assert_eq!(TokenSecret::PROJECTION.field_selector, Some("type=kubernetes.io/service-account-token"));
}

/// Proves LSTC-14, LSTC-10.
#[test]
fn young_secrets_are_skipped_by_the_exact_time() {
    let created = |time: &str| {
        let mut secret = secret();
        secret["metadata"]["creationTimestamp"] = json!(time);
        cluster(secret)
    };
    assert_eq!(outcome(created("2026-01-15T08:00:00Z")), "", "at now - P");
    assert_eq!(outcome(created("2026-01-15T07:59:59Z")), MARKED);
    let later = created("2026-01-15T08:00:00Z").with_clock_advanced(Duration::from_nanos(1));
    assert_eq!(outcome(later), MARKED);
    assert_eq!(outcome(created("2027-06-01T00:00:00Z")), "");
}

/// Proves LSTC-15.
#[test]
fn terminating_secrets_are_skipped() {
    let mut terminating = labelled(INVALID_SINCE, "2021-01-01");
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    assert_eq!(outcome(cluster(terminating)), "");
}

/// Proves LSTC-4, LSTC-16, LSTC-44, LSTC-51, LSTC-56.
#[test]
fn recently_used_secrets_are_skipped() {
    for day in ["2026-01-14", "2020-01-01"] {
        assert_eq!(outcome(cluster(labelled(LAST_USED, day))), MARKED, "{day}");
    }
    for day in
        ["2026-01-15", "2026-01-16", "2027-01-15", "2099-01-01", "", "2020-1-1", "2020-02-30", "long-ago"]
    {
        assert_eq!(outcome(cluster(labelled(LAST_USED, day))), "", "{day:?}");
    }
}

/// Proves LSTC-41.
#[test]
fn marked_secret_that_is_still_tried_is_neither_deleted_nor_unmarked() {
    let mut tried = labelled(INVALID_SINCE, "2021-01-01");
    tried["metadata"]["labels"][LAST_USED] = json!("2027-01-14");
    assert_eq!(outcome(cluster(tried)), "");
}

/// Proves LSTC-17, LSTC-52.
#[test]
fn account_must_exist_in_the_namespace_with_the_annotated_uid() {
    let annotated = |name: &str, uid: &str| {
        let mut secret = secret();
        secret["metadata"]["annotations"] =
            json!({"kubernetes.io/service-account.name": name, "kubernetes.io/service-account.uid": uid});
        cluster(secret)
    };
    assert_eq!(outcome(annotated("builder", "u")), MARKED);
    assert_eq!(outcome(annotated("builder", "")), MARKED, "no UID matches any");
    assert_eq!(outcome(annotated("builder", "another")), "");
    assert_eq!(outcome(annotated("absent", "u")), "");
    assert_eq!(outcome(annotated("", "")), "");
    let mut elsewhere = account();
    elsewhere["metadata"]["namespace"] = json!("b");
    let only_elsewhere = RehearsalCluster::of(&the_loop())
        .with_live::<LegacyTokenTracking>(tracking("2020-01-01"))
        .with::<ServiceAccount>(elsewhere)
        .with::<TokenSecret>(secret());
    assert_eq!(outcome(only_elsewhere), "");
    let mut terminating = account();
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    let terminating = RehearsalCluster::of(&the_loop())
        .with_live::<LegacyTokenTracking>(tracking("2020-01-01"))
        .with::<ServiceAccount>(terminating)
        .with::<TokenSecret>(secret());
    assert_eq!(outcome(terminating), MARKED);
}

/// Proves LSTC-18, LSTC-42.
#[test]
fn secret_that_its_account_does_not_list_is_never_touched() {
    for (labels, listed) in [
        (json!({}), json!([])),
        (json!({INVALID_SINCE: "2021-01-01"}), json!([{"name": "other"}])),
        (json!({INVALID_SINCE: "2021-01-01"}), Value::Null),
    ] {
        let (mut secret, mut account) = (secret(), account());
        secret["metadata"]["labels"] = labels;
        account["secrets"] = listed;
        let cluster = RehearsalCluster::of(&the_loop())
            .with_live::<LegacyTokenTracking>(tracking("2020-01-01"))
            .with::<ServiceAccount>(account)
            .with::<TokenSecret>(secret);
        assert_eq!(outcome(cluster), "");
    }
}

fn pod(namespace: &str, name: &str, spec: impl Into<Value>) -> Value {
    let spec: Value = spec.into();
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})
}

/// Proves LSTC-19, LSTC-45, LSTC-53.
#[test]
fn secret_that_a_pod_of_the_namespace_refers_to_is_skipped() {
    let name = "builder-token-x";
    let env_from = json!([{"secretRef": {"name": name}}]);
    let specs = [
        json!({"imagePullSecrets": [{"name": name}]}),
        json!({"containers": [{"name": "c", "envFrom": env_from}]}),
        json!({"initContainers": [{"name": "c", "envFrom": env_from}]}),
        json!({"ephemeralContainers": [{"name": "c", "envFrom": env_from}]}),
        json!({"containers": [{"name": "c", "env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]}]}),
        json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]}),
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": name}}]}}]}),
    ];
    for spec in specs {
        for phase in ["Pending", "Running", "Succeeded", "Failed", ""] {
            let mut pod = pod("a", "p", spec.clone());
            pod["status"] = json!({"phase": phase});
            assert_eq!(outcome(cluster(secret()).with::<Pod>(pod)), "", "{spec} {phase}");
        }
        let elsewhere = cluster(secret()).with::<Pod>(pod("b", "p", spec.clone()));
        assert_eq!(outcome(elsewhere), MARKED, "{spec}");
    }
    let other = json!({"volumes": [{"name": "v", "secret": {"secretName": "other"}},
                                   {"name": "c", "persistentVolumeClaim": {"claimName": name}}]});
    assert_eq!(outcome(cluster(secret()).with::<Pod>(pod("a", "p", other))), MARKED);
}

/// Proves LSTC-21, LSTC-58, LSTC-59.
#[test]
fn secret_without_a_valid_mark_is_marked_and_not_deleted_in_the_same_pass() {
    assert_eq!(outcome(cluster(secret())), MARKED);
    for mark in ["", "2020-1-1", "2020-02-30", "invalid"] {
        assert_eq!(outcome(cluster(labelled(INVALID_SINCE, mark))), MARKED, "{mark:?}");
    }
    let tiny = LegacyTokenCleanerOptions { clean_up_period: Duration::from_nanos(1) };
    let a_loop = controller(tiny).loops.remove(0);
    assert_eq!(outcome_in(cluster(secret()), &a_loop), MARKED);
    assert_eq!(outcome_in(cluster(labelled(INVALID_SINCE, "2027-01-15")), &a_loop), "");
    assert_eq!(outcome_in(cluster(labelled(INVALID_SINCE, "2027-01-14")), &a_loop), DELETED);
}

/// Proves LSTC-22, LSTC-56.
#[test]
fn secret_is_deleted_when_its_mark_is_older_than_the_limit() {
    assert_eq!(outcome(cluster(labelled(INVALID_SINCE, "2026-01-14"))), DELETED);
    for mark in ["2026-01-15", "2026-01-16", "2027-01-15", "2099-01-01"] {
        assert_eq!(outcome(cluster(labelled(INVALID_SINCE, mark))), "", "{mark}");
    }
}

/// Proves LSTC-57.
#[test]
fn old_mark_counts_again_when_the_pod_is_gone() {
    let spec = json!({"volumes": [{"name": "v", "secret": {"secretName": "builder-token-x"}}]});
    let mut cluster = cluster(labelled(INVALID_SINCE, "2021-01-01")).with::<Pod>(pod("a", "p", spec));
    assert!(!cluster.outline(&the_loop(), Pass).contains("secrets"));
    cluster.take::<Pod>(&the_loop(), &Key::namespaced("a", "p"));
    assert!(cluster.outline(&the_loop(), Pass).contains(DELETED));
}

/// Proves LSTC-30, LSTC-54, LSTC-61.
#[test]
fn mark_is_a_merge_patch_with_the_uid() {
    let mut immutable = labelled("kept", "label");
    immutable["immutable"] = json!(true);
    let bodies = cluster(immutable).bodies(&the_loop(), Pass, "patch");
    let [(name, body)] = &bodies[..] else { panic!("one patch") };
    assert_eq!(name, "secrets");
    let metadata = json!({"name": "builder-token-x", "namespace": "a", "uid": "s", "labels": {INVALID_SINCE: "2027-01-15"}});
    assert_eq!(*body, json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata}));
    let mut immutable = labelled(INVALID_SINCE, "2021-01-01");
    immutable["immutable"] = json!(true);
    assert_eq!(outcome(cluster(immutable)), DELETED);
}

/// Proves LSTC-31, LSTC-43.
#[test]
fn delete_has_the_cached_resource_version_as_precondition() {
    let cluster = cluster(labelled(INVALID_SINCE, "2021-01-01"));
    let now = cluster.view().now();
    let plan =
        decide(&cluster.view(), &Limits::at(now, LegacyTokenCleanerOptions::default().clean_up_period));
    let [Step::Parallel(writes)] = plan.steps() else { panic!("one step") };
    let Action::Delete { resource_version_precondition, .. } = &writes[0].action else { panic!("a delete") };
    assert_eq!(resource_version_precondition.as_ref().map(ToString::to_string).as_deref(), Some("7"));
    assert_eq!(writes[0].ignored_errors, [ErrorReason::NotFound, ErrorReason::Conflict]);
}

/// Proves LSTC-23, LSTC-50.
#[test]
fn error_on_one_secret_does_not_stop_the_others() {
    let named = |namespace: &str, labels: Value| {
        let mut secret = secret();
        secret["metadata"]["namespace"] = json!(namespace);
        secret["metadata"]["labels"] = labels;
        secret
    };
    let mut cluster = RehearsalCluster::of(&the_loop())
        .with_live::<LegacyTokenTracking>(tracking("2020-01-01"))
        .failing::<TokenSecret>(
            "patch",
            &Key::namespaced("b", "builder-token-x"),
            ApiError::transport(ErrorReason::Forbidden, "refused"),
        );
    for namespace in ["a", "b", "c"] {
        let mut account = account();
        account["metadata"]["namespace"] = json!(namespace);
        let labels = if namespace == "c" { json!({INVALID_SINCE: "2021-01-01"}) } else { json!({}) };
        cluster = cluster.with::<ServiceAccount>(account).with::<TokenSecret>(named(namespace, labels));
    }
    let transcript = cluster.outline(&the_loop(), Pass);
    assert_eq!(transcript.matches("patch ").count(), 2, "{transcript}");
    assert_eq!(transcript.matches("FAILED").count(), 1, "{transcript}");
    assert!(transcript.contains("delete secrets c/builder-token-x"), "{transcript}");
    assert!(transcript.ends_with("requeue after 86400s\n"), "{transcript}");
}
