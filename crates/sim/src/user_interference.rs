//! User actions on objects that controllers create: slices, tokens, revisions, roles, owner references.

use http::Method;
use keleustes_client::Call;
use keleustes_objects::{
    ClusterRole, ControllerRevision, EndpointSlice, Endpoints, Job, Key, Kind as _, Lease, Node, Pod,
    PodDisruptionBudget, ReplicaSet, Resource, Service, ServiceAccount, TokenSecret,
};
use serde_json::{Value, json};

use crate::actions::{
    CustomEndpointsChange, DependentKind, Kind, LeaseTampering, ObjectRef, ObjectSpec, PodBehaviour,
    SliceTampering, TokenTampering, UserAction, node,
};
use crate::bodies;
use crate::recorder::{LEASE_NAME, LEASE_NAMESPACE};
use crate::user::{SimulatedUser, key};

const ACCOUNTS: Resource = ServiceAccount::RESOURCE;
const SECRETS: Resource = TokenSecret::RESOURCE;
const SLICES: Resource = EndpointSlice::RESOURCE;
const ENDPOINTS: Resource = Endpoints::RESOURCE;
const SERVICES: Resource = Service::RESOURCE;
const REVISIONS: Resource = ControllerRevision::RESOURCE;
const ROLES: Resource = ClusterRole::RESOURCE;
/// The taint that users add to nodes.
pub(crate) const USER_TAINT: &str = "example.com/keep-off";
/// The taint of a node that is shut down for certain.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

impl SimulatedUser {
    async fn evict(&self, namespace: &str, number: usize) {
        let Some(pod) = self.select(&Pod::RESOURCE, namespace, number).await else { return };
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod["metadata"]["name"], "namespace": namespace}});
        let call = Call::on_object(Method::POST, &Pod::RESOURCE, &key(&pod));
        self.send(&call.subresource("eviction").with_body(&body)).await;
    }

    async fn set_budget(&self, namespace: &str, name: &str, spec: Option<u8>) {
        let (budgets, key) = (PodDisruptionBudget::RESOURCE, Key::namespaced(namespace, name));
        let Some(spec) = spec else { return self.delete(&budgets, &key).await };
        let body = bodies::budget(name, spec);
        self.create(&budgets, namespace, &body).await;
        self.merge(&budgets, &key, body).await;
    }

    pub(crate) async fn interfere(&self, action: &UserAction) {
        match action {
            UserAction::SetJobTtl(namespace, number, ttl) => {
                let mut jobs = self.list(&Job::RESOURCE, namespace).await;
                jobs.retain(|job| job.pointer("/metadata/ownerReferences").is_none());
                if !jobs.is_empty() {
                    let change = json!({"spec": {"ttlSecondsAfterFinished": ttl}});
                    self.merge(&Job::RESOURCE, &key(&jobs[*number % jobs.len()]), change).await;
                }
            }
            UserAction::RunCronJobNow(cron_job) => {
                let found = self.send(&Call::get(&cron_job.kind.resource(), &cron_job.key())).await;
                if !found.is_null() {
                    let name = format!("{}-manual-{}", cron_job.name, self.number());
                    let metadata =
                        json!({"name": name, "ownerReferences": [bodies::controller_ref_to(&found)]});
                    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
                        "spec": found["spec"]["jobTemplate"]["spec"]});
                    self.create(&Job::RESOURCE, &cron_job.namespace, &job).await;
                }
            }
            UserAction::SetBudget(namespace, name, spec) => self.set_budget(namespace, name, *spec).await,
            UserAction::EvictPod(namespace, number) => self.evict(namespace, *number).await,
            UserAction::RemoveOwnerReferences(kind, namespace, number) => {
                let resource = match kind {
                    DependentKind::Pod => Pod::RESOURCE,
                    DependentKind::ReplicaSet => ReplicaSet::RESOURCE,
                    DependentKind::ControllerRevision => REVISIONS,
                };
                if let Some(child) = self.select(&resource, namespace, *number).await {
                    let change = json!({"metadata": {"ownerReferences": null}});
                    self.merge(&resource, &key(&child), change).await;
                }
            }
            UserAction::CreateTokenSecret(namespace, name, secret_first) => {
                if *secret_first {
                    self.create(&SECRETS, namespace, &bodies::token_secret(name)).await;
                }
                self.create(&ACCOUNTS, namespace, &bodies::service_account(name)).await;
                self.create(&SECRETS, namespace, &bodies::token_secret(name)).await;
            }
            UserAction::TamperWithTokenSecret(namespace, name, tampering) => {
                self.tamper_with_token(namespace, name, *tampering).await;
            }
            UserAction::DeleteServiceAccount(namespace, name, recreate) => {
                self.delete(&ACCOUNTS, &Key::namespaced(namespace.as_str(), name.as_str())).await;
                if *recreate {
                    self.create(&ACCOUNTS, namespace, &bodies::service_account(name)).await;
                }
            }
            UserAction::TamperWithEndpointSlice(namespace, number, tampering) => {
                if let Some(slice) = self.select(&SLICES, namespace, *number).await {
                    self.tamper_with_slice(&slice, *tampering).await;
                }
            }
            UserAction::ChangeServiceSelector(object, name, port) => {
                let change = bodies::service_patch(name, *port);
                self.merge(&object.kind.resource(), &object.key(), change).await;
            }
            UserAction::ChangeCustomEndpoints(namespace, name, change) => {
                self.change_custom_endpoints(namespace, name, *change).await;
            }
            UserAction::DeleteControllerRevision(namespace, number) => {
                if let Some(revision) = self.select(&REVISIONS, namespace, *number).await {
                    self.delete(&REVISIONS, &key(&revision)).await;
                }
            }
            _ => self.interfere_with_cluster(action).await,
        }
    }

    /// Creates an object whose controllerRef names an existing owner in another namespace.
    pub(crate) async fn create_with_owner_elsewhere(
        &self,
        kind: DependentKind,
        namespace: &str,
        owner: &ObjectRef,
        number: u64,
    ) {
        let target =
            ObjectRef { kind: Kind::Namespace, namespace: String::new(), name: namespace.to_owned() };
        let spec =
            ObjectSpec { replicas: 0, template_version: 0, pods: PodBehaviour::Healthy, alternative: false };
        self.create(&target.kind.resource(), "", &bodies::object_body(&target, &spec)).await;
        let found = self.send(&Call::get(&owner.kind.resource(), &owner.key())).await;
        if found.is_null() {
            return;
        }
        let controller_ref = bodies::controller_ref_to(&found);
        if kind == DependentKind::ReplicaSet {
            let set = bodies::replica_set_controlled_by(owner, &controller_ref, number);
            self.create(&ReplicaSet::RESOURCE, namespace, &set).await;
        } else {
            let pod = bodies::pod_controlled_by(owner, &controller_ref, number);
            self.create(&Pod::RESOURCE, namespace, &pod).await;
        }
        // The owner is reconciled before the garbage collector deletes the object.
        let change = json!({"metadata": {"annotations": {"example.com/changed": number.to_string()}}});
        self.merge(&owner.kind.resource(), &owner.key(), change).await;
    }

    /// Actions on objects of the whole cluster: nodes, roles and the leader election lease.
    async fn interfere_with_cluster(&self, action: &UserAction) {
        match action {
            UserAction::SetAutoscaler(namespace, name, spec) => {
                self.set_autoscaler(namespace, name, *spec).await;
            }
            UserAction::SetLoad(namespace, name, replicas) => self.set_load(namespace, name, *replicas).await,
            UserAction::SetNodeZone(number, zone) => {
                let labels = json!({"topology.kubernetes.io/zone": format!("zone-{zone}")});
                let change = json!({"metadata": {"labels": labels}});
                self.merge(&Node::RESOURCE, &Key::cluster(node(*number)), change).await;
            }
            UserAction::SetNodeTaint(number, taint) => {
                self.set_taint(&Key::cluster(node(*number)), USER_TAINT, *taint).await;
            }
            UserAction::ChangeVolumes(namespace, name, change) => {
                self.change_volumes(namespace, name, *change).await;
            }
            UserAction::ChangeDevices(namespace, name, change) => {
                self.change_devices(namespace, name, *change).await;
            }
            UserAction::ChangeServiceRange(number, change) => {
                self.change_service_range(*number, *change).await;
            }
            UserAction::ChangeCertificateRequest(name, change) => {
                self.change_certificate_request(name, *change).await;
            }
            UserAction::ChangeCredentials(change) => self.change_credentials(*change).await,
            UserAction::ChangeStorage(namespace, name, change) => {
                self.change_storage(namespace, name, *change).await;
            }
            UserAction::SetOutOfService(number, taint) => {
                self.set_taint(&Key::cluster(node(*number)), OUT_OF_SERVICE, *taint).await;
            }
            UserAction::DrainNode(number) => self.drain(*number).await,
            UserAction::ChangePodGroup(namespace, name, change) => {
                self.change_pod_group(namespace, name, *change).await;
            }
            UserAction::ChangeStorageVersions(change) => self.change_storage_versions(*change).await,
            UserAction::ChangePools(change) => self.change_pools(*change).await,
            UserAction::ChangePolicy(name, change) => self.change_policy(name, *change).await,
            UserAction::ChangeLabelledPods(change) => self.change_labelled_pods(*change).await,
            UserAction::ResetAggregatedRole => {
                let (role, aggregated) = (Key::cluster(bodies::AGGREGATED_ROLE), bodies::aggregated_role());
                self.create(&ROLES, "", &aggregated).await;
                self.merge(&ROLES, &role, json!({"rules": aggregated["rules"]})).await;
            }
            UserAction::SetRolePart(name, Some(allows)) => {
                let role_part = bodies::role_part(name, *allows);
                self.create(&ROLES, "", &role_part).await;
                self.merge(&ROLES, &Key::cluster(name.as_str()), json!({"rules": role_part["rules"]})).await;
            }
            UserAction::SetRolePart(name, None) => self.delete(&ROLES, &Key::cluster(name.as_str())).await,
            UserAction::TamperWithLease(tampering) => {
                let lease = Key::namespaced(LEASE_NAMESPACE, LEASE_NAME);
                match tampering {
                    LeaseTampering::Delete => self.delete(&Lease::RESOURCE, &lease).await,
                    LeaseTampering::ClearHolder => {
                        let change = json!({"spec": {"holderIdentity": ""}});
                        self.merge(&Lease::RESOURCE, &lease, change).await;
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a taint to a node or removes it. The list of taints is written as a whole, without a
    /// resourceVersion.
    pub(crate) async fn set_taint(&self, node: &Key, key: &str, taint: bool) {
        let found = self.send(&Call::get(&Node::RESOURCE, node)).await;
        let mut taints = found["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let before = taints.len();
        taints.retain(|there| there["key"] != key);
        if taint {
            taints.push(json!({"key": key, "effect": "NoExecute"}));
        }
        if taints.len() != before {
            self.merge(&Node::RESOURCE, node, json!({"spec": {"taints": taints}})).await;
        }
    }

    async fn tamper_with_token(&self, namespace: &str, account: &str, tampering: TokenTampering) {
        let secret = Key::namespaced(namespace, bodies::token_secret_name(account));
        match tampering {
            TokenTampering::RemoveToken => {
                self.merge(&SECRETS, &secret, json!({"data": {"token": null}})).await;
            }
            // "another CA"
            TokenTampering::ReplaceCa => {
                self.merge(&SECRETS, &secret, json!({"data": {"ca.crt": "YW5vdGhlciBDQQ=="}})).await;
            }
            TokenTampering::Delete => self.delete(&SECRETS, &secret).await,
            TokenTampering::Recreate => {
                self.delete(&SECRETS, &secret).await;
                self.create(&SECRETS, namespace, &bodies::token_secret(account)).await;
            }
        }
    }

    async fn change_custom_endpoints(&self, namespace: &str, name: &str, change: CustomEndpointsChange) {
        let name = format!("{}{name}", bodies::CUSTOM_ENDPOINTS_PREFIX);
        let key = Key::namespaced(namespace, name.as_str());
        match change {
            CustomEndpointsChange::SetAddresses(number) => {
                let (service, endpoints) = bodies::custom_endpoints(&name, number);
                self.create(&SERVICES, namespace, &service).await;
                self.create(&ENDPOINTS, namespace, &endpoints).await;
                self.merge(&ENDPOINTS, &key, json!({"subsets": endpoints["subsets"]})).await;
            }
            CustomEndpointsChange::SkipMirror(is_skipped) => {
                let value = if is_skipped { json!("true") } else { Value::Null };
                let labels = json!({"endpointslice.kubernetes.io/skip-mirror": value});
                self.merge(&ENDPOINTS, &key, json!({"metadata": {"labels": labels}})).await;
            }
            CustomEndpointsChange::SetSelector(has_selector) => {
                let selector = if has_selector { json!({"app": name}) } else { Value::Null };
                self.merge(&SERVICES, &key, json!({"spec": {"selector": selector}})).await;
            }
            CustomEndpointsChange::DeleteEndpoints => self.delete(&ENDPOINTS, &key).await,
            CustomEndpointsChange::DeleteService => self.delete(&SERVICES, &key).await,
        }
    }

    async fn tamper_with_slice(&self, slice: &Value, tampering: SliceTampering) {
        let key = key(slice);
        match tampering {
            SliceTampering::RemoveEndpoints => self.merge(&SLICES, &key, json!({"endpoints": []})).await,
            SliceTampering::ReplaceEndpoints => {
                let foreign = json!({"addresses": ["192.0.2.1"], "conditions": {"ready": true}});
                self.merge(&SLICES, &key, json!({"endpoints": [foreign]})).await;
            }
            SliceTampering::Delete => self.delete(&SLICES, &key).await,
            SliceTampering::RemoveManagedByLabel => {
                let labels = json!({"endpointslice.kubernetes.io/managed-by": null});
                self.merge(&SLICES, &key, json!({"metadata": {"labels": labels}})).await;
            }
        }
    }
}
