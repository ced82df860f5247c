//! Does what users do, with plain requests; what the server refuses is refused.

use http::Method;
use keleustes_client::Call;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::bodies;
use crate::deeds::{Farewell, Kind, Thing, UserDeed};
use crate::script::NAMESPACES;
use crate::witness::text;

/// A finalizer that nobody in the cluster knows.
const FOREIGN: &str = "example.com/hold";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

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
    pub async fn carry_out(&self, deed: &UserDeed) {
        match deed {
            UserDeed::Create(thing, wish) => {
                self.send(Method::POST, collection(thing), Some(bodies::wished(thing, wish)), None).await;
            }
            UserDeed::Scale(thing, replicas) => {
                let field = if thing.kind == Kind::Job { "parallelism" } else { "replicas" };
                self.patch(path(thing), json!({"spec": {field: replicas}}), MERGE).await;
            }
            UserDeed::Roll(thing, flavour) => {
                self.patch(path(thing), bodies::rolled(*flavour), STRATEGIC).await;
            }
            UserDeed::Hold(thing, held) => {
                let field = if thing.kind == Kind::Job { "suspend" } else { "paused" };
                self.patch(path(thing), json!({"spec": {field: held}}), MERGE).await;
            }
            UserDeed::Delete(thing, farewell) => {
                let propagation = match farewell {
                    Farewell::Background => "Background",
                    Farewell::Foreground => "Foreground",
                    Farewell::Orphan => "Orphan",
                };
                let options =
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation});
                self.send(Method::DELETE, path(thing), Some(options), None).await;
            }
            UserDeed::DeletePod(namespace, number) => {
                if let Some(pod) = self.pod(namespace, *number).await {
                    self.send(Method::DELETE, pod_path(&pod), None, None).await;
                }
            }
            UserDeed::Relabel(namespace, number) => {
                if let Some(pod) = self.pod(namespace, *number).await {
                    let name = text(&pod, "/metadata/labels/was").to_owned();
                    let labels = match name.as_str() {
                        "" => json!({"was": text(&pod, "/metadata/labels/app"), "app": "nobody"}),
                        _ => json!({"was": null, "app": name}),
                    };
                    self.patch(pod_path(&pod), json!({"metadata": {"labels": labels}}), MERGE).await;
                }
            }
            _ => self.do_harm(deed).await,
        }
    }

    /// What no honest user does.
    async fn do_harm(&self, deed: &UserDeed) {
        let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
        let number = self.number();
        match deed {
            UserDeed::Stray(namespace, name) => {
                let path = format!("/api/v1/namespaces/{namespace}/pods");
                self.send(Method::POST, path, Some(bodies::stray(name, number)), None).await;
            }
            UserDeed::Orphan(namespace, name) => {
                let map = bodies::owned(&format!("orphan-{name}-{number}"), &[("nobody", "no-such-uid")]);
                self.send(Method::POST, maps(namespace), Some(map), None).await;
            }
            UserDeed::Circle(namespace, name) => {
                let (one, two) = (format!("one-{name}-{number}"), format!("two-{name}-{number}"));
                let made =
                    self.send(Method::POST, maps(namespace), Some(bodies::owned(&one, &[])), None).await;
                let uid = text(&made, "/metadata/uid").to_owned();
                let map = bodies::owned(&two, &[(one.as_str(), uid.as_str())]);
                let made = self.send(Method::POST, maps(namespace), Some(map), None).await;
                let map = bodies::owned(&one, &[(two.as_str(), text(&made, "/metadata/uid"))]);
                self.patch(format!("{}/{one}", maps(namespace)), map, MERGE).await;
            }
            UserDeed::Held(namespace, name) => {
                let mut map = bodies::owned(&format!("held-{name}-{number}"), &[]);
                map["metadata"]["finalizers"] = json!([FOREIGN]);
                self.send(Method::POST, maps(namespace), Some(map), None).await;
            }
            UserDeed::Forge(namespace) => {
                let path = format!("{}/kube-root-ca.crt", maps(namespace));
                self.send(Method::DELETE, path, None, None).await;
                let map = bodies::forged();
                self.send(Method::POST, maps(namespace), Some(map), None).await;
            }
            UserDeed::RemoveNode(number) => {
                self.send(Method::DELETE, format!("/api/v1/nodes/hollow-{number}"), None, None).await;
            }
            UserDeed::Cordon(number, held) => {
                let path = format!("/api/v1/nodes/hollow-{number}");
                self.patch(path, json!({"spec": {"unschedulable": held}}), MERGE).await;
            }
            UserDeed::Spoil(namespace) => {
                let path = format!("/api/v1/namespaces/{namespace}");
                for what in ["configmaps/kube-root-ca.crt", "serviceaccounts/default"] {
                    self.send(Method::DELETE, format!("{path}/{what}"), None, None).await;
                }
            }
            _ => {}
        }
    }

    /// Takes back what keeps a node from being used.
    pub async fn make_well(&self, node: &str) {
        self.patch(format!("/api/v1/nodes/{node}"), json!({"spec": {"unschedulable": null}}), MERGE).await;
    }

    /// Takes back what keeps objects from going, and pods that stand in the way under a name that is wanted: a
    /// StatefulSet waits for ever for the name of a pod that was taken from it.
    pub async fn let_go(&self) {
        for namespace in NAMESPACES {
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            let found = self.send(Method::GET, path, None, None).await;
            for pod in found["items"].as_array().into_iter().flatten() {
                if !text(pod, "/metadata/labels/was").is_empty() {
                    self.send(Method::DELETE, pod_path(pod), None, None).await;
                }
            }
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            let found = self.send(Method::GET, path.clone(), None, None).await;
            for map in found["items"].as_array().into_iter().flatten() {
                if map.pointer("/metadata/finalizers/0").is_some_and(|first| first == FOREIGN) {
                    let path = format!("{path}/{}", text(map, "/metadata/name"));
                    self.patch(path, json!({"metadata": {"finalizers": null}}), MERGE).await;
                }
            }
        }
    }

    fn number(&self) -> u64 {
        let mut made = self.made.lock();
        *made += 1;
        *made
    }

    async fn pod(&self, namespace: &str, number: usize) -> Option<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let mut found = self.send(Method::GET, path, None, None).await;
        let pods = found["items"].as_array_mut()?;
        (!pods.is_empty()).then(|| pods.swap_remove(number % pods.len()))
    }

    async fn patch(&self, path: String, body: Value, form: &'static str) {
        self.send(Method::PATCH, path, Some(body), Some(form)).await;
    }

    /// Sends a request; whatever is refused comes back as null.
    async fn send(
        &self,
        method: Method,
        path: String,
        body: Option<Value>,
        form: Option<&'static str>,
    ) -> Value {
        let mut call = Call::raw(method, path);
        if let Some(body) = &body {
            call = call.with_body(body);
        }
        if form.is_some() {
            call.content_type = form;
        }
        call.send(&self.client).await.unwrap_or_default()
    }
}

fn collection(thing: &Thing) -> String {
    let (api, plural) = thing.kind.place();
    match thing.kind {
        Kind::Namespace => format!("{api}/{plural}"),
        _ => format!("{api}/namespaces/{}/{plural}", thing.namespace),
    }
}

fn path(thing: &Thing) -> String {
    format!("{}/{}", collection(thing), thing.name)
}

fn pod_path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}
