//! Only the holder of the leader election lease writes, and only while the lease is valid; between two changes of its
//! holder, also by hand, at most one process writes.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::recorder::{LeaseHolder, ObservedWrite, text};

/// How long no other manager may acquire the lease after a renewal.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Compares the sender of each write with the holder of the lease.
#[derive(Default)]
pub struct LeaderLease {
    /// By process instance: when it last acquired or renewed the lease.
    renewed_at: BTreeMap<u32, Duration>,
    /// By lease state: the process instance that wrote during it. While the lease is deleted or has no holder, its
    /// former holder may write until it notices, and no other process.
    writers: BTreeMap<u64, u32>,
}

impl Checker for LeaderLease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if write.by_manager() && write.request.is_leader_lease() && write.succeeded() {
            // A created lease is in the body: the request names no object.
            let lease = write.after.as_deref().unwrap_or(&write.body);
            let holder = text(lease, "/spec/holderIdentity");
            if LeaseHolder(holder.to_owned()).is(&write.party) {
                self.renewed_at.insert(write.process_instance, write.at);
            }
        }
        // A manager creates the ServiceAccount of a controller whenever it needs a token for it, also to
        // read without leading.
        if !write.by_manager() || write.request.is_routine() {
            return Ok(());
        }
        // A write that was sent before its sender lost the lease may arrive at any later time.
        let send_context = &write.send_context;
        if send_context.leader.is_other_than(&write.party) {
            return Err(format!("sent while {} holds the lease", send_context.leader.0));
        }
        let renewed_at = self.renewed_at.get(&write.process_instance).copied().unwrap_or_default();
        let creates_account =
            write.request.resource == "serviceaccounts" && write.component == "kube-controller-manager";
        if creates_account {
            return Ok(());
        }
        if send_context.at > renewed_at + LEASE_DURATION {
            return Err(format!(
                "sent {:?} after the last renewal of the lease",
                send_context.at - renewed_at
            ));
        }
        let writer = *self.writers.entry(send_context.lease_state).or_insert(write.process_instance);
        if writer == write.process_instance {
            Ok(())
        } else {
            Err("sent while another process writes, and the holder of the lease has not changed".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::recorder::{RequestInfo, SendContext};

    /// A successful write of a manager 3 s after the start, while the lease has no holder.
    fn write_without_holder(party: &str, process_instance: u32, lease_state: u64) -> ObservedWrite {
        let path = "/api/v1/namespaces/default/pods/oar";
        let at = Duration::from_secs(3);
        ObservedWrite {
            at,
            party: party.into(),
            process_instance,
            send_context: SendContext { at, leader: LeaseHolder::default(), lease_state },
            ..ObservedWrite::of_manager("replicaset-controller", &Method::DELETE, path)
        }
    }

    #[test]
    fn second_writer_is_reported_unless_the_holder_has_changed() {
        let (server, mut checker) = (ApiServer::builder().build(), LeaderLease::default());
        let mut check = |party: &str, process_instance, lease_state| {
            checker.on_write(&write_without_holder(party, process_instance, lease_state), &server).is_ok()
        };
        assert!(check("manager-0", 1, 4));
        assert!(check("manager-0", 1, 4));
        assert!(!check("manager-1", 2, 4), "another manager");
        assert!(!check("manager-0", 3, 4), "the same manager, restarted");
        assert!(check("manager-1", 2, 5), "the holder has changed");
        assert!(!check("manager-0", 1, 5));
    }

    #[test]
    fn created_lease_counts_as_renewed() {
        let (server, mut checker) = (ApiServer::builder().build(), LeaderLease::default());
        let late = Duration::from_secs(100);
        let uri = http::Uri::from_static("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
        let mut creation = write_without_holder("manager-0", 1, 0);
        creation.at = late;
        creation.request = RequestInfo::parse(&Method::POST, &uri);
        creation.body = json!({"spec": {"holderIdentity": "manager-0_x"}});
        let mut write = write_without_holder("manager-0", 1, 1);
        write.send_context.at = late;
        assert!(checker.on_write(&write, &server).is_err());
        checker.on_write(&creation, &server).unwrap();
        checker.on_write(&write, &server).unwrap();
    }
}
