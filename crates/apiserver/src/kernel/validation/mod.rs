//! Rules of single kinds; the server refuses what breaks them with 422 and the field at fault.
//!
//! Only rules that clients and controllers rely on are here; an object the real server would refuse for another
//! reason is taken.

mod immutable;
mod kinds;
mod required;
mod workloads;

use serde_json::Value;

use super::metadata::{finalizers, is_terminating};
use super::resources::{Resource, Strategy};
use super::status::FieldError;

/// Rules of the kind; `old` is there for an update.
pub(crate) fn validate(
    resource: &Resource,
    subresource: Option<&str>,
    old: Option<&Value>,
    new: &Value,
    errors: &mut Vec<FieldError>,
) {
    if let Some(old) = old {
        validate_no_new_finalizers(old, new, errors);
        immutable::validate(resource, old, new, errors);
    }
    required::validate(resource, new, errors);
    match resource.strategy {
        Strategy::Secret => kinds::secret(old, new, errors),
        Strategy::ConfigMap => kinds::immutable_data(old, new, errors),
        Strategy::Event => kinds::event(new, errors),
        Strategy::Pod => workloads::pod(subresource, old, new, errors),
        Strategy::Lease => kinds::lease(new, errors),
        Strategy::ClusterRole | Strategy::Role => kinds::rules(new, errors),
        Strategy::ClusterRoleBinding => kinds::binding(new, errors),
        Strategy::Service => kinds::service(new, errors),
        Strategy::Ingress => kinds::ingress(new, errors),
        Strategy::Node => kinds::node(old, new, errors),
        Strategy::CustomResourceDefinition => kinds::definition(new, errors),
        Strategy::PersistentVolumeClaim => kinds::claim(new, errors),
        Strategy::HorizontalPodAutoscaler => kinds::autoscaler(new, errors),
        Strategy::CronJob => kinds::cron_job(new, errors),
        Strategy::ReplicationController => workloads::replication_controller(new, errors),
        Strategy::ReplicaSet | Strategy::Deployment | Strategy::StatefulSet | Strategy::DaemonSet => {
            workloads::workload(new, errors);
        }
        Strategy::Job => workloads::job(new, errors),
        _ => {}
    }
}

fn validate_no_new_finalizers(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if !is_terminating(old) {
        return;
    }
    let before = finalizers(old);
    let added: Vec<&str> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    if !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
}
