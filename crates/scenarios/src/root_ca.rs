//! Every namespace has the `kube-root-ca.crt` ConfigMap with the CA of the API server.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::TestCluster;

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// Whether a ConfigMap holds only the CA and has a description.
fn has_ca_and_description(map: &ConfigMap) -> bool {
    let data = map.data.clone().unwrap_or_default();
    let described = map.metadata.annotations.as_ref().and_then(|all| all.get(DESCRIPTION));
    let begins = |ca: &String| ca.starts_with("-----BEGIN CERTIFICATE-----");
    data.len() == 1
        && data.get("ca.crt").is_some_and(begins)
        && described.is_some_and(|text| !text.is_empty())
}

/// Proves RCA-10, RCA-12, RCA-13, RCA-14, RCA-20, RCA-40, RCA-41.
pub(crate) async fn every_namespace_has_the_root_ca_config_map(cluster: &TestCluster) -> anyhow::Result<()> {
    let eventually_correct = async |namespace: &str| {
        let maps = cluster.api::<ConfigMap>(namespace);
        let ask = async || Ok(maps.get_opt(NAME).await?.filter(has_ca_and_description));
        cluster.eventually(&format!("the CA of {namespace}"), ask).await
    };
    for system in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        eventually_correct(system).await?;
    }
    let namespace = cluster.namespace("ca").await?;
    let maps = cluster.api::<ConfigMap>(&namespace);
    let first = eventually_correct(&namespace).await?;
    ensure!(
        first
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(DESCRIPTION))
            .is_some_and(|text| text == DESCRIBED)
    );
    // It is recreated after a delete.
    maps.delete(NAME, &DeleteParams::default()).await?;
    let recreated =
        async || Ok(maps.get_opt(NAME).await?.filter(|map| map.metadata.uid != first.metadata.uid));
    let second = cluster.eventually("the recreated ConfigMap", recreated).await?;
    ensure!(second.data == first.data);
    // It is repaired after a change, and foreign labels and annotations are kept.
    let change = json!({"metadata": {"labels": {"keep": "me"}, "annotations": {DESCRIPTION: null, "keep": "me"}},
        "data": {"ca.crt": "another", "more": "text"}});
    maps.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await?;
    let third = eventually_correct(&namespace).await?;
    ensure!(third.data == first.data && third.metadata.uid == second.metadata.uid);
    let kept = |all: &Option<std::collections::BTreeMap<String, String>>| {
        all.as_ref().and_then(|all| all.get("keep")).is_some_and(|text| text == "me")
    };
    ensure!(kept(&third.metadata.labels) && kept(&third.metadata.annotations));
    cluster.checkpoint("the ConfigMap is repaired").await;
    // Another description is accepted, and other ConfigMaps are not touched.
    let words = json!({"metadata": {"annotations": {DESCRIPTION: "in other words"}}});
    let patched = maps.patch(NAME, &PatchParams::default(), &Patch::Merge(words)).await?;
    cluster.create(&maps, json!({"metadata": {"name": "another"}, "data": {"ca.crt": "mine"}})).await?;
    cluster.settle().await;
    ensure!(maps.get(NAME).await?.metadata.resource_version == patched.metadata.resource_version);
    ensure!(maps.get("another").await?.data.is_some_and(|data| data["ca.crt"] == "mine"));
    // In a terminating namespace it is not recreated, and does not block the deletion.
    let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    cluster.delete_if_exists(&maps, NAME).await?;
    let deleted = async || Ok(namespaces.get_opt(&namespace).await?.is_none().then_some(()));
    cluster.eventually("the deletion of the namespace", deleted).await
}
