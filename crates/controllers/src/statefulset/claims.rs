//! The claims of a StatefulSet's pods: their names, what they are made from, and who owns them.

use keleustes_objects::{
    ClaimTemplate, Key, Kind as _, LabelSelector, OwnerRef, PersistentVolumeClaim, Pod, Reason, StatefulSet,
    Text,
};
use keleustes_plan::{Edited, EventNote, Involved, Outcome, Plan, Write};
use serde_json::{Value, json};

use super::facts::Facts;

/// The name of a claim.
pub(super) fn name(set: &StatefulSet, template: &ClaimTemplate, number: i32) -> Text {
    Text::from(format!("{}-{}-{number}", template.name, set.meta.key.name))
}

/// Whether claims are deleted when the set shrinks, and when it is deleted.
fn deletes(set: &StatefulSet) -> (bool, bool) {
    let policy = &set.spec.persistent_volume_claim_retention_policy;
    (policy.when_scaled == "Delete", policy.when_deleted == "Delete")
}

/// Adds the claims that a pod lacks.
///
/// # Errors
/// If one of them is on its way out, or cannot be made.
pub(super) fn push_missing(plan: &mut Plan, facts: &Facts, number: i32) -> Result<(), String> {
    let set = &*facts.set;
    for template in &set.spec.volume_claim_templates {
        let name = name(set, template, number);
        match facts.claims.get(&name) {
            Some(claim) if claim.meta.deleted_at.is_some() => {
                return Err(format!("pvc {name} is being deleted"));
            }
            Some(_) => {}
            None => plan.push(creation(set, template, name, number)?),
        }
    }
    Ok(())
}

fn creation(set: &StatefulSet, template: &ClaimTemplate, name: Text, number: i32) -> Result<Write, String> {
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
    let (involved, set, pod) =
        (Involved::of(set), set.meta.key.name.clone(), format!("{}-{number}", set.meta.key.name));
    let write = Write::create::<PersistentVolumeClaim>(key, body)
        .tolerating(&[Reason::AlreadyExists])
        .because("its pod needs it");
    Ok(write.reporting(move |outcome| match outcome {
        Outcome::Done { name: made, .. } if !made.is_empty() => {
            let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
            Some(EventNote::normal(involved.clone(), "SuccessfulCreate", message))
        }
        Outcome::Failed(failure) => {
            let message = format!(
                "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {}",
                failure.message
            );
            Some(EventNote::warning(involved.clone(), "FailedCreate", message))
        }
        _ => None,
    }))
}

/// Whether a claim still belongs to an earlier pod of the name, so that a new one must wait for it to go.
pub(super) fn are_stale(facts: &Facts, number: i32) -> bool {
    let set = &*facts.set;
    let pod = format!("{}-{number}", set.meta.key.name);
    deletes(set).0
        && set.spec.volume_claim_templates.iter().any(|template| {
            let claim = facts.claims.get(&name(set, template, number));
            claim.is_some_and(|claim| {
                let names_pod =
                    |owner: &OwnerRef| owner.api_version == "v1" && owner.kind == "Pod" && owner.name == *pod;
                claim.meta.owners.iter().any(names_pod)
            })
        })
}

/// Who is to own a claim.
struct Owners<'a> {
    set: &'a StatefulSet,
    pod: Option<&'a Pod>,
    /// Whether the set is to own it.
    by_set: bool,
    /// Whether the pod is to own it.
    by_pod: bool,
}

impl<'a> Owners<'a> {
    fn of(facts: &'a Facts, pod: Option<&'a Pod>, condemned: bool) -> Self {
        let (by_set, by_pod) = match deletes(&facts.set) {
            (false, false) => (false, false),
            (false, true) => (true, false),
            (true, false) => (false, condemned),
            (true, true) => (!condemned, condemned),
        };
        Self { set: &facts.set, pod, by_set, by_pod }
    }

    fn is_set(&self, owner: &OwnerRef) -> bool {
        owner.api_version == "apps/v1" && owner.kind == "StatefulSet" && owner.name == self.set.meta.key.name
    }

    fn is_pod(&self, owner: &OwnerRef) -> bool {
        let named = |pod: &Pod| owner.name == pod.meta.key.name;
        owner.api_version == "v1" && owner.kind == "Pod" && self.pod.is_some_and(named)
    }

    /// Whether an owner of the same name but of another life is noted; such a claim is left alone.
    fn are_of_another_life(&self, claim: &PersistentVolumeClaim) -> bool {
        let other_pod = |owner: &OwnerRef| self.pod.is_some_and(|pod| pod.meta.uid != owner.uid);
        claim.meta.owners.iter().any(|owner| {
            (self.is_set(owner) && owner.uid != self.set.meta.uid) || (self.is_pod(owner) && other_pod(owner))
        })
    }

    /// Whether somebody else manages the claim.
    fn conflict(&self, claim: &PersistentVolumeClaim) -> bool {
        let policy = deletes(self.set);
        let foreign = |owner: &OwnerRef| owner.controller && !self.is_set(owner) && !self.is_pod(owner);
        policy != (false, false) && claim.meta.owners.iter().any(foreign)
    }

    fn are_right(&self, claim: &PersistentVolumeClaim) -> bool {
        let noted = |ours: &dyn Fn(&OwnerRef) -> bool| claim.meta.owners.iter().find(|owner| ours(owner));
        let right = |owner: Option<&OwnerRef>, wanted: bool| match owner {
            Some(owner) => wanted && owner.controller,
            None => !wanted,
        };
        let (by_set, by_pod) = if self.conflict(claim) { (false, false) } else { (self.by_set, self.by_pod) };
        right(noted(&|owner| self.is_set(owner)), by_set) && right(noted(&|owner| self.is_pod(owner)), by_pod)
    }

    /// The owners that the claim is to have.
    fn wanted(&self, claim: &PersistentVolumeClaim) -> Value {
        let others = claim.meta.owners.iter().filter(|owner| !self.is_set(owner) && !self.is_pod(owner));
        let mut all: Vec<Value> = others.map(|owner| json!(owner)).collect();
        let conflict = self.conflict(claim);
        let reference = |api_version: String, kind: &str, name: &Text, uid: &keleustes_objects::Uid| {
            json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
                   "controller": true, "blockOwnerDeletion": true})
        };
        if self.by_set && !conflict {
            let (resource, meta) = (StatefulSet::RESOURCE, &self.set.meta);
            all.push(reference(resource.api_version(), &resource.kind, &meta.key.name, &meta.uid));
        }
        if let Some(pod) = self.pod.filter(|_| self.by_pod && !conflict) {
            all.push(reference(Pod::RESOURCE.api_version(), "Pod", &pod.meta.key.name, &pod.meta.uid));
        }
        json!(all)
    }
}

/// Whether the claims of a pod are owned as the set's policy has it.
pub(super) fn are_owned_rightly(facts: &Facts, number: i32, pod: &Pod, condemned: bool) -> bool {
    let owners = Owners::of(facts, Some(pod), condemned);
    let mut claims = of_number(facts, number);
    claims.all(|claim| owners.are_of_another_life(claim) || owners.are_right(claim))
}

/// Adds what it takes to have the claims of a pod owned as the set's policy has it.
pub(super) fn push_owners(plan: &mut Plan, facts: &Facts, number: i32, pod: Option<&Pod>, condemned: bool) {
    let owners = Owners::of(facts, pod, condemned);
    for claim in of_number(facts, number) {
        if owners.are_of_another_life(claim) || owners.are_right(claim) {
            continue;
        }
        if owners.conflict(claim) {
            let name = &claim.meta.key.name;
            let message = format!(
                "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                 the retention policy is ignored for this claim"
            );
            plan.record(EventNote::warning(Involved::of(&*facts.set), "ConflictingController", message));
        }
        let wanted = owners.wanted(claim);
        let change = move |live: &mut Value| {
            live["metadata"]["ownerReferences"] = wanted.clone();
            Edited::Changed
        };
        let edit = Write::edit(claim, change).decided_on(&claim.meta.version);
        plan.push(edit.because("the policy of retention says who owns it"));
    }
}

fn of_number(facts: &Facts, number: i32) -> impl Iterator<Item = &PersistentVolumeClaim> {
    let templates = facts.set.spec.volume_claim_templates.iter();
    templates
        .filter_map(move |template| facts.claims.get(&name(&facts.set, template, number)))
        .map(|claim| &**claim)
}
