//! The loads of devices and API machinery: claims, tainted devices, a migration, admission policies.

use keleustes_client::{Call, PatchType};
use keleustes_objects::{Key, Resource};
use kube::Client;
use serde_json::{Value, json};

use super::bench_cluster::BenchCluster;
use super::loads::{
    PODS_A_NODE, create_deployments, keys, namespace_names, nodes_are_ready, times_until, wait_until_gone,
};
use super::objects::{CONFIG_MAPS, PODS, create_all, create_namespaces, delete_all, list};
use crate::requests::send_all;

const GROUP: &str = "resource.k8s.io";
const CLAIMS: Resource = Resource::namespaced(GROUP, "v1", "resourceclaims", "ResourceClaim");
const TEMPLATES: Resource =
    Resource::namespaced(GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate");
const SLICES: Resource = Resource::cluster(GROUP, "v1", "resourceslices", "ResourceSlice");
const MIGRATIONS: Resource =
    Resource::cluster("storagemigration.k8s.io", "v1", "storageversionmigrations", "StorageVersionMigration");
const POLICIES: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
);

const DRIVER: &str = "gpu.bench.example.com";
/// The most devices that a ResourceSlice with taints may have.
const DEVICES_A_SLICE: usize = 64;
/// The pools that the devices are in: few, so that each has thousands of devices in many slices.
const POOLS: usize = 2;
/// Objects that are created between two waits, so that the requests of a large load fit into memory.
const AT_ONCE: usize = 10_000;

/// Five thousand pods with a claim of a template each, and their deletion.
pub(super) async fn resource_claims(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, cluster.share(5000));
    create_namespaces(&cluster.client, &namespaces).await?;
    let template = json!({"metadata": {"name": "gpu"}, "spec": {"spec": claim_spec()}});
    let templates = namespaces.iter().map(|namespace| (namespace.clone(), template.clone()));
    create_all(&cluster.client, &TEMPLATES, templates).await?;
    let source = json!({"name": "gpu", "resourceClaimTemplateName": "gpu"});
    cluster
        .phase("create", async |client| {
            // No scheduler knows them: only the claims are measured.
            let pods = keys.iter().map(|key| pod(key, json!({"schedulerName": "none"}), &source));
            create_all(client, &PODS, pods).await?;
            BenchCluster::until("pods with the names of their claims", async || {
                let pods = list(client, &PODS, "").await?;
                let has_claim =
                    |pod: &&Value| pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].is_string();
                Ok(pods.iter().filter(has_claim).count() == keys.len())
            })
            .await?;
            Ok(Vec::new())
        })
        .await?;
    cluster
        .phase("delete", async |client| {
            delete_all(client, &PODS, keys.iter().cloned()).await?;
            wait_until_gone(client, &CLAIMS).await?;
            Ok(Vec::new())
        })
        .await
}

/// Ten thousand devices in two pools, a thousand of which pods use; then both pools are published again, with taints.
pub(super) async fn tainted_devices(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let (devices, users) = (cluster.share(10_000), cluster.share(1000));
    let nodes = users.div_ceil(100);
    cluster.start_nodes(nodes, 200).await?;
    nodes_are_ready(&cluster.client, nodes).await?;
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, users);
    create_namespaces(&cluster.client, &namespaces).await?;
    let slices = devices.div_ceil(DEVICES_A_SLICE).next_multiple_of(POOLS);
    cluster
        .phase("publish", async |client| {
            let bodies = (0..slices).map(|number| (String::new(), slice(number, slices, "NoSchedule")));
            create_all(client, &SLICES, bodies).await?;
            Ok(Vec::new())
        })
        .await?;
    use_devices(&cluster.client, &keys, nodes, slices).await?;
    cluster
        .phase("taint", async |client| {
            // A driver that publishes a pool again gives it a new generation, slice after slice.
            let changes = (0..slices).map(|number| {
                let mut change = json!({"spec": slice(number, slices, "NoExecute")["spec"]});
                change["spec"]["pool"]["generation"] = json!(2);
                Call::patch(&SLICES, &Key::cluster(slice_name(number)), PatchType::Merge, &change)
            });
            send_all(client, "tainting devices", changes).await?;
            wait_until_gone(client, &PODS).await?;
            Ok(Vec::new())
        })
        .await
}

/// A hundred thousand ConfigMaps, whose storage version is migrated. Deployments are created before and meanwhile: their times
/// show whether the migration slows other controllers down.
pub(super) async fn migration(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    const REPLICAS: usize = 5;
    let namespaces = namespace_names(20);
    let keys = keys(&namespaces, cluster.share(100_000));
    let deployments = |prefix: &str| -> Vec<Key> {
        let names = keys.iter().take(cluster.share(100));
        names.map(|key| Key::namespaced(&*key.namespace, &*format!("{prefix}-{}", key.name))).collect()
    };
    let (earlier, meanwhile) = (deployments("earlier"), deployments("meanwhile"));
    let nodes = (2 * earlier.len() * REPLICAS).div_ceil(PODS_A_NODE) + 1;
    cluster.start_nodes(nodes, PODS_A_NODE as u32).await?;
    nodes_are_ready(&cluster.client, nodes).await?;
    create_namespaces(&cluster.client, &namespaces).await?;
    for some in keys.chunks(AT_ONCE) {
        let body = |key: &Key| json!({"metadata": {"name": key.name}, "data": {"key": "value"}});
        let bodies = some.iter().map(|key| (key.namespace.to_string(), body(key)));
        create_all(&cluster.client, &CONFIG_MAPS, bodies).await?;
    }
    cluster
        .phase("create Deployments", async |client| create_deployments(client, &earlier, REPLICAS).await)
        .await?;
    cluster
        .phase("migrate", async |client| {
            let spec = json!({"resource": {"group": "", "resource": "configmaps"}});
            let migration = json!({"metadata": {"name": "all"}, "spec": spec});
            create_all(client, &MIGRATIONS, [(String::new(), migration)]).await?;
            let migrated = BenchCluster::until("the migration", async || {
                let migrations = list(client, &MIGRATIONS, "").await?;
                let conditions = migrations.first().map(|one| one["status"]["conditions"].clone());
                let conditions = conditions.unwrap_or_default();
                let is_true = |name: &str| {
                    let mut conditions = conditions.as_array().into_iter().flatten();
                    conditions.any(|one| one["type"] == name && one["status"] == "True")
                };
                anyhow::ensure!(!is_true("Failed"), "the migration failed: {conditions}");
                Ok(is_true("Succeeded"))
            });
            let others = create_deployments(client, &meanwhile, REPLICAS);
            let ((), times) = futures::try_join!(migrated, others)?;
            Ok(times)
        })
        .await
}

/// Five hundred admission policies about Deployments and pods, each with some expressions.
pub(super) async fn policies(cluster: &mut BenchCluster) -> anyhow::Result<()> {
    let count = cluster.share(500);
    cluster
        .phase("check", async |client| {
            let policies = (0..count).map(|number| (String::new(), policy(number)));
            create_all(client, &POLICIES, policies).await?;
            times_until(client, &POLICIES, count, |one| one["status"]["observedGeneration"] == 1).await
        })
        .await
}

fn claim_spec() -> Value {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}});
    json!({"devices": {"requests": [request]}})
}

/// A pod with a claim.
fn pod(key: &Key, mut spec: Value, source: &Value) -> (String, Value) {
    let resources = json!({"claims": [{"name": "gpu"}]});
    spec["containers"] = json!([{"name": "c", "image": "images.example.com/app:1", "resources": resources}]);
    spec["resourceClaims"] = json!([source]);
    spec["terminationGracePeriodSeconds"] = json!(1);
    (key.namespace.to_string(), json!({"metadata": {"name": key.name}, "spec": spec}))
}

/// Creates pods on nodes and allocates a device for each, as the scheduler does.
async fn use_devices(client: &Client, keys: &[Key], nodes: usize, slices: usize) -> anyhow::Result<()> {
    let claims = keys.iter().map(|key| {
        (key.namespace.to_string(), json!({"metadata": {"name": key.name}, "spec": claim_spec()}))
    });
    create_all(client, &CLAIMS, claims).await?;
    let pods = keys.iter().enumerate().map(|(n, key)| {
        let source = json!({"name": "gpu", "resourceClaimName": key.name});
        pod(key, json!({"nodeName": format!("hollow-{}", n % nodes)}), &source)
    });
    create_all(client, &PODS, pods).await?;
    // A list may come from a cache that lacks the latest pods for a moment.
    BenchCluster::until(
        "all pods in a list",
        async || Ok(list(client, &PODS, "").await?.len() == keys.len()),
    )
    .await?;
    let pods = list(client, &PODS, "").await?;
    let allocations = pods.iter().enumerate().map(|(n, pod)| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let (slice, nth) = (n % slices, n / slices % DEVICES_A_SLICE);
        let result = json!({"request": "r", "driver": DRIVER, "pool": pool_name(slice),
            "device": device_name(slice, nth)});
        let consumer = json!({"resource": "pods", "name": text("name"), "uid": text("uid")});
        let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]});
        let key = Key::namespaced(text("namespace"), text("name"));
        Call::patch(&CLAIMS, &key, PatchType::Merge, &json!({"status": status})).subresource("status")
    });
    send_all(client, "allocating devices", allocations).await
}

/// The pool of a slice.
fn pool_name(slice: usize) -> String {
    format!("pool-{}", slice % POOLS)
}

fn slice_name(number: usize) -> String {
    format!("slice-{number:03}")
}

/// The name of a device, which no other slice of the pool has.
fn device_name(slice: usize, nth: usize) -> String {
    format!("device-{slice:03}-{nth:02}")
}

/// One of the slices, all of whose devices have a taint.
fn slice(number: usize, slices: usize, effect: &str) -> Value {
    let taint = json!({"key": "example.com/broken", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"});
    let device = |nth| json!({"name": device_name(number, nth), "taints": [taint]});
    let devices: Vec<Value> = (0..DEVICES_A_SLICE).map(device).collect();
    let pool = json!({"name": pool_name(number), "generation": 1, "resourceSliceCount": slices / POOLS});
    json!({"metadata": {"name": slice_name(number)},
        "spec": {"driver": DRIVER, "pool": pool, "allNodes": true, "devices": devices}})
}

/// A policy whose expressions have no two alike, so that nothing can be checked once for all.
fn policy(number: usize) -> Value {
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments", "statefulsets", "daemonsets"]});
    let validations = json!([
        {"expression": format!("object.spec.template.spec.containers.all(c, c.name != 'c-{number}')")},
        {"expression": format!("object.metadata.labels.exists(k, k == 'team-{number}')"),
         "messageExpression": "'no team in ' + object.metadata.namespace"},
        {"expression": format!("object.spec.template.spec.volumes.size() < {number} + 10")},
        {"expression": format!("object.spec.nope == {number}")},
    ]);
    json!({"metadata": {"name": format!("policy-{number:03}")},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}})
}
