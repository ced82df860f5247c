//! Fields without which an object of its kind says nothing.

use serde_json::Value;

use super::super::resources::Resource;
use super::super::status::FieldError;

/// Kinds and the fields they need; the last word is what a list must not be without.
const REQUIRED: &[(&str, &[&str])] = &[
    ("IngressClass", &["spec.controller"]),
    ("StorageClass", &["provisioner"]),
    ("RuntimeClass", &["handler"]),
    ("VolumeAttachment", &["spec.attacher", "spec.nodeName"]),
    ("VolumeAttributesClass", &["driverName"]),
    ("CSIStorageCapacity", &["storageClassName"]),
    ("EndpointSlice", &["addressType"]),
    ("ClusterTrustBundle", &["spec.trustBundle"]),
    ("CertificateSigningRequest", &["spec.signerName", "spec.usages"]),
    ("ValidatingAdmissionPolicy", &["spec.matchConstraints"]),
    ("MutatingAdmissionPolicy", &["spec.matchConstraints", "spec.mutations", "spec.reinvocationPolicy"]),
    ("ValidatingAdmissionPolicyBinding", &["spec.policyName", "spec.validationActions"]),
    ("MutatingAdmissionPolicyBinding", &["spec.policyName"]),
    ("DeviceTaintRule", &["spec.taint.key", "spec.taint.effect"]),
    ("ResourceSlice", &["spec.driver", "spec.pool.name"]),
    ("FlowSchema", &["spec.priorityLevelConfiguration.name"]),
    ("PriorityLevelConfiguration", &["spec.type"]),
    ("StorageVersionMigration", &["spec.resource.resource"]),
];

pub(super) fn validate(resource: &Resource, new: &Value, errors: &mut Vec<FieldError>) {
    let Some((_, fields)) = REQUIRED.iter().find(|(kind, _)| *kind == resource.kind && !resource.is_custom())
    else {
        return;
    };
    for field in *fields {
        let missing = match new.pointer(&format!("/{}", field.replace('.', "/"))) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(_) => false,
        };
        if missing {
            errors.push(FieldError::required(field, ""));
        }
    }
}
