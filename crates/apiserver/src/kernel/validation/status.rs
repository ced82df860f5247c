//! Validation of status updates.

use serde_json::{Value, json};

use super::super::metadata::is_terminating;
use super::super::naming;
use super::super::resources::{Resource, Strategy};
use super::super::status::FieldError;
use super::{Errors, is_set, list, refuse_text, text};

/// `approves`: the write goes through the approval subresource.
pub(super) fn validate(resource: &Resource, approves: bool, old: &Value, new: &Value, errors: &mut Errors) {
    let (before, status) = (&old["status"], &new["status"]);
    match resource.strategy {
        Strategy::Deployment => {
            within_replicas(
                status,
                &["updatedReplicas", "readyReplicas", "availableReplicas"],
                "readyReplicas",
                errors,
            );
            not_decremented(before, status, errors);
        }
        Strategy::ReplicaSet | Strategy::ReplicationController => {
            within_replicas(
                status,
                &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
                "readyReplicas",
                errors,
            );
        }
        Strategy::StatefulSet => {
            let counts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
            within_replicas(status, &counts, "status.readyReplicas", errors);
            not_decremented(before, status, errors);
        }
        Strategy::DaemonSet => not_decremented(before, status, errors),
        Strategy::Job => job(old, new, errors),
        Strategy::Namespace => {
            let phase = text(status, "/phase");
            let (wanted, why) = if is_terminating(new) {
                ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
            } else {
                ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
            };
            if phase != wanted {
                errors.push(FieldError::invalid("status.Phase", &json!(phase), why));
            }
        }
        Strategy::Pod => pod(old, new, errors),
        Strategy::Service => service(new, errors),
        Strategy::Node => super::kinds::node_addresses(status, errors),
        Strategy::Ingress => ingress_addresses(status, errors),
        Strategy::ResourceClaim => super::extensions::claim_status(old, new, errors),
        Strategy::DeviceTaintRule => {
            super::certificates::standard_conditions(list(status, "/conditions"), errors);
        }
        Strategy::CertificateSigningRequest => {
            super::certificates::request_status(approves, old, new, errors);
        }
        Strategy::Plain => match resource.kind {
            "PodCertificateRequest" => super::certificates::pod_request_status(old, new, errors),
            "StorageVersionMigration" => super::migrations::migration_status(old, new, errors),
            "StorageVersion" => super::migrations::storage_version_status(new, errors),
            _ => {}
        },
        _ => {}
    }
}

/// Counts must not exceed the replicas.
fn within_replicas(status: &Value, counts: &[&str], ready: &str, errors: &mut Errors) {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    for field in counts {
        if number(field) > number("replicas") {
            let why = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(&format!("status.{field}"), &json!(number(field)), why));
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let why = format!("cannot be greater than {ready}");
        let value = json!(number("availableReplicas"));
        errors.push(FieldError::invalid("status.availableReplicas", &value, &why));
    }
}

fn not_decremented(before: &Value, status: &Value, errors: &mut Errors) {
    let count = |status: &Value| status["collisionCount"].as_i64();
    if count(before).is_some_and(|before| count(status).unwrap_or(-1) < before) {
        let value = json!(count(status).unwrap_or(0));
        errors.push(FieldError::invalid("status.collisionCount", &value, "cannot be decremented"));
    }
}

fn job(old: &Value, new: &Value, errors: &mut Errors) {
    let status = &new["status"];
    let holds = |object: &Value, kind: &str| {
        list(object, "/status/conditions").iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    let conditions = |why: &str| FieldError::invalid_without_value("status.conditions", why);
    let (complete, failed) = (holds(new, "Complete"), holds(new, "Failed"));
    let finished = complete || failed;
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if complete && !holds(new, "SuccessCriteriaMet") {
        errors.push(conditions(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ));
    }
    if failed && !holds(new, "FailureTarget") {
        errors.push(conditions("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if complete && !is_set(status, "/completionTime") {
        let why = "completionTime is required for Complete jobs";
        errors.push(FieldError::required("status.completionTime", why));
    }
    if !complete && is_set(status, "/completionTime") {
        let why = "cannot set completionTime when there is no Complete=True condition";
        errors.push(FieldError::invalid("status.completionTime", &status["completionTime"], why));
    }
    if finished && !is_set(status, "/startTime") {
        errors.push(FieldError::required("status.startTime", "startTime is required for finished job"));
    }
    if finished && number("active") > 0 {
        let why = "active>0 is invalid for finished job";
        errors.push(FieldError::invalid("status.active", &status["active"], why));
    }
    let uncounted = &status["uncountedTerminatedPods"];
    if finished && ["/succeeded", "/failed"].iter().any(|part| !list(uncounted, part).is_empty()) {
        let why = "must be empty for finished job";
        errors.push(FieldError::invalid("status.uncountedTerminatedPods", uncounted, why));
    }
    if number("ready") > number("active") && is_set(status, "/ready") {
        errors.push(FieldError::invalid(
            "status.ready",
            &status["ready"],
            "cannot set more ready pods than active",
        ));
    }
    job_progress(old, new, errors);
}

/// A Job's progress cannot be taken back.
fn job_progress(old: &Value, new: &Value, errors: &mut Errors) {
    let status = &new["status"];
    let number = |object: &Value, field: &str| object["status"][field].as_i64().unwrap_or(0);
    for (field, why) in [
        ("failed", "cannot decrease the failed counter"),
        ("succeeded", "cannot decrease the succeeded counter"),
    ] {
        if number(new, field) < number(old, field) {
            errors.push(FieldError::invalid(&format!("status.{field}"), &json!(number(new, field)), why));
        }
    }
    let time = |object: &Value, field: &str| object["status"].get(field).cloned();
    let unsuspended = new.pointer("/spec/suspend") != Some(&json!(true));
    if time(old, "startTime").is_some() && time(old, "startTime") != time(new, "startTime") && unsuspended {
        let why = "field is immutable for unsuspended job once set";
        errors.push(FieldError::invalid(
            "status.startTime",
            status.get("startTime").unwrap_or(&Value::Null),
            why,
        ));
    }
}

fn pod(old: &Value, new: &Value, errors: &mut Errors) {
    let (before, status) = (&old["status"], &new["status"]);
    let nominated = text(status, "/nominatedNodeName");
    if is_set(old, "/spec/nodeName")
        && !matches!(nominated, "")
        && nominated != text(before, "/nominatedNodeName")
    {
        let why = "may not be set on pods that are already bound to a node";
        errors.push(FieldError::forbidden("status.nominatedNodeName", why));
    }
    let class = text(status, "/qosClass");
    if is_set(before, "/qosClass") && class != text(before, "/qosClass") {
        errors.push(FieldError::invalid("status.qosClass", &json!(class), "field is immutable"));
    }
    for (at, address) in list(status, "/podIPs").iter().enumerate() {
        let ip = text(address, "/ip");
        refuse_text(&format!("status.podIPs[{at}]"), ip, &naming::ip(ip), errors);
    }
}

fn service(new: &Value, errors: &mut Errors) {
    let addresses = list(&new["status"], "/loadBalancer/ingress");
    if !addresses.is_empty() && text(new, "/spec/type") != "LoadBalancer" {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        return errors.push(FieldError::forbidden("status.loadBalancer.ingress", why));
    }
    ingress_addresses(&new["status"], errors);
}

fn ingress_addresses(status: &Value, errors: &mut Errors) {
    for (at, address) in list(status, "/loadBalancer/ingress").iter().enumerate() {
        let ip = text(address, "/ip");
        if !ip.is_empty() {
            refuse_text(&format!("status.loadBalancer.ingress[{at}].ip"), ip, &naming::ip(ip), errors);
        }
    }
}
