//! A deleted namespace is removed with its content; its conditions name what blocks it.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::custom_kind::CustomKind;
use crate::test_cluster::set_finalizers;

fn namespaces(cluster: &TestCluster) -> Api<Namespace> {
    Api::all(cluster.admin.clone())
}

/// A namespace with objects of several kinds.
async fn namespace_with_content(cluster: &TestCluster, prefix: &str) -> anyhow::Result<String> {
    let namespace = cluster.namespace_with_service_account(prefix).await?;
    let pods = cluster.api::<Pod>(&namespace);
    for n in 0..3 {
        let metadata = json!({"name": format!("n{n}")});
        cluster.create(&cluster.api::<ConfigMap>(&namespace), json!({"metadata": metadata})).await?;
        cluster.create(&cluster.api::<Secret>(&namespace), json!({"metadata": metadata})).await?;
        let spec = json!({"ports": [{"port": 80}]});
        cluster
            .create(&cluster.api::<Service>(&namespace), json!({"metadata": metadata, "spec": spec}))
            .await?;
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        cluster.create(&pods, json!({"metadata": metadata, "spec": spec})).await?;
    }
    Ok(namespace)
}

async fn delete(cluster: &TestCluster, namespace: &str) -> anyhow::Result<()> {
    namespaces(cluster).delete(namespace, &DeleteParams::default()).await?;
    Ok(())
}

async fn wait_until_deleted(cluster: &TestCluster, namespace: &str) -> anyhow::Result<()> {
    let namespaces = namespaces(cluster);
    let what = format!("the deletion of {namespace}");
    cluster.eventually(&what, async || Ok(namespaces.get_opt(namespace).await?.is_none().then_some(()))).await
}

/// The conditions of a namespace: type, status, reason, message.
async fn conditions(cluster: &TestCluster, namespace: &str) -> anyhow::Result<Vec<[String; 4]>> {
    let namespace = namespaces(cluster).get(namespace).await?;
    let conditions = namespace.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions
        .into_iter()
        .map(|one| [one.type_, one.status, one.reason.unwrap_or_default(), one.message.unwrap_or_default()])
        .collect())
}

/// The conditions of a terminating namespace that nothing blocks.
const DEFAULT_CONDITIONS: [[&str; 4]; 5] = [
    [
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ],
    [
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ],
    [
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ],
    ["NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"],
    [
        "NamespaceFinalizersRemaining",
        "False",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ],
];

/// Waits until the conditions are the default ones except for these.
async fn conditions_become(
    cluster: &TestCluster,
    namespace: &str,
    except: &[[&str; 4]],
) -> anyhow::Result<()> {
    let mut wanted = DEFAULT_CONDITIONS;
    for other in except {
        let place = wanted.iter_mut().find(|one| one[0] == other[0]).context("a known condition")?;
        *place = *other;
    }
    cluster
        .eventually(&format!("conditions of {namespace} to be {wanted:?}"), async || {
            let there = conditions(cluster, namespace).await?;
            Ok((there == wanted).then_some(()))
        })
        .await?;
    cluster.checkpoint("the namespace is blocked").await;
    Ok(())
}

/// Proves NS-1, NS-15, NS-16, NS-19, NS-29, NS-43.
pub(crate) async fn namespace_is_deleted_with_its_content(cluster: &TestCluster) -> anyhow::Result<()> {
    let (deleted, kept) =
        (namespace_with_content(cluster, "deleted").await?, namespace_with_content(cluster, "kept").await?);
    delete(cluster, &deleted).await?;
    let phase = namespaces(cluster).get(&deleted).await?.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Terminating"), "{phase:?}");
    wait_until_deleted(cluster, &deleted).await?;
    // A new namespace of that name is empty.
    let again = json!({"metadata": {"name": deleted}});
    namespaces(cluster).create(&PostParams::default(), &serde_json::from_value(again)?).await?;
    let all = ListParams::default();
    ensure!(cluster.api::<Pod>(&deleted).list(&all).await?.items.is_empty());
    ensure!(cluster.api::<Secret>(&deleted).list(&all).await?.items.is_empty());
    ensure!(cluster.api::<Service>(&deleted).list(&all).await?.items.is_empty());
    ensure!(cluster.api::<ConfigMap>(&deleted).get_opt("n0").await?.is_none());
    // The other namespace is untouched.
    ensure!(cluster.api::<Pod>(&kept).list(&all).await?.items.len() == 3);
    ensure!(cluster.api::<Service>(&kept).list(&all).await?.items.len() == 3);
    delete(cluster, &deleted).await?;
    delete(cluster, &kept).await?;
    wait_until_deleted(cluster, &kept).await
}

/// Proves NS-23, NS-50, NS-51, NS-53, NS-54, NS-58, NS-61.
pub(crate) async fn finalizers_block_a_namespace_and_are_in_its_conditions(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("held").await?;
    let (maps, secrets) = (cluster.api::<ConfigMap>(&namespace), cluster.api::<Secret>(&namespace));
    let held = |name: &str, by: &[&str]| json!({"metadata": {"name": name, "finalizers": by}});
    cluster.create(&maps, held("one", &["example.com/a", "example.com/b"])).await?;
    cluster.create(&secrets, held("two", &["example.com/a"])).await?;
    cluster.create(&secrets, json!({"metadata": {"name": "free"}})).await?;
    delete(cluster, &namespace).await?;
    let remaining = "Some resources are remaining: configmaps. has 1 resource instances, \
        secrets. has 1 resource instances";
    let finalizers = "Some content in the namespace has finalizers remaining: \
        example.com/a in 2 resource instances, example.com/b in 1 resource instances";
    let both = [
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers],
    ];
    conditions_become(cluster, &namespace, &both).await?;
    ensure!(secrets.get_opt("free").await?.is_none(), "objects without finalizers are deleted");
    set_finalizers(&maps, "one", &[]).await?;
    let remaining = "Some resources are remaining: secrets. has 1 resource instances";
    let finalizers =
        "Some content in the namespace has finalizers remaining: example.com/a in 1 resource instances";
    let one = [
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers],
    ];
    conditions_become(cluster, &namespace, &one).await?;
    set_finalizers(&secrets, "two", &[]).await?;
    wait_until_deleted(cluster, &namespace).await
}

/// Proves NS-15, NS-70, NS-73.
pub(crate) async fn namespace_deletes_pods_first(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = namespace_with_content(cluster, "pods").await?;
    let pods = cluster.api::<Pod>(&namespace);
    set_finalizers(&pods, "n1", &["example.com/hold"]).await?;
    delete(cluster, &namespace).await?;
    let only_one = async || {
        let left = pods.list(&ListParams::default()).await?.items;
        Ok((left.len() == 1 && left[0].metadata.deletion_timestamp.is_some()).then_some(()))
    };
    cluster.eventually("the other pods to be deleted", only_one).await?;
    conditions_become(cluster, &namespace, &[]).await?;
    ensure!(
        cluster.api::<Secret>(&namespace).get_opt("n0").await?.is_some(),
        "other objects are kept until the pods are deleted"
    );
    set_finalizers(&pods, "n1", &[]).await?;
    wait_until_deleted(cluster, &namespace).await
}

/// Proves NS-14, NS-76, NS-77.
pub(crate) async fn custom_objects_are_deleted_with_their_namespace(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("custom").await?;
    let custom = CustomKind::define(cluster, &namespace, &["v1", "v1beta1"]).await?;
    custom.create(json!({"name": "held", "finalizers": ["example.com/hold"]})).await?;
    custom.create(json!({"name": "free"})).await?;
    delete(cluster, &namespace).await?;
    let remaining = format!("Some resources are remaining: wishes.{} has 1 resource instances", custom.group);
    let finalizers =
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    let both = [
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining.as_str()],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers],
    ];
    conditions_become(cluster, &namespace, &both).await?;
    set_finalizers(&custom.api, "held", &[]).await?;
    wait_until_deleted(cluster, &namespace).await?;
    custom.remove().await
}

/// Proves NS-29, NS-78.
pub(crate) async fn foreign_namespace_finalizer_is_respected(cluster: &TestCluster) -> anyhow::Result<()> {
    let name = cluster.namespace("shared").await?;
    let namespaces = namespaces(cluster);
    let finalize = async |finalizers: &[&str]| -> anyhow::Result<()> {
        let mut namespace: Value = serde_json::to_value(namespaces.get(&name).await?)?;
        namespace["spec"]["finalizers"] = json!(finalizers);
        let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&namespace)?)?;
        cluster.admin.request::<Value>(request).await?;
        Ok(())
    };
    finalize(&["example.com/hold", "kubernetes"]).await?;
    delete(cluster, &name).await?;
    let held = async || {
        let finalizers = namespaces.get(&name).await?.spec.and_then(|spec| spec.finalizers);
        Ok((finalizers.as_deref() == Some(&["example.com/hold".to_owned()])).then_some(()))
    };
    cluster.eventually("the kubernetes finalizer to be removed", held).await?;
    conditions_become(cluster, &name, &[]).await?;
    finalize(&[]).await?;
    wait_until_deleted(cluster, &name).await
}

/// Proves NS-26, NS-30, NS-52, NS-81.
pub(crate) async fn unavailable_api_service_blocks_a_namespace(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = namespace_with_content(cluster, "away").await?;
    let group = format!("{namespace}.example.com");
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let services = cluster.dynamic(&ApiResource::from_gvk(&kind));
    let service = format!("v1.{group}");
    let spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "absent"}});
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": service}, "spec": spec});
    services.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    delete(cluster, &namespace).await?;
    let message = format!(
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
         {group}/v1: stale GroupVersion discovery: {group}/v1"
    );
    let away = ["NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", message.as_str()];
    conditions_become(cluster, &namespace, &[away]).await?;
    ensure!(
        cluster.api::<Secret>(&namespace).get_opt("n0").await?.is_none(),
        "objects of available APIs are deleted"
    );
    services.delete(&service, &DeleteParams::default()).await?;
    wait_until_deleted(cluster, &namespace).await
}
