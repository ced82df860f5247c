//! Rolls back to an earlier template, as old clients request by annotation.

use keleustes_objects::{Annotations, FullMeta as _, ReplicaSet};
use keleustes_plan::{Edited, InvolvedObject, Outcome, Plan, PlannedEvent, Write};
use serde_json::{Map, Value, json};

use super::annotations::ROLLBACK_TO;
use super::inputs::{Inputs, number};
use super::revisions::{copied_annotations, revision};
use crate::workloads::templates::{NormalizedTemplate, without_template_hash};

/// The requested revision, if any. 0 is the one before the latest.
pub(super) fn desired(inputs: &Inputs) -> Option<i64> {
    number(inputs.deployment.annotations(), ROLLBACK_TO)
}

/// Rolls back, or records why not; the annotation is removed in both cases.
pub(super) fn plan(inputs: &Inputs, to: i64) -> Plan {
    let deployment = &*inputs.deployment;
    let warn = |reason: &str, message: String| {
        let mut plan = Plan::of(roll_back(inputs, None));
        plan.record(PlannedEvent::warning(InvolvedObject::of(deployment), reason, message));
        plan
    };
    let to = if to == 0 { second_highest(inputs) } else { to };
    if to == 0 {
        return warn("DeploymentRollbackRevisionNotFound", "Unable to find last revision.".to_owned());
    }
    let Some(set) = inputs.all().find(|set| revision(set) == to) else {
        let message = "Unable to find the revision to rollback to.".to_owned();
        return warn("DeploymentRollbackRevisionNotFound", message);
    };
    let name = &deployment.meta.key.name;
    if NormalizedTemplate::of(&deployment.spec.template).semantically_equal(&set.spec.template) {
        let message =
            format!("The rollback revision contains the same template as current deployment \"{name}\"");
        return warn("DeploymentRollbackTemplateUnchanged", message);
    }
    let message = format!("Rolled back deployment \"{name}\" to revision {to}");
    let event = PlannedEvent::normal(InvolvedObject::of(deployment), "DeploymentRollback", message);
    let back = roll_back(inputs, Some(set));
    Plan::of(
        back.record_on_outcome(move |outcome| matches!(outcome, Outcome::Done { .. }).then(|| event.clone())),
    )
}

fn second_highest(inputs: &Inputs) -> i64 {
    let mut revisions: Vec<_> = inputs.all().map(|set| revision(set)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0).max(0)
}

/// Removes the annotation and, if there is a target ReplicaSet, copies its template and annotations to the
/// Deployment.
fn roll_back(inputs: &Inputs, target_set: Option<&ReplicaSet>) -> Write {
    let template = target_set.map(|set| Value::Object(without_template_hash(&set.spec.template)));
    let copied: Option<Map<String, Value>> = target_set.map(|set| {
        copied_annotations(set.annotations()).map(|(key, value)| (key.to_owned(), json!(value))).collect()
    });
    let change = move |live: &mut Value| {
        if let Some(template) = &template {
            live["spec"]["template"] = template.clone();
        }
        let Some(annotations) = live["metadata"]["annotations"].as_object_mut() else {
            return Edited::Unneeded;
        };
        if let Some(copied) = &copied {
            let all: Annotations = serde_json::from_value(json!(annotations)).unwrap_or_default();
            for (key, _) in copied_annotations(&all) {
                annotations.remove(key);
            }
            annotations.extend(copied.clone());
        }
        annotations.remove(ROLLBACK_TO);
        Edited::Changed
    };
    Write::edit(&*inputs.deployment, change)
        .expected_resource_version(&inputs.deployment.meta.resource_version)
        .because("a rollback was requested")
}
