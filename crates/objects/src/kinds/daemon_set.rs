//! Daemon sets.

use serde::{Deserialize, Serialize};

use super::annotations;
use super::whole::whole_kind;
use crate::meta::null_is_default;
use crate::{Condition, IntOrString, InternedStr, LabelSelector, PodTemplate, Resource, Unknown};

whole_kind! {
    /// A daemon set.
    DaemonSet, DaemonSetSpec, DaemonSetStatus,
    Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet")
}

/// What is wanted of a daemon set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// Which pods are its own.
    pub selector: Option<LabelSelector>,
    /// What pods are made from.
    pub template: PodTemplate,
    /// How old pods are replaced.
    pub update_strategy: DaemonSetUpdateStrategy,
    /// For how long a pod must be ready to be available.
    pub min_ready_seconds: i32,
    /// How many old revisions are kept; all if it does not say.
    pub revision_history_limit: Option<i32>,
}

/// How a daemon set replaces old pods.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetUpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    pub r#type: InternedStr,
    /// How many nodes may be without a pod, or have two, meanwhile.
    pub rolling_update: Option<RollingUpdateDaemonSet>,
}

/// How many nodes may be without a pod, or have two, while a daemon set rolls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateDaemonSet {
    /// How many nodes may be without.
    pub max_unavailable: Option<IntOrString>,
    /// How many nodes may have two.
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

/// What is the case with a daemon set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// How many nodes that should have a pod have one.
    pub current_number_scheduled: i32,
    /// How many nodes that should not have a pod have one.
    pub number_misscheduled: i32,
    /// How many nodes should have a pod.
    pub desired_number_scheduled: i32,
    /// How many nodes have a pod that is ready.
    pub number_ready: i32,
    /// The generation that this was said of.
    pub observed_generation: i64,
    /// How many nodes have a pod of the newest template.
    pub updated_number_scheduled: i32,
    /// How many nodes have a pod that has been ready for long enough.
    pub number_available: i32,
    /// How many nodes that should have such a pod have none.
    pub number_unavailable: i32,
    /// How often the name of a revision was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Its conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What else it says.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl DaemonSet {
    /// How often its template has changed, if that can be read.
    #[must_use]
    pub fn template_generation(&self) -> Option<i64> {
        self.rest.annotations.value(annotations::TEMPLATE_GENERATION)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves DS-16.
    #[test]
    fn a_daemon_set_is_read() {
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
