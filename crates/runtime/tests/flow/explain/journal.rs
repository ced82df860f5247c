//! The journal of running controllers, dry runs and standbys.

use std::time::Duration;

use keleustes_controllers::{ControllersOptions, enabled_controllers};
use keleustes_runtime::explain::{ExplainError, ExplainRequest, Explainer};
use keleustes_runtime::journal::{Decision, WriteOutcome};
use serde_json::json;

use super::{Stuck, deployment};
use crate::test_cluster::{TestCluster, settle, wait};

#[tokio::test(start_paused = true)]
async fn writes_are_in_the_journal_with_reason_and_outcome() {
    let stuck =
        Stuck::new(&["deployment-controller", "replicaset-controller"], &[deployment("RollingUpdate", 2)])
            .await;
    wait(Duration::from_secs(5)).await;
    let entries = stuck.explainer.inspection.journal().latest(100, |_| true);
    let written = |verb: &str, resource: &str| {
        let is_it = |entry: &&keleustes_runtime::journal::JournalEntry| {
            let Decision::Write { verb: there, because, outcome, .. } = &entry.decision else { return false };
            there == verb
                && entry.resource == resource
                && *outcome == WriteOutcome::Done
                && !because.is_empty()
        };
        entries.iter().filter(is_it).count()
    };
    assert_eq!((written("create", "replicasets.apps"), written("create", "pods")), (1, 2), "{entries:#?}");
    assert!(written("update status", "deployments.apps") > 0, "{entries:#?}");
    assert!(entries.iter().all(|entry| entry.namespace == "shop" && entry.unix_milliseconds > 0));
    let explanation = stuck.explain("deployment", "web").await;
    assert!(
        explanation.decisions.iter().any(|entry| entry.resource == "replicasets.apps"),
        "of its own item, too"
    );
}

#[tokio::test(start_paused = true)]
async fn explaining_writes_nothing_and_changes_no_memory() {
    let stuck =
        Stuck::new(&["deployment-controller", "replicaset-controller"], &[deployment("RollingUpdate", 2)])
            .await;
    wait(Duration::from_secs(5)).await;
    // A change that is not delivered yet, so that controllers want something.
    stuck.cluster.tap.lag("*");
    let before = stuck.cluster.writes().len();
    for _ in 0..3 {
        stuck.explain("deployment", "web").await;
        stuck.explain("namespace", "shop").await;
    }
    wait(Duration::from_secs(60)).await;
    assert_eq!(stuck.cluster.writes().len(), before);
}

/// The caches of a controller are filled, and it does not run.
async fn standby(cluster: &TestCluster, controller: &str) -> Explainer {
    let chosen = enabled_controllers(&ControllersOptions::default(), &|name| name == controller).unwrap();
    keleustes_runtime::loops::prepare(&chosen, &cluster.caches);
    let inspection = cluster.context.inspection.clone();
    inspection.register(&chosen);
    settle().await;
    wait(Duration::from_secs(1)).await;
    cluster.explainer()
}

#[tokio::test(start_paused = true)]
async fn standby_computes_what_it_would_do_and_says_so() {
    let cluster = TestCluster::new();
    cluster
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        .unwrap();
    cluster.server.seed(deployment("RollingUpdate", 2)).unwrap();
    let explainer = standby(&cluster, "deployment-controller").await;
    let request = ExplainRequest {
        resource: "deploy".to_owned(),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
    };
    let explanation = explainer.explain(&request).await.unwrap();
    let text = explanation.text();
    assert!(!explanation.manager.leads && text.contains("standby (leader: unknown)"), "{text}");
    assert!(text.contains("Wants:    create replicasets.apps"), "{text}");
    assert!(cluster.writes().is_empty(), "{:?}", cluster.writes());
    let overview = explainer.inspection.overview(&explainer.caches, 10);
    assert_eq!((overview.leads, overview.controllers[0].state), (false, "standby"));
    let unknown = ExplainRequest { resource: "widgets".to_owned(), ..request };
    assert_eq!(
        explainer.explain(&unknown).await.unwrap_err(),
        ExplainError::UnknownResource("widgets".to_owned())
    );
}

/// It lists a page of the resource before it decides.
#[tokio::test(start_paused = true)]
async fn migration_that_would_start_is_explained() {
    let cluster = TestCluster::new();
    let migration = json!({"apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": "maps"}, "spec": {"resource": {"group": "", "resource": "configmaps"}},
        "status": {"conditions": [{"type": "Running", "status": "True", "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    cluster.server.seed(migration).unwrap();
    let explainer = standby(&cluster, "storage-version-migrator-controller").await;
    let request = ExplainRequest {
        resource: "storageversionmigration".to_owned(),
        name: "maps".to_owned(),
        namespace: String::new(),
    };
    let text = explainer.explain(&request).await.unwrap().text();
    assert!(text.contains("Wants:    update storageversionmigrations") && !text.contains("Fails:"), "{text}");
}

/// A ReplicaSet that was scaled up, and whose controller does not see the pods that it creates.
async fn behind_its_own_write() -> Stuck {
    let stuck =
        Stuck::new(&["deployment-controller", "replicaset-controller"], &[deployment("RollingUpdate", 1)])
            .await;
    wait(Duration::from_secs(5)).await;
    stuck.cluster.tap.lag("pods");
    stuck.change("deployments", "web", |web| {
        web["spec"]["replicas"] = json!(2);
        web["metadata"]["generation"] = json!(2);
    });
    wait(Duration::from_secs(2)).await;
    stuck
}

#[tokio::test(start_paused = true)]
async fn key_that_waits_for_its_own_write_says_so() {
    let stuck = behind_its_own_write().await;
    let set = stuck.cluster.server.objects("replicasets")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let text = stuck.explain("rs", &set).await.text();
    assert!(text.contains("the cache of pods is at resourceVersion"), "{text}");
    assert!(text.contains("this controller has written"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn object_that_does_not_exist_is_explained() {
    let stuck = Stuck::new(&["replicaset-controller"], &[]).await;
    wait(Duration::from_secs(1)).await;
    let explanation = stuck.explain("pod", "gone").await;
    assert_eq!((explanation.exists, explanation.state), (false, "not found"));
}

#[tokio::test(start_paused = true)]
async fn live_overview_names_what_waits_and_why() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": "shop", "name": "small"},
        "spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
    let stuck = Stuck::new(
        &["deployment-controller", "replicaset-controller"],
        &[quota, deployment("RollingUpdate", 2)],
    )
    .await;
    wait(Duration::from_secs(5)).await;
    let explainer = &stuck.explainer;
    let overview = explainer.live_overview(&explainer.manager_state().await, 10);
    let first = &overview.waiting[0];
    assert_eq!((first.controller, first.resource.as_str()), ("replicaset-controller", "replicasets.apps"));
    assert!(first.failing && first.because.contains("exceeded quota: small"), "{first:?}");
    assert!(first.because.contains("failed 10 times"), "{first:?}");
    let later = overview.waiting.iter().find(|item| item.controller == "deployment-controller").unwrap();
    assert!(!later.failing && later.because.contains("the controller looks again at"), "{later:?}");
    let of = |name: &str| overview.overview.controllers.iter().find(|there| there.name == name).unwrap();
    let failing = &of("replicaset-controller").loops[0];
    assert_eq!((failing.failing, failing.retries, failing.failures), (1, 10, 10));
    assert_eq!(failing.resource.as_deref(), Some("replicasets.apps"));
}

#[tokio::test(start_paused = true)]
async fn live_overview_shows_items_that_wait_for_their_own_write() {
    let stuck = behind_its_own_write().await;
    let explainer = &stuck.explainer;
    let overview = explainer.live_overview(&explainer.manager_state().await, 10);
    let held = overview.waiting.iter().find(|item| item.because.contains("this controller has written"));
    assert!(held.is_some_and(|held| held.controller == "replicaset-controller"), "{:?}", overview.waiting);
}

#[tokio::test(start_paused = true)]
async fn objects_are_found_by_a_part_of_their_name() {
    let stuck =
        Stuck::new(&["deployment-controller", "replicaset-controller"], &[deployment("RollingUpdate", 3)])
            .await;
    wait(Duration::from_secs(5)).await;
    let names = |text: &str, limit| {
        let result = stuck.explainer.search(text, limit);
        let shown: Vec<_> = result.found.iter().map(|found| found.resource.clone()).collect();
        (shown, result.not_shown)
    };
    assert_eq!(names("web", 2), (vec!["deployments.apps".to_owned(), "pods".to_owned()], 3));
    assert_eq!(names("WEB", 10).0.len(), 5, "case does not matter");
    assert_eq!(names("", 10), (Vec::new(), 0));
    assert_eq!(names("nothing", 10), (Vec::new(), 0));
}

/// Secret data must appear neither in the journal nor in an explanation.
#[tokio::test(start_paused = true)]
async fn secret_data_is_in_no_explanation() {
    const MARKER: &str = "bWFya2VyLW9mLXNlY3JldC1kYXRh";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token", "data": {"token-id": "YWJjZGVm", "token-secret": MARKER,
            "expiration": "MjAyNi0wMS0wMVQwMDowMDozMFo="}});
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    let stuck = Stuck::new(&["token-cleaner-controller"], &[system, secret]).await;
    let request = ExplainRequest {
        resource: "secret".to_owned(),
        name: "bootstrap-token-abcdef".to_owned(),
        namespace: "kube-system".to_owned(),
    };
    let mut seen = String::new();
    for _ in 0..2 {
        let explanation = stuck.explainer.explain(&request).await.unwrap();
        seen += &format!("{} {}", explanation.text(), serde_json::to_string(&explanation).unwrap());
        wait(Duration::from_secs(60)).await;
    }
    let journal = stuck.explainer.inspection.journal().latest(1000, |_| true);
    assert!(!journal.is_empty(), "the expired token was deleted");
    seen += &serde_json::to_string(&journal).unwrap();
    assert!(seen.contains("bootstrap-token-abcdef"), "{seen}");
    assert!(!seen.contains(MARKER) && !seen.contains("marker-of-secret-data"), "{seen}");
}
