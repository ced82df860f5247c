//! StatefulSets.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::{null_is_default, null_is_empty};
use crate::{
    ArcStr, Condition, IntOrString, InternedStr, LabelSelector, Labels, PodTemplate, RawJson, Resource,
    UnknownFields,
};

spec_status_kind! {
    /// A StatefulSet.
    StatefulSet, StatefulSetSpec, StatefulSetStatus,
    Resource::built_in("apps", "StatefulSet")
}

/// The spec of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// The desired number of pods.
    pub replicas: i32,
    /// The selector of its pods.
    pub selector: Option<LabelSelector>,
    /// The pod template.
    pub template: PodTemplate,
    /// The PVC templates of each pod. The API server accepts several of one name, of which the last one counts.
    #[serde(deserialize_with = "last_of_each_name")]
    pub volume_claim_templates: Box<[VolumeClaimTemplate]>,
    /// The governing Service of its pods.
    pub service_name: InternedStr,
    /// `OrderedReady` or `Parallel`.
    pub pod_management_policy: InternedStr,
    /// The update strategy.
    pub update_strategy: StatefulSetUpdateStrategy,
    /// The number of old revisions to keep; all if unset.
    pub revision_history_limit: Option<i32>,
    /// How long a pod must be ready to count as available.
    pub min_ready_seconds: i32,
    /// When the PVCs of its pods are deleted.
    #[serde(deserialize_with = "null_is_default")]
    pub persistent_volume_claim_retention_policy: ClaimRetentionPolicy,
    /// The first ordinal.
    #[serde(deserialize_with = "null_is_default")]
    pub ordinals: Ordinals,
}

/// A PVC template: the JSON as the server sent it, and the fields that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "RawJson")]
pub struct VolumeClaimTemplate {
    /// The JSON as the server sent it.
    pub raw: RawJson,
    /// The name of the template and of the volume that mounts the PVC.
    pub name: InternedStr,
    /// The labels of the PVCs.
    pub labels: Labels,
}

/// Parity: pkg/controller/statefulset/stateful_set_utils.go, `getPersistentVolumeClaims`, a map by name.
fn last_of_each_name<'de, D: Deserializer<'de>>(input: D) -> Result<Box<[VolumeClaimTemplate]>, D::Error> {
    let templates: Box<[VolumeClaimTemplate]> = null_is_empty(input)?;
    let last: BTreeMap<InternedStr, usize> =
        templates.iter().enumerate().map(|(at, template)| (template.name.clone(), at)).collect();
    if last.len() == templates.len() {
        return Ok(templates);
    }
    let numbered = templates.into_vec().into_iter().enumerate();
    Ok(numbered.filter(|(at, template)| last[&template.name] == *at).map(|(_, template)| template).collect())
}

/// The update strategy of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetUpdateStrategy {
    /// `RollingUpdate`, `OnDelete` or `Recreate`.
    pub r#type: InternedStr,
    /// The parameters of a rolling update. Absent differs from empty.
    #[serde(default)]
    pub rolling_update: Option<RollingUpdateStatefulSet>,
}

/// The parameters of a rolling update of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateStatefulSet {
    /// Pods with a smaller ordinal keep the current revision.
    pub partition: Option<i32>,
    /// How many pods may be unavailable.
    pub max_unavailable: Option<IntOrString>,
}

/// When the PVCs of a StatefulSet are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRetentionPolicy {
    /// On deletion of the StatefulSet: `Retain` or `Delete`.
    pub when_deleted: InternedStr,
    /// On scale-down: `Retain` or `Delete`.
    pub when_scaled: InternedStr,
}

/// The ordinals of a StatefulSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The first ordinal.
    pub start: i32,
}

/// The API's defaults.
impl Default for StatefulSetSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            selector: None,
            template: PodTemplate::default(),
            volume_claim_templates: Box::default(),
            service_name: InternedStr::default(),
            pod_management_policy: "OrderedReady".into(),
            update_strategy: StatefulSetUpdateStrategy::default(),
            revision_history_limit: Some(10),
            min_ready_seconds: 0,
            persistent_volume_claim_retention_policy: ClaimRetentionPolicy::default(),
            ordinals: Ordinals::default(),
        }
    }
}

/// The API's defaults.
impl Default for StatefulSetUpdateStrategy {
    fn default() -> Self {
        let rolling_update = RollingUpdateStatefulSet { partition: Some(0), max_unavailable: Some(1.into()) };
        Self { r#type: "RollingUpdate".into(), rolling_update: Some(rolling_update) }
    }
}

/// The API's defaults.
impl Default for ClaimRetentionPolicy {
    fn default() -> Self {
        Self { when_deleted: "Retain".into(), when_scaled: "Retain".into() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaimTemplate {
    metadata: Option<WireClaimMetadata>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireClaimMetadata {
    name: InternedStr,
    labels: Labels,
}

impl TryFrom<RawJson> for VolumeClaimTemplate {
    type Error = serde_json::Error;

    fn try_from(raw: RawJson) -> Result<Self, serde_json::Error> {
        let wire: WireClaimTemplate = serde_json::from_str(raw.as_str())?;
        let metadata = wire.metadata.unwrap_or_default();
        Ok(Self { raw, name: metadata.name, labels: metadata.labels })
    }
}

/// The status of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The `metadata.generation` that this status is based on.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i32,
    /// The number of ready pods.
    pub ready_replicas: i32,
    /// The number of pods of the current revision.
    pub current_replicas: i32,
    /// The number of pods of the update revision.
    pub updated_replicas: i32,
    /// The revision of the pods below the partition.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub current_revision: ArcStr,
    /// The revision that is being rolled out.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub update_revision: ArcStr,
    /// The number of name collisions of ControllerRevisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The number of available pods.
    pub available_replicas: i32,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stateful_set_is_decoded() {
        let claim = r#"{"kind":"PersistentVolumeClaim","metadata":{"name":"data","labels":{"a":"b"}},"spec":{"x":1}}"#;
        let set: StatefulSet = serde_json::from_str(&format!(
            r#"{{"metadata":{{"name":"db","namespace":"a"}},
                "spec":{{"replicas":3,"serviceName":"db","podManagementPolicy":"Parallel","ordinals":{{"start":5}},
                        "updateStrategy":{{"type":"RollingUpdate"}},"volumeClaimTemplates":[{claim}],
                        "persistentVolumeClaimRetentionPolicy":{{"whenDeleted":"Delete"}}}},
                "status":{{"currentRevision":"db-1","updateRevision":"db-2","replicas":3}}}}"#
        ))
        .unwrap();
        let spec = &set.spec;
        assert_eq!((spec.volume_claim_templates[0].name.as_str(), spec.ordinals.start), ("data", 5));
        assert_eq!(spec.volume_claim_templates[0].raw.as_str(), claim);
        let policy = &spec.persistent_volume_claim_retention_policy;
        assert_eq!((policy.when_deleted.as_str(), policy.when_scaled.as_str()), ("Delete", "Retain"));
        assert_eq!((&*set.status.current_revision, &*set.status.update_revision), ("db-1", "db-2"));
    }

    /// Proves STS-10, STS-11.
    #[test]
    fn a_stateful_set_has_the_api_defaults() {
        let strategy = |spec: &str| {
            let text = format!(r#"{{"metadata":{{"name":"r"}},"spec":{spec}}}"#);
            serde_json::from_str::<StatefulSet>(&text).unwrap().spec.update_strategy
        };
        let unset = strategy("{}").rolling_update.unwrap();
        assert_eq!((unset.partition, unset.max_unavailable), (Some(0), Some(1.into())));
        assert_eq!(strategy(r#"{"updateStrategy":{"type":"RollingUpdate"}}"#).rolling_update, None);
        let bare = StatefulSetSpec::default();
        assert_eq!((bare.replicas, bare.revision_history_limit), (1, Some(10)));
        assert_eq!(bare.pod_management_policy, "OrderedReady");
        let policy = bare.persistent_volume_claim_retention_policy;
        assert_eq!((&*policy.when_scaled, &*policy.when_deleted), ("Retain", "Retain"));
    }
}
