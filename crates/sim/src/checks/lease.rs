//! Nothing is written without the lease.

use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::{Effect, text};

/// Compares whoever writes with the holder of the lease.
pub struct Lease;

impl Checker for Lease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        // Accounts of controllers are made by whoever needs a token of theirs, which leads by then as well.
        if !effect.by_manager() || effect.route.is_routine() {
            return Ok(());
        }
        let lease = server.object("leases.coordination.k8s.io", "kube-system", "kube-controller-manager");
        let holder = lease.as_ref().map_or("", |lease| text(lease, "/spec/holderIdentity"));
        // An identity is the name of the host and something that no other process has. A lease that was given back
        // is nobody's: what was sent before may still arrive.
        let ours = holder.strip_prefix(&*effect.party).is_some_and(|rest| rest.starts_with('_'));
        if ours || holder.is_empty() { Ok(()) } else { Err(format!("written while {holder} leads")) }
    }
}
