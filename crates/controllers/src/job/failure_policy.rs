//! What the failure of a pod means for its Job: the action of the first matching rule of the pod failure
//! policy.

use keleustes_objects::{ContainerStatus, OnExitCodes, OnPodCondition, Pod, PodFailurePolicy};

/// The result of matching a failed pod against the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FailurePolicyMatch {
    /// The action of the first matching rule; `None` if no rule matches, then the failure is only counted.
    pub(super) action: Option<FailurePolicyAction>,
    /// The message of the FailureTarget condition, if the rule fails the Job.
    pub(super) job_failure_message: Option<String>,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailurePolicyAction {
    FailJob,
    FailIndex,
    Ignore,
    Count,
}

impl FailurePolicyAction {
    const ALL: [Self; 4] = [Self::FailJob, Self::FailIndex, Self::Ignore, Self::Count];

    /// The spelling of the API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::FailJob => "FailJob",
            Self::FailIndex => "FailIndex",
            Self::Ignore => "Ignore",
            Self::Count => "Count",
        }
    }
}

impl FailurePolicyMatch {
    /// Whether the failure counts towards the backoff limits.
    pub(super) fn counts_as_failure(&self) -> bool {
        self.action != Some(FailurePolicyAction::Ignore)
    }
}

/// Matches a failed pod against the rules of the policy.
pub(super) fn match_failure_policy(policy: Option<&PodFailurePolicy>, pod: &Pod) -> FailurePolicyMatch {
    let rules = policy.map_or(&[][..], |policy| &policy.rules).iter().enumerate();
    for (at, rule) in rules {
        let found = match &rule.on_exit_codes {
            Some(codes) => matching_exit(pod, codes),
            None => matching_condition(pod, &rule.on_pod_conditions),
        };
        // A rule with an unknown action is skipped.
        let action = FailurePolicyAction::ALL.into_iter().find(|action| rule.action == *action.as_str());
        if let (Some(what), Some(action)) = (found, action) {
            let job_failure_message = (action == FailurePolicyAction::FailJob)
                .then(|| format!("{what} matching {} rule at index {at}", action.as_str()));
            return FailurePolicyMatch { action: Some(action), job_failure_message };
        }
    }
    FailurePolicyMatch::default()
}

fn matching_exit(pod: &Pod, codes: &OnExitCodes) -> Option<String> {
    let matches = |code: i32| match codes.operator.as_str() {
        "In" => codes.values.contains(&code),
        "NotIn" => !codes.values.contains(&code),
        _ => false,
    };
    let matching_code = |status: &ContainerStatus| {
        let wanted = codes.container_name.as_ref().is_none_or(|name| *name == status.name);
        let code = status.terminated.as_ref()?.exit_code;
        (wanted && code != 0 && matches(code)).then_some(code)
    };
    pod.container_statuses().iter().find_map(|status| {
        let code = matching_code(status)?;
        Some(format!("Container {} for pod {} failed with exit code {code}", status.name, pod.meta.key))
    })
}

fn matching_condition(pod: &Pod, patterns: &[OnPodCondition]) -> Option<String> {
    let matches = |r#type: &str, status: &str| {
        patterns.iter().any(|pattern| pattern.r#type == *r#type && pattern.status == *status)
    };
    // The first matching condition of the pod is named, not the first matching pattern.
    let (r#type, _) = pod.conditions().find(|(r#type, status)| matches(r#type, status))?;
    Some(format!("Pod {} has condition {type}", pod.meta.key))
}
