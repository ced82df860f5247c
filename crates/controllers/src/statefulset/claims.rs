//! The PersistentVolumeClaims of a StatefulSet's pods: names and bodies.

use keleustes_objects::{
    ArcStr, ErrorReason, Key, LabelSelector, OwnerReference, PersistentVolumeClaim, StatefulSet,
    VolumeClaimTemplate,
};
use keleustes_plan::{InvolvedObject, OnFailure, Outcome, PlannedEvent, Write};
use serde_json::{Value, json};

use super::inputs::Inputs;
use super::pods;

/// The name of a claim.
pub(super) fn name(set: &StatefulSet, template: &VolumeClaimTemplate, ordinal: i32) -> ArcStr {
    ArcStr::from(format!("{}-{}-{ordinal}", template.name, set.meta.key.name))
}

/// Whether the retention policy deletes claims on scale-down, and on deletion of the StatefulSet.
pub(super) fn retention_deletes(set: &StatefulSet) -> (bool, bool) {
    let policy = &set.spec.persistent_volume_claim_retention_policy;
    (policy.when_scaled == "Delete", policy.when_deleted == "Delete")
}

/// The creations of a pod's missing claims, and the errors for claims that it cannot have.
pub(super) fn missing(inputs: &Inputs, ordinal: i32) -> (Vec<Write>, Vec<String>) {
    let (set, mut writes, mut claim_errors) = (&*inputs.set, Vec::new(), Vec::new());
    for template in &set.spec.volume_claim_templates {
        let name = name(set, template, ordinal);
        match inputs.claims.get(&name) {
            Some(claim) if claim.meta.deletion_timestamp.is_some() => {
                claim_errors.push(format!("pvc {name} is being deleted"));
            }
            Some(_) => {}
            None => match creation(set, template, name, ordinal) {
                Ok(write) => writes.push(write),
                Err(why) => claim_errors.push(why),
            },
        }
    }
    (writes, claim_errors)
}

fn creation(
    set: &StatefulSet,
    template: &VolumeClaimTemplate,
    name: ArcStr,
    ordinal: i32,
) -> Result<Write, String> {
    let mut body: Value = serde_json::from_str(template.raw.as_str())
        .map_err(|_| format!("the template of claim {name} cannot be read"))?;
    let selector = set.spec.selector.as_ref().map(LabelSelector::match_labels).cloned().unwrap_or_default();
    let labels = selector
        .iter()
        .fold(template.labels.clone(), |labels, (key, value)| labels.with(key.clone(), value.clone()));
    body["metadata"]["name"] = json!(name);
    body["metadata"]["namespace"] = json!(set.meta.key.namespace);
    body["metadata"]["labels"] = json!(labels);
    if let Some(body) = body.as_object_mut() {
        body.remove("status");
    }
    let key = Key { namespace: set.meta.key.namespace.clone(), name: name.clone() };
    let (involved, pod, set) = (InvolvedObject::of(set), pods::name(set, ordinal), set.meta.key.name.clone());
    let write = Write::create::<PersistentVolumeClaim>(key, body)
        .on_failure(OnFailure::ContinueAndRetry)
        .because("its pod needs it");
    Ok(write.record_on_outcome(move |outcome| match outcome {
        Outcome::Done { .. } => {
            let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
            Some(PlannedEvent::normal(involved.clone(), "SuccessfulCreate", message))
        }
        // The cache is stale; the next reconcile sees the claim.
        Outcome::Failed(failure) if failure.reason == ErrorReason::AlreadyExists => None,
        Outcome::Failed(failure) => {
            let message = format!(
                "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {}",
                failure.message
            );
            Some(PlannedEvent::warning(involved.clone(), "FailedCreate", message))
        }
        Outcome::Unneeded | Outcome::NotSent => None,
    }))
}

/// Whether a claim is still owned by an earlier pod of that name, so that the new pod waits for the claim's
/// deletion.
pub(super) fn are_stale(inputs: &Inputs, ordinal: i32) -> bool {
    let pod = pods::name(&inputs.set, ordinal);
    let names_pod =
        |owner: &OwnerReference| owner.api_version == "v1" && owner.kind == "Pod" && owner.name == pod;
    retention_deletes(&inputs.set).0
        && of_ordinal(inputs, ordinal).any(|claim| claim.meta.owner_references.iter().any(names_pod))
}

/// The existing claims of a pod.
pub(super) fn of_ordinal(inputs: &Inputs, ordinal: i32) -> impl Iterator<Item = &PersistentVolumeClaim> {
    let templates = inputs.set.spec.volume_claim_templates.iter();
    templates
        .filter_map(move |template| inputs.claims.get(&name(&inputs.set, template, ordinal)))
        .map(|claim| &**claim)
}
