//! Namespaces that are deleted go, with all that is in them; what holds them can be read.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};

use crate::World;
use crate::wishes::Wishes;
use crate::world::hold;

fn namespaces(world: &World) -> Api<Namespace> {
    Api::all(world.admin.clone())
}

/// A namespace with a bit of everything in it.
async fn furnished(world: &World, prefix: &str) -> anyhow::Result<String> {
    let namespace = world.inhabited_namespace(prefix).await?;
    let pods = world.api::<Pod>(&namespace);
    for n in 0..3 {
        let metadata = json!({"name": format!("n{n}")});
        world.create(&world.api::<ConfigMap>(&namespace), json!({"metadata": metadata})).await?;
        world.create(&world.api::<Secret>(&namespace), json!({"metadata": metadata})).await?;
        let spec = json!({"ports": [{"port": 80}]});
        world.create(&world.api::<Service>(&namespace), json!({"metadata": metadata, "spec": spec})).await?;
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        world.create(&pods, json!({"metadata": metadata, "spec": spec})).await?;
    }
    Ok(namespace)
}

async fn delete(world: &World, namespace: &str) -> anyhow::Result<()> {
    namespaces(world).delete(namespace, &DeleteParams::default()).await?;
    Ok(())
}

async fn gone(world: &World, namespace: &str) -> anyhow::Result<()> {
    let namespaces = namespaces(world);
    let what = format!("the end of {namespace}");
    world.eventually(&what, async || Ok(namespaces.get_opt(namespace).await?.is_none().then_some(()))).await
}

/// The conditions of a namespace: type, status, reason, message.
async fn conditions(world: &World, namespace: &str) -> anyhow::Result<Vec<[String; 4]>> {
    let namespace = namespaces(world).get(namespace).await?;
    let conditions = namespace.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions
        .into_iter()
        .map(|one| [one.type_, one.status, one.reason.unwrap_or_default(), one.message.unwrap_or_default()])
        .collect())
}

/// What is told of a namespace if nothing is wrong.
const ALL_IS_WELL: [[&str; 4]; 5] = [
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

/// Waits until all is told to be well, but for these.
async fn told(world: &World, namespace: &str, but: &[[&str; 4]]) -> anyhow::Result<()> {
    let mut wanted = ALL_IS_WELL;
    for other in but {
        let place = wanted.iter_mut().find(|one| one[0] == other[0]).context("a known condition")?;
        *place = *other;
    }
    world
        .eventually(&format!("conditions of {namespace} to be {wanted:?}"), async || {
            let there = conditions(world, namespace).await?;
            Ok((there == wanted).then_some(()))
        })
        .await?;
    world.stand_still("the namespace is held").await;
    Ok(())
}

/// Proves NS-1, NS-15, NS-16, NS-19, NS-29, NS-43.
pub(crate) async fn a_namespace_goes_with_all_that_is_in_it(world: &World) -> anyhow::Result<()> {
    let (going, staying) = (furnished(world, "going").await?, furnished(world, "staying").await?);
    delete(world, &going).await?;
    let phase = namespaces(world).get(&going).await?.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Terminating"), "{phase:?}");
    gone(world, &going).await?;
    // Made anew, it is empty: nothing was left behind.
    let again = json!({"metadata": {"name": going}});
    namespaces(world).create(&PostParams::default(), &serde_json::from_value(again)?).await?;
    let all = ListParams::default();
    ensure!(world.api::<Pod>(&going).list(&all).await?.items.is_empty());
    ensure!(world.api::<Secret>(&going).list(&all).await?.items.is_empty());
    ensure!(world.api::<Service>(&going).list(&all).await?.items.is_empty());
    ensure!(world.api::<ConfigMap>(&going).get_opt("n0").await?.is_none());
    // And its neighbour is untouched.
    ensure!(world.api::<Pod>(&staying).list(&all).await?.items.len() == 3);
    ensure!(world.api::<Service>(&staying).list(&all).await?.items.len() == 3);
    delete(world, &going).await?;
    delete(world, &staying).await?;
    gone(world, &staying).await
}

/// Proves NS-23, NS-50, NS-51, NS-53, NS-54, NS-58, NS-61.
pub(crate) async fn finalizers_hold_a_namespace_and_are_told(world: &World) -> anyhow::Result<()> {
    let namespace = world.namespace("held").await?;
    let (maps, secrets) = (world.api::<ConfigMap>(&namespace), world.api::<Secret>(&namespace));
    let held = |name: &str, by: &[&str]| json!({"metadata": {"name": name, "finalizers": by}});
    world.create(&maps, held("one", &["example.com/a", "example.com/b"])).await?;
    world.create(&secrets, held("two", &["example.com/a"])).await?;
    world.create(&secrets, json!({"metadata": {"name": "free"}})).await?;
    delete(world, &namespace).await?;
    let remaining = "Some resources are remaining: configmaps. has 1 resource instances, \
        secrets. has 1 resource instances";
    let finalizers = "Some content in the namespace has finalizers remaining: \
        example.com/a in 2 resource instances, example.com/b in 1 resource instances";
    let both = [
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers],
    ];
    told(world, &namespace, &both).await?;
    ensure!(secrets.get_opt("free").await?.is_none(), "what nothing holds is gone");
    hold(&maps, "one", &[]).await?;
    let remaining = "Some resources are remaining: secrets. has 1 resource instances";
    let finalizers =
        "Some content in the namespace has finalizers remaining: example.com/a in 1 resource instances";
    let one = [
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers],
    ];
    told(world, &namespace, &one).await?;
    hold(&secrets, "two", &[]).await?;
    gone(world, &namespace).await
}

/// Proves NS-15, NS-70, NS-73.
pub(crate) async fn pods_go_before_all_else(world: &World) -> anyhow::Result<()> {
    let namespace = furnished(world, "pods").await?;
    let pods = world.api::<Pod>(&namespace);
    hold(&pods, "n1", &["example.com/hold"]).await?;
    delete(world, &namespace).await?;
    let only_one = async || {
        let left = pods.list(&ListParams::default()).await?.items;
        Ok((left.len() == 1 && left[0].metadata.deletion_timestamp.is_some()).then_some(()))
    };
    world.eventually("the other pods to go", only_one).await?;
    told(world, &namespace, &[]).await?;
    ensure!(world.api::<Secret>(&namespace).get_opt("n0").await?.is_some(), "others wait for the pods");
    hold(&pods, "n1", &[]).await?;
    gone(world, &namespace).await
}

/// Proves NS-14, NS-76, NS-77.
pub(crate) async fn custom_objects_go_with_their_namespace(world: &World) -> anyhow::Result<()> {
    let namespace = world.namespace("custom").await?;
    let wishes = Wishes::define(world, &namespace, &["v1", "v1beta1"]).await?;
    wishes.make(json!({"name": "held", "finalizers": ["example.com/hold"]})).await?;
    wishes.make(json!({"name": "free"})).await?;
    delete(world, &namespace).await?;
    let remaining = format!("Some resources are remaining: wishes.{} has 1 resource instances", wishes.group);
    let finalizers =
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    let both = [
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining.as_str()],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers],
    ];
    told(world, &namespace, &both).await?;
    hold(&wishes.api, "held", &[]).await?;
    gone(world, &namespace).await?;
    wishes.forget().await
}

/// Proves NS-29, NS-78.
pub(crate) async fn another_s_hold_on_a_namespace_is_respected(world: &World) -> anyhow::Result<()> {
    let name = world.namespace("shared").await?;
    let namespaces = namespaces(world);
    let finalize = async |finalizers: &[&str]| -> anyhow::Result<()> {
        let mut namespace: Value = serde_json::to_value(namespaces.get(&name).await?)?;
        namespace["spec"]["finalizers"] = json!(finalizers);
        let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&namespace)?)?;
        world.admin.request::<Value>(request).await?;
        Ok(())
    };
    finalize(&["example.com/hold", "kubernetes"]).await?;
    delete(world, &name).await?;
    let held = async || {
        let finalizers = namespaces.get(&name).await?.spec.and_then(|spec| spec.finalizers);
        Ok((finalizers.as_deref() == Some(&["example.com/hold".to_owned()])).then_some(()))
    };
    world.eventually("our finalizer to go", held).await?;
    told(world, &name, &[]).await?;
    finalize(&[]).await?;
    gone(world, &name).await
}

/// Proves NS-26, NS-30, NS-52, NS-81.
pub(crate) async fn an_api_that_does_not_answer_holds_a_namespace(world: &World) -> anyhow::Result<()> {
    let namespace = furnished(world, "away").await?;
    let group = format!("{namespace}.example.com");
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let services = world.dynamic(&ApiResource::from_gvk(&kind));
    let service = format!("v1.{group}");
    let spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nobody"}});
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": service}, "spec": spec});
    services.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    delete(world, &namespace).await?;
    let message = format!(
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
         {group}/v1: stale GroupVersion discovery: {group}/v1"
    );
    let away = ["NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", message.as_str()];
    told(world, &namespace, &[away]).await?;
    ensure!(world.api::<Secret>(&namespace).get_opt("n0").await?.is_none(), "what is known is deleted");
    services.delete(&service, &DeleteParams::default()).await?;
    gone(world, &namespace).await
}
