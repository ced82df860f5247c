//! The written map names every crate, and every invariant names a test that exists.

use std::collections::BTreeSet;

use anyhow::Result;

use super::crate_map::CRATES;
use crate::problem::Problem;
use crate::source::Source;
use crate::workspace::Workspace;

const MAP: &str = "ARCHITECTURE.md";

/// Under this heading, the last column of the table names tests.
const INVARIANTS: &str = "## Invariants";

/// Compares the map with the crates and the tests.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut functions = BTreeSet::new();
    for file in workspace.rust_files() {
        // A file that does not parse is the business of the rule about sizes.
        if let Ok(source) = Source::parse(&workspace.read(file)?) {
            let scenario = file.starts_with("crates/scenarios/");
            let tests = source.functions.into_iter().filter(|function| function.is_test || scenario);
            functions.extend(tests.map(|function| function.name));
        }
    }
    Ok(judge(&workspace.read(MAP)?, &functions))
}

fn judge(map: &str, tests: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for krate in CRATES.iter().filter(|krate| !map.contains(&format!("\n| `{}` |", krate.name))) {
        problems.push(Problem::of(MAP, format!("the table of crates lacks `{}`", krate.name)));
    }
    let rows = map
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != INVARIANTS)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter(|(_, line)| {
            line.starts_with("| ") && !line.starts_with("| ---") && !line.starts_with("| invariant")
        });
    let mut rows_seen = 0;
    for (index, row) in rows {
        rows_seen += 1;
        let named = tests_named(row);
        if named.is_empty() {
            problems.push(Problem::at(MAP, index + 1, "this invariant names no test that keeps it"));
        }
        for name in named.into_iter().filter(|name| !tests.contains(*name)) {
            problems.push(Problem::at(MAP, index + 1, format!("there is no test `{name}`")));
        }
    }
    if rows_seen == 0 {
        problems.push(Problem::of(MAP, format!("has no invariants under `{INVARIANTS}`")));
    }
    problems
}

/// Names of functions in the last column; other things in backticks have a dot, a slash or a space.
fn tests_named(row: &str) -> Vec<&str> {
    let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
    let quoted = last.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &str) -> Vec<String> {
        let crates: String = CRATES.iter().map(|krate| format!("\n| `{}` | x | - |", krate.name)).collect();
        let map = format!(
            "# Map\n{crates}\n\n{INVARIANTS}\n\n| invariant | verified by |\n| --- | --- |\n{rows}\n## Next\n| a | b |\n"
        );
        judge(&map, &BTreeSet::from(["it_holds".to_owned()]))
            .iter()
            .map(|problem| problem.what.clone())
            .collect()
    }

    #[test]
    fn an_invariant_names_tests_that_exist() {
        assert_eq!(check("| It `holds`. | `it_holds`, and `clippy.toml` |"), [""; 0]);
        assert_eq!(check("| It holds. | `it_held` |"), ["there is no test `it_held`"]);
        assert_eq!(check("| It holds. | good will |"), ["this invariant names no test that keeps it"]);
        assert_eq!(check(""), ["has no invariants under `## Invariants`"]);
    }

    #[test]
    fn the_map_names_every_crate() {
        assert_eq!(judge("", &BTreeSet::new()).len(), CRATES.len() + 1);
    }
}
