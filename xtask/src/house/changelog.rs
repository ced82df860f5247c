//! Every changelog fragment can be read by an operator and sorted by a script.

use anyhow::Result;

use crate::problem::Problem;
use crate::workspace::Workspace;

/// Where fragments wait for the next release.
pub const FOLDER: &str = "changelog.d";

/// What a fragment can be; the kind decides its place in the release notes.
pub const KINDS: [&str; 3] = ["feature", "fix", "change"];

/// A fragment is a paragraph or two, not a report.
const FRAGMENT_LINES_MAX: usize = 15;

/// Checks the name and the text of each fragment.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let prefix = format!("{FOLDER}/");
    let mut problems = Vec::new();
    for file in workspace.files() {
        let Some(name) = file.strip_prefix(&prefix).filter(|name| *name != "README.md") else {
            continue;
        };
        let faults = name_fault(name).into_iter().chain(text_fault(&workspace.read(file)?));
        problems.extend(faults.map(|what| Problem::of(file, what)));
    }
    Ok(problems)
}

fn name_fault(name: &str) -> Option<String> {
    let parts: Vec<_> = name.split('.').collect();
    let [topic, kind, "md"] = parts[..] else {
        return Some(format!("name it TOPIC.KIND.md, where KIND is one of {KINDS:?}"));
    };
    if !KINDS.contains(&kind) {
        return Some(format!("`{kind}` is no kind of change; choose one of {KINDS:?}"));
    }
    let words_are_plain = topic.split('-').all(|word| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    (!words_are_plain).then(|| format!("write the topic `{topic}` in lower case, words joined by `-`"))
}

fn text_fault(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return Some("is empty; state what changes for the operator".to_owned());
    }
    if text.lines().count() > FRAGMENT_LINES_MAX {
        return Some(format!(
            "is longer than {FRAGMENT_LINES_MAX} lines; the details belong in the documentation"
        ));
    }
    if text.lines().any(|line| line.starts_with('#')) {
        return Some("has a heading; release notes bring their own".to_owned());
    }
    (!text.ends_with(['.', '`', ')'])).then(|| "does not end its last sentence".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_topic_kind_md() {
        assert_eq!(name_fault("clusterrole-aggregation.feature.md"), None);
        for bad in ["notes.md", "a.feature.txt", "a.enhancement.md", "A.fix.md", "a--b.fix.md", "a.b.fix.md"]
        {
            assert!(name_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn texts_are_short_sentences() {
        assert_eq!(text_fault("The manager now keeps time.\n"), None);
        for bad in ["\n", "# News\nIt is faster.", "It is faster", &"Line.\n".repeat(16)] {
            assert!(text_fault(bad).is_some(), "{bad}");
        }
    }
}
