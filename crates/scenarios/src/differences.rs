//! Lists of accepted differences with their reasons: the tables in `docs/differences`.

use anyhow::{Context as _, ensure};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences/");

/// A row of a table.
pub(crate) struct Row {
    /// The item that differs.
    pub(crate) what: String,
    /// The second column.
    pub(crate) how: String,
    /// The reason.
    pub(crate) why: String,
}

/// The rows of the table in a file; each must have a reason.
pub(crate) fn rows(file: &str) -> anyhow::Result<Vec<Row>> {
    let text = std::fs::read_to_string(format!("{FOLDER}{file}")).with_context(|| file.to_owned())?;
    let rows =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(what, rest)| {
        let (how, why) = rest.rsplit_once(" | ").with_context(|| format!("{what}: three columns"))?;
        ensure!(why.len() > 10, "{what} has no reason");
        Ok(Row { what: what.to_owned(), how: how.to_owned(), why: why.to_owned() })
    })
    .collect()
}
