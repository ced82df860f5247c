//! Text is clean, modules open with a sentence, and nothing in the repository names one machine.

use anyhow::Result;

use crate::problem::Problem;
use crate::workspace::{Workspace, extension_of};

/// Larger files belong in a cache or are generated on demand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Files that are text; everything else is only measured.
const TEXT_EXTENSIONS: [&str; 12] =
    ["rs", "md", "toml", "txt", "sh", "yaml", "yml", "json", "tsv", "go", "mod", "lock"];

/// Beginnings of paths that exist on one machine only. Spelled in halves so that this file does not find itself.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The name to use where an example needs a home directory.
const PLACEHOLDER_USER: &str = "someone";

/// Words that postpone work.
const POSTPONED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// A module is named after what it holds; these names hold anything.
const VAGUE_MODULES: [&str; 5] = ["util", "utils", "helper", "helpers", "misc"];

/// Checks every file of the repository.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for file in workspace.files() {
        let size_bytes = workspace.size_bytes(file)?;
        if size_bytes > FILE_BYTES_MAX {
            problems.push(Problem::of(
                file,
                format!("has {size_bytes} bytes; the repository takes 1 MiB at most"),
            ));
        } else if is_text(file) {
            problems.extend(faults_of(file, &workspace.read(file)?));
        }
    }
    Ok(problems)
}

fn is_text(file: &str) -> bool {
    extension_of(file).is_some_and(|extension| TEXT_EXTENSIONS.contains(&extension)) || file == ".ci/run"
}

fn faults_of(file: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        problems.push(Problem::of(file, "end the file with exactly one line break"));
    }
    for (index, line) in text.lines().enumerate() {
        let faults = line_faults(line);
        problems.extend(faults.into_iter().map(|what| Problem::at(file, index + 1, what)));
    }
    if extension_of(file) == Some("rs") {
        problems.extend(rust_faults(file, text));
    }
    problems
}

fn line_faults(line: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if line.ends_with([' ', '\t', '\r']) {
        faults.push("white space at the end of the line".to_owned());
    }
    for path in MACHINE_PATHS {
        if starts_a_path(line, path) {
            faults.push(format!("`{path}…` exists on one machine only; use a relative path or a variable"));
        }
    }
    for word in POSTPONED {
        if contains_word(line, word) {
            faults.push(format!("{word} has no assignee; do it, or document what is missing and why"));
        }
    }
    faults
}

fn rust_faults(file: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !text.starts_with("//! ") {
        problems.push(Problem::at(
            file,
            1,
            "open with `//! ` and one sentence on what this module keeps true",
        ));
    }
    let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs");
    if VAGUE_MODULES.contains(&stem) {
        problems.push(Problem::of(
            file,
            format!("`{stem}` can hold anything; name the module after what it holds"),
        ));
    }
    problems.extend(unbiased_selects(text).map(|line| {
        Problem::at(
            file,
            line,
            "`select!` without `biased;` is random; state which branch wins, so that a seed can replay it",
        )
    }));
    problems
}

/// Lines of `select!` blocks whose first word is not `biased`.
fn unbiased_selects(text: &str) -> impl Iterator<Item = usize> {
    let opening = concat!("select", "! {");
    text.match_indices(opening).filter_map(move |(at, _)| {
        let rest = text[at + opening.len()..].trim_start();
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let in_comment = text[line_start..at].trim_start().starts_with("//");
        (!rest.starts_with("biased;") && !in_comment).then(|| text[..at].matches('\n').count() + 1)
    })
}

fn starts_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let is_inner = before.is_some_and(|before| before.is_alphanumeric() || "._-~*}>$/".contains(before));
        !is_inner && !line[at + path.len()..].starts_with(PLACEHOLDER_USER)
    })
}

fn contains_word(line: &str, word: &str) -> bool {
    let is_part = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(file: &str, text: &str) -> Vec<String> {
        faults_of(file, text).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_clean_file_has_no_faults() {
        assert_eq!(shown("a.rs", "//! Keeps things clean.\n\nfn a() {}\n"), [""; 0]);
        assert_eq!(
            shown("a.md", concat!("See https://example.com/home/page and target/wo", "rk/x.\n")),
            [""; 0]
        );
        assert_eq!(shown("a.md", concat!("HOME=/ho", "me/someone\n")), [""; 0]);
    }

    #[test]
    fn each_fault_names_its_line() {
        assert!(shown("a.md", "fine\nbad \n")[0].starts_with("a.md:2: white space"));
        assert!(shown("a.md", "no end")[0].contains("exactly one line break"));
        assert!(shown("a.md", concat!("see /ro", "ot/x\n"))[0].contains("one machine only"));
        assert!(shown("a.md", concat!("TO", "DO: more\n"))[0].contains("has no assignee"));
        assert!(shown("a.rs", "fn a() {}\n")[0].starts_with("a.rs:1: open with"));
        assert!(shown("src/utils.rs", "//! All of it.\n")[0].contains("name the module"));
    }

    #[test]
    fn a_select_says_which_branch_wins() {
        let select = |first: &str| {
            format!("//! Waits.\nfn a() {{\n    select{}! {{\n        {first}\n    }}\n}}\n", "")
        };
        assert_eq!(shown("a.rs", &select("biased; x = y => {}")), [""; 0]);
        assert!(shown("a.rs", &select("x = y => {}"))[0].starts_with("a.rs:3: `select!` without"));
    }
}
