//! DaemonSets.

use serde::{Deserialize, Serialize};

use super::annotations;
use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::{Condition, IntOrString, InternedStr, LabelSelector, PodTemplate, Resource, UnknownFields};

spec_status_kind! {
    /// A DaemonSet.
    DaemonSet, DaemonSetSpec, DaemonSetStatus,
    Resource::built_in("apps", "DaemonSet")
}

/// The spec of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// The selector of its pods.
    pub selector: Option<LabelSelector>,
    /// The pod template.
    pub template: PodTemplate,
    /// The update strategy.
    pub update_strategy: DaemonSetUpdateStrategy,
    /// How long a pod must be ready to count as available.
    pub min_ready_seconds: i32,
    /// The number of old revisions to keep; all if unset.
    pub revision_history_limit: Option<i32>,
}

/// The update strategy of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetUpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    pub r#type: InternedStr,
    /// The bounds of a rolling update.
    pub rolling_update: Option<RollingUpdateDaemonSet>,
}

/// The bounds of a rolling update of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateDaemonSet {
    /// How many nodes may be without an available pod.
    pub max_unavailable: Option<IntOrString>,
    /// How many nodes may run an old and a new pod.
    pub max_surge: Option<IntOrString>,
}

/// The API's defaults.
impl Default for DaemonSetSpec {
    fn default() -> Self {
        Self {
            selector: None,
            template: PodTemplate::default(),
            update_strategy: DaemonSetUpdateStrategy::default(),
            min_ready_seconds: 0,
            revision_history_limit: Some(10),
        }
    }
}

/// The API's defaults.
impl Default for DaemonSetUpdateStrategy {
    fn default() -> Self {
        Self { r#type: "RollingUpdate".into(), rolling_update: Some(RollingUpdateDaemonSet::default()) }
    }
}

/// The API's defaults.
impl Default for RollingUpdateDaemonSet {
    fn default() -> Self {
        Self { max_unavailable: Some(1.into()), max_surge: Some(0.into()) }
    }
}

/// The status of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// The number of nodes that should run the pod and do.
    pub current_number_scheduled: i32,
    /// The number of nodes that run the pod and should not.
    pub number_misscheduled: i32,
    /// The number of nodes that should run the pod.
    pub desired_number_scheduled: i32,
    /// The number of nodes with a ready pod.
    pub number_ready: i32,
    /// The `metadata.generation` that this status is based on.
    pub observed_generation: i64,
    /// The number of nodes with a pod of the current template.
    pub updated_number_scheduled: i32,
    /// The number of nodes with an available pod.
    pub number_available: i32,
    /// The number of nodes that should run the pod and have no available one.
    pub number_unavailable: i32,
    /// The number of name collisions of ControllerRevisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl DaemonSet {
    /// The template generation from the annotation, if it is a number.
    #[must_use]
    pub fn template_generation(&self) -> Option<i64> {
        self.extra_meta.annotations.value(annotations::TEMPLATE_GENERATION)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves DS-16.
    #[test]
    fn a_daemon_set_is_decoded() {
        let set: DaemonSet = serde_json::from_str(
            r#"{"metadata":{"name":"agent","annotations":{"deprecated.daemonset.template.generation":"7"}},
                "spec":{"selector":{"matchLabels":{"app":"agent"}},"template":{"spec":{"nodeName":"n1"}},
                        "updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"10%","maxUnavailable":0}}},
                "status":{"numberMisscheduled":2}}"#,
        )
        .unwrap();
        assert_eq!(set.template_generation(), Some(7));
        let rolling = set.spec.update_strategy.rolling_update.as_ref().unwrap();
        assert_eq!((&rolling.max_surge, &rolling.max_unavailable), (&Some("10%".into()), &Some(0.into())));
        assert_eq!(set.spec.template.placement().unwrap().node_name, "n1");
        assert_eq!(set.status.number_misscheduled, 2);
        let bare: DaemonSet = serde_json::from_str(r#"{"metadata":{"name":"r"},"spec":{}}"#).unwrap();
        assert_eq!(bare.spec, DaemonSetSpec::default());
        assert_eq!(bare.spec.revision_history_limit, Some(10));
        let rolling = bare.spec.update_strategy.rolling_update.as_ref().unwrap();
        assert_eq!((&rolling.max_surge, &rolling.max_unavailable), (&Some(0.into()), &Some(1.into())));
        assert_eq!(bare.template_generation(), None);
    }
}
