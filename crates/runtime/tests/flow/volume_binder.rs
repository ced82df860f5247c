//! The persistentvolume-binder on the embedded API server: while it cannot see everything, and while it may not act.

use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::persistentvolume_binder::{HostFiles, PersistentVolumeBinderOptions, controller};
use keleustes_runtime::explain::ExplainRequest;
use keleustes_runtime::shadow::{Shadow, WINDOW_DEFAULT};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::test_cluster::{TestCluster, wait};

const MINUTES: Duration = Duration::from_secs(600);

#[expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
fn volume(name: &str, claim_ref: Value, phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "", "volumeMode": "Filesystem",
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": claim_ref,
        "csi": {"driver": "d.io", "volumeHandle": name}}, "status": {"phase": phase}})
}

/// A claim with a volume that fits, and a volume whose claim is gone.
fn populate(cluster: &TestCluster) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": "Filesystem",
                 "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"}});
    let gone = json!({"namespace": "default", "name": "gone", "uid": "u-gone"});
    for object in [claim, volume("free", Value::Null, "Available"), volume("left", gone, "Bound")] {
        cluster.server.seed(object).unwrap();
    }
}

fn phases(cluster: &TestCluster) -> [Value; 3] {
    let phase = |plural, namespace, name| {
        cluster
            .server
            .object(plural, namespace, name)
            .map_or(Value::Null, |object| object["status"]["phase"].clone())
    };
    [
        phase("persistentvolumeclaims", "default", "data"),
        phase("persistentvolumes", "", "free"),
        phase("persistentvolumes", "", "left"),
    ]
}

/// Proves PVB-174.
#[tokio::test(start_paused = true)]
async fn nothing_is_bound_or_released_while_one_of_five_kinds_cannot_be_listed() {
    for plural in ["persistentvolumeclaims", "persistentvolumes", "storageclasses", "pods", "nodes"] {
        let cluster = TestCluster::new();
        populate(&cluster);
        let refused = InjectedFault::status(403, "Forbidden", "no");
        cluster.faults.add(FaultRule::new(refused).resource(plural).verbs(&["list", "watch"]));
        let start = cluster.start(controller(&PersistentVolumeBinderOptions::default()));
        tokio::pin!(start);
        let waiting = timeout(MINUTES, &mut start).await;
        assert!(cluster.writes().is_empty(), "{plural}: {:?}", cluster.writes());
        assert_eq!(phases(&cluster), [json!("Pending"), json!("Available"), json!("Bound")], "{plural}");
        cluster.faults.disable_all();
        let _running = match waiting {
            Ok(running) => running,
            Err(_) => start.await,
        };
        wait(MINUTES).await;
        assert_eq!(phases(&cluster), [json!("Bound"), json!("Bound"), json!("Released")], "{plural}");
    }
}

/// Remembers what is removed from the host.
#[derive(Default)]
struct RecordingHost(Mutex<Vec<String>>);

impl HostFiles for RecordingHost {
    fn create_directory(&self, _path: &str) -> Result<(), String> {
        Err("nothing is provisioned here".to_owned())
    }

    fn remove_all(&self, path: &str) -> Result<(), String> {
        self.0.lock().push(path.to_owned());
        Ok(())
    }

    fn new_uuid(&self) -> String {
        String::new()
    }
}

#[tokio::test(start_paused = true)]
async fn neither_a_shadow_nor_an_explanation_removes_a_directory_of_the_host() {
    let host = Arc::new(RecordingHost::default());
    let options = PersistentVolumeBinderOptions { host_files: Some(host.clone()), ..Default::default() };
    let gone = json!({"namespace": "default", "name": "gone", "uid": "u-gone"});
    let mut old = volume("old", gone, "Released");
    old["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
    old["spec"].as_object_mut().unwrap().remove("csi");
    old["spec"]["hostPath"] = json!({"path": "/tmp/old"});
    let mut cluster = TestCluster::new();
    cluster.server.seed(old).unwrap();
    let shadow = Shadow::new(cluster.context.clocks.clone(), &cluster.metrics, WINDOW_DEFAULT);
    cluster.context.shadow = Some(shadow.clone());
    cluster.context.is_leader = Arc::new(|| false);
    cluster.context.inspection.register(&[controller(&options)]);
    let running = cluster.start(controller(&options)).await;
    wait(Duration::from_secs(20)).await;
    let report = shadow.report(None);
    assert_eq!(report.controllers[0].pending, 1, "it wants what follows the removal: {}", report.text());
    let request = ExplainRequest {
        resource: "persistentvolume".to_owned(),
        name: "old".to_owned(),
        namespace: String::new(),
    };
    let text = cluster.explainer().explain(&request).await.unwrap().text();
    assert!(text.contains("Wants:    delete persistentvolumes old"), "{text}");
    assert!(host.0.lock().is_empty(), "{:?}", host.0.lock());
    let server = cluster.server.clone();
    cluster.stop(running).await;
    let leader = TestCluster::on_server(server, None);
    let _running = leader.start(controller(&options)).await;
    wait(Duration::from_secs(20)).await;
    assert_eq!(*host.0.lock(), ["/tmp/old"]);
    assert!(leader.server.object("persistentvolumes", "", "old").is_none());
}
