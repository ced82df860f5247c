//! PersistentVolumeClaims: what binding, protection and expansion read.

use std::sync::LazyLock;

use serde::Deserialize;

use super::persistent_volume::{ResourceList, kept_annotations};
use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::Message;
use crate::{
    Annotations, ArcStr, Condition, InternedStr, Kind, LabelSelector, Object, ObjectMeta, Resource, WireMeta,
};

/// A PersistentVolumeClaim.
///
/// Writers edit the live object, because a PUT of this projection would drop fields.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct PersistentVolumeClaim {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its annotations, without kubectl's last applied configuration.
    pub annotations: Annotations,
    /// Its spec.
    pub spec: PersistentVolumeClaimSpec,
    /// `Pending`, `Bound` or `Lost`.
    pub phase: InternedStr,
    /// The rest of its status.
    pub status: PersistentVolumeClaimStatus,
}

/// The spec of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// `accessModes`.
    #[serde(deserialize_with = "null_is_empty")]
    pub access_modes: Box<[InternedStr]>,
    /// `selector`.
    pub selector: Option<Box<LabelSelector>>,
    /// `resources`.
    #[serde(deserialize_with = "null_is_default")]
    pub resources: VolumeResourceRequirements,
    /// `volumeName`; empty until the claim is bound or names its volume.
    pub volume_name: ArcStr,
    /// `storageClassName`; unset and empty differ.
    pub storage_class_name: Option<InternedStr>,
    /// `volumeMode`; unset means `Filesystem`.
    pub volume_mode: Option<InternedStr>,
    /// Whether `dataSource` is set.
    #[serde(rename = "dataSource", deserialize_with = "is_set")]
    pub has_data_source: bool,
    /// `volumeAttributesClassName`; unset and empty are equal.
    pub volume_attributes_class_name: Option<InternedStr>,
}

/// `resources` of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeResourceRequirements {
    /// `requests`.
    pub requests: ResourceList,
}

/// The status of a claim without its phase.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimStatus {
    /// `accessModes`.
    #[serde(deserialize_with = "null_is_empty")]
    pub access_modes: Box<[InternedStr]>,
    /// `capacity`.
    pub capacity: ResourceList,
    /// `conditions`.
    #[serde(deserialize_with = "null_is_empty")]
    pub conditions: Box<[Condition]>,
    /// `allocatedResources`.
    pub allocated_resources: ResourceList,
    /// `allocatedResourceStatuses`.
    pub allocated_resource_statuses: Annotations,
    /// `currentVolumeAttributesClassName`.
    pub current_volume_attributes_class_name: Option<InternedStr>,
    /// `modifyVolumeStatus`.
    pub modify_volume_status: Option<ModifyVolumeStatus>,
}

/// `status.modifyVolumeStatus` of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModifyVolumeStatus {
    /// The VolumeAttributesClass that the volume is being changed to.
    pub target_volume_attributes_class_name: InternedStr,
    /// How far the change has come.
    pub status: InternedStr,
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &PersistentVolumeClaim::RESOURCE,
        "
        spec {
            accessModes selector storageClassName volumeAttributesClassName volumeMode volumeName
            dataSource { }
            resources { requests }
        }
        status {
            accessModes allocatedResourceStatuses allocatedResources capacity currentVolumeAttributesClassName phase
            conditions
            modifyVolumeStatus { targetVolumeAttributesClassName status }
        }
        ",
    )
});

impl Object for PersistentVolumeClaim {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for PersistentVolumeClaim {
    const RESOURCE: Resource = Resource::built_in("", "PersistentVolumeClaim");
}

impl PersistentVolumeClaim {
    /// The storage class: the beta annotation if it exists, else `spec.storageClassName`, else empty.
    ///
    /// Parity: `GetPersistentVolumeClaimClass`.
    #[must_use]
    pub fn class(&self) -> &str {
        let annotation = self.annotations.value(super::annotations::BETA_STORAGE_CLASS);
        annotation
            .map(ArcStr::as_str)
            .or(self.spec.storage_class_name.as_ref().map(InternedStr::as_str))
            .unwrap_or_default()
    }

    /// The names of the VolumeAttributesClasses that it refers to, without repetition.
    pub fn volume_attributes_classes(&self) -> impl Iterator<Item = &InternedStr> {
        let target = self.status.modify_volume_status.as_ref();
        let names = [
            self.spec.volume_attributes_class_name.as_ref(),
            self.status.current_volume_attributes_class_name.as_ref(),
            target.map(|modify| &modify.target_volume_attributes_class_name),
        ];
        let is_first = move |at: usize| !names[..at].contains(&names[at]);
        (0..names.len())
            .filter(move |at| is_first(*at))
            .filter_map(move |at| names[at])
            .filter(|name| !name.is_empty())
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: PersistentVolumeClaimSpec,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    phase: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    access_modes: Box<[InternedStr]>,
    capacity: ResourceList,
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[Condition]>,
    allocated_resources: ResourceList,
    allocated_resource_statuses: Annotations,
    current_volume_attributes_class_name: Option<InternedStr>,
    modify_volume_status: Option<ModifyVolumeStatus>,
}

impl From<Wire> for PersistentVolumeClaim {
    fn from(mut wire: Wire) -> Self {
        let annotations = kept_annotations(std::mem::take(&mut wire.metadata.annotations));
        let status = wire.status;
        Self {
            meta: wire.metadata.into(),
            annotations,
            spec: wire.spec,
            phase: status.phase,
            status: PersistentVolumeClaimStatus {
                access_modes: status.access_modes,
                capacity: status.capacity,
                conditions: status.conditions,
                allocated_resources: status.allocated_resources,
                allocated_resource_statuses: status.allocated_resource_statuses,
                current_volume_attributes_class_name: status.current_volume_attributes_class_name,
                modify_volume_status: status.modify_volume_status,
            },
        }
    }
}

/// Whether a field is set to anything but `null`.
fn is_set<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<serde::de::IgnoredAny>::deserialize(deserializer).map(|value| value.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_decoded() {
        let claim: PersistentVolumeClaim = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "c", "namespace": "a", "annotations": {
                "volume.beta.kubernetes.io/storage-class": "old",
                "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "dataSource": {"kind": "x"},
                     "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"a": "b"}},
                     "volumeAttributesClassName": "gold"},
            "status": {"phase": "Bound", "capacity": {"storage": "1024Mi"}, "conditions": null,
                       "currentVolumeAttributesClassName": "gold",
                       "modifyVolumeStatus": {"targetVolumeAttributesClassName": "iron", "status": "Pending"}},
        }))
        .unwrap();
        assert_eq!((claim.class(), claim.annotations.len()), ("old", 1));
        assert_eq!(claim.spec.storage_class_name.as_deref(), Some(""));
        assert!(claim.spec.has_data_source && claim.spec.selector.is_some());
        assert_eq!(claim.spec.resources.requests.storage(), claim.status.capacity.storage());
        assert_eq!(claim.volume_attributes_classes().collect::<Vec<_>>(), ["gold", "iron"]);
        let bare: PersistentVolumeClaim =
            serde_json::from_str(r#"{"metadata":{"name":"c"},"spec":null,"status":null}"#).unwrap();
        assert!(bare.class().is_empty() && bare.spec.storage_class_name.is_none());
        assert_eq!(bare.volume_attributes_classes().count(), 0);
    }
}
