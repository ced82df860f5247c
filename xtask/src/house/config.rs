//! Every crate inherits the workspace lints, and the pure crates share one strict clippy.toml.

use anyhow::Result;

use super::crate_map::CRATES;
use crate::problem::Problem;
use crate::workspace::Workspace;

/// Compares manifests and lint files.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for manifest in workspace.files().filter(|file| is_member_manifest(file)) {
        if !inherits_lints(&workspace.read(manifest)?) {
            problems
                .push(Problem::of(manifest, "inherit the house lints: `[lints]` with `workspace = true`"));
        }
    }
    let mut strict: Option<(String, String)> = None;
    for krate in CRATES.iter().filter(|krate| krate.pure) {
        let file = format!("crates/{}/clippy.toml", krate.name);
        if !workspace.files().any(|known| known == file) {
            problems.push(Problem::of(
                &file,
                "a pure crate needs the strict lints; copy them from another pure crate",
            ));
            continue;
        }
        let text = workspace.read(&file)?;
        match &strict {
            Some((first, wanted)) if *wanted != text => {
                problems.push(Problem::of(
                    &file,
                    format!("differs from {first}; the pure crates share one text"),
                ));
            }
            Some(_) => {}
            None => strict = Some((file, text)),
        }
    }
    Ok(problems)
}

fn is_member_manifest(file: &str) -> bool {
    file == "xtask/Cargo.toml" || (file.starts_with("crates/") && file.ends_with("/Cargo.toml"))
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.any(|line| line == "[lints]") && lines.next() == Some("workspace = true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_must_be_inherited_by_the_lints_table() {
        assert!(inherits_lints("[package]\n\n[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[package]\nname = \"x\"\n"));
        assert!(!inherits_lints("[lints]\n\n[dependencies]\nworkspace = true\n"));
    }
}
