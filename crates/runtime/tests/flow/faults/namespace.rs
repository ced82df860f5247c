//! A namespace goes, with all that is in it and nothing else, whatever happens on the way.

use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_client::{Call, DeleteOptions};
use keleustes_controllers::namespace;
use keleustes_objects::{Key, Kind as _, Namespace};
use keleustes_plan::BoxFuture;
use serde_json::{Value, json};

use super::{Case, survive};

fn given(server: &ApiServer) {
    for name in ["going", "staying"] {
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
        let delete = Call::delete(&Namespace::RESOURCE, &Key::cluster("going"), &DeleteOptions::default());
        delete.send(&client).await.unwrap();
    })
}

fn then(server: &ApiServer) -> Result<(), String> {
    if server.object("namespaces", "", "going").is_some() {
        return Err("the namespace is still there".to_owned());
    }
    let count = |namespace: &str| {
        let objects = server.snapshot();
        let inside = |object: &&std::sync::Arc<Value>| object["metadata"]["namespace"] == namespace;
        objects.iter().filter(inside).count()
    };
    match (count("going"), count("staying")) {
        (0, 12) => Ok(()),
        (left, staying) => Err(format!("{left} objects left, {staying} of 12 untouched")),
    }
}

/// Proves NS-28, NS-44, NS-80, NS-85.
#[test]
fn a_namespace_goes_whatever_goes_wrong() {
    survive(&Case {
        controllers: || vec![namespace::controller(&namespace::NamespaceOptions::default())],
        given,
        when,
        then,
        within: Duration::from_secs(20),
        rest: super::REST,
    });
}
