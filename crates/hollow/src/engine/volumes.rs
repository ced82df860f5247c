//! Which volumes the pods of each node use, and which attachments are still to be reported done.
//!
//! A kubelet reports the former. The latter is the part of a storage driver; without one, nothing that
//! waits for an attachment would go on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ArcStr, InternedStr, Key, Object as _};
use serde_json::json;

use super::{Engine, Who};
use crate::seen::{Attachment, Volume};

/// What is known of volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// Volumes that nodes attach, and the claims they are bound to.
    known: BTreeMap<ArcStr, (Key, ArcStr)>,
    /// What nodes call the volume of a claim.
    of_claim: BTreeMap<Key, ArcStr>,
    /// On which nodes pods use a claim.
    users: BTreeMap<Key, BTreeMap<Key, InternedStr>>,
    /// Attachments to our nodes that nobody has reported done.
    unattached: BTreeMap<ArcStr, InternedStr>,
}

impl Engine {
    /// These are all volumes.
    pub(crate) fn replace_volumes(&mut self, volumes: &[Volume], now: Timestamp) {
        let there: BTreeSet<&ArcStr> = volumes.iter().map(|volume| &volume.key().name).collect();
        let gone = self.volumes.known.keys().filter(|name| !there.contains(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.forget_volume(&name, now);
        }
        volumes.iter().for_each(|volume| self.observe_volume(volume, now));
    }

    /// A volume is new or has changed.
    pub(crate) fn observe_volume(&mut self, volume: &Volume, now: Timestamp) {
        let name = &volume.key().name;
        let (Some(claim), Some(unique)) = (&volume.claim, &volume.unique_name) else {
            self.forget_volume(name, now);
            return;
        };
        if self.volumes.known.get(name).is_none_or(|known| (&known.0, &known.1) != (claim, unique)) {
            self.forget_volume(name, now);
            self.volumes.known.insert(name.clone(), (claim.clone(), unique.clone()));
            self.volumes.of_claim.insert(claim.clone(), unique.clone());
            self.report_volumes_of(claim, now);
        }
    }

    /// A volume is gone.
    pub(crate) fn forget_volume(&mut self, name: &ArcStr, now: Timestamp) {
        if let Some((claim, unique)) = self.volumes.known.remove(name) {
            if self.volumes.of_claim.get(&claim) == Some(&unique) {
                self.volumes.of_claim.remove(&claim);
            }
            self.report_volumes_of(&claim, now);
        }
    }

    /// These are all attachments.
    pub(crate) fn replace_attachments(&mut self, attachments: &[Attachment], now: Timestamp) {
        self.volumes.unattached.clear();
        attachments.iter().for_each(|attachment| self.observe_attachment(attachment, now));
    }

    /// An attachment is new or has changed.
    pub(crate) fn observe_attachment(&mut self, attachment: &Attachment, now: Timestamp) {
        let name = attachment.key().name.clone();
        let is_ours = self.machines.contains_key(&attachment.node);
        if is_ours && !attachment.is_attached && attachment.meta.deletion_timestamp.is_none() {
            self.volumes.unattached.insert(name.clone(), attachment.node.clone());
        } else {
            self.volumes.unattached.remove(&name);
        }
        self.look_at(&Who::Attachment(name), now);
    }

    /// An attachment is gone.
    pub(crate) fn forget_attachment(&mut self, name: &ArcStr) {
        self.volumes.unattached.remove(name);
    }

    /// A pod on a node has begun to use claims.
    pub(super) fn use_claims(&mut self, pod: &Key, node: &InternedStr, claims: &[ArcStr], now: Timestamp) {
        for claim in claims {
            let claim = Key { namespace: pod.namespace.clone(), name: claim.clone() };
            self.volumes.users.entry(claim).or_default().insert(pod.clone(), node.clone());
        }
        if !claims.is_empty() {
            self.report_volumes(node, now);
        }
    }

    /// A pod on a node does not use its claims any more.
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
        let Some(machine) = self.machines.get_mut(node) else { return };
        let mut used = BTreeSet::new();
        for pod in &machine.pods {
            let claims = self.pods.get(pod).filter(|record| record.holds);
            for claim in claims.iter().flat_map(|record| &record.claims) {
                let claim = Key { namespace: pod.namespace.clone(), name: claim.clone() };
                used.extend(self.volumes.of_claim.get(&claim).cloned());
            }
        }
        if machine.set_volumes_in_use(used) {
            self.look_at(&Who::Node(node.clone()), now);
        }
    }

    /// Whether an attachment to a living node waits to be reported done.
    pub(super) fn awaits_attachment(&self, name: &ArcStr) -> bool {
        let node = self.volumes.unattached.get(name);
        node.and_then(|node| self.machines.get(node)).is_some_and(|machine| machine.is_alive)
    }

    pub(super) fn grant_attachment(&mut self, name: &ArcStr) -> Option<(InternedStr, Call)> {
        if !self.awaits_attachment(name) {
            return None;
        }
        let node = self.volumes.unattached.remove(name)?;
        let patch = json!({"status": {"attached": true}});
        let key = Key::cluster(name.clone());
        let call = Call::patch(&Attachment::RESOURCE, &key, PatchType::Merge, &patch).subresource("status");
        Some((node, call))
    }

    pub(super) fn await_attachment(&mut self, name: &ArcStr, node: InternedStr) {
        self.volumes.unattached.insert(name.clone(), node);
    }
}
