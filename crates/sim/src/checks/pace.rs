//! No hot loops: what one controller writes about one object is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::uid;
use crate::witness::Effect;

/// So many writes of one controller about one object within this time are too many.
const WRITES_MAX: usize = 60;
const WITHIN: Duration = Duration::from_secs(10);

/// Counts.
#[derive(Default)]
pub struct Pace {
    /// By author, name and life: a scheduler that does not hear of a taint puts one pod after the other onto its node.
    recent: BTreeMap<(String, String, String), VecDeque<Duration>>,
}

impl Checker for Pace {
    fn name(&self) -> &'static str {
        "pace"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        if !effect.by_manager() || effect.route.name.is_empty() {
            return Ok(());
        }
        let life = effect.before.as_deref().map_or_else(String::new, |before| uid(before).to_owned());
        let recent = self.recent.entry((effect.author.clone(), effect.route.to_string(), life)).or_default();
        recent.push_back(effect.at);
        while recent.front().is_some_and(|first| effect.at - *first > WITHIN) {
            recent.pop_front();
        }
        if recent.len() > WRITES_MAX { Err(format!("{} writes in {WITHIN:?}", recent.len())) } else { Ok(()) }
    }
}
