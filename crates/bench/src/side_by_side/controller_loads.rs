//! Loads of single controllers: certificates, endpoints, quotas, ranges of nodes.

use std::time::Duration;

use keleustes_objects::{Key, Resource};
use kube::Client;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use super::bench_cluster::BenchCluster;
use super::loads::{
    PODS_A_NODE, create_deployments, namespace_names, template_patch, times_until, wait_for_rollouts,
    wait_until_empty,
};
use super::objects::{DEPLOYMENTS, NODES, PODS, create_all, create_namespaces, delete_all, list, patch_all};

const REQUESTS: Resource =
    Resource::cluster("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest");
const QUOTAS: Resource = Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota");

/// Ten thousand requests that wait for another signer, then a thousand kubelets' that are approved and signed.
pub(super) async fn certificates(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let (waiting, signed) = (cluster.share(10_000), cluster.share(1000));
    let key = KeyPair::generate()?;
    cluster
        .phase("hold", async |client| {
            create_requests(client, &key, "held", "example.com/other", waiting).await?;
            Ok(Vec::new())
        })
        .await?;
    cluster
        .phase("sign", async |client| {
            create_requests(client, &key, "node", "kubernetes.io/kube-apiserver-client-kubelet", signed)
                .await?;
            times_until(client, &REQUESTS, signed, |request| !request["status"]["certificate"].is_null())
                .await
        })
        .await
}

async fn create_requests(
    client: &Client,
    key: &KeyPair,
    prefix: &str,
    signer: &str,
    count: usize,
) -> anyhow::Result<()> {
    let request = |n: usize| -> anyhow::Result<(String, Value)> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{prefix}-{n}"));
        let pem = params.serialize_request(key)?.pem()?.into_bytes();
        let spec = json!({"signerName": signer, "usages": ["digital signature", "client auth"],
                          "request": k8s_openapi::ByteString(pem)});
        Ok((String::new(), json!({"metadata": {"name": format!("{prefix}-{n:05}")}, "spec": spec})))
    };
    let requests = (0..count).map(request).collect::<anyhow::Result<Vec<_>>>()?;
    create_all(client, &REQUESTS, requests).await
}

/// A thousand Services with twenty pods each, which are all rolled.
pub(super) async fn endpoints(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    const REPLICAS: usize = 20;
    let namespaces = namespace_names(20);
    let keys = super::loads::keys(&namespaces, cluster.share(1000));
    cluster.start_nodes(keys.len() * REPLICAS * 5 / 4 / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster.phase("create", async |client| create_deployments(client, &keys, REPLICAS).await).await?;
    cluster
        .phase("roll", async |client| {
            patch_all(client, &DEPLOYMENTS, &keys, &template_patch(1)).await?;
            wait_for_rollouts(client, &keys).await
        })
        .await
}

/// Two hundred namespaces with a quota each, in which a hundred pods are created and deleted.
pub(super) async fn quotas(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    const REPLICAS: usize = 100;
    let namespaces: Vec<String> = (0..cluster.share(200)).map(|n| format!("quota-{n:03}")).collect();
    let keys: Vec<Key> = namespaces.iter().map(|namespace| Key::namespaced(&**namespace, "app")).collect();
    cluster.start_nodes(keys.len() * REPLICAS * 5 / 4 / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    let hard = json!({"pods": "1000", "requests.cpu": "1000", "count/configmaps": "1000"});
    let quota = |name: &String| (name.clone(), json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
    create_all(&cluster.client, &QUOTAS, namespaces.iter().map(quota)).await?;
    cluster
        .phase("create", async |client| {
            let times = create_deployments(client, &keys, REPLICAS).await?;
            pods_are_counted(client, REPLICAS).await?;
            Ok(times)
        })
        .await?;
    cluster
        .phase("delete", async |client| {
            delete_all(client, &DEPLOYMENTS, keys.iter().cloned()).await?;
            let times = wait_until_empty(client, &PODS, &namespaces).await?;
            pods_are_counted(client, 0).await?;
            Ok(times)
        })
        .await
}

/// Waits until every quota has counted this many pods.
async fn pods_are_counted(client: &Client, count: usize) -> anyhow::Result<()> {
    let wanted = json!(count.to_string());
    BenchCluster::until("the usage of all quotas", async || {
        let quotas = list(client, &QUOTAS, "").await?;
        Ok(quotas.iter().all(|quota| quota["status"]["used"]["pods"] == wanted))
    })
    .await
}

/// Five thousand nodes that join, each of which gets a range of pod addresses.
pub(super) async fn ranges(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let count = cluster.share(5000);
    cluster.start_nodes(count, PODS_A_NODE as u32).await?;
    cluster
        .phase("join", async |client| {
            BenchCluster::until("ranges of all nodes", async || {
                let nodes = list(client, &NODES, "").await?;
                Ok(nodes.len() == count && nodes.iter().all(has_joined))
            })
            .await?;
            Ok(Vec::new())
        })
        .await?;
    cluster
        .phase("half a minute", async |_| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Ok(Vec::new())
        })
        .await
}

/// Whether everything has been written for a new node: otherwise the faster manager would seem to write more.
fn has_joined(node: &Value) -> bool {
    let annotations = &node["metadata"]["annotations"];
    node["spec"]["podCIDR"].is_string()
        && annotations["node.alpha.kubernetes.io/ttl"].is_string()
        && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}
