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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::Method;
    use serde_json::json;

    use super::*;

    const PATH: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/oar";

    /// A budget that wants one of two healthy pods, and allows this many disruptions.
    fn budget(allowed: i64) -> Value {
        let (status, reason) =
            if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "default", "name": "oar", "generation": 1},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "oar"}}},
            "status": {
                "observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
                "disruptionsAllowed": allowed,
                "conditions": [{"type": "DisruptionAllowed", "status": status, "reason": reason}],
            },
        })
    }

    fn pod(name: &str, ready: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "default", "name": name, "labels": {"app": "oar"},
                         "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c", "image": "any:0"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    /// The status of one budget becomes that of another, ten seconds after the start.
    fn written(before: &Value, after: &Value) -> ObservedWrite {
        ObservedWrite {
            at: Duration::from_secs(10),
            body: after.clone(),
            before: Some(Arc::new(before.clone())),
            after: Some(Arc::new(after.clone())),
            ..ObservedWrite::of_manager("disruption-controller", &Method::PUT, &format!("{PATH}/status"))
        }
    }

    fn server(objects: impl IntoIterator<Item = Value>) -> ApiServer {
        let server = ApiServer::builder().build();
        for object in objects {
            server.seed(object).unwrap();
        }
        server
    }

    #[test]
    fn status_that_does_not_fit_its_own_numbers_is_reported() {
        let server = server([]);
        let check =
            |before: &Value, after: &Value| Budgets::default().on_write(&written(before, after), &server);
        assert_eq!(check(&budget(0), &budget(1)), Ok(()));
        let name = "PodDisruptionBudget default/oar";
        let error = check(&budget(0), &budget(2)).unwrap_err();
        assert_eq!(error, format!("{name} allows 2 disruptions, at most 1 are possible"));
        let error = check(&budget(1), &budget(1)).unwrap_err();
        assert_eq!(error, format!("the status of {name} is written without a change"));
        let mut contradiction = budget(1);
        contradiction["status"]["disruptionsAllowed"] = json!(0);
        let error = check(&budget(1), &contradiction).unwrap_err();
        assert!(error.starts_with(&format!("{name} allows 0 disruptions and has ")), "{error}");
        let mut failed = budget(1);
        failed["status"]["conditions"][0]["reason"] = json!("SyncFailed");
        let error = check(&budget(0), &failed).unwrap_err();
        assert_eq!(error, format!("{name} failed to sync and allows 1 disruptions"));
        let mut of_spec = written(&budget(0), &budget(1));
        of_spec.request.subresource.clear();
        let error = Budgets::default().on_write(&of_spec, &server).unwrap_err();
        assert_eq!(error, format!("{name} is changed, not its status"));
    }

    #[test]
    fn status_that_forgets_a_granted_eviction_is_reported() {
        let server = server([pod("p", "True")]);
        let mut before = budget(0);
        before["status"]["disruptedPods"] = json!({"p": "2026-01-01T00:00:05Z"});
        let mut kept = budget(1);
        kept["status"]["disruptedPods"] = before["status"]["disruptedPods"].clone();
        let mut checker = Budgets::default();
        assert_eq!(checker.on_write(&written(&before, &kept), &server), Ok(()));
        let forgets = written(&before, &budget(1));
        let error = checker.on_write(&forgets, &server).unwrap_err();
        assert_eq!(error, "PodDisruptionBudget default/oar forgets the eviction of p");
        checker.on_clock_jump();
        assert_eq!(checker.on_write(&forgets, &server), Ok(()), "the manager may consider it overdue");
    }

    #[test]
    fn status_that_does_not_count_its_pods_has_not_converged() {
        let check = |budget: Value, ready: &str| {
            let server = server([budget, pod("p", "True"), pod("q", ready)]);
            Budgets::default().check_converged(&server)
        };
        assert_eq!(check(budget(1), "True"), Ok(()));
        let error = check(budget(1), "False").unwrap_err();
        assert_eq!(error, "PodDisruptionBudget default/oar has currentHealthy 2, not 1");
        let mut third = budget(1);
        third["status"]["expectedPods"] = json!(3);
        let error = check(third, "True").unwrap_err();
        assert_eq!(error, "PodDisruptionBudget default/oar has expectedPods 3, not 2");
        let mut outdated = budget(1);
        outdated["status"]["observedGeneration"] = json!(0);
        let error = check(outdated, "True").unwrap_err();
        assert_eq!(error, "PodDisruptionBudget default/oar has not observed generation 1");
    }
}
