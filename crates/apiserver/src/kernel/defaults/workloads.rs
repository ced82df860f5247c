//! Defaults of workload kinds and pod templates.

use keleustes_objects::defaults::{items, present, set_default, template};
use serde_json::{Value, json};

use super::super::metadata::{meta, set_meta};

/// Defaults of `spec.template`.
fn template_of(object: &mut Value) {
    if let Some(found) = object.pointer_mut("/spec/template") {
        template(found);
    }
}

pub(super) fn replication_controller(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let Some(labels) = labels {
        let unset =
            |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
        if unset(object.pointer("/spec/selector")) {
            object["spec"]["selector"] = labels.clone();
        }
        if unset(object.pointer("/metadata/labels")) {
            object["metadata"]["labels"] = labels;
        }
    }
    set_default(&mut object["spec"], "replicas", json!(1));
    template_of(object);
}

pub(super) fn replica_set(object: &mut Value) {
    set_default(&mut object["spec"], "replicas", json!(1));
    template_of(object);
}

pub(super) fn deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "replicas", json!(1));
    set_default(spec, "revisionHistoryLimit", json!(10));
    set_default(spec, "progressDeadlineSeconds", json!(600));
    set_default(spec, "strategy", json!({}));
    let strategy = &mut spec["strategy"];
    set_default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
        set_default(&mut strategy["rollingUpdate"], "maxSurge", json!("25%"));
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", json!("25%"));
    }
    template_of(object);
}

pub(super) fn daemon_set(object: &mut Value) {
    // The template generation; the server increments it from here on.
    set_default(&mut object["metadata"], "annotations", json!({}));
    set_default(
        &mut object["metadata"]["annotations"],
        "deprecated.daemonset.template.generation",
        json!("0"),
    );
    let spec = &mut object["spec"];
    set_default(spec, "revisionHistoryLimit", json!(10));
    set_default(spec, "updateStrategy", json!({}));
    let strategy = &mut spec["updateStrategy"];
    set_default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", json!(1));
    }
    // Both fields are defaulted, even if the rollingUpdate is not in use.
    if strategy["rollingUpdate"].is_object() {
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", json!(0));
        set_default(&mut strategy["rollingUpdate"], "maxSurge", json!(0));
    }
    template_of(object);
}

pub(super) fn stateful_set(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "replicas", json!(1));
    set_default(spec, "revisionHistoryLimit", json!(10));
    set_default(spec, "podManagementPolicy", json!("OrderedReady"));
    set_default(spec, "updateStrategy", json!({}));
    let strategy = &mut spec["updateStrategy"];
    set_default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
        set_default(&mut strategy["rollingUpdate"], "partition", json!(0));
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", json!(1));
    }
    set_default(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    for when in ["whenDeleted", "whenScaled"] {
        set_default(&mut spec["persistentVolumeClaimRetentionPolicy"], when, json!("Retain"));
    }
    for claim in items(spec, "volumeClaimTemplates") {
        set_default(claim, "apiVersion", json!("v1"));
        set_default(claim, "kind", json!("PersistentVolumeClaim"));
        set_default(&mut claim["spec"], "volumeMode", json!("Filesystem"));
        set_default(&mut claim["status"], "phase", json!("Pending"));
    }
    template_of(object);
}

pub(super) fn job(object: &mut Value) {
    let labels =
        object.pointer("/spec/template/metadata/labels").filter(|labels| labels.is_object()).cloned();
    if let Some(labels) = labels
        && meta(object, "labels").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
    {
        set_meta(object, "labels", Some(labels));
    }
    let spec = &mut object["spec"];
    // With neither field set the job runs one pod to completion.
    if present(spec, "completions").is_none() && present(spec, "parallelism").is_none() {
        spec["completions"] = json!(1);
    }
    set_default(spec, "parallelism", json!(1));
    let per_index = present(spec, "backoffLimitPerIndex").is_some();
    set_default(spec, "backoffLimit", json!(if per_index { i64::from(i32::MAX) } else { 6 }));
    set_default(spec, "completionMode", json!("NonIndexed"));
    set_default(spec, "suspend", json!(false));
    set_default(spec, "manualSelector", json!(false));
    let policy = present(spec, "podFailurePolicy").is_some();
    set_default(spec, "podReplacementPolicy", json!(if policy { "Failed" } else { "TerminatingOrFailed" }));
    if let Some(policy) = present(spec, "podFailurePolicy") {
        for rule in items(policy, "rules") {
            for pattern in items(rule, "onPodConditions") {
                if pattern["status"].as_str().unwrap_or_default().is_empty() {
                    pattern["status"] = json!("True");
                }
            }
        }
    }
    template_of(object);
}

pub(super) fn cron_job(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "concurrencyPolicy", json!("Allow"));
    set_default(spec, "suspend", json!(false));
    set_default(spec, "successfulJobsHistoryLimit", json!(3));
    set_default(spec, "failedJobsHistoryLimit", json!(1));
    if let Some(template) = spec.get_mut("jobTemplate") {
        template_of(template);
    }
}
