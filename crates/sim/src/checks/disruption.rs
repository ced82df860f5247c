//! PodDisruptionBudgets: no status counts pods as they never were, allows more disruptions than its own numbers, forgets a
//! granted eviction, or is written without a change; in the end every status is that of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use keleustes_objects::Time;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, is_terminating, namespace, number, uid};
use super::owner_sizes::{OwnerSizes, controller_uid};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};
use crate::storm::START_NANOSECONDS;

/// A pod as budgets see it.
#[derive(Clone, PartialEq, Eq)]
struct CountedPod {
    name: String,
    app: String,
    is_healthy: bool,
    /// The UID of its controller; empty if it has none.
    controller: String,
}

/// Follows the status updates of budgets.
#[derive(Default)]
pub struct Budgets {
    /// By namespace: all pods at every moment at which one of them changed. The cache of a manager is at one of these
    /// moments, however far behind.
    moments: BTreeMap<String, Vec<Vec<CountedPod>>>,
    /// By namespace: when each of these moments began.
    moments_at: BTreeMap<String, Vec<Duration>>,
    /// By process instance and UID of a budget: the first moment that its last status can be about. No cache goes back.
    counted: BTreeMap<(Arc<str>, u32, String), usize>,
    /// Namespaces whose pods were deleted by one request: a cache shows them go one by one.
    emptied: BTreeSet<String>,
    /// Whether the clock of a manager has jumped: it decides when a granted eviction is overdue.
    has_clock_jumped: bool,
    /// Whether a user has changed the labels of pods. The budget that they left is not enqueued, as in the original.
    has_relabelled_pods: bool,
    /// The sizes of the pods' controllers, of which budgets with percentages take their share.
    owners: OwnerSizes,
    faults: Faults,
}

impl Checker for Budgets {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        self.owners.observe(write, server);
        let is_patch_by_user =
            request.resource == "pods" && !write.by_manager() && request.subresource.is_empty();
        self.has_relabelled_pods |= is_patch_by_user && write.body.pointer("/metadata/labels").is_some();
        if request.resource == "pods" {
            self.observe_pods(write.at, &request.namespace, server);
            if request.method == Method::DELETE && request.name.is_empty() {
                self.emptied.insert(request.namespace.clone());
            }
        }
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
        self.check_kept_evictions(write, before, server)?;
        // The body has no spec.
        let stored = write.after.as_deref().unwrap_or(after);
        check_desired(stored)?;
        self.check_counted(write, stored, server)
    }

    fn on_clock_jump(&mut self) {
        self.has_clock_jumped = true;
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for budget in server.objects("poddisruptionbudgets.policy") {
            if is_failed(&budget) {
                check_nothing_allowed(&budget)?;
                continue;
            }
            check_numbers(&budget)?;
            check_desired(&budget)?;
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
    /// Remembers the pods of a namespace if they are not as they were.
    fn observe_pods(&mut self, at: Duration, namespace: &str, server: &ApiServer) {
        let pods = counted_pods(namespace, server);
        // At first there is none.
        let moments = self.moments.entry(namespace.to_owned()).or_insert_with(|| vec![Vec::new()]);
        if moments.last() != Some(&pods) {
            moments.push(pods);
            self.moments_at.entry(namespace.to_owned()).or_insert_with(|| vec![Duration::ZERO]).push(at);
        }
    }

    /// The healthy pods of a status, and with an integer `minAvailable` also the expected ones, are those of one moment
    /// that the manager has not passed, or of several. Pods whose eviction is granted do not count as healthy: the budget was written
    /// with the resourceVersion that grants it.
    fn check_counted(
        &mut self,
        write: &ObservedWrite,
        budget: &Value,
        server: &ApiServer,
    ) -> Result<(), String> {
        self.observe_pods(write.at, namespace(budget), server);
        if self.has_relabelled_pods || self.emptied.contains(namespace(budget)) {
            return Ok(());
        }
        let of = |field: &str| number(budget, &format!("/status/{field}"));
        let granted = &budget["status"]["disruptedPods"];
        let counts_all = budget.pointer("/spec/minAvailable").is_some_and(Value::is_number);
        let is_counted = |pods: &Vec<CountedPod>| {
            let selected: Vec<_> = pods.iter().filter(|pod| selects(budget, &pod.app)).collect();
            let healthy = selected.iter().filter(|pod| pod.is_healthy && granted.get(&pod.name).is_none());
            let all = i64::try_from(selected.len()).unwrap_or(i64::MAX);
            i64::try_from(healthy.count()) == Ok(of("currentHealthy"))
                && (!counts_all || all == of("expectedPods"))
        };
        let manager = (write.party.clone(), write.process_instance, uid(budget).to_owned());
        let first = self.counted.get(&manager).copied().unwrap_or_default();
        let moments = self.moments.get(namespace(budget)).map_or(&[][..], Vec::as_slice);
        let moments_at = self.moments_at.get(namespace(budget)).map_or(&[][..], Vec::as_slice);
        let known = moments_at.iter().rposition(|began_at| self.faults.caches_know(*began_at, write.at));
        let recent = moments.get(first.max(known.unwrap_or_default())..).unwrap_or_default();
        self.check_expected(write.at, budget, recent)?;
        match moments.iter().skip(first).position(is_counted) {
            Some(later) => {
                self.counted.insert(manager, first + later);
            }
            None if is_mixed(budget, moments.get(first..).unwrap_or_default()) => {}
            None => {
                let (healthy, expected) = (of("currentHealthy"), of("expectedPods"));
                let what = describe(budget);
                return Err(format!(
                    "{what} counts {healthy} healthy of {expected} pods, as there never were"
                ));
            }
        }
        Ok(())
    }

    /// The expected pods of a budget with a percentage or `maxUnavailable` are those that the controllers of its pods want:
    /// at least of the pods that were there at all of these moments, at most of those that were there at one of them.
    fn check_expected(
        &self,
        at: Duration,
        budget: &Value,
        moments: &[Vec<CountedPod>],
    ) -> Result<(), String> {
        if budget.pointer("/spec/minAvailable").is_some_and(Value::is_number) {
            return Ok(());
        }
        let controllers = |pods: &Vec<CountedPod>| -> BTreeSet<String> {
            let selected = pods.iter().filter(|pod| selects(budget, &pod.app));
            selected.map(|pod| pod.controller.clone()).collect()
        };
        let sets: Vec<_> = moments.iter().map(controllers).collect();
        let any: BTreeSet<&str> = sets.iter().flatten().map(String::as_str).collect();
        let always = any.iter().copied().filter(|uid| sets.iter().all(|set| set.contains(*uid))).collect();
        let least = self.owners.wanted(&always, &self.faults, at).0;
        let most = self.owners.wanted(&any, &self.faults, at).1;
        let expected = number(budget, "/status/expectedPods");
        if (least..=most).contains(&expected) {
            return Ok(());
        }
        let what = describe(budget);
        Err(format!("{what} expects {expected} pods, and its controllers want {least} to {most}"))
    }

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

/// The pods that must stay healthy follow from the expected ones. Percentages are rounded up, both those that must be
/// available and those that need not be.
fn check_desired(budget: &Value) -> Result<(), String> {
    let of = |field: &str| number(budget, &format!("/status/{field}"));
    let (expected, desired) = (of("expectedPods"), of("desiredHealthy"));
    let scaled = |amount: &Value| match amount.as_str() {
        Some(percent) => {
            let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or_default();
            (expected * percent + 99) / 100
        }
        None => amount.as_i64().unwrap_or_default(),
    };
    let limit = |field: &str| budget["spec"].get(field).filter(|limit| !limit.is_null());
    let wanted = match (limit("minAvailable"), limit("maxUnavailable")) {
        (Some(least), _) => scaled(least),
        (None, Some(most)) => (expected - scaled(most)).max(0),
        (None, None) => return Ok(()),
    };
    if desired == wanted {
        return Ok(());
    }
    Err(format!("{} has desiredHealthy {desired}, not {wanted} of {expected}", describe(budget)))
}

/// Whether the healthy pods of a status can be those of several moments: a cache that lists all pods again shows the
/// changes one by one, not in their order. Then every pod that was always healthy counts, and none that never was.
fn is_mixed(budget: &Value, moments: &[Vec<CountedPod>]) -> bool {
    let granted = &budget["status"]["disruptedPods"];
    let mut times_healthy: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in moments.iter().flatten().filter(|pod| pod.is_healthy && selects(budget, &pod.app)) {
        if granted.get(&pod.name).is_none() {
            *times_healthy.entry(&pod.name).or_default() += 1;
        }
    }
    let least = times_healthy.values().filter(|times| **times == moments.len()).count();
    let healthy = usize::try_from(number(budget, "/status/currentHealthy")).unwrap_or(usize::MAX);
    (least..=times_healthy.len()).contains(&healthy)
}

/// The pods of a namespace as budgets see them.
fn counted_pods(wanted: &str, server: &ApiServer) -> Vec<CountedPod> {
    let pods = server.objects("pods");
    let pods = pods.iter().filter(|pod| namespace(pod) == wanted);
    let counted = pods.map(|pod| CountedPod {
        name: text(pod, "/metadata/name").to_owned(),
        app: text(pod, "/metadata/labels/app").to_owned(),
        is_healthy: !is_terminating(pod) && condition_is_true(pod, "Ready"),
        controller: controller_uid(pod).to_owned(),
    });
    counted.collect()
}

fn selects(budget: &Value, app: &str) -> bool {
    let selected = text(budget, "/spec/selector/matchLabels/app");
    selected.is_empty() || selected == app
}

/// The healthy pods, and with an integer `minAvailable` also the expected ones, are those that the budget selects. The
/// scale of a controller is only counted at the next change of a pod or of the budget, so percentages are not compared.
fn check_pods(budget: &Value, server: &ApiServer) -> Result<(), String> {
    let mut pods = counted_pods(namespace(budget), server);
    pods.retain(|pod| selects(budget, &pod.app));
    let healthy = pods.iter().filter(|pod| pod.is_healthy).count();
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
        let server = server([pod("p", "True"), pod("q", "True")]);
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
        let server = server([pod("p", "True"), pod("q", "True"), pod("r", "True")]);
        let mut before = budget(0);
        before["status"]["disruptedPods"] = json!({"p": "2026-01-01T00:00:05Z"});
        let mut kept = budget(1);
        kept["status"]["expectedPods"] = json!(3);
        kept["status"]["disruptedPods"] = before["status"]["disruptedPods"].clone();
        let mut checker = Budgets::default();
        assert_eq!(checker.on_write(&written(&before, &kept), &server), Ok(()));
        let mut forgotten = budget(2);
        (forgotten["status"]["expectedPods"], forgotten["status"]["currentHealthy"]) = (json!(3), json!(3));
        let forgets = written(&before, &forgotten);
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

    /// A write of a pod by a node: it is so from now on.
    fn seeded(checker: &mut Budgets, server: &ApiServer, pod: &Value) {
        server.seed(pod.clone()).unwrap();
        let path = "/api/v1/namespaces/default/pods/p/status";
        let write =
            ObservedWrite { party: "nodes".into(), ..ObservedWrite::of_manager("", &Method::PUT, path) };
        assert_eq!(checker.on_write(&write, server), Ok(()));
    }

    #[test]
    fn status_that_counts_pods_as_they_never_were_is_reported() {
        let server = server([]);
        let mut checker = Budgets::default();
        seeded(&mut checker, &server, &pod("p", "True"));
        seeded(&mut checker, &server, &pod("q", "False"));
        let counting = |healthy: i64, expected: i64| {
            let mut budget = budget(i64::from(healthy > 1));
            budget["status"]["currentHealthy"] = json!(healthy);
            budget["status"]["expectedPods"] = json!(expected);
            budget
        };
        let before = budget(0);
        let write = |process_instance: u32, after: &Value| ObservedWrite {
            process_instance,
            ..written(&before, after)
        };
        let never = |healthy: i64| {
            Err(format!(
                "PodDisruptionBudget default/oar counts {healthy} healthy of 2 pods, as there never were"
            ))
        };
        assert_eq!(checker.on_write(&write(1, &counting(1, 2)), &server), Ok(()));
        assert_eq!(checker.on_write(&write(1, &counting(2, 2)), &server), never(2), "q was never healthy");
        assert_eq!(checker.on_write(&write(1, &counting(0, 2)), &server), never(0), "p is and stays healthy");
        assert_eq!(checker.on_write(&write(2, &counting(0, 0)), &server), Ok(()), "a cache that is behind");
        // A granted eviction counts, however old the cache is.
        let mut granted = counting(0, 2);
        granted["status"]["disruptedPods"] = json!({"p": "2026-01-01T00:00:05Z"});
        assert_eq!(checker.on_write(&write(3, &granted), &server), Ok(()));
        granted["status"]["currentHealthy"] = json!(1);
        assert_eq!(checker.on_write(&write(3, &granted), &server), never(1));
        // Listed again, p and q may be seen at different moments.
        seeded(&mut checker, &server, &pod("p", "False"));
        seeded(&mut checker, &server, &pod("q", "True"));
        assert_eq!(checker.on_write(&write(1, &counting(2, 2)), &server), Ok(()));
        assert_eq!(checker.on_write(&write(1, &counting(0, 2)), &server), Ok(()));
        assert_eq!(checker.on_write(&write(1, &counting(2, 2)), &server), never(2), "no cache goes back");
    }

    #[test]
    fn wrong_share_of_the_expected_pods_is_reported() {
        let check = |spec: Value, expected: i64, desired: i64| {
            let status = json!({"expectedPods": expected, "desiredHealthy": desired});
            check_desired(&json!({"kind": "PodDisruptionBudget", "spec": spec, "status": status}))
        };
        for (spec, expected, desired) in [
            (json!({"minAvailable": 2}), 1, 2),
            (json!({"minAvailable": "50%"}), 3, 2),
            (json!({"maxUnavailable": 1}), 3, 2),
            (json!({"maxUnavailable": 1, "minAvailable": null}), 0, 0),
            (json!({"maxUnavailable": "30%"}), 7, 4),
        ] {
            assert_eq!(check(spec.clone(), expected, desired), Ok(()), "{spec}");
            assert!(check(spec.clone(), expected, desired - 1).is_err(), "{spec}");
        }
        let error = check(json!({"minAvailable": "50%"}), 3, 1).unwrap_err();
        assert_eq!(error, "PodDisruptionBudget / has desiredHealthy 1, not 2 of 3");
    }
}
