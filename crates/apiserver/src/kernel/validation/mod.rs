//! Validation of single kinds; violations are reported as 422 with the field.
//!
//! Rules on a single field are in a table; rules that relate fields are here. Only rules that clients and controllers
//! rely on are implemented: some objects that kube-apiserver would reject are accepted.

mod access;
mod autoscalers;
mod certificates;
mod extensions;
mod gated;
mod host_access;
mod kinds;
mod migrations;
pub(crate) mod networking;
mod pods;
mod rules;
mod service_ranges;
mod status;
mod storage;
mod workloads;

use serde_json::Value;

use super::naming;
use super::resources::{Resource, Strategy};
use super::status::FieldError;

type Errors = Vec<FieldError>;

/// Resource names without a domain prefix.
const STANDARD_RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "storage",
];

/// Validates an object. `old` is given for an update; `view` means that the object was written in another version
/// than the storage version.
pub(crate) fn validate(
    resource: &Resource,
    view: bool,
    subresource: Option<&str>,
    old: Option<&Value>,
    new: &Value,
    errors: &mut Errors,
) {
    // An object created through a subresource is validated as a whole.
    let subresource = subresource.filter(|_| old.is_some());
    rules::validate(resource, subresource, old, new, errors);
    if let Some(schema) = resource.schema {
        schema.validate(old, new, errors);
    }
    for pointer in resource.scale.iter().flat_map(|paths| [paths.spec_replicas, paths.status_replicas]) {
        let replicas = new.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            let why = "should be a non-negative integer";
            errors.push(FieldError::invalid(&pointer.replace('/', "."), &Value::from(replicas), why));
        }
    }
    match subresource {
        Some(part @ ("status" | "approval")) => {
            if let Some(old) = old {
                status::validate(resource, part == "approval", old, new, errors);
            }
        }
        Some(part) if resource.strategy == Strategy::Pod => pods::subresource(part, old, new, errors),
        _ if resource.strategy == Strategy::Event => kinds::event(view, old, new, errors),
        _ => validate_main(resource, old, new, errors),
    }
}

fn validate_main(resource: &Resource, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    match resource.strategy {
        Strategy::Secret => kinds::secret(old, new, errors),
        Strategy::ConfigMap => kinds::config_map(old, new, errors),
        Strategy::Namespace => kinds::namespace(new, errors),
        Strategy::LimitRange => kinds::limit_range(new, errors),
        Strategy::ResourceQuota => kinds::resource_quota(new, errors),
        Strategy::Node => kinds::node(old, new, errors),
        Strategy::CustomResourceDefinition => {
            extensions::definition(new, errors);
            extensions::stored_versions(new, errors);
        }
        Strategy::PriorityClass => kinds::priority_class(old, new, errors),
        Strategy::Webhooks => extensions::webhooks(new, errors),
        Strategy::AdmissionPolicy => extensions::policy(new, errors),
        Strategy::Pod => pods::pod(old, new, errors),
        Strategy::PodTemplate => pods::spec("template.spec", &new["template"]["spec"], errors),
        Strategy::Role => access::role(new, errors),
        Strategy::ClusterRole => access::cluster_role(new, errors),
        Strategy::ClusterRoleBinding => access::binding(resource.namespaced, new, errors),
        Strategy::CertificateSigningRequest => certificates::signing_request(old, new, errors),
        Strategy::Service => networking::service(old, new, errors),
        Strategy::Ingress => networking::ingress(new, errors),
        Strategy::NetworkPolicy => networking::network_policy(new, errors),
        Strategy::Endpoints => networking::endpoints(new, errors),
        Strategy::EndpointSlice => networking::endpoint_slice(old, new, errors),
        Strategy::PersistentVolumeClaim => storage::claim(old, new, errors),
        Strategy::PersistentVolume => storage::volume(old, new, errors),
        Strategy::StorageClass => storage::class(new, errors),
        Strategy::VolumeAttachment => storage::attachment(new, errors),
        Strategy::CsiDriver => storage::driver(old, new, errors),
        Strategy::HorizontalPodAutoscaler => workloads::autoscaler(new, errors),
        Strategy::PodDisruptionBudget => workloads::budget(new, errors),
        Strategy::CronJob => workloads::cron_job(old, new, errors),
        Strategy::Job => workloads::job(old, new, errors),
        Strategy::ReplicationController => workloads::replication_controller(new, errors),
        Strategy::ReplicaSet => workloads::replica_set(new, errors),
        Strategy::Deployment => workloads::deployment(new, errors),
        Strategy::DaemonSet => workloads::daemon_set(new, errors),
        Strategy::StatefulSet => workloads::stateful_set(old, new, errors),
        Strategy::ResourceClaim if old.is_none() => extensions::device_claim("spec", &new["spec"], errors),
        Strategy::ResourceClaimTemplate => {
            extensions::device_claim("spec.spec", &new["spec"]["spec"], errors);
        }
        Strategy::PriorityLevelConfiguration => extensions::priority_level(new, errors),
        Strategy::DeviceTaintRule => extensions::device_taint_rule(old, new, errors),
        Strategy::Plain => plain(resource.kind, old, new, errors),
        _ => {}
    }
}

/// Kinds that have no strategy.
fn plain(kind: &str, old: Option<&Value>, new: &Value, errors: &mut Errors) {
    match kind {
        "ClusterTrustBundle" => certificates::trust_bundle(old, new, errors),
        "PodCertificateRequest" => certificates::pod_request(old, new, errors),
        "IngressClass" => networking::ingress_class(new, errors),
        "ServiceCIDR" => service_ranges::service_cidr(old, new, errors),
        "IPAddress" => service_ranges::ip_address(old, new, errors),
        "CSINode" => storage::node_drivers(old, new, errors),
        "ValidatingAdmissionPolicyBinding" => extensions::policy_binding(new, errors),
        "ResourceSlice" => extensions::resource_slice(new, errors),
        "StorageVersionMigration" => migrations::migration(old, new, errors),
        "StorageVersion" if old.is_none() => migrations::storage_version(new, errors),
        "Workload" => gated::workload(old, new, errors),
        "PodGroup" => gated::pod_group(old, new, errors),
        "ResourcePoolStatusRequest" => gated::pool_status_request(old, new, errors),
        _ => {}
    }
}

/// Validates a resource name.
fn refuse_resource_name(field: &str, name: &str, of_containers: bool, errors: &mut Errors) {
    let before = errors.len();
    refuse_text(field, name, &naming::qualified(name), errors);
    if name.contains('/') {
        return;
    }
    if errors.len() == before && !is_standard(name) {
        let why = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(field, &Value::from(name), why));
    }
    let containers = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if of_containers && !containers {
        let why = "must be a standard resource for containers";
        errors.push(FieldError::invalid(field, &Value::from(name), why));
    }
}

/// Whether the resource name needs no domain prefix.
fn is_standard(name: &str) -> bool {
    STANDARD_RESOURCES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Pushes the errors of a text field.
fn refuse_text(field: &str, text: &str, messages: &[String], errors: &mut Errors) {
    errors.extend(messages.iter().map(|message| FieldError::invalid(field, &Value::from(text), message)));
}

/// The text at a pointer, or empty.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a pointer, or empty.
fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether the pointer has a value.
fn is_set(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

/// Rejects a change of a field; the message shows the value.
fn fixed(old: &Value, new: &Value, pointer: &str, errors: &mut Errors) {
    let (before, after) =
        (old.pointer(pointer).unwrap_or(&Value::Null), new.pointer(pointer).unwrap_or(&Value::Null));
    if before != after {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        errors.push(FieldError::invalid(&field, after, "field is immutable"));
    }
}

/// The spec without the mutable fields.
fn without(spec: &Value, fields: &[&str]) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        map.retain(|name, _| !fields.contains(&name.as_str()));
    }
    spec
}
