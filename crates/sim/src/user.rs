//! Performs user actions with plain requests; rejections are ignored.

use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_objects::{
    Key, Kind as _, Node, Pod, ROOT_CA_CONFIG_MAP, Resource, RootCaConfigMap, ServiceAccount,
    StorageVersionMigration,
};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::actions::{Kind, UserAction, node};
use crate::bodies;
use crate::checks::objects::condition_is_true;
use crate::generate::NAMESPACES;
use crate::recorder::text;
use crate::user_interference::{OUT_OF_SERVICE, USER_TAINT};

/// A finalizer that no controller removes.
const FOREIGN_FINALIZER: &str = "example.com/hold";
const PODS: Resource = Pod::RESOURCE;
const CONFIG_MAPS: Resource = RootCaConfigMap::RESOURCE;

/// A user with a client.
pub struct SimulatedUser {
    client: Client,
    /// A counter that makes the names of created objects unique.
    created: Mutex<u64>,
}

impl SimulatedUser {
    /// A user with all permissions.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, created: Mutex::new(0) }
    }

    /// Performs an action.
    pub async fn perform(&self, action: &UserAction) {
        match action {
            UserAction::Create(object, spec) => {
                self.create(&object.kind.resource(), &object.namespace, &bodies::object_body(object, spec))
                    .await;
                // Users label new namespaces while controllers still create the default objects in them.
                for label in (0..2).filter(|_| object.kind == Kind::Namespace) {
                    let labels = json!({"metadata": {"labels": {format!("label-{label}"): "there"}}});
                    self.merge(&object.kind.resource(), &object.key(), labels).await;
                }
            }
            UserAction::Scale(object, replicas) => {
                let field = if object.kind == Kind::Job { "parallelism" } else { "replicas" };
                self.merge(&object.kind.resource(), &object.key(), json!({"spec": {field: replicas}})).await;
            }
            UserAction::ChangeTemplate(object, template_version) => {
                let (resource, change) = (object.kind.resource(), bodies::template_patch(*template_version));
                self.send(&Call::patch(&resource, &object.key(), PatchType::Strategic, &change)).await;
            }
            UserAction::SetPaused(object, value) => {
                let is_batch = matches!(object.kind, Kind::Job | Kind::CronJob);
                let field = if is_batch { "suspend" } else { "paused" };
                self.merge(&object.kind.resource(), &object.key(), json!({"spec": {field: value}})).await;
            }
            UserAction::Delete(object, propagation) => {
                let deletion = DeleteOptions {
                    propagation_policy: Some((*propagation).into()),
                    ..DeleteOptions::default()
                };
                self.send(&Call::delete(&object.kind.resource(), &object.key(), &deletion)).await;
            }
            UserAction::Recreate(object, propagation, spec) => {
                let deletion = DeleteOptions {
                    propagation_policy: Some((*propagation).into()),
                    ..DeleteOptions::default()
                };
                let resource = object.kind.resource();
                self.send(&Call::delete(&resource, &object.key(), &deletion)).await;
                self.create(&resource, &object.namespace, &bodies::object_body(object, spec)).await;
            }
            UserAction::DeletePod(namespace, number) => {
                if let Some(pod) = self.select(&PODS, namespace, *number).await {
                    self.delete(&PODS, &key(&pod)).await;
                }
            }
            UserAction::RelabelPod(namespace, number) => {
                if let Some(pod) = self.select(&PODS, namespace, *number).await {
                    let name = text(&pod, "/metadata/labels/was").to_owned();
                    let labels = match name.as_str() {
                        "" => json!({"was": text(&pod, "/metadata/labels/app"), "app": "no-app"}),
                        _ => json!({"was": null, "app": name}),
                    };
                    self.merge(&PODS, &key(&pod), json!({"metadata": {"labels": labels}})).await;
                }
            }
            _ => self.disrupt(action).await,
        }
    }

    /// Disruptive actions.
    async fn disrupt(&self, action: &UserAction) {
        let number = self.number();
        match action {
            UserAction::CreateStrayPod(namespace, name) => {
                // Every other stray pod is bound by its creator.
                let node = (number % 2 == 1).then(|| node(0));
                self.create(&PODS, namespace, &bodies::stray_pod(name, number, node.as_deref())).await;
            }
            UserAction::CreateWithMissingOwner(namespace, name) => {
                let map = bodies::config_map_owned_by(
                    &format!("orphan-{name}-{number}"),
                    &[("absent", "no-such-uid")],
                );
                self.create(&CONFIG_MAPS, namespace, &map).await;
            }
            UserAction::CreateOwnerCycle(namespace, name) => {
                let (one, two) = (format!("one-{name}-{number}"), format!("two-{name}-{number}"));
                let created =
                    self.create(&CONFIG_MAPS, namespace, &bodies::config_map_owned_by(&one, &[])).await;
                let map =
                    bodies::config_map_owned_by(&two, &[(one.as_str(), text(&created, "/metadata/uid"))]);
                let created = self.create(&CONFIG_MAPS, namespace, &map).await;
                let map =
                    bodies::config_map_owned_by(&one, &[(two.as_str(), text(&created, "/metadata/uid"))]);
                self.merge(&CONFIG_MAPS, &Key::namespaced(namespace.as_str(), one), map).await;
            }
            UserAction::CreateWithOwnerElsewhere(kind, namespace, owner) => {
                self.create_with_owner_elsewhere(*kind, namespace, owner, number).await;
            }
            UserAction::CreateWithFinalizer(namespace, name) => {
                let mut map = bodies::config_map_owned_by(&format!("held-{name}-{number}"), &[]);
                map["metadata"]["finalizers"] = json!([FOREIGN_FINALIZER]);
                self.create(&CONFIG_MAPS, namespace, &map).await;
            }
            UserAction::ReplaceRootCa(namespace) => {
                self.delete(&CONFIG_MAPS, &Key::namespaced(namespace.as_str(), ROOT_CA_CONFIG_MAP)).await;
                self.create(&CONFIG_MAPS, namespace, &bodies::replaced_root_ca()).await;
            }
            UserAction::CreateMigration(name, number) => self.create_migration(name, *number).await,
            UserAction::DeleteMigration(name) => {
                self.delete(&StorageVersionMigration::RESOURCE, &Key::cluster(name.as_str())).await;
            }
            UserAction::DeleteNode(number) => {
                self.delete(&Node::RESOURCE, &Key::cluster(node(*number))).await;
            }
            UserAction::SetUnschedulable(number, value) => {
                let change = json!({"spec": {"unschedulable": value}});
                self.merge(&Node::RESOURCE, &Key::cluster(node(*number)), change).await;
            }
            UserAction::DeleteNamespaceDefaults(namespace) => {
                self.delete(&CONFIG_MAPS, &Key::namespaced(namespace.as_str(), ROOT_CA_CONFIG_MAP)).await;
                let account = Key::namespaced(namespace.as_str(), "default");
                self.delete(&ServiceAccount::RESOURCE, &account).await;
            }
            _ if self.change_quotas(action).await => {}
            _ => self.interfere(action).await,
        }
    }

    async fn create_migration(&self, name: &str, number: u8) {
        let resources = [("", "configmaps"), ("", "secrets"), ("apps", "replicasets"), ("", "pods")];
        let (group, resource) = resources[usize::from(number) % resources.len()];
        let spec = json!({"resource": {"group": group, "resource": resource}});
        let migration = json!({"metadata": {"name": name}, "spec": spec});
        self.create(&StorageVersionMigration::RESOURCE, "", &migration).await;
    }

    /// Deletes each migration that has failed and creates it again.
    pub(crate) async fn repeat_failed_migrations(&self) {
        for migration in self.list(&StorageVersionMigration::RESOURCE, "").await {
            if condition_is_true(&migration, "Failed") {
                self.delete(&StorageVersionMigration::RESOURCE, &key(&migration)).await;
                let again =
                    json!({"metadata": {"name": migration["metadata"]["name"]}, "spec": migration["spec"]});
                self.create(&StorageVersionMigration::RESOURCE, "", &again).await;
            }
        }
    }

    /// Taints a node with NoExecute and binds a new pod to it afterwards.
    pub async fn taint_and_bind_pod(&self, node: &str) {
        self.set_taint(&Key::cluster(node), USER_TAINT, true).await;
        self.create(&PODS, NAMESPACES[0], &bodies::stray_pod("no-app", self.number(), Some(node))).await;
    }

    /// Uncordons a node and removes the users' taints.
    pub async fn restore_node(&self, node: &str) {
        let node = Key::cluster(node);
        let found = self.send(&Call::get(&Node::RESOURCE, &node)).await;
        if found["spec"]["unschedulable"] == true {
            self.merge(&Node::RESOURCE, &node, json!({"spec": {"unschedulable": null}})).await;
        }
        self.set_taint(&node, USER_TAINT, false).await;
        self.set_taint(&node, OUT_OF_SERVICE, false).await;
    }

    /// Removes foreign finalizers, raises the limits of quotas, and deletes relabelled pods: a StatefulSet waits forever
    /// for the name of a pod that it had to release.
    pub async fn remove_blockers(&self) {
        self.lift_quotas().await;
        for namespace in NAMESPACES {
            for pod in self.list(&PODS, namespace).await {
                if !text(&pod, "/metadata/labels/was").is_empty() {
                    self.delete(&PODS, &key(&pod)).await;
                }
            }
            for map in self.list(&CONFIG_MAPS, namespace).await {
                if map.pointer("/metadata/finalizers/0").is_some_and(|first| first == FOREIGN_FINALIZER) {
                    self.merge(&CONFIG_MAPS, &key(&map), json!({"metadata": {"finalizers": null}})).await;
                }
            }
        }
    }

    pub(crate) fn number(&self) -> u64 {
        let mut created = self.created.lock();
        *created += 1;
        *created
    }

    /// The object of a namespace that this number selects.
    pub(crate) async fn select(&self, resource: &Resource, namespace: &str, number: usize) -> Option<Value> {
        let mut objects = self.list(resource, namespace).await;
        (!objects.is_empty()).then(|| objects.swap_remove(number % objects.len()))
    }

    pub(crate) async fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        match self.send(&Call::list(resource, namespace)).await["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    pub(crate) async fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Value {
        self.send(&Call::create(resource, namespace, object)).await
    }

    pub(crate) async fn merge(&self, resource: &Resource, key: &Key, change: Value) {
        self.send(&Call::patch(resource, key, PatchType::Merge, &change)).await;
    }

    pub(crate) async fn delete(&self, resource: &Resource, key: &Key) {
        self.send(&Call::delete(resource, key, &DeleteOptions::default())).await;
    }

    /// Sends a request; null if it is rejected.
    pub(crate) async fn send(&self, call: &Call) -> Value {
        call.send(&self.client).await.unwrap_or_default()
    }
}

pub(crate) fn key(object: &Value) -> Key {
    Key::namespaced(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
