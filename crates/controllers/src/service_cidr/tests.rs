//! When a ServiceCIDR is ready, blocked and finalized.
#![expect(clippy::cloned_ref_to_slice_refs, reason = "one object is written like several")]
use keleustes_objects::ApiError;
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::{RehearsalCluster, is_retried_because};
use serde_json::Value;

use super::*;

/// The clock of a rehearsal: 1,800,000,000 seconds after 1970.
const NOW: &str = "2027-01-15T08:00:00Z";
const LONG_AGO: &str = "2027-01-15T07:00:00Z";
const REMOVED: &str = "patch servicecidrs.networking.k8s.io r because no IPAddress depends on the ServiceCIDR: \
                       {\"metadata\":{\"$deleteFromPrimitiveList/finalizers\":[\"networking.k8s.io/service-cidr-finalizer\"]}}\n";
const BLOCKED: &str = "because its Ready condition is not False";

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

/// A ServiceCIDR that is ready.
fn range(name: &str, cidrs: &[&str]) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "7", "finalizers": [FINALIZER]},
        "spec": {"cidrs": cidrs},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes Service CIDR is ready", "lastTransitionTime": LONG_AGO}]},
    })
}

fn terminating(name: &str, cidrs: &[&str], since: &str) -> Value {
    let mut range = range(name, cidrs);
    range["metadata"]["deletionTimestamp"] = json!(since);
    range
}

fn address(name: &str) -> Value {
    let family = if name.contains(':') { "IPv6" } else { "IPv4" };
    json!({"metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "1",
        "labels": {MANAGED_BY: ALLOCATOR, IP_FAMILY: family}}})
}

fn labelled(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": "u", "resourceVersion": "1", "labels": labels}})
}

fn cluster(ranges: &[Value], addresses: &[Value]) -> RehearsalCluster {
    let mut cluster = RehearsalCluster::of(&the_loop());
    for range in ranges {
        cluster = cluster.with::<ServiceCidr>(range.clone());
    }
    for address in addresses {
        cluster = cluster.with::<IpAddress>(address.clone());
    }
    cluster
}

fn sync(ranges: &[Value], addresses: &[Value]) -> String {
    cluster(ranges, addresses).reconcile(&the_loop(), Key::cluster("r"))
}

/// Whether the deleted ServiceCIDR `r`, the first of these, is kept because of an address.
fn is_kept(ranges: &[Value], addresses: &[&str]) -> bool {
    let addresses: Vec<_> = addresses.iter().map(|name| address(name)).collect();
    let transcript = sync(ranges, &addresses);
    assert!(transcript.contains(BLOCKED) != (transcript == REMOVED), "{transcript}");
    transcript != REMOVED
}

/// Proves SCIDR-1, SCIDR-2, SCIDR-30.
#[test]
fn descriptor_matches_the_role_and_the_queue_of_the_original() {
    let controller = controller();
    assert_eq!(controller.name, "service-cidr-controller");
    assert_eq!(controller.service_account, Some("service-cidrs-controller"));
    assert_eq!(controller.event_component, Some("service-cidr-controller"));
    assert!(controller.metrics.is_empty() && crate::names::aliases_of(controller.name).is_empty());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("ipaddresses", 5, Some(15)));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    assert_eq!(reads, ["servicecidrs.networking.k8s.io", "ipaddresses.networking.k8s.io"]);
    assert!(a_loop.starts_without.is_empty());
}

/// Proves SCIDR-3, SCIDR-4, SCIDR-38.
#[test]
fn new_service_cidr_enqueues_those_that_overlap_it_and_any_other_change_only_itself() {
    let a_loop = the_loop();
    let mut cluster = cluster(
        &[
            range("inside", &["10.0.1.0/24"]),
            range("outside", &["10.1.0.0/16"]),
            terminating("wider", &["10.0.0.0/8"], NOW),
            range("ipv6", &["fd00::/108"]),
            range("equal", &["192.168.0.0/16", "10.0.0.0/16"]),
        ],
        &[],
    );
    let mut enqueued = cluster.put::<ServiceCidr>(&a_loop, range("r", &["10.0.0.0/16", "malformed"]));
    enqueued.sort();
    assert_eq!(enqueued, ["equal", "inside", "r", "wider"]);
    let mut changed = range("r", &["10.0.0.0/16"]);
    changed["metadata"]["resourceVersion"] = json!("8");
    assert_eq!(cluster.put::<ServiceCidr>(&a_loop, changed), ["r"]);
    let cached = cluster.view().get::<ServiceCidr>(&Key::cluster("r")).unwrap().clone();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(cached)), ["r"]);
    assert_eq!(cluster.take::<ServiceCidr>(&a_loop, &Key::cluster("r")), ["r"]);
}

/// Proves SCIDR-5, SCIDR-6, SCIDR-7.
#[test]
fn managed_address_enqueues_the_service_cidrs_that_contain_it_when_it_is_added_or_deleted() {
    let a_loop = the_loop();
    let ranges = [
        range("a", &["10.0.0.0/16"]),
        range("b", &["fd00::/108", "10.0.0.0/24"]),
        range("c", &["10.1.0.0/16"]),
    ];
    let mut cluster = cluster(&ranges, &[]);
    assert_eq!(cluster.put::<IpAddress>(&a_loop, address("10.0.0.5")), ["a", "b"]);
    let mut updated = address("10.0.0.5");
    updated["metadata"]["resourceVersion"] = json!("2");
    assert!(cluster.put::<IpAddress>(&a_loop, updated).is_empty(), "updates are not handled");
    assert_eq!(cluster.take::<IpAddress>(&a_loop, &Key::cluster("10.0.0.5")), ["a", "b"]);
    assert_eq!(cluster.put::<IpAddress>(&a_loop, address("fd00::5")), ["b"]);
    assert_eq!(cluster.put::<IpAddress>(&a_loop, address("10.0.0.255")), ["a"], "broadcast address of b");
    for ignored in [
        labelled("10.0.0.6", &json!({IP_FAMILY: "IPv4"})),
        labelled("10.0.0.7", &json!({MANAGED_BY: "someone.else", IP_FAMILY: "IPv4"})),
        address("010.0.0.8"),
        address("::ffff:10.0.0.9"),
        address("name"),
        address("10.2.0.1"),
    ] {
        assert!(cluster.put::<IpAddress>(&a_loop, ignored.clone()).is_empty(), "{ignored}");
    }
    let no_family = labelled("10.0.0.10", &json!({MANAGED_BY: ALLOCATOR}));
    assert_eq!(cluster.put::<IpAddress>(&a_loop, no_family), ["a", "b"]);
}

/// Proves SCIDR-10, SCIDR-11, SCIDR-12, SCIDR-23, SCIDR-25, SCIDR-26, SCIDR-31.
#[test]
fn live_service_cidr_gets_the_finalizer_and_then_its_ready_condition() {
    assert_eq!(sync(&[], &[]), "");
    let mut new = range("r", &["10.0.0.0/16"]);
    new["metadata"]["finalizers"] = json!(["example.com/keep"]);
    new["status"] = Value::Null;
    let finalizer = "patch servicecidrs.networking.k8s.io r because the ServiceCIDR lacks the finalizer: \
                     {\"metadata\":{\"finalizers\":[\"networking.k8s.io/service-cidr-finalizer\"]}}\n";
    let condition = format!(
        "apply servicecidrs.networking.k8s.io/status r because its Ready condition is not True: \
         {{\"status\":{{\"conditions\":[{{\"lastTransitionTime\":\"{NOW}\",\"message\":\"Kubernetes Service CIDR is \
         ready\",\"reason\":\"\",\"status\":\"True\",\"type\":\"Ready\"}}]}}}}\n"
    );
    assert_eq!(sync(std::slice::from_ref(&new), &[]), format!("{finalizer}{condition}"));
    let plan = decide(&cluster(&[new], &[]).view(), &Key::cluster("r"));
    let Some(keleustes_plan::Action::Apply { manager, .. }) =
        plan.steps()[1].writes().first().map(|write| &write.action)
    else {
        panic!("an apply")
    };
    assert_eq!(*manager, "service-cidr-controller");
    assert_eq!(sync(&[range("r", &["10.0.0.0/16"])], &[]), "", "nothing is left to do");
}

/// Proves SCIDR-13, SCIDR-44.
#[test]
fn condition_is_written_if_status_reason_or_message_differ() {
    for (field, value) in [("status", "Unknown"), ("reason", "Other"), ("message", "mine")] {
        let mut changed = range("r", &["10.0.0.0/16"]);
        changed["status"]["conditions"][0][field] = json!(value);
        let transcript = sync(&[changed], &[]);
        assert!(transcript.contains(&format!("\"lastTransitionTime\":\"{NOW}\"")), "{field}: {transcript}");
        assert!(!transcript.contains("observedGeneration"));
    }
    let mut others = range("r", &["10.0.0.0/16"]);
    let foreign = json!({"type": "Foreign", "status": "False", "reason": "x", "message": "y"});
    others["status"]["conditions"].as_array_mut().unwrap().insert(0, foreign);
    others["status"]["conditions"][1]["observedGeneration"] = json!(3);
    assert_eq!(sync(&[others.clone()], &[]), "");
    others["status"]["conditions"][1]["status"] = json!("False");
    assert!(!sync(&[others], &[]).contains("Foreign"), "only the own condition is applied");
}

/// Proves SCIDR-14, SCIDR-16, SCIDR-18, SCIDR-19, SCIDR-29, SCIDR-40.
#[test]
fn last_range_of_an_address_is_kept_and_says_so_once() {
    let deleted = terminating("r", &["10.0.0.0/16"], LONG_AGO);
    let transcript = sync(std::slice::from_ref(&deleted), &[address("10.0.0.5")]);
    assert_eq!(
        transcript,
        format!(
            "apply servicecidrs.networking.k8s.io/status r because its Ready condition is not False: \
             {{\"status\":{{\"conditions\":[{{\"lastTransitionTime\":\"{NOW}\",\"message\":\"There are still \
             IPAddresses referencing the ServiceCIDR, please remove them or create a new \
             ServiceCIDR\",\"reason\":\"Terminating\",\"status\":\"False\",\"type\":\"Ready\"}}]}}}}\n"
        ),
        "no event, and no timer"
    );
    let mut reported = deleted;
    reported["status"]["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": "Terminating",
        "message": "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                    ServiceCIDR"});
    assert_eq!(sync(std::slice::from_ref(&reported), &[address("10.0.0.5")]), "");
    assert_eq!(sync(&[reported], &[address("10.1.0.5")]), REMOVED, "an address in no range blocks nothing");
}

/// Proves SCIDR-15, SCIDR-17, SCIDR-33, SCIDR-35, SCIDR-36, SCIDR-43.
#[test]
fn other_ranges_can_take_over_the_addresses() {
    let deleted = terminating("r", &["192.168.0.0/24"], LONG_AGO);
    let with = |others: &[Value]| [&[deleted.clone()], others].concat();
    let (low, high) = (["192.168.0.1"], ["192.168.0.200"]);
    assert!(is_kept(&with(&[]), &low));
    assert!(!is_kept(&with(&[range("wider", &["192.168.0.0/16"])]), &low));
    assert!(
        !is_kept(&with(&[terminating("equal", &["192.168.0.0/24"], NOW)]), &low),
        "also a terminating one"
    );
    let halves = [range("low", &["192.168.0.0/26"]), range("high", &["192.168.0.128/25"])];
    assert!(!is_kept(&with(&halves), &[low[0], high[0]]));
    assert!(is_kept(&with(&halves), &[low[0], high[0], "192.168.0.70"]));
    assert!(
        is_kept(&with(&halves), &["192.168.0.63"]),
        "the broadcast address of the /26 is only in the /24"
    );
    let two = terminating("r", &["10.0.0.0/24", "fd00::/112"], LONG_AGO);
    let covers = [two, range("a", &["10.0.0.0/16"]), range("b", &["fd00::/108"])];
    assert!(!is_kept(&covers, &["10.0.0.1", "fd00::1"]), "different objects may cover different ranges");
    assert!(is_kept(&covers[..2], &["10.0.0.1", "fd00::1"]));
    let odd = terminating("r", &["malformed", "10.0.0.0/24"], LONG_AGO);
    assert!(!is_kept(&[odd, range("a", &["10.0.0.0/16"])], &["10.0.0.1"]));
    assert!(!is_kept(&[terminating("r", &["malformed"], LONG_AGO)], &["10.0.0.1"]));
}

/// Proves SCIDR-32, SCIDR-34, SCIDR-37, SCIDR-42, SCIDR-45.
#[test]
fn only_managed_addresses_of_the_family_inside_the_range_count() {
    let deleted = terminating("r", &["10.0.0.0/24"], LONG_AGO);
    for free in ["10.0.0.0", "10.0.0.255", "10.0.1.1", "fd00::1"] {
        assert!(!is_kept(std::slice::from_ref(&deleted), &[free]), "{free}");
    }
    for labels in [
        json!({MANAGED_BY: ALLOCATOR}),
        json!({MANAGED_BY: ALLOCATOR, IP_FAMILY: "IPv6"}),
        json!({IP_FAMILY: "IPv4"}),
        json!({MANAGED_BY: "someone.else", IP_FAMILY: "IPv4"}),
    ] {
        assert_eq!(
            sync(std::slice::from_ref(&deleted), &[labelled("10.0.0.5", &labels)]),
            REMOVED,
            "{labels}"
        );
    }
    let dual = terminating("r", &["10.0.0.0/24", "fd00::/112"], LONG_AGO);
    assert!(is_kept(std::slice::from_ref(&dual), &["fd00::1"]), "an IPv6 address keeps the whole object");
    assert!(is_kept(&[dual.clone(), range("a", &["10.0.0.0/16"])], &["fd00::1"]));
    assert!(!is_kept(&[dual, range("a", &["10.0.0.0/16"])], &["10.0.0.1"]), "that address has another range");
    for (tiny, inside) in
        [("10.0.0.4/32", "10.0.0.4"), ("10.0.0.4/31", "10.0.0.5"), ("fd00::1/128", "fd00::1")]
    {
        assert!(!is_kept(&[terminating("r", &[tiny], LONG_AGO)], &[inside]), "{tiny}");
    }
}

/// Proves SCIDR-20, SCIDR-21, SCIDR-39, SCIDR-47, SCIDR-48.
#[test]
fn finalizer_is_removed_ten_seconds_after_the_deletion() {
    let a_loop = the_loop();
    let mut cluster = cluster(&[terminating("r", &["10.0.0.0/24"], NOW)], &[]);
    assert_eq!(
        cluster.reconcile(&a_loop, Key::cluster("r")),
        "requeue after 10s\n",
        "and nothing is written"
    );
    cluster.advance_clock(Duration::from_millis(9_999));
    assert_eq!(cluster.reconcile(&a_loop, Key::cluster("r")), "requeue after 1ms\n");
    cluster.put::<IpAddress>(&a_loop, address("10.0.0.5"));
    cluster.advance_clock(Duration::from_millis(1));
    let blocked = cluster.reconcile(&a_loop, Key::cluster("r"));
    assert!(blocked.contains(BLOCKED), "an address that appears in the meantime blocks: {blocked}");
    cluster.take::<IpAddress>(&a_loop, &Key::cluster("10.0.0.5"));
    assert_eq!(
        cluster.reconcile(&a_loop, Key::cluster("r")),
        REMOVED,
        "at once, without setting Ready to True"
    );
    let future = terminating("r", &["10.0.0.0/24"], "2027-01-15T08:01:00Z");
    assert_eq!(sync(&[future], &[]), "requeue after 70s\n");
    assert_eq!(sync(&[terminating("r", &["10.0.0.0/24"], "1970-01-01T00:00:00Z")], &[]), REMOVED);
}

/// Proves SCIDR-22, SCIDR-26, SCIDR-41, SCIDR-46.
#[test]
fn foreign_finalizers_are_left_alone() {
    let mut deleted = terminating("r", &["10.0.0.0/24"], LONG_AGO);
    deleted["metadata"]["finalizers"] = json!(["example.com/keep"]);
    assert_eq!(sync(std::slice::from_ref(&deleted), &[]), "", "nothing to remove, and none is added");
    assert!(sync(std::slice::from_ref(&deleted), &[address("10.0.0.5")]).contains(BLOCKED));
    deleted["metadata"]["finalizers"] = json!(["example.com/keep", FINALIZER]);
    assert_eq!(sync(&[deleted], &[]), REMOVED, "the patch names only the own one");
}

/// Proves SCIDR-23, SCIDR-24, SCIDR-26, SCIDR-27, SCIDR-28, SCIDR-49.
#[test]
fn failed_writes_are_retried_and_only_a_failed_ready_condition_is_an_event() {
    let a_loop = the_loop();
    let mut new = range("r", &["10.0.0.0/16"]);
    new["metadata"]["finalizers"] = json!([]);
    new["status"] = Value::Null;
    let key = Key::cluster("r");
    let refused = |reason: ErrorReason| ApiError::transport(reason, "refused");
    let failing = |object: &Value, reason: ErrorReason, times: Option<u32>| {
        use keleustes_objects::Kind as _;
        let path = ServiceCidr::RESOURCE.object_path(&key);
        cluster(std::slice::from_ref(object), &[]).failing_at("patch", &path, refused(reason), times)
    };
    let event = "event Warning KubernetesServiceCIDRError on ServiceCIDR r uid=u-r: The ServiceCIDR Status can not be \
                 set to Ready=True";
    // The finalizer fails: no condition, no event.
    let transcript = failing(&new, ErrorReason::Forbidden, None).reconcile(&a_loop, key.clone());
    assert!(is_retried_because(&transcript, "refused") && !transcript.contains("event"), "{transcript}");
    assert!(!transcript.contains("/status"), "{transcript}");
    // The object is gone for both: the first counts as success, the second is an event.
    let transcript = failing(&new, ErrorReason::NotFound, None).reconcile(&a_loop, key.clone());
    assert!(transcript.contains(event) && is_retried_because(&transcript, "refused"), "{transcript}");
    // The condition fails: an event at every attempt.
    let mut unready = range("r", &["10.0.0.0/16"]);
    unready["status"] = Value::Null;
    let mut cluster_with_event = failing(&unready, ErrorReason::Forbidden, Some(2));
    for _ in 0..2 {
        assert!(cluster_with_event.reconcile(&a_loop, key.clone()).contains(event));
    }
    assert!(!cluster_with_event.reconcile(&a_loop, key.clone()).contains("event"));
    // A blocked condition that fails is no event.
    let deleted = terminating("r", &["10.0.0.0/24"], LONG_AGO);
    let mut blocked = failing(&deleted, ErrorReason::Forbidden, None).with::<IpAddress>(address("10.0.0.5"));
    let transcript = blocked.reconcile(&a_loop, key.clone());
    assert!(!transcript.contains("event") && is_retried_because(&transcript, "refused"), "{transcript}");
    // Removing the finalizer of an object that is gone is success.
    let transcript = failing(&deleted, ErrorReason::NotFound, None).reconcile(&a_loop, key.clone());
    assert!(!transcript.contains("retry"), "{transcript}");
    let transcript = failing(&deleted, ErrorReason::Forbidden, None).reconcile(&a_loop, key);
    assert!(is_retried_because(&transcript, "refused") && !transcript.contains("event"), "{transcript}");
}
