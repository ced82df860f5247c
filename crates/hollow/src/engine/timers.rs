//! One timer per writer; setting it again replaces it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Writer;

/// Writers and when they must be checked.
#[derive(Debug, Default)]
pub(super) struct Timers {
    ordered: BTreeSet<(Timestamp, Writer)>,
    by_writer: BTreeMap<Writer, Timestamp>,
}

impl Timers {
    pub(super) fn set(&mut self, writer: &Writer, at: Option<Timestamp>) {
        let known = self.by_writer.get(writer).copied();
        if known == at {
            return;
        }
        if let Some(known) = known {
            self.ordered.remove(&(known, writer.clone()));
        }
        match at {
            Some(at) => {
                self.ordered.insert((at, writer.clone()));
                self.by_writer.insert(writer.clone(), at);
            }
            None => {
                self.by_writer.remove(writer);
            }
        }
    }

    pub(super) fn first(&self) -> Option<Timestamp> {
        self.ordered.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Writer> {
        self.ordered.first().filter(|(at, _)| *at <= now)?;
        let (_, writer) = self.ordered.pop_first()?;
        self.by_writer.remove(&writer);
        Some(writer)
    }
}
