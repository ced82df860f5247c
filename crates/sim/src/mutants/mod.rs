//! Removes one watch, one safeguard, the lease check or the handover at a time. If no storm notices, the
//! storms are too mild or the removed part is not needed.
//!
//! The removal uses seams that exist anyway: a controller is a value, its plans are values, and its
//! requests pass the simulated network. No other program is built.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub mod safeguards;

use self::safeguards::{Safeguard, remove_safeguard};
use crate::storm::StormOptions;

/// Storm options with one thing removed.
#[derive(Clone, Debug)]
pub struct Mutant {
    removed: Removed,
    /// How often the removed safeguard was present in a planned write.
    removals: Arc<AtomicU64>,
}

/// What is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Removed {
    /// One watch of one loop of a controller.
    Watch { controller: &'static str, loop_index: usize, watch: usize, kind: String },
    /// One safeguard of one controller.
    Safeguard { controller: &'static str, account: &'static str, safeguard: Safeguard },
    /// The check before each write that the process still holds the lease.
    Lease,
    /// The state of the previous leader.
    Handover,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.removed {
            Removed::Watch { controller, loop_index, kind, .. } => {
                write!(f, "{controller}, loop {loop_index}, without {kind}")
            }
            Removed::Safeguard { controller, safeguard, .. } => {
                write!(f, "{controller} without {safeguard:?}")
            }
            Removed::Lease => f.write_str("all controllers without Lease"),
            Removed::Handover => f.write_str("all controllers without Handover"),
        }
    }
}

/// All mutants of these options, in the order of the controllers.
#[must_use]
pub fn all(options: &StormOptions) -> Vec<Mutant> {
    let mut removed = vec![Removed::Lease, Removed::Handover];
    for controller in (options.controllers)() {
        let account = controller.service_account.unwrap_or("tokens-controller");
        let controller_name = controller.name;
        for (loop_index, controller_loop) in controller.loops.iter().enumerate() {
            for (watch, watched) in controller_loop.watches.iter().enumerate() {
                let kind = watched.kind.resource().to_string();
                removed.push(Removed::Watch { controller: controller_name, loop_index, watch, kind });
            }
        }
        let cautions = Safeguard::ALL.into_iter();
        removed.extend(cautions.map(|safeguard| Removed::Safeguard {
            controller: controller_name,
            account,
            safeguard,
        }));
    }
    removed.into_iter().map(|removed| Mutant { removed, removals: Arc::default() }).collect()
}

impl Mutant {
    /// Whether the removed thing was present in any storm so far.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        !matches!(self.removed, Removed::Safeguard { .. }) || self.removals.load(Ordering::Relaxed) > 0
    }

    /// The options with this mutation. What the loop reads stays declared as a read, so that only the
    /// enqueueing is missing.
    #[must_use]
    pub fn apply_to(&self, options: &StormOptions) -> StormOptions {
        let (removed, removals, all_controllers) =
            (self.removed.clone(), self.removals.clone(), options.controllers.clone());
        let mut options = options.clone();
        options.checks_lease = removed != Removed::Lease;
        options.uses_predecessor_state = removed != Removed::Handover;
        if let Removed::Safeguard { account, safeguard: Safeguard::Gate, .. } = removed {
            options.open_gate = Some(account);
        }
        options.controllers = Arc::new(move || {
            let mut controllers = all_controllers();
            for candidate in &mut controllers {
                match &removed {
                    Removed::Watch { controller, loop_index, watch, .. } if candidate.name == *controller => {
                        let mutated = &mut candidate.loops[*loop_index];
                        let kind = mutated.watches.remove(*watch).kind;
                        // The checkers have to notice what follows from it, not the check of reads.
                        mutated.unwatched.push((kind, "the watch is removed by this mutant"));
                    }
                    Removed::Safeguard { controller, safeguard, .. } if candidate.name == *controller => {
                        remove_safeguard(candidate, *safeguard, &removals);
                    }
                    _ => {}
                }
            }
            controllers
        });
        options
    }
}
