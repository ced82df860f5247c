//! Keeps a node's `NoSchedule` taints in sync with its conditions, and its deprecated beta labels with the
//! stable ones.

use keleustes_objects::taint_keys::{
    DISK_PRESSURE, MEMORY_PRESSURE, NETWORK_UNAVAILABLE, NOT_READY, PID_PRESSURE, UNREACHABLE, UNSCHEDULABLE,
};
use keleustes_objects::{ErrorReason, FALSE, Key, NO_SCHEDULE, Node, Object as _, TRUE, UNKNOWN};
use keleustes_plan::{Change, Effects, Loop, OnFailure, PatchKind, Plan, View, Write};
use serde_json::{Map, json};

use super::taints::{patch, updated_taints};

/// The loop.
pub(super) fn the_loop() -> Loop {
    Loop::deciding("node_lifecycle_controller", decide)
        .keyed_by::<Node>()
        .enqueue_on::<Node>(node_changed)
        .workers(8)
}

fn node_changed(change: &Change<Node>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_deletion() {
        enqueue.add(change.latest().key().clone());
    }
}

/// Condition type, status and the taint key that belongs to it. No other taint is ever changed here.
const TAINTS_BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", FALSE, NOT_READY),
    ("Ready", UNKNOWN, UNREACHABLE),
    ("MemoryPressure", TRUE, MEMORY_PRESSURE),
    ("DiskPressure", TRUE, DISK_PRESSURE),
    ("PIDPressure", TRUE, PID_PRESSURE),
    ("NetworkUnavailable", TRUE, NETWORK_UNAVAILABLE),
];

/// Stable labels and their deprecated names.
const DEPRECATED_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(node) = view.get::<Node>(item) else { return Plan::none() };
    let mut plan = Plan::none();
    plan_taints(node, view, &mut plan);
    plan_labels(node, &mut plan);
    plan
}

fn plan_taints(node: &Node, view: &View<'_>, plan: &mut Plan) {
    let has_condition = |name: &str, status: &str| {
        node.conditions.iter().any(|condition| condition.r#type == name && condition.status == status)
    };
    let wanted_taints =
        TAINTS_BY_CONDITION.iter().map(|(name, status, key)| (*key, has_condition(name, status)));
    let wanted_taints = wanted_taints.chain([(UNSCHEDULABLE, node.unschedulable)]);
    let (mut missing, mut obsolete) = (Vec::new(), Vec::new());
    for (key, is_wanted) in wanted_taints {
        match (is_wanted, node.has_taint(key, NO_SCHEDULE)) {
            (true, false) => missing.push(key),
            (false, true) => obsolete.push(key),
            _ => {}
        }
    }
    if missing.is_empty() && obsolete.is_empty() {
        return;
    }
    let taints = updated_taints(&node.taints, NO_SCHEDULE, &missing, &obsolete, view.now().wall);
    let write =
        patch(node, &node.meta.resource_version, &taints, "its conditions require other NoSchedule taints");
    // A conflict means that the cache is stale; the watch event of the newer state enqueues the node again.
    plan.push(
        write
            .ignoring_errors(&[ErrorReason::Conflict, ErrorReason::NotFound])
            .on_failure(OnFailure::ContinueAndRetry),
    );
}

fn plan_labels(node: &Node, plan: &mut Plan) {
    let mut labels = Map::new();
    for (name, deprecated) in DEPRECATED_LABELS {
        let Some(value) = node.meta.labels.value(name) else { continue };
        if node.meta.labels.value(deprecated) != Some(value) {
            labels.insert(deprecated.to_owned(), json!(value));
        }
    }
    if !labels.is_empty() {
        let write = Write::patch(node, PatchKind::Strategic, json!({"metadata": {"labels": labels}}));
        plan.push(
            write
                .ignoring_errors(&[ErrorReason::NotFound])
                .because("its deprecated OS or architecture label differs from the stable one"),
        );
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::ApiError;
    use keleustes_plan::rehearsal::RehearsalCluster;
    use keleustes_plan::rehearsal::is_retried_because;
    use serde_json::Value;

    use super::*;

    fn node(spec: &Value, conditions: &Value, labels: &Value) -> Value {
        json!({
            "metadata": {"name": "n", "uid": "n", "resourceVersion": "1", "labels": labels},
            "spec": spec,
            "status": {"conditions": conditions},
        })
    }

    fn check(node: Value) -> String {
        let a_loop = the_loop();
        RehearsalCluster::of(&a_loop).with::<Node>(node).reconcile(&a_loop, Key::cluster("n"))
    }

    /// The taint keys after the decided patch.
    fn taints(spec: &Value, conditions: &Value) -> Option<Vec<String>> {
        let transcript = check(node(spec, conditions, &json!({})));
        let body = transcript
            .strip_prefix("patch nodes n because its conditions require other NoSchedule taints: ")?;
        let body: Value = serde_json::from_str(body.trim_end()).unwrap();
        let key = |taint: &Value| taint["key"].as_str().unwrap().replace("node.kubernetes.io/", "");
        Some(
            body["spec"]["taints"]
                .as_array()
                .map(|taints| taints.iter().map(key).collect())
                .unwrap_or_default(),
        )
    }

    fn has_condition(name: &str, status: &str) -> Value {
        json!([{"type": name, "status": status}])
    }

    /// Proves NLC-8.
    #[test]
    fn every_node_update_enqueues_the_node() {
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers), ("node_lifecycle_controller", 8));
        let mut cluster = RehearsalCluster::of(&a_loop);
        let plain = node(&json!({}), &json!([]), &json!({}));
        assert_eq!(cluster.put::<Node>(&a_loop, plain.clone()), ["n"]);
        let mut newer = plain;
        newer["metadata"]["resourceVersion"] = json!("2");
        assert_eq!(cluster.put::<Node>(&a_loop, newer), ["n"]);
        assert!(cluster.take::<Node>(&a_loop, &Key::cluster("n")).is_empty());
        assert_eq!(cluster.reconcile(&a_loop, Key::cluster("n")), "");
    }

    /// Proves NLC-49, NLC-50, NLC-51.
    #[test]
    fn conditions_require_taints() {
        for (name, status, key) in [
            ("Ready", "False", "not-ready"),
            ("Ready", "Unknown", "unreachable"),
            ("MemoryPressure", "True", "memory-pressure"),
            ("DiskPressure", "True", "disk-pressure"),
            ("PIDPressure", "True", "pid-pressure"),
            ("NetworkUnavailable", "True", "network-unavailable"),
        ] {
            assert_eq!(taints(&json!({}), &has_condition(name, status)), Some(vec![key.to_owned()]));
        }
        for (name, status) in
            [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "Unknown"), ("Other", "True")]
        {
            assert_eq!(taints(&json!({}), &has_condition(name, status)), None);
        }
        assert_eq!(
            taints(&json!({"unschedulable": true}), &json!([])),
            Some(vec!["unschedulable".to_owned()])
        );
    }

    /// Proves NLC-52, NLC-67, NLC-92.
    #[test]
    fn missing_taints_are_added_obsolete_ones_removed_and_others_kept() {
        let taint =
            |key: &str, effect: &str| json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect});
        let spec = json!({"taints": [
            taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute"), taint("other", "NoSchedule"),
            taint("memory-pressure", "PreferNoSchedule"),
        ]});
        let transcript = check(node(&spec, &has_condition("Ready", "Unknown"), &json!({})));
        assert_eq!(
            transcript,
            "patch nodes n because its conditions require other NoSchedule taints: {\"metadata\":{\"resourceVersion\":\"1\"},\
             \"spec\":{\"taints\":[{\"effect\":\"NoExecute\",\"key\":\"node.kubernetes.io/not-ready\"},\
             {\"effect\":\"NoSchedule\",\"key\":\"node.kubernetes.io/other\"},\
             {\"effect\":\"PreferNoSchedule\",\"key\":\"node.kubernetes.io/memory-pressure\"},\
             {\"effect\":\"NoSchedule\",\"key\":\"node.kubernetes.io/unreachable\",\
             \"timeAdded\":\"2027-01-15T08:00:00Z\"}]}}\n"
        );
        assert_eq!(taints(&spec, &has_condition("Ready", "False")), None);
        assert_eq!(
            taints(&json!({"taints": [taint("not-ready", "NoSchedule")]}), &has_condition("Ready", "True")),
            Some(vec![])
        );
    }

    /// Proves NLC-53, NLC-68.
    #[test]
    fn deprecated_labels_follow_the_stable_ones() {
        let labels = |labels: Value| check(node(&json!({}), &json!([]), &labels));
        let (os, old_os) = ("kubernetes.io/os", "beta.kubernetes.io/os");
        let (arch, old_arch) = ("kubernetes.io/arch", "beta.kubernetes.io/arch");
        assert_eq!(
            labels(json!({os: "linux", arch: "arm64", old_arch: "amd64"})),
            "patch nodes n because its deprecated OS or architecture label differs from the stable one: {\"metadata\":{\"labels\":\
             {\"beta.kubernetes.io/arch\":\"arm64\",\"beta.kubernetes.io/os\":\"linux\"}}}\n"
        );
        assert_eq!(labels(json!({os: "linux", old_os: "linux"})), "");
        assert_eq!(labels(json!({old_os: "linux", old_arch: "amd64"})), "");
        assert_eq!(labels(json!({})), "");
    }

    /// Proves NLC-54, NLC-65.
    #[test]
    fn conflict_waits_for_the_next_watch_event_and_other_errors_are_retried() {
        let reconcile_failing = |reason: ErrorReason| {
            let a_loop = the_loop();
            let cluster = RehearsalCluster::of(&a_loop).with::<Node>(node(
                &json!({"unschedulable": true}),
                &json!([]),
                &json!({"kubernetes.io/os": "linux"}),
            ));
            let failure = ApiError::transport(reason, "refused");
            cluster
                .failing::<Node>("patch", &Key::cluster("n"), failure)
                .reconcile(&a_loop, Key::cluster("n"))
        };
        let transcript = reconcile_failing(ErrorReason::Unavailable);
        assert!(
            is_retried_because(&transcript, "refused") && transcript.matches("FAILED: refused").count() == 2,
            "{transcript}"
        );
        let transcript = reconcile_failing(ErrorReason::NotFound);
        assert_eq!(transcript.matches("(ignored: refused)").count(), 2, "{transcript}");
        let transcript = reconcile_failing(ErrorReason::Conflict);
        assert!(
            transcript
                .starts_with("patch nodes n because its conditions require other NoSchedule taints (ignored")
        );
    }
}
