//! Keeps an aggregated ClusterRole equal to the union of the roles that its selectors match.
//!
//! Parity: pkg/controller/clusterroleaggregation/.

use keleustes_objects::{ClusterRole, InvalidSelector, PolicyRule};
use keleustes_plan::{Change, Controller, Enqueue, Grant, Item, Loop, Plan, View, Write};
use serde_json::json;

/// The controller. It may escalate: it hands out rules that it does not have itself.
#[must_use]
pub fn controller() -> Controller {
    Controller::new(NAME)
        .also_known_as(&["clusterrole-aggregation"])
        .service_account(NAME)
        .may_write(&[Grant {
            group: "rbac.authorization.k8s.io",
            resource: "clusterroles",
            verbs: &["escalate", "get", "list", "patch", "update", "watch"],
        }])
        .with_loop(
            Loop::deciding("ClusterRoleAggregator", decide)
                .workers(5)
                .enqueue_on::<ClusterRole>(role_changed),
        )
}

const NAME: &str = "clusterrole-aggregation-controller";

/// Any role may be, or may have been, part of any aggregated one.
fn role_changed(_: &Change<ClusterRole>, view: &View<'_>, wakes: &mut Enqueue) {
    for role in view.all::<ClusterRole>().filter(|role| role.aggregation.is_some()) {
        wakes.add(&role.meta.key);
    }
}

fn decide(view: &View<'_>, item: &Item) -> Plan {
    let Some(role) = view.get::<ClusterRole>(item).filter(|role| role.aggregation.is_some()) else {
        return Plan::none();
    };
    let wanted = match union_of_rules(role, view) {
        Ok(wanted) => wanted,
        Err(error) => return Plan::error(format!("a selector of ClusterRole {item} is invalid: {error}")),
    };
    if wanted == *role.rules {
        return Plan::none();
    }
    // Left out rather than stated as empty: that gives up the rules that were applied before.
    let fields = if wanted.is_empty() { json!({}) } else { json!({"rules": wanted}) };
    Plan::of(Write::apply(&**role, NAME, fields).because("the rules of the selected roles differ"))
}

/// The rules of all selected roles: selector by selector, role by role in order of name, each rule once.
fn union_of_rules(role: &ClusterRole, view: &View<'_>) -> Result<Vec<PolicyRule>, InvalidSelector> {
    let mut union: Vec<PolicyRule> = Vec::new();
    for selector in role.aggregation.iter().flatten() {
        let matcher = selector.matcher()?;
        let others = view.all::<ClusterRole>().filter(|other| other.meta.key != role.meta.key);
        for rule in others.filter(|other| matcher.matches(&other.meta.labels)).flat_map(|other| &other.rules)
        {
            if !union.contains(rule) {
                union.push(rule.clone());
            }
        }
    }
    Ok(union)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keleustes_objects::{ApiError, ErrorReason, Key};
    use keleustes_plan::RateLimiter;
    use keleustes_plan::rehearsal::RehearsalCluster;
    use serde_json::Value;

    use super::*;

    fn the_loop() -> Loop {
        controller().loops.remove(0)
    }

    /// A role with one label and rules that allow getting these resources.
    fn role(name: &str, label: &str, resources: &[&str]) -> Value {
        let rules: Vec<_> = resources.iter().map(|resource| rule(resource)).collect();
        json!({"metadata": {"name": name, "labels": {"foo": label}}, "rules": rules})
    }

    fn rule(resource: &str) -> Value {
        json!({"verbs": ["get"], "resources": [resource]})
    }

    /// An aggregated role named `whole` with these selectors and rules.
    fn whole(selectors: &[Value], resources: &[&str]) -> Value {
        let mut whole = role("whole", "whole", resources);
        whole["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        whole
    }

    fn selects(label: &str) -> Value {
        json!({"matchLabels": {"foo": label}})
    }

    /// The minutes of one look at `whole` in a world of these roles.
    fn sync(roles: &[Value]) -> String {
        let a_loop = the_loop();
        let mut world =
            roles.iter().cloned().fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        world.reconcile(&a_loop, Key::cluster("whole"))
    }

    fn applies(resources: &[&str]) -> String {
        let rules: Vec<_> = resources.iter().map(|resource| rule(resource)).collect();
        let fields = if rules.is_empty() { json!({}) } else { json!({"rules": rules}) };
        format!(
            "apply clusterroles.rbac.authorization.k8s.io whole because the rules of the selected roles differ: {fields}\n"
        )
    }

    /// Proves CRA-10, CRA-46.
    #[test]
    fn roles_that_are_gone_or_do_not_aggregate_are_left_alone() {
        assert_eq!(sync(&[]), "");
        assert_eq!(sync(&[role("whole", "whole", &["x"]), role("a", "bar", &["y"])]), "");
    }

    /// Proves CRA-11, CRA-40.
    #[test]
    fn rules_come_selector_by_selector_and_by_name() {
        let roles = [
            role("d", "bar", &["d1", "d2"]),
            role("a", "not-bar", &["a"]),
            role("b", "bar", &["b"]),
            whole(&[selects("bar"), selects("not-bar")], &[]),
        ];
        assert_eq!(sync(&roles), applies(&["b", "d1", "d2", "a"]));
    }

    /// Proves CRA-12.
    #[test]
    fn a_role_never_gathers_from_itself() {
        assert_eq!(sync(&[whole(&[selects("whole")], &["mine"])]), applies(&[]));
    }

    /// Proves CRA-13, CRA-41.
    #[test]
    fn equal_rules_are_taken_once_and_order_inside_a_rule_matters() {
        let mut padded = role("a", "bar", &["x"]);
        padded["rules"][0]["resourceNames"] = json!([]);
        padded["rules"][0]["apiGroups"] = Value::Null;
        let roles = [padded, role("b", "bar", &["x", "y"]), whole(&[selects("bar"), selects("bar")], &[])];
        assert_eq!(sync(&roles), applies(&["x", "y"]));
        let (mut one, mut other) = (role("a", "bar", &["x"]), role("b", "bar", &["x"]));
        one["rules"][0]["verbs"] = json!(["get", "list"]);
        other["rules"][0]["verbs"] = json!(["list", "get"]);
        assert_eq!(sync(&[one, other, whole(&[selects("bar")], &[])]).matches("verbs").count(), 2);
    }

    /// Proves CRA-14.
    #[test]
    fn selectors_are_whole_label_selectors() {
        let not_in = json!({"matchExpressions": [{"key": "foo", "operator": "NotIn", "values": ["bar"]}]});
        let roles = |selector| [role("a", "bar", &["a"]), role("b", "baz", &["b"]), whole(&[selector], &[])];
        assert_eq!(sync(&roles(not_in)), applies(&["b"]));
        assert_eq!(sync(&roles(json!({}))), applies(&["a", "b"]));
    }

    /// Proves CRA-15, CRA-48.
    #[test]
    fn an_invalid_selector_is_tried_again_and_stops_no_other_role() {
        let invalid = json!({"matchExpressions": [{"key": "foo", "operator": "In", "values": []}]});
        let mut good = whole(&[selects("bar")], &[]);
        good["metadata"]["name"] = json!("good");
        let a_loop = the_loop();
        let mut world = [whole(&[invalid], &["kept"]), good, role("a", "bar", &["a"])]
            .into_iter()
            .fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        let minutes = world.reconcile(&a_loop, Key::cluster("whole"));
        assert!(minutes.starts_with("retry: a selector of ClusterRole whole is invalid: "), "{minutes}");
        assert!(world.reconcile(&a_loop, Key::cluster("good")).starts_with("apply"));
    }

    /// Proves CRA-16.
    #[test]
    fn what_is_as_wanted_is_not_written() {
        assert_eq!(sync(&[role("a", "bar", &["a", "b"]), whole(&[selects("bar")], &["a", "b"])]), "");
        assert_ne!(sync(&[role("a", "bar", &["b", "a"]), whole(&[selects("bar")], &["a", "b"])]), "");
        let mut bare = whole(&[], &[]);
        bare["rules"] = Value::Null;
        assert_eq!(sync(&[bare]), "");
    }

    /// Proves CRA-17, CRA-42.
    #[test]
    fn rules_that_nobody_selected_provides_are_removed() {
        assert_eq!(
            sync(&[role("a", "bar", &["a"]), whole(&[selects("bar")], &["a", "by-hand"])]),
            applies(&["a"])
        );
        let roles =
            [role("a", "other", &["a"]), role("b", "bar", &["b"]), whole(&[selects("bar")], &["a", "b"])];
        assert_eq!(sync(&roles), applies(&["b"]), "relabelled");
        let roles = [role("b", "bar", &["a"]), whole(&[selects("bar")], &["a"])];
        assert_eq!(sync(&roles), "", "another provides an equal rule");
    }

    /// Proves CRA-18, CRA-22.
    #[test]
    fn nothing_selected_means_no_rules_which_are_then_left_out() {
        assert_eq!(sync(&[whole(&[], &["x"])]), applies(&[]));
        assert_eq!(sync(&[whole(&[selects("nobody")], &["x"])]), applies(&[]));
    }

    /// Proves CRA-19, CRA-44.
    #[test]
    fn aggregated_roles_gather_from_each_other_as_they_are() {
        let mut other = whole(&[selects("whole")], &["handed-over"]);
        other["metadata"] = json!({"name": "other", "labels": {"foo": "other"}});
        assert_eq!(sync(&[other, whole(&[selects("other")], &[])]), applies(&["handed-over"]));
    }

    /// Proves CRA-21.
    #[test]
    fn rules_are_carried_over_whole_and_nothing_else_is_sent() {
        let full = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"],
                          "nonResourceURLs": ["/metrics"]});
        let mut part = role("a", "bar", &[]);
        part["rules"] = json!([full]);
        let minutes = sync(&[part, whole(&[selects("bar")], &[])]);
        let body: Value = serde_json::from_str(&minutes[minutes.find(": ").unwrap() + 2..]).unwrap();
        assert_eq!(body, json!({"rules": [full]}));
    }

    /// Proves CRA-23, CRA-47.
    #[test]
    fn every_refusal_is_tried_again_until_the_role_is_gone() {
        let a_loop = the_loop();
        for reason in
            [ErrorReason::NotFound, ErrorReason::Conflict, ErrorReason::Forbidden, ErrorReason::Unavailable]
        {
            let world = RehearsalCluster::of(&a_loop).with::<ClusterRole>(whole(&[], &["x"]));
            let failure = ApiError::transport(reason, "refused");
            let mut world = world.failing::<ClusterRole>("patch", &Key::cluster("whole"), failure);
            assert!(
                world.reconcile(&a_loop, Key::cluster("whole")).ends_with("retry: refused\n"),
                "{reason:?}"
            );
        }
        assert_eq!(sync(&[]), "");
    }

    /// Proves CRA-1, CRA-2.
    #[test]
    fn any_change_of_any_role_wakes_every_aggregated_one() {
        let a_loop = the_loop();
        let mut second = whole(&[], &[]);
        second["metadata"]["name"] = json!("second");
        let world = [whole(&[], &[]), second, role("a", "bar", &[])]
            .into_iter()
            .fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        let any = || -> Arc<ClusterRole> { Arc::new(serde_json::from_value(role("any", "x", &[])).unwrap()) };
        for change in [Change::added(any()), Change::deleted(any()), Change::resync(any())] {
            assert_eq!(world.enqueued_by(&a_loop, change), ["second", "whole"]);
        }
    }

    /// Proves CRA-3, CRA-4, CRA-31, RUN-64.
    #[test]
    fn it_is_known_by_the_original_s_names_and_numbers() {
        let controller = controller();
        assert_eq!(controller.service_account, Some("clusterrole-aggregation-controller"));
        assert_eq!(controller.event_component, None);
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("ClusterRoleAggregator", 5, None));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    }
}
