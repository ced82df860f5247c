//! The eviction subresource: a delete that respects PodDisruptionBudgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::binding::success;
use super::delete::check_preconditions;
use super::metadata::{is_terminating, meta, meta_str};
use super::options::{DeleteOptions, WriteOptions};
use super::request::Call;
use super::resources;
use super::selectors;
use super::status::{ApiResult, Status, StatusCause, StatusReason};
use super::store::SharedObject;
use super::{Document, Kernel, body, prepare, seconds};

/// Maximum number of entries in `status.disruptedPods`.
const DISRUPTED_MAX: usize = 2000;
/// Retry-After for a budget whose status is not up to date.
const RETRY_SECONDS: u32 = 10;

impl Kernel {
    pub(crate) fn evict(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let write = WriteOptions::parse(call)?;
        let target = &call.target;
        let eviction = body::read(call)?;
        let named = meta_str(&eviction, "name");
        if !named.is_empty() && named != target.name() {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let delete_options =
            eviction.get("deleteOptions").filter(|delete_options| delete_options.is_object()).cloned();
        let delete_options = delete_options.unwrap_or_else(|| json!({}));
        let options = DeleteOptions::from_value(&delete_options);
        let dry_run = write.dry_run || options.as_ref().is_ok_and(|options| options.dry_run);
        let Some(pod) = self.store.get(target.resource, target.namespace(), target.name()) else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        if !ignores_budgets(&pod) {
            self.check_budget(&pod, dry_run, now)?;
        }
        if let Ok(options) = &options {
            check_preconditions(target.resource, target.name(), &pod, options)?;
        }
        if !dry_run {
            let event = self.store.put(target.resource, with_disruption_target(&pod, now));
            self.publish(&event, now);
        }
        // Errors in the delete options are reported only now. The resourceVersion precondition was checked above;
        // writing the condition has changed the version since.
        let options = DeleteOptions { dry_run, resource_version: None, ..options? };
        self.delete_one(target.resource, target.namespace(), target.name(), &options, now)?;
        Ok(success())
    }

    fn check_budget(&mut self, pod: &Value, dry_run: bool, now: Timestamp) -> ApiResult<()> {
        let Some(budgets) = resources::by_path("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let namespace = meta_str(pod, "namespace");
        let labels = meta(pod, "labels").cloned().unwrap_or_default();
        let concerned: Vec<SharedObject> = self
            .store
            .values(budgets, Some(namespace))
            .into_iter()
            .filter(|budget| {
                let selector = budget.pointer("/spec/selector").filter(|selector| !selector.is_null());
                selector.is_some_and(|selector| selectors::selects(selector, &labels))
            })
            .collect();
        let budget = match concerned.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
                               not support.";
                return Err(Status::new(StatusReason::Unknown, message));
            }
        };
        if !is_ready(pod) && allows_unready_eviction(budget) {
            return Ok(());
        }
        let charged = record_disruption(budget, meta_str(pod, "name"), now)?;
        if !dry_run {
            let event = self.store.put(budgets, charged);
            self.publish(&event, now);
        }
        Ok(())
    }
}

/// The pod with the DisruptionTarget condition.
fn with_disruption_target(pod: &Value, now: Timestamp) -> Value {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null,
        "lastTransitionTime": transition_time(pod, "DisruptionTarget", "True", now)});
    let mut pod = pod.clone();
    prepare::set_condition(&mut pod, condition);
    pod
}

/// The condition of a type, if the object has it.
fn condition_of<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// `lastTransitionTime` of a condition that gets this status: it stays if the condition has the status already.
fn transition_time(object: &Value, kind: &str, status: &str, now: Timestamp) -> Value {
    let known = condition_of(object, kind).filter(|condition| condition["status"] == status);
    known.map_or_else(|| json!(seconds(now)), |condition| condition["lastTransitionTime"].clone())
}

/// Pods that are pending, finished or terminating are evicted without a budget check.
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || is_terminating(pod)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn number(budget: &Value, field: &str) -> i64 {
    budget.pointer(&format!("/status/{field}")).and_then(Value::as_i64).unwrap_or(0)
}

fn allows_unready_eviction(budget: &Value) -> bool {
    if budget.pointer("/spec/unhealthyPodEvictionPolicy") == Some(&json!("AlwaysAllow")) {
        return true;
    }
    let (current, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    current >= desired && desired > 0
}

/// The budget after one more disruption, or the refusal.
fn record_disruption(budget: &Value, pod: &str, now: Timestamp) -> ApiResult<Value> {
    let name = meta_str(budget, "name");
    let generation = meta(budget, "generation").and_then(Value::as_i64).unwrap_or(0);
    if number(budget, "observedGeneration") < generation {
        let message = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(message, RETRY_SECONDS));
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(forbidden(name, why, why));
    }
    let disrupted =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, |map| map.len());
    if disrupted > DISRUPTED_MAX {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(name, why, "too many pending evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        return Err(too_many(exhausted(budget, name), 0));
    }
    let mut charged = budget.clone();
    charged["status"]["disruptionsAllowed"] = json!(allowed - 1);
    if allowed == 1 {
        no_more_disruptions(&mut charged, now);
    }
    if !charged["status"]["disruptedPods"].is_object() {
        charged["status"]["disruptedPods"] = json!({});
    }
    charged["status"]["disruptedPods"][pod] = json!(seconds(now));
    Ok(charged)
}

/// Why a budget allows no disruption. After a failed sync its numbers are not trustworthy.
fn exhausted(budget: &Value, name: &str) -> String {
    let (needed, healthy) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    let condition =
        condition_of(budget, "DisruptionAllowed").filter(|condition| condition["status"] == "False");
    let text = |field: &str| condition.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    let (reason, message) = (text("reason"), text("message"));
    if reason == "SyncFailed" && !message.is_empty() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        )
    } else if healthy <= needed {
        format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")
    } else if !message.is_empty() {
        format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }
}

fn no_more_disruptions(budget: &mut Value, now: Timestamp) {
    let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": number(budget, "observedGeneration"),
        "lastTransitionTime": transition_time(budget, "DisruptionAllowed", "False", now)});
    prepare::set_condition(budget, condition);
}

/// 403 of a budget whose status makes no sense. The original names the kind in lower case, not the resource.
fn forbidden(name: &str, why: &str, cause: &str) -> Box<Status> {
    let message = format!("poddisruptionbudget.policy {name:?} is forbidden: {why}");
    let mut status = Status::new(StatusReason::Forbidden, message);
    (status.name, status.group, status.kind) =
        (name.to_owned(), "policy".to_owned(), "poddisruptionbudget".to_owned());
    let message = format!("The disruption budget {name} does not allow evicting pods currently: {cause}");
    status.causes.push(StatusCause { reason: "DisruptionBudget", message, field: String::new() });
    status
}

fn too_many(cause: String, retry_after_seconds: u32) -> Box<Status> {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::new(StatusReason::TooManyRequests, message);
    status.retry_after_seconds = retry_after_seconds;
    status.causes.push(StatusCause { reason: "DisruptionBudget", message: cause, field: String::new() });
    status
}
