//! The original as a rival for the leader election lease.

use std::time::Duration;

use http::Method;
use keleustes_client::Call;
use keleustes_objects::{Key, Kind as _, Lease, Pod, ReplicaSet};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bodies;
use crate::checks::objects::{controller_ref, is_terminating, number, uid};
use crate::generate::NAMESPACES;
use crate::recorder::{LEASE_NAME, LEASE_NAMESPACE, text};
use crate::user::SimulatedUser;

/// How long the original waits for a released lease, and how often it looks.
const ATTEMPTS: u32 = 100;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);
/// It does not renew the lease, and stops writing as a leader does that could not. What a process writes that was frozen
/// for longer, before it notices, no other can foresee.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

impl SimulatedUser {
    /// Leads for this time as soon as a manager releases the lease, creates the pods of ReplicaSets that have none, and
    /// releases the lease. As the original does, it counts its term, and keeps the annotations of the lease, also the
    /// handover record of the manager before it.
    ///
    /// Parity: client-go, tools/leaderelection.
    pub(crate) async fn lead_as_original(&self, term: Duration, transitions: u32) {
        let Some(mut lease) = self.acquire_lease(transitions).await else { return };
        let deadline = Instant::now() + RENEW_DEADLINE;
        sleep(term).await;
        for namespace in NAMESPACES {
            self.create_missing_pods(namespace, deadline).await;
        }
        lease["spec"]["holderIdentity"] = json!("");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        // It is refused if another process has taken the lease meanwhile.
        self.put_lease(&lease).await;
    }

    async fn acquire_lease(&self, transitions: u32) -> Option<Value> {
        let key = Key::namespaced(LEASE_NAMESPACE, LEASE_NAME);
        for _ in 0..ATTEMPTS {
            let mut lease = self.send(&Call::get(&Lease::RESOURCE, &key)).await;
            if !lease.is_null() && text(&lease, "/spec/holderIdentity").is_empty() {
                let before = number(&lease, "/spec/leaseTransitions");
                lease["spec"]["holderIdentity"] = json!("original_1");
                lease["spec"]["leaseDurationSeconds"] = json!(15);
                lease["spec"]["leaseTransitions"] = json!(before + i64::from(transitions));
                let acquired = self.put_lease(&lease).await;
                if !acquired.is_null() {
                    return Some(acquired);
                }
            }
            sleep(ATTEMPT_INTERVAL).await;
        }
        None
    }

    async fn put_lease(&self, lease: &Value) -> Value {
        let key = Key::namespaced(LEASE_NAMESPACE, LEASE_NAME);
        self.send(&Call::on_object(Method::PUT, &Lease::RESOURCE, &key).with_body(lease)).await
    }

    async fn create_missing_pods(&self, namespace: &str, deadline: Instant) {
        let pods = self.list(&Pod::RESOURCE, namespace).await;
        for mut set in self.list(&ReplicaSet::RESOURCE, namespace).await {
            let is_its =
                |pod: &Value| controller_ref(pod).is_some_and(|owner| text(owner, "/uid") == uid(&set));
            if is_terminating(&set) || pods.iter().any(is_its) {
                continue;
            }
            // Objects in lists have neither.
            (set["apiVersion"], set["kind"]) = (json!("apps/v1"), json!("ReplicaSet"));
            for _ in 0..number(&set, "/spec/replicas") {
                if Instant::now() > deadline {
                    return;
                }
                let mut pod = set["spec"]["template"].clone();
                let name = format!("{}-original-{}", text(&set, "/metadata/name"), self.number());
                pod["metadata"]["name"] = json!(name);
                pod["metadata"]["ownerReferences"] = json!([bodies::controller_ref_to(&set)]);
                self.create(&Pod::RESOURCE, namespace, &pod).await;
            }
        }
    }
}
