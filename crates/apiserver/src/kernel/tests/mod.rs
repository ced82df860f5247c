//! The kernel answers like kube-apiserver, feature by feature; one file per feature.

mod access;
mod applies;
mod certificates;
mod custom;
mod deletes;
mod discoveries;
mod hostile;
mod kinds;
mod kubectl;
mod limits;
mod lists;
mod metrics;
mod namespaces;
mod patches;
mod pod_security;
mod pods;
mod protobuf;
mod quotas;
mod scales;
mod services;
mod tables;
mod tokens;
mod watches;
mod writes;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Kernel, KernelOptions, Reply, Request, User, WatchId};

/// A kernel with a clock that tests advance.
struct TestServer {
    kernel: Kernel,
    now: Timestamp,
}

impl TestServer {
    fn new() -> TestServer {
        let now = "2026-01-02T03:04:05.678Z".parse().unwrap();
        TestServer { kernel: Kernel::new(1, 1000, now), now }
    }

    fn with(options: KernelOptions) -> TestServer {
        let now = "2026-01-02T03:04:05.678Z".parse().unwrap();
        TestServer { kernel: Kernel::with_options(options, now), now }
    }

    /// Sends a request as a user.
    fn send_as(&mut self, user: &User, method: Method, target: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.reply(&Request { user: Some(user.clone()), ..Request::new(method, target, body) })
    }

    fn reply(&mut self, request: &Request) -> (u16, Value) {
        match self.kernel.call(request, self.now) {
            Reply::Document(document) => {
                (document.code, serde_json::from_slice(&document.body).unwrap_or(Value::Null))
            }
            Reply::Watch { .. } => panic!("a watch was opened"),
        }
    }

    fn send(&mut self, method: Method, target: &str, body: &str) -> (u16, Value) {
        self.reply(&Request::new(method, target, body.to_owned()))
    }

    fn get(&mut self, target: &str) -> (u16, Value) {
        self.send(Method::GET, target, "")
    }

    fn post(&mut self, target: &str, body: &Value) -> (u16, Value) {
        self.send(Method::POST, target, &body.to_string())
    }

    fn put(&mut self, target: &str, body: &Value) -> (u16, Value) {
        self.send(Method::PUT, target, &body.to_string())
    }

    fn delete(&mut self, target: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(Method::DELETE, target, &body)
    }

    fn patch(&mut self, target: &str, kind: &str, body: &Value) -> (u16, Value) {
        let request = Request::new(Method::PATCH, target, body.to_string());
        self.reply(&Request { content_type: format!("application/{kind}"), ..request })
    }

    /// Creates an object and expects success.
    fn created(&mut self, target: &str, body: &Value) -> Value {
        let (code, object) = self.post(target, body);
        assert_eq!(code, 201, "{object}");
        object
    }

    fn watch(&mut self, target: &str) -> WatchId {
        match self.kernel.call(&Request::new(Method::GET, target, ""), self.now) {
            Reply::Watch { id, .. } => id,
            Reply::Document(document) => panic!("refused: {:?}", document.body),
        }
    }

    /// The events of the watch, as "TYPE name" or "TYPE resourceVersion" for bookmarks.
    fn frames(&mut self, id: WatchId) -> Vec<String> {
        let frames = self.kernel.take_frames(id).unwrap_or_default();
        let describe = |object: &Value| match object["metadata"]["name"].as_str() {
            Some(name) => name.to_owned(),
            None if object["kind"] == "Status" => object["code"].to_string(),
            None => object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        };
        frames.iter().map(|f| format!("{} {}", f.kind, describe(&f.object))).collect()
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn labelled(name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {key: value}}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn reason(answer: &(u16, Value)) -> (u16, &str) {
    assert_eq!(answer.1["kind"], "Status", "{}", answer.1);
    assert_eq!(answer.1["code"], answer.0);
    (answer.0, answer.1["reason"].as_str().unwrap())
}

fn replica_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
        "status": {"replicas": 9},
    })
}
