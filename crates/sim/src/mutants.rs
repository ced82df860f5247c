//! Takes one watch away from one controller at a time: storms that do not notice are too mild, or the watch is idle.

use std::fmt;
use std::sync::Arc;

use crate::process::Crew;

/// A crew in which one loop no longer hears of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The controller.
    pub controller: &'static str,
    /// The place of the loop.
    pub a_loop: usize,
    /// The place of the watch in it.
    pub watch: usize,
    /// The resource it no longer hears of.
    pub kind: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { controller, a_loop, kind, .. } = self;
        write!(f, "{controller}, loop {a_loop}, without {kind}")
    }
}

/// All mutants of a crew, in its order.
#[must_use]
pub fn all(crew: &Crew) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for controller in crew() {
        for (a_loop, there) in controller.loops.iter().enumerate() {
            for (watch, watched) in there.watches.iter().enumerate() {
                let kind = watched.kind.resource().to_string();
                mutants.push(Mutant { controller: controller.name, a_loop, watch, kind });
            }
        }
    }
    mutants
}

impl Mutant {
    /// The crew with this mutant in it. What it reads stays declared, so that only the waking is missing.
    #[must_use]
    pub fn within(&self, crew: &Crew) -> Crew {
        let (mutant, crew) = (self.clone(), crew.clone());
        Arc::new(move || {
            let mut controllers = crew();
            for controller in controllers.iter_mut().filter(|there| there.name == mutant.controller) {
                drop(controller.loops[mutant.a_loop].watches.remove(mutant.watch));
            }
            controllers
        })
    }
}
