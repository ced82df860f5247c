//! Who owns the claims of a pod: the set or the pod, if claims are to go with it, or neither.

use keleustes_objects::{
    ArcStr, Kind as _, OwnerReference, PersistentVolumeClaim, Pod, Resource, StatefulSet, Uid,
};
use keleustes_plan::{Edited, InvolvedObject, Outcome, Plan, PlannedEvent, Write};
use serde_json::{Value, json};

use super::claims::{deletes, of_number};
use super::facts::Facts;
use super::pods;

/// Who is to own the claims of one number.
#[derive(Clone)]
struct Owners {
    set: Us,
    pod: Us,
    /// Whether claims are kept whatever happens; then it does not matter who else manages them.
    keeps_all: bool,
}

/// One of the two that may own a claim.
#[derive(Clone)]
struct Us {
    resource: Resource,
    name: ArcStr,
    /// Nothing if it is only being made.
    uid: Option<Uid>,
    /// Whether it is to own the claim.
    owns: bool,
}

impl Us {
    /// Whether an entry names it, in this life or another.
    fn is_named_by(&self, owner: &OwnerReference) -> bool {
        owner.api_version == *self.resource.api_version()
            && owner.kind == *self.resource.kind
            && owner.name == self.name
    }

    fn is_of_another_life(&self, owner: &OwnerReference) -> bool {
        self.is_named_by(owner) && self.uid.as_ref() != Some(&owner.uid)
    }

    /// Whether the entries are as they are to be, as far as it is concerned.
    fn is_content(&self, owners: &[OwnerReference], may_own: bool) -> bool {
        match owners.iter().find(|owner| self.is_named_by(owner)) {
            Some(owner) => self.owns && may_own && owner.controller,
            None => !(self.owns && may_own && self.uid.is_some()),
        }
    }

    fn reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind, "name": self.name,
            "uid": self.uid, "controller": true, "blockOwnerDeletion": true,
        })
    }
}

impl Owners {
    fn of(facts: &Facts, number: i32, pod: Option<&Pod>, condemned: bool) -> Self {
        let (scaled, deleted) = deletes(&facts.set);
        let pod_name = || pods::name(&facts.set, number);
        let set = Us {
            resource: StatefulSet::RESOURCE,
            name: facts.set.meta.key.name.clone(),
            uid: Some(facts.set.meta.uid.clone()),
            owns: deleted && !(scaled && condemned),
        };
        let pod = Us {
            resource: Pod::RESOURCE,
            name: pod.map_or_else(pod_name, |pod| pod.meta.key.name.clone()),
            uid: pod.map(|pod| pod.meta.uid.clone()),
            owns: scaled && condemned,
        };
        Self { set, pod, keeps_all: !scaled && !deleted }
    }

    fn us(&self) -> [&Us; 2] {
        [&self.set, &self.pod]
    }

    /// Whether an owner of the same name but of another life is noted; such a claim is left alone.
    fn are_of_another_life(&self, owners: &[OwnerReference]) -> bool {
        owners.iter().any(|owner| self.us().iter().any(|us| us.is_of_another_life(owner)))
    }

    /// Whether somebody else manages the claim; then we do not.
    fn are_others(&self, owners: &[OwnerReference]) -> bool {
        let foreign =
            |owner: &OwnerReference| owner.controller && !self.us().iter().any(|us| us.is_named_by(owner));
        !self.keeps_all && owners.iter().any(foreign)
    }

    /// Whether nothing is to be changed.
    fn are_right(&self, owners: &[OwnerReference]) -> bool {
        let may_own = !self.are_others(owners);
        self.are_of_another_life(owners) || self.us().iter().all(|us| us.is_content(owners, may_own))
    }

    /// Whether people should know that the policy is not heeded.
    fn are_in_conflict(&self, owners: &[OwnerReference]) -> bool {
        self.are_others(owners) || (!self.keeps_all && self.are_of_another_life(owners))
    }

    /// Puts the owners of a claim right. Entries of others stay as they are.
    fn put_right(&self, claim: &mut Value) -> Edited {
        let entries = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let read =
            |entry: &Value| serde_json::from_value::<OwnerReference>(entry.clone()).unwrap_or_default();
        let owners: Vec<OwnerReference> = entries.iter().map(read).collect();
        if self.are_right(&owners) {
            return Edited::Unneeded;
        }
        let is_ours = |owner: &OwnerReference| self.us().iter().any(|us| us.is_named_by(owner));
        let others = entries.into_iter().zip(&owners).filter(|(_, owner)| !is_ours(owner));
        let mut wanted: Vec<Value> = others.map(|(entry, _)| entry).collect();
        if !self.are_others(&owners) {
            let new = self.us().into_iter().filter(|us| us.owns && us.uid.is_some());
            wanted.extend(new.map(Us::reference));
        }
        claim["metadata"]["ownerReferences"] = json!(wanted);
        Edited::Changed
    }
}

/// Whether the claims of a pod are owned as the set's policy has it.
pub(super) fn is_heeded(facts: &Facts, number: i32, pod: &Pod, condemned: bool) -> bool {
    let owners = Owners::of(facts, number, Some(pod), condemned);
    of_number(facts, number).all(|claim| owners.are_right(&claim.meta.owner_references))
}

/// Adds what it takes to have the claims of a pod owned as the set's policy has it. Claims that are not seen
/// yet are for a later turn.
pub(super) fn push(plan: &mut Plan, facts: &Facts, number: i32, pod: Option<&Pod>, condemned: bool) {
    let owners = Owners::of(facts, number, pod, condemned);
    for claim in of_number(facts, number) {
        if owners.are_in_conflict(&claim.meta.owner_references) {
            let name = &claim.meta.key.name;
            let message = format!(
                "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                 the retention policy is ignored for this claim"
            );
            plan.record(PlannedEvent::warning(
                InvolvedObject::of(&*facts.set),
                "ConflictingController",
                message,
            ));
        }
        if !owners.are_right(&claim.meta.owner_references) {
            plan.push(correction(facts, claim, &owners, condemned));
        }
    }
}

fn correction(facts: &Facts, claim: &PersistentVolumeClaim, owners: &Owners, condemned: bool) -> Write {
    let (involved, set, pod) =
        (InvolvedObject::of(&*facts.set), facts.set.meta.key.name.clone(), owners.pod.name.clone());
    let (name, owners) = (claim.meta.key.name.clone(), owners.clone());
    Write::edit(claim, move |live| owners.put_right(live))
        .because("the policy of retention says who owns it")
        .record_on_outcome(move |outcome| match outcome {
            Outcome::Failed(failure) if !condemned => {
                let why =
                    format!("could not update claim {name} for delete policy ownerRefs: {}", failure.message);
                Some(pods::event(involved.clone(), &set, &pod, "Update", Some(&why)))
            }
            _ => None,
        })
}
