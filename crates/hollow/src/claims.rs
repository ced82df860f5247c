//! Claims, their classes and volumes: what a scheduler and a kubelet have to know of them.

use std::collections::BTreeMap;

use keleustes_client::{Call, PatchType};
use keleustes_objects::{
    ArcStr, InternedStr, Key, Kind as _, Labels, Object as _, PersistentVolumeClaim, StorageClass,
};
use serde_json::json;

use crate::projections::{NodeTerm, PodClaim, Volume};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The claims of all pods. Nothing waits for claims that are not watched.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    is_watched: bool,
    is_synced: bool,
    are_classes_synced: bool,
    claims: BTreeMap<Key, PersistentVolumeClaim>,
    /// The provisioner and whether volumes are bound only for a pod on a node.
    classes: BTreeMap<ArcStr, (InternedStr, bool)>,
    /// The node affinity of volumes that have one.
    node_terms: BTreeMap<ArcStr, Box<[NodeTerm]>>,
}

/// What the claims of a pod demand of its node.
#[derive(Debug, Default)]
pub(crate) struct ClaimDemands<'a> {
    node_terms: Vec<&'a [NodeTerm]>,
    selected_nodes: Vec<&'a ArcStr>,
    has_no_volumes: bool,
    /// The claims that are bound after a node is selected.
    pub(crate) delayed: Vec<Key>,
}

/// Why claims do not allow a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimConflict {
    NodeAffinity,
    NothingToBind,
}

/// The next step before a pod is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BindStep {
    /// A claim has to be annotated with the selected node.
    Select(Key),
    /// A claim is being bound.
    Wait,
    /// All claims are bound.
    Done,
    /// A claim is gone, or was taken from the node.
    Failed,
}

impl Claims {
    /// Claims and classes are watched, so nothing is decided before both are known.
    pub(crate) fn watch(&mut self) {
        self.is_watched = true;
    }

    pub(crate) fn are_ready(&self) -> bool {
        !self.is_watched || self.is_synced && self.are_classes_synced
    }

    /// Replaces all claims and returns the keys of those that changed or are gone.
    pub(crate) fn replace_claims(&mut self, claims: Vec<PersistentVolumeClaim>) -> Vec<Key> {
        self.is_synced = true;
        let current = claims.into_iter().map(|claim| (claim.key().clone(), claim)).collect();
        let old = std::mem::replace(&mut self.claims, current);
        let all = old.keys().chain(self.claims.keys().filter(|key| !old.contains_key(*key)));
        all.filter(|key| old.get(*key) != self.claims.get(*key)).cloned().collect()
    }

    pub(crate) fn observe_claim(&mut self, claim: PersistentVolumeClaim) {
        self.claims.insert(claim.key().clone(), claim);
    }

    pub(crate) fn forget_claim(&mut self, key: &Key) {
        self.claims.remove(key);
    }

    pub(crate) fn replace_classes(&mut self, classes: Vec<StorageClass>) {
        self.are_classes_synced = true;
        self.classes.clear();
        classes.into_iter().for_each(|class| self.observe_class(class));
    }

    pub(crate) fn observe_class(&mut self, class: StorageClass) {
        let is_delayed =
            class.volume_binding_mode.as_ref().is_some_and(|mode| *mode == "WaitForFirstConsumer");
        self.classes.insert(class.meta.key.name, (class.provisioner, is_delayed));
    }

    pub(crate) fn forget_class(&mut self, name: &ArcStr) {
        self.classes.remove(name);
    }

    pub(crate) fn observe_volume(&mut self, volume: &Volume) {
        match &volume.node_terms {
            Some(terms) => drop(self.node_terms.insert(volume.key().name.clone(), terms.clone())),
            None => self.forget_volume(&volume.key().name),
        }
    }

    pub(crate) fn forget_volume(&mut self, name: &ArcStr) {
        self.node_terms.remove(name);
    }

    /// The names of the known volumes.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &ArcStr> {
        self.node_terms.keys()
    }

    /// What the claims of a pod demand of its node, or why it fits on none.
    ///
    /// Parity: the messages of kube-scheduler, which users search for.
    pub(crate) fn demands(
        &self,
        namespace: &InternedStr,
        claims: &[PodClaim],
    ) -> Result<ClaimDemands<'_>, String> {
        let mut demands = ClaimDemands::default();
        let mut has_unbound_immediate = false;
        for pod_claim in claims.iter().filter(|_| self.is_watched) {
            let (key, name) = (pod_claim.key(namespace), &pod_claim.name);
            let Some(claim) = self.claims.get(&key) else {
                return Err(match pod_claim.is_ephemeral {
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    ),
                    false => format!("persistentvolumeclaim {name:?} not found"),
                });
            };
            if claim.phase == "Lost" {
                let volume = &claim.spec.volume_name;
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.meta.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if is_bound(claim) {
                demands.node_terms.extend(self.node_terms.get(&claim.spec.volume_name).map(AsRef::as_ref));
                continue;
            }
            match self.classes.get(claim.class()) {
                Some((provisioner, true)) => {
                    demands.has_no_volumes |= *provisioner == NO_PROVISIONER;
                    demands.selected_nodes.extend(claim.annotations.value(SELECTED_NODE));
                    demands.delayed.push(key);
                }
                _ => has_unbound_immediate = true,
            }
        }
        match has_unbound_immediate {
            true => Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            false => Ok(demands),
        }
    }

    /// The next step before a pod with these delayed claims is bound to a node.
    pub(crate) fn bind_step(&self, claims: &[(Key, bool)], node: &InternedStr) -> BindStep {
        let mut step = BindStep::Done;
        for (key, was_selected) in claims {
            let Some(claim) = self.claims.get(key) else { return BindStep::Failed };
            if is_bound(claim) {
                continue;
            }
            match claim.annotations.value(SELECTED_NODE) {
                Some(selected) if **selected == **node => step = BindStep::Wait,
                Some(_) => return BindStep::Failed,
                None if *was_selected => step = BindStep::Wait,
                None => return BindStep::Select(key.clone()),
            }
        }
        step
    }

    /// The request that annotates a claim with the node of its pod.
    pub(crate) fn select_node(&self, claim: &Key, node: &InternedStr) -> Option<Call> {
        let known = self.claims.get(claim)?;
        let patch = json!({"metadata": {
            "uid": known.meta.uid, "resourceVersion": known.meta.resource_version,
            "annotations": {SELECTED_NODE: node},
        }});
        Some(Call::patch(&PersistentVolumeClaim::RESOURCE, claim, PatchType::Merge, &patch))
    }

    /// Whether a provisioner has given up a claim on the node that was selected for it.
    pub(crate) fn was_given_up(&self, changed: &PersistentVolumeClaim) -> bool {
        let selected = |claim: &PersistentVolumeClaim| claim.annotations.value(SELECTED_NODE).is_some();
        let known = self.claims.get(changed.key());
        known.is_some_and(|known| selected(known) && !selected(changed) && !is_bound(changed))
    }

    /// Why a kubelet cannot mount the volume of a claim.
    ///
    /// Parity: `pkg/kubelet/volumemanager/populator`.
    pub(crate) fn mount_error(&self, namespace: &InternedStr, claim: &PodClaim) -> Option<String> {
        if !self.is_watched {
            return None;
        }
        let problem = match self.claims.get(&claim.key(namespace)) {
            None => format!(
                "failed to fetch PVC from API server: persistentvolumeclaims {:?} not found",
                claim.name
            ),
            Some(found) if found.meta.deletion_timestamp.is_some() => "PVC is being deleted".to_owned(),
            Some(found) if !is_bound(found) => "PVC is not bound".to_owned(),
            Some(_) => return None,
        };
        Some(format!("error processing PVC {namespace}/{}: {problem}", claim.name))
    }
}

impl ClaimDemands<'_> {
    /// Whether a node is allowed.
    pub(crate) fn check(&self, node: &InternedStr, labels: &Labels) -> Result<(), ClaimConflict> {
        if !self.node_terms.iter().all(|terms| terms.iter().any(|term| term.matches(node, labels))) {
            return Err(ClaimConflict::NodeAffinity);
        }
        if self.has_no_volumes || self.selected_nodes.iter().any(|selected| ***selected != **node) {
            return Err(ClaimConflict::NothingToBind);
        }
        Ok(())
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.phase == "Bound" && !claim.spec.volume_name.is_empty()
}
