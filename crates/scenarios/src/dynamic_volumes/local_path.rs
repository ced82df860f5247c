//! A provisioner from outside: Rancher's local-path-provisioner, with its own account, roles and helper pods.

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use keleustes_control_plane::Process;
use keleustes_control_plane::build::Program;
use keleustes_hollow::{Hollow, annotations};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::{DynamicFixture, name_of, replicas_become, scale, stateful_set};
use crate::TestCluster;

const ACCOUNT: &str = "local-path-provisioner-service-account";
const CONFIG: &str = "local-path-config";

/// The permissions of its manifest: helper pods in its namespace, everything else in all.
fn rules() -> (Value, Value) {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let read = ["get", "list", "watch"];
    let write = ["get", "list", "watch", "create", "patch", "update", "delete"];
    let everywhere = json!([
        rule("", &["nodes", "persistentvolumeclaims", "configmaps", "pods", "pods/log"], &read),
        rule("", &["persistentvolumes"], &write),
        rule("", &["events"], &["create", "patch"]),
        rule("storage.k8s.io", &["storageclasses"], &read),
    ]);
    (json!([rule("", &["pods"], &write)]), everywhere)
}

/// Its settings, and the pod that creates and deletes folders; on a hollow node it only takes a moment.
fn settings() -> Value {
    let paths = json!({"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/opt/local-path-provisioner"]}]});
    let helper = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "helper-pod", "annotations": {annotations::RUN_FOR: "200ms"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "helper-pod", "image": "busybox"}]},
    });
    json!({"config.json": paths.to_string(), "setup": "mkdir -p \"$VOL_DIR\"", "teardown": "rm -rf \"$VOL_DIR\"",
        "helperPod.yaml": helper.to_string()})
}

/// Creates what its manifest creates, in the namespace of the fixture.
async fn install(fixture: &DynamicFixture<'_>) -> anyhow::Result<()> {
    let (cluster, namespace) = (fixture.cluster, fixture.namespace.as_str());
    let admin = || cluster.admin.clone();
    let accounts: Api<ServiceAccount> = cluster.api(namespace);
    cluster.create(&accounts, json!({"metadata": {"name": ACCOUNT}})).await?;
    let subjects = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]);
    let (own, everywhere) = rules();
    let role = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": namespace});
    let named = json!({"name": namespace});
    cluster.create::<Role>(&cluster.api(namespace), json!({"metadata": named, "rules": own})).await?;
    let binding = json!({"metadata": named, "roleRef": role("Role"), "subjects": subjects});
    cluster.create::<RoleBinding>(&cluster.api(namespace), binding).await?;
    cluster
        .create::<ClusterRole>(&Api::all(admin()), json!({"metadata": named, "rules": everywhere}))
        .await?;
    let binding = json!({"metadata": named, "roleRef": role("ClusterRole"), "subjects": subjects});
    cluster.create::<ClusterRoleBinding>(&Api::all(admin()), binding).await?;
    let config = json!({"metadata": {"name": CONFIG}, "data": settings()});
    cluster.create::<ConfigMap>(&cluster.api(namespace), config).await?;
    Ok(())
}

/// Starts it as its service account.
fn start(fixture: &DynamicFixture<'_>) -> anyhow::Result<Process> {
    let plane = fixture.cluster.real()?.plane();
    let user = format!("system:serviceaccount:{}:{ACCOUNT}", fixture.namespace);
    let mut command = Command::new(plane.binary(Program::LocalPathProvisioner)?);
    command.args(["start", "--namespace", &fixture.namespace, "--provisioner-name", &fixture.driver_name()]);
    command.args(["--service-account-name", ACCOUNT, "--configmap-name", CONFIG, "--kubeconfig"]);
    command.arg(plane.kubeconfig_for(&user, None)?);
    let log = plane.logs_dir().join("local-path-provisioner.log");
    Ok(Process::spawn("local-path-provisioner", &command, &log)?)
}

/// Its volumes are folders on the node of the pod, and no other node may use them.
fn ensure_on_node(volume: &PersistentVolume, node: &str) -> anyhow::Result<()> {
    let spec = serde_json::to_value(&volume.spec)?;
    let path = spec["hostPath"]["path"].as_str().unwrap_or_default();
    ensure!(path.starts_with("/opt/local-path-provisioner/pvc-"), "{spec}");
    let terms = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let expected = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    ensure!(*terms == expected, "{spec}");
    Ok(())
}

async fn helper_pods_are_gone(fixture: &DynamicFixture<'_>) -> anyhow::Result<()> {
    let ask = async || {
        let pods: Vec<Pod> = fixture.pods.list(&ListParams::default()).await?.items;
        let is_helper =
            |pod: &Pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("helper-pod"));
        Ok((!pods.iter().any(is_helper)).then_some(()))
    };
    fixture.cluster.eventually("no helper pod is left", ask).await
}

pub(crate) async fn local_path_provisioner_serves_a_stateful_set(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = DynamicFixture::create(cluster, "local-path", "WaitForFirstConsumer").await?;
    let hollow = Hollow::builder(cluster.admin.clone()).volumes(true).mounts(true);
    let hollow = fixture.start_node_with(hollow).await?;
    install(&fixture).await?;
    let mut provisioner = start(&fixture)?;
    let sets: Api<StatefulSet> = cluster.api(&fixture.namespace);
    let mut set = stateful_set(&fixture, "Retain");
    // kube-scheduler selects the node, which a delayed claim waits for.
    set["spec"]["template"]["spec"]["nodeName"] = Value::Null;
    set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Delete");
    cluster.create(&sets, set).await?;
    replicas_become(&fixture, &sets, 2).await?;
    let (_, first) = fixture.is_bound("data-web-0").await?;
    let (_, second) = fixture.is_bound("data-web-1").await?;
    for volume in [&first, &second] {
        ensure_on_node(volume, &fixture.node())?;
    }
    helper_pods_are_gone(&fixture).await?;
    cluster.checkpoint("two pods have their volumes").await;

    scale(&sets, 1).await?;
    fixture.is_gone(&fixture.claims, "data-web-1").await?;
    fixture.is_gone(&fixture.volumes, &name_of(&second)).await?;
    replicas_become(&fixture, &sets, 1).await?;
    ensure!(fixture.volumes.get_opt(&name_of(&first)).await?.is_some(), "the volume in use is gone");
    sets.delete("web", &DeleteParams::default()).await?;
    fixture.is_gone(&fixture.pods, "web-0").await?;
    cluster.settle().await;
    ensure!(fixture.claims.get_opt("data-web-0").await?.is_some(), "the retained claim is gone");
    fixture.delete_claim("data-web-0", &name_of(&first)).await?;
    helper_pods_are_gone(&fixture).await?;
    cluster.checkpoint("nothing is left").await;

    provisioner.stop(Duration::from_secs(15))?;
    cluster
        .delete_if_exists::<ClusterRoleBinding>(&Api::all(cluster.admin.clone()), &fixture.namespace)
        .await?;
    cluster.delete_if_exists::<ClusterRole>(&Api::all(cluster.admin.clone()), &fixture.namespace).await?;
    fixture.delete_node(hollow).await?;
    fixture.delete_class().await
}
