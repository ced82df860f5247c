//! Nobody takes an object in the name of an owner that it has not looked at afresh.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{controller, going, named, uid};
use crate::witness::{Effect, Look, text};

/// How long a look may be past when the adoption arrives: answers are late, and processes sleep.
const FRESH_FOR: Duration = Duration::from_secs(180);

/// Remembers who was seen alive.
#[derive(Default)]
pub struct Adoption {
    /// By process, controller and uid of the owner.
    alive_at: BTreeMap<(u32, String, String), Duration>,
}

impl Checker for Adoption {
    fn name(&self) -> &'static str {
        "adoption"
    }

    fn looked(&mut self, look: &Look<'_>) {
        if !going(look.found) {
            let seen = (look.life, look.author.to_owned(), uid(look.found).to_owned());
            self.alive_at.insert(seen, look.at);
        }
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        if !effect.by_manager() || !effect.done() || effect.route.method != Method::PATCH {
            return Ok(());
        }
        let (Some(before), Some(after)) = (&effect.before, &effect.after) else { return Ok(()) };
        let Some(owner) = controller(after).filter(|_| controller(before).is_none()) else { return Ok(()) };
        let seen = (effect.life, effect.author.clone(), text(owner, "/uid").to_owned());
        let fresh = self.alive_at.get(&seen).is_some_and(|at| effect.at - *at < FRESH_FOR);
        if fresh { Ok(()) } else { Err(format!("took {} without a look at the owner", named(after))) }
    }
}
