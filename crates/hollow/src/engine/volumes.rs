//! Volumes in use per node, volumes that pods wait for, and the attacher of CSI volumes.
//!
//! A kubelet reports the first and starts no pod before its volumes are attached. The last is the task of a CSI driver;
//! without one, every attachment would wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keleustes_objects::{ArcStr, InternedStr, Key, Object as _, PersistentVolumeClaim, StorageClass};

use super::{Engine, Writer};
use crate::behaviour::VolumeBehaviour;
use crate::projections::{Attachment, CsiDriver, PodClaim, Volume};
use crate::storage::attacher::Attacher;

/// Known volumes and attachments.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// CSI volumes that are bound.
    known: BTreeMap<ArcStr, BoundVolume>,
    /// CSI drivers whose volumes are mounted without being attached.
    without_attach: BTreeSet<InternedStr>,
    /// Unique volume name by claim, of the volumes that have to be attached.
    of_claim: BTreeMap<Key, ArcStr>,
    /// Pods that use a claim, and their nodes.
    users: BTreeMap<Key, BTreeMap<Key, InternedStr>>,
    /// VolumeAttachments to hollow nodes.
    pub(super) attacher: Attacher,
}

/// A volume that is bound to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BoundVolume {
    claim: Key,
    driver: InternedStr,
    unique_name: ArcStr,
}

impl Volumes {
    /// Whether a volume of one of these claims is not attached to the node of the pod.
    pub(super) fn are_missing(
        &self,
        namespace: &InternedStr,
        claims: &[PodClaim],
        attached: &BTreeSet<ArcStr>,
    ) -> bool {
        let mut volumes = claims.iter().filter_map(|claim| self.of_claim.get(&claim.key(namespace)));
        volumes.any(|volume| !attached.contains(volume))
    }
}

impl Engine {
    /// Applies a complete list of volumes.
    pub(crate) fn replace_volumes(&mut self, volumes: &[Volume], now: Timestamp) {
        let current: BTreeSet<&ArcStr> = volumes.iter().map(|volume| &volume.key().name).collect();
        let known = self.volumes.known.keys().chain(self.claims.volumes());
        let deleted: BTreeSet<ArcStr> = known.filter(|name| !current.contains(*name)).cloned().collect();
        deleted.iter().for_each(|name| self.forget_volume(name, now));
        volumes.iter().for_each(|volume| self.observe_volume(volume, now));
    }

    /// Applies an added or updated volume.
    pub(crate) fn observe_volume(&mut self, volume: &Volume, now: Timestamp) {
        let name = &volume.key().name;
        self.claims.observe_volume(volume);
        self.on_claim_event();
        self.volumes.attacher.set_behaviour(name, volume.behaviour.clone());
        for attachment in self.volumes.attacher.attachments_of(name) {
            self.update_queue(&Writer::Attachment(attachment), now);
        }
        let (Some(claim), Some((driver, unique_name))) = (&volume.claim, &volume.csi) else {
            self.release_volume(name, now);
            return;
        };
        let bound =
            BoundVolume { claim: claim.clone(), driver: driver.clone(), unique_name: unique_name.clone() };
        if self.volumes.known.get(name) != Some(&bound) {
            self.release_volume(name, now);
            self.volumes.known.insert(name.clone(), bound.clone());
            self.use_attachment(&bound, now);
        }
    }

    /// Pods that use the claim of a volume wait for its attachment, if its driver needs one.
    fn use_attachment(&mut self, bound: &BoundVolume, now: Timestamp) {
        if self.volumes.without_attach.contains(&bound.driver) {
            self.drop_attachment(bound, now);
        } else {
            self.volumes.of_claim.insert(bound.claim.clone(), bound.unique_name.clone());
            self.report_volumes_of(&bound.claim, now);
        }
        self.update_queue_of_users(&bound.claim, now);
    }

    fn drop_attachment(&mut self, bound: &BoundVolume, now: Timestamp) {
        if self.volumes.of_claim.get(&bound.claim) == Some(&bound.unique_name) {
            self.volumes.of_claim.remove(&bound.claim);
        }
        self.report_volumes_of(&bound.claim, now);
    }

    /// Applies a complete list of CSI drivers.
    pub(crate) fn replace_csi_drivers(&mut self, drivers: &[CsiDriver], now: Timestamp) {
        let current: BTreeSet<&str> = drivers.iter().map(|driver| driver.key().name.as_str()).collect();
        let deleted = self.volumes.without_attach.iter().filter(|name| !current.contains(name.as_str()));
        for name in deleted.cloned().collect::<Vec<_>>() {
            self.set_attach_required(&name, true, now);
        }
        drivers.iter().for_each(|driver| self.observe_csi_driver(driver, now));
    }

    /// Applies an added or updated CSI driver.
    pub(crate) fn observe_csi_driver(&mut self, driver: &CsiDriver, now: Timestamp) {
        let name = InternedStr::from(driver.key().name.as_str());
        self.set_attach_required(&name, driver.is_attach_required, now);
    }

    /// Applies a deleted CSI driver: without one, volumes are attached.
    pub(crate) fn forget_csi_driver(&mut self, name: &ArcStr, now: Timestamp) {
        self.set_attach_required(&InternedStr::from(name.as_str()), true, now);
    }

    fn set_attach_required(&mut self, driver: &InternedStr, is_required: bool, now: Timestamp) {
        let changed = if is_required {
            self.volumes.without_attach.remove(driver)
        } else {
            self.volumes.without_attach.insert(driver.clone())
        };
        let of_driver = self.volumes.known.values().filter(|bound| changed && bound.driver == *driver);
        for bound in of_driver.cloned().collect::<Vec<_>>() {
            self.use_attachment(&bound, now);
        }
    }

    /// Claims and classes are watched: pods wait for their claims.
    pub(crate) fn watch_claims(&mut self) {
        self.claims.watch();
    }

    /// Applies a complete list of claims.
    pub(crate) fn replace_claims(&mut self, claims: Vec<PersistentVolumeClaim>, now: Timestamp) {
        for changed in self.claims.replace_claims(claims) {
            self.on_claim_changed(&changed, now);
        }
        self.update_queue_of_waiting(now);
    }

    /// Applies an added or updated claim.
    pub(crate) fn observe_claim(&mut self, claim: PersistentVolumeClaim, now: Timestamp) {
        let key = claim.key().clone();
        if self.claims.was_given_up(&claim) {
            for pod in self.pods_that_bind(&key) {
                self.give_up_binding(&pod);
            }
        }
        self.claims.observe_claim(claim);
        self.on_claim_changed(&key, now);
    }

    /// Applies a deleted claim.
    pub(crate) fn forget_claim(&mut self, key: &Key, now: Timestamp) {
        self.claims.forget_claim(key);
        self.on_claim_changed(key, now);
    }

    /// Applies a complete list of classes.
    pub(crate) fn replace_classes(&mut self, classes: Vec<StorageClass>, now: Timestamp) {
        self.claims.replace_classes(classes);
        self.on_claim_event();
        self.update_queue_of_waiting(now);
    }

    /// Applies an added or updated class.
    pub(crate) fn observe_class(&mut self, class: StorageClass) {
        self.claims.observe_class(class);
        self.on_claim_event();
    }

    /// Applies a deleted class.
    pub(crate) fn forget_class(&mut self, name: &ArcStr) {
        self.claims.forget_class(name);
    }

    fn on_claim_changed(&mut self, claim: &Key, now: Timestamp) {
        self.update_queue_of_users(claim, now);
        self.on_claim_event();
        for pod in self.pods_that_bind(claim) {
            self.update_queue(&Writer::Scheduling(pod), now);
        }
    }

    fn on_claim_event(&mut self) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.on_claim_event();
        }
    }

    /// Pods that have a node and wait until this claim is bound.
    fn pods_that_bind(&self, claim: &Key) -> Vec<Key> {
        let decisions = self.decisions.values();
        let binding = decisions.filter(|decision| decision.claims.iter().any(|(one, _)| one == claim));
        binding.map(|decision| decision.key.clone()).collect()
    }

    /// Pods that did not know what they have to wait for.
    fn update_queue_of_users(&mut self, claim: &Key, now: Timestamp) {
        let pods: Vec<Key> =
            self.volumes.users.get(claim).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        pods.into_iter().for_each(|pod| self.update_queue(&Writer::Pod(pod), now));
    }

    /// Applies a deleted volume.
    pub(crate) fn forget_volume(&mut self, name: &ArcStr, now: Timestamp) {
        self.claims.forget_volume(name);
        self.on_claim_event();
        self.release_volume(name, now);
        // No annotation could end a delay or an error of a volume that is gone.
        self.volumes.attacher.set_behaviour(name, VolumeBehaviour::default());
        for attachment in self.volumes.attacher.attachments_of(name) {
            self.update_queue(&Writer::Attachment(attachment), now);
        }
    }

    fn release_volume(&mut self, name: &ArcStr, now: Timestamp) {
        if let Some(bound) = self.volumes.known.remove(name) {
            self.drop_attachment(&bound, now);
        }
    }

    /// Applies a complete list of attachments.
    pub(crate) fn replace_attachments(&mut self, attachments: &[Attachment], now: Timestamp) {
        self.volumes.attacher.clear();
        attachments.iter().for_each(|attachment| self.observe_attachment(attachment, now));
    }

    /// Applies an added or updated attachment.
    pub(crate) fn observe_attachment(&mut self, attachment: &Attachment, now: Timestamp) {
        let name = attachment.key().name.clone();
        if self.hollow_nodes.contains_key(&attachment.node) {
            self.volumes.attacher.observe(attachment, now);
        } else {
            self.volumes.attacher.forget(&name);
        }
        self.update_queue(&Writer::Attachment(name), now);
    }

    /// Applies a deleted attachment.
    pub(crate) fn forget_attachment(&mut self, name: &ArcStr) {
        self.volumes.attacher.forget(name);
    }

    /// Records that a pod uses claims.
    pub(super) fn use_claims(&mut self, pod: &Key, node: &InternedStr, claims: &[PodClaim], now: Timestamp) {
        for claim in claims {
            let claim = claim.key(&pod.namespace);
            self.volumes.users.entry(claim).or_default().insert(pod.clone(), node.clone());
        }
        if !claims.is_empty() {
            self.report_volumes(node, now);
        }
    }

    /// Records that a pod no longer uses claims.
    pub(super) fn drop_claims(&mut self, pod: &Key, node: &InternedStr, claims: &[PodClaim], now: Timestamp) {
        for claim in claims {
            let claim = claim.key(&pod.namespace);
            if let Some(users) = self.volumes.users.get_mut(&claim) {
                users.remove(pod);
                if users.is_empty() {
                    self.volumes.users.remove(&claim);
                }
            }
        }
        if !claims.is_empty() {
            self.report_volumes(node, now);
        }
    }

    fn report_volumes_of(&mut self, claim: &Key, now: Timestamp) {
        let users = self.volumes.users.get(claim);
        let nodes: BTreeSet<InternedStr> = users.into_iter().flat_map(BTreeMap::values).cloned().collect();
        nodes.iter().for_each(|node| self.report_volumes(node, now));
    }

    fn report_volumes(&mut self, node: &InternedStr, now: Timestamp) {
        let Some(hollow_node) = self.hollow_nodes.get_mut(node) else { return };
        let mut used = BTreeSet::new();
        for pod in &hollow_node.pods {
            let claims = self.pods.get(pod).filter(|record| record.holds_resources);
            for claim in claims.iter().flat_map(|record| &record.claims) {
                used.extend(self.volumes.of_claim.get(&claim.key(&pod.namespace)).cloned());
            }
        }
        if hollow_node.set_volumes_in_use(used) {
            self.update_queue(&Writer::Node(node.clone()), now);
        }
    }
}
