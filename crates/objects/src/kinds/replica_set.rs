//! ReplicaSets.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::protobuf::FullMessage;
use crate::{Condition, Kind, LabelSelector, PodTemplate, Resource, UnknownFields};

spec_status_kind! {
    /// A ReplicaSet.
    ReplicaSet, ReplicaSetSpec, ReplicaSetStatus,
    Resource::built_in("apps", "ReplicaSet"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&ReplicaSet::RESOURCE, ""));

/// The spec of a ReplicaSet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// The desired number of pods.
    pub replicas: i32,
    /// How long a pod must be ready to count as available.
    pub min_ready_seconds: i32,
    /// The selector of its pods; absent selects none.
    pub selector: Option<LabelSelector>,
    /// The pod template.
    pub template: PodTemplate,
}

/// The API's defaults.
impl Default for ReplicaSetSpec {
    fn default() -> Self {
        Self { replicas: 1, min_ready_seconds: 0, selector: None, template: PodTemplate::default() }
    }
}

/// The status of a ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// The number of pods.
    pub replicas: i32,
    /// The number of pods with all labels of the template.
    pub fully_labeled_replicas: i32,
    /// The number of ready pods.
    pub ready_replicas: i32,
    /// The number of available pods.
    pub available_replicas: i32,
    /// The number of terminating pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The `metadata.generation` that this status is based on.
    pub observed_generation: i64,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FullMeta as _;

    #[test]
    fn a_replica_set_is_decoded_and_its_status_written_back() {
        let template = r#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c"}]}}"#;
        let set: ReplicaSet = serde_json::from_str(&format!(
            r#"{{"metadata":{{"name":"web-1","namespace":"a","generation":4,"annotations":{{"deployment.kubernetes.io/revision":"1"}}}},
                "spec":{{"replicas":3,"selector":{{"matchLabels":{{"app":"web"}}}},"template":{template}}},
                "status":{{"replicas":3,"observedGeneration":4,"terminatingReplicas":0,"fresh":true,
                           "conditions":[{{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","new":1}}]}}}}"#
        ))
        .unwrap();
        assert_eq!((set.spec.replicas, set.spec.template.raw()), (3, template));
        assert!(set.spec.selector.as_ref().unwrap().matcher().unwrap().matches(set.spec.template.labels()));
        assert_eq!(
            set.annotations().value("deployment.kubernetes.io/revision").map(|text| text.as_str()),
            Some("1")
        );
        let status = serde_json::to_value(&set.status).unwrap();
        assert_eq!((&status["fresh"], &status["conditions"][0]["new"]), (&true.into(), &1.into()));
        assert_eq!(status["terminatingReplicas"], 0);
        let bare: ReplicaSet = serde_json::from_str(r#"{"metadata":{"name":"r"}}"#).unwrap();
        assert_eq!((bare.spec.replicas, bare.status.terminating_replicas), (1, None));
    }
}
