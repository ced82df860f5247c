//! Deployments.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::protobuf::FullMessage;
use crate::{Condition, IntOrString, InternedStr, Kind, LabelSelector, PodTemplate, Resource, UnknownFields};

spec_status_kind! {
    /// A Deployment.
    Deployment, DeploymentSpec, DeploymentStatus,
    Resource::built_in("apps", "Deployment"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&Deployment::RESOURCE, ""));

/// The spec of a Deployment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// The desired number of pods.
    pub replicas: i32,
    /// The selector of its ReplicaSets and pods.
    pub selector: Option<LabelSelector>,
    /// The pod template.
    pub template: PodTemplate,
    /// The update strategy.
    pub strategy: DeploymentStrategy,
    /// How long a pod must be ready to count as available.
    pub min_ready_seconds: i32,
    /// The number of old ReplicaSets to keep; all if unset.
    pub revision_history_limit: Option<i32>,
    /// Whether rollouts are paused.
    pub paused: bool,
    /// How long a rollout may make no progress; without limit if unset.
    pub progress_deadline_seconds: Option<i32>,
}

/// The strategy of a Deployment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStrategy {
    /// `RollingUpdate` or `Recreate`.
    pub r#type: InternedStr,
    /// The bounds of a rolling update.
    pub rolling_update: Option<RollingUpdateDeployment>,
}

/// The bounds of a rolling update of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateDeployment {
    /// How many pods may be unavailable.
    pub max_unavailable: Option<IntOrString>,
    /// How many pods may exist beyond `replicas`.
    pub max_surge: Option<IntOrString>,
}

/// The API's defaults.
impl Default for DeploymentSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            selector: None,
            template: PodTemplate::default(),
            strategy: DeploymentStrategy::default(),
            min_ready_seconds: 0,
            revision_history_limit: Some(10),
            paused: false,
            progress_deadline_seconds: Some(600),
        }
    }
}

/// The API's defaults.
impl Default for DeploymentStrategy {
    fn default() -> Self {
        let quarter = || Some(IntOrString::from("25%"));
        let rolling_update = RollingUpdateDeployment { max_unavailable: quarter(), max_surge: quarter() };
        Self { r#type: "RollingUpdate".into(), rolling_update: Some(rolling_update) }
    }
}

/// The status of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The `metadata.generation` that this status is based on.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i32,
    /// The number of pods of the current template.
    pub updated_replicas: i32,
    /// The number of ready pods.
    pub ready_replicas: i32,
    /// The number of available pods.
    pub available_replicas: i32,
    /// The number of unavailable pods.
    pub unavailable_replicas: i32,
    /// The number of terminating pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The number of name collisions of ReplicaSets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_decoded() {
        let deployment: Deployment = serde_json::from_str(
            r#"{"metadata":{"name":"web","namespace":"a","generation":2},
                "spec":{"replicas":0,"paused":true,"revisionHistoryLimit":null,"selector":{},
                        "strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}},
                        "template":{"spec":{}}},
                "status":{"collisionCount":0,"conditions":null}}"#,
        )
        .unwrap();
        let spec = &deployment.spec;
        assert!(spec.paused && spec.selector.as_ref().unwrap().is_empty());
        assert_eq!((spec.replicas, spec.revision_history_limit), (0, None));
        let rolling = spec.strategy.rolling_update.as_ref().unwrap();
        assert_eq!((&rolling.max_surge, &rolling.max_unavailable), (&Some(1.into()), &None));
        assert_eq!(deployment.status.collision_count, Some(0));
    }

    /// Proves DEP-10.
    #[test]
    fn what_a_deployment_does_not_say_is_as_the_api_has_it() {
        let bare: Deployment = serde_json::from_str(r#"{"metadata":{"name":"r"}}"#).unwrap();
        let spec = &bare.spec;
        assert_eq!(
            (spec.replicas, spec.revision_history_limit, spec.progress_deadline_seconds),
            (1, Some(10), Some(600))
        );
        let rolling = spec.strategy.rolling_update.as_ref().unwrap();
        assert_eq!(spec.strategy.r#type, "RollingUpdate");
        assert_eq!(
            (&rolling.max_surge, &rolling.max_unavailable),
            (&Some("25%".into()), &Some("25%".into()))
        );
    }
}
