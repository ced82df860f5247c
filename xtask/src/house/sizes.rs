//! Functions fit on a screen and modules in a head; what is larger is recorded and may only shrink.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::problem::Problem;
use crate::source::Source;
use crate::workspace::Workspace;

/// Physical lines from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of code of one file; its test module is measured apart, by the same limit.
const MODULE_LINES_MAX: usize = 800;

/// Where the exceptions are recorded.
const RATCHETS: &str = "xtask/ratchets.txt";

/// Sizes above a limit, by what they belong to: `fn FILE NAME`, `mod FILE` or `tests FILE`.
type Oversized = BTreeMap<String, usize>;

/// Compares the sizes of today with the limits and the recorded exceptions.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut found = Oversized::new();
    let mut problems = Vec::new();
    for file in workspace.rust_files() {
        match Source::parse(&workspace.read(file)?) {
            Ok(source) => found.extend(oversized(file, &source)),
            Err(error) => problems.push(Problem::of(file, format!("does not parse: {error}"))),
        }
    }
    let recorded = parse(&workspace.read(RATCHETS)?)?;
    problems.extend(judge(&found, &recorded));
    Ok(problems)
}

fn oversized(file: &str, source: &Source) -> Oversized {
    let functions = source
        .functions
        .iter()
        .filter(|function| function.lines > FUNCTION_LINES_MAX)
        .map(|function| (format!("fn {file} {}", function.name), function.lines));
    let modules = [("mod", source.code_lines), ("tests", source.test_lines)]
        .into_iter()
        .filter(|(_, lines)| *lines > MODULE_LINES_MAX)
        .map(|(kind, lines)| (format!("{kind} {file}"), lines));
    functions.chain(modules).collect()
}

/// Reads lines such as `fn crates/x/src/y.rs name 83`; `#` starts a comment.
fn parse(text: &str) -> Result<Oversized> {
    let entries = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    entries
        .map(|line| {
            let (what, lines) =
                line.rsplit_once(' ').with_context(|| format!("{RATCHETS}: no size in `{line}`"))?;
            let lines =
                lines.parse().with_context(|| format!("{RATCHETS}: no number at the end of `{line}`"))?;
            Ok((what.to_owned(), lines))
        })
        .collect()
}

fn judge(found: &Oversized, recorded: &Oversized) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (what, lines) in found {
        match recorded.get(what) {
            None => problems.push(Problem::of(
                what,
                format!(
                    "has {lines} lines; a function may have {FUNCTION_LINES_MAX}, a module {MODULE_LINES_MAX}"
                ),
            )),
            Some(limit) if lines > limit => {
                problems.push(Problem::of(
                    what,
                    format!("grew from {limit} to {lines} lines; it may only shrink"),
                ));
            }
            Some(limit) if lines < limit => problems.push(Problem::of(
                what,
                format!("shrank to {lines} lines; lower its record of {limit} in {RATCHETS}"),
            )),
            Some(_) => {}
        }
    }
    for what in recorded.keys().filter(|what| !found.contains_key(*what)) {
        problems
            .push(Problem::of(what, format!("keeps to the limits now; remove its record from {RATCHETS}")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(entries: &[(&str, usize)]) -> Oversized {
        entries.iter().map(|(what, lines)| ((*what).to_owned(), *lines)).collect()
    }

    #[test]
    fn a_long_function_and_a_long_module_are_found() {
        let body = "    wave();\n".repeat(FUNCTION_LINES_MAX - 1);
        let source = Source::parse(&format!("fn long() {{\n{body}}}\nfn short() {{}}\n")).unwrap();
        assert_eq!(oversized("a.rs", &source), sizes(&[("fn a.rs long", FUNCTION_LINES_MAX + 1)]));

        let constants: String = (0..=MODULE_LINES_MAX).map(|n| format!("const A{n}: u8 = 0;\n")).collect();
        let source = Source::parse(&constants).unwrap();
        assert_eq!(oversized("a.rs", &source), sizes(&[("mod a.rs", MODULE_LINES_MAX + 1)]));
        let source = Source::parse(&format!("#[cfg(test)]\nmod tests {{\n{constants}}}\n")).unwrap();
        assert_eq!(oversized("a.rs", &source), sizes(&[("tests a.rs", MODULE_LINES_MAX + 3)]));
    }

    #[test]
    fn a_record_may_only_shrink_and_must_be_exact() {
        let check = |found: &[(&str, usize)], recorded: &[(&str, usize)]| {
            judge(&sizes(found), &sizes(recorded)).iter().map(Problem::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check(&[("fn a.rs f", 80)], &[("fn a.rs f", 80)]), [""; 0]);
        assert!(check(&[("fn a.rs f", 80)], &[])[0].contains("has 80 lines"));
        assert!(check(&[("fn a.rs f", 81)], &[("fn a.rs f", 80)])[0].contains("grew from 80 to 81"));
        assert!(check(&[("fn a.rs f", 79)], &[("fn a.rs f", 80)])[0].contains("lower its record"));
        assert!(check(&[], &[("fn a.rs f", 80)])[0].contains("remove its record"));
    }

    #[test]
    fn records_are_read_line_by_line() {
        assert_eq!(
            parse("# why\n\nfn a.rs f 80\nmod b.rs 900\n").unwrap(),
            sizes(&[("fn a.rs f", 80), ("mod b.rs", 900)])
        );
        assert!(parse("fn a.rs f many").is_err());
    }
}
