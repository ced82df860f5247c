//! Nothing is written without the lease.

use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::Effect;

/// Compares whoever writes with the holder of the lease.
pub struct Lease;

impl Checker for Lease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        // Accounts of controllers are made by whoever needs a token of theirs, which leads by then as well.
        if !effect.by_manager() || effect.route.is_routine() {
            return Ok(());
        }
        // What left before its sender lost the lease may arrive later, as late as the network likes.
        if effect.leader.is_not(&effect.party) {
            return Err(format!("sent while {} leads", effect.leader.0));
        }
        Ok(())
    }
}
