//! What an observer of everything needs of an object; labels and annotations are not even allocated.

use keleustes_objects::{Key, Meta, Object, OwnerRef, SharedList, Text, Time, Uid, Version, Word};
use serde::Deserialize;

/// The metadata of an object, without labels.
#[derive(Deserialize)]
#[serde(from = "Wire")]
pub(super) struct Bare(Meta);

impl Object for Bare {
    fn meta(&self) -> &Meta {
        &self.0
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Text,
    namespace: Word,
    uid: Uid,
    resource_version: Version,
    deletion_timestamp: Option<Time>,
    owner_references: SharedList<OwnerRef>,
    finalizers: SharedList<Word>,
}

impl From<Wire> for Bare {
    fn from(wire: Wire) -> Self {
        let wire = wire.metadata;
        Self(Meta {
            key: Key { namespace: wire.namespace, name: wire.name },
            uid: wire.uid,
            version: wire.resource_version,
            deleted_at: wire.deletion_timestamp,
            owners: wire.owner_references,
            finalizers: wire.finalizers,
            ..Meta::default()
        })
    }
}
