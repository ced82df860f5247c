//! Keeps `NoSchedule` taints and the old names of labels in step with what a node says of itself.

use keleustes_objects::taint_keys::{
    DISK_PRESSURE, MEMORY_PRESSURE, NETWORK_UNAVAILABLE, NOT_READY, PID_PRESSURE, UNREACHABLE, UNSCHEDULABLE,
};
use keleustes_objects::{ErrorReason, FALSE, NO_SCHEDULE, Node, Object as _, TRUE, UNKNOWN};
use keleustes_plan::{Change, Enqueue, Item, Loop, OnFailure, PatchKind, Plan, View, Write};
use serde_json::{Map, json};

use super::taints::{changed, patch};

/// The loop.
pub(super) fn the_loop() -> Loop {
    Loop::deciding("node_lifecycle_controller", decide).enqueue_on::<Node>(node_changed).workers(8)
}

fn node_changed(change: &Change<Node>, _: &View<'_>, wakes: &mut Enqueue) {
    if !change.is_deletion() {
        wakes.add(change.latest().key().clone());
    }
}

/// Which condition in which state asks for which taint. No other taint is ever touched here.
const ASKED_FOR: [(&str, &str, &str); 6] = [
    ("Ready", FALSE, NOT_READY),
    ("Ready", UNKNOWN, UNREACHABLE),
    ("MemoryPressure", TRUE, MEMORY_PRESSURE),
    ("DiskPressure", TRUE, DISK_PRESSURE),
    ("PIDPressure", TRUE, PID_PRESSURE),
    ("NetworkUnavailable", TRUE, NETWORK_UNAVAILABLE),
];

/// Labels that have an older name, and the older name.
const RENAMED: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

fn decide(view: &View<'_>, item: &Item) -> Plan {
    let Some(node) = view.get::<Node>(item) else { return Plan::none() };
    let mut plan = Plan::none();
    plan_taints(node, view, &mut plan);
    plan_labels(node, &mut plan);
    plan
}

fn plan_taints(node: &Node, view: &View<'_>, plan: &mut Plan) {
    let says = |name: &str, status: &str| {
        node.conditions.iter().any(|condition| condition.r#type == name && condition.status == status)
    };
    let asked_for = ASKED_FOR.iter().map(|(name, status, key)| (*key, says(name, status)));
    let asked_for = asked_for.chain([(UNSCHEDULABLE, node.unschedulable)]);
    let (mut missing, mut superfluous) = (Vec::new(), Vec::new());
    for (key, is_wanted) in asked_for {
        match (is_wanted, node.has_taint(key, NO_SCHEDULE)) {
            (true, false) => missing.push(key),
            (false, true) => superfluous.push(key),
            _ => {}
        }
    }
    if missing.is_empty() && superfluous.is_empty() {
        return;
    }
    let taints = changed(&node.taints, NO_SCHEDULE, &missing, &superfluous, view.now().wall);
    let write = patch(node, &node.meta.resource_version, &taints, "its conditions ask for other taints");
    // A conflict tells of a state that is not cached yet. When it is, it wakes the node again.
    plan.push(
        write
            .ignoring_errors(&[ErrorReason::Conflict, ErrorReason::NotFound])
            .on_failure(OnFailure::ContinueAndRetry),
    );
}

fn plan_labels(node: &Node, plan: &mut Plan) {
    let mut labels = Map::new();
    for (name, old_name) in RENAMED {
        let Some(value) = node.meta.labels.value(name) else { continue };
        if node.meta.labels.value(old_name) != Some(value) {
            labels.insert(old_name.to_owned(), json!(value));
        }
    }
    if !labels.is_empty() {
        let write = Write::patch(node, PatchKind::Strategic, json!({"metadata": {"labels": labels}}));
        plan.push(
            write
                .ignoring_errors(&[ErrorReason::NotFound])
                .because("labels have their old names beside the new"),
        );
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{ApiError, Key};
    use keleustes_plan::rehearsal::RehearsalCluster;
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

    /// The keys of the taints that are left after what is decided about a node.
    fn taints(spec: &Value, conditions: &Value) -> Option<Vec<String>> {
        let told = check(node(spec, conditions, &json!({})));
        let body = told.strip_prefix("patch nodes n because its conditions ask for other taints: ")?;
        let body: Value = serde_json::from_str(body.trim_end()).unwrap();
        let key = |taint: &Value| taint["key"].as_str().unwrap().replace("node.kubernetes.io/", "");
        Some(
            body["spec"]["taints"]
                .as_array()
                .map(|taints| taints.iter().map(key).collect())
                .unwrap_or_default(),
        )
    }

    fn says(name: &str, status: &str) -> Value {
        json!([{"type": name, "status": status}])
    }

    /// Proves NLC-8.
    #[test]
    fn every_change_of_a_node_wakes_it() {
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers), ("node_lifecycle_controller", 8));
        let mut world = RehearsalCluster::of(&a_loop);
        let plain = node(&json!({}), &json!([]), &json!({}));
        assert_eq!(world.put::<Node>(&a_loop, plain.clone()), ["n"]);
        let mut newer = plain;
        newer["metadata"]["resourceVersion"] = json!("2");
        assert_eq!(world.put::<Node>(&a_loop, newer), ["n"]);
        assert!(world.take::<Node>(&a_loop, &Key::cluster("n")).is_empty());
        assert_eq!(world.reconcile(&a_loop, Key::cluster("n")), "");
    }

    /// Proves NLC-49, NLC-50, NLC-51.
    #[test]
    fn conditions_ask_for_taints() {
        for (name, status, key) in [
            ("Ready", "False", "not-ready"),
            ("Ready", "Unknown", "unreachable"),
            ("MemoryPressure", "True", "memory-pressure"),
            ("DiskPressure", "True", "disk-pressure"),
            ("PIDPressure", "True", "pid-pressure"),
            ("NetworkUnavailable", "True", "network-unavailable"),
        ] {
            assert_eq!(taints(&json!({}), &says(name, status)), Some(vec![key.to_owned()]));
        }
        for (name, status) in
            [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "Unknown"), ("Other", "True")]
        {
            assert_eq!(taints(&json!({}), &says(name, status)), None);
        }
        assert_eq!(
            taints(&json!({"unschedulable": true}), &json!([])),
            Some(vec!["unschedulable".to_owned()])
        );
    }

    /// Proves NLC-52, NLC-67, NLC-92.
    #[test]
    fn what_is_missing_is_added_what_is_superfluous_goes_and_all_else_stays() {
        let taint =
            |key: &str, effect: &str| json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect});
        let spec = json!({"taints": [
            taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute"), taint("other", "NoSchedule"),
            taint("memory-pressure", "PreferNoSchedule"),
        ]});
        let told = check(node(&spec, &says("Ready", "Unknown"), &json!({})));
        assert_eq!(
            told,
            "patch nodes n because its conditions ask for other taints: {\"metadata\":{\"resourceVersion\":\"1\"},\
             \"spec\":{\"taints\":[{\"effect\":\"NoExecute\",\"key\":\"node.kubernetes.io/not-ready\"},\
             {\"effect\":\"NoSchedule\",\"key\":\"node.kubernetes.io/other\"},\
             {\"effect\":\"PreferNoSchedule\",\"key\":\"node.kubernetes.io/memory-pressure\"},\
             {\"effect\":\"NoSchedule\",\"key\":\"node.kubernetes.io/unreachable\",\
             \"timeAdded\":\"2027-01-15T08:00:00Z\"}]}}\n"
        );
        assert_eq!(taints(&spec, &says("Ready", "False")), None);
        assert_eq!(
            taints(&json!({"taints": [taint("not-ready", "NoSchedule")]}), &says("Ready", "True")),
            Some(vec![])
        );
    }

    /// Proves NLC-53, NLC-68.
    #[test]
    fn labels_have_their_old_names_beside_the_new() {
        let labels = |labels: Value| check(node(&json!({}), &json!([]), &labels));
        let (os, old_os) = ("kubernetes.io/os", "beta.kubernetes.io/os");
        let (arch, old_arch) = ("kubernetes.io/arch", "beta.kubernetes.io/arch");
        assert_eq!(
            labels(json!({os: "linux", arch: "arm64", old_arch: "amd64"})),
            "patch nodes n because labels have their old names beside the new: {\"metadata\":{\"labels\":\
             {\"beta.kubernetes.io/arch\":\"arm64\",\"beta.kubernetes.io/os\":\"linux\"}}}\n"
        );
        assert_eq!(labels(json!({os: "linux", old_os: "linux"})), "");
        assert_eq!(labels(json!({old_os: "linux", old_arch: "amd64"})), "");
        assert_eq!(labels(json!({})), "");
    }

    /// Proves NLC-54, NLC-65.
    #[test]
    fn a_conflict_waits_for_the_next_change_and_other_failures_are_tried_again() {
        let refused = |reason: ErrorReason| {
            let a_loop = the_loop();
            let world = RehearsalCluster::of(&a_loop).with::<Node>(node(
                &json!({"unschedulable": true}),
                &json!([]),
                &json!({"kubernetes.io/os": "linux"}),
            ));
            let failure = ApiError::transport(reason, "refused");
            world.failing::<Node>("patch", &Key::cluster("n"), failure).reconcile(&a_loop, Key::cluster("n"))
        };
        let told = refused(ErrorReason::Unavailable);
        assert!(told.ends_with("retry: refused\n") && told.matches("patch nodes").count() == 2, "{told}");
        let told = refused(ErrorReason::NotFound);
        assert_eq!(told.matches("which is fine").count(), 2, "{told}");
        let told = refused(ErrorReason::Conflict);
        assert!(told.starts_with(
            "patch nodes n because its conditions ask for other taints (refused, which is fine"
        ));
    }
}
