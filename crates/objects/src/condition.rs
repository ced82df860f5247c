//! Conditions as every kind but Pod keeps them: whole, so that a status can be written back.

use serde::{Deserialize, Serialize};

use crate::{ArcStr, InternedStr, Time};

/// Fields of the API that this program does not know; they are written back as they were read.
pub type Unknown = serde_json::Map<String, serde_json::Value>;

/// The value of a condition that holds.
pub const TRUE: &str = "True";
/// The value of a condition that does not hold.
pub const FALSE: &str = "False";
/// The value of a condition of which nobody can tell whether it holds.
pub const UNKNOWN: &str = "Unknown";

/// One condition of a status. Kinds use different times; those that a kind has not are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What is said to hold or not.
    pub r#type: InternedStr,
    /// `True`, `False` or `Unknown`.
    pub status: InternedStr,
    /// Why, in a word.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: InternedStr,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: ArcStr,
    /// When `status` changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Deployments: when anything of it changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Jobs and Pods: when it was looked at last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// Nodes: when the kubelet reported it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// Pods: the generation it was said of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What else it says.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Condition {
    /// A condition that came to be so at a moment.
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

    /// Whether it holds.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == TRUE
    }
}

/// Looking conditions up by what they speak of.
pub trait Conditions {
    /// The first condition of a type.
    fn of_type(&self, r#type: &str) -> Option<&Condition>;

    /// Whether there is a condition of that type and it holds.
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
    fn a_condition_is_written_back_as_it_was_read() {
        let text = r#"{"type":"Ready","status":"True","reason":"KubeletReady","message":"ok","lastTransitionTime":"2026-01-01T00:00:00Z","lastHeartbeatTime":"2026-01-02T00:00:00Z","sinceWhen":{"a":1}}"#;
        let condition: Condition = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&condition).unwrap(), text);
        assert!([condition].is_condition_true("Ready"));
        let null: Condition =
            serde_json::from_str(r#"{"type":"A","status":"False","lastProbeTime":null}"#).unwrap();
        assert_eq!(serde_json::to_string(&null).unwrap(), r#"{"type":"A","status":"False"}"#);
    }
}
