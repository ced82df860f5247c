//! Goes back to an earlier template because an old client asked for it by annotation.

use keleustes_objects::{Annotations, FullMeta as _, ReplicaSet};
use keleustes_plan::{Edited, InvolvedObject, Outcome, Plan, PlannedEvent, Write};
use serde_json::{Map, Value, json};

use super::annotations::ROLLBACK_TO;
use super::facts::{Facts, number};
use super::revisions::{passed_on, revision};
use crate::workloads::templates::{NormalizedTemplate, without_template_hash};

/// The revision that is asked for, if one is. Zero is the one before the newest.
pub(super) fn wanted(facts: &Facts) -> Option<i64> {
    number(facts.deployment.annotations(), ROLLBACK_TO)
}

/// Goes back, or says why not; the wish is struck off in either case.
pub(super) fn plan(facts: &Facts, to: i64) -> Plan {
    let deployment = &*facts.deployment;
    let warn = |reason: &str, message: String| {
        let mut plan = Plan::of(strike_off(facts, None));
        plan.record(PlannedEvent::warning(InvolvedObject::of(deployment), reason, message));
        plan
    };
    let to = if to == 0 { second_highest(facts) } else { to };
    if to == 0 {
        return warn("DeploymentRollbackRevisionNotFound", "Unable to find last revision.".to_owned());
    }
    let Some(set) = facts.all().find(|set| revision(set) == to) else {
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
    let told = PlannedEvent::normal(InvolvedObject::of(deployment), "DeploymentRollback", message);
    let back = strike_off(facts, Some(set));
    Plan::of(
        back.record_on_outcome(move |outcome| matches!(outcome, Outcome::Done { .. }).then(|| told.clone())),
    )
}

fn second_highest(facts: &Facts) -> i64 {
    let mut revisions: Vec<_> = facts.all().map(|set| revision(set)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0).max(0)
}

/// Removes the wish and, if there is a ReplicaSet to go back to, takes over its template and what it was
/// told.
fn strike_off(facts: &Facts, back_to: Option<&ReplicaSet>) -> Write {
    let template = back_to.map(|set| Value::Object(without_template_hash(&set.spec.template)));
    let told: Option<Map<String, Value>> = back_to
        .map(|set| passed_on(set.annotations()).map(|(key, value)| (key.to_owned(), json!(value))).collect());
    let change = move |live: &mut Value| {
        if let Some(template) = &template {
            live["spec"]["template"] = template.clone();
        }
        let Some(annotations) = live["metadata"]["annotations"].as_object_mut() else {
            return Edited::Unneeded;
        };
        if let Some(told) = &told {
            let all: Annotations = serde_json::from_value(json!(annotations)).unwrap_or_default();
            for (key, _) in passed_on(&all) {
                annotations.remove(key);
            }
            annotations.extend(told.clone());
        }
        annotations.remove(ROLLBACK_TO);
        Edited::Changed
    };
    Write::edit(&*facts.deployment, change)
        .expected_resource_version(&facts.deployment.meta.resource_version)
        .because("an earlier revision was asked for")
}
