//! Creates the pod of an ordinal, and reads the revision of a pod.

use keleustes_objects::{ArcStr, ErrorReason, Key, Pod, PodTemplate, StatefulSet};
use keleustes_plan::{Edited, InvolvedObject, OnFailure, Outcome, PlannedEvent, Write};
use serde_json::{Value, json};

use super::claims;
use super::inputs::Inputs;
use crate::workloads::pod_creation::pod_from_template;

/// The label with the revision of a pod.
pub(super) const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The name of a pod's revision.
pub(super) fn revision_of(pod: &Pod) -> &str {
    pod.meta.labels.value(REVISION).map_or("", |revision| revision.as_str())
}

/// The name of an ordinal's pod.
pub(super) fn name(set: &StatefulSet, ordinal: i32) -> ArcStr {
    ArcStr::from(format!("{}-{ordinal}", set.meta.key.name))
}

/// Creates the pod of an ordinal from the template of a revision.
///
/// # Errors
/// If the template has no labels.
pub(super) fn creation(
    set: &StatefulSet,
    ordinal: i32,
    template: &PodTemplate,
    revision: &str,
) -> Result<Write, &'static str> {
    let mut body = pod_from_template::<StatefulSet>(&template.json(), &set.meta)?;
    let name = name(set, ordinal);
    body["metadata"]["name"] = json!(name);
    body["metadata"]["namespace"] = json!(set.meta.key.namespace);
    let labels = &mut body["metadata"]["labels"];
    labels[POD_NAME] = json!(name);
    labels[POD_INDEX] = json!(ordinal.to_string());
    labels[REVISION] = json!(revision);
    body["spec"]["hostname"] = json!(name);
    body["spec"]["subdomain"] = json!(set.spec.service_name);
    mount_claims(set, ordinal, &mut body);
    let key = Key { namespace: set.meta.key.namespace.clone(), name };
    let write =
        Write::create::<Pod>(key.clone(), body).because("the StatefulSet has no pod with this ordinal");
    Ok(with_events(write, set, &key.name, "Create"))
}

/// The volumes of claims come first and replace volumes of the same name in the template.
fn mount_claims(set: &StatefulSet, ordinal: i32, pod: &mut Value) {
    let templates = &set.spec.volume_claim_templates;
    if templates.is_empty() {
        return;
    }
    let mount = |template: &keleustes_objects::VolumeClaimTemplate| {
        json!({"name": template.name,
               "persistentVolumeClaim": {"claimName": claims::name(set, template, ordinal)}})
    };
    let mut volumes: Vec<Value> = templates.iter().map(mount).collect();
    let of_template = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let replaced =
        |volume: &Value| templates.iter().any(|template| volume["name"] == *template.name.as_str());
    volumes.extend(of_template.into_iter().filter(|volume| !replaced(volume)));
    pod["spec"]["volumes"] = json!(volumes);
}

/// Deletes a pod.
pub(super) fn deletion(set: &StatefulSet, pod: &Pod, because: &'static str) -> Write {
    let write =
        Write::delete(pod).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]).because(because);
    with_events(write, set, &pod.meta.key.name, "Delete")
}

/// Whether a pod has its pod-name label.
pub(super) fn identity_matches(pod: &Pod) -> bool {
    pod.meta.labels.value(POD_NAME).is_some_and(|label| **label == *pod.meta.key.name)
}

/// Whether a pod mounts its claims.
pub(super) fn storage_matches(set: &StatefulSet, ordinal: i32, pod: &Pod) -> bool {
    let mounts = |template: &keleustes_objects::VolumeClaimTemplate| {
        let claim = pod.pvc_of_volume(&template.name);
        claim.is_some_and(|claim| *claim == claims::name(set, template, ordinal))
    };
    set.spec.volume_claim_templates.iter().all(mounts)
}

/// Restores the identity labels and the claim volumes of a pod, each only if it is wrong: the API server
/// rejects any change of volumes, even of their order.
pub(super) fn repair(inputs: &Inputs, ordinal: i32, pod: &Pod) -> Write {
    let (set, name) = (inputs.set.clone(), pod.meta.key.name.clone());
    let label = name.clone();
    let change = move |live: &mut Value| {
        let before = live.clone();
        if live["metadata"]["labels"][POD_NAME] != *label {
            live["metadata"]["labels"][POD_NAME] = json!(label);
            live["metadata"]["labels"][POD_INDEX] = json!(ordinal.to_string());
        }
        let volumes = live["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        let mounts = |template: &keleustes_objects::VolumeClaimTemplate| {
            let volume = volumes.iter().find(|volume| volume["name"] == *template.name.as_str());
            let claim = volume.map(|volume| &volume["persistentVolumeClaim"]["claimName"]);
            claim.is_some_and(|claim| *claim == *claims::name(&set, template, ordinal))
        };
        if !set.spec.volume_claim_templates.iter().all(mounts) {
            mount_claims(&set, ordinal, live);
        }
        if *live == before { Edited::Unneeded } else { Edited::Changed }
    };
    let write = Write::edit(pod, change)
        .conflict_tries(4)
        .because("its pod-name label or its claim volumes are wrong");
    with_events(write, &inputs.set, &name, "Update")
}

/// Adds the events for a write to a pod.
fn with_events(write: Write, set: &StatefulSet, pod: &ArcStr, verb: &'static str) -> Write {
    let (involved, set, pod) = (InvolvedObject::of(set), set.meta.key.name.clone(), pod.clone());
    write.on_failure(OnFailure::StopAndRetry).record_on_outcome(move |outcome| match outcome {
        Outcome::Done { .. } => Some(event(involved.clone(), &set, &pod, verb, None)),
        // The cache is stale; no event is needed.
        Outcome::Failed(failure) if failure.reason == ErrorReason::AlreadyExists => None,
        Outcome::Failed(failure) => Some(event(involved.clone(), &set, &pod, verb, Some(&failure.message))),
        Outcome::Unneeded | Outcome::NotSent => None,
    })
}

/// An event about a pod of a StatefulSet, with the error if the write failed.
pub(super) fn event(
    involved: InvolvedObject,
    set: &str,
    pod: &str,
    verb: &str,
    failure: Option<&str>,
) -> PlannedEvent {
    let about = format!("{verb} Pod {pod} in StatefulSet {set}");
    match failure {
        None => PlannedEvent::normal(involved, &format!("Successful{verb}"), format!("{about} successful")),
        Some(why) => {
            PlannedEvent::warning(involved, &format!("Failed{verb}"), format!("{about} failed error: {why}"))
        }
    }
}
