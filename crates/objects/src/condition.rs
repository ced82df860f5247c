//! Status conditions of all kinds except Pod, with all fields, so that a status can be written back.

use serde::{Deserialize, Serialize};

use crate::{ArcStr, InternedStr, Time};

/// Fields that this program does not know; they are written back unchanged.
pub type UnknownFields = serde_json::Map<String, serde_json::Value>;

/// Status of a condition that is true.
pub const TRUE: &str = "True";
/// Status of a condition that is false.
pub const FALSE: &str = "False";
/// Status of a condition that cannot be determined.
pub const UNKNOWN: &str = "Unknown";

/// A condition. Kinds have different timestamps; those that a kind lacks are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The condition type.
    pub r#type: InternedStr,
    /// `True`, `False` or `Unknown`.
    pub status: InternedStr,
    /// A CamelCase reason.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: InternedStr,
    /// A message for people.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: ArcStr,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Deployments: when the condition was last updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Jobs and Pods: when the condition was last probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// Nodes: when the kubelet last reported the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// Pods: the `metadata.generation` that the condition is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl Condition {
    /// A condition whose status changed at this time.
    #[must_use]
    pub fn new(r#type: &str, status: &str, reason: &str, message: &str, at: Time) -> Self {
        Self {
            r#type: r#type.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: Some(at),
            ..Self::default()
        }
    }

    /// Whether the status is `True`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == TRUE
    }
}

/// Lookup of conditions by type.
pub trait Conditions {
    /// The first condition of a type.
    fn of_type(&self, r#type: &str) -> Option<&Condition>;

    /// Whether a condition of this type exists with status `True`.
    fn is_condition_true(&self, r#type: &str) -> bool {
        self.of_type(r#type).is_some_and(Condition::is_true)
    }
}

impl Conditions for [Condition] {
    fn of_type(&self, r#type: &str) -> Option<&Condition> {
        self.iter().find(|condition| condition.r#type == r#type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_written_back_unchanged() {
        let text = r#"{"type":"Ready","status":"True","reason":"KubeletReady","message":"ok","lastTransitionTime":"2026-01-01T00:00:00Z","lastHeartbeatTime":"2026-01-02T00:00:00Z","sinceWhen":{"a":1}}"#;
        let condition: Condition = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&condition).unwrap(), text);
        assert!([condition].is_condition_true("Ready"));
        let null: Condition =
            serde_json::from_str(r#"{"type":"A","status":"False","lastProbeTime":null}"#).unwrap();
        assert_eq!(serde_json::to_string(&null).unwrap(), r#"{"type":"A","status":"False"}"#);
    }
}
