//! A namespace is deleted with its content and nothing else, with every fault.

use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_client::{Call, DeleteOptions};
use keleustes_controllers::namespace;
use keleustes_objects::{Key, Kind as _, Namespace};
use keleustes_plan::BoxFuture;
use serde_json::{Value, json};

use super::{Case, converges_with_every_fault};

fn given(server: &ApiServer) {
    for name in ["terminating", "active"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        server.seed(namespace).unwrap();
        for (api_version, kind) in [("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Pod"), ("batch/v1", "Job")]
        {
            for n in 0..3 {
                let metadata = json!({"namespace": name, "name": format!("n{n}")});
                server.seed(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})).unwrap();
            }
        }
    }
}

fn when(server: ApiServer) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let client = kube::Client::new(server, "default");
        let delete =
            Call::delete(&Namespace::RESOURCE, &Key::cluster("terminating"), &DeleteOptions::default());
        delete.send(&client).await.unwrap();
    })
}

fn then(server: &ApiServer) -> Result<(), String> {
    if server.object("namespaces", "", "terminating").is_some() {
        return Err("the namespace still exists".to_owned());
    }
    let count = |namespace: &str| {
        let objects = server.snapshot();
        let inside = |object: &&std::sync::Arc<Value>| object["metadata"]["namespace"] == namespace;
        objects.iter().filter(inside).count()
    };
    match (count("terminating"), count("active")) {
        (0, 12) => Ok(()),
        (left, active) => Err(format!("{left} objects left, {active} of 12 unchanged")),
    }
}

/// Proves NS-28, NS-44, NS-80, NS-85.
#[test]
fn namespace_is_deleted_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![namespace::controller(&namespace::NamespaceOptions::default())],
        given,
        when,
        then,
        within: Duration::from_secs(20),
        quiet_for: super::QUIET_FOR,
    });
}
