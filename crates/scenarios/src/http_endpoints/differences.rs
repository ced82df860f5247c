//! The list of accepted differences with their reasons: `docs/differences/manager.md`.

use std::collections::BTreeSet;

use keleustes_objects::matches_wildcard;

use super::items::Items;
use crate::differences::rows;

/// The rows of the list.
pub(super) struct Differences {
    rows: Vec<Row>,
}

struct Row {
    /// The item's name, with the prefix `leading: ` or `standing by: ` if it differs in that role only; `*`
    /// matches anything.
    item: String,
    /// How it may differ.
    accepted: BTreeSet<String>,
    /// How it was seen to differ.
    seen: BTreeSet<&'static str>,
}

impl Differences {
    /// Reads the list.
    pub(super) fn read() -> anyhow::Result<Self> {
        let row = |row: crate::differences::Row| {
            let accepted = row.how.split(", ").map(str::to_owned).collect();
            Row { item: row.what, accepted, seen: BTreeSet::new() }
        };
        Ok(Self { rows: rows("manager.md")?.into_iter().map(row).collect() })
    }

    /// Differences that are not listed.
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
            // Series of a missing family are not reported again.
            if name
                .split_once('{')
                .is_some_and(|(family, _)| original.contains_key(family) != ours.contains_key(family))
            {
                continue;
            }
            let in_role = format!("{role}: {name}");
            let listed = |row: &&mut Row| {
                row.accepted.contains(how)
                    && [name, &in_role].into_iter().any(|name| matches_wildcard(&row.item, name))
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

    /// Rows with differences that were not seen.
    pub(super) fn stale(&self) -> Vec<String> {
        let stale = |row: &Row| {
            let not_seen: Vec<_> =
                row.accepted.iter().filter(|how| !row.seen.contains(how.as_str())).cloned().collect();
            (!not_seen.is_empty())
                .then(|| format!("listed but not seen: {} ({})", row.item, not_seen.join(", ")))
        };
        self.rows.iter().filter_map(stale).collect()
    }
}
