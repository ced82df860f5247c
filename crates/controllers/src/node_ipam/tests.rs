//! Which node gets which blocks, and when they become free.

use keleustes_objects::ErrorReason;
use keleustes_objects::Key;
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

const EXHAUSTED: &str =
    "CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range";

fn options(cluster_cidr: &str) -> NodeIpamOptions {
    NodeIpamOptions {
        allocate_node_cidrs: true,
        cluster_cidr: cluster_cidr.to_owned(),
        ..NodeIpamOptions::default()
    }
}

fn with_services(cluster_cidr: &str, primary: &str, secondary: &str) -> NodeIpamOptions {
    NodeIpamOptions {
        service_cidr: primary.to_owned(),
        secondary_service_cidr: secondary.to_owned(),
        ..options(cluster_cidr)
    }
}

fn node(name: &str, ranges: &[&str]) -> Value {
    let mut node = json!({"metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "1"}});
    if let Some(first) = ranges.first() {
        node["spec"] = json!({"podCIDR": first, "podCIDRs": ranges});
    }
    node
}

/// The controller's loop with its memory, and a cluster.
struct Ipam {
    a_loop: Loop,
    cluster: RehearsalCluster,
    version: u32,
}

impl Ipam {
    fn try_start(options: &NodeIpamOptions, nodes: &[Value]) -> Result<Self, String> {
        let a_loop = controller(options).unwrap().unwrap().loops.remove(0);
        let mut cluster = RehearsalCluster::of(&a_loop);
        for node in nodes {
            cluster = cluster.with::<Node>(node.clone());
        }
        cluster.start(&a_loop)?;
        Ok(Self { a_loop, cluster, version: 1 })
    }

    fn start(options: &NodeIpamOptions, nodes: &[Value]) -> Self {
        Self::try_start(options, nodes).unwrap()
    }

    fn of(cluster_cidr: &str) -> Self {
        Self::start(&options(cluster_cidr), &[])
    }

    fn put(&mut self, mut node: Value) -> Vec<String> {
        self.version += 1;
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.cluster.put::<Node>(&self.a_loop, node)
    }

    fn take(&mut self, name: &str) {
        assert!(self.cluster.take::<Node>(&self.a_loop, &Key::cluster(name)).is_empty());
    }

    /// Reconciles a node, without the lines about metrics.
    fn sync(&mut self, name: &str) -> String {
        let transcript = self.cluster.reconcile(&self.a_loop, Key::cluster(name));
        transcript
            .lines()
            .filter(|line| !line.starts_with("measure"))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// The ranges that a new node gets; it is observed with them.
    fn add(&mut self, name: &str) -> Vec<String> {
        self.put(node(name, &[]));
        self.assigned(name)
    }

    /// The ranges that a cached node without any gets; it is observed with them.
    fn assigned(&mut self, name: &str) -> Vec<String> {
        let bodies = self.cluster.bodies(&self.a_loop, Key::cluster(name), "patch nodes ");
        let [(target, body)] = &bodies[..] else { return Vec::new() };
        assert_eq!(target, name);
        let ranges: Vec<String> = serde_json::from_value(body["spec"]["podCIDRs"].clone()).unwrap();
        assert_eq!(body["spec"]["podCIDR"], json!(ranges[0]));
        let observed: Vec<_> = ranges.iter().map(String::as_str).collect();
        self.put(node(name, &observed));
        ranges
    }

    fn failing_patches(&mut self, name: &str, error: ApiError, times: Option<u32>) {
        let path = Node::RESOURCE.object_path(&Key::cluster(name));
        let cluster = std::mem::take(&mut self.cluster);
        self.cluster = cluster.failing_at("patch", &path, error, times);
    }
}

fn refused(message: &str) -> ApiError {
    ApiError { code: 422, ..ApiError::transport(ErrorReason::Invalid, message) }
}

/// Proves IPAM-28, IPAM-39.
#[test]
fn node_without_ranges_gets_the_next_block_of_each_cluster_cidr_in_one_patch() {
    let mut ipam = Ipam::of("10.0.0.0/16,fd00::/48");
    ipam.put(node("a", &[]));
    assert_eq!(
        ipam.sync("a"),
        "patch nodes a because the node has no range of pod addresses: \
         {\"spec\":{\"podCIDR\":\"10.0.0.0/24\",\"podCIDRs\":[\"10.0.0.0/24\",\"fd00::/64\"]}}\n"
    );
    assert_eq!(ipam.add("b"), ["10.0.1.0/24", "fd00:0:0:1::/64"]);
    let mut ipv6_first = Ipam::of("fd00::/48,10.0.0.0/16");
    assert_eq!(ipv6_first.add("a"), ["fd00::/64", "10.0.0.0/24"], "podCIDR is the first of them");
    let plan = Plan::of(patch(&serde_json::from_value(node("a", &[])).unwrap(), &[]));
    let Some(keleustes_plan::Step::One(write)) = plan.steps().first() else { panic!("one write") };
    let keleustes_plan::Action::Patch { form, subresource, .. } = &write.action else { panic!("a patch") };
    assert_eq!((*form, *subresource), (PatchKind::Strategic, ""));
}

/// Proves IPAM-18, IPAM-19.
#[test]
fn every_addition_and_update_enqueues_the_node_and_a_deletion_does_not() {
    let mut ipam = Ipam::of("10.0.0.0/16");
    assert_eq!(ipam.put(node("a", &[])), ["a"]);
    assert_eq!(ipam.put(node("a", &["10.0.0.0/24"])), ["a"]);
    let cached = ipam.cluster.view().get::<Node>(&Key::cluster("a")).unwrap().clone();
    assert_eq!(ipam.cluster.enqueued_by(&ipam.a_loop, Change::resync(cached)), ["a"]);
    ipam.take("a");
    assert_eq!((ipam.a_loop.queue, ipam.a_loop.workers), ("cidrallocator_node", 30));
    assert_eq!((ipam.a_loop.rate_limiter, ipam.a_loop.max_retries), (RateLimiter::DEFAULT, None));
}

/// Proves IPAM-18, IPAM-37, IPAM-67.
#[test]
fn blocks_are_released_when_the_node_is_gone_and_not_before() {
    let mut ipam = Ipam::of("10.0.0.0/23");
    ipam.add("a");
    ipam.add("b");
    let mut terminating = node("a", &["10.0.0.0/24"]);
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    ipam.put(terminating);
    ipam.put(node("c", &[]));
    assert!(ipam.sync("c").contains(EXHAUSTED));
    ipam.take("a");
    assert_eq!(ipam.assigned("c"), ["10.0.0.0/24"]);
    // The second range of the first node does not exist: what comes before it is released, and nothing else happens.
    ipam.put(node("c", &["10.0.0.0/24", "fd00::/64"]));
    ipam.take("c");
    assert_eq!(ipam.add("d"), ["10.0.0.0/24"]);
}

/// Proves IPAM-22, IPAM-54, IPAM-55.
#[test]
fn ranges_of_existing_nodes_are_never_changed_nor_given_to_others() {
    let mut terminating = node("d", &["10.0.3.0/24"]);
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    let existing = [node("b", &["10.0.0.0/24"]), node("c", &["10.0.1.0/24"]), terminating, node("a", &[])];
    let mut ipam = Ipam::start(&options("10.0.0.0/21"), &existing);
    assert_eq!(ipam.assigned("a"), ["10.0.2.0/24"], "also directly after the start");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(ipam.sync(name), "", "{name} keeps its range");
    }
    ipam.put(node("cloud", &["10.0.4.0/24"]));
    assert_eq!(ipam.add("e"), ["10.0.5.0/24"], "the range of another client is not given to a node");
    assert_eq!(ipam.sync("cloud"), "");
    let mut legacy = node("legacy", &[]);
    legacy["spec"] = json!({"podCIDR": "10.0.6.0/24"});
    ipam.put(legacy);
    assert!(ipam.sync("legacy").contains("10.0.6.0/24\"]"), "podCIDR alone does not count");
}

/// Proves IPAM-22, IPAM-23, IPAM-24, IPAM-53, IPAM-61.
#[test]
fn unusable_range_of_an_existing_node_fails_the_start() {
    let start = |ranges: &[&str]| Ipam::try_start(&options("10.0.0.0/16"), &[node("n", ranges)]).err();
    assert_eq!(
        start(&["192.168.0.0/24"]).unwrap(),
        "failed to mark cidr[192.168.0.0/24] at idx [0] as occupied for node: n: cidr 192.168.0.0/24 is out the \
         range of cluster cidr 10.0.0.0/16"
    );
    assert_eq!(
        start(&["10.0.0.0/24", "fd00::/64"]).unwrap(),
        "node:n has an allocated cidr: fd00::/64 at index:1 that does not exist in cluster cidrs configuration"
    );
    assert_eq!(start(&["10.0.0.0/24", "x"]).unwrap(), "failed to parse node n, CIDR 10.0.0.0/24");
    assert_eq!(start(&["x"]).unwrap(), "failed to parse node n, CIDR x");
    assert!(start(&["10.0.0.0/24"]).is_none() && start(&[]).is_none());
    let mut widened = Ipam::start(&options("10.0.0.0/16,fd00::/48"), &[node("n", &["10.0.0.0/24"])]);
    assert_eq!(widened.sync("n"), "", "a node with fewer ranges than cluster CIDRs keeps them");
    assert_eq!(widened.add("m"), ["10.0.1.0/24", "fd00::/64"]);
}

/// Proves IPAM-6.
#[test]
fn unknown_allocator_type_fails_the_start() {
    let unknown = NodeIpamOptions { cidr_allocator_type: "Range".to_owned(), ..options("10.0.0.0/16") };
    assert_eq!(Ipam::try_start(&unknown, &[]).err().unwrap(), "invalid CIDR allocator type: Range");
}

/// Proves IPAM-4, IPAM-45, IPAM-69.
#[test]
fn controller_is_skipped_without_the_flag_and_wrong_ranges_fail_its_construction() {
    let skipped = NodeIpamOptions { allocate_node_cidrs: false, ..options("malformed") };
    assert!(controller(&skipped).unwrap().is_none());
    let error = controller(&options("malformed")).err().unwrap();
    assert_eq!(error.controller, "node-ipam-controller");
    assert_eq!(error.to_string(), "invalid CIDR[0]: <nil> (invalid CIDR address: malformed)");
    let built = controller(&options("10.0.0.0/16")).unwrap().unwrap();
    assert_eq!(
        (built.name, crate::names::aliases_of(built.name)),
        ("node-ipam-controller", &["nodeipam"][..])
    );
    assert_eq!(built.service_account, Some("node-controller"));
    assert_eq!(built.event_component, Some("cidrAllocator"));
    assert!(built.debug_handler.is_none());
}

/// Proves IPAM-21, IPAM-58, IPAM-62.
#[test]
fn service_ranges_are_left_out_of_every_cluster_cidr() {
    let mut both = Ipam::start(&with_services("10.0.0.0/22,fd00::/60", "10.0.0.0/23", "fd00::/62"), &[]);
    assert_eq!(both.add("a"), ["10.0.2.0/24", "fd00:0:0:4::/64"]);
    let mut elsewhere = Ipam::start(&with_services("10.0.0.0/22", "10.96.0.0/16", ""), &[]);
    assert_eq!(elsewhere.add("a"), ["10.0.0.0/24"]);
    let mut larger = Ipam::start(&with_services("10.0.0.0/22", "10.0.0.0/8", ""), &[]);
    larger.put(node("a", &[]));
    assert!(larger.sync("a").contains("Normal CIDRNotAvailable"));
    let kinds: Vec<_> = larger.a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["nodes"], "neither ServiceCIDRs nor Services are read");
}

/// Proves IPAM-25.
#[test]
fn missing_and_terminating_nodes_get_nothing() {
    let mut ipam = Ipam::of("10.0.0.0/16");
    assert_eq!(ipam.sync("a"), "");
    let mut terminating = node("a", &[]);
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    ipam.put(terminating);
    assert_eq!(ipam.sync("a"), "");
    assert_eq!(ipam.add("b"), ["10.0.0.0/24"], "nothing was allocated");
}

/// Proves IPAM-26, IPAM-27.
#[test]
fn unusable_range_of_a_later_node_is_retried_without_an_event() {
    let mut ipam = Ipam::of("10.0.0.0/16,fd00::/48");
    ipam.put(node("a", &["10.0.0.0/24", "10.0.1.0/24"]));
    assert_eq!(
        ipam.sync("a"),
        "retry: failed to mark cidr[10.0.1.0/24] at idx [1] as occupied for node: a: cidr 10.0.1.0/24 is out the \
         range of cluster cidr fd00::/48\n",
        "ranges belong to cluster CIDRs by position"
    );
    ipam.put(node("b", &["fd00::/64"]));
    assert!(ipam.sync("b").starts_with("retry: failed to mark cidr[fd00::/64] at idx [0]"));
    assert_eq!(ipam.add("c"), ["10.0.1.0/24", "fd00::/64"], "the first range stays marked");
}

/// Proves IPAM-34, IPAM-40, IPAM-63.
#[test]
fn exhaustion_is_an_event_and_an_error_at_every_try_until_a_block_is_free() {
    let mut ipam = Ipam::of("10.0.0.0/24");
    ipam.add("a");
    ipam.put(node("b", &[]));
    let failed = format!(
        "event Normal CIDRNotAvailable on Node b uid=u-b: Node b status is now: CIDRNotAvailable\n\
         retry: failed to allocate cidr from cluster cidr at idx:0: {EXHAUSTED}\n"
    );
    assert_eq!(ipam.sync("b"), failed);
    assert_eq!(ipam.sync("b"), failed, "also the second time");
    assert_eq!(ipam.sync("a"), "", "other nodes are unaffected");
    // The deletion enqueues no waiting node: the retry of that node finds the block.
    ipam.take("a");
    assert_eq!(ipam.assigned("b"), ["10.0.0.0/24"]);
    let event = status_event(&serde_json::from_value(node("b", &[])).unwrap(), "CIDRNotAvailable");
    let InvolvedObject { api_version, kind, name, uid, resource_version, .. } = event.involved_object;
    assert_eq!((api_version.as_str(), kind.as_str(), name.as_str()), ("v1", "Node", "b"));
    assert_eq!((uid.to_string().as_str(), resource_version), ("u-b", ResourceVersion::default()));
}

/// Proves IPAM-47.
#[test]
fn block_of_the_first_range_is_given_back_if_the_second_is_exhausted() {
    let mut ipam = Ipam::of("10.0.0.0/16,fd00::/64");
    ipam.add("a");
    ipam.put(node("b", &[]));
    for _ in 0..300 {
        let failed = ipam.sync("b");
        assert!(failed.ends_with(&format!("at idx:1: {EXHAUSTED}\n")), "{failed}");
    }
    ipam.take("a");
    let ranges = ipam.assigned("b");
    assert_eq!(ranges.len(), 2, "256 tries would have used up the first range: {ranges:?}");
}

/// Proves IPAM-36, IPAM-48, IPAM-68.
#[test]
fn refused_patch_is_tried_three_times_and_its_blocks_are_given_back() {
    let mut ipam = Ipam::of("10.0.0.0/22");
    ipam.put(node("a", &[]));
    ipam.failing_patches("a", refused("Forbidden: node updates may not change podCIDR"), Some(3));
    let transcript = ipam.sync("a");
    let lines: Vec<_> = transcript.lines().collect();
    assert_eq!(lines.len(), 5, "{transcript}");
    assert!(lines[..3].iter().all(|line| line.starts_with("patch nodes a") && line.contains("FAILED")));
    assert_eq!(
        lines[3],
        "event Normal CIDRAssignmentFailed on Node a uid=u-a: Node a status is now: CIDRAssignmentFailed"
    );
    assert!(lines[4].starts_with("retry: failed to patch node CIDR: "), "{transcript}");
    assert_eq!(ipam.assigned("a"), ["10.0.1.0/24"], "the next try takes the next block");
    assert_eq!(
        [ipam.add("b"), ipam.add("c"), ipam.add("d")].concat(),
        ["10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24"]
    );
    let mut twice = Ipam::of("10.0.0.0/22");
    twice.put(node("a", &[]));
    twice.failing_patches("a", refused("busy"), Some(2));
    let transcript = twice.sync("a");
    assert!(transcript.lines().count() == 3 && !transcript.contains("event"), "{transcript}");
    // Another client was faster: its range is marked, and the block of the refused patch is free.
    let mut foreign = Ipam::of("10.0.0.0/23");
    foreign.put(node("a", &[]));
    foreign.failing_patches("a", refused("Forbidden"), Some(3));
    foreign.sync("a");
    foreign.put(node("a", &["10.0.1.0/24"]));
    assert_eq!(foreign.sync("a"), "");
    assert_eq!(foreign.add("b"), ["10.0.0.0/24"]);
}

/// Proves IPAM-35, IPAM-50.
#[test]
fn blocks_of_a_patch_with_an_unknown_outcome_stay_reserved_for_the_node() {
    let lost = ApiError::transport(ErrorReason::ConnectionLost, "connection reset");
    let mut ipam = Ipam::of("10.0.0.0/22");
    ipam.put(node("a", &[]));
    ipam.failing_patches("a", lost.clone(), Some(3));
    assert!(ipam.sync("a").contains("CIDRAssignmentFailed"));
    assert_eq!(ipam.add("b"), ["10.0.1.0/24"], "no other node gets the block");
    assert_eq!(ipam.assigned("a"), ["10.0.0.0/24"], "and the next try is the same patch");
    // The patch took effect after all.
    let mut late = Ipam::of("10.0.0.0/23");
    late.put(node("a", &[]));
    late.failing_patches("a", lost.clone(), Some(3));
    late.sync("a");
    late.put(node("a", &["10.0.0.0/24"]));
    assert_eq!((late.sync("a").as_str(), &late.add("b")[..]), ("", &["10.0.1.0/24".to_owned()][..]));
    // It did not, and another client set a range.
    let mut other = Ipam::of("10.0.0.0/23");
    other.put(node("a", &[]));
    other.failing_patches("a", lost, Some(3));
    other.sync("a");
    other.put(node("a", &["10.0.1.0/24"]));
    assert_eq!(other.add("b"), ["10.0.0.0/24"], "the reserved block is released");
}

/// Proves IPAM-49.
#[test]
fn blocks_of_a_node_that_vanishes_before_its_ranges_are_observed_are_released() {
    let mut ipam = Ipam::of("10.0.0.0/24");
    ipam.put(node("a", &[]));
    assert!(ipam.sync("a").starts_with("patch nodes a"));
    ipam.take("a");
    assert_eq!(ipam.add("b"), ["10.0.0.0/24"]);
    let mut refused_late = Ipam::of("10.0.0.0/24");
    refused_late.put(node("a", &[]));
    let not_found = ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, "not found") };
    refused_late.failing_patches("a", not_found, Some(3));
    refused_late.sync("a");
    assert_eq!(refused_late.add("b"), ["10.0.0.0/24"]);
}

/// Proves IPAM-51, IPAM-52.
#[test]
fn deletion_releases_what_the_node_had_also_if_others_use_it() {
    let shared = [node("a", &["10.0.0.0/24"]), node("b", &["10.0.0.0/25"])];
    let mut ipam = Ipam::start(&options("10.0.0.0/23"), &shared);
    ipam.take("a");
    ipam.put(node("b", &["10.0.0.0/25"]));
    assert_eq!([ipam.add("c"), ipam.add("d")], [vec!["10.0.1.0/24".to_owned()], vec![]], "b marks it again");
    let mut freed = Ipam::start(&options("10.0.0.0/23"), &shared);
    freed.take("a");
    assert_eq!([freed.add("c"), freed.add("d")].concat(), ["10.0.0.0/24", "10.0.1.0/24"]);
    let inside = [node("a", &["10.0.0.0/24"])];
    let mut services = Ipam::start(&with_services("10.0.0.0/23", "10.0.0.0/24", ""), &inside);
    services.take("a");
    assert_eq!(services.add("b"), ["10.0.0.0/24"], "that part of the Service range is no longer reserved");
}

/// Proves IPAM-60, IPAM-65.
#[test]
fn created_again_under_its_name_a_node_gets_another_block() {
    let mut ipam = Ipam::of("10.0.0.0/23");
    assert_eq!(ipam.add("a"), ["10.0.0.0/24"]);
    ipam.take("a");
    assert_eq!(ipam.add("a"), ["10.0.1.0/24"]);
    // Deleted and created while the watch was down: it arrives as an update.
    let mut again = node("a", &[]);
    again["metadata"]["uid"] = json!("another");
    ipam.put(again);
    assert_eq!(ipam.add("b"), ["10.0.0.0/24"]);
    assert_eq!(ipam.add("c"), ["10.0.1.0/24"], "the block of the node before it is free");
    let mut reserved = Ipam::of("10.0.0.0/23");
    reserved.put(node("a", &[]));
    reserved.sync("a");
    let mut again = node("a", &[]);
    again["metadata"]["uid"] = json!("another");
    reserved.put(again);
    assert_eq!([reserved.add("b"), reserved.add("c")].concat(), ["10.0.1.0/24", "10.0.0.0/24"]);
}

/// Proves IPAM-41, IPAM-42, IPAM-43, IPAM-44, IPAM-46, RUN-105.
#[test]
fn metrics_count_blocks_as_they_become_used_and_free() {
    let of = "10.0.0.0/22";
    let a_loop = controller(&with_services(of, "10.0.0.0/24", "")).unwrap().unwrap().loops.remove(0);
    let mut cluster = RehearsalCluster::of(&a_loop).with::<Node>(node("a", &["10.0.1.0/24"]));
    let started = cluster.start(&a_loop).unwrap();
    let prefix = "measure node_ipam_controller";
    assert_eq!(
        started,
        format!(
            "{prefix}_cirdset_max_cidrs{{{of}}} 4\n\
             measure running_managed_controllers{{nodeipam,kube-controller-manager}} 1\n\
             {prefix}_cidrset_cidrs_allocations_total{{{of}}} 1\n{prefix}_cidrset_usage_cidrs{{{of}}} 0.25\n\
             {prefix}_cidrset_cidrs_allocations_total{{{of}}} 1\n{prefix}_cidrset_usage_cidrs{{{of}}} 0.5\n"
        )
    );
    cluster.put::<Node>(&a_loop, node("b", &[]));
    let transcript = cluster.reconcile(&a_loop, Key::cluster("b"));
    assert!(
        transcript.starts_with(&format!(
            "{prefix}_cidrset_cidrs_allocations_total{{{of}}} 1\n{prefix}_cidrset_usage_cidrs{{{of}}} 0.75\n\
             {prefix}_cidrset_allocation_tries_per_request{{{of}}} 2\n"
        )),
        "{transcript}"
    );
    let last = cluster.view().get::<Node>(&Key::cluster("a")).unwrap().clone();
    let released = format!(
        "{prefix}_cidrset_cidrs_releases_total{{{of}}} 1\n{prefix}_cidrset_usage_cidrs{{{of}}} 0.5\n"
    );
    assert_eq!(cluster.measured_by(&a_loop, Change::deleted(last.clone())), released);
    assert_eq!(cluster.measured_by(&a_loop, Change::deleted(last)), "", "only real changes count");
    let bounds = keleustes_plan::MetricType::Histogram(keleustes_plan::Buckets::Exponential {
        first: 1.0,
        factor: 5.0,
        count: 5,
    });
    assert_eq!(metrics::TRIES.metric_type, bounds);
}

/// Proves IPAM-66.
#[test]
fn mask_longer_than_the_address_starts_and_its_blocks_are_refused_by_the_server() {
    let long = NodeIpamOptions { node_cidr_mask_size: 40, ..options("10.0.0.0/16") };
    let mut ipam = Ipam::start(&long, &[]);
    ipam.put(node("a", &[]));
    ipam.failing_patches("a", refused("invalid CIDR value"), None);
    for _ in 0..2 {
        let transcript = ipam.sync("a");
        assert!(
            transcript.contains("10.0.0.0/40") || transcript.contains("CIDRAssignmentFailed"),
            "{transcript}"
        );
        assert!(transcript.contains("retry: failed to patch node CIDR: "), "{transcript}");
    }
}
