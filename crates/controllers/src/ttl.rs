//! Annotates every node with the time for which its kubelet may cache Secrets and ConfigMaps, which grows with the
//! number of nodes.
//!
//! Parity: pkg/controller/ttl/.

use keleustes_objects::{Key, Node};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Memory, PatchKind, Plan, View, Write};
use serde_json::json;

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new(NAME)
        .service_account(NAME)
        .may_write(&[Grant { group: "", resource: "nodes", verbs: &["list", "patch", "update", "watch"] }])
        .with_loop(the_loop())
}

fn the_loop() -> Loop {
    let memory = Memory::<ClusterSize>::default();
    let counted = memory.clone();
    Loop::deciding("ttlcontroller", move |view, item| {
        decide(view, item, memory.with(|size| size.ttl_seconds()))
    })
    .workers(5)
    .keyed_by::<Node>()
    .enqueue_on::<Node>(move |change, _, queue| counted.with(|size| node_changed(size, change, queue)))
}

const NAME: &str = "ttl-controller";

/// The annotation with the TTL in seconds.
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// A band of cluster sizes with one TTL. Bands overlap, so that a cluster whose size varies a little keeps its TTL.
struct Band {
    size_min: usize,
    size_max: usize,
    ttl_seconds: i32,
}

const BANDS: [Band; 5] = [
    Band { size_min: 0, size_max: 100, ttl_seconds: 0 },
    Band { size_min: 90, size_max: 500, ttl_seconds: 15 },
    Band { size_min: 450, size_max: 1000, ttl_seconds: 30 },
    Band { size_min: 900, size_max: 2000, ttl_seconds: 60 },
    Band { size_min: 1800, size_max: i32::MAX as usize, ttl_seconds: 300 },
];

/// The number of nodes and the band that it is in. A new process counts from zero, so that its first band is the one
/// of a growing cluster, as in the original: at worst a kubelet refreshes its caches more often.
#[derive(Clone, Default)]
struct ClusterSize {
    nodes: usize,
    band: usize,
}

impl ClusterSize {
    fn node_added(&mut self) {
        self.nodes += 1;
        if self.nodes > BANDS[self.band].size_max && self.band + 1 < BANDS.len() {
            self.band += 1;
        }
    }

    fn node_deleted(&mut self) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes < BANDS[self.band].size_min {
            self.band -= 1; // The first band has no size below its minimum of zero.
        }
    }

    fn ttl_seconds(&self) -> i32 {
        BANDS[self.band].ttl_seconds
    }
}

/// Counts nodes and enqueues the changed one. The other nodes get a new TTL with their own next update.
fn node_changed(size: &mut ClusterSize, change: &Change<Node>, queue: &mut Effects) {
    match (change.old(), change.new()) {
        (None, Some(_)) => size.node_added(),
        (Some(_), None) => return size.node_deleted(),
        _ => {}
    }
    queue.add(&change.latest().meta.key);
}

fn decide(view: &View<'_>, item: &Key, ttl_seconds: i32) -> Plan {
    let Some(node) = view.get::<Node>(item).filter(|node| node.ttl_seconds != Some(ttl_seconds)) else {
        return Plan::none();
    };
    let body = json!({"metadata": {"annotations": {TTL: ttl_seconds.to_string()}}});
    let write = Write::patch(&**node, PatchKind::Strategic, body);
    Plan::of(write.because("the TTL of the cluster's size differs"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keleustes_objects::{ApiError, ErrorReason};
    use keleustes_plan::RateLimiter;
    use keleustes_plan::rehearsal::RehearsalCluster;
    use serde_json::Value;

    use super::*;

    fn node(name: &str, ttl: &Value) -> Value {
        json!({"metadata": {"name": name, "uid": format!("u-{name}"), "annotations": {TTL: ttl, "other": "kept"}}})
    }

    /// The loop with its count, and the cached nodes.
    struct TestCluster {
        a_loop: Loop,
        rehearsal: RehearsalCluster,
    }

    impl TestCluster {
        /// A cluster of `count` nodes without the annotation, named by their numbers.
        fn of(count: usize) -> Self {
            let a_loop = the_loop();
            let mut cluster = Self { rehearsal: RehearsalCluster::of(&a_loop), a_loop };
            cluster.grow(0, count);
            cluster
        }

        fn grow(&mut self, from: usize, to: usize) {
            for n in from..to {
                let name = n.to_string();
                assert_eq!(self.rehearsal.put::<Node>(&self.a_loop, node(&name, &Value::Null)), [name]);
            }
        }

        fn shrink(&mut self, from: usize, to: usize) {
            for n in (to..from).rev() {
                assert!(self.rehearsal.take::<Node>(&self.a_loop, &Key::cluster(n.to_string())).is_empty());
            }
        }

        /// The TTL that the first node gets.
        fn ttl(&mut self) -> String {
            let bodies = self.rehearsal.bodies(&self.a_loop, Key::cluster("0"), "patch nodes ");
            let (_, body) = bodies.into_iter().next().expect("a patch");
            body["metadata"]["annotations"][TTL].as_str().expect("a text").to_owned()
        }

        fn sync(&mut self, name: &str) -> String {
            self.rehearsal.reconcile(&self.a_loop, Key::cluster(name))
        }
    }

    /// Proves TTL-2, TTL-4, TTL-6, TTL-7, TTL-8, TTL-9, TTL-27.
    #[test]
    fn ttl_follows_the_cluster_size_with_hysteresis() {
        let mut cluster = TestCluster::of(100);
        assert_eq!(cluster.ttl(), "0");
        let mut size = 100;
        for (grown, up, before) in
            [(101, "15", "0"), (501, "30", "15"), (1001, "60", "30"), (2001, "300", "60")]
        {
            cluster.grow(size, grown - 1);
            assert_eq!(cluster.ttl(), before, "{}", grown - 1);
            cluster.grow(grown - 1, grown);
            assert_eq!(cluster.ttl(), up, "{grown}");
            size = grown;
        }
        for (shrunk, down, before) in
            [(1799, "60", "300"), (899, "30", "60"), (449, "15", "30"), (89, "0", "15")]
        {
            cluster.shrink(size, shrunk + 1);
            assert_eq!(cluster.ttl(), before, "{}", shrunk + 1);
            cluster.shrink(shrunk + 1, shrunk);
            assert_eq!(cluster.ttl(), down, "{shrunk}");
            size = shrunk;
        }
        cluster.shrink(size, 1);
        assert_eq!(cluster.ttl(), "0");
    }

    /// Proves TTL-3, TTL-13, TTL-28, TTL-29.
    #[test]
    fn update_enqueues_only_its_node_and_counts_nothing() {
        let mut cluster = TestCluster::of(101);
        let a_loop = &cluster.a_loop;
        let updated: Arc<Node> = Arc::new(serde_json::from_value(node("7", &json!("0"))).unwrap());
        assert_eq!(cluster.rehearsal.enqueued_by(a_loop, Change::resync(updated)), ["7"]);
        // A user's change, and a node that was recreated while the watch was down: each is one update.
        let mut recreated = node("7", &json!("99"));
        assert_eq!(cluster.rehearsal.put::<Node>(a_loop, recreated.clone()), ["7"]);
        assert!(cluster.sync("7").contains(r#""node.alpha.kubernetes.io/ttl":"15""#));
        recreated["metadata"]["uid"] = json!("another");
        for _ in 0..20 {
            assert_eq!(cluster.rehearsal.put::<Node>(&cluster.a_loop, recreated.clone()), ["7"]);
        }
        cluster.shrink(101, 90);
        assert_eq!(cluster.ttl(), "15", "there are 90 nodes");
        cluster.shrink(90, 89);
        assert_eq!(cluster.ttl(), "0", "there are 89 nodes");
    }

    /// Proves TTL-20, TTL-25.
    #[test]
    fn new_process_counts_from_zero_and_a_recreated_node_counts_once() {
        let mut cluster = TestCluster::of(101);
        cluster.shrink(101, 95);
        assert_eq!(cluster.ttl(), "15");
        cluster.shrink(95, 94);
        cluster.grow(94, 95);
        assert_eq!(cluster.ttl(), "15");
        assert_eq!(TestCluster::of(95).ttl(), "0");
    }

    /// Proves TTL-10, TTL-11, TTL-12, TTL-15, TTL-18, TTL-23, TTL-24, TTL-26, TTL-30.
    #[test]
    fn annotation_is_patched_only_if_it_is_another_number() {
        let mut cluster = TestCluster::of(100);
        let patch = |name: &str, ttl: &str| {
            let body = json!({"metadata": {"annotations": {TTL: ttl}}});
            format!("patch nodes {name} because the TTL of the cluster's size differs: {body}\n")
        };
        assert_eq!(cluster.sync("5"), patch("5", "0"), "missing");
        for (value, expected) in [("0", ""), ("00", ""), ("+0", ""), ("-0", ""), ("15", "0"), ("abc", "0")]
            .into_iter()
            .chain([("", "0"), (" 0", "0"), ("0x0", "0"), ("99999999999999999999", "0")])
        {
            cluster.rehearsal.put::<Node>(&cluster.a_loop, node("5", &json!(value)));
            let expected = if expected.is_empty() { String::new() } else { patch("5", expected) };
            assert_eq!(cluster.sync("5"), expected, "{value:?}");
        }
        cluster.grow(100, 101);
        cluster.rehearsal.put::<Node>(&cluster.a_loop, node("5", &json!("015")));
        assert_eq!(cluster.sync("5"), "", "015 is 15");
        assert_eq!(cluster.sync("6"), patch("6", "15"));
        let live = cluster.rehearsal.live_object::<Node>(&Key::cluster("5")).unwrap();
        assert_eq!(live["metadata"]["annotations"]["other"], "kept");
    }

    /// Proves TTL-14, TTL-22.
    #[test]
    fn every_node_counts_and_is_annotated_and_a_deleted_one_is_not() {
        let mut cluster = TestCluster::of(97);
        let mut terminating = node("leaving", &Value::Null);
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut cordoned = node("cordoned", &Value::Null);
        cordoned["spec"] = json!({"unschedulable": true});
        let mut lost = node("lost", &Value::Null);
        lost["status"] = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
        let mut control_plane = node("cp", &Value::Null);
        control_plane["metadata"]["labels"] = json!({"node-role.kubernetes.io/control-plane": ""});
        for each in [terminating, cordoned, lost, control_plane] {
            cluster.rehearsal.put::<Node>(&cluster.a_loop, each);
        }
        for name in ["leaving", "cordoned", "lost", "cp"] {
            assert!(cluster.sync(name).contains(r#""node.alpha.kubernetes.io/ttl":"15""#), "{name}");
        }
        assert_eq!(cluster.sync("unknown"), "");
    }

    /// Proves TTL-16, TTL-17.
    #[test]
    fn every_error_is_retried_until_the_node_is_deleted() {
        for reason in
            [ErrorReason::NotFound, ErrorReason::Conflict, ErrorReason::Invalid, ErrorReason::Unavailable]
        {
            let a_loop = the_loop();
            let key = Key::cluster("0");
            let mut rehearsal = RehearsalCluster::of(&a_loop)
                .with::<Node>(node("0", &Value::Null))
                .failing::<Node>("patch", &key, ApiError::transport(reason, "refused"));
            let transcript = rehearsal.reconcile(&a_loop, key.clone());
            assert!(
                transcript.ends_with(
                    "retry: patch nodes 0 because the TTL of the cluster's size differs: refused\n"
                ),
                "{reason:?}: {transcript}"
            );
            rehearsal.take::<Node>(&a_loop, &key);
            assert_eq!(rehearsal.reconcile(&a_loop, key), "");
        }
        assert_eq!(the_loop().max_retries, None);
    }

    /// Proves TTL-1, TTL-19.
    #[test]
    fn controller_has_upstreams_names_and_numbers() {
        let controller = controller();
        assert_eq!(crate::names::aliases_of(controller.name), ["ttl"]);
        assert_eq!((controller.service_account, controller.event_component), (Some("ttl-controller"), None));
        assert!(controller.metrics.is_empty() && controller.debug_handler.is_none());
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers), ("ttlcontroller", 5));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
        let kinds: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
        assert_eq!(kinds, ["nodes"]);
    }
}
