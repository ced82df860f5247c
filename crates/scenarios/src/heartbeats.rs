//! Keeps nodes without a kubelet ready by renewing their leases.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::TestCluster;

/// A fifth of the node monitor grace period.
const EVERY: Duration = Duration::from_secs(10);

/// Renews node leases until it is dropped.
pub(crate) struct Heartbeats(JoinHandle<()>);

impl Heartbeats {
    /// Renews the leases of these nodes from now on.
    pub(crate) fn of(cluster: &TestCluster, nodes: &[Node]) -> Self {
        let leases: Api<Lease> = cluster.api("kube-node-lease");
        let owners: Vec<_> = nodes.iter().map(|node| (node.name_any(), node.uid())).collect();
        Self(tokio::spawn(async move {
            loop {
                for (name, uid) in &owners {
                    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
                    let lease = json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                        "metadata": {"name": name, "ownerReferences": [owner]},
                        "spec": {"holderIdentity": name, "renewTime": format!("{:.6}", Timestamp::now())},
                    });
                    // A failed renewal is repeated the next time.
                    let _ =
                        leases.patch(name, &PatchParams::apply("heart").force(), &Patch::Apply(lease)).await;
                }
                tokio::time::sleep(EVERY).await;
            }
        }))
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.0.abort();
    }
}
