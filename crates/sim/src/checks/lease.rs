//! Nothing is written without the lease.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::{Effect, Leader, text};

/// How long nobody else may take a lease after it was renewed.
const LASTS: Duration = Duration::from_secs(15);

/// Compares whoever writes with the holder of the lease.
#[derive(Default)]
pub struct Lease {
    /// By process: when it last got or renewed the lease.
    renewed_at: BTreeMap<u32, Duration>,
}

impl Checker for Lease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        if effect.by_manager() && effect.route.is_leader_lease() && effect.done() {
            let holder = effect.after.as_deref().map_or("", |lease| text(lease, "/spec/holderIdentity"));
            if Leader(holder.to_owned()).is(&effect.party) {
                self.renewed_at.insert(effect.life, effect.at);
            }
        }
        // An account of a controller is made by whoever needs a token of it, to read if no longer to write.
        if !effect.by_manager() || effect.route.is_routine() {
            return Ok(());
        }
        // What left before its sender lost the lease may arrive later, as late as the network likes.
        let departure = &effect.departure;
        if departure.leader.is_not(&effect.party) {
            return Err(format!("sent while {} leads", departure.leader.0));
        }
        let renewed_at = self.renewed_at.get(&effect.life).copied().unwrap_or_default();
        let for_a_token =
            effect.route.resource == "serviceaccounts" && effect.author == "kube-controller-manager";
        if !for_a_token && departure.at > renewed_at + LASTS {
            return Err(format!("sent {:?} after the lease was renewed", departure.at - renewed_at));
        }
        Ok(())
    }
}
