//! Validation of workload kinds.

use keleustes_objects::template::semantically_equal;
use serde_json::{Value, json};

use super::super::metadata::{NOT_NEGATIVE, meta_str};
use super::super::selectors::selects;
use super::super::status::FieldError;
use super::{Errors, autoscalers, fixed, is_set, list, pods, rules, text, without};

const NO_MATCH: &str = "`selector` does not match template `labels`";

fn template(path: &str, template: &Value, errors: &mut Errors) {
    pods::spec(&format!("{path}.spec"), &template["spec"], errors);
}

/// These workloads require restartPolicy Always.
fn restarts_always(kind: &str, object: &Value, errors: &mut Errors) {
    let policy = text(object, "/spec/template/spec/restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, "\"Always\""));
    }
    if is_set(object, "/spec/template/spec/activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", &why));
    }
}

/// Common rules of Deployments, ReplicaSets, StatefulSets and DaemonSets.
fn selected(kind: &str, empty: &str, object: &Value, errors: &mut Errors) {
    let selector = &object["spec"]["selector"];
    let labels = object.pointer("/spec/template/metadata/labels").unwrap_or(&Value::Null);
    match selector.as_object() {
        // A missing selector selects nothing.
        None => {
            if kind != "DaemonSet" {
                errors.push(FieldError::required("spec.selector", ""));
            }
            errors.push(FieldError::invalid("spec.template.metadata.labels", labels, NO_MATCH));
        }
        Some(map) if map.is_empty() => {
            let why = format!("empty selector is invalid for {empty}");
            errors.push(FieldError::invalid("spec.selector", selector, &why));
        }
        Some(_) => {
            let understood = list(selector, "/matchExpressions")
                .iter()
                .all(|rule| matches!(text(rule, "/operator"), "In" | "NotIn" | "Exists" | "DoesNotExist"));
            if !understood {
                if matches!(kind, "Deployment" | "ReplicaSet") {
                    errors.push(FieldError::invalid("spec.selector", selector, "invalid label selector"));
                }
                return;
            }
            if !selects(selector, labels) {
                errors.push(FieldError::invalid("spec.template.metadata.labels", labels, NO_MATCH));
            }
        }
    }
    rules::check_block("Template", "spec.template", None, &object["spec"]["template"], errors);
    template("spec.template", &object["spec"]["template"], errors);
    let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
    restarts_always(kind, object, errors);
}

pub(super) fn replication_controller(new: &Value, errors: &mut Errors) {
    let (selector, labels) = (&new["spec"]["selector"], &new["spec"]["template"]["metadata"]["labels"]);
    if is_set(new, "/spec/template")
        && is_set(new, "/spec/selector")
        && !selects(&json!({"matchLabels": selector}), labels)
    {
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, NO_MATCH));
    }
    if is_set(new, "/spec/template") {
        template("spec.template", &new["spec"]["template"], errors);
        restarts_always("ReplicationController", new, errors);
    }
}

pub(super) fn replica_set(new: &Value, errors: &mut Errors) {
    selected("ReplicaSet", "deployment", new, errors);
}

/// A number or percentage.
fn int_or_percent(path: &str, value: &Value, errors: &mut Errors) {
    match value {
        Value::Number(number) if number.as_i64().unwrap_or(0) < 0 => {
            errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
        }
        Value::String(part) => {
            let digits = part.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                           '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(path, value, why));
            }
        }
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    matches!(value, Value::Null) || *value == json!(0) || *value == json!("0%")
}

pub(super) fn deployment(new: &Value, errors: &mut Errors) {
    selected("Deployment", "deployment", new, errors);
    let strategy = &new["spec"]["strategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "/type") {
        "Recreate" if is_set(strategy, "/rollingUpdate") => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", why));
        }
        "RollingUpdate" => {
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&format!("spec.strategy.rollingUpdate.{field}"), &rolling[field], errors);
            }
            if is_nothing(&rolling["maxUnavailable"]) && is_nothing(&rolling["maxSurge"]) {
                let path = "spec.strategy.rollingUpdate.maxUnavailable";
                let why = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(path, &rolling["maxUnavailable"], why));
            }
        }
        "Recreate" => {}
        _ => {
            let supported = "supported values: \"Recreate\", \"RollingUpdate\"";
            errors.push(FieldError::not_supported_value("spec.strategy", strategy, supported));
        }
    }
    let number = |field: &str| new["spec"][field].as_i64();
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= number("minReadySeconds").unwrap_or(0)
    {
        let why = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", &json!(deadline), why));
    }
}

pub(super) fn daemon_set(new: &Value, errors: &mut Errors) {
    selected("DaemonSet", "daemonset", new, errors);
    let strategy = &new["spec"]["updateStrategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "/type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = "spec.updateStrategy.rollingUpdate";
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&format!("{path}.{field}"), &rolling[field], errors);
            }
            match (is_nothing(&rolling["maxUnavailable"]), is_nothing(&rolling["maxSurge"])) {
                (false, false) => {
                    let why = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(&format!("{path}.maxSurge"), &rolling["maxSurge"], why));
                }
                (true, true) => {
                    let why = "cannot be 0 when maxSurge is 0";
                    errors.push(FieldError::required(&format!("{path}.maxUnavailable"), why));
                }
                _ => {}
            }
        }
        _ => {
            let supported = "supported values: \"RollingUpdate\", \"OnDelete\"";
            errors.push(FieldError::not_supported_value("spec.updateStrategy", strategy, supported));
        }
    }
}

pub(super) fn stateful_set(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let with_claims = with_claim_volumes(new);
    selected("StatefulSet", "statefulset", &with_claims, errors);
    let strategy = &new["spec"]["updateStrategy"];
    match text(strategy, "/type") {
        "RollingUpdate" => {}
        "OnDelete" if !is_set(strategy, "/rollingUpdate") => {}
        "OnDelete" => {
            let why = "only allowed for updateStrategy 'RollingUpdate'";
            let path = "spec.updateStrategy.rollingUpdate";
            errors.push(FieldError::invalid(path, &strategy["rollingUpdate"], why));
        }
        _ => {
            let why = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid("spec.updateStrategy", strategy, why));
        }
    }
    let policy = text(new, "/spec/podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", &json!(policy), why));
    }
    for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
        if let Some(old) = old {
            fixed(old, new, &format!("/spec/{field}"), errors);
        }
    }
}

/// The StatefulSet with the volumes of its volumeClaimTemplates.
fn with_claim_volumes(set: &Value) -> Value {
    let mut set = set.clone();
    let claims: Vec<Value> = list(&set, "/spec/volumeClaimTemplates")
        .iter()
        .map(|claim| json!({"name": meta_str(claim, "name"), "persistentVolumeClaim": {"claimName": meta_str(claim, "name")}}))
        .collect();
    if let Some(spec) =
        set.pointer_mut("/spec/template/spec").filter(|spec| spec.is_object() && !claims.is_empty())
    {
        let own =
            list(spec, "/volumes").iter().filter(|v| !claims.iter().any(|c| c["name"] == v["name"])).cloned();
        let all: Vec<Value> = own.chain(claims.clone()).collect();
        spec["volumes"] = json!(all);
    }
    set
}

/// Accepts every plausible time zone; kube-apiserver checks its database.
fn is_zone(name: &str) -> bool {
    name == "UTC" || name.split_once('/').is_some_and(|(area, _)| ZONE_AREAS.contains(&area))
}

const ZONE_AREAS: &[&str] = &[
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Etc",
    "Europe",
    "Indian",
    "Pacific",
    "US",
];

pub(super) fn cron_job(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let name = meta_str(new, "name");
    if name.len() > 52 && old.is_none() {
        let why = "must be no more than 52 characters";
        errors.push(FieldError::invalid("metadata.name", &json!(name), why));
    }
    schedule(new, errors);
    if let Some(zone) = new.pointer("/spec/timeZone").and_then(Value::as_str) {
        let why = match zone {
            "" => Some("timeZone must be nil or non-empty string".to_owned()),
            zone if !is_zone(zone) => Some(format!("unknown time zone {zone}")),
            _ => None,
        };
        errors.extend(why.map(|why| FieldError::invalid("spec.timeZone", &json!(zone), &why)));
    }
    job_spec("spec.jobTemplate.spec", &new["spec"]["jobTemplate"]["spec"], errors);
}

fn schedule(new: &Value, errors: &mut Errors) {
    let schedule = text(new, "/spec/schedule");
    let mut refuse = |why: String| errors.push(FieldError::invalid("spec.schedule", &json!(schedule), &why));
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        return refuse("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if !schedule.is_empty() && !schedule.starts_with('@') && fields.len() != 5 {
        refuse(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
}

fn job_spec(path: &str, spec: &Value, errors: &mut Errors) {
    template(&format!("{path}.template"), &spec["template"], errors);
    let field = format!("{path}.template.spec.restartPolicy");
    match text(spec, "/template/spec/restartPolicy") {
        "OnFailure" | "Never" => {}
        "" | "Always" => errors.push(FieldError::required(&field, "valid values: \"OnFailure\", \"Never\"")),
        other => errors.push(FieldError::not_supported(&field, other, "\"OnFailure\", \"Never\"")),
    }
    let mode = text(spec, "/completionMode");
    if mode == "Indexed" && !is_set(spec, "/completions") {
        errors.push(FieldError::required(&format!("{path}.completions"), "when completion mode is Indexed"));
    }
    for only in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
        if matches!(mode, "" | "NonIndexed") && is_set(spec, &format!("/{only}")) {
            let why = "requires indexed completion mode";
            errors.push(FieldError::invalid(&format!("{path}.{only}"), &spec[only], why));
        }
    }
    if is_set(spec, "/podFailurePolicy") {
        let policy = text(spec, "/podReplacementPolicy");
        // A field with an unsupported value is reported once, with the message of the narrower rule.
        errors.retain(|error| error.field() != format!("{path}.podReplacementPolicy"));
        if policy != "Failed" {
            errors.push(FieldError::not_supported(
                &format!("{path}.podReplacementPolicy"),
                policy,
                "\"Failed\"",
            ));
        }
        if text(spec, "/template/spec/restartPolicy") == "OnFailure" {
            let value = &spec["template"]["spec"]["restartPolicy"];
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(&field, value, why));
        }
    }
}

pub(super) fn job(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    job_spec("spec", &new["spec"], errors);
    let (selector, labels) = (&new["spec"]["selector"], &new["spec"]["template"]["metadata"]["labels"]);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, NO_MATCH));
    } else if !selects(selector, labels) {
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, NO_MATCH));
    }
    let manual = new.pointer("/spec/manualSelector") == Some(&json!(true));
    if !manual && old.is_none() && selector["matchLabels"].as_object().is_some_and(|wanted| wanted.len() > 1)
    {
        errors.push(FieldError::invalid("spec.selector", selector, "`selector` not auto-generated"));
    }
    if let Some(old) = old {
        job_template(old, new, errors);
        job_completions(old, new, errors);
    }
}

/// completions is immutable, except that an Indexed Job may change it together with parallelism.
fn job_completions(old: &Value, new: &Value, errors: &mut Errors) {
    if new.pointer("/spec/completionMode") != Some(&json!("Indexed")) {
        return fixed(old, new, "/spec/completions", errors);
    }
    let (before, after) = (&old["spec"]["completions"], &new["spec"]["completions"]);
    if after.is_number() && before != after && *after != new["spec"]["parallelism"] {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid("spec.completions", after, why));
    }
}

/// The pod template of a Job is immutable, except for scheduling directives and resources while it is suspended.
fn job_template(old: &Value, new: &Value, errors: &mut Errors) {
    let template = |job: &Value| job.pointer("/spec/template").cloned().unwrap_or_default();
    let (before, after) = (template(old), template(new));
    if !is_suspended(old) {
        // Quantities are equal by value: another spelling is stored.
        let is_same = match (&before, &after) {
            (Value::Object(before), Value::Object(after)) => semantically_equal(before, after),
            _ => before == after,
        };
        if !is_same {
            errors.push(FieldError::invalid("spec.template", &after, "field is immutable"));
        }
        return;
    }
    let fixed = |template: &Value| {
        let free = ["nodeSelector", "affinity", "tolerations", "schedulingGates"];
        let mut spec = without(&template["spec"], &free);
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                *container = without(container, &["resources"]);
            }
        }
        spec
    };
    if fixed(&before) != fixed(&after) {
        errors.push(FieldError::invalid("spec.template.spec", &after["spec"], "field is immutable"));
    }
}

/// Whether a Job is suspended and has no active pods.
fn is_suspended(job: &Value) -> bool {
    let holds = |kind: &str| {
        list(job, "/status/conditions").iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    let active = job.pointer("/status/active").and_then(Value::as_i64).unwrap_or(0);
    let started = job.pointer("/status/startTime").is_some();
    job.pointer("/spec/suspend") == Some(&json!(true)) && (!started || holds("Suspended")) && active == 0
}

pub(super) fn autoscaler(new: &Value, errors: &mut Errors) {
    let number = |field: &str| new["spec"][field].as_i64().unwrap_or(0);
    if number("maxReplicas") < number("minReplicas") {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &json!(number("maxReplicas")), why));
    }
    if new["spec"]["minReplicas"].as_i64().is_some_and(|least| least < 0) {
        errors.push(FieldError::invalid("spec.minReplicas", &json!(number("minReplicas")), NOT_NEGATIVE));
    }
    let target = &new["spec"]["scaleTargetRef"];
    if text(target, "/apiVersion").is_empty() && is_set(new, "/spec") {
        let why = "apiVersion must specify API group";
        errors.push(FieldError::invalid("spec.scaleTargetRef.apiVersion", &json!(""), why));
    }
    let metrics = list(new, "/spec/metrics");
    let scales_to_zero = metrics.iter().any(|metric| matches!(text(metric, "/type"), "Object" | "External"));
    if number("minReplicas") == 0 && !scales_to_zero {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", why));
    }
    autoscalers::metrics(metrics, errors);
    autoscalers::behavior(&new["spec"]["behavior"], errors);
}

pub(super) fn budget(new: &Value, errors: &mut Errors) {
    if is_set(new, "/spec/minAvailable") && is_set(new, "/spec/maxUnavailable") {
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", &new["spec"], why));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let (path, value) = (format!("spec.{field}"), &new["spec"][field]);
        int_or_percent(&path, value, errors);
        if is_above_hundred_percent(value) {
            errors.push(FieldError::invalid(&path, value, "must not be greater than 100%"));
        }
    }
}

fn is_above_hundred_percent(value: &Value) -> bool {
    let digits = value.as_str().and_then(|text| text.strip_suffix('%')).unwrap_or_default();
    // A number that does not fit is larger, too.
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.parse::<u32>().map_or(true, |percent| percent > 100)
}
