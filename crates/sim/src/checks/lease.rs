//! Only the holder of the leader election lease writes, and only while the lease is valid.

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
}

impl Checker for LeaderLease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if write.by_manager() && write.request.is_leader_lease() && write.succeeded() {
            let holder = write.after.as_deref().map_or("", |lease| text(lease, "/spec/holderIdentity"));
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
        if !creates_account && send_context.at > renewed_at + LEASE_DURATION {
            return Err(format!(
                "sent {:?} after the last renewal of the lease",
                send_context.at - renewed_at
            ));
        }
        Ok(())
    }
}
