//! Pods that wait for a volume which cannot be attached.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Stuck, pod, template};
use crate::test_cluster::wait;

const WORKLOADS: [&str; 2] = ["deployment-controller", "replicaset-controller"];
const WITH_ATTACH_DETACH: [&str; 3] =
    [WORKLOADS[0], WORKLOADS[1], "persistentvolume-attach-detach-controller"];
/// The name of the volume in `status.volumesAttached`.
const UNIQUE_NAME: &str = "kubernetes.io/csi/d.io^h1";

/// Two nodes, a volume with this access mode, its claim, and a pod on node `n1` and a Deployment that use it.
fn objects(mode: &str) -> Vec<Value> {
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {
            "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "volumesInUse": [UNIQUE_NAME]}})
    };
    let spec = json!({"accessModes": [mode], "capacity": {"storage": "1Gi"}, "csi": {"driver": "d.io", "volumeHandle": "h1"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "claim-uid"}});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv1"}, "spec": spec,
        "status": {"phase": "Bound"}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "name": "data", "uid": "claim-uid"},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv1"},
        "status": {"phase": "Bound", "accessModes": [mode]}});
    let mut batch =
        pod("batch", &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    batch["metadata"]["labels"] = json!({"app": "batch"});
    batch["spec"]["nodeName"] = json!("n1");
    batch["spec"]["volumes"] = volumes();
    let mut web = super::deployment("RollingUpdate", 1);
    let mut template = template();
    template["spec"]["volumes"] = volumes();
    web["spec"]["template"] = template;
    vec![node("n1"), node("n2"), volume, claim, batch, web]
}

fn volumes() -> Value {
    json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
}

fn attachment(name: &str, node: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
        "spec": {"attacher": "d.io", "nodeName": node, "source": {"persistentVolumeName": "pv1"}}, "status": {"attached": true}})
}

/// Puts the Deployment's pod on a node, where its containers wait for the volume.
fn schedule(stuck: &Stuck, node: &str) {
    let waiting = json!({"phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady",
            "message": "containers with unready status: [c]"}],
        "containerStatuses": [{"name": "c", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    for pod in stuck.cluster.server.objects("pods") {
        let mut pod = Value::clone(&pod);
        if pod["metadata"]["labels"]["app"] == "web" {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"] = waiting.clone();
            stuck.put(pod);
        }
    }
}

/// What the external attacher reports about the attachments to a node.
fn report(stuck: &Stuck, node: &str, status: &Value) {
    let attachments = stuck.cluster.server.objects("volumeattachments");
    let mut there = attachments.iter().filter(|attachment| attachment["spec"]["nodeName"] == node);
    let mut attachment = Value::clone(there.next().unwrap());
    attachment["status"] = status.clone();
    stuck.put(attachment);
}

/// The volume is attached to node `n1`, where the pod `batch` uses it, and the Deployment's pod is on node `n2`.
async fn attached_to_the_first_node(mode: &str) -> Stuck {
    let stuck = Stuck::new(&WITH_ATTACH_DETACH, &objects(mode)).await;
    wait(Duration::from_secs(2)).await;
    report(&stuck, "n1", &json!({"attached": true}));
    schedule(&stuck, "n2");
    wait(Duration::from_secs(2)).await;
    stuck
}

#[tokio::test(start_paused = true)]
async fn volume_is_attached_elsewhere() {
    let stuck = attached_to_the_first_node("ReadWriteOnce").await;
    let cause =
        "volume pv1 is attached to node n1, where pod batch uses it; only one node may have it, and pod web-";
    stuck.names_cause("volume-attached-elsewhere", "deployment/web", cause).await;
    // The claim is that of both pods.
    let claim = stuck.explain("pvc", "data").await.text();
    assert!(claim.contains(cause), "{claim}");
}

#[tokio::test(start_paused = true)]
async fn volume_attached_to_the_pod_s_own_node_is_no_finding() {
    let stuck = attached_to_the_first_node("ReadWriteOnce").await;
    // Another pod waits for the volume, which is not wrong with this one.
    let batch = stuck.explain("pod", "batch").await;
    assert_eq!((batch.state, batch.causes.len()), ("as wanted", 0), "{}", batch.text());
    assert!(batch.text().contains("  volumeattachment/csi-"), "{}", batch.text());
}

#[tokio::test(start_paused = true)]
async fn pods_that_will_not_start_wait_for_no_volume() {
    let stuck = attached_to_the_first_node("ReadWriteOnce").await;
    let text = stuck.explain("deployment", "web").await.text();
    assert!(text.contains("attached to node n1"), "{text}");
    for pod in stuck.cluster.server.objects("pods") {
        if pod["metadata"]["labels"]["app"] == "web" {
            stuck.change("pods", pod["metadata"]["name"].as_str().unwrap(), |pod| {
                pod["status"]["phase"] = json!("Failed");
            });
        }
    }
    wait(Duration::from_secs(2)).await;
    // The one has failed, and the one that replaces it has no node yet.
    let text = stuck.explain("deployment", "web").await.text();
    assert!(text.contains("no scheduler has assigned a node"), "{text}");
    assert!(!text.contains("attached to node n1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn volume_that_many_nodes_may_attach_is_no_finding() {
    let stuck = attached_to_the_first_node("ReadWriteMany").await;
    let text = stuck.explain("deployment", "web").await.text();
    assert!(!text.contains("attached to node n1"), "{text}");
    assert!(
        text.contains(
            "volume pv1 is not attached to node n2 after 2s: the attacher of driver d.io has not answered"
        ),
        "{text}"
    );
    // A failure on the node of another pod is none of this one.
    report(&stuck, "n2", &json!({"attached": false, "attachError": {"message": "no such volume"}}));
    wait(Duration::from_secs(2)).await;
    let batch = stuck.explain("pod", "batch").await.text();
    assert!(!batch.contains("no such volume"), "{batch}");
}

#[tokio::test(start_paused = true)]
async fn attach_fails() {
    let mut objects = objects("ReadWriteOnce");
    objects.retain(|object| object["kind"] != "Pod");
    let stuck = Stuck::new(&WITH_ATTACH_DETACH, &objects).await;
    wait(Duration::from_secs(2)).await;
    schedule(&stuck, "n2");
    wait(Duration::from_secs(2)).await;
    let message = "rpc error: code = NotFound desc = volume h1 does not exist";
    report(&stuck, "n2", &json!({"attached": false, "attachError": {"message": message}}));
    let cause = format!("driver d.io cannot attach volume pv1 to node n2: {message}");
    stuck.names_cause("attach-fails", "deployment/web", &cause).await;
}

/// Without the attach-detach controller no cache holds VolumeAttachments, and here none the claims of pods.
#[tokio::test(start_paused = true)]
async fn attachments_that_no_cache_holds_are_listed_once() {
    // The Deployment's pod has two claims of one volume: what is listed for the one serves the other.
    let mut objects = objects("ReadWriteOnce");
    let mut twin = objects[3].clone();
    twin["metadata"] = json!({"namespace": "shop", "name": "twin"});
    let both = &mut objects[5]["spec"]["template"]["spec"]["volumes"];
    *both = json!([both[0], {"name": "t", "persistentVolumeClaim": {"claimName": "twin"}}]);
    let mut foreign = attachment("csi-2", "n2");
    foreign["spec"]["source"]["persistentVolumeName"] = json!("pv2");
    objects.extend([twin, attachment("csi-1", "n1"), foreign]);
    let stuck = Stuck::new(&WORKLOADS, &objects).await;
    wait(Duration::from_secs(2)).await;
    schedule(&stuck, "n2");
    wait(Duration::from_secs(2)).await;
    assert_eq!(stuck.cluster.reads("volumeattachments", "limit=500"), 0);
    let text = stuck.explain("deployment", "web").await.text();
    let cause =
        "volumeattachment/csi-1: volume pv1 is attached to node n1; only one node may have it, and pod web-";
    assert!(text.contains(cause) && text.contains("persistentvolumeclaim/twin  ok"), "{text}");
    assert_eq!(stuck.cluster.reads("volumeattachments", "limit=500"), 1);
    // The manager's own role allows to list all resources, and to get few.
    let requests = stuck.cluster.server.requests();
    let reads = requests.iter().filter(|request| request.resource.starts_with("volumeattachments"));
    let verbs: BTreeSet<&str> = reads.map(|request| request.verb.as_str()).collect();
    assert_eq!(verbs, BTreeSet::from(["list"]));
}
