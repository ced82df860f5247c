//! Validation of RBAC kinds.

use serde_json::Value;

use super::super::naming;
use super::super::status::FieldError;
use super::{Errors, list, refuse_text, rules, text};

pub(super) fn role(new: &Value, errors: &mut Errors) {
    policy_rules(new, true, errors);
}

pub(super) fn cluster_role(new: &Value, errors: &mut Errors) {
    policy_rules(new, false, errors);
    let Some(aggregation) = new.get("aggregationRule").filter(|rule| rule.is_object()) else { return };
    let selectors = list(aggregation, "/clusterRoleSelectors");
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", why));
    }
    for (at, selector) in selectors.iter().enumerate() {
        let path = format!("aggregationRule.clusterRoleSelectors[{at}]");
        let before = errors.len();
        rules::selector(&path, selector, errors);
        if errors.len() > before {
            errors.push(FieldError::invalid(&path, &Value::Null, "invalid label selector."));
        }
    }
}

fn policy_rules(new: &Value, namespaced: bool, errors: &mut Errors) {
    for (at, rule) in list(new, "/rules").iter().enumerate() {
        let filled = |field: &str| !list(rule, &format!("/{field}")).is_empty();
        if filled("nonResourceURLs") {
            let mixed = filled("apiGroups") || filled("resources") || filled("resourceNames");
            let field = format!("rules[{at}].nonResourceURLs");
            for (wrong, why) in [
                (namespaced, "namespaced rules cannot apply to non-resource URLs"),
                (mixed, "rules cannot apply to both regular resources and non-resource URLs"),
            ] {
                errors.extend(wrong.then(|| FieldError::invalid(&field, &rule["nonResourceURLs"], why)));
            }
            continue;
        }
        for (field, why) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if !filled(field) {
                errors.push(FieldError::required(&format!("rules[{at}].{field}"), why));
            }
        }
    }
}

pub(super) fn binding(namespaced: bool, new: &Value, errors: &mut Errors) {
    if text(new, "/roleRef/kind").is_empty() {
        let supported = if namespaced { "\"Role\", \"ClusterRole\"" } else { "\"ClusterRole\"" };
        errors.push(FieldError::not_supported("roleRef.kind", "", supported));
    }
    for (at, subject) in list(new, "/subjects").iter().enumerate() {
        let path = format!("subjects[{at}]");
        if text(subject, "/kind") == "ServiceAccount" {
            let name = text(subject, "/name");
            if !name.is_empty() {
                refuse_text(&format!("{path}.name"), name, &naming::subdomain(name), errors);
            }
            if !namespaced && text(subject, "/namespace").is_empty() {
                errors.push(FieldError::required(&format!("{path}.namespace"), ""));
            }
        }
    }
}
