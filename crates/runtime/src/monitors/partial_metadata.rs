//! The metadata that an observer needs; labels and annotations are not even allocated.

use std::sync::LazyLock;

use keleustes_objects::protobuf::{self, Message};
use keleustes_objects::{
    ArcStr, InternedList, InternedStr, Key, Object, ObjectMeta, OwnerReference, ResourceVersion, Time, Uid,
};
use serde::Deserialize;

/// The metadata of an object, without labels.
#[derive(Deserialize)]
#[serde(from = "Wire")]
pub(super) struct PartialObjectMetadata(ObjectMeta);

impl Object for PartialObjectMetadata {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&protobuf::PARTIAL);

    fn meta(&self) -> &ObjectMeta {
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
    name: ArcStr,
    namespace: InternedStr,
    uid: Uid,
    resource_version: ResourceVersion,
    deletion_timestamp: Option<Time>,
    owner_references: InternedList<OwnerReference>,
    finalizers: InternedList<InternedStr>,
}

impl From<Wire> for PartialObjectMetadata {
    fn from(wire: Wire) -> Self {
        let wire = wire.metadata;
        Self(ObjectMeta {
            key: Key { namespace: wire.namespace, name: wire.name },
            uid: wire.uid,
            resource_version: wire.resource_version,
            deletion_timestamp: wire.deletion_timestamp,
            owner_references: wire.owner_references,
            finalizers: wire.finalizers,
            ..ObjectMeta::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::Encoded;

    use super::*;

    fn record(field: u8, content: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    #[test]
    fn metadata_is_the_same_from_json_and_protobuf() {
        const { assert!(PartialObjectMetadata::SUPPORTS_PROTOBUF, "these watches carry the most events") };
        let owner = [record(1, b"Widget"), record(3, b"o"), record(4, b"u2"), record(5, b"a/v1")].concat();
        let fields: [(u8, &[u8]); 6] =
            [(1, b"b"), (3, b"a"), (5, b"u1"), (6, b"4"), (13, &owner), (14, b"orphan")];
        let metadata: Vec<u8> = fields.iter().flat_map(|(field, content)| record(*field, content)).collect();
        let message = record(1, &metadata);
        let json = r#"{"metadata": {"name": "b", "namespace": "a", "uid": "u1", "resourceVersion": "4",
            "ownerReferences": [{"apiVersion": "a/v1", "kind": "Widget", "name": "o", "uid": "u2"}],
            "finalizers": ["orphan"]}}"#;
        let read: PartialObjectMetadata = Encoded::Protobuf(&message).read().unwrap();
        assert_eq!(read.0, Encoded::Json(json).read::<PartialObjectMetadata>().unwrap().0);
        assert_eq!((read.0.owner_references.len(), read.0.finalizers.len()), (1, 1));
    }
}
