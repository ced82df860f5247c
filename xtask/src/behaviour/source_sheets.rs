//! Sheets state the same facts, word for word, as the sheets they were copied from.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::id::Id;
use super::sheet::Sheet;
use crate::problem::Problem;
use crate::workspace::Workspace;

/// Where the source sheets are, beside the repository. A clone without them skips this check.
const SOURCES: &str = "../shared/behaviour";

/// Lists every fact whose text differs from the source sheet and that has no `*Corrected:*` line below it.
pub(super) fn check(workspace: &Workspace, sheets: &[&Sheet]) -> Result<Vec<Problem>> {
    let folder = workspace.root().join(SOURCES);
    let mut problems = Vec::new();
    for sheet in sheets {
        let source = folder.join(format!("{}.md", sheet.name));
        if source.exists() {
            let text = std::fs::read_to_string(&source).with_context(|| source.display().to_string())?;
            problems.extend(differences(sheet, &Sheet::parse(&sheet.file, &text).0));
        }
    }
    Ok(problems)
}

fn differences(sheet: &Sheet, source: &Sheet) -> Vec<Problem> {
    let facts: BTreeMap<_, _> = source.entries.iter().map(|entry| (&entry.id, entry)).collect();
    let mut problems = Vec::new();
    for entry in sheet.entries.iter().filter(|entry| !entry.corrected) {
        match facts.get(&entry.id) {
            None => problems.push(Problem::at(
                &sheet.file,
                entry.line,
                format!("{} is not in the source sheet", entry.id),
            )),
            Some(fact) if fact.text != entry.text => problems.push(Problem::at(
                &sheet.file,
                entry.line,
                format!(
                    "{} differs from the source sheet; copy it verbatim, or quote the running original below it \
                     with `*Corrected:*`",
                    entry.id
                ),
            )),
            Some(_) => {}
        }
    }
    let copied = |id: &Id| sheet.entries.iter().any(|entry| entry.id == *id);
    let missing = source.entries.iter().filter(|fact| !copied(&fact.id));
    problems.extend(missing.map(|fact| Problem::of(&sheet.file, format!("{} is missing", fact.id))));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(lines: &str) -> Sheet {
        Sheet::parse("docs/behaviour/a.md", &format!("# a\nstatus: landed\n{lines}\n")).0
    }

    #[test]
    fn reworded_missing_and_invented_facts_are_problems() {
        let source = sheet("- **A-1** one\n- **A-2** two\n- **A-3** three");
        let copy = sheet("- **A-1** one\n  *Here:* later: pods\n- **A-2** zwei\n- **A-4** four");
        let found: Vec<_> = differences(&copy, &source).iter().map(Problem::to_string).collect();
        assert!(found[0].contains("A-2 differs"), "{found:?}");
        assert!(found[1].contains("A-4 is not in the source"), "{found:?}");
        assert!(found[2].contains("A-3 is missing"), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_corrected_fact_may_differ() {
        let source = sheet("- **A-1** one");
        assert_eq!(differences(&sheet("- **A-1** eins\n  *Corrected:* v1.37.1 sends `eins`"), &source), []);
    }
}
