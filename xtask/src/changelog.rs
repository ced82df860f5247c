//! CHANGELOG.md, collected from the fragments: what an operator can notice in each release.

use anyhow::{Result, ensure};

use crate::house::changelog::{FOLDER, KINDS};
use crate::workspace::Workspace;

/// The collected file.
pub const FILE: &str = "CHANGELOG.md";

/// Separates what is written by hand, the notes of earlier releases, from what is collected.
const END: &str = "<!-- end of the collected notes -->";

/// A fragment: its kind, its topic and its text.
struct Fragment {
    kind: usize,
    topic: String,
    text: String,
}

/// The file as it should be: the notes of this version from the fragments, then those of earlier releases as they are.
///
/// # Errors
/// A fragment cannot be read.
pub fn collected(workspace: &Workspace) -> Result<String> {
    let prefix = format!("{FOLDER}/");
    let mut fragments = Vec::new();
    for file in workspace.files() {
        let parts: Vec<_> = file.strip_prefix(&prefix).unwrap_or_default().split('.').collect();
        let [topic, kind, "md"] = parts[..] else { continue };
        if let Some(kind) = KINDS.iter().position(|known| *known == kind) {
            let text = workspace.read(file)?.trim().to_owned();
            fragments.push(Fragment { kind, topic: topic.to_owned(), text });
        }
    }
    let earlier = workspace.read(FILE).unwrap_or_default();
    Ok(render(env!("CARGO_PKG_VERSION"), fragments, &earlier))
}

/// The file, if it contains every fragment as it is now. Between releases it may lag behind: that is what fragments are for.
///
/// # Errors
/// A fragment was added, changed or removed since the file was written.
pub fn current(workspace: &Workspace) -> Result<String> {
    same(workspace.read(FILE)?, &collected(workspace)?)
}

fn same(kept: String, collected: &str) -> Result<String> {
    ensure!(
        kept == collected,
        "{FILE} is older than the fragments; run `cargo xtask changelog --write` and commit it"
    );
    Ok(kept)
}

fn render(version: &str, mut fragments: Vec<Fragment>, present: &str) -> String {
    fragments.sort_by(|one, other| (one.kind, &one.topic).cmp(&(other.kind, &other.topic)));
    let mut text = format!(
        "# Changelog\n\nWhat an operator can notice. `cargo xtask changelog --write` collects it from the fragments in \
         [{FOLDER}]({FOLDER}/README.md).\n\n## {version}, not released yet\n"
    );
    for (kind, heading) in ["New", "Fixed", "Changed"].iter().enumerate() {
        let mut of_kind = fragments.iter().filter(|fragment| fragment.kind == kind).peekable();
        if of_kind.peek().is_some() {
            text.push_str(&format!("\n### {heading}\n\n"));
        }
        for fragment in of_kind {
            text.push_str(&item(&fragment.text));
        }
    }
    let earlier = present.split_once(END).map_or("\n", |(_, earlier)| earlier);
    text + "\n" + END + earlier
}

/// A list item; the lines of further paragraphs belong to it by their indent.
fn item(text: &str) -> String {
    let lines = text.lines().enumerate().map(|(at, line)| match (at, line) {
        (0, line) => format!("- {line}\n"),
        (_, "") => "\n".to_owned(),
        (_, line) => format!("  {line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(kind: usize, topic: &str, text: &str) -> Fragment {
        Fragment { kind, topic: topic.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn notes_are_sorted_by_kind_and_topic() {
        let fragments = vec![
            fragment(1, "b", "B was wrong."),
            fragment(0, "z", "Z.\n\nMore of it."),
            fragment(0, "a", "A."),
        ];
        let text = render("1.2.0", fragments, "");
        let notes = text.split_once("not released yet\n").unwrap().1;
        assert_eq!(
            notes,
            format!("\n### New\n\n- A.\n- Z.\n\n  More of it.\n\n### Fixed\n\n- B was wrong.\n\n{END}\n")
        );
    }

    #[test]
    fn notes_of_earlier_releases_stay() {
        let text =
            render("1.2.0", vec![fragment(0, "a", "A.")], &format!("old\n{END}\n\n## 1.1.0\n\nAs it was.\n"));
        assert!(text.ends_with(&format!("- A.\n\n{END}\n\n## 1.1.0\n\nAs it was.\n")), "{text}");
    }

    #[test]
    fn outdated_file_stops_a_release() {
        assert!(same("# Changelog\n- A.\n".to_owned(), "# Changelog\n- A.\n").is_ok());
        let error = same("# Changelog\n- A.\n".to_owned(), "# Changelog\n- A.\n- B.\n").unwrap_err();
        assert!(error.to_string().contains("cargo xtask changelog --write"), "{error}");
    }

    #[test]
    fn every_fragment_is_collected() {
        let workspace = Workspace::open().unwrap();
        let text = collected(&workspace).unwrap();
        let fragments = workspace.files().filter(|file| file.starts_with(FOLDER)).count() - 1;
        assert_eq!(text.lines().filter(|line| line.starts_with("- ")).count(), fragments);
    }
}
