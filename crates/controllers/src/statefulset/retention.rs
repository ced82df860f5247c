//! The owners of a pod's claims, by the retention policy: the StatefulSet, the pod, or neither.

use keleustes_objects::{
    ArcStr, Kind as _, OwnerReference, PersistentVolumeClaim, Pod, Resource, StatefulSet, Uid,
};
use keleustes_plan::{Edited, InvolvedObject, Outcome, Plan, PlannedEvent, Write};
use serde_json::{Value, json};

use super::claims::{of_ordinal, retention_deletes};
use super::inputs::Inputs;
use super::pods;

/// The desired owners of one ordinal's claims.
#[derive(Clone)]
struct ClaimOwners {
    set: OwnerRule,
    pod: OwnerRule,
    /// Whether the policy retains claims in all cases; then other controllers do not matter.
    retains_all: bool,
}

/// One of the two possible owners of a claim.
#[derive(Clone)]
struct OwnerRule {
    resource: Resource,
    name: ArcStr,
    /// `None` if the object does not exist yet.
    uid: Option<Uid>,
    /// Whether it should own the claim.
    owns: bool,
}

impl OwnerRule {
    /// Whether an owner reference names it, with any UID.
    fn is_named_by(&self, owner: &OwnerReference) -> bool {
        owner.api_version == *self.resource.api_version()
            && owner.kind == *self.resource.kind
            && owner.name == self.name
    }

    fn has_other_uid(&self, owner: &OwnerReference) -> bool {
        self.is_named_by(owner) && self.uid.as_ref() != Some(&owner.uid)
    }

    /// Whether the owner references are as desired for this owner.
    fn is_satisfied(&self, owners: &[OwnerReference], may_own: bool) -> bool {
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

impl ClaimOwners {
    fn of(inputs: &Inputs, ordinal: i32, pod: Option<&Pod>, condemned: bool) -> Self {
        let (scaled, deleted) = retention_deletes(&inputs.set);
        let pod_name = || pods::name(&inputs.set, ordinal);
        let set = OwnerRule {
            resource: StatefulSet::RESOURCE,
            name: inputs.set.meta.key.name.clone(),
            uid: Some(inputs.set.meta.uid.clone()),
            owns: deleted && !(scaled && condemned),
        };
        let pod = OwnerRule {
            resource: Pod::RESOURCE,
            name: pod.map_or_else(pod_name, |pod| pod.meta.key.name.clone()),
            uid: pod.map(|pod| pod.meta.uid.clone()),
            owns: scaled && condemned,
        };
        Self { set, pod, retains_all: !scaled && !deleted }
    }

    fn rules(&self) -> [&OwnerRule; 2] {
        [&self.set, &self.pod]
    }

    /// Whether an owner reference has the name but another UID; such a claim is not changed.
    fn have_other_uid(&self, owners: &[OwnerReference]) -> bool {
        owners.iter().any(|owner| self.rules().iter().any(|rules| rules.has_other_uid(owner)))
    }

    /// Whether another object controls the claim; then neither the StatefulSet nor the pod may.
    fn have_other_controller(&self, owners: &[OwnerReference]) -> bool {
        let foreign = |owner: &OwnerReference| {
            owner.controller && !self.rules().iter().any(|rules| rules.is_named_by(owner))
        };
        !self.retains_all && owners.iter().any(foreign)
    }

    /// Whether nothing has to change.
    fn match_policy(&self, owners: &[OwnerReference]) -> bool {
        let may_own = !self.have_other_controller(owners);
        self.have_other_uid(owners) || self.rules().iter().all(|rules| rules.is_satisfied(owners, may_own))
    }

    /// Whether a warning event is due because the policy cannot be applied.
    fn conflict_with_policy(&self, owners: &[OwnerReference]) -> bool {
        self.have_other_controller(owners) || (!self.retains_all && self.have_other_uid(owners))
    }

    /// Updates the owner references of a claim. Other entries stay unchanged.
    fn apply_to(&self, claim: &mut Value) -> Edited {
        let entries = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let read =
            |entry: &Value| serde_json::from_value::<OwnerReference>(entry.clone()).unwrap_or_default();
        let owners: Vec<OwnerReference> = entries.iter().map(read).collect();
        if self.match_policy(&owners) {
            return Edited::Unneeded;
        }
        let is_ours = |owner: &OwnerReference| self.rules().iter().any(|rules| rules.is_named_by(owner));
        let others = entries.into_iter().zip(&owners).filter(|(_, owner)| !is_ours(owner));
        let mut wanted: Vec<Value> = others.map(|(entry, _)| entry).collect();
        if !self.have_other_controller(&owners) {
            let new = self.rules().into_iter().filter(|rules| rules.owns && rules.uid.is_some());
            wanted.extend(new.map(OwnerRule::reference));
        }
        claim["metadata"]["ownerReferences"] = json!(wanted);
        Edited::Changed
    }
}

/// Whether the claims of a pod have the owners that the policy requires.
pub(super) fn matches_policy(inputs: &Inputs, ordinal: i32, pod: &Pod, condemned: bool) -> bool {
    let owners = ClaimOwners::of(inputs, ordinal, Some(pod), condemned);
    of_ordinal(inputs, ordinal).all(|claim| owners.match_policy(&claim.meta.owner_references))
}

/// Adds the writes that give the claims of a pod the owners that the policy requires. Claims that are not
/// cached yet are left to a later reconcile.
pub(super) fn push(plan: &mut Plan, inputs: &Inputs, ordinal: i32, pod: Option<&Pod>, condemned: bool) {
    let owners = ClaimOwners::of(inputs, ordinal, pod, condemned);
    for claim in of_ordinal(inputs, ordinal) {
        if owners.conflict_with_policy(&claim.meta.owner_references) {
            let name = &claim.meta.key.name;
            let message = format!(
                "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                 the retention policy is ignored for this claim"
            );
            plan.record(PlannedEvent::warning(
                InvolvedObject::of(&*inputs.set),
                "ConflictingController",
                message,
            ));
        }
        if !owners.match_policy(&claim.meta.owner_references) {
            plan.push(correction(inputs, claim, &owners, condemned));
        }
    }
}

fn correction(
    inputs: &Inputs,
    claim: &PersistentVolumeClaim,
    owners: &ClaimOwners,
    condemned: bool,
) -> Write {
    let (involved, set, pod) =
        (InvolvedObject::of(&*inputs.set), inputs.set.meta.key.name.clone(), owners.pod.name.clone());
    let (name, owners) = (claim.meta.key.name.clone(), owners.clone());
    Write::edit(claim, move |live| owners.apply_to(live))
        .because("the retention policy determines its owners")
        .record_on_outcome(move |outcome| match outcome {
            Outcome::Failed(failure) if !condemned => {
                let why =
                    format!("could not update claim {name} for delete policy ownerRefs: {}", failure.message);
                Some(pods::event(involved.clone(), &set, &pod, "Update", Some(&why)))
            }
            _ => None,
        })
}
