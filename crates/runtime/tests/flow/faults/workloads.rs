//! StatefulSets and DaemonSets roll out their new template, with one pod for each ordinal and node, with
//! every fault.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use keleustes_controllers::{daemonset, statefulset};
use keleustes_plan::BoxFuture;
use serde_json::{Value, json};

use super::{Case, converges_with_every_fault};

const GENERATION: &str = "deprecated.daemonset.template.generation";
const NODES: [&str; 2] = ["n0", "n1"];

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Binds, runs and deletes pods as scheduler and kubelets do, every few seconds.
fn run_pods(server: ApiServer) {
    const WANTED: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                          /nodeSelectorTerms/0/matchFields/0/values/0";
    tokio::spawn(async move {
        loop {
            for pod in server.objects("pods") {
                if !pod["metadata"]["deletionTimestamp"].is_null() {
                    server.remove("pods", "default", text(&pod, "/metadata/name"));
                } else if pod["status"]["phase"] != "Running" {
                    let mut running = Value::clone(&pod);
                    let wanted = text(&pod, WANTED);
                    running["spec"]["nodeName"] = json!(if wanted.is_empty() { "n0" } else { wanted });
                    running["status"] = json!({
                        "phase": "Running",
                        "conditions": [
                            {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
                        ],
                    });
                    server.seed(running).unwrap();
                }
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
}

/// A user changes the template, and more, after a while.
async fn change(server: &ApiServer, resource: &str, change: fn(&mut Value)) {
    run_pods(server.clone());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let actual = server.object(resource, "default", "x").unwrap();
    let mut changed = Value::clone(&actual);
    changed["spec"]["template"] = template("v2");
    changed["metadata"]["generation"] = json!(2);
    change(&mut changed);
    server.seed(changed).unwrap();
}

/// Each pod's identifying field and image.
fn pods(server: &ApiServer, id_pointer: &str) -> Vec<(String, String)> {
    let id_and_image = |pod: &Arc<Value>| {
        (text(pod, id_pointer).to_owned(), text(pod, "/spec/containers/0/image").to_owned())
    };
    let mut pods: Vec<_> = server.objects("pods").iter().map(id_and_image).collect();
    pods.sort();
    pods
}

/// One revision of the new template, and at most one of the previous one: a delayed controller never sees
/// that.
fn expect_revisions(server: &ApiServer) -> Result<(), String> {
    let image =
        |revision: &Arc<Value>| text(revision, "/data/spec/template/spec/containers/0/image").to_owned();
    let mut images: Vec<_> = server.objects("controllerrevisions").iter().map(image).collect();
    images.sort();
    let is_expected = images == ["v2"] || images == ["v1", "v2"];
    if is_expected { Ok(()) } else { Err(format!("revisions of {images:?}")) }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, actual: &T, wanted: &T) -> Result<(), String> {
    if actual == wanted { Ok(()) } else { Err(format!("{what}: {actual:?} instead of {wanted:?}")) }
}

fn all_v2(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "v2".to_owned())).collect()
}

fn given_stateful_set(server: &ApiServer) {
    let size = json!({"requests": {"storage": "1Gi"}});
    let claim =
        json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "x", "namespace": "default", "generation": 1},
        "spec": {
            "replicas": 2, "serviceName": "x", "selector": {"matchLabels": {"app": "x"}},
            "template": template("v1"), "volumeClaimTemplates": [claim], "revisionHistoryLimit": 10,
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain", "whenDeleted": "Delete"},
        },
    });
    server.seed(set).unwrap();
}

fn when_stateful_set_changes(server: ApiServer) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        change(&server, "statefulsets", |set| set["spec"]["replicas"] = json!(1)).await;
    })
}

fn then_stateful_set(server: &ApiServer) -> Result<(), String> {
    expect("pods", &pods(server, "/metadata/name"), &all_v2(&["x-0"]))?;
    expect_revisions(server)?;
    let set = server.object("statefulsets", "default", "x").ok_or("the set does not exist")?;
    let status = &set["status"];
    for count in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        expect(count, &status[count], &json!(1))?;
    }
    expect("revision", &status["currentRevision"], &status["updateRevision"])?;
    let claim =
        server.object("persistentvolumeclaims", "default", "data-x-0").ok_or("its claim does not exist")?;
    expect("owner", &text(&claim, "/metadata/ownerReferences/0/kind"), &"StatefulSet")
}

/// Proves STS-18, STS-47, STS-64.
#[test]
fn statefulset_rolls_out_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![statefulset::controller(&statefulset::StatefulSetOptions::default())],
        given: given_stateful_set,
        when: when_stateful_set_changes,
        then: then_stateful_set,
        within: Duration::from_secs(200),
        quiet_for: super::QUIET_FOR,
    });
}

fn given_daemon_set(server: &ApiServer) {
    for name in NODES {
        server.seed(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).unwrap();
    }
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "x", "namespace": "default", "generation": 1, "annotations": {GENERATION: "1"}},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}}, "template": template("v1"), "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        },
    });
    server.seed(set).unwrap();
}

fn when_daemon_set_changes(server: ApiServer) -> BoxFuture<'static, ()> {
    // The server counts changes of the template.
    let count = |set: &mut Value| set["metadata"]["annotations"][GENERATION] = json!("2");
    Box::pin(async move { change(&server, "daemonsets", count).await })
}

fn then_daemon_set(server: &ApiServer) -> Result<(), String> {
    expect("pods", &pods(server, "/spec/nodeName"), &all_v2(&NODES))?;
    expect_revisions(server)?;
    let hashes: BTreeSet<String> = (server.objects("pods").iter())
        .map(|pod| text(pod, "/metadata/labels/controller-revision-hash").to_owned())
        .collect();
    expect("hashes", &hashes.len(), &1)?;
    let set = server.object("daemonsets", "default", "x").ok_or("the set does not exist")?;
    for count in
        ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"]
    {
        expect(count, &set["status"][count], &json!(2))?;
    }
    expect("generation", &set["status"]["observedGeneration"], &json!(2))
}

/// Proves DS-42, DS-73, DS-77.
#[test]
fn daemonset_rolls_out_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![daemonset::controller(&daemonset::DaemonSetOptions::default())],
        given: given_daemon_set,
        when: when_daemon_set_changes,
        then: then_daemon_set,
        within: Duration::from_secs(200),
        quiet_for: super::QUIET_FOR,
    });
}
