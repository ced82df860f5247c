//! PodDisruptionBudgets: no status allows more disruptions than its own numbers, forgets a granted eviction, or is written
//! without a change; in the end every status is that of its pods.

use keleustes_apiserver::ApiServer;
use keleustes_objects::Time;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, is_terminating, namespace, number};
use crate::recorder::{ObservedWrite, text};
use crate::storm::START_NANOSECONDS;

/// Follows the status updates of budgets.
#[derive(Default)]
pub struct Budgets {
    /// Whether the clock of a manager has jumped: it decides when a granted eviction is overdue.
    has_clock_jumped: bool,
    /// Whether a user has changed the labels of pods. The budget that they left is not enqueued, as in the original.
    has_relabelled_pods: bool,
}

impl Checker for Budgets {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        let is_patch_by_user =
            request.resource == "pods" && !write.by_manager() && request.subresource.is_empty();
        self.has_relabelled_pods |= is_patch_by_user && write.body.pointer("/metadata/labels").is_some();
        let deletes_namespace = write.component == "namespace-controller";
        let is_checked = write.by_manager() && write.succeeded() && !deletes_namespace;
        if request.resource != "poddisruptionbudgets" || !is_checked {
            return Ok(());
        }
        if request.subresource != "status" {
            return Err(format!("{} is changed, not its status", describe(&write.body)));
        }
        let (before, after) = (write.before.as_deref().unwrap_or(&Value::Null), &write.body);
        if is_failed(after) {
            return check_nothing_allowed(after);
        }
        if before["status"] == after["status"] {
            return Err(format!("the status of {} is written without a change", describe(after)));
        }
        check_numbers(after)?;
        self.check_kept_evictions(write, before, server)
    }

    fn on_clock_jump(&mut self) {
        self.has_clock_jumped = true;
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for budget in server.objects("poddisruptionbudgets.policy") {
            if is_failed(&budget) {
                check_nothing_allowed(&budget)?;
                continue;
            }
            check_numbers(&budget)?;
            let generation = number(&budget, "/metadata/generation");
            if number(&budget, "/status/observedGeneration") != generation {
                return Err(format!("{} has not observed generation {generation}", describe(&budget)));
            }
            if !self.has_relabelled_pods {
                check_pods(&budget, server)?;
            }
        }
        Ok(())
    }
}

impl Budgets {
    /// The entry of a pod that exists longer than the entry and is not terminating must stay for two minutes: the API
    /// server has granted its eviction and is about to delete it.
    fn check_kept_evictions(
        &self,
        write: &ObservedWrite,
        before: &Value,
        server: &ApiServer,
    ) -> Result<(), String> {
        let now = START_NANOSECONDS / 1_000_000_000 + i64::try_from(write.at.as_secs()).unwrap_or(i64::MAX);
        let granted = before.pointer("/status/disruptedPods").and_then(Value::as_object);
        let is_fair = !self.has_clock_jumped && !self.has_relabelled_pods;
        for (pod, at) in granted.into_iter().flatten().filter(|_| is_fair) {
            let is_kept = write.body["status"]["disruptedPods"].get(pod).is_some();
            // An entry that is old, or from a server whose clock was set, may be overdue for the manager.
            let granted_at = serde_json::from_value::<Time>(at.clone()).map_or(0, Time::unix_seconds);
            let is_recent = (granted_at - now).abs() < 100;
            let live = server.object("pods", namespace(before), pod);
            let is_pending = live.is_some_and(|live| {
                let created = text(&live, "/metadata/creationTimestamp");
                !is_terminating(&live) && created < at.as_str().unwrap_or_default()
            });
            if is_pending && is_recent && !is_kept {
                return Err(format!("{} forgets the eviction of {pod}", describe(&write.body)));
            }
        }
        Ok(())
    }
}

fn condition(budget: &Value) -> &Value {
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|one| one["type"] == "DisruptionAllowed").unwrap_or(&Value::Null)
}

/// Whether the controller could not calculate the status.
pub(super) fn is_failed(budget: &Value) -> bool {
    condition(budget)["reason"] == "SyncFailed"
}

fn check_nothing_allowed(budget: &Value) -> Result<(), String> {
    match number(budget, "/status/disruptionsAllowed") {
        0 => Ok(()),
        allowed => Err(format!("{} failed to sync and allows {allowed} disruptions", describe(budget))),
    }
}

/// A status allows what its own numbers allow. The API server lowers the number with every eviction, until the controller
/// has counted again.
fn check_numbers(budget: &Value) -> Result<(), String> {
    let of = |field: &str| number(budget, &format!("/status/{field}"));
    let (healthy, desired, allowed) = (of("currentHealthy"), of("desiredHealthy"), of("disruptionsAllowed"));
    let most = if of("expectedPods") > 0 { (healthy - desired).max(0) } else { 0 };
    if allowed > most {
        return Err(format!(
            "{} allows {allowed} disruptions, at most {most} are possible",
            describe(budget)
        ));
    }
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = condition(budget);
    if condition["status"] != status || condition["reason"] != reason {
        return Err(format!("{} allows {allowed} disruptions and has {condition}", describe(budget)));
    }
    Ok(())
}

/// The healthy pods, and with an integer `minAvailable` also the expected ones, are those that the budget selects. The
/// scale of a controller is only counted at the next change of a pod or of the budget, so percentages are not compared.
fn check_pods(budget: &Value, server: &ApiServer) -> Result<(), String> {
    let selected = text(budget, "/spec/selector/matchLabels/app");
    let pods = server.objects("pods");
    let pods = pods.iter().filter(|pod| namespace(pod) == namespace(budget));
    let pods: Vec<_> =
        pods.filter(|pod| selected.is_empty() || text(pod, "/metadata/labels/app") == selected).collect();
    let healthy = pods.iter().filter(|pod| !is_terminating(pod) && condition_is_true(pod, "Ready")).count();
    let has_evictions =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let expect = |field: &str, expected: usize| {
        let found = number(budget, &format!("/status/{field}"));
        if usize::try_from(found) == Ok(expected) {
            return Ok(());
        }
        Err(format!("{} has {field} {found}, not {expected}", describe(budget)))
    };
    if !has_evictions {
        expect("currentHealthy", healthy)?;
    }
    if budget.pointer("/spec/minAvailable").is_some_and(Value::is_number) {
        expect("expectedPods", pods.len())?;
    }
    Ok(())
}
