//! HorizontalPodAutoscalers: sizes stay within the bounds and the policies of every window, a constant load never makes a
//! size go up and down, and in the end every size is that of its load.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, is_terminating, namespace, number};
use crate::recorder::{ObservedWrite, text};
use crate::user_autoscalers::{LOAD_PER_REPLICA, load_name};

const CONTROLLER: &str = "horizontal-pod-autoscaler";

/// How long a change may be unknown to a manager: watch events are delayed by up to 90 s.
const KNOWN_WITHIN: Duration = Duration::from_secs(120);

/// Follows the sizes of Deployments with an autoscaler.
#[derive(Default)]
pub struct Autoscalers {
    /// By namespace and name, which a Deployment and its autoscaler have in common.
    targets: BTreeMap<(String, String), Target>,
}

#[derive(Default)]
struct Target {
    /// Every spec that the autoscaler has had, and since when: a manager may act on an older one for a while.
    specs: Vec<(Duration, Value)>,
    /// When the load, the autoscaler or the size was last changed, except by the autoscaler.
    disturbed_at: Duration,
    /// The changes of the size by the autoscaler that its controller knows of.
    changes: Vec<SizeChange>,
}

struct SizeChange {
    sent_at: Duration,
    /// Which process made it: another one has forgotten it.
    process: (String, u32),
    by: i64,
    /// Whether it surely counts for the policies of later changes.
    is_remembered: bool,
}

/// What one policy permits.
struct Limit {
    /// The furthest size.
    size: i64,
    /// The size when the period of the policy began.
    start: i64,
    period: Duration,
}

impl SizeChange {
    /// The field of a behavior that applies to it.
    fn direction(&self) -> &'static str {
        if self.by > 0 { "scaleUp" } else { "scaleDown" }
    }
}

impl Checker for Autoscalers {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        if !write.succeeded() {
            return Ok(());
        }
        if write.by_manager() && write.component == CONTROLLER {
            let is_scale = request.subresource == "scale" && request.method == Method::PUT;
            return if is_scale { self.on_rescale(write) } else { Ok(()) };
        }
        let (resource, field) = match request.resource.as_str() {
            "horizontalpodautoscalers" => (request.resource.as_str(), "/spec"),
            "deployments" => ("deployments", "/spec/replicas"),
            "configmaps" => ("configmaps", "/data"),
            _ => return Ok(()),
        };
        let part = |object: &Option<std::sync::Arc<Value>>| object.as_ref()?.pointer(field).cloned();
        // A created object has no name in its path.
        let after = if request.method == Method::POST {
            write.body.pointer(field).cloned()
        } else {
            part(&write.after)
        };
        if part(&write.before) == after {
            return Ok(());
        }
        let name = if request.name.is_empty() { text(&write.body, "/metadata/name") } else { &request.name };
        let name = if resource == "configmaps" { name.strip_prefix("load-") } else { Some(name) };
        let Some(name) = name else { return Ok(()) };
        let target = self.targets.entry((request.namespace.clone(), name.to_owned())).or_default();
        target.disturbed_at = write.at;
        if resource == "horizontalpodautoscalers" {
            // Its controller forgets the changes of an autoscaler that is deleted.
            if after.is_none() {
                target.changes.clear();
            }
            target.specs.extend(after.map(|spec| (write.at, spec)));
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let autoscalers = server.objects("horizontalpodautoscalers.autoscaling");
        autoscalers.iter().try_for_each(|autoscaler| check_size(autoscaler, server))
    }
}

impl Autoscalers {
    fn on_rescale(&mut self, write: &ObservedWrite) -> Result<(), String> {
        let request = &write.request;
        let target = self.targets.entry((request.namespace.clone(), request.name.clone())).or_default();
        let from = write.before.as_deref().map_or(0, |before| number(before, "/spec/replicas"));
        let to = number(&write.body, "/spec/replicas");
        let change = SizeChange {
            sent_at: write.send_context.at,
            process: (write.party.to_string(), write.process_instance),
            by: to - from,
            is_remembered: true,
        };
        let target_name = format!("Deployment {}/{}", request.namespace, request.name);
        let mut refused = format!("{target_name} has no autoscaler");
        let acting = target.acting_specs(change.sent_at);
        let is_permitted = acting.into_iter().any(|spec| match target.check_spec(spec, from, to, &change) {
            Ok(()) => true,
            Err(why) => {
                refused = format!("{target_name} is scaled from {from} to {to}, {why}");
                false
            }
        });
        if !is_permitted {
            return Err(refused);
        }
        target.check_direction(&change).map_err(|why| format!("{target_name} {why}"))?;
        // The controller does not know of a change whose response was lost, and counts corrections of the size as others.
        if !write.response_lost {
            target.remember(change);
        }
        Ok(())
    }
}

impl Target {
    /// The specs that a manager may act on: the present one, and those that were replaced a moment ago.
    fn acting_specs(&self, at: Duration) -> Vec<&Value> {
        let replaced_at = self.specs.iter().skip(1).map(|(since, _)| *since).chain([Duration::MAX]);
        let is_known = |replaced_at: Duration| replaced_at.saturating_add(KNOWN_WITHIN) > at;
        let acting = self.specs.iter().zip(replaced_at).filter(|(_, replaced_at)| is_known(*replaced_at));
        acting.map(|((_, spec), _)| spec).collect()
    }

    /// Whether a spec permits a new size.
    fn check_spec(&self, spec: &Value, from: i64, to: i64, change: &SizeChange) -> Result<(), String> {
        let (min, max) = bounds(spec);
        if !(min..=max).contains(&to) {
            return Err(format!("beyond the bounds {min} to {max}"));
        }
        // A size beyond the bounds is corrected at once.
        if !(min..=max).contains(&from) || change.by == 0 {
            return Ok(());
        }
        let select = text(spec, &format!("/behavior/{}/selectPolicy", change.direction()));
        if select == "Disabled" {
            return Err("where scaling is disabled".to_owned());
        }
        let limits = policies(spec, change.direction()).map(|policy| self.limit(policy, from, change));
        let takes_lowest = (select == "Min") == (change.by > 0);
        let limit = if takes_lowest {
            limits.min_by_key(|limit| limit.size)
        } else {
            limits.max_by_key(|limit| limit.size)
        };
        match limit.filter(|limit| (to - limit.size) * change.by.signum() > 0) {
            Some(Limit { size, start, period }) => {
                let (sum, allowed) = ((to - start).abs(), (size - start).abs());
                let period = period.as_secs();
                Err(format!("by {sum} within {period} s, where {allowed} are allowed"))
            }
            None => Ok(()),
        }
    }

    /// The furthest size that a policy permits.
    ///
    /// Parity: `calculateScaleUpLimitWithScalingRules` and `calculateScaleDownLimitWithBehaviors`.
    fn limit(&self, policy: &Value, from: i64, change: &SizeChange) -> Limit {
        let (period, value) = (period(policy), number(policy, "/value"));
        let since = change.sent_at.saturating_sub(period);
        // What may be forgotten counts only where it permits more.
        let is_counted = |one: &&SizeChange| {
            let is_known = one.is_remembered || one.direction() != change.direction();
            is_known && one.process == change.process && one.sent_at > since
        };
        let of_window = self.changes.iter().filter(is_counted);
        let start = from - of_window.map(|one| one.by).sum::<i64>();
        let size = match (text(policy, "/type"), change.by > 0) {
            ("Percent", true) => -(-start * (100 + value)).div_euclid(100),
            ("Percent", false) => start * (100 - value) / 100,
            (_, is_up) => {
                if is_up {
                    start + value
                } else {
                    start - value
                }
            }
        };
        Limit { size, start, period }
    }

    /// Records a change as the original does: not for a spec without a behavior, and in the place of an earlier one in the
    /// same direction that is older than all periods of the spec. A later spec with longer periods misses that one.
    fn remember(&mut self, mut change: SizeChange) {
        let acting = self.acting_specs(change.sent_at);
        change.is_remembered = acting.iter().all(|spec| !spec["behavior"].is_null());
        let periods = acting.iter().map(|spec| longest_period(spec, change.direction()));
        let since = change.sent_at.saturating_sub(periods.min().unwrap_or_default());
        for earlier in &mut self.changes {
            let is_replaced = earlier.direction() == change.direction() && earlier.sent_at < since;
            earlier.is_remembered &= !is_replaced;
        }
        self.changes.push(change);
    }

    /// Without a reason, a size that went up does not go down, or the other way round.
    fn check_direction(&self, change: &SizeChange) -> Result<(), String> {
        let Some(last) = self.changes.last() else { return Ok(()) };
        let turns = last.by.signum() * change.by.signum() < 0;
        if turns && self.disturbed_at + KNOWN_WITHIN < last.sent_at {
            return Err(format!("flaps under a constant load: by {}, then by {}", last.by, change.by));
        }
        Ok(())
    }
}

fn policies<'a>(spec: &'a Value, direction: &str) -> impl Iterator<Item = &'a Value> {
    let policies = spec.pointer(&format!("/behavior/{direction}/policies"));
    policies.and_then(Value::as_array).into_iter().flatten()
}

fn period(policy: &Value) -> Duration {
    Duration::from_secs(u64::try_from(number(policy, "/periodSeconds")).unwrap_or_default())
}

/// The longest period of the policies in a direction; that of the default policies if there are none.
fn longest_period(spec: &Value, direction: &str) -> Duration {
    const DEFAULT: Duration = Duration::from_secs(15);
    policies(spec, direction).map(period).max().unwrap_or(DEFAULT)
}

fn bounds(spec: &Value) -> (i64, i64) {
    let min = spec.get("minReplicas").and_then(Value::as_i64).unwrap_or(1);
    (min, number(spec, "/maxReplicas"))
}

fn check_size(autoscaler: &Value, server: &ApiServer) -> Result<(), String> {
    let (namespace, name) = (namespace(autoscaler), text(autoscaler, "/metadata/name"));
    let deployment = server.object("deployments.apps", namespace, name);
    let load = server.object("configmaps", namespace, &load_name(name));
    let (Some(deployment), Some(load)) = (deployment, load) else { return Ok(()) };
    let replicas = number(&deployment, "/spec/replicas");
    // Zero replicas disable an autoscaler.
    if replicas == 0 || is_terminating(&deployment) || is_terminating(autoscaler) {
        return Ok(());
    }
    let (min, max) = bounds(&autoscaler["spec"]);
    let load: i64 = text(&load, "/data/load").parse().unwrap_or_default();
    let wanted = (load / i64::from(LOAD_PER_REPLICA)).clamp(min, max);
    if replicas != wanted {
        return Err(format!("{} has {replicas} replicas instead of {wanted}", describe(&deployment)));
    }
    let desired = number(autoscaler, "/status/desiredReplicas");
    if desired != wanted {
        return Err(format!(
            "{} has status.desiredReplicas {desired} instead of {wanted}",
            describe(autoscaler)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::recorder::{RequestInfo, SendContext};
    use crate::user_autoscalers::autoscaler;

    #[expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
    fn observed(at_seconds: u64, party: &str, method: Method, path: &str, body: Value) -> ObservedWrite {
        let at = Duration::from_secs(at_seconds);
        ObservedWrite {
            at,
            party: Arc::from(party),
            process_instance: 0,
            component: CONTROLLER.to_owned(),
            request: RequestInfo::parse(&method, &path.parse().unwrap()),
            body,
            response_lost: false,
            send_context: SendContext { at, ..SendContext::default() },
            code: 200,
            before: None,
            after: None,
        }
    }

    /// A checker that has observed the creation of an autoscaler with this spec.
    fn checker(spec: u8) -> (Autoscalers, ApiServer) {
        let (mut checker, server) = (Autoscalers::default(), ApiServer::default());
        let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
        let created = observed(1, "user", Method::POST, path, autoscaler("oar", spec));
        checker.on_write(&created, &server).unwrap();
        (checker, server)
    }

    fn rescale(
        (checker, server): &mut (Autoscalers, ApiServer),
        at: u64,
        from: i64,
        to: i64,
    ) -> Result<(), String> {
        let path = "/apis/apps/v1/namespaces/default/deployments/oar/scale";
        let mut write = observed(at, "manager-0", Method::PUT, path, json!({"spec": {"replicas": to}}));
        write.before = Some(Arc::new(json!({"spec": {"replicas": from}})));
        checker.on_write(&write, server)
    }

    #[test]
    fn size_beyond_the_bounds_is_noticed() {
        let mut checked = checker(0);
        rescale(&mut checked, 10, 1, 4).unwrap();
        let why = rescale(&mut checked, 20, 4, 5).unwrap_err();
        assert!(why.contains("from 4 to 5, beyond the bounds 1 to 4"), "{why}");
        let mut unknown = (Autoscalers::default(), ApiServer::default());
        assert!(rescale(&mut unknown, 1, 1, 2).unwrap_err().contains("has no autoscaler"));
    }

    #[test]
    fn bounds_that_were_replaced_long_ago_permit_nothing() {
        let mut checked = checker(1);
        let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/oar";
        let mut change = observed(100, "user", Method::PUT, path, Value::Null);
        change.after = Some(Arc::new(json!({"spec": autoscaler("oar", 0)["spec"]})));
        checked.0.on_write(&change, &checked.1).unwrap();
        rescale(&mut checked, 219, 4, 5).unwrap();
        let why = rescale(&mut checked, 221, 4, 5).unwrap_err();
        assert!(why.contains("from 4 to 5, beyond the bounds 1 to 4"), "{why}");
    }

    #[test]
    fn change_beyond_the_policies_of_a_window_is_noticed() {
        let mut checked = checker(1);
        rescale(&mut checked, 10, 1, 2).unwrap();
        rescale(&mut checked, 40, 2, 3).unwrap();
        let why = rescale(&mut checked, 60, 3, 4).unwrap_err();
        assert!(why.contains("by 2 within 30 s, where 1 are allowed"), "{why}");
        rescale(&mut checked, 70, 3, 4).unwrap();
        assert!(rescale(&mut checked, 110, 4, 2).is_err());
        rescale(&mut checked, 110, 9, 8).unwrap();
    }

    #[test]
    fn lower_change_of_two_policies_limits_a_size() {
        // Half of the size within 30 s, and three pods within 60 s.
        let mut checked = checker(4);
        let why = rescale(&mut checked, 10, 1, 3).unwrap_err();
        assert!(why.contains("by 2 within 30 s, where 1 are allowed"), "{why}");
        rescale(&mut checked, 10, 1, 2).unwrap();
        assert!(rescale(&mut checked, 30, 2, 3).is_err(), "half of one is one, rounded up");
        rescale(&mut checked, 41, 2, 3).unwrap();
        let why = rescale(&mut checked, 65, 3, 5).unwrap_err();
        assert!(why.contains("by 3 within 30 s, where 1 are allowed"), "{why}");
        // A quarter of the size within 30 s, and two pods within 60 s.
        let mut checked = checker(4);
        let why = rescale(&mut checked, 10, 4, 2).unwrap_err();
        assert!(why.contains("by 2 within 30 s, where 1 are allowed"), "{why}");
        rescale(&mut checked, 10, 8, 6).unwrap();
        let why = rescale(&mut checked, 45, 6, 5).unwrap_err();
        assert!(why.contains("by 3 within 60 s, where 2 are allowed"), "{why}");
        rescale(&mut checked, 75, 6, 4).unwrap();
    }

    #[test]
    fn changes_without_a_behavior_and_those_of_a_deleted_autoscaler_do_not_count() {
        let mut checked = checker(3);
        rescale(&mut checked, 10, 3, 5).unwrap();
        let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/oar";
        let mut change = observed(11, "user", Method::PUT, path, Value::Null);
        change.after = Some(Arc::new(autoscaler("oar", 1)));
        checked.0.on_write(&change, &checked.1).unwrap();
        rescale(&mut checked, 12, 5, 6).unwrap();
        rescale(&mut checked, 13, 6, 5).unwrap();
        rescale(&mut checked, 14, 5, 7).unwrap();
        rescale(&mut checked, 200, 5, 6).unwrap();
        assert!(rescale(&mut checked, 210, 7, 8).is_err());
        let mut deletion = observed(211, "user", Method::DELETE, path, Value::Null);
        deletion.before = change.after;
        checked.0.on_write(&deletion, &checked.1).unwrap();
        rescale(&mut checked, 212, 7, 8).unwrap();
    }

    #[test]
    fn change_that_a_later_one_has_replaced_does_not_count() {
        let mut checked = checker(1);
        rescale(&mut checked, 10, 2, 3).unwrap();
        rescale(&mut checked, 41, 3, 4).unwrap();
        let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/oar";
        let mut change = observed(42, "user", Method::PUT, path, Value::Null);
        change.after = Some(Arc::new(autoscaler("oar", 2)));
        checked.0.on_write(&change, &checked.1).unwrap();
        rescale(&mut checked, 43, 4, 5).unwrap();
        assert!(
            rescale(&mut checked, 44, 5, 6).unwrap_err().contains("by 3 within 60 s, where 2 are allowed")
        );
    }

    #[test]
    fn flapping_is_noticed_under_a_constant_load_only() {
        let mut checked = checker(0);
        rescale(&mut checked, 100, 1, 3).unwrap();
        rescale(&mut checked, 110, 3, 2).unwrap();
        rescale(&mut checked, 150, 2, 4).unwrap();
        let why = rescale(&mut checked, 165, 4, 3).unwrap_err();
        assert!(why.contains("flaps under a constant load: by 2, then by -1"), "{why}");
        let path = "/api/v1/namespaces/default/configmaps/load-oar";
        let mut change = observed(166, "user", Method::PATCH, path, Value::Null);
        change.after = Some(Arc::new(json!({"data": {"load": "30"}})));
        checked.0.on_write(&change, &checked.1).unwrap();
        rescale(&mut checked, 170, 4, 3).unwrap();
    }
}
