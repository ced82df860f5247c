//! Volumes in use per node, volumes that pods wait for, and the attacher of CSI volumes.
//!
//! A kubelet reports the first and starts no pod before its volumes are attached. The last is the task of a CSI driver;
//! without one, every attachment would wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keleustes_objects::{ArcStr, InternedStr, Key, Object as _};

use super::{Engine, Writer};
use crate::projections::{Attachment, Volume};
use crate::storage::attacher::Attacher;

/// Known volumes and attachments.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// Attachable volumes: the claim they are bound to and their unique name.
    known: BTreeMap<ArcStr, (Key, ArcStr)>,
    /// Unique volume name by claim.
    of_claim: BTreeMap<Key, ArcStr>,
    /// Pods that use a claim, and their nodes.
    users: BTreeMap<Key, BTreeMap<Key, InternedStr>>,
    /// VolumeAttachments to hollow nodes.
    pub(super) attacher: Attacher,
}

impl Volumes {
    /// Whether a volume of one of these claims is not attached to the node of the pod. Every CSI volume is attachable here.
    pub(super) fn are_missing(
        &self,
        namespace: &InternedStr,
        claims: &[ArcStr],
        attached: &BTreeSet<ArcStr>,
    ) -> bool {
        claims.iter().any(|claim| {
            let claim = Key { namespace: namespace.clone(), name: claim.clone() };
            self.of_claim.get(&claim).is_some_and(|volume| !attached.contains(volume))
        })
    }
}

impl Engine {
    /// Applies a complete list of volumes.
    pub(crate) fn replace_volumes(&mut self, volumes: &[Volume], now: Timestamp) {
        let current: BTreeSet<&ArcStr> = volumes.iter().map(|volume| &volume.key().name).collect();
        let deleted = self.volumes.known.keys().filter(|name| !current.contains(*name));
        for name in deleted.cloned().collect::<Vec<_>>() {
            self.forget_volume(&name, now);
        }
        volumes.iter().for_each(|volume| self.observe_volume(volume, now));
    }

    /// Applies an added or updated volume.
    pub(crate) fn observe_volume(&mut self, volume: &Volume, now: Timestamp) {
        let name = &volume.key().name;
        self.volumes.attacher.set_behaviour(name, volume.behaviour.clone());
        for attachment in self.volumes.attacher.attachments_of(name) {
            self.update_queue(&Writer::Attachment(attachment), now);
        }
        let (Some(claim), Some(unique)) = (&volume.claim, &volume.unique_name) else {
            self.forget_volume(name, now);
            return;
        };
        if self.volumes.known.get(name).is_none_or(|known| (&known.0, &known.1) != (claim, unique)) {
            self.forget_volume(name, now);
            self.volumes.known.insert(name.clone(), (claim.clone(), unique.clone()));
            self.volumes.of_claim.insert(claim.clone(), unique.clone());
            self.report_volumes_of(claim, now);
            self.update_queue_of_users(claim, now);
        }
    }

    /// Pods that did not know what they have to wait for.
    fn update_queue_of_users(&mut self, claim: &Key, now: Timestamp) {
        let pods: Vec<Key> =
            self.volumes.users.get(claim).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        pods.into_iter().for_each(|pod| self.update_queue(&Writer::Pod(pod), now));
    }

    /// Applies a deleted volume.
    pub(crate) fn forget_volume(&mut self, name: &ArcStr, now: Timestamp) {
        if let Some((claim, unique)) = self.volumes.known.remove(name) {
            if self.volumes.of_claim.get(&claim) == Some(&unique) {
                self.volumes.of_claim.remove(&claim);
            }
            self.report_volumes_of(&claim, now);
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
    pub(super) fn use_claims(&mut self, pod: &Key, node: &InternedStr, claims: &[ArcStr], now: Timestamp) {
        for claim in claims {
            let claim = Key { namespace: pod.namespace.clone(), name: claim.clone() };
            self.volumes.users.entry(claim).or_default().insert(pod.clone(), node.clone());
        }
        if !claims.is_empty() {
            self.report_volumes(node, now);
        }
    }

    /// Records that a pod no longer uses claims.
    pub(super) fn drop_claims(&mut self, pod: &Key, node: &InternedStr, claims: &[ArcStr], now: Timestamp) {
        for claim in claims {
            let claim = Key { namespace: pod.namespace.clone(), name: claim.clone() };
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
                let claim = Key { namespace: pod.namespace.clone(), name: claim.clone() };
                used.extend(self.volumes.of_claim.get(&claim).cloned());
            }
        }
        if hollow_node.set_volumes_in_use(used) {
            self.update_queue(&Writer::Node(node.clone()), now);
        }
    }
}
