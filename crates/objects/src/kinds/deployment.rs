//! Deployments.

use serde::{Deserialize, Serialize};

use super::whole::whole_kind;
use crate::meta::null_is_default;
use crate::{Condition, IntOrString, InternedStr, LabelSelector, PodTemplate, Resource, Unknown};

whole_kind! {
    /// A deployment.
    Deployment, DeploymentSpec, DeploymentStatus,
    Resource::namespaced("apps", "v1", "deployments", "Deployment"),
    &crate::protobuf::DEPLOYMENT
}

/// What is wanted of a deployment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// How many pods.
    pub replicas: i32,
    /// Which replica sets are its own.
    pub selector: Option<LabelSelector>,
    /// What pods are made from.
    pub template: PodTemplate,
    /// How old pods are replaced.
    pub strategy: DeploymentStrategy,
    /// For how long a pod must be ready to be available.
    pub min_ready_seconds: i32,
    /// How many old replica sets are kept; all if it does not say.
    pub revision_history_limit: Option<i32>,
    /// Whether no rollout is wanted for now.
    pub paused: bool,
    /// For how long a rollout may stand still; for ever if it does not say.
    pub progress_deadline_seconds: Option<i32>,
}

/// How a deployment replaces old pods.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStrategy {
    /// `RollingUpdate` or `Recreate`.
    pub r#type: InternedStr,
    /// How many pods may be missing or surplus meanwhile.
    pub rolling_update: Option<RollingUpdateDeployment>,
}

/// How many pods may be missing or surplus while a deployment rolls.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateDeployment {
    /// How many may be missing.
    pub max_unavailable: Option<IntOrString>,
    /// How many may be surplus.
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

/// What is the case with a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation that this was said of.
    pub observed_generation: i64,
    /// How many pods there are.
    pub replicas: i32,
    /// How many of them are of the newest template.
    pub updated_replicas: i32,
    /// How many of them are ready.
    pub ready_replicas: i32,
    /// How many of them have been ready for long enough.
    pub available_replicas: i32,
    /// How many are missing.
    pub unavailable_replicas: i32,
    /// How many are going away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Its conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How often the name of a replica set was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// What else it says.
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_read() {
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
