//! Defaulting, as far as clients and controllers can observe it.
//!
//! Parity: the `defaults.go` files of pkg/apis in Kubernetes v1.37.

mod autoscaling;
mod others;
mod services;
mod workloads;

use keleustes_objects::defaults as pods;
use keleustes_objects::defaults::{items, present, set_default};
use serde_json::{Value, json};

use super::resources::{Resource, Strategy};
use super::types::{Node, Struct};

/// Sets the defaults of the kind.
pub(crate) fn fill(resource: &Resource, object: &mut Value) {
    by_table(resource.shape(), object);
    match resource.strategy {
        Strategy::Namespace => others::namespace(object),
        Strategy::Secret => others::secret(object),
        Strategy::LimitRange => others::limit_range(object),
        Strategy::Node => others::node(object),
        Strategy::Pod => pods::pod(object),
        Strategy::PodTemplate => pods::template(&mut object["template"]),
        Strategy::PersistentVolume => others::persistent_volume(object),
        Strategy::PersistentVolumeClaim => others::persistent_volume_claim(object),
        Strategy::Service => services::service(object),
        Strategy::ReplicationController => workloads::replication_controller(object),
        Strategy::ReplicaSet => workloads::replica_set(object),
        Strategy::Deployment => workloads::deployment(object),
        Strategy::DaemonSet => workloads::daemon_set(object),
        Strategy::StatefulSet => workloads::stateful_set(object),
        Strategy::Job => workloads::job(object),
        Strategy::CronJob => workloads::cron_job(object),
        Strategy::HorizontalPodAutoscaler => autoscaling::autoscaler(object),
        Strategy::CertificateSigningRequest => {}
        Strategy::ClusterRoleBinding => others::role_binding(object),
        Strategy::EndpointSlice => others::endpoint_slice(object),
        Strategy::Endpoints => others::endpoints(object),
        Strategy::Ingress => others::ingress(object),
        Strategy::NetworkPolicy => others::network_policy(object),
        Strategy::StorageClass => others::storage_class(object),
        Strategy::CsiDriver => others::csi_driver(object),
        Strategy::Webhooks => others::webhooks(object),
        Strategy::AdmissionPolicy => others::admission_policy(object),
        Strategy::CustomResourceDefinition => others::definition(object),
        Strategy::ApiService => others::api_service(object),
        Strategy::PriorityClass => set_default(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        Strategy::ResourceClaim => others::device_requests(object.pointer_mut("/spec/devices")),
        Strategy::ResourceClaimTemplate => others::device_requests(object.pointer_mut("/spec/spec/devices")),
        Strategy::FlowSchema => others::flow_schema(object),
        Strategy::PriorityLevelConfiguration => others::priority_level(object),
        Strategy::Plain if resource.kind == "IngressClass" => others::ingress_class(object),
        Strategy::Plain
        | Strategy::Custom
        | Strategy::ConfigMap
        | Strategy::Event
        | Strategy::ResourceQuota
        | Strategy::Lease
        | Strategy::ClusterRole
        | Strategy::Role
        | Strategy::ControllerRevision
        | Strategy::PodDisruptionBudget
        | Strategy::VolumeAttachment
        | Strategy::VolumeAttributesClass
        | Strategy::DeviceTaintRule => {}
    }
}

/// Defaults from the table of types.
fn by_table(kind: &'static Struct, object: &mut Value) {
    fill_node(Node::Struct(kind), object);
}

fn fill_node(node: Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(kind) = node.structure() {
                for (name, field) in &kind.fields {
                    if let Some(default) = &field.default
                        && map.get(*name).is_none_or(Value::is_null)
                    {
                        map.insert((*name).to_owned(), default.clone());
                    }
                }
            }
            for (name, value) in map {
                fill_node(node.field(name), value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_node(node.item(), item)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::resources::by_name;
    use super::*;

    #[test]
    fn defaults_of_the_table_reach_every_depth() {
        let services = by_name("services").unwrap();
        let mut object = json!({"spec": {"ports": [{"port": 80}]}});
        fill(services, &mut object);
        assert_eq!(object["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
    }

    #[test]
    fn defaults_do_not_overwrite_client_values() {
        let deployments = by_name("deployments").unwrap();
        let mut object = json!({"spec": {"replicas": 0, "strategy": {"type": "Recreate"}}});
        fill(deployments, &mut object);
        assert_eq!(object["spec"]["replicas"], 0);
        assert_eq!(object["spec"]["strategy"], json!({"type": "Recreate"}));
    }
}
