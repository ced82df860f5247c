//! Stateful sets.

use serde::{Deserialize, Serialize};

use super::whole::whole_kind;
use crate::meta::{null_is_default, null_is_empty};
use crate::{
    ArcStr, Condition, IntOrString, InternedStr, LabelSelector, Labels, PodTemplate, RawJson, Resource,
    Unknown,
};

whole_kind! {
    /// A stateful set.
    StatefulSet, StatefulSetSpec, StatefulSetStatus,
    Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet")
}

/// What is wanted of a stateful set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// How many pods.
    pub replicas: i32,
    /// Which pods are its own.
    pub selector: Option<LabelSelector>,
    /// What pods are made from.
    pub template: PodTemplate,
    /// What the claims of each pod are made from.
    #[serde(deserialize_with = "null_is_empty")]
    pub volume_claim_templates: Box<[VolumeClaimTemplate]>,
    /// The domain of its pods.
    pub service_name: InternedStr,
    /// `OrderedReady` or `Parallel`.
    pub pod_management_policy: InternedStr,
    /// How old pods are replaced.
    pub update_strategy: StatefulSetUpdateStrategy,
    /// How many old revisions are kept; all if it does not say.
    pub revision_history_limit: Option<i32>,
    /// For how long a pod must be ready to be available.
    pub min_ready_seconds: i32,
    /// What becomes of claims nobody needs any more.
    #[serde(deserialize_with = "null_is_default")]
    pub persistent_volume_claim_retention_policy: ClaimRetentionPolicy,
    /// Where its ordinals start.
    #[serde(deserialize_with = "null_is_default")]
    pub ordinals: Ordinals,
}

/// What a claim of each pod is made from: the text as the server sent it, and what is asked of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "RawJson")]
pub struct VolumeClaimTemplate {
    /// The text as the server sent it.
    pub raw: RawJson,
    /// The name of the template and of the volume that mounts the claim.
    pub name: InternedStr,
    /// Labels of the claims.
    pub labels: Labels,
}

/// How a stateful set replaces old pods.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetUpdateStrategy {
    /// `RollingUpdate`, `OnDelete` or `Recreate`.
    pub r#type: InternedStr,
    /// Which pods are replaced, and how many at once. Absent differs from empty.
    #[serde(default)]
    pub rolling_update: Option<RollingUpdateStatefulSet>,
}

/// Which pods of a stateful set are replaced, and how many at once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateStatefulSet {
    /// Pods below this index keep the old revision.
    pub partition: Option<i32>,
    /// How many may be missing.
    pub max_unavailable: Option<IntOrString>,
}

/// What becomes of claims nobody needs any more.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRetentionPolicy {
    /// When the set is deleted: `Retain` or `Delete`.
    pub when_deleted: InternedStr,
    /// When the set is scaled down: `Retain` or `Delete`.
    pub when_scaled: InternedStr,
}

/// Where the ordinals of a stateful set start.
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

/// What is the case with a stateful set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The generation that this was said of.
    pub observed_generation: i64,
    /// How many pods there are.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready_replicas: i32,
    /// How many of them are of the current revision.
    pub current_replicas: i32,
    /// How many of them are of the update revision.
    pub updated_replicas: i32,
    /// The revision that pods below the partition have.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub current_revision: ArcStr,
    /// The revision that is being rolled out.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub update_revision: ArcStr,
    /// How often the name of a revision was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Its conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How many pods have been ready for long enough.
    pub available_replicas: i32,
    /// What else it says.
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stateful_set_is_read() {
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
    fn what_a_stateful_set_does_not_say_is_as_the_api_has_it() {
        let strategy = |spec: &str| {
            let text = format!(r#"{{"metadata":{{"name":"r"}},"spec":{spec}}}"#);
            serde_json::from_str::<StatefulSet>(&text).unwrap().spec.update_strategy
        };
        let unsaid = strategy("{}").rolling_update.unwrap();
        assert_eq!((unsaid.partition, unsaid.max_unavailable), (Some(0), Some(1.into())));
        assert_eq!(strategy(r#"{"updateStrategy":{"type":"RollingUpdate"}}"#).rolling_update, None);
        let bare = StatefulSetSpec::default();
        assert_eq!((bare.replicas, bare.revision_history_limit), (1, Some(10)));
        assert_eq!(bare.pod_management_policy, "OrderedReady");
        let policy = bare.persistent_volume_claim_retention_policy;
        assert_eq!((&*policy.when_scaled, &*policy.when_deleted), ("Retain", "Retain"));
    }
}
