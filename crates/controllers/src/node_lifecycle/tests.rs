//! Whole passes over small fleets, told step by step.

use keleustes_objects::{ApiError, ErrorReason, Key, Lease};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const PERIOD: Duration = Duration::from_secs(5);

/// A fleet that is passed over. Whatever is not shown again stays as it was.
struct Stage {
    a_loop: Loop,
    world: RehearsalCluster,
    version: u32,
    settings: NodeLifecycleOptions,
}

fn stage() -> Stage {
    stage_with(NodeLifecycleOptions::default())
}

fn stage_with(settings: NodeLifecycleOptions) -> Stage {
    let a_loop = controller(settings).loops.remove(2);
    Stage { world: RehearsalCluster::of(&a_loop), a_loop, version: 100, settings }
}

impl Stage {
    fn put<T: keleustes_objects::Kind>(&mut self, mut json: Value) -> &mut Self {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.world.put::<T>(&self.a_loop, json);
        self
    }

    fn take_node(&mut self, name: &str) -> &mut Self {
        self.world.take::<Node>(&self.a_loop, &Key::cluster(name));
        self
    }

    fn refusing<T: keleustes_objects::Kind>(
        &mut self,
        verb: &str,
        key: &Key,
        reason: ErrorReason,
        times: u32,
    ) {
        let world = std::mem::replace(&mut self.world, RehearsalCluster::of(&self.a_loop));
        let failure = ApiError::transport(reason, "refused");
        self.world = world.failing_at(verb, &T::RESOURCE.object_path(key), failure, Some(times));
    }

    /// Another process takes over.
    fn restart(&mut self) -> &mut Self {
        self.a_loop = controller(self.settings).loops.remove(2);
        self
    }

    fn later(&mut self, seconds: u64) -> &mut Self {
        self.world.advance_clock(Duration::from_secs(seconds));
        self
    }

    /// Everything that one turn does.
    fn turn(&mut self) -> String {
        self.world.reconcile(&self.a_loop, Key::cluster("pass"))
    }

    /// What one turn does to the API, line by line; figures and the pause are left out.
    fn does(&mut self) -> Vec<String> {
        let told = self.turn();
        let is_deed = |line: &&str| !line.starts_with("measure") && !line.starts_with("revisit");
        told.lines().filter(is_deed).map(shortened).collect()
    }

    /// Turns over so many seconds, one a second, each showing these leases anew. Tells the second of each
    /// deed.
    fn run(&mut self, seconds: u64, alive: &[&str]) -> Vec<(u64, String)> {
        let mut deeds = Vec::new();
        for second in 1..=seconds {
            self.later(1);
            for name in alive {
                self.put::<Lease>(lease(name, self.version));
            }
            deeds.extend(self.does().into_iter().map(|deed| (second, deed)));
        }
        deeds
    }

    /// Lets a node carry what a pass decided to write: the caches follow the server.
    fn becomes_lost(&mut self, name: &str, zone: &str) {
        self.put::<Node>(node_in(zone, name, "Unknown", &[]));
    }
}

/// The line without a patch's body, of which only the keys of taints are told.
fn shortened(line: &str) -> String {
    let Some((what, body)) = line.split_once(": {") else { return line.to_owned() };
    let Ok(body) = serde_json::from_str::<Value>(&format!("{{{body}")) else { return line.to_owned() };
    let what = what.split(" because").next().unwrap_or_default();
    if body.get("spec").is_none() {
        return what.to_owned();
    }
    let key = |taint: &Value| taint["key"].as_str().unwrap_or_default().replace("node.kubernetes.io/", "");
    let taints = body["spec"]["taints"].as_array().map(|taints| taints.iter().map(key).collect::<Vec<_>>());
    format!("{what} {}", taints.map_or("clear".to_owned(), |taints| taints.join("+")))
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
fn it_is_known_by_the_original_s_names_and_numbers() {
    let controller = controller(NodeLifecycleOptions::default());
    assert_eq!((controller.name, controller.aliases), ("node-lifecycle-controller", &["nodelifecycle"][..]));
    assert_eq!(controller.service_account, Some("node-controller"));
    assert_eq!(controller.event_component, Some("node-controller"));
    let verbs: Vec<_> = controller.grants.iter().flat_map(|grant| grant.verbs).collect();
    assert!(!verbs.contains(&&"delete"), "it deletes nothing");
    let reads = |at: usize| -> Vec<_> {
        controller.loops[at].reads.iter().map(|kind| kind.resource().to_string()).collect()
    };
    assert_eq!(reads(0), ["pods", "nodes"]);
    assert_eq!(reads(1), ["nodes"]);
    assert_eq!(reads(2), ["nodes", "leases.coordination.k8s.io"]);
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

/// Proves NLC-1, NLC-14, NLC-72.
#[test]
fn passes_follow_each_other_and_tell_who_came_and_went() {
    let mut stage = stage();
    stage.put::<Node>(node("n", "True", &[]));
    let told = stage.turn();
    let event = "event Normal RegisteredNode: Node n event: Registered Node n in Controller\n";
    assert!(told.contains(event) && told.ends_with("requeue after 5s\n"), "{told}");
    // Between two passes nothing happens but what waits for its turn.
    stage.take_node("n");
    assert_eq!(stage.later(4).turn(), "requeue after 1s\n");
    let told = stage.later(1).turn();
    assert!(
        told.contains("event Normal RemovingNode: Node n event: Removing Node n from Controller\n"),
        "{told}"
    );
    assert!(stage.later(5).does().is_empty());
    stage.put::<Node>(node("n", "True", &[]));
    assert_eq!(stage.later(5).does().len(), 1);
    let mut another_life = node("n", "True", &[]);
    another_life["metadata"]["uid"] = json!("another");
    stage.put::<Node>(another_life);
    let told = stage.later(5).does();
    assert!(told[0].contains("RemovingNode") && told[1].contains("RegisteredNode"), "{told:?}");
}

/// Proves NLC-16, NLC-74, NLC-75, NLC-76, NLC-77.
#[test]
fn figures_are_told_for_each_zone() {
    let mut stage = stage();
    stage.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "False", &[]));
    let told = stage.turn();
    let figures: Vec<_> = told.lines().filter(|line| line.starts_with("measure")).collect();
    assert_eq!(
        figures,
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
    stage.take_node("a").take_node("b");
    let told = stage.later(5).turn();
    for figure in ["zone_size{:\0:z} 0", "zone_health{:\0:z} 100", "unhealthy_nodes_in_zone{:\0:z} 0"] {
        assert!(told.contains(&format!("measure node_collector_{figure}\n")), "{told}");
    }
    assert!(!stage.later(5).turn().contains("zone_size"));
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
fn a_node_that_falls_silent_is_said_to_be_unknown() {
    let mut stage = stage();
    stage.put::<Node>(node("n", "True", &[])).put::<Lease>(lease("n", 0));
    stage.does();
    assert!(stage.run(20, &["n"]).is_empty());
    let deeds = stage.run(60, &[]);
    let expected = [
        "get leases.coordination.k8s.io kube-node-lease/n",
        "patch nodes/status n",
        "event Normal NodeNotReady: Node n status is now: NodeNotReady",
    ];
    assert_eq!(deeds.iter().map(|(_, deed)| deed.as_str()).take(3).collect::<Vec<_>>(), expected);
    // It was last heard of in second 20; the first pass after more than 50 s of silence is in second 75.
    assert_eq!(deeds[0].0, 55);
    stage.becomes_lost("n", "z");
    assert!(stage.run(20, &[]).is_empty(), "that is said once");
}

/// Proves NLC-63.
#[test]
fn the_patch_names_the_state_it_was_made_from() {
    let mut stage = stage();
    stage.put::<Node>(node("n", "True", &[]));
    stage.turn();
    let told = stage.later(55).turn();
    let patch = told.lines().find(|line| line.starts_with("patch nodes/status")).unwrap();
    assert!(
        patch.contains(": {\"metadata\":{\"resourceVersion\":\"101\"},\"status\":{\"conditions\":["),
        "{patch}"
    );
    assert!(patch.contains("\"reason\":\"NodeStatusUnknown\""), "{patch}");
}

/// Proves NLC-29, NLC-87.
#[test]
fn a_write_that_fails_is_made_again_on_what_is_there_now() {
    let silent = || {
        let mut stage = stage();
        stage.put::<Node>(node("n", "True", &[])).put::<Node>(node("m", "True", &[]));
        stage.does();
        stage.later(50).put::<Lease>(lease("m", 0));
        stage.later(5);
        stage
    };
    let key = Key::cluster("n");
    let mut again = silent();
    again.refusing::<Node>("patch", &key, ErrorReason::Unavailable, 1);
    let told = again.does();
    assert_eq!(told.iter().filter(|deed| deed.starts_with("patch nodes/status n")).count(), 2, "{told:?}");
    assert!(
        told.contains(&"get nodes n".to_owned()) && told.iter().any(|deed| deed.contains("NodeNotReady"))
    );

    // It is alive after all: what is there now says so.
    let mut alive = silent();
    alive.refusing::<Node>("patch", &key, ErrorReason::Conflict, 1);
    let mut newer = node("n", "True", &[]);
    newer["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:01:00Z");
    let world = std::mem::replace(&mut alive.world, RehearsalCluster::of(&alive.a_loop));
    alive.world = world.with_live::<Node>(newer);
    let told = alive.does();
    assert_eq!(told.iter().filter(|deed| deed.contains("patch nodes/status n")).count(), 1, "{told:?}");
    assert!(!told.iter().any(|deed| deed.contains("NodeNotReady")), "{told:?}");

    // The first write had taken effect.
    let mut effective = silent();
    effective.refusing::<Node>("patch", &key, ErrorReason::ConnectionLost, 1);
    let world = std::mem::replace(&mut effective.world, RehearsalCluster::of(&effective.a_loop));
    effective.world = world.with_live::<Node>(node("n", "Unknown", &[]));
    let told = effective.does();
    assert_eq!(told.iter().filter(|deed| deed.contains("patch nodes/status n")).count(), 1, "{told:?}");
    assert!(told.iter().any(|deed| deed.contains("NodeNotReady")), "{told:?}");

    // Five times is enough, and then nothing is done about it in this pass.
    let mut hopeless = silent();
    hopeless.refusing::<Node>("patch", &key, ErrorReason::Unavailable, 100);
    let told = hopeless.turn();
    assert_eq!(told.matches("patch nodes/status n").count(), 5, "{told}");
    assert!(told.contains("zone_size{:\0:z} 1"), "a node that was skipped does not count: {told}");
    let mut unreadable = silent();
    unreadable.refusing::<Node>("patch", &key, ErrorReason::Unavailable, 100);
    unreadable.refusing::<Node>("get", &key, ErrorReason::Unavailable, 100);
    let told = unreadable.turn();
    assert_eq!(told.matches("patch nodes/status n").count(), 1, "{told}");
    assert!(told.contains("zone_size{:\0:z} 1"), "{told}");
}

/// Proves NLC-30, NLC-31, NLC-32, NLC-89.
#[test]
fn a_cache_of_leases_that_is_behind_silences_nobody() {
    let mut stage = stage();
    stage.put::<Node>(node("n", "True", &[])).put::<Node>(node("m", "True", &[]));
    stage.put::<Lease>(lease("n", 0)).put::<Lease>(lease("m", 0));
    stage.does();
    stage.later(55);
    // The server knows a newer state of one lease than the cache.
    let mut newer = lease("n", 50);
    newer["metadata"]["resourceVersion"] = json!("500");
    let world = std::mem::replace(&mut stage.world, RehearsalCluster::of(&stage.a_loop));
    stage.world = world.with_live::<Lease>(newer.clone());
    let told = stage.turn();
    assert!(told.contains("get leases.coordination.k8s.io kube-node-lease/m"), "{told}");
    assert!(!told.contains("patch") && !told.contains("zone_size"), "nobody could be judged: {told}");
    // Until it has caught up, nobody is even asked about.
    assert!(stage.later(5).does().is_empty());
    stage.version = 499;
    stage.put::<Lease>(lease("n", 50));
    let told = stage.later(5).does();
    assert_eq!(
        told,
        [
            "get leases.coordination.k8s.io kube-node-lease/m".to_owned(),
            "patch nodes/status m".to_owned(),
            "event Normal NodeNotReady: Node m status is now: NodeNotReady".to_owned(),
        ]
    );
}

/// Proves NLC-31.
#[test]
fn a_lease_that_is_gone_protects_nobody_and_one_that_cannot_be_read_protects_its_node() {
    let told = |prepare: fn(&mut Stage)| {
        let mut stage = stage();
        stage.put::<Node>(node("n", "True", &[]));
        stage.does();
        prepare(&mut stage);
        stage.later(55).does()
    };
    assert!(told(|_| {}).contains(&"patch nodes/status n".to_owned()));
    let told = told(|stage| {
        stage.refusing::<Lease>("get", &Key::namespaced("kube-node-lease", "n"), ErrorReason::Unavailable, 1);
    });
    assert_eq!(told, ["get leases.coordination.k8s.io kube-node-lease/n"]);
}

/// Proves NLC-32, NLC-33.
#[test]
fn versions_that_cannot_be_compared_block_nobody() {
    let mut fleet = Fleet::default();
    assert!(fleet.lease_cache_is_current(&ResourceVersion::from("5")));
    fleet.require_lease_resource_version(&ResourceVersion::from("10"));
    fleet.require_lease_resource_version(&ResourceVersion::from("8"));
    assert!(
        !fleet.lease_cache_is_current(&ResourceVersion::from("9"))
            && fleet.lease_cache_is_current(&ResourceVersion::from("10"))
    );
    assert!(fleet.lease_cache_is_current(&ResourceVersion::from("9")), "once caught up, it is forgotten");
    fleet.require_lease_resource_version(&ResourceVersion::from("odd"));
    assert!(fleet.lease_cache_is_current(&ResourceVersion::from("9")));
    fleet.require_lease_resource_version(&ResourceVersion::from("10"));
    assert!(fleet.lease_cache_is_current(&ResourceVersion::from("")));
}

/// Proves NLC-30.
#[test]
fn without_the_gate_no_lease_is_read() {
    let mut stage =
        stage_with(NodeLifecycleOptions { lease_circuit_breaker: false, ..NodeLifecycleOptions::default() });
    stage.put::<Node>(node("n", "True", &[]));
    stage.does();
    assert!(!stage.later(55).does().iter().any(|deed| deed.contains("leases")));
}

/// Proves NLC-44, NLC-46, NLC-47, NLC-48.
#[test]
fn lost_nodes_are_tainted_one_by_one_at_the_pace_of_their_zone() {
    let mut stage = stage();
    for name in ["a", "b", "c"] {
        stage.put::<Node>(node(name, "True", &[]));
    }
    stage.does();
    stage.put::<Node>(node("b", "False", &[])).put::<Node>(node("a", "Unknown", &[]));
    let mut deeds = Vec::new();
    for second in 1..=30 {
        let told = stage.later(1).turn();
        deeds.extend(
            told.lines().filter(|line| line.starts_with("patch")).map(|line| (second, shortened(line))),
        );
        // What is written is cached by the next turn.
        for (_, deed) in &deeds {
            let (name, taint) = deed["patch nodes ".len()..].split_once(' ').unwrap();
            let ready = if taint == "not-ready" { "False" } else { "Unknown" };
            stage.put::<Node>(node(name, ready, &[taint]));
        }
        if let Some((at, _)) = deeds.last().filter(|(at, _)| *at == second) {
            assert!(told.contains("measure node_collector_evictions_total{:\0:z} 1"), "{at}: {told}");
        }
        stage.put::<Node>(node("c", "True", &[]));
        stage
            .put::<Lease>(lease("a", second))
            .put::<Lease>(lease("b", second))
            .put::<Lease>(lease("c", second));
    }
    assert_eq!(
        deeds,
        [(6, "patch nodes a unreachable".to_owned()), (16, "patch nodes b not-ready".to_owned()),]
    );
}

/// Proves NLC-12, NLC-46, NLC-93, NLC-94.
#[test]
fn a_turn_is_spent_on_whoever_it_comes_to() {
    let mut stage = stage();
    for name in ["a", "b", "c", "d", "e", "ready"] {
        stage.put::<Node>(node(name, "True", &[]));
    }
    stage.does();
    for name in ["a", "b", "c"] {
        stage.put::<Node>(node(name, "False", &[]));
    }
    // The pass puts them into the queue; no turn is taken in it.
    assert!(stage.later(5).does().is_empty());
    stage.take_node("a").put::<Node>(node("b", "True", &[]));
    assert!(stage.later(1).does().is_empty(), "the first is gone");
    assert!(stage.later(3).does().is_empty());
    stage.refusing::<Node>("patch", &Key::cluster("c"), ErrorReason::Unavailable, 1);
    let leases = |stage: &mut Stage| {
        for name in ["a", "b", "c", "d", "e", "ready"] {
            let version = stage.version;
            stage.put::<Lease>(lease(name, version));
        }
    };
    let mut deeds = Vec::new();
    for second in 10..=60 {
        leases(&mut stage);
        let told = stage.later(1).does();
        deeds.extend(told.into_iter().filter(|deed| deed.starts_with("patch")).map(|deed| (second, deed)));
        if deeds.len() == 2 {
            break;
        }
    }
    // The second has come back, which the next pass notices; the third fails and needs another turn.
    assert_eq!(
        deeds,
        [
            (16, "patch nodes c because it is lost, and its zone lets it be said FAILED: refused".to_owned()),
            (26, "patch nodes c not-ready".to_owned()),
        ]
    );
}

/// Proves NLC-46.
#[test]
fn a_node_without_a_word_of_its_state_has_its_turn_a_little_later() {
    let mut stage = stage();
    stage.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "True", &[]));
    stage.does();
    stage.put::<Node>(node("a", "False", &[]));
    assert!(stage.later(5).turn().ends_with("requeue after 1ms\n"));
    let mut unjudged = node("a", "", &[]);
    unjudged["status"] = json!({});
    stage.put::<Node>(unjudged);
    assert!(stage.turn().ends_with("requeue after 5s\n"), "the turn is spent, and the next pass comes first");
}

/// Proves NLC-43, NLC-45, NLC-66.
#[test]
fn to_say_it_otherwise_or_to_take_it_back_needs_no_turn() {
    let mut stage = stage();
    stage.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "True", &[])).put::<Node>(node(
        "c",
        "True",
        &[],
    ));
    stage.does();
    stage.put::<Node>(node("a", "False", &["unreachable"])).put::<Node>(node("b", "Unknown", &["not-ready"]));
    stage.put::<Node>(node("c", "True", &["not-ready", "unreachable"]));
    assert_eq!(
        stage.later(5).does(),
        [
            "patch nodes a not-ready".to_owned(),
            "patch nodes b unreachable".to_owned(),
            "patch nodes c clear".to_owned(),
        ]
    );
}

/// Proves NLC-65, INF-121.
#[test]
fn a_change_of_taints_is_made_again_on_what_is_there_if_it_still_makes_sense() {
    let lost = || {
        let mut stage = stage();
        stage.put::<Node>(node("a", "True", &[])).put::<Node>(node("b", "True", &[]));
        stage.does();
        stage.put::<Node>(node("a", "False", &[]));
        stage.later(5).does();
        stage
    };
    let mut again = lost();
    again.refusing::<Node>("patch", &Key::cluster("a"), ErrorReason::Conflict, 1);
    assert_eq!(again.does()[1..], ["get nodes a".to_owned(), "patch nodes a not-ready".to_owned()]);
    let mut endless = lost();
    endless.refusing::<Node>("patch", &Key::cluster("a"), ErrorReason::Conflict, 100);
    assert_eq!(endless.does().iter().filter(|deed| deed.starts_with("patch")).count(), 5);
    // It came back meanwhile: to taint it now would cost its pods.
    let mut back = lost();
    back.refusing::<Node>("patch", &Key::cluster("a"), ErrorReason::Conflict, 1);
    let world = std::mem::replace(&mut back.world, RehearsalCluster::of(&back.a_loop));
    back.world = world.with_live::<Node>(node("a", "True", &[]));
    assert_eq!(back.does().last().map(String::as_str), Some("get nodes a"));
}

/// Proves NLC-17, NLC-79, NLC-80, INF-122.
#[test]
fn after_a_restart_the_lost_lose_their_taint_and_get_it_back_in_turn() {
    let mut stage = stage();
    stage.put::<Node>(node("ok", "True", &[]));
    stage.put::<Node>(node("lost", "Unknown", &["unreachable"])).put::<Node>(node("dying", "True", &[]));
    let told = stage.does();
    assert!(told.contains(&"patch nodes lost clear".to_owned()), "{told:?}");
    stage.put::<Node>(node("lost", "Unknown", &[]));
    assert_eq!(stage.later(1).does(), ["patch nodes lost unreachable"]);
    stage.put::<Node>(node("lost", "Unknown", &["unreachable"]));
    assert!(stage.run(40, &["ok"]).is_empty());
    // One that fell silent has its full grace again, and one that is known to be silent stays known.
    stage.restart().does();
    stage.put::<Node>(node("lost", "Unknown", &["unreachable"]));
    assert!(stage.run(50, &["ok"]).is_empty());
    let told = stage.run(10, &["ok"]);
    assert!(told.iter().any(|(_, deed)| deed == "patch nodes/status dying"), "{told:?}");
    assert!(!told.iter().any(|(_, deed)| deed.contains("patch nodes/status lost")), "{told:?}");
}

/// Proves NLC-59, NLC-60, NLC-61, NLC-81, NLC-82.
#[test]
fn when_nobody_at_all_answers_nobody_is_tainted() {
    let mut stage = stage();
    for (zone, name) in [("x", "a"), ("x", "b"), ("y", "c"), ("y", "d")] {
        stage.put::<Node>(node_in(zone, name, "True", &[]));
    }
    stage.does();
    // One zone goes first, and one of its nodes is tainted in time.
    stage.put::<Node>(node_in("x", "a", "Unknown", &[])).put::<Node>(node_in("x", "b", "Unknown", &[]));
    assert!(stage.later(5).does().is_empty());
    assert_eq!(stage.does(), ["patch nodes a unreachable"]);
    stage.put::<Node>(node_in("x", "a", "Unknown", &["unreachable"]));
    // Then the other one.
    stage.put::<Node>(node_in("y", "c", "Unknown", &[])).put::<Node>(node_in("y", "d", "False", &[]));
    assert_eq!(stage.later(5).does(), ["patch nodes a clear"]);
    stage.put::<Node>(node_in("x", "a", "Unknown", &[]));
    assert!(stage.run(100, &[]).iter().all(|(_, deed)| !deed.starts_with("patch nodes ")));
    // One comes back. The others are given time, and are tainted at the usual pace if they do not use it.
    stage.put::<Node>(node_in("y", "c", "True", &[]));
    let told = stage.run(30, &["c"]);
    let tainted: Vec<_> = told.iter().filter(|(_, deed)| deed.starts_with("patch nodes ")).collect();
    assert!(tainted[0].0 >= 10, "what the zones had to begin with was used up: {told:?}");
    assert_eq!(tainted.iter().filter(|(second, _)| *second < 20).count(), 2, "one of each zone: {told:?}");
}

/// Proves NLC-81, NLC-82.
#[test]
fn a_first_pass_that_finds_nobody_taints_nobody() {
    let mut stage = stage();
    stage.put::<Node>(node("a", "Unknown", &["unreachable"])).put::<Node>(node("b", "Unknown", &[]));
    let told = stage.does();
    assert_eq!(told.iter().filter(|deed| deed.starts_with("patch")).count(), 2, "{told:?}");
    stage.put::<Node>(node("a", "Unknown", &[]));
    assert!(stage.run(100, &[]).iter().all(|(_, deed)| !deed.starts_with("patch")));
}

/// Proves NLC-61.
#[test]
fn when_somebody_is_back_all_have_a_fresh_grace() {
    let mut stage = stage();
    stage.put::<Node>(node("a", "False", &[])).put::<Node>(node("b", "False", &[]));
    stage.does();
    assert!(stage.run(45, &[]).is_empty());
    stage.put::<Node>(node("b", "True", &[]));
    // `a` would have been silent for too long in second 55.
    let told = stage.run(50, &["b"]);
    assert!(told.iter().all(|(_, deed)| !deed.starts_with("patch nodes/status")), "{told:?}");
}

/// Proves NLC-55.
#[test]
fn excluded_nodes_do_not_count_but_are_watched_like_all_others() {
    let mut stage = stage();
    let excluded = |ready: &str| {
        let mut node = node("x", ready, &[]);
        node["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = json!("");
        node
    };
    stage.put::<Node>(node("a", "True", &[])).put::<Node>(excluded("False"));
    let told = stage.turn();
    assert!(
        told.contains("zone_size{:\0:z} 1\n") && told.contains("unhealthy_nodes_in_zone{:\0:z} 0\n"),
        "{told}"
    );
    assert_eq!(stage.later(1).does(), ["patch nodes x not-ready"]);
    stage.put::<Node>(excluded("True"));
    let told = stage.run(60, &["a"]);
    assert!(told.iter().any(|(_, deed)| deed == "patch nodes/status x"), "{told:?}");
}

/// Proves NLC-86.
#[test]
fn with_nobody_to_count_zones_are_forgotten_and_with_nobody_to_judge_they_are_not() {
    let mut stage = stage();
    let mut only = node("a", "True", &[]);
    only["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = json!("");
    stage.put::<Node>(only);
    stage.turn();
    let told = stage.later(5).turn();
    assert!(told.contains("evictions_total{:\0:z} 0"), "it is met anew in each pass: {told}");
    // See `a_cache_of_leases_that_is_behind_silences_nobody` for the other half.
}

/// Proves NLC-88.
#[test]
fn a_node_that_moves_waits_in_its_new_zone_too() {
    let mut stage = stage();
    for name in ["a", "b", "c"] {
        stage.put::<Node>(node_in("x", name, "True", &[]));
    }
    stage.put::<Node>(node_in("y", "d", "True", &[]));
    stage.does();
    stage.put::<Node>(node_in("x", "a", "False", &[])).put::<Node>(node_in("x", "b", "False", &[]));
    stage.later(5).does();
    assert_eq!(stage.does(), ["patch nodes a not-ready"]);
    stage.put::<Node>(node_in("x", "a", "False", &["not-ready"])).put::<Node>(node_in(
        "y",
        "b",
        "False",
        &[],
    ));
    stage.later(5).does();
    let told = stage.turn();
    assert!(told.contains("patch nodes b because") && told.contains("evictions_total{:\0:y} 1"), "{told}");
    stage.put::<Node>(node_in("y", "b", "False", &["not-ready"]));
    assert!(stage.run(10, &[]).is_empty(), "its place in the old one is given up");
}
