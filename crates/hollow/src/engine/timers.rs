//! One timer for each who: setting it again moves it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Who;

/// Who is to be looked at, and when.
#[derive(Debug, Default)]
pub(super) struct Timers {
    ordered: BTreeSet<(Timestamp, Who)>,
    of: BTreeMap<Who, Timestamp>,
}

impl Timers {
    pub(super) fn set(&mut self, who: &Who, at: Option<Timestamp>) {
        let known = self.of.get(who).copied();
        if known == at {
            return;
        }
        if let Some(known) = known {
            self.ordered.remove(&(known, who.clone()));
        }
        match at {
            Some(at) => {
                self.ordered.insert((at, who.clone()));
                self.of.insert(who.clone(), at);
            }
            None => {
                self.of.remove(who);
            }
        }
    }

    pub(super) fn first(&self) -> Option<Timestamp> {
        self.ordered.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Who> {
        self.ordered.first().filter(|(at, _)| *at <= now)?;
        let (_, who) = self.ordered.pop_first()?;
        self.of.remove(&who);
        Some(who)
    }
}
