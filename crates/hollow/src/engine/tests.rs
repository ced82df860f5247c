//! What is sent, in which order and how often, given what was seen and answered.

use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{Call, WriteResponse};
use keleustes_objects::{ApiError, ErrorReason, InternedStr, Key, ResourceVersion};
use serde_json::{Value, json};

use super::{Engine, Who};
use crate::clock::after;
use crate::kubelet::PodDefaults;
use crate::machine::Build;
use crate::seen::{Attachment, Node, Pod, Taint, Volume};

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn engine(nodes: usize, scheduler: bool) -> Engine {
    let build = Build {
        zones: 2,
        region: "r".to_owned(),
        cpu: "4".to_owned(),
        memory: "8Gi".to_owned(),
        pods: 110,
        extended: vec![("example.com/gpu".to_owned(), "1".to_owned())],
        lease_every: Duration::from_secs(10),
        lease_duration: Duration::from_secs(40),
        status_every: Duration::from_secs(300),
        removes_not_ready_taint: true,
    };
    let pod_defaults = PodDefaults {
        start_delay: Duration::from_millis(200),
        start_spread: Duration::ZERO,
        batch_run_for: None,
        termination_delay: Duration::ZERO,
    };
    Engine::new((0..nodes).map(|index| format!("h-{index}")), build, pod_defaults, scheduler, 7, START)
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

/// Everything that is to be sent now, as it would be shown.
fn sent(engine: &mut Engine, now: Timestamp) -> Vec<(Who, Call)> {
    std::iter::from_fn(|| engine.next_call(now)).collect()
}

fn shown(calls: &[(Who, Call)]) -> Vec<String> {
    calls.iter().map(|(_, call)| call.to_string()).collect()
}

fn done() -> Result<WriteResponse, ApiError> {
    Ok(WriteResponse {
        resource_version: ResourceVersion::from("10"),
        is_object: true,
        ..WriteResponse::default()
    })
}

fn refused(reason: ErrorReason) -> Result<WriteResponse, ApiError> {
    Err(ApiError::transport(reason, "no"))
}

/// Sends and answers everything with success until nothing more is wanted.
fn settle(engine: &mut Engine, now: Timestamp) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        engine.tick(now);
        let calls = sent(engine, now);
        if calls.is_empty() {
            return all;
        }
        all.extend(shown(&calls));
        for (who, _) in calls {
            engine.answered(&who, &done(), now);
        }
    }
}

/// An engine whose nodes are registered and have nothing to say for a while.
fn settled_engine(nodes: usize, scheduler: bool) -> Engine {
    let mut engine = engine(nodes, scheduler);
    settle(&mut engine, START);
    engine.replace_nodes(
        &(0..nodes).map(|index| node(&format!("h-{index}"), "True")).collect::<Vec<_>>(),
        START,
    );
    engine.replace_pods(Vec::new(), START);
    settle(&mut engine, START);
    engine
}

const STATUS: &str = "PATCH /api/v1/namespaces/n/pods/p/status";

fn body(call: &Call) -> Value {
    serde_json::from_slice(&call.body).unwrap()
}

#[test]
fn a_node_registers_then_holds_a_lease_then_stays_silent_until_it_is_due() {
    let mut engine = engine(1, false);
    let calls = sent(&mut engine, START);
    assert_eq!(shown(&calls), ["POST /api/v1/nodes"]);
    let object = body(&calls[0].1);
    assert_eq!(object["metadata"]["labels"]["topology.kubernetes.io/zone"], "r-a");
    assert_eq!(object["status"]["allocatable"]["example.com/gpu"], "1");
    engine.answered(&calls[0].0, &done(), START);
    assert_eq!(sent(&mut engine, START), [], "the lease needs the uid");
    engine.observe_node(&node("h-0", "True"), START);
    let calls = sent(&mut engine, START);
    assert_eq!(shown(&calls), ["POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"]);
    assert_eq!(body(&calls[0].1)["metadata"]["ownerReferences"][0]["uid"], "uid-h-0");
    engine.answered(&calls[0].0, &done(), START);
    assert_eq!(sent(&mut engine, START), []);

    // For an hour: a renewal every 10 seconds and a little, a heartbeat every five minutes.
    let (mut renewals, mut heartbeats) = (0, 0);
    while let Some(due) = engine.due().filter(|due| *due < at(3600.0)) {
        for line in settle(&mut engine, due) {
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
fn renewals_of_many_nodes_spread_over_time() {
    let mut engine = settled_engine(100, false);
    let mut most = 0;
    for tenth in 1..100 {
        let now = at(f64::from(tenth) / 10.0);
        most = most.max(settle(&mut engine, now).len());
    }
    assert!(most <= 6, "{most} of 100 nodes in a tenth of a second");
}

#[test]
fn what_is_there_already_is_taken_over() {
    let mut engine = engine(1, false);
    let who = sent(&mut engine, START).remove(0).0;
    engine.answered(&who, &refused(ErrorReason::AlreadyExists), START);
    engine.observe_node(&node("h-0", "True"), START);
    let calls = sent(&mut engine, START);
    assert_eq!(shown(&calls), ["POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"]);
    engine.answered(&who, &refused(ErrorReason::AlreadyExists), START);
    let mut rest = Vec::new();
    for _ in 0..2 {
        rest.extend(shown(&sent(&mut engine, START)));
        engine.answered(&who, &done(), START);
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
fn a_pod_is_written_once_however_often_it_changed_meanwhile() {
    let mut engine = settled_engine(1, false);
    engine.observe_pod(pod("p", "h-0"), START);
    engine.tick(at(0.3));
    let calls = sent(&mut engine, at(0.3));
    assert_eq!(shown(&calls), [STATUS]);
    // While that is under way, it is deleted and ends.
    let mut deleted = pod("p", "h-0");
    deleted.meta.deletion_timestamp = Some(crate::clock::stamp(at(1.0)));
    engine.observe_pod(deleted, at(1.0));
    assert_eq!(sent(&mut engine, at(1.0)), []);
    engine.answered(&calls[0].0, &done(), at(1.1));
    let calls = sent(&mut engine, at(1.1));
    assert_eq!(shown(&calls), [STATUS]);
    assert_eq!(body(&calls[0].1)["status"]["phase"], "Succeeded");
    engine.answered(&calls[0].0, &done(), at(1.2));
    let calls = sent(&mut engine, at(1.2));
    assert_eq!(shown(&calls), ["DELETE /api/v1/namespaces/n/pods/p"]);
    assert_eq!(body(&calls[0].1)["gracePeriodSeconds"], 0);
    assert_eq!(body(&calls[0].1)["preconditions"]["uid"], "uid-p");
    engine.answered(&calls[0].0, &done(), at(1.3));
    engine.forget_pod(&Key::namespaced("n", "p"), at(1.3));
    assert_eq!((settle(&mut engine, at(1.3)).len(), engine.tally().pods), (0, 0));
}

#[test]
fn failures_are_retried_ever_later_and_missing_pods_are_not() {
    let mut engine = settled_engine(1, false);
    engine.fail_node("h-0", START);
    engine.recover_node("h-0", START);
    settle(&mut engine, START);
    engine.observe_pod(pod("p", "h-0"), START);
    let mut now = at(0.3);
    let mut waits = Vec::new();
    for _ in 0..8 {
        engine.tick(now);
        let calls = sent(&mut engine, now);
        let (who, _) = calls.iter().find(|(_, call)| call.to_string() == STATUS).unwrap();
        engine.answered(who, &refused(ErrorReason::Unavailable), now);
        let patience = engine.outbox.patience(who).unwrap();
        waits.push(crate::clock::since(patience, now).as_secs_f64());
        now = patience;
    }
    for (wait, base) in waits.iter().zip([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]) {
        assert!((base..=base * 1.5).contains(wait), "{waits:?}");
    }
    engine.tick(now);
    let calls = sent(&mut engine, now);
    let (who, _) = calls.iter().find(|(_, call)| call.to_string() == STATUS).unwrap();
    engine.answered(who, &refused(ErrorReason::NotFound), now);
    assert!(!shown(&sent(&mut engine, at(3600.0))).contains(&STATUS.to_owned()));
}

#[test]
fn a_dead_node_and_its_pods_say_nothing_until_it_recovers() {
    let mut engine = settled_engine(2, false);
    engine.observe_pod(pod("p", "h-0"), START);
    assert!(engine.fail_node("h-0", START));
    assert!(!engine.fail_node("unknown", START));
    engine.observe_node(&node("h-0", "Unknown"), at(40.0));
    let told = settle(&mut engine, at(400.0));
    assert!(!told.is_empty() && told.iter().all(|line| line.contains("h-1")), "{told:?}");

    assert!(engine.recover_node("h-0", at(401.0)));
    let told = settle(&mut engine, at(401.0));
    let wanted = [
        "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/h-0",
        STATUS,
        "PATCH /api/v1/nodes/h-0/status",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn an_annotation_fails_a_node_and_its_removal_recovers_it() {
    let mut engine = settled_engine(1, false);
    let mut failed = node("h-0", "True");
    failed.wants_to_fail = true;
    engine.observe_node(&failed, START);
    assert_eq!(settle(&mut engine, at(100.0)), [""; 0]);
    engine.observe_node(&node("h-0", "Unknown"), at(101.0));
    assert_eq!(settle(&mut engine, at(101.0)).len(), 2);
}

#[test]
fn a_deleted_node_comes_back_only_when_told_to() {
    let mut engine = settled_engine(1, false);
    engine.forget_node(&InternedStr::from("h-0"), START);
    assert_eq!(settle(&mut engine, at(1000.0)), [""; 0]);
    engine.recover_node("h-0", at(1000.0));
    assert_eq!(settle(&mut engine, at(1000.0)), ["POST /api/v1/nodes"]);
}

#[test]
fn a_node_that_was_called_unready_says_otherwise() {
    let mut engine = settled_engine(1, false);
    engine.observe_node(&node("h-0", "Unknown"), at(0.0));
    assert_eq!(settle(&mut engine, at(0.0)), ["PATCH /api/v1/nodes/h-0/status"]);
}

#[test]
fn the_taint_of_new_nodes_is_taken_off_and_no_other() {
    let mut engine = settled_engine(1, false);
    let taint = |key: &str| Taint { key: InternedStr::from(key), ..Taint::default() };
    let mut tainted = node("h-0", "True");
    tainted.meta.resource_version = ResourceVersion::from("4");
    tainted.taints = Box::new([taint("a"), taint("node.kubernetes.io/not-ready")]);
    engine.observe_node(&tainted, START);
    let (who, call) = sent(&mut engine, START).remove(0);
    assert_eq!(call.to_string(), "PATCH /api/v1/nodes/h-0");
    let kept = json!([{"key": "a", "effect": "NoSchedule"}]);
    assert_eq!(body(&call), json!({"metadata": {"resourceVersion": "4"}, "spec": {"taints": kept}}));
    // Refused, it waits until the node is seen again, which must have changed.
    engine.answered(&who, &refused(ErrorReason::Conflict), START);
    assert!(settle(&mut engine, START).is_empty());
    engine.observe_node(&tainted, START);
    assert_eq!(settle(&mut engine, START).len(), 1);
}

#[test]
fn waiting_pods_are_bound_or_told_why_not_once() {
    let mut engine = settled_engine(1, true);
    engine.observe_pod(pod("p", ""), START);
    let mut big = pod("q", "");
    let mut template = (*big.template).clone();
    template.requests.cpu = 9000;
    big.template = crate::seen::TemplateRef::new(template);
    engine.observe_pod(big.clone(), START);
    let told = settle(&mut engine, START);
    assert_eq!(
        told,
        ["POST /api/v1/namespaces/n/pods/p/binding", "PATCH /api/v1/namespaces/n/pods/q/status"]
    );
    // The same verdict about a pod that says so already is not written again.
    big.reported = serde_json::from_value(json!({"conditions": [{"type": "PodScheduled", "status": "False",
        "message": "0/1 nodes are available: 1 Insufficient cpu."}]}))
    .unwrap();
    engine.observe_pod(big, at(1.0));
    let mut changed = node("h-0", "True");
    changed.unschedulable = true;
    engine.observe_node(&changed, at(2.0));
    changed.unschedulable = false;
    engine.observe_node(&changed, at(2.0));
    assert!(settle(&mut engine, at(2.5)).iter().all(|line| !line.contains("pods")));
}

#[test]
fn a_refused_binding_is_thought_over() {
    let mut engine = settled_engine(1, true);
    engine.observe_pod(pod("p", ""), START);
    engine.tick(START);
    let (who, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["target"]["name"], "h-0");
    engine.answered(&who, &refused(ErrorReason::Conflict), START);
    assert_eq!(engine.tally().waiting, 1);
    let told = settle(&mut engine, at(1.0));
    assert!(told.contains(&"POST /api/v1/namespaces/n/pods/p/binding".to_owned()), "{told:?}");
}

#[test]
fn nothing_is_scheduled_before_nodes_and_pods_are_known() {
    let mut engine = engine(2, true);
    engine.observe_pod(pod("p", ""), START);
    settle(&mut engine, START);
    engine.replace_nodes(&[node("h-0", "True")], START);
    engine.replace_pods(vec![pod("p", "")], START);
    engine.tick(START);
    assert_eq!(engine.tally().waiting, 1, "a node is still missing");
    engine.observe_node(&node("h-1", "True"), START);
    assert!(settle(&mut engine, START).contains(&"POST /api/v1/namespaces/n/pods/p/binding".to_owned()));
}

#[test]
fn what_a_new_list_lacks_is_gone_and_another_life_is_another_pod() {
    let mut engine = settled_engine(1, false);
    engine.observe_pod(pod("p", "h-0"), START);
    engine.observe_pod(pod("q", "h-0"), START);
    engine.replace_pods(vec![pod("q", "h-0")], START);
    assert_eq!(engine.tally().pods, 1);
    engine.tick(at(0.3));
    assert_eq!(engine.tally().running, 1);
    let mut reborn = pod("q", "h-0");
    reborn.meta.uid = keleustes_objects::Uid::from("another");
    engine.observe_pod(reborn, at(0.4));
    assert_eq!(engine.tally().running, 0);
}

#[test]
fn pods_have_addresses_of_their_own_from_the_range_of_the_node() {
    let mut engine = settled_engine(1, false);
    let mut ranged = node("h-0", "True");
    ranged.pod_cidr = InternedStr::from("192.168.4.0/29");
    engine.observe_node(&ranged, START);
    // Six hosts fit; the seventh gets none until another has ended.
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
fn nodes_report_the_volumes_of_their_pods_and_attachments_are_done() {
    let mut engine = settled_engine(1, false);
    let mut user = pod("p", "h-0");
    user.claims = Box::new(["data".into()]);
    engine.observe_pod(user, START);
    assert!(settle(&mut engine, START).is_empty(), "the claim is not bound yet");
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "n", "name": "data"},
        "csi": {"driver": "d.example.com", "volumeHandle": "7"}}});
    let volume: Volume = serde_json::from_str(&volume.to_string()).unwrap();
    engine.observe_volume(&volume, START);
    let (who, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["status"]["volumesInUse"], json!(["kubernetes.io/csi/d.example.com^7"]));
    engine.answered(&who, &done(), START);
    engine.observe_volume(&volume, START);
    assert!(settle(&mut engine, START).is_empty(), "no news");

    let attachment = |node: &str, attached: bool| -> Attachment {
        let value =
            json!({"metadata": {"name": "va"}, "spec": {"nodeName": node}, "status": {"attached": attached}});
        serde_json::from_str(&value.to_string()).unwrap()
    };
    engine.observe_attachment(&attachment("elsewhere", false), START);
    engine.observe_attachment(&attachment("h-0", true), START);
    assert!(settle(&mut engine, START).is_empty());
    engine.observe_attachment(&attachment("h-0", false), START);
    assert_eq!(settle(&mut engine, START), ["PATCH /apis/storage.k8s.io/v1/volumeattachments/va/status"]);

    engine.forget_pod(&Key::namespaced("n", "p"), START);
    let (_, call) = sent(&mut engine, START).remove(0);
    assert_eq!(body(&call)["status"]["volumesInUse"], json!([]));
}
