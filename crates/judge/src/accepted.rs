//! The list of accepted differences with their reasons: `docs/differences/apiserver.md`.

use anyhow::{Context as _, ensure};
use keleustes_objects::matches_wildcard;

use crate::compare::Difference;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences/apiserver.md");

/// The rows of the list.
#[derive(Debug)]
pub struct Accepted {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    /// The item that may differ; `*` matches anything.
    item: String,
    /// How often it differed.
    seen: u64,
}

impl Accepted {
    /// Reads the list.
    ///
    /// # Errors
    /// If it cannot be read or a row has no reason.
    pub fn read() -> anyhow::Result<Accepted> {
        let text = std::fs::read_to_string(FILE).with_context(|| FILE.to_owned())?;
        Accepted::parse(&text)
    }

    fn parse(text: &str) -> anyhow::Result<Accepted> {
        let rows =
            text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
        let rows = rows.map(|(item, reason)| {
            ensure!(reason.len() > 10, "{item} has no reason");
            Ok(Row { item: item.to_owned(), seen: 0 })
        });
        Ok(Accepted { rows: rows.collect::<anyhow::Result<_>>()? })
    }

    /// Whether the difference is listed.
    pub fn covers(&mut self, difference: &Difference) -> bool {
        let row = self.rows.iter_mut().find(|row| matches_wildcard(&row.item, &difference.item));
        if let Some(row) = row {
            row.seen += 1;
            return true;
        }
        false
    }

    /// How many rows there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Rows that no difference matched.
    #[must_use]
    pub fn stale(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| row.seen == 0).map(|row| row.item.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn rows_cover_their_items_and_unused_rows_are_stale() {
        let text = "| item | why |\n| --- | --- |\n| `* pods 422 message` | our own words, shorter |\n\
                    | `create nodes spec` | because it is so |\n";
        let mut accepted = Accepted::parse(text).unwrap();
        let mut covers = |item: &str| {
            accepted.covers(&Difference {
                step: 0,
                item: item.to_owned(),
                real: Value::Null,
                ours: Value::Null,
            })
        };
        assert!(covers("update pods 422 message"));
        assert!(!covers("update pods 400 message"));
        assert!(!covers("create nodes spec.taints"));
        assert_eq!(accepted.stale(), ["create nodes spec"]);
        assert!(Accepted::parse("| `x` | no |\n").is_err());
    }

    #[test]
    fn list_can_be_read() {
        Accepted::read().unwrap();
    }
}
