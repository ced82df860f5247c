//! StorageClasses: provisioner, policies and whether a class is the default.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::meta::null_is_empty;
use crate::protobuf::Message;
use crate::{Annotations, ArcStr, InternedStr, Kind, Object, ObjectMeta, Resource, WireMeta};

/// A StorageClass.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct StorageClass {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `provisioner`.
    pub provisioner: InternedStr,
    /// `reclaimPolicy`; unset means `Delete`.
    pub reclaim_policy: Option<InternedStr>,
    /// `mountOptions`.
    pub mount_options: Box<[ArcStr]>,
    /// `volumeBindingMode`; the API server sets a default.
    pub volume_binding_mode: Option<InternedStr>,
    /// Whether one of the annotations marks it as the default class.
    pub is_default: bool,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(&StorageClass::RESOURCE, "mountOptions provisioner reclaimPolicy volumeBindingMode")
});

impl Object for StorageClass {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for StorageClass {
    const RESOURCE: Resource = Resource::built_in("storage.k8s.io", "StorageClass");
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default)]
    provisioner: InternedStr,
    #[serde(default)]
    reclaim_policy: Option<InternedStr>,
    #[serde(default, deserialize_with = "null_is_empty")]
    mount_options: Box<[ArcStr]>,
    #[serde(default)]
    volume_binding_mode: Option<InternedStr>,
}

impl From<Wire> for StorageClass {
    fn from(mut wire: Wire) -> Self {
        let annotations = std::mem::take(&mut wire.metadata.annotations);
        let marks = super::annotations::IS_DEFAULT_STORAGE_CLASS;
        Self {
            meta: wire.metadata.into(),
            provisioner: wire.provisioner,
            reclaim_policy: wire.reclaim_policy,
            mount_options: wire.mount_options,
            volume_binding_mode: wire.volume_binding_mode,
            is_default: marks.iter().any(|key| annotations.value(key).is_some_and(|value| *value == *"true")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_class_is_decoded() {
        let read = |key: &str, value: &str| -> StorageClass {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "fast", "annotations": {key: value}}, "provisioner": "d", "mountOptions": null,
                "reclaimPolicy": "Retain", "volumeBindingMode": "Immediate"}))
            .unwrap()
        };
        assert!(read("storageclass.kubernetes.io/is-default-class", "true").is_default);
        assert!(read("storageclass.beta.kubernetes.io/is-default-class", "true").is_default);
        assert!(!read("storageclass.kubernetes.io/is-default-class", "True").is_default);
        assert!(!read("example.com/is-default-class", "true").is_default);
    }
}
