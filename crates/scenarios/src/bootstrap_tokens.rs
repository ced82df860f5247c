//! Bootstrap tokens sign cluster-info, and are deleted when they expire.

use std::collections::BTreeMap;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;

/// A token Secret that signs.
fn token(id: &str, r#type: &str, expiration: &str) -> Value {
    json!({
        "metadata": {"name": format!("bootstrap-token-{id}")}, "type": r#type,
        "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "expiration": expiration,
                       "usage-bootstrap-signing": "true"},
    })
}

async fn signatures(maps: &Api<ConfigMap>) -> anyhow::Result<BTreeMap<String, String>> {
    let data = maps.get("cluster-info").await?.data.unwrap_or_default();
    Ok(data.into_iter().filter(|(key, _)| key.starts_with("jws-kubeconfig-")).collect())
}

/// Waits until exactly these tokens sign, and returns the signatures.
async fn signed_by(
    cluster: &TestCluster,
    maps: &Api<ConfigMap>,
    ids: &[&str],
) -> anyhow::Result<BTreeMap<String, String>> {
    let wanted: Vec<String> = ids.iter().map(|id| format!("jws-kubeconfig-{id}")).collect();
    let found = async || Ok(Some(signatures(maps).await?).filter(|found| found.keys().eq(&wanted)));
    cluster.eventually(&format!("signatures by {ids:?}"), found).await
}

/// Proves TOK-13, BSS-24, BSS-45, BSS-46.
pub(crate) async fn bootstrap_token_signs_cluster_info_until_it_expires(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    const TYPE: &str = "bootstrap.kubernetes.io/token";
    let (maps, secrets) = (cluster.api::<ConfigMap>("kube-public"), cluster.api::<Secret>("kube-system"));
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "apiVersion: v1\nkind: Config\n"}});
    // A scenario that failed has left its objects behind.
    cluster.delete_if_exists(&maps, "cluster-info").await?;
    for id in ["07401b", "opaque", "expire"] {
        cluster.delete_if_exists(&secrets, &format!("bootstrap-token-{id}")).await?;
    }
    cluster.compare_namespace("kube-public");
    cluster.create(&maps, info).await?;
    let mut vector = token("07401b", TYPE, "");
    vector["stringData"]["token-secret"] = json!("f395accd246ae52d");
    cluster.create(&secrets, vector).await?;
    cluster.create(&secrets, token("opaque", "Opaque", "2001-01-01T00:00:00Z")).await?;
    let signatures = signed_by(cluster, &maps, &["07401b"]).await?;
    let wanted = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjA3NDAxYiJ9..V7vfbveur77TnlLQz-hsORPxM3IuWz8GI4hOaPAzkdk";
    ensure!(signatures["jws-kubeconfig-07401b"] == wanted, "another signature: {signatures:?}");
    cluster.checkpoint("a token signs").await;

    // The clock of the cluster is in no response, but every new object has it.
    let namespace = cluster.namespace("clock").await?;
    let created = Api::<Namespace>::all(cluster.admin.clone()).get(&namespace).await?;
    let now = created.metadata.creation_timestamp.map(|time| time.0).unwrap_or_default();
    let expiration = now + std::time::Duration::from_secs(20);
    cluster.create(&secrets, token("expire", TYPE, &expiration.to_string())).await?;
    signed_by(cluster, &maps, &["07401b", "expire"]).await?;
    let edited = Patch::Merge(json!({"data": {"kubeconfig": "apiVersion: v1\n"}}));
    maps.patch("cluster-info", &PatchParams::default(), &edited).await?;
    let edited = async || {
        Ok(Some(self::signatures(&maps).await?).filter(|found| found["jws-kubeconfig-07401b"] != wanted))
    };
    cluster.eventually("new signatures", edited).await?;
    let expired = async || Ok(secrets.get_opt("bootstrap-token-expire").await?.is_none().then_some(()));
    cluster.eventually("the deletion of the expired token", expired).await?;
    signed_by(cluster, &maps, &["07401b"]).await?;
    cluster.checkpoint("a token has expired").await;
    for name in ["bootstrap-token-07401b", "bootstrap-token-opaque"] {
        ensure!(secrets.get_opt(name).await?.is_some(), "{name} is not touched");
    }
    secrets.delete("bootstrap-token-07401b", &DeleteParams::default()).await?;
    signed_by(cluster, &maps, &[]).await?;
    ensure!(
        maps.get("cluster-info").await?.data.unwrap_or_default().contains_key("kubeconfig"),
        "kubeconfig stays"
    );
    secrets.delete("bootstrap-token-opaque", &DeleteParams::default()).await?;
    maps.delete("cluster-info", &DeleteParams::default()).await?;
    Ok(())
}
