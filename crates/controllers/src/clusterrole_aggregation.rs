//! Keeps an aggregated ClusterRole equal to the union of the roles that its selectors match.
//!
//! Parity: pkg/controller/clusterroleaggregation/.

use std::collections::BTreeSet;

use keleustes_objects::{ClusterRole, InvalidSelector, Key, PolicyRule};
use keleustes_plan::{Change, Controller, Effects, Grant, Index, Loop, Plan, View, Write};
use serde_json::json;

/// Builds the controller. It needs the verb `escalate`, because it grants rules that it does not have itself.
#[must_use]
pub fn controller() -> Controller {
    Controller::new(NAME)
        .service_account(NAME)
        .may_write(&[Grant {
            group: "rbac.authorization.k8s.io",
            resource: "clusterroles",
            verbs: &["escalate", "get", "list", "patch", "update", "watch"],
        }])
        .with_loop(
            Loop::deciding("ClusterRoleAggregator", decide)
                .workers(5)
                .keyed_by::<ClusterRole>()
                .reads_index(AGGREGATED)
                .enqueue_on::<ClusterRole>(role_changed),
        )
}

const NAME: &str = "clusterrole-aggregation-controller";

/// The few aggregated ClusterRoles among thousands of others: at the start, each of these is a change.
const AGGREGATED: Index<ClusterRole> = Index {
    name: "aggregated",
    values: |role, emit| role.aggregation.iter().for_each(|_| emit("true".into())),
};

/// Any ClusterRole may be, or may have been, selected by any aggregated one.
fn role_changed(_: &Change<ClusterRole>, view: &View<'_>, enqueue: &mut Effects) {
    for role in view.store::<ClusterRole>().by_index(&AGGREGATED, "true") {
        enqueue.add(&role.meta.key);
    }
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
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
    // Omitting the field, instead of applying an empty list, gives up ownership of the rules applied before.
    let fields = if wanted.is_empty() { json!({}) } else { json!({"rules": wanted}) };
    Plan::of(Write::apply(&**role, NAME, fields).because("the rules of the selected roles differ"))
}

/// The rules of all selected roles: in order of selectors, then of role names, without duplicates.
fn union_of_rules(role: &ClusterRole, view: &View<'_>) -> Result<Vec<PolicyRule>, InvalidSelector> {
    let (mut union, mut found) = (Vec::new(), BTreeSet::new());
    for selector in role.aggregation.iter().flatten() {
        let matcher = selector.matcher()?;
        let others = view.all::<ClusterRole>().filter(|other| other.meta.key != role.meta.key);
        for rule in others.filter(|other| matcher.matches(&other.meta.labels)).flat_map(|other| &other.rules)
        {
            if found.insert(rule) {
                union.push(rule.clone());
            }
        }
    }
    Ok(union)
}

#[cfg(test)]
mod tests {
    use keleustes_plan::rehearsal::{is_retried_because, rows_read};
    use std::sync::Arc;

    use keleustes_objects::{ApiError, ErrorReason};
    use keleustes_plan::RateLimiter;
    use keleustes_plan::rehearsal::RehearsalCluster;
    use serde_json::Value;

    use super::*;
    use crate::cpu_time::cpu_seconds;

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

    /// An aggregated role named `aggregated` with these selectors and rules.
    fn aggregated(selectors: &[Value], resources: &[&str]) -> Value {
        let mut aggregated = role("aggregated", "aggregated", resources);
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        aggregated
    }

    fn selects(label: &str) -> Value {
        json!({"matchLabels": {"foo": label}})
    }

    /// The transcript of one reconcile of `aggregated` in a cluster with these roles.
    fn sync(roles: &[Value]) -> String {
        let a_loop = the_loop();
        let mut cluster =
            roles.iter().cloned().fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        cluster.reconcile(&a_loop, Key::cluster("aggregated"))
    }

    fn applies(resources: &[&str]) -> String {
        let rules: Vec<_> = resources.iter().map(|resource| rule(resource)).collect();
        let fields = if rules.is_empty() { json!({}) } else { json!({"rules": rules}) };
        format!(
            "apply clusterroles.rbac.authorization.k8s.io aggregated because the rules of the selected roles differ: {fields}\n"
        )
    }

    /// Proves CRA-10, CRA-46.
    #[test]
    fn deleted_or_plain_roles_are_not_changed() {
        assert_eq!(sync(&[]), "");
        assert_eq!(sync(&[role("aggregated", "aggregated", &["x"]), role("a", "bar", &["y"])]), "");
    }

    /// Proves CRA-11, CRA-40.
    #[test]
    fn rules_are_ordered_by_selector_and_role_name() {
        let roles = [
            role("d", "bar", &["d1", "d2"]),
            role("a", "not-bar", &["a"]),
            role("b", "bar", &["b"]),
            aggregated(&[selects("bar"), selects("not-bar")], &[]),
        ];
        assert_eq!(sync(&roles), applies(&["b", "d1", "d2", "a"]));
    }

    /// Proves CRA-12.
    #[test]
    fn role_never_aggregates_itself() {
        assert_eq!(sync(&[aggregated(&[selects("aggregated")], &["mine"])]), applies(&[]));
    }

    /// Proves CRA-13, CRA-41.
    #[test]
    fn equal_rules_are_deduplicated_and_order_inside_a_rule_matters() {
        let mut padded = role("a", "bar", &["x"]);
        padded["rules"][0]["resourceNames"] = json!([]);
        padded["rules"][0]["apiGroups"] = Value::Null;
        let roles =
            [padded, role("b", "bar", &["x", "y"]), aggregated(&[selects("bar"), selects("bar")], &[])];
        assert_eq!(sync(&roles), applies(&["x", "y"]));
        let (mut one, mut other) = (role("a", "bar", &["x"]), role("b", "bar", &["x"]));
        one["rules"][0]["verbs"] = json!(["get", "list"]);
        other["rules"][0]["verbs"] = json!(["list", "get"]);
        assert_eq!(sync(&[one, other, aggregated(&[selects("bar")], &[])]).matches("verbs").count(), 2);
    }

    /// Proves CRA-14.
    #[test]
    fn selectors_support_match_expressions() {
        let not_in = json!({"matchExpressions": [{"key": "foo", "operator": "NotIn", "values": ["bar"]}]});
        let roles =
            |selector| [role("a", "bar", &["a"]), role("b", "baz", &["b"]), aggregated(&[selector], &[])];
        assert_eq!(sync(&roles(not_in)), applies(&["b"]));
        assert_eq!(sync(&roles(json!({}))), applies(&["a", "b"]));
    }

    /// Proves CRA-15, CRA-48.
    #[test]
    fn invalid_selector_is_retried_and_stops_no_other_role() {
        let invalid = json!({"matchExpressions": [{"key": "foo", "operator": "In", "values": []}]});
        let mut good = aggregated(&[selects("bar")], &[]);
        good["metadata"]["name"] = json!("good");
        let a_loop = the_loop();
        let mut cluster = [aggregated(&[invalid], &["kept"]), good, role("a", "bar", &["a"])]
            .into_iter()
            .fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        let transcript = cluster.reconcile(&a_loop, Key::cluster("aggregated"));
        assert!(
            transcript.starts_with("retry: a selector of ClusterRole aggregated is invalid: "),
            "{transcript}"
        );
        assert!(cluster.reconcile(&a_loop, Key::cluster("good")).starts_with("apply"));
    }

    /// Proves CRA-16.
    #[test]
    fn up_to_date_role_is_not_written() {
        assert_eq!(sync(&[role("a", "bar", &["a", "b"]), aggregated(&[selects("bar")], &["a", "b"])]), "");
        assert_ne!(sync(&[role("a", "bar", &["b", "a"]), aggregated(&[selects("bar")], &["a", "b"])]), "");
        let mut bare = aggregated(&[], &[]);
        bare["rules"] = Value::Null;
        assert_eq!(sync(&[bare]), "");
    }

    /// Proves CRA-17, CRA-42.
    #[test]
    fn rules_that_no_selected_role_provides_are_removed() {
        assert_eq!(
            sync(&[role("a", "bar", &["a"]), aggregated(&[selects("bar")], &["a", "by-hand"])]),
            applies(&["a"])
        );
        let roles = [
            role("a", "other", &["a"]),
            role("b", "bar", &["b"]),
            aggregated(&[selects("bar")], &["a", "b"]),
        ];
        assert_eq!(sync(&roles), applies(&["b"]), "relabelled");
        let roles = [role("b", "bar", &["a"]), aggregated(&[selects("bar")], &["a"])];
        assert_eq!(sync(&roles), "", "another role provides an equal rule");
    }

    /// Proves CRA-18, CRA-22.
    #[test]
    fn role_without_selected_roles_applies_no_rules_field() {
        assert_eq!(sync(&[aggregated(&[], &["x"])]), applies(&[]));
        assert_eq!(sync(&[aggregated(&[selects("unused")], &["x"])]), applies(&[]));
    }

    /// Proves CRA-19, CRA-44.
    #[test]
    fn aggregated_roles_aggregate_each_others_current_rules() {
        let mut other = aggregated(&[selects("aggregated")], &["handed-over"]);
        other["metadata"] = json!({"name": "other", "labels": {"foo": "other"}});
        assert_eq!(sync(&[other, aggregated(&[selects("other")], &[])]), applies(&["handed-over"]));
    }

    /// Proves CRA-21.
    #[test]
    fn rules_are_copied_with_all_fields_and_nothing_else_is_sent() {
        let full = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"],
                          "nonResourceURLs": ["/metrics"]});
        let mut part = role("a", "bar", &[]);
        part["rules"] = json!([full]);
        let transcript = sync(&[part, aggregated(&[selects("bar")], &[])]);
        let body: Value = serde_json::from_str(&transcript[transcript.find(": ").unwrap() + 2..]).unwrap();
        assert_eq!(body, json!({"rules": [full]}));
    }

    /// Proves CRA-23, CRA-47.
    #[test]
    fn every_error_is_retried_until_the_role_is_deleted() {
        let a_loop = the_loop();
        for reason in
            [ErrorReason::NotFound, ErrorReason::Conflict, ErrorReason::Forbidden, ErrorReason::Unavailable]
        {
            let cluster = RehearsalCluster::of(&a_loop).with::<ClusterRole>(aggregated(&[], &["x"]));
            let failure = ApiError::transport(reason, "refused");
            let mut cluster = cluster.failing::<ClusterRole>("patch", &Key::cluster("aggregated"), failure);
            assert!(
                is_retried_because(&cluster.reconcile(&a_loop, Key::cluster("aggregated")), "refused"),
                "{reason:?}"
            );
        }
        assert_eq!(sync(&[]), "");
    }

    /// Proves CRA-1, CRA-2.
    #[test]
    fn any_role_event_enqueues_every_aggregated_role() {
        let a_loop = the_loop();
        let mut second = aggregated(&[], &[]);
        second["metadata"]["name"] = json!("second");
        let cluster = [aggregated(&[], &[]), second, role("a", "bar", &[])]
            .into_iter()
            .fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        let any = || -> Arc<ClusterRole> { Arc::new(serde_json::from_value(role("any", "x", &[])).unwrap()) };
        for change in [Change::added(any()), Change::deleted(any()), Change::resync(any())] {
            assert_eq!(cluster.enqueued_by(&a_loop, change), ["aggregated", "second"]);
        }
    }

    /// Each of them is a change when the controller starts.
    #[test]
    fn change_costs_the_same_with_any_number_of_plain_roles() {
        let a_loop = the_loop();
        let mut roles: Vec<_> = (0..1000).map(|n| role(&format!("role-{n}"), "bar", &["a"])).collect();
        roles.push(aggregated(&[selects("bar")], &[]));
        let cluster =
            roles.into_iter().fold(RehearsalCluster::of(&a_loop), RehearsalCluster::with::<ClusterRole>);
        let plain: Arc<ClusterRole> =
            Arc::new(serde_json::from_value(role("role-1", "bar", &["a"])).unwrap());
        let (enqueued, rows) = rows_read(|| cluster.enqueued_by(&a_loop, Change::added(plain)));
        assert_eq!((enqueued, rows), (vec!["aggregated".to_owned()], 1));
    }

    /// Rules of a role that its author may grow to the size limit of objects.
    #[test]
    fn union_of_many_rules_is_found_quickly() {
        let rules: Vec<_> = (0..100_000).map(|n| json!({"nonResourceURLs": [format!("/{n}")]})).collect();
        let mut part = role("part", "bar", &[]);
        part["rules"] = json!(rules);
        let began = cpu_seconds();
        let transcript = sync(&[part, aggregated(&[selects("bar")], &[])]);
        let seconds = cpu_seconds() - began;
        assert_eq!(transcript.matches("nonResourceURLs").count(), 100_000);
        assert!(seconds < 20.0, "{seconds} s of CPU time");
    }

    /// Proves CRA-3, CRA-4, CRA-31, RUN-64.
    #[test]
    fn controller_has_upstreams_names_and_numbers() {
        let controller = controller();
        assert_eq!(controller.service_account, Some("clusterrole-aggregation-controller"));
        assert_eq!(controller.event_component, None);
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("ClusterRoleAggregator", 5, None));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    }
}
