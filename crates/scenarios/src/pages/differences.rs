//! The list of differences that are meant, with their reasons: `docs/differences/manager.md`.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};

use super::items::Items;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences/manager.md");

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
        let text = std::fs::read_to_string(FILE).with_context(|| FILE.to_owned())?;
        let rows =
            text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
        let rows = rows.map(|(asked, rest)| {
            let (may, reason) = rest.split_once(" | ").with_context(|| format!("{asked}: three columns"))?;
            ensure!(reason.len() > 10, "{asked} has no reason");
            let may = may.split(", ").map(str::to_owned).collect();
            Ok(Row { asked: asked.to_owned(), may, seen: BTreeSet::new() })
        });
        Ok(Self { rows: rows.collect::<anyhow::Result<_>>()? })
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

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("/metrics go_*", "/metrics go_threads"));
        assert!(matches("/metrics a{*}", "/metrics a{b=c}"));
        assert!(matches("/configz *.a.*", "/configz x.a.b"));
        assert!(!matches("/metrics go_", "/metrics go_threads"));
        assert!(!matches("/metrics a{*}", "/metrics b{b=c}"));
        assert!(!matches("/configz *.a", "/configz x.ab"));
    }
}
