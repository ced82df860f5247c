//! Takes one thing away at a time, a watch, a caution or the lease: storms that do not notice are too mild, or it is
//! idle.
//!
//! What is taken away is taken away at seams that are there anyhow: a controller is a value, what it decides is one,
//! and what is sent goes over a wire. No other program is built.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::careless::{Caution, forget};
use crate::storm::Stage;

/// A stage on which one thing is missing.
#[derive(Clone, Debug)]
pub struct Mutant {
    what: Missing,
    /// How often something was left out that was there.
    left_out: Arc<AtomicU64>,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Missing {
    /// One loop of a controller no longer hears of one kind.
    Watch { controller: &'static str, a_loop: usize, watch: usize, kind: String },
    /// One controller forgets a kind of caution.
    Caution { controller: &'static str, account: &'static str, caution: Caution },
    /// Nobody asks whether it still leads before it writes.
    Lease,
    /// Nobody learns what the leader before has done.
    Handover,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Missing::Watch { controller, a_loop, kind, .. } => {
                write!(f, "{controller}, loop {a_loop}, without {kind}")
            }
            Missing::Caution { controller, caution, .. } => write!(f, "{controller} without {caution:?}"),
            Missing::Lease => f.write_str("all without Lease"),
            Missing::Handover => f.write_str("all without Handover"),
        }
    }
}

/// All mutants of a stage, in the order of its controllers.
#[must_use]
pub fn all(stage: &Stage) -> Vec<Mutant> {
    let mut missing = vec![Missing::Lease, Missing::Handover];
    for controller in (stage.crew)() {
        let account = controller.service_account.unwrap_or("tokens-controller");
        let controller_name = controller.name;
        for (a_loop, there) in controller.loops.iter().enumerate() {
            for (watch, watched) in there.watches.iter().enumerate() {
                let kind = watched.kind.resource().to_string();
                missing.push(Missing::Watch { controller: controller_name, a_loop, watch, kind });
            }
        }
        let cautions = Caution::ALL.into_iter();
        missing.extend(cautions.map(|caution| Missing::Caution {
            controller: controller_name,
            account,
            caution,
        }));
    }
    missing.into_iter().map(|what| Mutant { what, left_out: Arc::default() }).collect()
}

impl Mutant {
    /// Whether what is missing was there in anything that was played so far.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !matches!(self.what, Missing::Caution { .. }) || self.left_out.load(Ordering::Relaxed) > 0
    }

    /// The stage with this mutant on it. What a deaf loop reads stays declared, so that only the waking is missing.
    #[must_use]
    pub fn on(&self, stage: &Stage) -> Stage {
        let (what, left_out, crew) = (self.what.clone(), self.left_out.clone(), stage.crew.clone());
        let mut stage = stage.clone();
        stage.heeds_lease = what != Missing::Lease;
        stage.catches_up = what != Missing::Handover;
        if let Missing::Caution { account, caution: Caution::Gate, .. } = what {
            stage.open_gate = Some(account);
        }
        stage.crew = Arc::new(move || {
            let mut controllers = crew();
            for there in &mut controllers {
                match &what {
                    Missing::Watch { controller, a_loop, watch, .. } if there.name == *controller => {
                        drop(there.loops[*a_loop].watches.remove(*watch));
                    }
                    Missing::Caution { controller, caution, .. } if there.name == *controller => {
                        forget(there, *caution, &left_out);
                    }
                    _ => {}
                }
            }
            controllers
        });
        stage
    }
}
