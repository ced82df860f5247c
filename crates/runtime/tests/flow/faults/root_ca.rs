//! Every namespace gets the CA ConfigMap, gets it back after a deletion, and nothing else is changed, with
//! every fault.

use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_client::{Call, DeleteOptions};
use keleustes_controllers::root_ca_certificate_publisher::{RootCaCertificatePublisherOptions, controller};
use keleustes_objects::{Key, Kind as _, Namespace, RootCaConfigMap};
use keleustes_plan::BoxFuture;
use serde_json::{Value, json};

use super::{Case, converges_with_every_fault};

const PEM: &str = "-----BEGIN CERTIFICATE-----";
const NAME: &str = "kube-root-ca.crt";

fn map(namespace: &str, name: &str, ca: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
        "data": {"ca.crt": ca}})
}

fn given(server: &ApiServer) {
    for name in ["one", "two"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            "status": {"phase": "Active"}});
        server.seed(namespace).unwrap();
    }
    server.seed(map("one", NAME, "old")).unwrap();
    server.seed(map("one", "another", "old")).unwrap();
}

/// A user creates a namespace, deletes a map and changes one, as far as they exist yet.
fn when(server: ApiServer) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let client = kube::Client::new(server.clone(), "default");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "three"}});
        Call::create(&Namespace::RESOURCE, "", &namespace).send(&client).await.unwrap();
        let key = Key::namespaced("two", NAME);
        let _ = Call::delete(&RootCaConfigMap::RESOURCE, &key, &DeleteOptions::default()).send(&client).await;
        server.seed(map("one", NAME, "changed")).unwrap();
    })
}

fn then(server: &ApiServer) -> Result<(), String> {
    let namespaces = server.objects("namespaces");
    for namespace in namespaces.iter().filter_map(|one| one["metadata"]["name"].as_str()) {
        let map = server.object("configmaps", namespace, NAME).ok_or(format!("{namespace} has no CA"))?;
        if map["data"] != json!({"ca.crt": PEM}) {
            return Err(format!("{namespace} has {}", map["data"]));
        }
    }
    let another = server.object("configmaps", "one", "another").ok_or("the other map is deleted")?;
    let maps = server.objects("configmaps").len();
    if another["data"]["ca.crt"] != "old" || maps != namespaces.len() + 1 {
        return Err(format!("{maps} maps in {} namespaces", namespaces.len()));
    }
    Ok(())
}

/// Proves RCA-13, RCA-15, RCA-44, RCA-45.
#[test]
fn every_namespace_has_the_ca_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![controller(&RootCaCertificatePublisherOptions { ca: PEM.into() })],
        given,
        when,
        then,
        within: Duration::from_secs(10),
        quiet_for: super::QUIET_FOR,
    });
}
