//! The loads that both managers are measured under.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use keleustes_client::Call;
use keleustes_control_plane::Process;
use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};

use super::bench_cluster::BenchCluster;
use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, EVENTS, JOBS, NODES, PODS, SECRETS, SERVICES, create_all, create_namespaces,
    delete_all, deployment, job, list, patch_all, service,
};
use super::schedules::{self, AUTOSCALERS_LOAD};
use super::{bursts, controller_loads, device_loads, growth, storage};
use crate::requests::{NAMESPACES, define, items};

/// A load and its name.
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) play: fn(&mut BenchCluster) -> LocalBoxFuture<'_, anyhow::Result<()>>,
}

macro_rules! load {
    ($name:expr, $play:path) => {
        Load { name: $name, play: |cluster| $play(cluster).boxed_local() }
    };
}

pub(super) const LOADS: &[Load] = &[
    load!("idle", idle),
    load!("pods", pods),
    load!("bursts", bursts::bursts),
    load!("history", history),
    load!("nodes", nodes),
    load!("jobs", jobs),
    load!("bulk", bulk),
    load!("kinds", kinds),
    load!("certificates", controller_loads::certificates),
    load!("endpoints", controller_loads::endpoints),
    load!("quotas", controller_loads::quotas),
    load!("ranges", controller_loads::ranges),
    load!(AUTOSCALERS_LOAD, schedules::autoscalers),
    load!("cronjobs", schedules::cron_jobs),
    load!("claims", storage::claims),
    load!("attachments", storage::attachments),
    load!("resource-claims", device_loads::resource_claims),
    load!("tainted-devices", device_loads::tainted_devices),
    load!("migration", device_loads::migration),
    load!("policies", device_loads::policies),
    load!("growth-pods", growth::pods),
    load!("growth-nodes", growth::nodes),
    load!("growth-objects", growth::objects),
];

/// The pod capacity of a hollow node.
pub(super) const PODS_A_NODE: usize = 250;

/// No load. A new API server has background work for a while, which would count against the manager that is
/// ready sooner.
async fn idle(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    const SERVER_SETTLES_WITHIN: Duration = Duration::from_secs(60);
    cluster.record_program_size()?;
    tokio::time::sleep(SERVER_SETTLES_WITHIN).await;
    cluster
        .phase("half a minute", async |_| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Ok(Vec::new())
        })
        .await
}

/// Names of namespaces.
pub(super) fn namespace_names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("team-{n:02}")).collect()
}

/// Deployments spread over namespaces.
pub(super) fn keys(namespaces: &[String], count: usize) -> Vec<Key> {
    (0..count).map(|n| Key::namespaced(&*namespaces[n % namespaces.len()], &*format!("app-{n:04}"))).collect()
}

/// 200 Deployments of 100 replicas, each with a Service.
async fn pods(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    const REPLICAS: usize = 100;
    let count = cluster.share(200);
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, count);
    cluster.start_nodes(count * REPLICAS * 5 / 4 / PODS_A_NODE + 2, PODS_A_NODE as u32).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster.phase("create", async |client| create_deployments(client, &keys, REPLICAS).await).await?;
    cluster
        .phase("roll a tenth", async |client| {
            let tenth = &keys[..keys.len().div_ceil(10)];
            patch_all(client, &DEPLOYMENTS, tenth, &template_patch(1)).await?;
            wait_for_rollouts(client, tenth).await
        })
        .await?;
    cluster.cold_start("start cold", async |client| scale(client, &keys[0], REPLICAS + 1).await).await?;
    cluster
        .fail_over("SIGTERM", Process::terminate, async |client| scale(client, &keys[0], REPLICAS + 2).await)
        .await?;
    cluster
        .fail_over("kill -9", Process::kill9, async |client| scale(client, &keys[0], REPLICAS + 3).await)
        .await?;
    cluster
        .phase("delete half", async |client| {
            let half = &namespaces[..namespaces.len() / 2];
            let deleted = keys.iter().filter(|key| half.iter().any(|name| **name == *key.namespace));
            delete_all(client, &DEPLOYMENTS, deleted.cloned()).await?;
            wait_until_empty(client, &PODS, half).await
        })
        .await
}

/// Creates Deployments and their Services and waits until all pods are available.
pub(super) async fn create_deployments(
    client: &Client,
    keys: &[Key],
    replicas: usize,
) -> anyhow::Result<Vec<f64>> {
    let of = |make: &dyn Fn(&str) -> Value| -> Vec<(String, Value)> {
        keys.iter().map(|key| (key.namespace.to_string(), make(&key.name))).collect()
    };
    create_all(client, &SERVICES, of(&|name| service(name))).await?;
    create_all(client, &DEPLOYMENTS, of(&|name| deployment(name, replicas))).await?;
    wait_for_rollouts(client, keys).await
}

/// Waits until rollouts are complete, and returns the time of each in seconds.
pub(super) async fn wait_for_rollouts(client: &Client, keys: &[Key]) -> anyhow::Result<Vec<f64>> {
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let is_complete = |times: &BTreeMap<String, f64>| names.iter().all(|name| times.contains_key(name));
    let times = times_by_name(client, &DEPLOYMENTS, is_rolled_out, is_complete).await?;
    Ok(names.iter().filter_map(|name| times.get(name).copied()).collect())
}

/// Waits until this number of objects is done, and returns the time of each in seconds.
pub(super) async fn times_until(
    client: &Client,
    resource: &Resource,
    count: usize,
    is_done: impl Fn(&Value) -> bool,
) -> anyhow::Result<Vec<f64>> {
    let is_complete = |times: &BTreeMap<String, f64>| times.len() >= count;
    Ok(times_by_name(client, resource, is_done, is_complete).await?.into_values().collect())
}

/// Lists objects until enough were done, and returns when each was first seen to be: seconds by namespace and name.
async fn times_by_name(
    client: &Client,
    resource: &Resource,
    is_done: impl Fn(&Value) -> bool,
    is_complete: impl Fn(&BTreeMap<String, f64>) -> bool,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let (began, times) = (Instant::now(), RefCell::new(BTreeMap::new()));
    BenchCluster::until(&format!("{resource} that are done"), async || {
        let all = list(client, resource, "").await?;
        let mut times = times.borrow_mut();
        for done in all.iter().filter(|object| is_done(object)) {
            let metadata = &done["metadata"];
            let name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
            times.entry(name).or_insert_with(|| began.elapsed().as_secs_f64());
        }
        Ok(is_complete(&times))
    })
    .await?;
    Ok(times.into_inner())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_rolled_out(deployment: &Value) -> bool {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let count = |name: &str| status[name].as_u64().unwrap_or(0);
    let wanted = spec["replicas"].as_u64().unwrap_or(0);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|name| count(name) == wanted)
}

pub(super) fn template_patch(n: usize) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"checksum/config": format!("{n:064}")}}}}})
}

pub(super) async fn scale(client: &Client, key: &Key, replicas: usize) -> anyhow::Result<()> {
    let change = json!({"spec": {"replicas": replicas}});
    patch_all(client, &DEPLOYMENTS, std::slice::from_ref(key), &change).await
}

/// Waits until no namespace has an object of a kind.
pub(super) async fn wait_until_gone(client: &Client, resource: &Resource) -> anyhow::Result<()> {
    wait_until_empty(client, resource, &[String::new()]).await.map(drop)
}

/// Waits until namespaces have no object of a kind, and returns the time of each in seconds.
pub(super) async fn wait_until_empty(
    client: &Client,
    resource: &Resource,
    namespaces: &[String],
) -> anyhow::Result<Vec<f64>> {
    let (began, mut times) = (Instant::now(), Vec::new());
    for namespace in namespaces {
        BenchCluster::until("the deletion of all objects", async || {
            Ok(items(client, &Call::list(resource, namespace).query("limit", "1")).await?.is_empty())
        })
        .await?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// A thousand Deployments with ten old ReplicaSets each, and no pods.
async fn history(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, cluster.share(1000));
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster.phase("create", async |client| create_deployments(client, &keys, 0).await).await?;
    cluster
        .phase("change ten times", async |client| {
            for n in 1..=10 {
                patch_all(client, &DEPLOYMENTS, &keys, &template_patch(n)).await?;
                wait_for_rollouts(client, &keys).await?;
            }
            Ok(Vec::new())
        })
        .await?;
    cluster.cold_start("start cold", async |client| scale(client, &keys[0], 1).await).await
}

/// Five thousand nodes that send a heartbeat every ten seconds.
async fn nodes(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let count = cluster.share(5000);
    cluster.start_nodes(count, PODS_A_NODE as u32).await?;
    cluster
        .phase("join", async |client| {
            nodes_are_ready(client, count).await?;
            Ok(Vec::new())
        })
        .await?;
    cluster
        .phase("a minute of heartbeats", async |_| {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Vec::new())
        })
        .await
}

/// Waits until this number of nodes exists and none has taints.
pub(super) async fn nodes_are_ready(client: &Client, count: usize) -> anyhow::Result<()> {
    BenchCluster::until("nodes without taints", async || {
        let nodes = list(client, &NODES, "").await?;
        Ok(nodes.len() == count && nodes.iter().all(|node| node["spec"]["taints"].is_null()))
    })
    .await
}

/// Ten thousand Jobs of one pod that runs for a second.
async fn jobs(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let count = cluster.share(10_000);
    let namespaces = namespace_names(20);
    cluster.start_nodes(count / PODS_A_NODE + 2, 2 * PODS_A_NODE as u32).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster
        .phase("create", async |client| {
            let keys = keys(&namespaces, count);
            let all = keys.iter().map(|key| (key.namespace.to_string(), job(&key.name)));
            create_all(client, &JOBS, all).await?;
            BenchCluster::until("Jobs that are complete", async || {
                let mut done = 0;
                for namespace in &namespaces {
                    let jobs = list(client, &JOBS, namespace).await?;
                    done += jobs.iter().filter(|job| !job["status"]["completionTime"].is_null()).count();
                }
                Ok(done == count)
            })
            .await?;
            Ok(Vec::new())
        })
        .await
}

/// Fifty thousand Secrets, ConfigMaps and Events that no controller acts on.
async fn bulk(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let count = cluster.share(50_000);
    let namespaces = namespace_names(20);
    create_namespaces(&cluster.client, &namespaces).await?;
    cluster
        .phase("create", async |client| {
            let of = |make: fn(&str, &str) -> Value| {
                let keys = keys(&namespaces, count / 3);
                keys.into_iter().map(move |key| (key.namespace.to_string(), make(&key.namespace, &key.name)))
            };
            create_all(client, &SECRETS, of(|_, name| data(name, "stringData"))).await?;
            create_all(client, &CONFIG_MAPS, of(|_, name| data(name, "data"))).await?;
            create_all(client, &EVENTS, of(event)).await?;
            Ok(Vec::new())
        })
        .await?;
    cluster
        .cold_start("start cold", async |client| {
            create_all(client, &NAMESPACES, [(String::new(), json!({"metadata": {"name": "new"}}))]).await
        })
        .await
}

pub(super) fn data(name: &str, field: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm"});
    json!({"metadata": {"name": name, "labels": labels}, field: {"values": "x".repeat(1024)}})
}

fn event(namespace: &str, name: &str) -> Value {
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name});
    json!({"metadata": {"name": name}, "involvedObject": pod, "reason": "Pulled", "type": "Normal",
           "message": "the image was there already", "source": {"component": "kubelet"}})
}

/// Fifty custom kinds with 400 objects each, of which every tenth owns the nine that follow.
async fn kinds(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    const OBJECTS: usize = 400;
    let kinds: Vec<_> = (0..cluster.share(50)).map(custom).collect();
    let namespaces = namespace_names(1);
    create_namespaces(&cluster.client, &namespaces).await?;
    let namespace = &namespaces[0];
    cluster
        .phase("define and fill", async |client| {
            define(client, &kinds).await?;
            for kind in &kinds {
                create_objects(client, kind, namespace, OBJECTS).await?;
            }
            Ok(Vec::new())
        })
        .await?;
    cluster
        .phase("delete the owners", async |client| {
            for kind in &kinds {
                let owners = (0..OBJECTS).step_by(10).map(|n| custom_key(namespace, n));
                delete_all(client, kind, owners).await?;
            }
            for kind in &kinds {
                wait_until_empty(client, kind, &namespaces).await?;
            }
            Ok(Vec::new())
        })
        .await
}

fn custom(n: usize) -> Resource {
    let (plural, kind) = (format!("wishes{n:02}").into(), format!("Wish{n:02}").into());
    Resource { plural, kind, ..Resource::namespaced("example.com", "v1", "", "") }
}

fn custom_key(namespace: &str, n: usize) -> Key {
    Key::namespaced(namespace, &*format!("wish-{n:04}"))
}

/// Creates the owners first, then their dependents.
async fn create_objects(
    client: &Client,
    kind: &Resource,
    namespace: &str,
    objects: usize,
) -> anyhow::Result<()> {
    let named = |n: usize| json!({"metadata": {"name": custom_key(namespace, n).name}});
    let owners = (0..objects).step_by(10).map(|n| (namespace.to_owned(), named(n)));
    create_all(client, kind, owners).await?;
    // A list from etcd: the watch cache may not have the last owners yet.
    let uids: std::collections::BTreeMap<_, _> = items(client, &Call::list(kind, namespace))
        .await?
        .into_iter()
        .map(|owner| (owner["metadata"]["name"].clone().to_string(), owner["metadata"]["uid"].clone()))
        .collect();
    let dependents = (0..objects).filter(|n| n % 10 != 0).map(|n| {
        let owner = json!(custom_key(namespace, n - n % 10).name);
        let mut object = named(n);
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "name": owner, "uid": uids.get(&owner.to_string()),
        }]);
        (namespace.to_owned(), object)
    });
    create_all(client, kind, dependents).await
}
