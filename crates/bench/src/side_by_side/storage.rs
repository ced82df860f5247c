//! The loads of the storage controllers: claims that a CSI driver provisions, and volumes that nodes attach.

use std::collections::BTreeMap;

use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};

use super::bench_cluster::{BenchCluster, Created};
use super::loads::{keys, namespace_names, nodes_are_ready, times_until, wait_until_gone};
use super::objects::{PODS, create_all, create_namespaces, delete_all, list};

const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
const VOLUMES: Resource = Resource::cluster("", "v1", "persistentvolumes", "PersistentVolume");
const CLASSES: Resource = Resource::cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass");
const ATTACHMENTS: Resource =
    Resource::cluster("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment");

const DRIVER: &str = "csi.bench.example.com";
const CLASS: &str = "fast";

/// 5,000 claims that a CSI driver provisions, and their deletion.
pub(super) async fn claims(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let keys = prepare(cluster, 5000).await?;
    cluster.phase("bind", async |client| bind(client, &keys).await).await?;
    cluster
        .phase("delete", async |client| {
            delete_all(client, &CLAIMS, keys.iter().cloned()).await?;
            wait_until_gone(client, &VOLUMES).await?;
            Ok(Vec::new())
        })
        .await
}

/// 5,000 pods with a volume each on 500 nodes, and their deletion.
pub(super) async fn attachments(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let nodes = cluster.share(500);
    cluster.start_nodes_with_volumes(nodes, 250).await?;
    nodes_are_ready(&cluster.client, nodes).await?;
    let keys = prepare(cluster, 5000).await?;
    bind(&cluster.client, &keys).await?;
    let before = cluster.audit_mark()?;
    cluster
        .phase("attach", async |client| {
            let pods = keys.iter().enumerate().map(|(n, key)| pod(key, n % nodes));
            create_all(client, &PODS, pods).await?;
            times_until(client, &ATTACHMENTS, keys.len(), |one| one["status"]["attached"] == true).await
        })
        .await?;
    let pairs = pods_and_attachments(&cluster.client).await?;
    anyhow::ensure!(pairs.len() == keys.len(), "{} VolumeAttachments", pairs.len());
    cluster.record_reactions("attach", before, &pairs)?;
    cluster
        .phase("detach", async |client| {
            delete_all(client, &PODS, keys.iter().cloned()).await?;
            wait_until_gone(client, &ATTACHMENTS).await?;
            Ok(Vec::new())
        })
        .await
}

/// Starts the driver and creates its class and namespaces. Returns the keys of this share of claims.
async fn prepare(cluster: &mut BenchCluster, full: usize) -> anyhow::Result<Vec<Key>> {
    cluster.start_storage_driver(DRIVER)?;
    let namespaces = namespace_names(20);
    create_namespaces(&cluster.client, &namespaces).await?;
    let class = json!({"metadata": {"name": CLASS}, "provisioner": DRIVER});
    create_all(&cluster.client, &CLASSES, [(String::new(), class)]).await?;
    Ok(keys(&namespaces, cluster.share(full)))
}

async fn bind(client: &Client, keys: &[Key]) -> anyhow::Result<Vec<f64>> {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim =
        |key: &Key| (key.namespace.to_string(), json!({"metadata": {"name": key.name}, "spec": spec}));
    create_all(client, &CLAIMS, keys.iter().map(claim)).await?;
    times_until(client, &CLAIMS, keys.len(), |claim| claim["status"]["phase"] == "Bound").await
}

/// Each pod, which is on a node and has a bound claim from its creation on, and the VolumeAttachment that it needs.
async fn pods_and_attachments(client: &Client) -> anyhow::Result<Vec<(Created, Created)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // A pod has the name of its claim.
    let claims = list(client, &CLAIMS, "").await?;
    let pods: BTreeMap<String, Key> = claims
        .iter()
        .map(|claim| {
            let metadata = &claim["metadata"];
            let key = Key::namespaced(&*text(&metadata["namespace"]), &*text(&metadata["name"]));
            (text(&claim["spec"]["volumeName"]), key)
        })
        .collect();
    let attachments = list(client, &ATTACHMENTS, "").await?;
    let pairs = attachments.iter().filter_map(|attachment| {
        let pod = pods.get(&text(&attachment["spec"]["source"]["persistentVolumeName"]))?;
        let attachment = Key::cluster(&*text(&attachment["metadata"]["name"]));
        Some((Created::new(&PODS, pod), Created::new(&ATTACHMENTS, &attachment)))
    });
    Ok(pairs.collect())
}

/// A pod on a node that uses the claim of its name.
fn pod(key: &Key, node: usize) -> (String, Value) {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": key.name}}]);
    let spec = json!({"nodeName": format!("hollow-{node}"), "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "app", "image": "images.example.com/app:1"}], "volumes": volumes});
    (key.namespace.to_string(), json!({"metadata": {"name": key.name}, "spec": spec}))
}
