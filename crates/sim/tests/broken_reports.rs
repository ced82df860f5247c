//! Controllers that only report something and do so wrongly on purpose, and the storms that catch them. Each runs in the
//! place of the shipped one with its name.

mod broken_storms;

use std::sync::Arc;

use broken_storms::{EVERYTHING, controller_of, expect_no_violation, expect_violation, play_with};
use keleustes_objects::{Key, PersistentVolumeClaim, Pod, PodParts, ValidatingAdmissionPolicy};
use keleustes_plan::{Controller, InvolvedObject, Loop, PatchKind, Plan, PlannedEvent, View, Write};
use keleustes_sim::actions::{LabelledPodChange, PolicyChange, StorageChange, StorageKind, UserAction};
use serde_json::json;

const POLICIES: &str = "validatingadmissionpolicy-status-controller";
const SELINUX: &str = "selinux-warning-controller";
const EXPANDER: &str = "persistentvolume-expander-controller";

fn policies(changes: &[(u64, PolicyChange)]) -> Vec<(u64, UserAction)> {
    let action = |change| UserAction::ChangePolicy("oar".to_owned(), change);
    changes.iter().map(|(at_ms, change)| (*at_ms, action(*change))).collect()
}

/// Finds no warning in any policy.
fn checker_without_warnings() -> Controller {
    let decide = |_: &View<'_>, policy: &Arc<ValidatingAdmissionPolicy>| {
        if policy.observed_generation >= policy.meta.generation {
            return Plan::none();
        }
        let status = json!({"metadata": {"uid": policy.meta.uid},
            "status": {"observedGeneration": policy.meta.generation, "typeChecking": {}}});
        let write = Write::patch(&**policy, PatchKind::Merge, status).on_subresource("status");
        Plan::of(write.because("broken on purpose"))
    };
    controller_of(POLICIES, POLICIES, |a_loop| a_loop, decide)
}

/// Writes the status of every policy whenever the policy changes.
fn checker_of_every_change() -> Controller {
    let decide = |_: &View<'_>, policy: &Arc<ValidatingAdmissionPolicy>| {
        let status = json!({"metadata": {"uid": policy.meta.uid},
            "status": {"observedGeneration": policy.meta.generation}});
        let write = Write::patch(&**policy, PatchKind::Merge, status).on_subresource("status");
        Plan::of(write.because("broken on purpose"))
    };
    controller_of(POLICIES, POLICIES, |a_loop| a_loop, decide)
}

#[test]
fn policy_without_a_status_or_a_warning_is_caught() {
    let changes = [
        (2_000, PolicyChange::Set(0)),
        (4_000, PolicyChange::Set(1)),
        (6_000, PolicyChange::Set(2)),
        (8_000, PolicyChange::Set(3)),
        (10_000, PolicyChange::Label(1)),
    ];
    for number in 1..=changes.len() {
        expect_no_violation(&policies(&changes[..number]));
    }
    let actions = policies(&changes);
    let words = "ValidatingAdmissionPolicy /oar: the number of warnings is 0, not 2";
    expect_violation(&play_with(&actions, checker_without_warnings), words);
    let words = "of ValidatingAdmissionPolicy /oar is checked twice";
    expect_violation(&play_with(&actions, checker_of_every_change), words);
    let report = play_with(&actions, || Controller::new(POLICIES));
    expect_violation(&report, "ValidatingAdmissionPolicy /oar: status.observedGeneration is 0, not 4");
}

fn labelled_pods(changes: &[(u64, LabelledPodChange)]) -> Vec<(u64, UserAction)> {
    changes.iter().map(|(at_ms, change)| (*at_ms, UserAction::ChangeLabelledPods(*change))).collect()
}

/// Reports every pod as one whose label conflicts.
fn reporter_of_every_pod() -> Controller {
    let decide = |view: &View<'_>, item: &Key| {
        let mut plan = Plan::none();
        if let Some(pod) = view.get::<Pod>(item) {
            let message = "broken on purpose".to_owned();
            plan.record(PlannedEvent::normal(InvolvedObject::of(&**pod), "SELinuxLabelConflict", message));
        }
        plan
    };
    let a_loop = Loop::deciding(SELINUX, decide)
        .reads_pod_parts(PodParts::SELINUX)
        .enqueue_on::<Pod>(|change, _, queue| queue.add(&change.latest().meta.key));
    let controller = Controller::new(SELINUX).service_account(SELINUX).event_component("selinux_warning");
    controller.may_write(EVERYTHING).with_loop(a_loop)
}

#[test]
fn conflict_of_labels_without_an_event_and_event_without_a_conflict_are_caught() {
    let pods = |level| {
        labelled_pods(&[
            (2_000, LabelledPodChange::CreateVolume),
            (10_000, LabelledPodChange::Create(0, 1)),
            (12_000, LabelledPodChange::Create(1, level)),
        ])
    };
    expect_no_violation(&pods(1));
    expect_no_violation(&pods(2));
    let report = play_with(&pods(2), || Controller::new(SELINUX));
    expect_violation(&report, "no event says that the label of Pod default/labelled-");
    let words = "SELinuxLabelConflict is recorded about a pod without a conflict";
    expect_violation(&play_with(&pods(1), reporter_of_every_pod), words);
}

/// Says of every claim that it waits for a larger volume.
fn reporter_of_every_claim() -> Controller {
    let decide = |_: &View<'_>, claim: &Arc<PersistentVolumeClaim>| {
        let mut plan = Plan::none();
        let message = "broken on purpose".to_owned();
        plan.record(PlannedEvent::normal(InvolvedObject::of(&**claim), "ExternalExpanding", message));
        plan
    };
    controller_of(EXPANDER, "expand-controller", |a_loop| a_loop, decide).event_component("volume_expand")
}

/// Expands the volume of every claim by itself.
fn hasty_expander() -> Controller {
    let decide = |_: &View<'_>, claim: &Arc<PersistentVolumeClaim>| {
        let capacity =
            json!({"metadata": {"uid": claim.meta.uid}, "status": {"capacity": {"storage": "2Gi"}}});
        let write = Write::patch(&**claim, PatchKind::Merge, capacity).on_subresource("status");
        Plan::of(write.because("broken on purpose"))
    };
    controller_of(EXPANDER, "expand-controller", |a_loop| a_loop, decide)
}

#[test]
fn expansion_by_the_controller_itself_and_event_without_growth_are_caught() {
    let create = StorageChange::CreateClaim { class: StorageKind::Deleted, shared: false };
    let change = |change| UserAction::ChangeStorage("default".to_owned(), "oar".to_owned(), change);
    let actions = vec![(2_000, change(create)), (20_000, change(StorageChange::GrowClaim))];
    expect_no_violation(&actions);
    let words = "ExternalExpanding is recorded about a claim that did not grow";
    expect_violation(&play_with(&actions[..1], reporter_of_every_claim), words);
    expect_violation(&play_with(&actions, hasty_expander), "more than an event is written");
}
