//! One ClusterTrustBundle holds the CA of the API server's serving certificate.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
const PREFIX: &str = "kubernetes.io:kube-apiserver-serving:";

/// A CA certificate with this name.
fn ca(name: &str) -> anyhow::Result<String> {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    Ok(parameters.self_signed(&rcgen::KeyPair::generate()?)?.pem())
}

/// Whether a bundle's name ends in 24 hexadecimal digits.
fn is_named_by_hash(bundle: &ClusterTrustBundle) -> bool {
    let name = bundle.name_any();
    let hash = name.strip_prefix(PREFIX).unwrap_or_default();
    hash.len() == 24 && hash.chars().all(|digit| matches!(digit, '0'..='9' | 'a'..='f'))
}

/// The only bundle of the signer, once there is one and it fulfils a condition.
async fn published(
    cluster: &TestCluster,
    what: &str,
    is_wanted: impl Fn(&ClusterTrustBundle) -> bool,
) -> anyhow::Result<ClusterTrustBundle> {
    let bundles: Api<ClusterTrustBundle> = Api::all(cluster.admin.clone());
    let of_signer = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    let only = async || {
        let mut found = bundles.list(&of_signer).await?.items;
        let only = if found.len() == 1 { found.pop() } else { None };
        Ok(only.filter(|bundle| is_named_by_hash(bundle) && is_wanted(bundle)))
    };
    cluster.eventually(what, only).await
}

/// Proves CTB-10, CTB-11, CTB-12, CTB-13, CTB-15, CTB-20, CTB-40, CTB-42, CTB-59.
pub(crate) async fn cluster_trust_bundle_of_the_api_server_is_kept(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let bundles: Api<ClusterTrustBundle> = Api::all(cluster.admin.clone());
    let run = cluster.namespace("ctb").await?;
    let first = published(cluster, "the bundle of the API server's CA", |_| true).await?;
    let (name, text) = (first.name_any(), first.spec.trust_bundle.clone());
    ensure!(text.contains("-----BEGIN CERTIFICATE-----"), "{text}");
    ensure!(first.spec.signer_name.as_deref() == Some(SIGNER), "{first:?}");
    // It is recreated after a delete.
    bundles.delete(&name, &DeleteParams::default()).await?;
    let is_new = |bundle: &ClusterTrustBundle| bundle.metadata.uid != first.metadata.uid;
    let second = published(cluster, "the recreated bundle", is_new).await?;
    ensure!(second.name_any() == name && second.spec == first.spec, "{second:?}");
    // It is repaired after a change, and labels are kept.
    let change = json!({"metadata": {"labels": {"keep": "me"}}, "spec": {"trustBundle": ca("other")?}});
    bundles.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?;
    let is_repaired = |bundle: &ClusterTrustBundle| {
        bundle.spec.trust_bundle == text && bundle.labels().contains_key("keep")
    };
    let third = published(cluster, "the repaired bundle", is_repaired).await?;
    ensure!(third.metadata.uid == second.metadata.uid && third.labels()["keep"] == "me", "{third:?}");
    // Another bundle of the signer is deleted; those without signer and of other signers are not.
    let bundle = |name: &str, signer: Option<&str>| -> anyhow::Result<Value> {
        Ok(json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": ca(name)?}}))
    };
    let unsigned = format!("{run}-unsigned");
    let foreign = format!("example.com:{run}:foreign");
    cluster.create(&bundles, bundle(&unsigned, None)?).await?;
    cluster.create(&bundles, bundle(&foreign, Some(&format!("example.com/{run}")))?).await?;
    cluster.create(&bundles, bundle(&format!("{PREFIX}{run}"), Some(SIGNER))?).await?;
    let last = published(cluster, "the deletion of the other bundle", |_| true).await?;
    ensure!(last.metadata.resource_version == third.metadata.resource_version, "{last:?}");
    // Labels do not matter.
    let labels = json!({"metadata": {"labels": {"keep": "me", "more": "too"}}});
    let labelled = bundles.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await?;
    cluster.settle().await;
    let found = bundles.get(&name).await?;
    ensure!(found.metadata.resource_version == labelled.metadata.resource_version, "{found:?}");
    for kept in [&unsigned, &foreign] {
        bundles.get_opt(kept).await?.with_context(|| format!("{kept} was deleted"))?;
        bundles.delete(kept, &DeleteParams::default()).await?;
    }
    Ok(())
}
