//! Evictions as pods, claims, slices and rules change.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason, Kind};
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

mod scale;

const MARKING: &str =
    "event Normal DeviceTaintManagerEviction on Pod a/web uid=u-web: Marking for deletion\n";
const CANCELS: &str = "event Normal DeviceTaintManagerEviction on Pod a/web uid=u-web: Cancelling deletion\n";
const BECAUSE: &str = "because one of its devices has a NoExecute taint that its claim does not tolerate";

struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
    version: u32,
}

/// Bound pod `a/web` with claim `c`, for which device `x` of pool `p` is allocated.
fn test_cluster() -> TestCluster {
    with_options(DeviceTaintEvictionOptions::default())
}

fn with_options(options: DeviceTaintEvictionOptions) -> TestCluster {
    let mut cluster = without_pod(options);
    cluster.put::<ResourceClaim>(claim(&json!([])));
    cluster.put::<Pod>(pod("web"));
    cluster
}

fn without_pod(options: DeviceTaintEvictionOptions) -> TestCluster {
    let a_loop = controller(&options).loops.remove(0);
    let rehearsal = RehearsalCluster::of(&a_loop);
    TestCluster { a_loop, rehearsal, version: 0 }
}

impl TestCluster {
    fn put<T: Kind>(&mut self, mut json: Value) -> Vec<String> {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.rehearsal.put::<T>(&self.a_loop, json)
    }

    fn take<T: Kind>(&mut self, key: &Key) -> Vec<String> {
        self.rehearsal.take::<T>(&self.a_loop, key)
    }

    fn with<T: Kind>(mut self, json: Value) -> Self {
        self.put::<T>(json);
        self
    }

    fn failing(mut self, verb: &str, reason: ErrorReason) -> Self {
        let (key, failure) = (Key::namespaced("a", "web"), ApiError::transport(reason, "refused"));
        self.rehearsal = self.rehearsal.failing::<Pod>(verb, &key, failure);
        self
    }

    fn pod(&mut self) -> String {
        let item = EvictionItem::Pod(Key::namespaced("a", "web"), "u-web".into());
        self.rehearsal.outline(&self.a_loop, item)
    }

    fn rule(&mut self, name: &str) -> String {
        let item = EvictionItem::Rule(Key::cluster(name), format!("u-{name}").as_str().into());
        self.rehearsal.reconcile(&self.a_loop, item)
    }

    /// The condition that a reconcile of a rule writes: status, reason and message.
    fn condition(&mut self, name: &str) -> Option<[String; 3]> {
        let transcript = self.rule(name);
        let body = transcript.lines().find_map(|line| line.strip_prefix("apply ")?.split_once(": {"))?.1;
        let body: Value = serde_json::from_str(&format!("{{{body}")).expect("a body");
        let condition = &body["status"]["conditions"][0];
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Some([text("status"), text("reason"), text("message")])
    }

    fn later(&mut self, seconds: u64) {
        self.rehearsal.advance_clock(Duration::from_secs(seconds));
    }

    /// Whether the pod is evicted, or when.
    fn decision(&mut self) -> Decision {
        let transcript = self.pod();
        let wait = transcript.lines().find_map(|line| line.strip_prefix("requeue with kept backoff after "));
        match wait {
            Some(wait) => Decision::In(wait.trim_end_matches('s').parse().expect("seconds")),
            None if transcript.contains("delete pods a/web") => Decision::Now,
            None => Decision::Never,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Decision {
    Now,
    In(u64),
    Never,
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": format!("u-{name}")},
        "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    })
}

fn claim(tolerations: &Value) -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "a", "uid": "u-c"},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "r", "driver": "d", "pool": "p", "device": "x", "tolerations": tolerations}]}},
            "reservedFor": [{"resource": "pods", "name": "web", "uid": "u-web"}],
        },
    })
}

/// A taint that was added at the start of the test.
fn taint(effect: &str) -> Value {
    json!({"key": "k", "value": "v", "effect": effect, "timeAdded": "2027-01-15T08:00:00Z"})
}

fn slice(name: &str, generation: i64, taints: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": name}, "spec": {"driver": "d",
        "pool": {"name": "p", "generation": generation}, "devices": [{"name": "other"}, {"name": "x", "taints": taints}]}})
}

fn rule(name: &str, selector: Value, taint: Value) -> Value {
    json!({"metadata": {"name": name, "uid": format!("u-{name}"), "generation": 1},
        "spec": {"deviceSelector": selector, "taint": taint}})
}

fn tolerates(seconds: Option<i64>) -> Value {
    json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
}

fn decision_with(tolerations: &Value, taints: &Value) -> Decision {
    let cluster = test_cluster().with::<ResourceClaim>(claim(tolerations));
    cluster.with::<ResourceSlice>(slice("s", 1, taints)).decision()
}

/// Proves DTE-63, DTE-65, DTE-66, DTE-67, DTE-108.
#[test]
fn controller_has_upstreams_names() {
    let the_controller = controller(&DeviceTaintEvictionOptions::default());
    let name = "device-taint-eviction-controller";
    assert_eq!((the_controller.name, the_controller.service_account), (name, Some(name)));
    assert_eq!(the_controller.event_component, Some(name));
    assert!(the_controller.debug_handler.is_none());
    let metrics: Vec<_> = the_controller.metrics.iter().map(|metric| metric.name).collect();
    let prefix = "device_taint_eviction_controller_pod_deletion";
    assert_eq!(metrics, [format!("{prefix}s_total"), format!("{prefix}_duration_seconds")]);
    let a_loop = &the_controller.loops[0];
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), (name, 8, None));
    let reads = |a_loop: &Loop| -> Vec<String> {
        a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect()
    };
    let all = ["pods", "resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules"];
    // It waits for all of them, and so does nothing while one of them is not served.
    assert_eq!(reads(a_loop), all);
    assert!(a_loop.starts_without.is_empty());
    let options = DeviceTaintEvictionOptions { enable_rules: false, ..DeviceTaintEvictionOptions::default() };
    assert_eq!(reads(&controller(&options).loops[0]), all[..4]);
}

/// Proves DTE-1, DTE-7, DTE-10, DTE-88, DTE-90.
#[test]
fn only_a_no_execute_taint_with_a_start_evicts() {
    let decide = |taint: Value| decision_with(&json!([]), &json!([taint]));
    assert_eq!(decide(taint("NoExecute")), Decision::Now);
    for other in ["NoSchedule", "None", "", "noexecute"] {
        assert_eq!(decide(taint(other)), Decision::Never, "{other}");
    }
    let mut at = taint("NoExecute");
    at["timeAdded"] = json!("2027-01-15T08:00:30Z");
    assert_eq!(decide(at.clone()), Decision::In(30));
    at["timeAdded"] = Value::Null;
    assert_eq!(decide(at.clone()), Decision::Never);
    assert_eq!(decision_with(&json!([tolerates(Some(1))]), &json!([at])), Decision::Never);
    // The tolerations of the spec do not matter, and a claim without an allocation has no devices.
    let mut unallocated = claim(&json!([]));
    unallocated["status"]["allocation"] = Value::Null;
    let cluster = test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
    assert_eq!(cluster.with::<ResourceClaim>(unallocated).decision(), Decision::Never);
}

/// Proves DTE-11, DTE-12, DTE-13, DTE-89.
#[test]
fn tolerations_delay_or_prevent_the_eviction() {
    let decide = |tolerations: Value| decision_with(&tolerations, &json!([taint("NoExecute")]));
    assert_eq!(decide(json!([tolerates(None)])), Decision::Never);
    assert_eq!(decide(json!([tolerates(Some(60))])), Decision::In(60));
    assert_eq!(decide(json!([tolerates(Some(60)), tolerates(Some(20))])), Decision::In(20));
    assert_eq!(decide(json!([tolerates(Some(60)), tolerates(None)])), Decision::Never);
    assert_eq!(decide(json!([tolerates(Some(-5))])), Decision::Now);
    assert_eq!(decide(json!([])), Decision::Now);
    let with = |field: &str, value: &str| {
        let mut toleration = tolerates(None);
        toleration[field] = json!(value);
        toleration
    };
    for (toleration, expected) in [
        // Without an effect it tolerates nothing here.
        (with("effect", ""), Decision::Now),
        (with("effect", "NoSchedule"), Decision::Now),
        (with("key", ""), Decision::Never),
        (with("key", "other"), Decision::Now),
        (with("operator", "Lt"), Decision::Now),
        (json!({"key": "k", "value": "v", "effect": "NoExecute"}), Decision::Never),
        (json!({"key": "k", "operator": "Equal", "value": "w", "effect": "NoExecute"}), Decision::Now),
    ] {
        assert_eq!(decide(json!([toleration])), expected, "{toleration}");
    }
    let Decision::In(seconds) = decide(json!([tolerates(Some(i64::MAX))])) else { panic!("evicted") };
    assert!(seconds > 9_000_000_000);
}

/// Proves DTE-2, DTE-3, DTE-4, DTE-82, DTE-97.
#[test]
fn only_the_highest_generation_of_a_pool_counts() {
    let tainted = |name: &str, generation| slice(name, generation, &json!([taint("NoExecute")]));
    let mut cluster = test_cluster().with::<ResourceSlice>(tainted("old", 1));
    assert_eq!(cluster.put::<ResourceSlice>(slice("new", 2, &json!([]))), ["a/web kind=pod uid=u-web"]);
    assert_eq!(cluster.decision(), Decision::Never);
    // Other pools and drivers have their own generations.
    for (field, value) in [("driver", json!("e")), ("pool", json!({"name": "q", "generation": 1}))] {
        let mut elsewhere = tainted("elsewhere", 1);
        elsewhere["spec"][field] = value;
        cluster.put::<ResourceSlice>(elsewhere);
        assert_eq!(cluster.decision(), Decision::Never);
    }
    let items = cluster.take::<ResourceSlice>(&Key::cluster("new"));
    assert_eq!(items, ["a/web kind=pod uid=u-web"]);
    assert_eq!(cluster.decision(), Decision::Now);
}

/// Proves DTE-5, DTE-6.
#[test]
fn rule_taints_the_devices_that_it_selects() {
    let decide = |selector: Value| {
        test_cluster().with::<DeviceTaintRule>(rule("r", selector, taint("NoExecute"))).decision()
    };
    // No slice publishes the device.
    assert_eq!(decide(json!({})), Decision::Now);
    assert_eq!(decide(Value::Null), Decision::Never);
    assert_eq!(decide(json!({"driver": "d", "pool": "p", "device": "x"})), Decision::Now);
    for other in [
        json!({"driver": "e"}),
        json!({"pool": "q"}),
        json!({"device": "y"}),
        json!({"pool": "p", "device": "y"}),
    ] {
        assert_eq!(decide(other.clone()), Decision::Never, "{other}");
    }
}

/// Proves DTE-14, DTE-92, DTE-101.
#[test]
fn earliest_device_decides_and_all_rules_are_reasons() {
    let later = json!({"key": "later", "effect": "NoExecute", "timeAdded": "2027-01-15T08:01:00Z"});
    let cluster = test_cluster().with::<DeviceTaintRule>(rule("z", json!({}), later));
    let mut cluster = cluster.with::<DeviceTaintRule>(rule("a", json!({"device": "x"}), taint("NoExecute")));
    let transcript = cluster.pod();
    assert!(transcript.contains("delete pods a/web"), "{transcript}");
    for name in ["a", "z"] {
        // The one that is due later has evicted the pod, too.
        cluster.take::<Pod>(&Key::namespaced("a", "web"));
        cluster.later(10);
        let [status, reason, message] = cluster.condition(name).expect("a write");
        assert_eq!((&*status, &*reason), ("False", "Completed"));
        assert_eq!(message, "1 pod evicted since starting the controller.");
        cluster.put::<Pod>(pod("web"));
    }
    // Tolerations of one result do not apply to another; admin access does not matter.
    let mut two = claim(&json!([tolerates(None)]));
    let second = json!({"request": "s", "driver": "d", "pool": "p", "device": "x", "adminAccess": true});
    two["status"]["allocation"]["devices"]["results"].as_array_mut().unwrap().push(second);
    let cluster = test_cluster().with::<ResourceClaim>(two);
    assert_eq!(
        cluster.with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")]))).decision(),
        Decision::Now
    );
}

/// Proves DTE-22.
#[test]
fn earliest_claim_decides_and_the_rules_of_all_claims_are_reasons() {
    let in_seconds = |key: &str, seconds: u32| json!({"key": key, "effect": "NoExecute", "timeAdded": format!("2027-01-15T08:00:{seconds}Z")});
    let for_device = |name: &str, device: &str, taint: Value| rule(name, json!({"device": device}), taint);
    for claims in [["c", "c2"], ["c2", "c"]] {
        let mut second = claim(&json!([]));
        second["metadata"] = json!({"name": "c2", "namespace": "a", "uid": "u-c2"});
        second["status"]["allocation"]["devices"]["results"][0]["device"] = json!("y");
        let mut pod = pod("web");
        pod["spec"]["resourceClaims"] = claims
            .iter()
            .map(|name| json!({"name": format!("entry-{name}"), "resourceClaimName": name}))
            .collect();
        let mut cluster = test_cluster()
            .with::<ResourceClaim>(second)
            .with::<Pod>(pod)
            .with::<DeviceTaintRule>(for_device("early", "x", in_seconds("early", 20)))
            .with::<DeviceTaintRule>(for_device("late", "y", in_seconds("late", 50)))
            .with::<DeviceTaintRule>(for_device("elsewhere", "z", in_seconds("elsewhere", 10)));
        assert_eq!(cluster.decision(), Decision::In(20), "{claims:?}");
        let pending = "1 pod needs to be evicted in 1 namespace.";
        for name in ["early", "late"] {
            let [status, reason, message] = cluster.condition(name).expect("a write");
            assert_eq!((&*status, &*reason, &*message), ("True", "PodsPendingEviction", pending), "{name}");
        }
        // The eviction counts for both rules, each of which reports it.
        cluster.later(20);
        let transcript = cluster.pod();
        assert!(transcript.contains("delete pods a/web"), "{claims:?}: {transcript}");
        cluster.take::<Pod>(&Key::namespaced("a", "web"));
        cluster.later(10);
        for (name, evicted) in [("early", true), ("late", true), ("elsewhere", false)] {
            let [status, reason, message] = cluster.condition(name).expect("a write");
            let (expected, text) = if evicted {
                ("Completed", "1 pod evicted since starting the controller.")
            } else {
                ("NotStarted", "")
            };
            assert_eq!((&*status, &*reason, &*message), ("False", expected, text), "{name}");
        }
    }
}

/// Proves DTE-20, DTE-21, DTE-23, DTE-24, DTE-85, DTE-86, DTE-87, DTE-102, DTE-103.
#[test]
fn bound_pod_with_a_reserved_claim_of_its_own_is_evicted() {
    let tainted = || test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
    let changed = |change: fn(&mut Value)| {
        let mut pod = pod("web");
        change(&mut pod);
        tainted().with::<Pod>(pod).decision()
    };
    assert_eq!(changed(|pod| pod["spec"]["nodeName"] = json!("")), Decision::Never);
    assert_eq!(changed(|pod| pod["status"]["phase"] = json!("Succeeded")), Decision::Now);
    assert_eq!(
        changed(|pod| pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "m"})),
        Decision::Now
    );
    assert_eq!(changed(|pod| pod["spec"]["resourceClaims"] = json!([{"name": "gpu"}])), Decision::Never);
    let extended = |pod: &mut Value| {
        pod["spec"]["resourceClaims"] = json!([]);
        pod["status"] = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c"}});
    };
    assert_eq!(changed(extended), Decision::Never);
    let generated = |pod: &mut Value| {
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        pod["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]});
    };
    // Not generated for this pod.
    assert_eq!(changed(generated), Decision::Never);
    let mut none = claim(&json!([]));
    none["status"]["reservedFor"] = json!([{"resource": "pods", "name": "web", "uid": "u-old"}]);
    assert_eq!(tainted().with::<ResourceClaim>(none).decision(), Decision::Never);
    let mut elsewhere = claim(&json!([]));
    elsewhere["metadata"]["namespace"] = json!("b");
    let mut cluster = tainted();
    cluster.take::<ResourceClaim>(&Key::namespaced("a", "c"));
    assert_eq!(cluster.with::<ResourceClaim>(elsewhere).decision(), Decision::Never);
    // Bound after the taint was set.
    let mut cluster = tainted();
    let mut unbound = pod("web");
    unbound["spec"]["nodeName"] = json!("");
    cluster.put::<Pod>(unbound);
    assert_eq!(cluster.put::<Pod>(pod("web")), ["a/web kind=pod uid=u-web"]);
    assert_eq!(cluster.decision(), Decision::Now);
}

/// Proves DTE-99, DTE-100.
#[test]
fn reservation_of_a_pod_group_counts_for_its_pods_with_the_gate() {
    let mut shared = claim(&json!([]));
    shared["status"]["reservedFor"] =
        json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u-g"}]);
    let mut member = pod("web");
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    let mut without_claim = member.clone();
    without_claim["spec"]["resourceClaims"] = json!([]);
    let tainted = slice("s", 1, &json!([taint("NoExecute")]));
    for (enable_workload_claims, pod, expected) in [
        (true, &member, Decision::Now),
        (true, &without_claim, Decision::Never),
        (false, &member, Decision::Never),
    ] {
        let options =
            DeviceTaintEvictionOptions { enable_workload_claims, ..DeviceTaintEvictionOptions::default() };
        let cluster = without_pod(options).with::<Pod>(pod.clone()).with::<ResourceClaim>(shared.clone());
        assert_eq!(cluster.with::<ResourceSlice>(tainted.clone()).decision(), expected);
    }
}

/// Proves DTE-25, DTE-26, DTE-27, DTE-30, DTE-107.
#[test]
fn changes_enqueue_the_pods_that_they_concern() {
    const NONE: [&str; 0] = [];
    const WEB: [&str; 1] = ["a/web kind=pod uid=u-web"];
    let mut cluster = without_pod(DeviceTaintEvictionOptions::default());
    assert_eq!(cluster.put::<Pod>(pod("web")), WEB);
    let mut labelled = pod("web");
    labelled["metadata"]["labels"] = json!({"l": "v"});
    assert_eq!(cluster.put::<Pod>(labelled), NONE);
    let mut recorded = pod("web");
    recorded["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]});
    assert_eq!(cluster.put::<Pod>(recorded.clone()), WEB);
    assert_eq!(cluster.put::<ResourceClaim>(claim(&json!([]))), WEB);
    let mut other = claim(&json!([]));
    other["status"]["reservedFor"] = json!([{"resource": "pods", "name": "web", "uid": "u-old"}]);
    assert_eq!(cluster.put::<ResourceClaim>(other.clone()), WEB);
    assert_eq!(cluster.put::<ResourceClaim>(other), NONE);
    let mut new = claim(&json!([]));
    new["metadata"]["uid"] = json!("u-new");
    assert_eq!(cluster.put::<ResourceClaim>(new), WEB);
    assert_eq!(cluster.take::<ResourceClaim>(&Key::namespaced("a", "c")), WEB);
    recorded["metadata"]["uid"] = json!("u-other");
    assert_eq!(cluster.put::<Pod>(recorded), ["a/web kind=pod uid=u-other"]);
    // The item of the old pod finds another one, and ends without an event.
    assert_eq!(cluster.pod(), "");
    assert_eq!(cluster.take::<Pod>(&Key::namespaced("a", "web")), NONE);
}

/// Proves DTE-15, DTE-40, DTE-41, DTE-84, DTE-106.
#[test]
fn changed_taints_enqueue_the_pods_of_the_device() {
    const NONE: [&str; 0] = [];
    const WEB: [&str; 1] = ["a/web kind=pod uid=u-web"];
    let mut cluster = test_cluster();
    assert_eq!(cluster.put::<ResourceSlice>(slice("s", 1, &json!([taint("NoSchedule")]))), NONE);
    assert_eq!(cluster.put::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")]))), WEB);
    assert_eq!(cluster.put::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")]))), NONE);
    assert_eq!(cluster.put::<ResourceSlice>(slice("s", 1, &json!([taint("NoSchedule")]))), WEB);
    assert_eq!(cluster.put::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")]))), WEB);
    // The slice of the same name describes another pool now.
    let mut moved = slice("s", 1, &json!([taint("NoExecute")]));
    moved["spec"]["pool"]["name"] = json!("q");
    moved["metadata"]["uid"] = json!("s-2");
    assert_eq!(cluster.put::<ResourceSlice>(moved), WEB);
    assert_eq!(cluster.decision(), Decision::Never);
    // A rule comes before its pods; metadata and status are no changes.
    let both = ["r kind=rule uid=u-r", "a/web kind=pod uid=u-web"];
    assert_eq!(cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("NoExecute"))), both);
    let mut labelled = rule("r", json!({}), taint("NoExecute"));
    labelled["metadata"]["labels"] = json!({"l": "v"});
    labelled["status"] = json!({"conditions": [{"type": "EvictionInProgress", "status": "True"}]});
    assert_eq!(cluster.put::<DeviceTaintRule>(labelled), NONE);
    assert_eq!(cluster.put::<DeviceTaintRule>(rule("r", json!({"pool": "z"}), taint("NoExecute"))), both);
    assert_eq!(
        cluster.put::<DeviceTaintRule>(rule("none", json!({}), taint("None"))),
        ["none kind=rule uid=u-none"]
    );
    cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("NoExecute")));
    assert_eq!(cluster.take::<DeviceTaintRule>(&Key::cluster("r")), WEB);
    assert_eq!(cluster.decision(), Decision::Never);
}

/// Proves DTE-32, DTE-33, DTE-60, DTE-61, DTE-98, DTE-112.
#[test]
fn eviction_marks_and_deletes_the_live_pod_once() {
    let mut cluster = test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
    cluster.later(3);
    let item = EvictionItem::Pod(Key::namespaced("a", "web"), "u-web".into());
    let transcript = cluster.rehearsal.reconcile(&cluster.a_loop, item);
    let condition = json!({"status": {"conditions": [{
        "lastTransitionTime": "2027-01-15T08:00:03Z", "message": "Device Taint manager: deleting due to NoExecute taint",
        "reason": "DeletionByDeviceTaintManager", "status": "True", "type": "DisruptionTarget"}]}});
    let metric = "measure device_taint_eviction_controller_pod_deletion";
    let expected = format!(
        "get pods a/web\n{MARKING}patch pods/status a/web {BECAUSE}: {condition}\ndelete pods a/web {BECAUSE}\n\
         {metric}s_total{{}} 1\n{metric}_duration_seconds{{}} 3\n"
    );
    assert_eq!(transcript, expected);
    // The cache still shows the pod; it is not evicted again.
    assert_eq!(cluster.pod(), "");
}

/// Proves DTE-34, DTE-35, DTE-94.
#[test]
fn pod_that_is_gone_or_terminating_is_not_written() {
    let tainted = || test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
    const GET: &str = "get pods a/web\n";
    let mut cluster = tainted();
    let mut other = pod("web");
    other["metadata"]["uid"] = json!("u-other");
    cluster.rehearsal = cluster.rehearsal.with_live::<Pod>(other);
    assert_eq!(cluster.pod(), GET);
    let mut cluster = tainted();
    let mut terminating = pod("web");
    terminating["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    cluster.rehearsal = cluster.rehearsal.with_live::<Pod>(terminating);
    let metric = "measure device_taint_eviction_controller_pod_deletion";
    assert_eq!(cluster.pod(), format!("{GET}{metric}s_total{{}} 1\n{metric}_duration_seconds{{}} 0\n"));
    let mut cluster = tainted().failing("delete", ErrorReason::NotFound);
    assert!(!cluster.pod().contains("measure"));
}

/// Proves DTE-91, DTE-110.
#[test]
fn failed_eviction_is_repeated_from_the_start() {
    for (verb, reason) in [
        ("get", ErrorReason::Unavailable),
        ("patch", ErrorReason::Conflict),
        ("delete", ErrorReason::Conflict),
    ] {
        let cluster = test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
        let mut cluster = cluster.failing(verb, reason);
        for _ in 0..2 {
            let transcript = cluster.pod();
            assert!(
                transcript.starts_with("get pods a/web\n") && transcript.contains("retry: "),
                "{transcript}"
            );
            assert!(!transcript.contains("measure"), "{transcript}");
            assert_eq!(transcript.contains("delete pods"), verb == "delete", "{transcript}");
        }
    }
    // The condition is there already: only the event and the deletion are left.
    let cluster = test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
    let mut marked = pod("web");
    marked["status"] = json!({"conditions": [{"type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByDeviceTaintManager", "message": "Device Taint manager: deleting due to NoExecute taint"}]});
    let transcript = cluster.with::<Pod>(marked).pod();
    assert!(transcript.starts_with(&format!("get pods a/web\n{MARKING}delete pods")), "{transcript}");
}

/// Proves DTE-28, DTE-29, DTE-31, DTE-62, DTE-80, DTE-81, DTE-83, DTE-109, DTE-113.
#[test]
fn scheduled_eviction_is_cancelled_moved_and_carried_out_once() {
    let tainted = || slice("s", 1, &json!([taint("NoExecute")]));
    let mut cluster = test_cluster().with::<ResourceClaim>(claim(&json!([tolerates(Some(60))])));
    assert_eq!(cluster.pod(), "");
    cluster.put::<ResourceSlice>(tainted());
    assert_eq!(cluster.decision(), Decision::In(60));
    cluster.later(20);
    assert_eq!(cluster.decision(), Decision::In(40));
    cluster.take::<ResourceSlice>(&Key::cluster("s"));
    assert_eq!((cluster.pod().as_str(), cluster.pod().as_str()), (CANCELS, ""));
    // The same taint again: the time counts from the taint, as after a restart.
    cluster.put::<ResourceSlice>(tainted());
    assert_eq!(cluster.decision(), Decision::In(40));
    // A value that is not tolerated.
    let mut other = taint("NoExecute");
    other["key"] = json!("other");
    cluster.put::<ResourceSlice>(slice("s", 1, &json!([other])));
    assert_eq!(cluster.decision(), Decision::Now);
    // The order of events does not matter.
    let mut cluster = without_pod(DeviceTaintEvictionOptions::default()).with::<ResourceSlice>(tainted());
    cluster.put::<Pod>(pod("web"));
    assert_eq!(
        cluster.put::<ResourceClaim>(claim(&json!([tolerates(Some(60))]))),
        ["a/web kind=pod uid=u-web"]
    );
    assert_eq!(cluster.decision(), Decision::In(60));
    cluster.later(60);
    assert_eq!((cluster.decision(), cluster.decision()), (Decision::Now, Decision::Never));
}

/// Proves DTE-105.
#[test]
fn other_devices_of_a_claim_are_judged_again() {
    let mut cluster = test_cluster().with::<ResourceSlice>(slice("s", 1, &json!([taint("NoExecute")])));
    let mut moved = claim(&json!([]));
    moved["status"]["allocation"]["devices"]["results"][0]["device"] = json!("other");
    assert_eq!(cluster.put::<ResourceClaim>(moved), ["a/web kind=pod uid=u-web", "a/web kind=pod uid=u-web"]);
    assert_eq!(cluster.decision(), Decision::Never);
}

/// Proves DTE-42, DTE-44, DTE-45, DTE-46, DTE-64, DTE-111.
#[test]
fn rule_reports_its_pending_pods() {
    let reported =
        |status: &str, reason: &str, message: &str| Some([status, reason, message].map(str::to_owned));
    let mut cluster = without_pod(DeviceTaintEvictionOptions::default());
    assert_eq!(cluster.rule("r"), "");
    cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("NoExecute")));
    assert_eq!(cluster.condition("r"), reported("False", "NotStarted", ""));
    let applied = cluster.rehearsal.bodies(
        &cluster.a_loop,
        EvictionItem::Rule(Key::cluster("r"), "u-r".into()),
        "apply ",
    );
    assert_eq!(applied[0].1["metadata"], json!({"uid": "u-r"}));
    let condition = &applied[0].1["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["observedGeneration"]),
        (&json!("EvictionInProgress"), &json!(1))
    );
    // Also one that is due later.
    cluster.put::<ResourceClaim>(claim(&json!([tolerates(Some(60))])));
    cluster.put::<Pod>(pod("web"));
    assert_eq!(
        cluster.condition("r"),
        reported("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    );
    let (mut other_claim, mut other) = (claim(&json!([])), pod("web"));
    other_claim["metadata"]["namespace"] = json!("b");
    other["metadata"]["namespace"] = json!("b");
    cluster.put::<ResourceClaim>(other_claim);
    cluster.put::<Pod>(other.clone());
    let message = "2 pods need to be evicted in 2 different namespaces.";
    assert_eq!(cluster.condition("r"), reported("True", "PodsPendingEviction", message));
    other["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    cluster.put::<Pod>(other);
    let message = "1 pod needs to be evicted in 1 namespace.";
    assert_eq!(cluster.condition("r"), reported("True", "PodsPendingEviction", message));
    // Of another UID.
    let transcript =
        cluster.rehearsal.reconcile(&cluster.a_loop, EvictionItem::Rule(Key::cluster("r"), "u-old".into()));
    assert_eq!(transcript, "");
}

/// Proves DTE-47, DTE-48, DTE-49, DTE-50, DTE-52.
#[test]
fn rule_without_effect_reports_what_it_would_do() {
    let rest = "if the effect was NoExecute. This information will not be updated again. Recreate the \
                DeviceTaintRule to trigger an update.";
    let mut cluster = test_cluster().with::<ResourceSlice>(slice("old", 1, &json!([])));
    cluster.put::<ResourceSlice>(slice("s", 2, &json!([])));
    cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("None")));
    let message =
        "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace";
    let reported = |message: String| Some(["False".to_owned(), "NoEffect".to_owned(), message]);
    assert_eq!(cluster.condition("r"), reported(format!("{message} {rest}")));
    // Nothing else happened.
    assert_eq!(cluster.pod(), "");
    cluster.put::<ResourceClaim>(claim(&json!([tolerates(None)])));
    cluster.put::<DeviceTaintRule>(rule("r", json!({"device": "x"}), taint("None")));
    let message = "1 published device selected. 1 allocated device selected. 0 pods would be evicted in 0 different namespaces";
    assert_eq!(cluster.condition("r"), reported(format!("{message} {rest}")));
    cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("NoSchedule")));
    let other = ["False", "OtherEffect", "Eviction only happens for the NoExecute effect."];
    assert_eq!(cluster.condition("r"), Some(other.map(str::to_owned)));
    // A count stays when the effect changes.
    cluster.put::<ResourceClaim>(claim(&json!([])));
    cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("NoExecute")));
    assert_eq!(cluster.decision(), Decision::Now);
    cluster.put::<DeviceTaintRule>(rule("r", json!({}), taint("NoSchedule")));
    let [_, _, message] = cluster.condition("r").expect("a write");
    assert_eq!(message, format!("{} 1 pod evicted since starting the controller.", other[2]));
}

/// Proves DTE-43, DTE-51, DTE-93, DTE-96.
#[test]
fn rule_status_is_written_every_ten_seconds_at_most() {
    let mut cluster = test_cluster();
    let with_condition = |generation: i64, observed: i64, time: &str, status: &str, message: &str| {
        let mut rule = rule("r", json!({}), taint("NoExecute"));
        rule["metadata"]["generation"] = json!(generation);
        let reason = if status == "True" { "PodsPendingEviction" } else { "NotStarted" };
        rule["status"] = json!({"conditions": [{"type": "EvictionInProgress", "status": status, "reason": reason,
            "message": message, "observedGeneration": observed, "lastTransitionTime": time}]});
        rule
    };
    let pending = "1 pod needs to be evicted in 1 namespace.";
    cluster.put::<DeviceTaintRule>(with_condition(1, 1, "2027-01-15T07:59:57Z", "False", ""));
    assert_eq!(cluster.rule("r"), "requeue with kept backoff after 7s\n");
    // The clock of the writer was ahead.
    cluster.put::<DeviceTaintRule>(with_condition(1, 1, "2027-01-15T08:00:05Z", "False", ""));
    assert_eq!(cluster.rule("r"), "requeue with kept backoff after 15s\n");
    // Another generation is reported at once.
    cluster.put::<DeviceTaintRule>(with_condition(2, 1, "2027-01-15T07:59:57Z", "False", ""));
    assert!(cluster.condition("r").is_some());
    cluster.put::<DeviceTaintRule>(with_condition(1, 1, "2027-01-15T07:59:50Z", "True", pending));
    assert_eq!(cluster.rule("r"), "");
    // Only the message differs: the time of the condition is that of the write. This process has evicted nothing.
    let older = "1 pod evicted since starting the controller.";
    cluster.put::<DeviceTaintRule>(with_condition(1, 1, "2027-01-15T07:59:50Z", "True", older));
    assert!(cluster.rule("r").contains("\"lastTransitionTime\":\"2027-01-15T08:00:00Z\""));
}

/// Proves DTE-104.
#[test]
fn rule_is_reported_ten_seconds_after_its_pods_change() {
    let cluster = test_cluster().with::<ResourceClaim>(claim(&json!([tolerates(Some(60))])));
    let mut cluster = cluster.with::<DeviceTaintRule>(rule("r", json!({}), taint("NoExecute")));
    assert!(cluster.condition("r").is_some());
    assert!(cluster.pod().starts_with("enqueue r kind=rule uid=u-r\n"));
    assert_eq!(cluster.rule("r"), "requeue with kept backoff after 10s\n");
    cluster.later(4);
    // An earlier time stays.
    cluster.pod();
    assert_eq!(cluster.rule("r"), "requeue with kept backoff after 6s\n");
    cluster.later(6);
    assert!(cluster.condition("r").is_some());
    // A pending pod that another client deletes is reported, too.
    cluster.pod();
    assert_eq!(cluster.take::<Pod>(&Key::namespaced("a", "web")), ["r kind=rule uid=u-r"]);
}

/// Proves DTE-95.
#[test]
fn recreated_rule_starts_again() {
    let mut cluster = test_cluster().with::<DeviceTaintRule>(rule("r", json!({}), taint("NoExecute")));
    assert_eq!(cluster.decision(), Decision::Now);
    let mut new = rule("r", json!({"device": "other"}), taint("NoExecute"));
    new["metadata"]["uid"] = json!("u-new");
    assert_eq!(cluster.put::<DeviceTaintRule>(new)[0], "r kind=rule uid=u-new");
    let item = EvictionItem::Rule(Key::cluster("r"), "u-new".into());
    let transcript = cluster.rehearsal.reconcile(&cluster.a_loop, item);
    assert!(transcript.contains("NotStarted") && !transcript.contains("evicted since"), "{transcript}");
}
