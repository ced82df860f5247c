//! Distinguishes the writes of a controller from those of other clients.

use keleustes_objects::{EndpointSlice, Key, ObjectMeta, ResourceVersion, Uid};
use keleustes_plan::View;

/// A write of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnWrite {
    /// The write created or updated the slice, with this resourceVersion.
    Version(ResourceVersion),
    /// The write deleted the slice.
    Deleted,
}

/// Writes of one item that the cache has not shown yet.
#[derive(Clone, Default)]
pub(crate) struct PendingWrites(Vec<(Uid, OwnWrite)>);

impl PendingWrites {
    pub(crate) fn record(&mut self, object: Uid, written: OwnWrite) {
        self.0.push((object, written));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a change or deletion of an object in the cache is one of these writes. The record of the write is dropped
    /// once it is observed.
    pub(crate) fn observe(&mut self, object: &ObjectMeta, is_deleted: bool) -> bool {
        let Some(at) = self.0.iter().position(|(uid, _)| *uid == object.uid) else { return false };
        match &self.0[at].1 {
            OwnWrite::Deleted if is_deleted => {
                self.0.swap_remove(at);
                true
            }
            // The cache may still show an older version of the object.
            OwnWrite::Deleted => true,
            OwnWrite::Version(_) if is_deleted => false,
            OwnWrite::Version(version) => {
                let (is_it, is_later) =
                    (object.resource_version == *version, version.is_older_than(&object.resource_version));
                if is_it || is_later {
                    self.0.swap_remove(at);
                }
                !is_later
            }
        }
    }
}

/// Whether the cache already shows a write of a slice.
pub(crate) fn is_observed(view: &View<'_>, slice: &Key, uid: &Uid, written: &OwnWrite) -> bool {
    match (view.get::<EndpointSlice>(slice), written) {
        (Some(slice), OwnWrite::Version(version)) => {
            slice.meta.uid == *uid && !slice.meta.resource_version.is_older_than(version)
        }
        (Some(slice), OwnWrite::Deleted) => slice.meta.uid != *uid,
        (None, written) => *written == OwnWrite::Deleted,
    }
}
