//! A stand-in for the external attacher of every CSI driver: it sets VolumeAttachments to attached, and lets deleted ones go.
//!
//! Annotations of the PersistentVolume delay an operation or let it fail. The attacher serves attachments to hollow nodes,
//! whether these are alive or not: the storage system does not depend on them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ArcStr, InternedStr, Key, Object as _};
use serde_json::{Value, json};

use crate::behaviour::VolumeBehaviour;
use crate::clock::after;
use crate::projections::Attachment;

/// The finalizer that keeps a VolumeAttachment until its volume is detached.
const FINALIZER: &str = "external-attacher/hollow";

/// VolumeAttachments and the behaviour of volumes.
#[derive(Debug, Default)]
pub(crate) struct Attacher {
    known: BTreeMap<ArcStr, Known>,
    behaviours: BTreeMap<ArcStr, VolumeBehaviour>,
}

/// A VolumeAttachment as last observed.
#[derive(Debug)]
struct Known {
    attachment: Attachment,
    /// Since when it waits for the operation that it needs.
    since: Timestamp,
    /// A request was sent whose watch event has not come yet.
    is_sent: bool,
}

/// What a VolumeAttachment needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    Finalizer,
    Attach,
    Detach,
}

impl Known {
    fn need(&self) -> Option<Need> {
        let has_finalizer = self.attachment.meta.finalizers.iter().any(|one| *one == FINALIZER);
        let is_terminating = self.attachment.meta.deletion_timestamp.is_some();
        match (is_terminating, has_finalizer, self.attachment.is_attached) {
            (true, true, _) => Some(Need::Detach),
            (false, false, _) => Some(Need::Finalizer),
            (false, true, false) => Some(Need::Attach),
            (true, false, _) | (false, true, true) => None,
        }
    }
}

impl Attacher {
    /// Applies the annotations of a volume.
    pub(crate) fn set_behaviour(&mut self, volume: &ArcStr, behaviour: VolumeBehaviour) {
        if behaviour == VolumeBehaviour::default() {
            self.behaviours.remove(volume);
        } else {
            self.behaviours.insert(volume.clone(), behaviour);
        }
    }

    /// The volumes whose VolumeAttachments may behave differently now.
    pub(crate) fn attachments_of(&self, volume: &ArcStr) -> Vec<ArcStr> {
        let of_it = self.known.iter().filter(|(_, known)| known.attachment.volume == *volume);
        of_it.map(|(name, _)| name.clone()).collect()
    }

    /// Applies an added or updated VolumeAttachment.
    pub(crate) fn observe(&mut self, attachment: &Attachment, now: Timestamp) {
        let name = attachment.key().name.clone();
        let mut known = Known { attachment: attachment.clone(), since: now, is_sent: false };
        if let Some(before) = self.known.get(&name).filter(|before| before.need() == known.need()) {
            known.since = before.since;
        }
        self.known.insert(name, known);
    }

    /// Applies a deleted VolumeAttachment.
    pub(crate) fn forget(&mut self, name: &ArcStr) {
        self.known.remove(name);
    }

    /// Forgets all of them, before a list.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    fn behaviour(&self, known: &Known) -> VolumeBehaviour {
        self.behaviours.get(&known.attachment.volume).cloned().unwrap_or_default()
    }

    /// When a VolumeAttachment needs a request; `None` if it needs none.
    pub(crate) fn due(&self, name: &ArcStr) -> Option<Timestamp> {
        let known = self.known.get(name).filter(|known| !known.is_sent)?;
        let behaviour = self.behaviour(known);
        let is_reported =
            |error: &Option<ArcStr>, reported: &Option<ArcStr>| error.is_some() && error == reported;
        match known.need()? {
            Need::Finalizer => Some(known.since),
            Need::Attach if is_reported(&behaviour.attach_error, &known.attachment.attach_error) => None,
            Need::Attach => Some(after(known.since, behaviour.attach_delay.unwrap_or_default())),
            Need::Detach if is_reported(&behaviour.detach_error, &known.attachment.detach_error) => None,
            Need::Detach => Some(after(known.since, behaviour.detach_delay.unwrap_or_default())),
        }
    }

    /// The request that a VolumeAttachment needs now.
    pub(crate) fn call(&mut self, name: &ArcStr, now: Timestamp) -> Option<Call> {
        if self.due(name).is_none_or(|due| due > now) {
            return None;
        }
        let known = self.known.get(name)?;
        let behaviour = self.behaviour(known);
        let call = match known.need()? {
            Need::Finalizer => metadata_call(known, &with_finalizer(&known.attachment)),
            Need::Attach => status_call(
                known,
                &match &behaviour.attach_error {
                    Some(message) => json!({"attached": false, "attachError": error(message, now)}),
                    None => json!({"attached": true, "attachError": null}),
                },
            ),
            Need::Detach => match &behaviour.detach_error {
                Some(message) => status_call(known, &json!({"detachError": error(message, now)})),
                None => metadata_call(known, &without_finalizer(&known.attachment)),
            },
        };
        self.known.get_mut(name)?.is_sent = true;
        Some(call)
    }

    /// A request failed and is to be repeated.
    pub(crate) fn on_failed(&mut self, name: &ArcStr) {
        if let Some(known) = self.known.get_mut(name) {
            known.is_sent = false;
        }
    }
}

fn error(message: &str, now: Timestamp) -> Value {
    json!({"message": message, "time": crate::clock::stamp(now)})
}

fn with_finalizer(attachment: &Attachment) -> Vec<InternedStr> {
    attachment.meta.finalizers.iter().cloned().chain([FINALIZER.into()]).collect()
}

fn without_finalizer(attachment: &Attachment) -> Vec<InternedStr> {
    attachment.meta.finalizers.iter().filter(|one| **one != FINALIZER).cloned().collect()
}

fn metadata_call(known: &Known, finalizers: &[InternedStr]) -> Call {
    let meta = &known.attachment.meta;
    // The list is replaced as a whole, so it must be the one that was observed.
    let patch = json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}});
    Call::patch(&Attachment::RESOURCE, &Key::cluster(meta.key.name.clone()), PatchType::Merge, &patch)
}

fn status_call(known: &Known, status: &Value) -> Call {
    let meta = &known.attachment.meta;
    let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
    let key = Key::cluster(meta.key.name.clone());
    Call::patch(&Attachment::RESOURCE, &key, PatchType::Merge, &patch).subresource("status")
}
