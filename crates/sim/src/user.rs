//! Does what users do, with plain requests; what the server refuses is refused.

use keleustes_client::{Call, DeleteOptions, PatchType};
use keleustes_objects::{
    Key, Kind as _, Node, Pod, ROOT_CA_CONFIG_MAP, Resource, RootCaConfigMap, ServiceAccount,
};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::bodies;
use crate::checks::look::controller;
use crate::deeds::{Kind, UserAction, node};
use crate::script::NAMESPACES;
use crate::witness::text;

/// A finalizer that nobody in the cluster knows.
const FOREIGN: &str = "example.com/hold";
/// The finalizer of pods that a Job has not counted yet.
const TRACKED: &str = "batch.kubernetes.io/job-tracking";
const PODS: Resource = Pod::RESOURCE;
const MAPS: Resource = RootCaConfigMap::RESOURCE;

/// A person with a client.
pub struct User {
    client: Client,
    /// So that things that are made twice have two names.
    made: Mutex<u64>,
}

impl User {
    /// A person who may do everything.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, made: Mutex::new(0) }
    }

    /// Does a deed.
    pub async fn carry_out(&self, deed: &UserAction) {
        match deed {
            UserAction::Create(thing, wish) => {
                self.create(&thing.kind.resource(), &thing.namespace, &bodies::wished(thing, wish)).await;
                // People label namespaces when they have made them, while what belongs there is still being made.
                for label in (0..2).filter(|_| thing.kind == Kind::Namespace) {
                    let labels = json!({"metadata": {"labels": {format!("label-{label}"): "there"}}});
                    self.merge(&thing.kind.resource(), &thing.key(), labels).await;
                }
            }
            UserAction::Scale(thing, replicas) => {
                let field = if thing.kind == Kind::Job { "parallelism" } else { "replicas" };
                self.merge(&thing.kind.resource(), &thing.key(), json!({"spec": {field: replicas}})).await;
            }
            UserAction::Roll(thing, flavour) => {
                let (resource, change) = (thing.kind.resource(), bodies::rolled(*flavour));
                self.send(&Call::patch(&resource, &thing.key(), PatchType::Strategic, &change)).await;
            }
            UserAction::Hold(thing, held) => {
                let field = if thing.kind == Kind::Job { "suspend" } else { "paused" };
                self.merge(&thing.kind.resource(), &thing.key(), json!({"spec": {field: held}})).await;
            }
            UserAction::Delete(thing, farewell) => {
                let deletion = DeleteOptions {
                    propagation_policy: Some((*farewell).into()),
                    ..DeleteOptions::default()
                };
                self.send(&Call::delete(&thing.kind.resource(), &thing.key(), &deletion)).await;
            }
            UserAction::Recreate(thing, farewell, wish) => {
                let deletion = DeleteOptions {
                    propagation_policy: Some((*farewell).into()),
                    ..DeleteOptions::default()
                };
                let resource = thing.kind.resource();
                self.send(&Call::delete(&resource, &thing.key(), &deletion)).await;
                self.create(&resource, &thing.namespace, &bodies::wished(thing, wish)).await;
            }
            UserAction::DeletePod(namespace, number) => {
                if let Some(pod) = self.one_of(&PODS, namespace, *number).await {
                    self.delete(&PODS, &key(&pod)).await;
                }
            }
            UserAction::Relabel(namespace, number) => {
                if let Some(pod) = self.one_of(&PODS, namespace, *number).await {
                    let name = text(&pod, "/metadata/labels/was").to_owned();
                    let labels = match name.as_str() {
                        "" => json!({"was": text(&pod, "/metadata/labels/app"), "app": "nobody"}),
                        _ => json!({"was": null, "app": name}),
                    };
                    self.merge(&PODS, &key(&pod), json!({"metadata": {"labels": labels}})).await;
                }
            }
            _ => self.do_harm(deed).await,
        }
    }

    /// What no honest user does.
    async fn do_harm(&self, deed: &UserAction) {
        let number = self.number();
        match deed {
            UserAction::Stray(namespace, name) => {
                // Every other one is on a node that nobody chose for it.
                let node = (number % 2 == 1).then(|| node(0));
                self.create(&PODS, namespace, &bodies::stray(name, number, node.as_deref())).await;
            }
            UserAction::Orphan(namespace, name) => {
                let map = bodies::owned(&format!("orphan-{name}-{number}"), &[("nobody", "no-such-uid")]);
                self.create(&MAPS, namespace, &map).await;
            }
            UserAction::Circle(namespace, name) => {
                let (one, two) = (format!("one-{name}-{number}"), format!("two-{name}-{number}"));
                let made = self.create(&MAPS, namespace, &bodies::owned(&one, &[])).await;
                let map = bodies::owned(&two, &[(one.as_str(), text(&made, "/metadata/uid"))]);
                let made = self.create(&MAPS, namespace, &map).await;
                let map = bodies::owned(&one, &[(two.as_str(), text(&made, "/metadata/uid"))]);
                self.merge(&MAPS, &Key::namespaced(namespace.as_str(), one), map).await;
            }
            UserAction::Held(namespace, name) => {
                let mut map = bodies::owned(&format!("held-{name}-{number}"), &[]);
                map["metadata"]["finalizers"] = json!([FOREIGN]);
                self.create(&MAPS, namespace, &map).await;
            }
            UserAction::Forge(namespace) => {
                self.delete(&MAPS, &Key::namespaced(namespace.as_str(), ROOT_CA_CONFIG_MAP)).await;
                self.create(&MAPS, namespace, &bodies::forged()).await;
            }
            UserAction::RemoveNode(number) => {
                self.delete(&Node::RESOURCE, &Key::cluster(node(*number))).await
            }
            UserAction::Cordon(number, held) => {
                let change = json!({"spec": {"unschedulable": held}});
                self.merge(&Node::RESOURCE, &Key::cluster(node(*number)), change).await;
            }
            UserAction::Spoil(namespace) => {
                self.delete(&MAPS, &Key::namespaced(namespace.as_str(), ROOT_CA_CONFIG_MAP)).await;
                let account = Key::namespaced(namespace.as_str(), "default");
                self.delete(&ServiceAccount::RESOURCE, &account).await;
            }
            _ => self.meddle(deed).await,
        }
    }

    /// Drives everything off a node, and puts a pod there afterwards.
    pub async fn drive_off(&self, node: &str) {
        self.set_taint(&Key::cluster(node), true).await;
        self.create(&PODS, NAMESPACES[0], &bodies::stray("nobody", self.number(), Some(node))).await;
    }

    /// Takes back what keeps a node from being used, if anything does.
    pub async fn make_well(&self, node: &str) {
        let node = Key::cluster(node);
        let found = self.send(&Call::get(&Node::RESOURCE, &node)).await;
        if found["spec"]["unschedulable"] == true {
            self.merge(&Node::RESOURCE, &node, json!({"spec": {"unschedulable": null}})).await;
        }
        self.set_taint(&node, false).await;
    }

    /// Takes back what keeps objects from going, and pods that stand in the way under a name that is wanted: a
    /// StatefulSet waits for ever for the name of a pod that was taken from it.
    pub async fn let_go(&self) {
        for namespace in NAMESPACES {
            for pod in self.list(&PODS, namespace).await {
                if !text(&pod, "/metadata/labels/was").is_empty() {
                    self.delete(&PODS, &key(&pod)).await;
                }
                // A pod that was taken from its Job and adopted by somebody else: no Job will let it go.
                let is_anothers = controller(&pod).is_some_and(|owner| owner["kind"] != "Job");
                if is_anothers && pod.pointer("/metadata/finalizers/0").is_some_and(|first| first == TRACKED)
                {
                    self.merge(&PODS, &key(&pod), json!({"metadata": {"finalizers": null}})).await;
                }
            }
            for map in self.list(&MAPS, namespace).await {
                if map.pointer("/metadata/finalizers/0").is_some_and(|first| first == FOREIGN) {
                    self.merge(&MAPS, &key(&map), json!({"metadata": {"finalizers": null}})).await;
                }
            }
        }
    }

    fn number(&self) -> u64 {
        let mut made = self.made.lock();
        *made += 1;
        *made
    }

    /// Whichever object of a namespace that number falls on.
    pub(crate) async fn one_of(&self, resource: &Resource, namespace: &str, number: usize) -> Option<Value> {
        let mut there = self.list(resource, namespace).await;
        (!there.is_empty()).then(|| there.swap_remove(number % there.len()))
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

    /// Sends a request; whatever is refused comes back as null.
    pub(crate) async fn send(&self, call: &Call) -> Value {
        call.send(&self.client).await.unwrap_or_default()
    }
}

pub(crate) fn key(object: &Value) -> Key {
    Key::namespaced(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
