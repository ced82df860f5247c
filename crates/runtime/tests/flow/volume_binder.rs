//! The persistentvolume-binder on the embedded API server, while it cannot see everything.

use std::time::Duration;

use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::persistentvolume_binder::{PersistentVolumeBinderOptions, controller};
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
