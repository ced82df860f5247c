//! Taints and tolerations.

use serde::{Deserialize, Serialize};

use crate::{InternedStr, Time};

/// Pods that do not tolerate the taint are not scheduled.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Pods that do not tolerate the taint are not scheduled, and are evicted if they run on the node.
pub const NO_EXECUTE: &str = "NoExecute";

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// The taint key.
    pub key: InternedStr,
    /// The taint value.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: InternedStr,
    /// The effect on pods that do not tolerate it.
    pub effect: InternedStr,
    /// When it was added; `NoExecute` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The taint's key; empty for any.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub key: InternedStr,
    /// `Equal` (also if empty), `Exists`, `Lt` or `Gt`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub operator: InternedStr,
    /// The operand of the operator.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: InternedStr,
    /// The taint's effect; empty for any.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub effect: InternedStr,
    /// How long a `NoExecute` taint is tolerated; without limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Taint {
    /// Whether key and effect match; they identify a taint.
    #[must_use]
    pub fn is(&self, key: &str, effect: &str) -> bool {
        self.key == key && self.effect == effect
    }
}

impl Toleration {
    /// Whether it tolerates a taint. `enable_comparison_operators` is the feature gate
    /// `TaintTolerationComparisonOperators`: without it `Lt` and `Gt` tolerate nothing.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint, enable_comparison_operators: bool) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect
            || !self.key.is_empty() && self.key != taint.key
        {
            return false;
        }
        match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Lt" if enable_comparison_operators => {
                compares(&taint.value, &self.value, |taint, limit| taint < limit)
            }
            "Gt" if enable_comparison_operators => {
                compares(&taint.value, &self.value, |taint, limit| taint > limit)
            }
            _ => false,
        }
    }
}

fn compares(taint: &str, toleration: &str, holds: fn(i64, i64) -> bool) -> bool {
    canonical(taint).zip(canonical(toleration)).is_some_and(|(taint, toleration)| holds(taint, toleration))
}

/// Parses a decimal integer in its canonical spelling only.
fn canonical(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
}

/// The first toleration that tolerates a taint.
#[must_use]
pub fn first_that_tolerates<'a>(
    tolerations: &'a [Toleration],
    taint: &Taint,
    enable_comparison_operators: bool,
) -> Option<&'a Toleration> {
    tolerations.iter().find(|toleration| toleration.tolerates(taint, enable_comparison_operators))
}

/// Keys of taints that the cluster itself sets or reads.
pub mod taint_keys {
    /// The node is not ready.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// The node controller has lost contact with the kubelet.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    /// `spec.unschedulable` is set.
    pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
    /// The node runs out of memory.
    pub const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
    /// The node runs out of disk.
    pub const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
    /// The node runs out of process ids.
    pub const PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
    /// The network of the node is not set up.
    pub const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
    /// An administrator declares that the node is shut down and will not recover.
    pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tolerates(toleration: &str, taint: &str, enable_comparison_operators: bool) -> bool {
        let toleration: Toleration = serde_json::from_str(toleration).unwrap();
        let taint: Taint = serde_json::from_str(taint).unwrap();
        toleration.tolerates(&taint, enable_comparison_operators)
    }

    /// Proves TE-15.
    #[test]
    fn effect_key_and_operator_must_all_match() {
        let taint = r#"{"key":"gpu","value":"yes","effect":"NoExecute"}"#;
        for (toleration, fits) in [
            (r#"{"key":"gpu","value":"yes","effect":"NoExecute"}"#, true),
            (r#"{"key":"gpu","operator":"Equal","value":"yes"}"#, true),
            (r#"{"key":"gpu","operator":"Equal","value":"no"}"#, false),
            (r#"{"key":"gpu","operator":"Exists"}"#, true),
            (r#"{"operator":"Exists"}"#, true),
            (r#"{"key":"cpu","operator":"Exists"}"#, false),
            (r#"{"key":"gpu","operator":"Exists","effect":"NoSchedule"}"#, false),
            (r#"{"key":"gpu","operator":"Near","value":"yes"}"#, false),
            (r#"{"value":"yes"}"#, true),
        ] {
            assert_eq!(tolerates(toleration, taint, false), fits, "{toleration}");
        }
    }

    /// Proves TE-16.
    #[test]
    fn numbers_are_compared_only_with_the_gate_and_in_canonical_spelling() {
        let less = r#"{"key":"sla","operator":"Lt","value":"950"}"#;
        let more = r#"{"key":"sla","operator":"Gt","value":"950"}"#;
        let taint = |value: &str| format!(r#"{{"key":"sla","value":"{value}","effect":"NoExecute"}}"#);
        assert!(tolerates(less, &taint("949"), true) && !tolerates(less, &taint("950"), true));
        assert!(tolerates(more, &taint("951"), true) && !tolerates(more, &taint("950"), true));
        assert!(!tolerates(less, &taint("949"), false));
        for odd in ["0949", "+949", "x", ""] {
            assert!(!tolerates(less, &taint(odd), true), "{odd}");
        }
    }
}
