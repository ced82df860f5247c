//! Requests of the engine for given watch events and responses.

#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{Call, WriteResponse};
use keleustes_objects::{ApiError, ErrorReason, InternedStr, Key, PersistentVolumeClaim, ResourceVersion};
use serde_json::{Value, json};

use super::{Engine, Writer};
use crate::clock::after;
use crate::hollow_node::NodeConfig;
use crate::kubelet::PodDefaults;
use crate::projections::{Attachment, ConfigKind, ConfigMap, CsiDriver, Node, Pod, PodClaim, Taint, Volume};

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn engine(nodes: usize, scheduler: bool) -> Engine {
    let node_config = NodeConfig {
        zones: 2,
        region: "r".to_owned(),
        cpu: "4".to_owned(),
        memory: "8Gi".to_owned(),
        pods: 110,
        extended: vec![("example.com/gpu".to_owned(), "1".to_owned())],
        lease_interval: Duration::from_secs(10),
        lease_duration: Duration::from_secs(40),
        status_every: Duration::from_secs(300),
        removes_not_ready_taint: true,
    };
    let pod_defaults = PodDefaults {
        start_delay: Duration::from_millis(200),
        start_spread: Duration::ZERO,
        batch_run_for: None,
        batch_killed_code: 0,
        termination_delay: Duration::ZERO,
    };
    Engine::new((0..nodes).map(|index| format!("h-{index}")), node_config, pod_defaults, scheduler, 7, START)
}

fn at(seconds: f64) -> Timestamp {
    after(START, Duration::from_secs_f64(seconds))
}

fn node(name: &str, ready: &str) -> Node {
    let value = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": ready}]}});
    serde_json::from_str(&value.to_string()).unwrap()
}

fn pod(name: &str, node: &str) -> Pod {
    let value = json!({
        "metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"), "resourceVersion": "3"},
        "spec": {"nodeName": node, "schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
    });
    serde_json::from_str(&value.to_string()).unwrap()
}

fn claims(names: &[&str]) -> Box<[PodClaim]> {
    let claim = |name: &&str| PodClaim { volume: "v".into(), name: (*name).into(), is_ephemeral: false };
    names.iter().map(claim).collect()
}

/// All requests that are due now.
fn sent(engine: &mut Engine, now: Timestamp) -> Vec<(Writer, Call)> {
    std::iter::from_fn(|| engine.next_call(now)).collect()
}

fn displayed(calls: &[(Writer, Call)]) -> Vec<String> {
    calls.iter().map(|(_, call)| call.to_string()).collect()
}

fn done() -> Result<WriteResponse, ApiError> {
    Ok(WriteResponse {
        resource_version: ResourceVersion::from("10"),
        is_object: true,
        ..WriteResponse::default()
    })
}

fn failed(reason: ErrorReason) -> Result<WriteResponse, ApiError> {
    Err(ApiError::transport(reason, "no"))
}

/// Sends all requests with success until none is due.
fn send_all(engine: &mut Engine, now: Timestamp) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        engine.tick(now);
        let calls = sent(engine, now);
        if calls.is_empty() {
            return all;
        }
        all.extend(displayed(&calls));
        for (writer, _) in calls {
            engine.on_response(&writer, &done(), now);
        }
    }
}

/// An engine whose nodes are registered and idle.
fn idle_engine(nodes: usize, scheduler: bool) -> Engine {
    let mut engine = engine(nodes, scheduler);
    send_all(&mut engine, START);
    engine.replace_nodes(
        &(0..nodes).map(|index| node(&format!("h-{index}"), "True")).collect::<Vec<_>>(),
        START,
    );
    engine.replace_pods(Vec::new(), START);
    send_all(&mut engine, START);
    engine
}

const STATUS: &str = "PATCH /api/v1/namespaces/n/pods/p/status";

fn body(call: &Call) -> Value {
    serde_json::from_slice(&call.body).unwrap()
}

#[test]
fn node_registers_creates_its_lease_and_then_writes_only_when_due() {
    let mut engine = engine(1, false);
    let calls = sent(&mut engine, START);
    assert_eq!(displayed(&calls), ["POST /api/v1/nodes"]);
    let object = body(&calls[0].1);
    assert_eq!(object["metadata"]["labels"]["topology.kubernetes.io/zone"], "r-a");
    assert_eq!(object["status"]["allocatable"]["example.com/gpu"], "1");
    engine.on_response(&calls[0].0, &done(), START);
    assert_eq!(sent(&mut engine, START), [], "the Lease needs the UID of the Node");
    engine.observe_node(&node("h-0", "True"), START);
    let calls = sent(&mut engine, START);
    assert_eq!(displayed(&calls), ["POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"]);
    assert_eq!(body(&calls[0].1)["metadata"]["ownerReferences"][0]["uid"], "uid-h-0");
    engine.on_response(&calls[0].0, &done(), START);
    assert_eq!(sent(&mut engine, START), []);

    // In one hour: a renewal every 10 seconds plus jitter, a heartbeat every five minutes.
    let (mut renewals, mut heartbeats) = (0, 0);
    while let Some(due) = engine.due().filter(|due| *due < at(3600.0)) {
        for line in send_all(&mut engine, due) {
            match line.as_str() {
                "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/h-0" => renewals += 1,
                "PATCH /api/v1/nodes/h-0/status" => heartbeats += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert!((345..=361).contains(&renewals) && (11..=13).contains(&heartbeats), "{renewals} {heartbeats}");
}

#[test]
fn lease_renewals_of_many_nodes_spread_over_time() {
    let mut engine = idle_engine(100, false);
    let mut most = 0;
    for tenth in 1..100 {
        let now = at(f64::from(tenth) / 10.0);
        most = most.max(send_all(&mut engine, now).len());
    }
    assert!(most <= 6, "{most} of 100 nodes in a tenth of a second");
}

#[test]
fn existing_node_and_lease_are_adopted() {
    let mut engine = engine(1, false);
    let writer = sent(&mut engine, START).remove(0).0;
    engine.on_response(&writer, &failed(ErrorReason::AlreadyExists), START);
    engine.observe_node(&node("h-0", "True"), START);
    let calls = sent(&mut engine, START);
    assert_eq!(displayed(&calls), ["POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"]);
    engine.on_response(&writer, &failed(ErrorReason::AlreadyExists), START);
    let mut rest = Vec::new();
    for _ in 0..2 {
        rest.extend(displayed(&sent(&mut engine, START)));
        engine.on_response(&writer, &done(), START);
    }
    assert_eq!(
        rest,
        [
            "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/h-0",
            "PATCH /api/v1/nodes/h-0/status"
        ]
    );
}

#[test]
fn several_changes_of_a_pod_are_written_once() {
    let mut engine = idle_engine(1, false);
    engine.observe_pod(pod("p", "h-0"), START);
    engine.tick(at(0.3));
    let calls = sent(&mut engine, at(0.3));
    assert_eq!(displayed(&calls), [STATUS]);
    // While that request is in flight, the pod is deleted and terminates.
    let mut deleted = pod("p", "h-0");
    deleted.meta.deletion_timestamp = Some(crate::clock::stamp(at(1.0)));
    engine.observe_pod(deleted, at(1.0));
    assert_eq!(sent(&mut engine, at(1.0)), []);
    engine.on_response(&calls[0].0, &done(), at(1.1));
    let calls = sent(&mut engine, at(1.1));
    assert_eq!(displayed(&calls), [STATUS]);
    assert_eq!(body(&calls[0].1)["status"]["phase"], "Succeeded");
    engine.on_response(&calls[0].0, &done(), at(1.2));
    let calls = sent(&mut engine, at(1.2));
    assert_eq!(displayed(&calls), ["DELETE /api/v1/namespaces/n/pods/p"]);
    assert_eq!(body(&calls[0].1)["gracePeriodSeconds"], 0);
    assert_eq!(body(&calls[0].1)["preconditions"]["uid"], "uid-p");
    engine.on_response(&calls[0].0, &done(), at(1.3));
    engine.forget_pod(&Key::namespaced("n", "p"), at(1.3));
    assert_eq!((send_all(&mut engine, at(1.3)).len(), engine.stats().pods), (0, 0));
}

#[test]
fn failures_are_retried_with_backoff_and_missing_pods_are_not() {
    let mut engine = idle_engine(1, false);
    engine.fail_node("h-0", START);
    engine.recover_node("h-0", START);
    send_all(&mut engine, START);
    engine.observe_pod(pod("p", "h-0"), START);
    let mut now = at(0.3);
    let mut waits = Vec::new();
    for _ in 0..8 {
        engine.tick(now);
        let calls = sent(&mut engine, now);
        let (writer, _) = calls.iter().find(|(_, call)| call.to_string() == STATUS).unwrap();
        engine.on_response(writer, &failed(ErrorReason::Unavailable), now);
        let backoff_end = engine.write_queue.backoff_end(writer).unwrap();
        waits.push(crate::clock::since(backoff_end, now).as_secs_f64());
        now = backoff_end;
    }
    for (wait, base) in waits.iter().zip([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]) {
        assert!((base..=base * 1.5).contains(wait), "{waits:?}");
    }
    engine.tick(now);
    let calls = sent(&mut engine, now);
    let (writer, _) = calls.iter().find(|(_, call)| call.to_string() == STATUS).unwrap();
    engine.on_response(writer, &failed(ErrorReason::NotFound), now);
    assert!(!displayed(&sent(&mut engine, at(3600.0))).contains(&STATUS.to_owned()));
}

#[test]
fn failed_node_and_its_pods_write_nothing_until_recovery() {
    let mut engine = idle_engine(2, false);
    engine.observe_pod(pod("p", "h-0"), START);
    assert!(engine.fail_node("h-0", START));
    assert!(!engine.fail_node("unknown", START));
    engine.observe_node(&node("h-0", "Unknown"), at(40.0));
    let written = send_all(&mut engine, at(400.0));
    assert!(!written.is_empty() && written.iter().all(|line| line.contains("h-1")), "{written:?}");

    assert!(engine.recover_node("h-0", at(401.0)));
    let written = send_all(&mut engine, at(401.0));
    let wanted = [
        "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/h-0",
        STATUS,
        "PATCH /api/v1/nodes/h-0/status",
    ];
    assert_eq!(written, wanted);
}

#[test]
fn failed_annotation_fails_a_node_and_its_removal_recovers_it() {
    let mut engine = idle_engine(1, false);
    let mut failed = node("h-0", "True");
    failed.is_failed = true;
    engine.observe_node(&failed, START);
    assert_eq!(send_all(&mut engine, at(100.0)), [""; 0]);
    engine.observe_node(&node("h-0", "Unknown"), at(101.0));
    assert_eq!(send_all(&mut engine, at(101.0)).len(), 2);
}

#[test]
fn deleted_node_registers_again_only_after_recover_node() {
    let mut engine = idle_engine(1, false);
    engine.forget_node(&InternedStr::from("h-0"), START);
    assert_eq!(send_all(&mut engine, at(1000.0)), [""; 0]);
    engine.recover_node("h-0", at(1000.0));
    assert_eq!(send_all(&mut engine, at(1000.0)), ["POST /api/v1/nodes"]);
}

#[test]
fn node_marked_unready_reports_ready_again() {
    let mut engine = idle_engine(1, false);
    engine.observe_node(&node("h-0", "Unknown"), at(0.0));
    assert_eq!(send_all(&mut engine, at(0.0)), ["PATCH /api/v1/nodes/h-0/status"]);
}

#[test]
fn only_the_not_ready_taint_of_new_nodes_is_removed() {
    let mut engine = idle_engine(1, false);
    let taint = |key: &str| Taint { key: InternedStr::from(key), ..Taint::default() };
    let mut tainted = node("h-0", "True");
    tainted.meta.resource_version = ResourceVersion::from("4");
    tainted.taints = Box::new([taint("a"), taint("node.kubernetes.io/not-ready")]);
    engine.observe_node(&tainted, START);
    let (writer, call) = sent(&mut engine, START).remove(0);
    assert_eq!(call.to_string(), "PATCH /api/v1/nodes/h-0");
    let kept = json!([{"key": "a", "effect": "NoSchedule"}]);
    assert_eq!(body(&call), json!({"metadata": {"resourceVersion": "4"}, "spec": {"taints": kept}}));
    // After a failure it waits for the next watch event, because the node must have changed.
    engine.on_response(&writer, &failed(ErrorReason::Conflict), START);
    assert!(send_all(&mut engine, START).is_empty());
    engine.observe_node(&tainted, START);
    assert_eq!(send_all(&mut engine, START).len(), 1);
}

#[test]
fn pending_pods_are_bound_or_get_the_condition_once() {
    let mut engine = idle_engine(1, true);
    engine.observe_pod(pod("p", ""), START);
    let mut big = pod("q", "");
    let mut template = (*big.template).clone();
    template.requests.cpu = 9000;
    big.template = crate::projections::TemplateRef::new(template);
    engine.observe_pod(big.clone(), START);
    let written = send_all(&mut engine, START);
    assert_eq!(
        written,
        ["POST /api/v1/namespaces/n/pods/p/binding", "PATCH /api/v1/namespaces/n/pods/q/status"]
    );
    // The same decision for a pod that already has the condition is not written again.
    big.status = serde_json::from_value(json!({"conditions": [{"type": "PodScheduled", "status": "False",
        "message": "0/1 nodes are available: 1 Insufficient cpu."}]}))
    .unwrap();
    engine.observe_pod(big, at(1.0));
    let mut changed = node("h-0", "True");
    changed.unschedulable = true;
    engine.observe_node(&changed, at(2.0));
    changed.unschedulable = false;
    engine.observe_node(&changed, at(2.0));
    assert!(send_all(&mut engine, at(2.5)).iter().all(|line| !line.contains("pods")));
}

#[test]
fn failed_binding_is_scheduled_again() {
    let mut engine = idle_engine(1, true);
    engine.observe_pod(pod("p", ""), START);
    engine.tick(START);
    let (writer, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["target"]["name"], "h-0");
    engine.on_response(&writer, &failed(ErrorReason::Conflict), START);
    assert_eq!(engine.stats().pending, 1);
    let written = send_all(&mut engine, at(1.0));
    assert!(written.contains(&"POST /api/v1/namespaces/n/pods/p/binding".to_owned()), "{written:?}");
}

#[test]
fn nothing_is_scheduled_before_nodes_and_pods_are_synced() {
    let mut engine = engine(2, true);
    engine.observe_pod(pod("p", ""), START);
    send_all(&mut engine, START);
    engine.replace_nodes(&[node("h-0", "True")], START);
    engine.replace_pods(vec![pod("p", "")], START);
    engine.tick(START);
    assert_eq!(engine.stats().pending, 1, "one node is not registered yet");
    engine.observe_node(&node("h-1", "True"), START);
    assert!(send_all(&mut engine, START).contains(&"POST /api/v1/namespaces/n/pods/p/binding".to_owned()));
}

#[test]
fn pods_missing_from_a_list_are_dropped_and_another_uid_is_another_pod() {
    let mut engine = idle_engine(1, false);
    engine.observe_pod(pod("p", "h-0"), START);
    engine.observe_pod(pod("q", "h-0"), START);
    engine.replace_pods(vec![pod("q", "h-0")], START);
    assert_eq!(engine.stats().pods, 1);
    engine.tick(at(0.3));
    assert_eq!(engine.stats().running, 1);
    let mut reborn = pod("q", "h-0");
    reborn.meta.uid = keleustes_objects::Uid::from("another");
    engine.observe_pod(reborn, at(0.4));
    assert_eq!(engine.stats().running, 0);
}

#[test]
fn pods_get_unique_ips_from_the_pod_cidr_of_the_node() {
    let mut engine = idle_engine(1, false);
    let mut ranged = node("h-0", "True");
    ranged.pod_cidr = InternedStr::from("192.168.4.0/29");
    engine.observe_node(&ranged, START);
    // Six addresses fit; the seventh pod gets none until another one terminates.
    for index in 0..7 {
        engine.observe_pod(pod(&format!("p{index}"), "h-0"), START);
    }
    let ips = |engine: &Engine| -> Vec<_> { engine.pods.values().map(|record| record.ip).collect() };
    let mut given: Vec<_> = ips(&engine).into_iter().flatten().collect();
    assert_eq!(given.len(), 6);
    given.sort();
    given.dedup();
    assert_eq!((given.len(), given[0].to_string().as_str()), (6, "192.168.4.1"));
    engine.forget_pod(&Key::namespaced("n", "p3"), START);
    engine.observe_pod(pod("late", "h-0"), START);
    assert_eq!(ips(&engine).into_iter().flatten().count(), 6);
}

#[test]
fn nodes_report_volumes_in_use() {
    let mut engine = idle_engine(1, false);
    let mut user = pod("p", "h-0");
    user.claims = claims(&["data"]);
    engine.observe_pod(user, START);
    assert!(send_all(&mut engine, START).is_empty(), "the claim is not bound yet");
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "n", "name": "data"},
        "csi": {"driver": "d.example.com", "volumeHandle": "7"}}});
    let volume: Volume = serde_json::from_str(&volume.to_string()).unwrap();
    engine.observe_volume(&volume, START);
    let (writer, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["status"]["volumesInUse"], json!(["kubernetes.io/csi/d.example.com^7"]));
    engine.on_response(&writer, &done(), START);
    engine.observe_volume(&volume, START);
    assert!(send_all(&mut engine, START).is_empty(), "no news");

    // Its claim was deleted, and the pod waits for a new claim of that name.
    let released = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "n", "name": "data"},
        "csi": {"driver": "d.example.com", "volumeHandle": "7"}}, "status": {"phase": "Released"}});
    engine.observe_volume(&serde_json::from_str(&released.to_string()).unwrap(), START);
    let (writer, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["status"]["volumesInUse"], json!([]));
    engine.on_response(&writer, &done(), START);
    engine.observe_volume(&volume, START);
    send_all(&mut engine, START);

    engine.forget_pod(&Key::namespaced("n", "p"), START);
    let (_, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["status"]["volumesInUse"], json!([]));
}

fn attachment(node: &str, finalizers: &[&str], terminating: bool, status: Value) -> Attachment {
    let deletion = terminating.then_some("2026-01-01T00:00:00Z");
    let value = json!({"metadata": {"name": "va", "uid": "u", "resourceVersion": "7", "finalizers": finalizers, "deletionTimestamp": deletion},
        "spec": {"nodeName": node, "source": {"persistentVolumeName": "pv"}}, "status": status});
    serde_json::from_str(&value.to_string()).unwrap()
}

fn volume_with(annotations: Value) -> Volume {
    let volume = json!({"metadata": {"name": "pv", "annotations": annotations}, "spec": {"csi": {"driver": "d", "volumeHandle": "7"},
        "claimRef": {"namespace": "n", "name": "data"}}});
    serde_json::from_str(&volume.to_string()).unwrap()
}

const FINALIZER: &str = "external-attacher/hollow";

/// The bodies of the requests that are sent now, all of which succeed.
fn bodies(engine: &mut Engine, now: Timestamp) -> Vec<Value> {
    let calls = sent(engine, now);
    calls.iter().for_each(|(writer, _)| engine.on_response(writer, &done(), now));
    calls.iter().map(|(_, call)| body(call)).collect()
}

#[test]
fn attachments_get_a_finalizer_are_attached_and_released() {
    let mut engine = idle_engine(1, false);
    engine.observe_attachment(&attachment("elsewhere", &[], false, json!({})), START);
    assert!(bodies(&mut engine, START).is_empty(), "not to a hollow node");
    engine.observe_attachment(&attachment("h-0", &["other"], false, json!({})), START);
    let expected = json!({"metadata": {"resourceVersion": "7", "finalizers": ["other", FINALIZER]}});
    assert_eq!(bodies(&mut engine, START), [expected]);
    assert!(bodies(&mut engine, START).is_empty(), "its event has not come yet");
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], false, json!({})), START);
    assert_eq!(bodies(&mut engine, START)[0]["status"], json!({"attached": true, "attachError": null}));
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], false, json!({"attached": true})), START);
    assert!(bodies(&mut engine, START).is_empty());
    // Also if the node has failed: the storage system does not depend on it.
    engine.fail_node("h-0", START);
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], true, json!({"attached": true})), START);
    assert_eq!(bodies(&mut engine, START)[0]["metadata"]["finalizers"], json!([]));
}

#[test]
fn attach_that_is_refused_with_a_conflict_is_repeated_without_an_event() {
    let mut engine = idle_engine(1, false);
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], false, json!({})), START);
    let (writer, _) = sent(&mut engine, START).remove(0);
    engine.on_response(&writer, &failed(ErrorReason::Conflict), START);
    assert!(bodies(&mut engine, START).is_empty(), "it backs off");
    let later = crate::clock::after(START, std::time::Duration::from_secs(60));
    engine.tick(later);
    let repeated = bodies(&mut engine, later);
    assert!(repeated.iter().any(|body| body["status"]["attached"] == true), "{repeated:?}");
}

#[test]
fn annotations_of_a_volume_delay_attaches_and_let_them_fail() {
    let mut engine = idle_engine(1, false);
    let annotations = json!({"hollow.keleustes.io/attach-delay": "2s", "hollow.keleustes.io/attach-error": "no disk",
        "hollow.keleustes.io/detach-error": "busy"});
    engine.observe_volume(&volume_with(annotations), START);
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], false, json!({})), START);
    assert!(bodies(&mut engine, START).is_empty(), "delayed");
    let later = crate::clock::after(START, std::time::Duration::from_secs(2));
    engine.tick(later);
    let failed = &bodies(&mut engine, later)[0]["status"];
    assert_eq!((&failed["attached"], &failed["attachError"]["message"]), (&json!(false), &json!("no disk")));
    let status = json!({"attachError": {"message": "no disk"}});
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], false, status), later);
    assert!(bodies(&mut engine, later).is_empty(), "it is reported");
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], true, json!({})), later);
    assert_eq!(bodies(&mut engine, later)[0]["status"]["detachError"]["message"], "busy");
    // Without the annotations it succeeds at once.
    engine.observe_volume(&volume_with(json!({})), later);
    engine.observe_attachment(&attachment("h-0", &[FINALIZER], true, json!({})), later);
    assert_eq!(bodies(&mut engine, later)[0]["metadata"]["finalizers"], json!([]));
}

#[test]
fn pod_starts_when_its_volumes_are_attached() {
    let mut engine = idle_engine(1, false);
    engine.observe_volume(&volume_with(json!({})), START);
    let mut user = pod("p", "h-0");
    user.claims = claims(&["data"]);
    engine.observe_pod(user, START);
    let later = crate::clock::after(START, std::time::Duration::from_secs(60));
    engine.tick(later);
    assert_eq!(engine.stats().running, 0, "it waits");
    let node = json!({"metadata": {"name": "h-0", "uid": "u"},
        "status": {"volumesAttached": [{"name": "kubernetes.io/csi/d^7", "devicePath": ""}]}});
    engine.observe_node(&serde_json::from_str(&node.to_string()).unwrap(), later);
    engine.tick(later);
    assert_eq!(engine.stats().running, 1);
}

#[test]
fn pod_does_not_wait_for_volumes_of_a_driver_that_attaches_nothing() {
    let driver = |attach_required: Value| -> CsiDriver {
        let driver = json!({"metadata": {"name": "d"}, "spec": {"attachRequired": attach_required}});
        serde_json::from_str(&driver.to_string()).unwrap()
    };
    // The Lease is renewed first.
    let in_use = |engine: &mut Engine, now| {
        let all = [bodies(engine, now), bodies(engine, now)].concat();
        let status = all.into_iter().rfind(|body| body["status"]["volumesInUse"].is_array());
        status.map(|body| body["status"]["volumesInUse"].clone())
    };
    let name = json!(["kubernetes.io/csi/d^7"]);
    let later = crate::clock::after(START, std::time::Duration::from_secs(60));
    for (attach_required, waits) in [(json!(false), false), (json!(true), true), (Value::Null, true)] {
        let mut engine = idle_engine(1, false);
        engine.replace_csi_drivers(&[driver(attach_required.clone())], START);
        engine.observe_volume(&volume_with(json!({})), START);
        let mut user = pod("p", "h-0");
        user.claims = claims(&["data"]);
        engine.observe_pod(user, START);
        assert_eq!(in_use(&mut engine, START).as_ref(), waits.then_some(&name), "{attach_required}");
        engine.tick(later);
        assert_eq!(engine.stats().running, usize::from(!waits), "{attach_required}");
        if waits {
            // A driver object that comes later ends the wait, and what is not attached is not in use.
            engine.observe_csi_driver(&driver(json!(false)), later);
            assert_eq!(in_use(&mut engine, later), Some(json!([])));
            engine.tick(later);
            assert_eq!(engine.stats().running, 1, "{attach_required}");
            engine.forget_csi_driver(&"d".into(), later);
            assert_eq!(in_use(&mut engine, later), Some(name.clone()));
        }
    }
}

fn value<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn claim(name: &str, class: &str, with: Value) -> PersistentVolumeClaim {
    let (annotations, volume, phase) = (&with["annotations"], &with["volume"], &with["phase"]);
    value(
        json!({"metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"), "annotations": annotations},
        "spec": {"storageClassName": class, "volumeName": volume.as_str().unwrap_or_default()},
        "status": {"phase": phase.as_str().unwrap_or("Pending")}}),
    )
}

fn bound(name: &str) -> PersistentVolumeClaim {
    claim(name, "later", json!({"volume": "pv", "phase": "Bound"}))
}

/// Watches claims, of which there are none yet, and the class `later` with delayed binding.
fn engine_with_claims(scheduler: bool) -> Engine {
    let mut engine = idle_engine(1, scheduler);
    engine.watch_claims();
    engine.replace_claims(Vec::new(), START);
    let class = json!({"metadata": {"name": "later"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"});
    engine.replace_classes(vec![value(class)], START);
    engine
}

#[test]
fn pod_of_a_node_waits_until_its_claim_is_bound() {
    let mut engine = engine_with_claims(false);
    let mut user = pod("p", "h-0");
    user.claims = claims(&["data"]);
    engine.observe_pod(user, START);
    let first = bodies(&mut engine, START);
    let waiting = &first[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
    assert_eq!((first.len(), waiting), (1, &json!("ContainerCreating")));
    for (seconds, claim) in
        [(10.0, None), (20.0, Some(claim("data", "later", json!({})))), (30.0, Some(bound("other")))]
    {
        if let Some(claim) = claim {
            engine.observe_claim(claim, at(seconds));
        }
        engine.tick(at(seconds));
        assert_eq!(engine.stats().running, 0, "{seconds}");
    }
    engine.observe_claim(bound("data"), at(40.0));
    engine.tick(at(40.0));
    assert_eq!(engine.stats().running, 1);
    engine.forget_claim(&Key::namespaced("n", "data"), at(50.0));
    engine.tick(at(50.0));
    assert_eq!(engine.stats().running, 1, "a running pod keeps its volume");
}

#[test]
fn delayed_claim_is_annotated_with_the_node_and_the_pod_is_bound_after_it() {
    let mut engine = engine_with_claims(true);
    engine.observe_claim(claim("data", "later", json!({})), START);
    let mut user = pod("p", "");
    user.claims = claims(&["data"]);
    engine.observe_pod(user, START);
    assert_eq!(send_all(&mut engine, START), ["PATCH /api/v1/namespaces/n/persistentvolumeclaims/data"]);
    let selected = json!({"annotations": {"volume.kubernetes.io/selected-node": "h-0"}});
    engine.observe_claim(claim("data", "later", selected.clone()), START);
    assert!(send_all(&mut engine, START).is_empty(), "the volume is being provisioned");

    // The provisioner gives up: the pod is scheduled again.
    engine.observe_claim(claim("data", "later", json!({})), START);
    assert_eq!(send_all(&mut engine, START), ["PATCH /api/v1/namespaces/n/persistentvolumeclaims/data"]);
    engine.observe_claim(claim("data", "later", selected), START);
    assert!(send_all(&mut engine, START).is_empty());
    engine.observe_claim(bound("data"), START);
    assert_eq!(send_all(&mut engine, START), ["POST /api/v1/namespaces/n/pods/p/binding"]);
}

#[test]
fn nothing_is_scheduled_before_claims_and_classes_are_known() {
    let mut engine = idle_engine(1, true);
    engine.watch_claims();
    engine.observe_pod(pod("p", ""), START);
    assert!(send_all(&mut engine, START).is_empty());
    engine.replace_claims(Vec::new(), START);
    assert!(send_all(&mut engine, START).is_empty());
    engine.replace_classes(Vec::new(), START);
    assert_eq!(send_all(&mut engine, START), ["POST /api/v1/namespaces/n/pods/p/binding"]);
}

fn config_map(namespace: &str, name: &str, entry: &str) -> ConfigMap {
    value(json!({"metadata": {"name": name, "namespace": namespace}, "data": {entry: "v"}}))
}

/// The messages and counts of the events that are written now.
fn events(engine: &mut Engine, now: Timestamp) -> Vec<(String, u64)> {
    engine.tick(now);
    let written = bodies(engine, now).into_iter().filter(|body| body["count"].is_u64());
    written
        .map(|body| {
            let message = body["message"].as_str().unwrap_or_default().to_owned();
            (message, body["count"].as_u64().unwrap_or_default())
        })
        .collect()
}

#[test]
fn pod_waits_for_its_configs_and_events_say_so() {
    let mut engine = idle_engine(1, false);
    engine.watch_mounts();
    engine.replace_config_maps(vec![config_map("n", "settings", "other")], START);
    let user = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"nodeName": "h-0", "containers": [{"name": "c"}],
        "volumes": [{"name": "a", "configMap": {"name": "settings", "items": [{"key": "k"}]}}, {"name": "b", "secret": {"secretName": "password"}},
            {"name": "d", "secret": {"secretName": "none", "optional": true}}]}});
    engine.observe_pod(value(user), START);
    assert_eq!(events(&mut engine, START), [], "Secrets are not known yet");
    engine.replace_secrets(Vec::new(), START);
    let problem =
        |volume: &str, text: &str| format!("MountVolume.SetUp failed for volume {volume:?} : {text}");
    let entry = problem("a", "configmap references non-existent config key: k");
    assert_eq!(events(&mut engine, START), [], "it may exist already");
    assert_eq!(events(&mut engine, at(0.6)), [(entry, 1)]);
    assert_eq!(events(&mut engine, at(1.0)), []);
    assert_eq!(events(&mut engine, at(1.2)), [(String::new(), 2)], "counted");
    assert_eq!(events(&mut engine, at(1.8)), [], "less and less often");

    let set = |engine: &mut Engine, object: ConfigMap, now| {
        engine.observe_config(ConfigKind::ConfigMap, object.meta.key, object.entries, now);
    };
    set(&mut engine, config_map("other", "settings", "k"), at(1.9));
    assert_eq!(events(&mut engine, at(2.3)), [(String::new(), 3)], "another namespace");
    set(&mut engine, config_map("n", "settings", "k"), at(2.4));
    assert_eq!(events(&mut engine, at(3.0)), [(problem("b", r#"secret "password" not found"#), 1)]);
    let secret = Key::namespaced("n", "password");
    engine.observe_config(ConfigKind::Secret, secret.clone(), Box::default(), at(3.1));
    assert_eq!(events(&mut engine, at(4.0)), []);
    assert_eq!(engine.stats().running, 1);
    engine.forget_config(ConfigKind::Secret, &secret);
    assert_eq!(events(&mut engine, at(300.0)), [], "a running pod keeps its files");
}

#[test]
fn event_names_the_claims_that_cannot_be_mounted() {
    let mut engine = engine_with_claims(false);
    engine.watch_mounts();
    engine.observe_claim(claim("later", "later", json!({})), START);
    let mut user = pod("p", "h-0");
    user.claims = claims(&["data", "later"]);
    engine.observe_pod(user, START);
    let message = "Unable to attach or mount volumes: unmounted volumes=[v v], unattached volumes=[], failed to process volumes=[v v]: \
        error processing PVC n/data: failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found; \
        error processing PVC n/later: PVC is not bound";
    assert_eq!(events(&mut engine, at(0.5)), [(message.to_owned(), 1)]);
    engine.forget_pod(&Key::namespaced("n", "p"), at(1.0));
    assert_eq!(events(&mut engine, at(60.0)), [], "the pod is gone");
}
