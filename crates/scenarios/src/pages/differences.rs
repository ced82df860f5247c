//! The list of differences that are meant, with their reasons: `docs/differences/manager.md`.

use std::collections::BTreeSet;

use super::items::Items;
use crate::differences::{matches, rows};

/// The rows of the list.
pub(super) struct Differences {
    rows: Vec<Row>,
}

struct Row {
    /// The item's name, after `leading: ` or `standing by: ` if it differs in that role only; a `*` stands for
    /// anything.
    asked: String,
    /// How it may differ.
    may: BTreeSet<String>,
    /// How it was seen to.
    seen: BTreeSet<&'static str>,
}

impl Differences {
    /// Reads the list.
    pub(super) fn read() -> anyhow::Result<Self> {
        let row = |row: crate::differences::Row| {
            let may = row.how.split(", ").map(str::to_owned).collect();
            Row { asked: row.what, may, seen: BTreeSet::new() }
        };
        Ok(Self { rows: rows("manager.md")?.into_iter().map(row).collect() })
    }

    /// What differs and is not listed.
    pub(super) fn unlisted(&mut self, role: &str, original: &Items, ours: &Items) -> Vec<String> {
        let names: BTreeSet<_> = original.keys().chain(ours.keys()).collect();
        let mut unlisted = Vec::new();
        for name in names {
            let how = match (original.get(name), ours.get(name)) {
                (Some(original), Some(ours)) if original == ours => continue,
                (Some(_), Some(_)) => "value",
                (Some(_), None) => "missing",
                (None, _) => "added",
            };
            // The series of a family that is not there say nothing more.
            if name
                .split_once('{')
                .is_some_and(|(family, _)| original.contains_key(family) != ours.contains_key(family))
            {
                continue;
            }
            let in_role = format!("{role}: {name}");
            let listed = |row: &&mut Row| {
                row.may.contains(how) && [name, &in_role].into_iter().any(|name| matches(&row.asked, name))
            };
            match self.rows.iter_mut().find(listed) {
                Some(row) => {
                    row.seen.insert(how);
                }
                None => unlisted.push(format!(
                    "{in_role}: {how}: original {:?}, ours {:?}",
                    original.get(name),
                    ours.get(name)
                )),
            }
        }
        unlisted
    }

    /// Rows that say more than was seen.
    pub(super) fn stale(&self) -> Vec<String> {
        let stale = |row: &Row| {
            let not_seen: Vec<_> =
                row.may.iter().filter(|how| !row.seen.contains(how.as_str())).cloned().collect();
            (!not_seen.is_empty())
                .then(|| format!("listed and not seen: {} ({})", row.asked, not_seen.join(", ")))
        };
        self.rows.iter().filter_map(stale).collect()
    }
}
