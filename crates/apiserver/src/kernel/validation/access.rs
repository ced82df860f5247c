//! Validation of RBAC kinds and CertificateSigningRequests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::naming;
use super::super::status::FieldError;
use super::{Errors, is_set, list, refuse_text, rules, text};

/// Valid key usages.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

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

pub(super) fn signing_request(new: &Value, errors: &mut Errors) {
    let pem = STANDARD.decode(text(new, "/spec/request")).unwrap_or_default();
    if !String::from_utf8_lossy(&pem).contains("BEGIN CERTIFICATE REQUEST") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid("spec.request", &new["spec"]["request"], why));
    }
    let signer = text(new, "/spec/signerName");
    if !signer.is_empty() && signer.split_once('/').is_none_or(|(domain, _)| !domain.contains('.')) {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid("spec.signerName", &json!(signer), why));
    }
    let usages = list(new, "/spec/usages");
    for (at, usage) in usages.iter().enumerate() {
        let field = format!("spec.usages[{at}]");
        let word = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&word) {
            let supported: Vec<String> = USAGES.iter().map(|usage| format!("{usage:?}")).collect();
            errors.push(FieldError::not_supported(&field, word, &supported.join(", ")));
        }
        if usages[..at].contains(usage) {
            errors.push(FieldError::duplicate(&field, usage));
        }
    }
}

/// Approved and Denied conditions cannot be removed or changed.
pub(super) fn approval_conditions(approves: bool, old: &Value, new: &Value, errors: &mut Errors) {
    let conditions = |object: &Value| list(object, "/status/conditions").to_vec();
    let known = conditions(old);
    for (at, condition) in conditions(new).iter().enumerate() {
        let kind = text(condition, "/type");
        let status = text(condition, "/status");
        if matches!(kind, "Approved" | "Denied" | "Failed") && status != "True" {
            errors.push(FieldError::not_supported(
                &format!("status.conditions[{at}].status"),
                status,
                "\"True\"",
            ));
        }
    }
    let has = |list: &[Value], kind: &str| list.iter().any(|condition| condition["type"] == kind);
    let all = conditions(new);
    if has(&all, "Approved") && has(&all, "Denied") {
        let why = "must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \
                   \"Denied\"}]`";
        errors.push(FieldError::invalid("status.conditions", &new["status"]["conditions"], why));
    }
    for kind in ["Approved", "Denied", "Failed"] {
        let added = has(&all, kind) && !has(&known, kind);
        if added && !approves && kind != "Failed" {
            let why = format!("updates may not add a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", &why));
        }
        if has(&known, kind) && !has(&all, kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", &why));
        }
    }
    let pem = STANDARD.decode(text(new, "/status/certificate")).unwrap_or_default();
    let changed = old["status"]["certificate"] != new["status"]["certificate"];
    if is_set(new, "/status/certificate")
        && changed
        && !String::from_utf8_lossy(&pem).contains("BEGIN CERTIFICATE")
    {
        let why = "must contain at least one CERTIFICATE PEM block";
        errors.push(FieldError::invalid("status.certificate", &json!("<certificate data>"), why));
    }
}
