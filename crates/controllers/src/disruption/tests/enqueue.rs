//! What enqueues budgets.

use std::sync::Arc;

use keleustes_plan::{Change, RateLimiter};

use super::*;

fn named(name: &str, selector: Value) -> Value {
    let mut budget = budget(json!({"minAvailable": 1, "selector": selector}));
    budget["metadata"]["name"] = json!(name);
    budget
}

fn decoded(pod: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn web() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

/// Proves PDB-1, PDB-3, PDB-9, PDB-65.
#[test]
fn three_queues_watch_pods_and_budgets_and_read_four_kinds_of_controllers() {
    let controller = controller(DisruptionOptions { workers: 3 });
    assert!(controller.metrics.is_empty() && crate::names::aliases_of(controller.name) == ["disruption"]);
    let loops: Vec<_> = controller
        .loops
        .iter()
        .map(|one| {
            let plural = |kind: &keleustes_plan::KindEntry| kind.resource().plural.to_string();
            let mut reads: Vec<_> = one.reads.iter().map(plural).collect();
            let mut watches: Vec<_> = one.watches.iter().map(|watch| plural(&watch.kind)).collect();
            reads.sort();
            watches.sort();
            (one.queue, one.workers, watches.join(" "), reads.join(" "))
        })
        .collect();
    let all = "deployments poddisruptionbudgets pods replicasets replicationcontrollers statefulsets";
    assert_eq!(
        loops,
        [
            ("disruption", 3, "poddisruptionbudgets pods".to_owned(), all.to_owned()),
            ("disruption_recheck", 1, String::new(), String::new()),
            ("stale_pod_disruption", 1, "pods".to_owned(), "pods".to_owned()),
        ]
    );
    for one in &controller.loops {
        assert_eq!((one.rate_limiter, one.max_retries), (RateLimiter::DEFAULT, None));
        assert_eq!(one.resync_period, None);
    }
}

/// Proves PDB-4.
#[test]
fn every_change_of_a_budget_enqueues_it() {
    let (a_loop, mut cluster) = (budgets(), RehearsalCluster::of(&budgets()));
    let mut changed = named("web", web());
    assert_eq!(cluster.put::<PodDisruptionBudget>(&a_loop, changed.clone()), ["a/web"]);
    changed["metadata"]["resourceVersion"] = json!("6");
    changed["metadata"]["annotations"] = json!({"unrelated": "yes"});
    assert_eq!(cluster.put::<PodDisruptionBudget>(&a_loop, changed.clone()), ["a/web"]);
    let cached = cluster.view().get::<PodDisruptionBudget>(&key("web")).unwrap().clone();
    assert_eq!(
        cluster.enqueued_with_delays(&a_loop, Change::resync(cached)),
        [("a/web".to_owned(), Duration::ZERO)]
    );
    assert_eq!(cluster.take::<PodDisruptionBudget>(&a_loop, &key("web")), ["a/web"]);
}

/// Proves PDB-5, PDB-6, PDB-80, PDB-87, PDB-94, PDB-100.
#[test]
fn a_pod_enqueues_the_budget_that_selects_its_current_labels() {
    let a_loop = budgets();
    let with = |selector: Value| {
        let mut elsewhere = named("elsewhere", json!({}));
        elsewhere["metadata"]["namespace"] = json!("b");
        RehearsalCluster::of(&a_loop)
            .with::<PodDisruptionBudget>(named("web", selector))
            .with::<PodDisruptionBudget>(elsewhere)
    };
    let mut bare = pod("p");
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    bare["metadata"]["resourceVersion"] = json!("9");
    let absent = json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]});
    let invalid = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    for (selector, by_pod, by_bare_pod) in [
        (web(), true, false),
        (json!({"matchLabels": {"app": "db"}}), false, false),
        (json!({}), true, true),
        (json!(null), false, false),
        (absent, false, true),
        (invalid, false, false),
    ] {
        let expected = |is_enqueued: bool| if is_enqueued { vec!["a/web"] } else { Vec::new() };
        let mut cluster = with(selector.clone());
        assert_eq!(cluster.put::<Pod>(&a_loop, pod("p")), expected(by_pod), "{selector}: added");
        let unchanged = cluster.view().get::<Pod>(&key("p")).unwrap().clone();
        let resynced = cluster.enqueued_by(&a_loop, Change::resync(unchanged));
        assert_eq!(resynced, expected(by_pod), "{selector}: resync");
        // A pod whose labels move it away does not enqueue the budget that it leaves.
        assert_eq!(cluster.put::<Pod>(&a_loop, bare.clone()), expected(by_bare_pod), "{selector}: updated");
        assert_eq!(cluster.take::<Pod>(&a_loop, &key("p")), expected(by_bare_pod), "{selector}: deleted");
    }
}

/// Proves PDB-7, PDB-60, PDB-61.
#[test]
fn a_pod_of_several_budgets_is_reported_at_each_of_its_events() {
    let a_loop = budgets();
    let cluster = RehearsalCluster::of(&a_loop)
        .with::<PodDisruptionBudget>(named("web", web()))
        .with::<PodDisruptionBudget>(named("all", json!({})))
        .with::<PodDisruptionBudget>(named("db", json!({"matchLabels": {"app": "db"}})));
    let event = "Warning MultiplePodDisruptionBudgets on Pod a/p uid=uid-p: Pod \"a\"/\"p\" matches multiple \
                 PodDisruptionBudgets.  Chose \"all\" arbitrarily.";
    let changes = [Change::added, Change::resync, Change::deleted];
    for change in changes {
        assert_eq!(cluster.events_recorded_by(&a_loop, change(decoded(pod("p")))), [event]);
        assert_eq!(cluster.enqueued_by(&a_loop, change(decoded(pod("p")))), ["a/all", "a/web"]);
    }
    let single = RehearsalCluster::of(&a_loop).with::<PodDisruptionBudget>(named("web", web()));
    assert!(single.events_recorded_by(&a_loop, Change::added(decoded(pod("p")))).is_empty());
}

/// Proves PDB-10.
#[test]
fn a_recheck_puts_the_budget_back_with_backoff() {
    let recheck = loop_of("disruption_recheck");
    let transcript = RehearsalCluster::of(&recheck).reconcile(&recheck, key("web"));
    assert_eq!(transcript, "enqueue a/web in disruption rate limited\n");
}
