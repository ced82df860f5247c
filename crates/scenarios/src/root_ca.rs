//! Every namespace has the CA of the API server.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::World;

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// Whether a map holds the CA and nothing else, and says what it is for.
fn is_right(map: &ConfigMap) -> bool {
    let data = map.data.clone().unwrap_or_default();
    let described = map.metadata.annotations.as_ref().and_then(|all| all.get(DESCRIPTION));
    let begins = |ca: &String| ca.starts_with("-----BEGIN CERTIFICATE-----");
    data.len() == 1
        && data.get("ca.crt").is_some_and(begins)
        && described.is_some_and(|text| !text.is_empty())
}

/// Proves RCA-10, RCA-12, RCA-13, RCA-14, RCA-20, RCA-40, RCA-41.
pub(crate) async fn every_namespace_has_the_ca_and_gets_it_back(world: &World) -> anyhow::Result<()> {
    let right = async |namespace: &str| {
        let maps = world.api::<ConfigMap>(namespace);
        let ask = async || Ok(maps.get_opt(NAME).await?.filter(is_right));
        world.eventually(&format!("the CA of {namespace}"), ask).await
    };
    for system in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        right(system).await?;
    }
    let namespace = world.namespace("ca").await?;
    let maps = world.api::<ConfigMap>(&namespace);
    let first = right(&namespace).await?;
    ensure!(
        first
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(DESCRIPTION))
            .is_some_and(|text| text == DESCRIBED)
    );
    // Deleted, it comes back.
    maps.delete(NAME, &DeleteParams::default()).await?;
    let again = async || Ok(maps.get_opt(NAME).await?.filter(|map| map.metadata.uid != first.metadata.uid));
    let second = world.eventually("its return", again).await?;
    ensure!(second.data == first.data);
    // Changed, it is put right, and keeps what is not the publisher's.
    let change = json!({"metadata": {"labels": {"keep": "me"}, "annotations": {DESCRIPTION: null, "keep": "me"}},
        "data": {"ca.crt": "another", "more": "text"}});
    maps.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await?;
    let third = right(&namespace).await?;
    ensure!(third.data == first.data && third.metadata.uid == second.metadata.uid);
    let kept = |all: &Option<std::collections::BTreeMap<String, String>>| {
        all.as_ref().and_then(|all| all.get("keep")).is_some_and(|text| text == "me")
    };
    ensure!(kept(&third.metadata.labels) && kept(&third.metadata.annotations));
    world.stand_still("it is put right").await;
    // Described in other words, it is left alone; and so are other maps.
    let words = json!({"metadata": {"annotations": {DESCRIPTION: "in other words"}}});
    let patched = maps.patch(NAME, &PatchParams::default(), &Patch::Merge(words)).await?;
    world.create(&maps, json!({"metadata": {"name": "another"}, "data": {"ca.crt": "mine"}})).await?;
    world.settle().await;
    ensure!(maps.get(NAME).await?.metadata.resource_version == patched.metadata.resource_version);
    ensure!(maps.get("another").await?.data.is_some_and(|data| data["ca.crt"] == "mine"));
    // In a namespace that goes it does not come back, and does not keep it from going.
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    world.delete_if_there(&maps, NAME).await?;
    let gone = async || Ok(namespaces.get_opt(&namespace).await?.is_none().then_some(()));
    world.eventually("the end of the namespace", gone).await
}
