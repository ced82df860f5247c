//! Validation of other kinds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::metadata::{meta, meta_str};
use super::super::naming;
use super::super::status::FieldError;
use super::super::types::Quantity;
use super::{Errors, is_set, is_standard, list, refuse_resource_name, refuse_text, text};

/// The annotation that ties a token Secret to its service account.
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Error message for a change of immutable data.
const IMMUTABLE: &str = "field is immutable when `immutable` is set";
fn keys(field: &str, new: &Value, errors: &mut Errors) {
    for key in new.get(field).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        refuse_text(&format!("{field}[{key}]"), key, &naming::config_key(key), errors);
    }
}

fn immutable(fields: &[&str], old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    for field in fields {
        if old.get(field) != new.get(field) {
            errors.push(FieldError::forbidden(field, IMMUTABLE));
        }
    }
}

pub(super) fn config_map(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    keys("data", new, errors);
    keys("binaryData", new, errors);
    for key in new["data"].as_object().into_iter().flat_map(Map::keys) {
        if new["binaryData"].get(key).is_some() {
            let why = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(&format!("data[{key}]"), &json!(key), why));
        }
    }
    immutable(&["data", "binaryData"], old, new, errors);
}

pub(super) fn secret(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    keys("data", new, errors);
    immutable(&["data"], old, new, errors);
    let needed: &[&str] = match text(new, "/type") {
        "kubernetes.io/service-account-token" => {
            let account = meta(new, "annotations").and_then(|a| a.get(SERVICE_ACCOUNT_NAME));
            if account.and_then(Value::as_str).unwrap_or_default().is_empty() {
                let field = format!("metadata.annotations[{SERVICE_ACCOUNT_NAME}]");
                errors.push(FieldError::required(&field, ""));
            }
            &[]
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/basic-auth"
            if ["username", "password"].iter().all(|key| new["data"].get(key).is_none()) =>
        {
            &["username", "password"]
        }
        _ => &[],
    };
    for key in needed {
        match new["data"].get(key) {
            None => errors.push(FieldError::required(&format!("data[{key}]"), "")),
            Some(value) if key.starts_with(".docker") => docker_config(key, value, errors),
            Some(_) => {}
        }
    }
}

fn docker_config(key: &str, value: &Value, errors: &mut Errors) {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Err(why) = super::super::strict_json::parse(&bytes) {
        let field = format!("data[{key}]");
        errors.push(FieldError::invalid(&field, &json!("<secret contents redacted>"), &why));
    }
}

/// Events with eventTime need a reporter, an action and a reason; older ones do not. Events written through
/// events.k8s.io must have eventTime and are immutable except for the series.
pub(super) fn event(view: bool, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let involved = text(new, "/involvedObject/namespace");
    let namespace = meta_str(new, "namespace");
    let timed = is_set(new, "/eventTime");
    let fits = match (timed, involved) {
        (false, "") => matches!(namespace, "default" | ""),
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (false, involved) => involved == namespace,
        (true, _) => true,
    };
    if !fits {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(involved), why));
    }
    if timed {
        let controller = text(new, "/reportingComponent");
        let field = if view { "reportingController" } else { "reportingComponent" };
        if controller.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        refuse_text(field, controller, &naming::qualified(controller), errors);
        for field in ["reportingInstance", "action", "reason"] {
            if text(new, &format!("/{field}")).is_empty() {
                errors.push(FieldError::required(field, ""));
            }
        }
    }
    match old {
        _ if !view => {}
        None => new_event(new, errors),
        Some(old) => changed_event(old, new, errors),
    }
}

fn series(new: &Value, errors: &mut Errors) {
    if is_set(new, "/series") && new["series"]["count"].as_i64().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", &json!(""), "should be at least 2"));
    }
}

fn new_event(new: &Value, errors: &mut Errors) {
    series(new, errors);
    let name = meta_str(new, "name");
    if !name.is_empty() {
        refuse_text("metadata.name", name, &naming::subdomain(name), errors);
    }
    if !is_set(new, "/eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(new, "/type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
    let source = new["source"].as_object().is_some_and(|source| !source.is_empty());
    for (field, set) in [
        ("firstTimestamp", is_set(new, "/firstTimestamp")),
        ("lastTimestamp", is_set(new, "/lastTimestamp")),
        ("count", new["count"].as_i64().unwrap_or(0) != 0),
        ("source", source),
    ] {
        errors.extend(set.then(|| FieldError::invalid(field, &json!(""), "needs to be unset")));
    }
}

fn changed_event(old: &Value, new: &Value, errors: &mut Errors) {
    if old.get("series") != new.get("series") {
        series(new, errors);
    }
    for field in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ] {
        let (before, after) =
            (old.get(field).unwrap_or(&Value::Null), new.get(field).unwrap_or(&Value::Null));
        if before != after {
            let empty = match field {
                "count" => json!(0),
                "eventTime" | "related" => Value::Null,
                _ => json!(""),
            };
            let value = if after.is_null() { &empty } else { after };
            let field = if field == "reportingComponent" { "reportingController" } else { field };
            errors.push(FieldError::invalid(field, value, "field is immutable"));
        }
    }
}

pub(super) fn namespace(new: &Value, errors: &mut Errors) {
    for finalizer in list(new, "/spec/finalizers").iter().filter_map(Value::as_str) {
        refuse_text("spec.finalizers", finalizer, &naming::qualified(finalizer), errors);
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid("spec.finalizers", &json!(finalizer), why));
        }
    }
}

pub(super) fn limit_range(new: &Value, errors: &mut Errors) {
    for (at, limit) in list(new, "/spec/limits").iter().enumerate() {
        let path = format!("spec.limits[{at}]");
        let kind = text(limit, "/type");
        refuse_text(&format!("{path}.type"), kind, &naming::qualified(kind), errors);
        if !kind.is_empty()
            && !kind.contains('/')
            && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim")
        {
            let why = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(&format!("{path}.type"), &json!(kind), why));
        }
        if list(new, "/spec/limits")[..at].iter().any(|other| other["type"] == limit["type"]) {
            errors.push(FieldError::duplicate(&format!("{path}.type"), &limit["type"]));
        }
        for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            let hidden = kind == "Pod" && field.starts_with("default");
            for name in limit[field].as_object().filter(|_| !hidden).into_iter().flat_map(Map::keys) {
                let of_containers = matches!(kind, "Pod" | "Container");
                refuse_resource_name(&format!("{path}.{field}[{name}]"), name, of_containers, errors);
            }
        }
        if kind == "PersistentVolumeClaim"
            && ["/min/storage", "/max/storage"].iter().all(|p| !is_set(limit, p))
        {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(&format!("{path}.limits"), why));
        }
        for field in ["default", "defaultRequest"] {
            if kind == "Pod" && limit[field].as_object().is_some_and(|map| !map.is_empty()) {
                let why = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(&format!("{path}.{field}"), why));
            }
        }
        amounts(&path, limit, kind == "Pod", errors);
    }
}

/// Minimum, maximum and defaults of a limit must be consistent.
fn amounts(path: &str, limit: &Value, of_pods: bool, errors: &mut Errors) {
    let amount = |kind: &str, name: &str| {
        let hidden = of_pods && kind.starts_with("default");
        limit[kind][name].as_str().filter(|_| !hidden).and_then(Quantity::parse)
    };
    let fields =
        ["min", "max", "default", "defaultRequest"].iter().filter_map(|field| limit[*field].as_object());
    let names: std::collections::BTreeSet<&String> = fields.flat_map(Map::keys).collect();
    for name in names {
        let [min, max, default, request] =
            ["min", "max", "default", "defaultRequest"].map(|kind| amount(kind, name));
        for (low, high, field, shown, words) in [
            (min, max, "min", min, ("min value", "max value")),
            (min, request, "defaultRequest", request, ("min value", "default request value")),
            (request, max, "defaultRequest", request, ("default request value", "max value")),
            (request, default, "defaultRequest", request, ("default request value", "default limit value")),
            (min, default, "default", min, ("min value", "default value")),
            (default, max, "default", max, ("default value", "max value")),
        ] {
            if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                && low > high
            {
                let why = format!("{} {low} is greater than {} {high}", words.0, words.1);
                let field = format!("{path}.{field}[{name}]");
                errors.push(FieldError::invalid(&field, &json!(shown.to_string()), &why));
            }
        }
    }
}

pub(super) fn resource_quota(new: &Value, errors: &mut Errors) {
    for name in new["spec"]["hard"].as_object().into_iter().flat_map(Map::keys) {
        let field = format!("spec.hard[{name}]");
        refuse_resource_name(&field, name, false, errors);
        if !name.contains('/') && !is_standard(name) {
            let why = "must be a standard resource for quota";
            errors.push(FieldError::invalid(&field, &json!(name), why));
        }
        quota_amount(&field, name, &new["spec"]["hard"][name], errors);
    }
    scope_selector(new, errors);
    let scopes = &new["spec"]["scopes"];
    let named: Vec<&str> = list(new, "/spec/scopes").iter().filter_map(Value::as_str).collect();
    let hard = new["spec"]["hard"].as_object();
    for scope in &named {
        let mut refuse = |why: &str| errors.push(FieldError::invalid("spec.scopes", scopes, why));
        if !QUOTA_SCOPES.contains(scope) {
            refuse("unsupported scope");
        } else if *scope == "BestEffort"
            && hard.is_some_and(|hard| hard.keys().any(|name| name != "pods" && is_standard(name)))
        {
            refuse("unsupported scope applied to resource");
        }
    }
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if named.contains(&one) && named.contains(&other) {
            errors.push(FieldError::invalid("spec.scopes", scopes, "conflicting scopes"));
        }
    }
}

/// A limit is not negative, and what is counted has a whole number.
fn quota_amount(field: &str, name: &str, amount: &Value, errors: &mut Errors) {
    let Some(quantity) = amount.as_str().and_then(Quantity::parse) else { return };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(field, amount, "must be greater than or equal to 0"));
    }
    let is_counted = matches!(
        name,
        "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    );
    if is_counted && quantity != quantity.to_whole() {
        errors.push(FieldError::invalid(field, amount, "must be an integer"));
    }
}

/// The operators of a scope selector and their values.
fn scope_selector(new: &Value, errors: &mut Errors) {
    let path = "spec.scopeSelector.matchExpressions";
    for requirement in list(new, "/spec/scopeSelector/matchExpressions") {
        let (scope, operator) = (text(requirement, "/scopeName"), text(requirement, "/operator"));
        let has_values = !list(requirement, "/values").is_empty();
        if !QUOTA_SCOPES.contains(&scope) {
            let value = &requirement["scopeName"];
            errors.push(FieldError::invalid(&format!("{path}.scopeName"), value, "unsupported scope"));
        }
        if QUOTA_SCOPES.contains(&scope) && !scope.ends_with("Class") && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                       ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                       ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(&format!("{path}.operator"), &requirement["operator"], why));
        }
        match operator {
            "In" | "NotIn" if !has_values => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(&format!("{path}.values"), why));
            }
            "Exists" | "DoesNotExist" if has_values => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(&format!("{path}.values"), &requirement["values"], why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(&format!("{path}.operator"), &requirement["operator"], why));
            }
        }
    }
}

const QUOTA_SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Node addresses must be unique.
pub(super) fn node_addresses(status: &Value, errors: &mut Errors) {
    let addresses = list(status, "/addresses");
    for (at, address) in addresses.iter().enumerate().filter(|(at, new)| addresses[..*at].contains(new)) {
        errors.push(FieldError::duplicate(&format!("status.addresses[{at}]"), address));
    }
}

pub(super) fn node(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let taints = list(new, "/spec/taints");
    for (at, taint) in taints.iter().enumerate() {
        let path = format!("metadata.taints[{at}]");
        let key = text(taint, "/key");
        refuse_text(&format!("{path}.key"), key, &naming::qualified(key), errors);
        let effect = text(taint, "/effect");
        if effect.is_empty() {
            errors.push(FieldError::required(&format!("{path}.effect"), ""));
        } else if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let supported = "\"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"";
            errors.push(FieldError::not_supported(&format!("{path}.effect"), effect, supported));
        }
        let same = |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if taints[..at].iter().any(same) {
            let why = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate_with_detail(&path, taint, why));
        }
    }
    let ranges = list(new, "/spec/podCIDRs");
    for (at, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        refuse_text(&format!("spec.podCIDRs[{at}]"), range, &naming::cidr(range), errors);
    }
    let fourth =
        ranges.iter().filter(|range| range.as_str().is_some_and(|range| !range.contains(':'))).count();
    if ranges.len() > 1 && (ranges.len() > 2 || fourth != 1) {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid("spec.podCIDRs", &new["spec"]["podCIDRs"], why));
    }
    if let Some(old) = old {
        node_update(old, new, errors);
    }
}

fn node_update(old: &Value, new: &Value, errors: &mut Errors) {
    let given = |node: &Value| list(node, "/spec/podCIDRs").to_vec();
    if !given(old).is_empty() && given(new) != given(old) {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
    let (before, after) = (text(old, "/spec/providerID"), text(new, "/spec/providerID"));
    if !before.is_empty() && before != after {
        let fate = if after.is_empty() { "cleared" } else { "modified" };
        let why = format!("field cannot be {fate} once set");
        errors.push(FieldError::invalid("spec.providerID", &Value::Null, &why));
    }
}

pub(super) fn priority_class(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let system = meta_str(new, "name").starts_with("system-");
    if old.is_none() && !system && new["value"].as_i64().unwrap_or(0) > 1_000_000_000 {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        errors.push(FieldError::forbidden("value", why));
    }
}
