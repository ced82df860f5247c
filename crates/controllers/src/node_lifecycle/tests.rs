//! Complete health checks of small clusters, step by step.

use keleustes_objects::{ApiError, ErrorReason, Key, Lease};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Loop, Pass};
use serde_json::{Value, json};

use super::*;

const PERIOD: Duration = Duration::from_secs(5);

/// A cluster under test. An object that is not put again stays as it was.
struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
    version: u32,
    options: NodeLifecycleOptions,
}

fn test_cluster() -> TestCluster {
    test_cluster_with(NodeLifecycleOptions::default())
}

fn test_cluster_with(options: NodeLifecycleOptions) -> TestCluster {
    let a_loop = controller(options).loops.remove(2);
    TestCluster { rehearsal: RehearsalCluster::of(&a_loop), a_loop, version: 100, options }
}

impl TestCluster {
    fn put<T: keleustes_objects::Kind>(&mut self, mut json: Value) -> &mut Self {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.rehearsal.put::<T>(&self.a_loop, json);
        self
    }

    fn take_node(&mut self, name: &str) -> &mut Self {
        self.rehearsal.take::<Node>(&self.a_loop, &Key::cluster(name));
        self
    }

    fn failing<T: keleustes_objects::Kind>(
        &mut self,
        verb: &str,
        key: &Key,
        reason: ErrorReason,
        times: u32,
    ) {
        let rehearsal = std::mem::replace(&mut self.rehearsal, RehearsalCluster::of(&self.a_loop));
        let failure = ApiError::transport(reason, "refused");
        self.rehearsal = rehearsal.failing_at(verb, &T::RESOURCE.object_path(key), failure, Some(times));
    }

    /// Another process becomes leader.
    fn restart(&mut self) -> &mut Self {
        self.a_loop = controller(self.options).loops.remove(2);
        self
    }

    fn later(&mut self, seconds: u64) -> &mut Self {
        self.rehearsal.advance_clock(Duration::from_secs(seconds));
        self
    }

    /// The transcript of one reconcile.
    fn reconcile(&mut self) -> String {
        self.rehearsal.reconcile(&self.a_loop, Pass)
    }

    /// The requests and events of one reconcile, one per line, without metrics and requeue delay.
    fn actions(&mut self) -> Vec<String> {
        let transcript = self.reconcile();
        let is_action = |line: &&str| !line.starts_with("measure") && !line.starts_with("requeue");
        transcript.lines().filter(is_action).map(shortened).collect()
    }

    /// Reconciles once per second and renews these Leases each time. Returns the second of each action.
    fn run(&mut self, seconds: u64, alive: &[&str]) -> Vec<(u64, String)> {
        let mut actions = Vec::new();
        for second in 1..=seconds {
            self.later(1);
            for name in alive {
                self.put::<Lease>(lease(name, self.version));
            }
            actions.extend(self.actions().into_iter().map(|action| (second, action)));
        }
        actions
    }

    /// Puts the status written by the health check into the cache.
    fn put_unknown(&mut self, name: &str, zone: &str) {
        self.put::<Node>(node_in(zone, name, "Unknown", &[]));
    }
}

/// The line without the patch body, except for the taint keys.
fn shortened(line: &str) -> String {
    let Some((request, body)) = line.split_once(": {") else { return line.to_owned() };
    let Ok(body) = serde_json::from_str::<Value>(&format!("{{{body}")) else { return line.to_owned() };
    let request = request.split(" because").next().unwrap_or_default();
    if body.get("spec").is_none() {
        return request.to_owned();
    }
    let key = |taint: &Value| taint["key"].as_str().unwrap_or_default().replace("node.kubernetes.io/", "");
    let taints = body["spec"]["taints"].as_array().map(|taints| taints.iter().map(key).collect::<Vec<_>>());
    format!("{request} {}", taints.map_or("clear".to_owned(), |taints| taints.join("+")))
}

fn node_in(zone: &str, name: &str, ready: &str, taints: &[&str]) -> Value {
    let taint = |key: &&str| json!({"key": format!("node.kubernetes.io/{key}"), "effect": "NoExecute"});
    json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2027-01-15T07:00:00Z",
            "labels": {"topology.kubernetes.io/zone": zone},
        },
        "spec": {"taints": taints.iter().map(taint).collect::<Vec<_>>()},
        "status": {"conditions": [
            {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        ]},
    })
}

fn node(name: &str, ready: &str, taints: &[&str]) -> Value {
    node_in("z", name, ready, taints)
}

fn lease(name: &str, at: u32) -> Value {
    let renewed_at = format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", at / 3600, at / 60 % 60, at % 60);
    json!({"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"renewTime": renewed_at}})
}

/// Proves NLC-2, NLC-3, NLC-6, NLC-70, NLC-71, NLC-78.
#[test]
fn controller_has_upstreams_names_and_defaults() {
    let controller = controller(NodeLifecycleOptions::default());
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("node-lifecycle-controller", &["nodelifecycle"][..])
    );
    assert_eq!(controller.service_account, Some("node-controller"));
    assert_eq!(controller.event_component, Some("node-controller"));
    assert!(controller.debug_handler.is_none() && controller.observer.is_none());
    let verbs: Vec<_> = controller.grants.iter().flat_map(|grant| grant.verbs).collect();
    assert!(!verbs.contains(&&"delete"), "it deletes nothing");
    let reads = |at: usize| -> Vec<_> {
        controller.loops[at].reads.iter().map(|kind| kind.resource().to_string()).collect()
    };
    assert_eq!(reads(0), ["pods", "nodes"]);
    assert_eq!(reads(1), ["nodes"]);
    assert_eq!(reads(2), ["nodes", "leases.coordination.k8s.io"]);
    // The check of all nodes is repeated in its period whatever has failed.
    assert_eq!(controller.loops[2].rate_limiter.max_delay, PERIOD);
    let NodeLifecycleOptions { monitor_period, grace_periods, eviction_rates, lease_circuit_breaker } =
        NodeLifecycleOptions::default();
    assert_eq!(
        (monitor_period, grace_periods.monitor.as_secs(), grace_periods.startup.as_secs()),
        (PERIOD, 50, 60)
    );
    let rates = [
        eviction_rates.node_eviction_rate,
        eviction_rates.secondary_node_eviction_rate,
        eviction_rates.unhealthy_zone_threshold,
    ];
    assert_eq!(rates.map(|rate| rate.to_string()), ["0.1", "0.01", "0.55"]);
    assert_eq!((eviction_rates.large_cluster_size_threshold, lease_circuit_breaker), (50, true));
}

/// Proves NLC-1, NLC-14, NLC-71, NLC-72.
#[test]
fn health_checks_repeat_and_record_added_and_removed_nodes() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("n", "True", &[]));
    let transcript = cluster.reconcile();
    let event =
        "event Normal RegisteredNode on Node n uid=uid-n: Node n event: Registered Node n in Controller\n";
    assert!(transcript.contains(event) && transcript.ends_with("requeue after 5s\n"), "{transcript}");
    // Between two health checks only queued taints are added.
    cluster.take_node("n");
    assert_eq!(cluster.later(4).reconcile(), "requeue after 1s\n");
    let transcript = cluster.later(1).reconcile();
    assert!(
        transcript.contains(
            "event Normal RemovingNode on Node n uid=uid-n: Node n event: Removing Node n from Controller\n"
        ),
        "{transcript}"
    );
    assert!(cluster.later(5).actions().is_empty());
    cluster.put::<Node>(node("n", "True", &[]));
    assert_eq!(cluster.later(5).actions().len(), 1);
    let mut recreated = node("n", "True", &[]);
    recreated["metadata"]["uid"] = json!("another");
    cluster.put::<Node>(recreated);
    let transcript = cluster.later(5).actions();
    assert!(
        transcript[0].contains("RemovingNode") && transcript[1].contains("RegisteredNode"),
        "{transcript:?}"
    );
}

/// Proves NLC-16, NLC-74, NLC-75, NLC-76, NLC-77.
#[test]
fn metrics_are_recorded_for_each_zone() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "False", &[]));
    let transcript = cluster.reconcile();
    let measurements: Vec<_> = transcript.lines().filter(|line| line.starts_with("measure")).collect();
    assert_eq!(
        measurements,
        [
            "measure node_collector_evictions_total{:\0:z} 0",
            "measure node_collector_update_node_health_duration_seconds{} 0",
            "measure node_collector_update_node_health_duration_seconds{} 0",
            "measure node_collector_zone_size{:\0:z} 2",
            "measure node_collector_zone_health{:\0:z} 50",
            "measure node_collector_unhealthy_nodes_in_zone{:\0:z} 1",
            "measure node_collector_update_all_nodes_health_duration_seconds{} 0",
        ]
    );
    cluster.take_node("a").take_node("b");
    let transcript = cluster.later(5).reconcile();
    for measurement in ["zone_size{:\0:z} 0", "zone_health{:\0:z} 100", "unhealthy_nodes_in_zone{:\0:z} 0"] {
        assert!(transcript.contains(&format!("measure node_collector_{measurement}\n")), "{transcript}");
    }
    assert!(!cluster.later(5).reconcile().contains("zone_size"));
    let bounds = |metric: &keleustes_plan::Metric| match metric.metric_type {
        keleustes_plan::MetricType::Histogram(buckets) => buckets.bounds(),
        _ => panic!("a histogram"),
    };
    assert_eq!(bounds(&metrics::UPDATE_NODE_HEALTH_DURATION)[..3], [0.001, 0.004, 0.016]);
    assert_eq!(
        (
            bounds(&metrics::UPDATE_ALL_NODES_HEALTH_DURATION)[1],
            bounds(&metrics::UPDATE_ALL_NODES_HEALTH_DURATION).len()
        ),
        (0.04, 8)
    );
    assert_eq!(metrics::EVICTIONS.stability, "STABLE");
}

/// Proves NLC-7, NLC-23, NLC-24, NLC-30, NLC-31, NLC-34, NLC-63, NLC-73.
#[test]
fn node_without_heartbeat_is_marked_unknown() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("n", "True", &[])).put::<Lease>(lease("n", 0));
    cluster.actions();
    assert!(cluster.run(20, &["n"]).is_empty());
    let actions = cluster.run(60, &[]);
    let expected = [
        "get leases.coordination.k8s.io kube-node-lease/n",
        "patch nodes/status n",
        "event Normal NodeNotReady on Node n uid=uid-n: Node n status is now: NodeNotReady",
    ];
    assert_eq!(actions.iter().map(|(_, action)| action.as_str()).take(3).collect::<Vec<_>>(), expected);
    // Its last heartbeat was in second 20; the first health check after more than 50 s is in second 75.
    assert_eq!(actions[0].0, 55);
    cluster.put_unknown("n", "z");
    assert!(cluster.run(20, &[]).is_empty(), "it is marked once");
}

/// Proves NLC-63.
#[test]
fn status_patch_has_resource_version_precondition() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("n", "True", &[]));
    cluster.reconcile();
    let transcript = cluster.later(55).reconcile();
    let patch = transcript.lines().find(|line| line.starts_with("patch nodes/status")).unwrap();
    assert!(
        patch.contains(": {\"metadata\":{\"resourceVersion\":\"101\"},\"status\":{\"conditions\":["),
        "{patch}"
    );
    assert!(patch.contains("\"reason\":\"NodeStatusUnknown\""), "{patch}");
}

/// Proves NLC-29, NLC-87.
#[test]
fn failed_status_patch_is_retried_on_the_live_node() {
    let expired = || {
        let mut cluster = test_cluster();
        cluster.put::<Node>(node("n", "True", &[])).put::<Node>(node("m", "True", &[]));
        cluster.actions();
        cluster.later(50).put::<Lease>(lease("m", 0));
        cluster.later(5);
        cluster
    };
    let key = Key::cluster("n");
    let mut again = expired();
    again.failing::<Node>("patch", &key, ErrorReason::Unavailable, 1);
    let transcript = again.actions();
    assert_eq!(
        transcript.iter().filter(|action| action.starts_with("patch nodes/status n")).count(),
        2,
        "{transcript:?}"
    );
    assert!(
        transcript.contains(&"get nodes n".to_owned())
            && transcript.iter().any(|action| action.contains("NodeNotReady"))
    );

    // The live node has a newer heartbeat.
    let mut alive = expired();
    alive.failing::<Node>("patch", &key, ErrorReason::Conflict, 1);
    let mut newer = node("n", "True", &[]);
    newer["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:01:00Z");
    let rehearsal = std::mem::replace(&mut alive.rehearsal, RehearsalCluster::of(&alive.a_loop));
    alive.rehearsal = rehearsal.with_live::<Node>(newer);
    let transcript = alive.actions();
    assert_eq!(
        transcript.iter().filter(|action| action.contains("patch nodes/status n")).count(),
        1,
        "{transcript:?}"
    );
    assert!(!transcript.iter().any(|action| action.contains("NodeNotReady")), "{transcript:?}");

    // The first patch was applied although its response was lost.
    let mut effective = expired();
    effective.failing::<Node>("patch", &key, ErrorReason::ConnectionLost, 1);
    let rehearsal = std::mem::replace(&mut effective.rehearsal, RehearsalCluster::of(&effective.a_loop));
    effective.rehearsal = rehearsal.with_live::<Node>(node("n", "Unknown", &[]));
    let transcript = effective.actions();
    assert_eq!(
        transcript.iter().filter(|action| action.contains("patch nodes/status n")).count(),
        1,
        "{transcript:?}"
    );
    assert!(transcript.iter().any(|action| action.contains("NodeNotReady")), "{transcript:?}");

    // After five attempts the node is skipped in this health check.
    let mut exhausted = expired();
    exhausted.failing::<Node>("patch", &key, ErrorReason::Unavailable, 100);
    let transcript = exhausted.reconcile();
    assert_eq!(transcript.matches("patch nodes/status n").count(), 5, "{transcript}");
    assert!(transcript.contains("zone_size{:\0:z} 1"), "a skipped node does not count: {transcript}");
    let mut unreadable = expired();
    unreadable.failing::<Node>("patch", &key, ErrorReason::Unavailable, 100);
    unreadable.failing::<Node>("get", &key, ErrorReason::Unavailable, 100);
    let transcript = unreadable.reconcile();
    assert_eq!(transcript.matches("patch nodes/status n").count(), 1, "{transcript}");
    assert!(transcript.contains("zone_size{:\0:z} 1"), "{transcript}");
}

/// Proves NLC-30, NLC-31, NLC-32, NLC-89.
#[test]
fn stale_lease_cache_marks_no_node_unknown() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("n", "True", &[])).put::<Node>(node("m", "True", &[]));
    cluster.put::<Lease>(lease("n", 0)).put::<Lease>(lease("m", 0));
    cluster.actions();
    cluster.later(55);
    // The API server has a newer resourceVersion of one Lease than the cache.
    let mut newer = lease("n", 50);
    newer["metadata"]["resourceVersion"] = json!("500");
    let rehearsal = std::mem::replace(&mut cluster.rehearsal, RehearsalCluster::of(&cluster.a_loop));
    cluster.rehearsal = rehearsal.with_live::<Lease>(newer.clone());
    let transcript = cluster.reconcile();
    assert!(transcript.contains("get leases.coordination.k8s.io kube-node-lease/m"), "{transcript}");
    assert!(
        !transcript.contains("patch") && !transcript.contains("zone_size"),
        "the health of no node is known: {transcript}"
    );
    // Until the cache has caught up, no Lease is read.
    assert!(cluster.later(5).actions().is_empty());
    cluster.version = 499;
    cluster.put::<Lease>(lease("n", 50));
    let transcript = cluster.later(5).actions();
    assert_eq!(
        transcript,
        [
            "get leases.coordination.k8s.io kube-node-lease/m".to_owned(),
            "patch nodes/status m".to_owned(),
            "event Normal NodeNotReady on Node m uid=uid-m: Node m status is now: NodeNotReady".to_owned(),
        ]
    );
}

/// Proves NLC-13, NLC-30.
#[test]
fn lease_is_read_shortly_before_its_node_is_marked() {
    let mut cluster = test_cluster();
    let names: Vec<String> = (10..60).map(|number| format!("n{number}")).collect();
    for name in &names {
        cluster.put::<Node>(node(name, "True", &[])).put::<Lease>(lease(name, 0));
    }
    cluster.actions();
    let actions = cluster.later(55).actions();
    let requests: Vec<&String> = actions.iter().filter(|action| !action.starts_with("event")).collect();
    for name in &names {
        let at = |beginning: &str| {
            let request = format!("{beginning}{name}");
            requests.iter().position(|action| **action == request).expect("a request")
        };
        let between = at("patch nodes/status ") - at("get leases.coordination.k8s.io kube-node-lease/");
        assert!(between <= 16, "{between} requests at a limited rate, in which {name} may come back");
    }
}

/// Proves NLC-30.
#[test]
fn lease_that_changes_without_renewal_protects_only_its_own_node() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("n", "True", &[])).put::<Node>(node("m", "True", &[]));
    cluster.put::<Lease>(lease("n", 0)).put::<Lease>(lease("m", 0));
    cluster.actions();
    cluster.later(55);
    let mut changed = lease("n", 0);
    changed["metadata"]["resourceVersion"] = json!("500");
    let rehearsal = std::mem::replace(&mut cluster.rehearsal, RehearsalCluster::of(&cluster.a_loop));
    cluster.rehearsal = rehearsal.with_live::<Lease>(changed);
    let actions = cluster.actions();
    assert!(actions.contains(&"patch nodes/status m".to_owned()), "{actions:?}");
    assert!(!actions.contains(&"patch nodes/status n".to_owned()), "{actions:?}");
    // The cache catches up, and the Lease stays as it is.
    cluster.put_unknown("m", "z");
    cluster.version = 499;
    cluster.put::<Lease>(lease("n", 0));
    let actions = cluster.later(5).actions();
    assert!(actions.contains(&"patch nodes/status n".to_owned()), "{actions:?}");
}

/// Its clock was an hour ahead when it booted.
///
/// Proves NLC-83.
#[test]
fn node_whose_clock_was_set_back_is_not_marked_unknown() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("n", "True", &[])).put::<Lease>(lease("n", 3600));
    cluster.actions();
    for at in (10..=120).step_by(10) {
        cluster.later(10);
        cluster.put::<Lease>(lease("n", at));
        let actions = cluster.actions();
        assert!(!actions.contains(&"patch nodes/status n".to_owned()), "{at}: {actions:?}");
    }
    let actions = cluster.later(55).actions();
    assert!(actions.contains(&"patch nodes/status n".to_owned()), "it stops renewing: {actions:?}");
}

/// Proves NLC-19, NLC-29.
#[test]
fn failed_status_patch_does_not_restart_the_startup_grace_period() {
    let without_status = || {
        let mut json = node("n", "True", &[]);
        json["status"] = json!({});
        json["metadata"]["creationTimestamp"] = json!("2027-01-15T07:59:30Z");
        let mut cluster = test_cluster();
        cluster.put::<Node>(json);
        assert!(!cluster.actions().iter().any(|action| action.starts_with("patch")), "it is 30 s old");
        cluster.later(35);
        cluster
    };
    let patches = |cluster: &mut TestCluster| {
        let actions = cluster.actions();
        actions.iter().filter(|action| action.starts_with("patch nodes/status n")).count()
    };
    let key = Key::cluster("n");
    let mut conflicting = without_status();
    conflicting.failing::<Node>("patch", &key, ErrorReason::Conflict, 1);
    assert_eq!(patches(&mut conflicting), 2, "the live node has no status either");
    let mut unavailable = without_status();
    unavailable.failing::<Node>("patch", &key, ErrorReason::Unavailable, 1);
    unavailable.failing::<Node>("get", &key, ErrorReason::Unavailable, 1);
    assert_eq!(patches(&mut unavailable), 1);
    unavailable.later(5);
    assert_eq!(patches(&mut unavailable), 1, "the next health check tries again");
}

/// Proves NLC-31.
#[test]
fn deleted_lease_does_not_protect_its_node_but_unreadable_lease_does() {
    let actions_after = |prepare: fn(&mut TestCluster)| {
        let mut cluster = test_cluster();
        cluster.put::<Node>(node("n", "True", &[]));
        cluster.actions();
        prepare(&mut cluster);
        cluster.later(55).actions()
    };
    assert!(actions_after(|_| {}).contains(&"patch nodes/status n".to_owned()));
    let transcript = actions_after(|cluster| {
        cluster.failing::<Lease>(
            "get",
            &Key::namespaced("kube-node-lease", "n"),
            ErrorReason::Unavailable,
            1,
        );
    });
    assert_eq!(transcript, ["get leases.coordination.k8s.io kube-node-lease/n"]);
}

/// Proves NLC-32, NLC-33.
#[test]
fn incomparable_resource_versions_do_not_block_the_lease_cache() {
    let mut cluster_state = ClusterState::default();
    assert!(cluster_state.lease_cache_is_current(&ResourceVersion::from("5")));
    cluster_state.require_lease_resource_version(&ResourceVersion::from("10"));
    cluster_state.require_lease_resource_version(&ResourceVersion::from("8"));
    assert!(
        !cluster_state.lease_cache_is_current(&ResourceVersion::from("9"))
            && cluster_state.lease_cache_is_current(&ResourceVersion::from("10"))
    );
    assert!(
        cluster_state.lease_cache_is_current(&ResourceVersion::from("9")),
        "after the cache has caught up, the requirement is dropped"
    );
    cluster_state.require_lease_resource_version(&ResourceVersion::from("odd"));
    assert!(cluster_state.lease_cache_is_current(&ResourceVersion::from("9")));
    cluster_state.require_lease_resource_version(&ResourceVersion::from("10"));
    assert!(cluster_state.lease_cache_is_current(&ResourceVersion::from("")));
}

/// Proves NLC-30.
#[test]
fn no_lease_is_read_without_the_feature_gate() {
    let mut cluster = test_cluster_with(NodeLifecycleOptions {
        lease_circuit_breaker: false,
        ..NodeLifecycleOptions::default()
    });
    cluster.put::<Node>(node("n", "True", &[]));
    cluster.actions();
    assert!(!cluster.later(55).actions().iter().any(|action| action.contains("leases")));
}

/// Proves NLC-44, NLC-46, NLC-47, NLC-48.
#[test]
fn unready_nodes_are_tainted_one_by_one_at_the_eviction_rate_of_their_zone() {
    let mut cluster = test_cluster();
    for name in ["a", "b", "c"] {
        cluster.put::<Node>(node(name, "True", &[]));
    }
    cluster.actions();
    cluster.put::<Node>(node("b", "False", &[])).put::<Node>(node("a", "Unknown", &[]));
    let mut actions = Vec::new();
    for second in 1..=30 {
        let transcript = cluster.later(1).reconcile();
        actions.extend(
            transcript.lines().filter(|line| line.starts_with("patch")).map(|line| (second, shortened(line))),
        );
        // Written taints are cached by the next reconcile.
        for (_, action) in &actions {
            let (name, taint) = action["patch nodes ".len()..].split_once(' ').unwrap();
            let ready = if taint == "not-ready" { "False" } else { "Unknown" };
            cluster.put::<Node>(node(name, ready, &[taint]));
        }
        if let Some((at, _)) = actions.last().filter(|(at, _)| *at == second) {
            assert!(
                transcript.contains("measure node_collector_evictions_total{:\0:z} 1"),
                "{at}: {transcript}"
            );
        }
        cluster.put::<Node>(node("c", "True", &[]));
        cluster
            .put::<Lease>(lease("a", second))
            .put::<Lease>(lease("b", second))
            .put::<Lease>(lease("c", second));
    }
    assert_eq!(
        actions,
        [(6, "patch nodes a unreachable".to_owned()), (16, "patch nodes b not-ready".to_owned()),]
    );
}

/// Proves NLC-12, NLC-46, NLC-93, NLC-94.
#[test]
fn token_is_used_up_by_the_node_it_is_given_to() {
    let mut cluster = test_cluster();
    for name in ["a", "b", "c", "d", "e", "ready"] {
        cluster.put::<Node>(node(name, "True", &[]));
    }
    cluster.actions();
    for name in ["a", "b", "c"] {
        cluster.put::<Node>(node(name, "False", &[]));
    }
    // The health check queues them; it adds no taint itself.
    assert!(cluster.later(5).actions().is_empty());
    cluster.take_node("a").put::<Node>(node("b", "True", &[]));
    assert!(cluster.later(1).actions().is_empty(), "the first is deleted");
    assert!(cluster.later(3).actions().is_empty());
    cluster.failing::<Node>("patch", &Key::cluster("c"), ErrorReason::Unavailable, 1);
    let leases = |cluster: &mut TestCluster| {
        for name in ["a", "b", "c", "d", "e", "ready"] {
            let version = cluster.version;
            cluster.put::<Lease>(lease(name, version));
        }
    };
    let mut actions = Vec::new();
    for second in 10..=60 {
        leases(&mut cluster);
        let transcript = cluster.later(1).actions();
        actions.extend(
            transcript
                .into_iter()
                .filter(|action| action.starts_with("patch"))
                .map(|action| (second, action)),
        );
        if actions.len() == 2 {
            break;
        }
    }
    // The second is ready again, which the next health check notices; patching the third fails and needs
    // another token.
    assert_eq!(
        actions,
        [
            (16, "patch nodes c because it is not ready, and the eviction rate of its zone permits the taint FAILED: refused".to_owned()),
            (26, "patch nodes c not-ready".to_owned()),
        ]
    );
}

/// Proves NLC-46.
#[test]
fn queued_node_without_ready_condition_is_retried_later() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "True", &[]));
    cluster.actions();
    cluster.put::<Node>(node("a", "False", &[]));
    assert!(cluster.later(5).reconcile().ends_with("requeue after 1ms\n"));
    let mut without_ready = node("a", "", &[]);
    without_ready["status"] = json!({});
    cluster.put::<Node>(without_ready);
    assert!(
        cluster.reconcile().ends_with("requeue after 5s\n"),
        "the token is used up, and the next health check comes first"
    );
}

/// Proves NLC-43, NLC-45, NLC-66.
#[test]
fn switching_or_removing_a_no_execute_taint_is_not_rate_limited() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "True", &[])).put::<Node>(node(
        "c",
        "True",
        &[],
    ));
    cluster.actions();
    cluster.put::<Node>(node("a", "False", &["unreachable"])).put::<Node>(node(
        "b",
        "Unknown",
        &["not-ready"],
    ));
    cluster.put::<Node>(node("c", "True", &["not-ready", "unreachable"]));
    assert_eq!(
        cluster.later(5).actions(),
        [
            "patch nodes a not-ready".to_owned(),
            "patch nodes b unreachable".to_owned(),
            "patch nodes c clear".to_owned(),
        ]
    );
}

/// Proves NLC-65, INF-121.
#[test]
fn conflicting_taint_patch_is_retried_on_the_live_node_if_still_required() {
    let due_for_taint = || {
        let mut cluster = test_cluster();
        cluster.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "True", &[]));
        cluster.actions();
        cluster.put::<Node>(node("a", "False", &[]));
        cluster.later(5).actions();
        cluster
    };
    let mut again = due_for_taint();
    again.failing::<Node>("patch", &Key::cluster("a"), ErrorReason::Conflict, 1);
    assert_eq!(again.actions()[1..], ["get nodes a".to_owned(), "patch nodes a not-ready".to_owned()]);
    let mut endless = due_for_taint();
    endless.failing::<Node>("patch", &Key::cluster("a"), ErrorReason::Conflict, 100);
    assert_eq!(endless.actions().iter().filter(|action| action.starts_with("patch")).count(), 5);
    // It became ready in the meantime: a taint would evict its pods.
    let mut back = due_for_taint();
    back.failing::<Node>("patch", &Key::cluster("a"), ErrorReason::Conflict, 1);
    let rehearsal = std::mem::replace(&mut back.rehearsal, RehearsalCluster::of(&back.a_loop));
    back.rehearsal = rehearsal.with_live::<Node>(node("a", "True", &[]));
    assert_eq!(back.actions().last().map(String::as_str), Some("get nodes a"));
}

/// Proves NLC-17, NLC-79, NLC-80, INF-122.
#[test]
fn new_leader_removes_no_execute_taints_and_adds_them_rate_limited() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("ok", "True", &[]));
    cluster.put::<Node>(node("unknown", "Unknown", &["unreachable"])).put::<Node>(node(
        "expiring",
        "True",
        &[],
    ));
    let transcript = cluster.actions();
    assert!(transcript.contains(&"patch nodes unknown clear".to_owned()), "{transcript:?}");
    cluster.put::<Node>(node("unknown", "Unknown", &[]));
    assert_eq!(cluster.later(1).actions(), ["patch nodes unknown unreachable"]);
    cluster.put::<Node>(node("unknown", "Unknown", &["unreachable"]));
    assert!(cluster.run(40, &["ok"]).is_empty());
    // A node without heartbeat gets its full grace period again, and one already `Unknown` stays `Unknown`.
    cluster.restart().actions();
    cluster.put::<Node>(node("unknown", "Unknown", &["unreachable"]));
    assert!(cluster.run(50, &["ok"]).is_empty());
    let transcript = cluster.run(10, &["ok"]);
    assert!(transcript.iter().any(|(_, action)| action == "patch nodes/status expiring"), "{transcript:?}");
    assert!(
        !transcript.iter().any(|(_, action)| action.contains("patch nodes/status unknown")),
        "{transcript:?}"
    );
}

/// Proves NLC-59, NLC-60, NLC-61, NLC-81, NLC-82.
#[test]
fn no_node_is_tainted_in_full_disruption() {
    let mut cluster = test_cluster();
    for (zone, name) in [("x", "a"), ("x", "b"), ("y", "c"), ("y", "d")] {
        cluster.put::<Node>(node_in(zone, name, "True", &[]));
    }
    cluster.actions();
    // One zone fails first, and one of its nodes is tainted in time.
    cluster.put::<Node>(node_in("x", "a", "Unknown", &[])).put::<Node>(node_in("x", "b", "Unknown", &[]));
    assert!(cluster.later(5).actions().is_empty());
    assert_eq!(cluster.actions(), ["patch nodes a unreachable"]);
    cluster.put::<Node>(node_in("x", "a", "Unknown", &["unreachable"]));
    // Then the other zone fails.
    cluster.put::<Node>(node_in("y", "c", "Unknown", &[])).put::<Node>(node_in("y", "d", "False", &[]));
    assert_eq!(cluster.later(5).actions(), ["patch nodes a clear"]);
    cluster.put::<Node>(node_in("x", "a", "Unknown", &[]));
    assert!(cluster.run(100, &[]).iter().all(|(_, action)| !action.starts_with("patch nodes ")));
    // One node becomes ready. The others get a new grace period and are tainted at the normal rate after it.
    cluster.put::<Node>(node_in("y", "c", "True", &[]));
    let transcript = cluster.run(30, &["c"]);
    let tainted: Vec<_> =
        transcript.iter().filter(|(_, action)| action.starts_with("patch nodes ")).collect();
    assert!(tainted[0].0 >= 10, "the initial tokens of the zones are used up: {transcript:?}");
    assert_eq!(
        tainted.iter().filter(|(second, _)| *second < 20).count(),
        2,
        "one of each zone: {transcript:?}"
    );
}

/// Proves NLC-81, NLC-82.
#[test]
fn first_health_check_in_full_disruption_taints_no_node() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("a", "Unknown", &["unreachable"])).put::<Node>(node("b", "Unknown", &[]));
    let transcript = cluster.actions();
    assert_eq!(transcript.iter().filter(|action| action.starts_with("patch")).count(), 2, "{transcript:?}");
    cluster.put::<Node>(node("a", "Unknown", &[]));
    assert!(cluster.run(100, &[]).iter().all(|(_, action)| !action.starts_with("patch")));
}

/// Proves NLC-61.
#[test]
fn leaving_full_disruption_restarts_all_grace_periods() {
    let mut cluster = test_cluster();
    cluster.put::<Node>(node("a", "False", &[])).put::<Node>(node("b", "False", &[]));
    cluster.actions();
    assert!(cluster.run(45, &[]).is_empty());
    cluster.put::<Node>(node("b", "True", &[]));
    // The grace period of `a` would have expired in second 55.
    let transcript = cluster.run(50, &["b"]);
    assert!(transcript.iter().all(|(_, action)| !action.starts_with("patch nodes/status")), "{transcript:?}");
}

/// Proves NLC-55.
#[test]
fn nodes_excluded_from_disruption_do_not_count_but_are_monitored() {
    const EXCLUDE: &str = "node.kubernetes.io/exclude-disruption";
    // Any value excludes; another label does not.
    for (label, value, counted) in [(EXCLUDE, "", 1), (EXCLUDE, "false", 1), ("example.com/other", "true", 2)]
    {
        let mut cluster = test_cluster();
        let labelled = |ready: &str| {
            let mut node = node("x", ready, &[]);
            node["metadata"]["labels"][label] = json!(value);
            node
        };
        cluster.put::<Node>(node("a", "True", &[])).put::<Node>(labelled("False"));
        let transcript = cluster.reconcile();
        let unhealthy = counted - 1;
        assert!(
            transcript.contains(&format!("zone_size{{:\0:z}} {counted}\n"))
                && transcript.contains(&format!("unhealthy_nodes_in_zone{{:\0:z}} {unhealthy}\n")),
            "{label}={value}: {transcript}"
        );
        assert_eq!(cluster.later(1).actions(), ["patch nodes x not-ready"]);
        cluster.put::<Node>(labelled("True"));
        let transcript = cluster.run(60, &["a"]);
        assert!(transcript.iter().any(|(_, action)| action == "patch nodes/status x"), "{transcript:?}");
    }
}

/// Proves NLC-55, NLC-77, NLC-86.
#[test]
fn lost_nodes_are_tainted_in_a_zone_of_excluded_nodes_only() {
    let excluded = |name: &str, ready: &str, taints: &[&str]| {
        let mut node = node_in("x", name, ready, taints);
        node["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = json!("");
        node
    };
    // With and without another zone that has counted nodes.
    for others in [&["ready"][..], &[]] {
        let mut cluster = test_cluster();
        for name in others {
            cluster.put::<Node>(node_in("y", name, "True", &[]));
        }
        for name in ["a", "b", "c"] {
            cluster.put::<Node>(excluded(name, "True", &[]));
        }
        cluster.actions();
        cluster.put::<Node>(excluded("a", "Unknown", &[])).put::<Node>(excluded("b", "False", &[]));
        let transcript = cluster.later(5).reconcile();
        assert!(transcript.contains("zone_size{:\0:x} 0\n"), "none of them counts: {transcript}");
        assert_eq!(cluster.actions(), ["patch nodes a unreachable"], "next to {others:?}");
        cluster.put::<Node>(excluded("a", "Unknown", &["unreachable"]));
        // The next health check starts with a new queue and a new token.
        assert!(cluster.later(4).actions().is_empty());
        assert!(cluster.later(1).actions().is_empty());
        assert_eq!(cluster.actions(), ["patch nodes b not-ready"], "next to {others:?}");
        cluster.put::<Node>(excluded("b", "False", &["not-ready"]));
        let transcript = cluster.run(30, &["a", "b", "c", "ready"]);
        assert!(transcript.is_empty(), "the third node is ready: {transcript:?}");
    }
}

/// Proves NLC-86.
#[test]
fn zones_are_dropped_without_countable_nodes_but_kept_without_known_health() {
    let mut cluster = test_cluster();
    let mut only = node("a", "True", &[]);
    only["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = json!("");
    cluster.put::<Node>(only);
    cluster.reconcile();
    let transcript = cluster.later(5).reconcile();
    assert!(
        transcript.contains("evictions_total{:\0:z} 0"),
        "the zone is added again in each health check: {transcript}"
    );
    // A counted node keeps it.
    cluster.put::<Node>(node("b", "True", &[]));
    cluster.later(5).reconcile();
    let transcript = cluster.later(5).reconcile();
    assert!(!transcript.contains("evictions_total") && transcript.contains("zone_size"), "{transcript}");
    // See `stale_lease_cache_marks_no_node_unknown` for the other half.
}

/// Proves NLC-88.
#[test]
fn node_that_changes_zone_is_queued_in_its_new_zone() {
    let mut cluster = test_cluster();
    for name in ["a", "b", "c"] {
        cluster.put::<Node>(node_in("x", name, "True", &[]));
    }
    cluster.put::<Node>(node_in("y", "d", "True", &[]));
    cluster.actions();
    cluster.put::<Node>(node_in("x", "a", "False", &[])).put::<Node>(node_in("x", "b", "False", &[]));
    cluster.later(5).actions();
    assert_eq!(cluster.actions(), ["patch nodes a not-ready"]);
    cluster.put::<Node>(node_in("x", "a", "False", &["not-ready"])).put::<Node>(node_in(
        "y",
        "b",
        "False",
        &[],
    ));
    cluster.later(5).actions();
    let transcript = cluster.reconcile();
    assert!(
        transcript.contains("patch nodes b because") && transcript.contains("evictions_total{:\0:y} 1"),
        "{transcript}"
    );
    cluster.put::<Node>(node_in("y", "b", "False", &["not-ready"]));
    assert!(cluster.run(10, &[]).is_empty(), "it is removed from the old queue");
}
