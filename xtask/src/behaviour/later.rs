//! An excuse `later: PART` names a part that has not landed: a controller of the original that is not in the registry, or
//! a feature gate that nothing asks for. Nor may any other `*Here:*` line say in free words that a part is missing: no check
//! would notice when it lands.

use std::collections::BTreeSet;

use anyhow::Result;

use super::sheet::{Excuse, Sheet};
use crate::problem::Problem;
use crate::workspace::Workspace;

/// Where controllers are declared, and where gates are asked for.
const CONTROLLERS: &str = "crates/controllers/src";
const GATES: &str = "crates/manager/src";

/// What a note may not say about a part: `later: PART` is checked, these words are not.
const UNCHECKED: [&str; 4] =
    ["has not landed", "have not landed", "not implemented yet", "not yet implemented"];

/// The controllers and gates that have landed.
#[derive(Default)]
struct Landed {
    controllers: BTreeSet<String>,
    gates: BTreeSet<String>,
}

/// Finds excuses that name a landed part, or none.
pub(super) fn check(workspace: &Workspace, sheets: &[&Sheet]) -> Result<Vec<Problem>> {
    let mut landed = Landed::default();
    for file in workspace.files_in(CONTROLLERS, "rs") {
        let text = workspace.read(file)?;
        for call in ["Controller::new(", "NAME: &str = "] {
            landed.controllers.extend(literals_after(&text, call));
        }
    }
    for file in workspace.files_in(GATES, "rs") {
        landed.gates.extend(literals_after(&workspace.read(file)?, ".enabled("));
    }
    Ok(sheets.iter().flat_map(|sheet| problems(sheet, &landed)).collect())
}

/// The string literals right after a call.
fn literals_after<'a>(text: &'a str, call: &'a str) -> impl Iterator<Item = String> + 'a {
    let arguments = text.split(call).skip(1);
    arguments.filter_map(|rest| Some(rest.strip_prefix('"')?.split_once('"')?.0.to_owned()))
}

fn problems(sheet: &Sheet, landed: &Landed) -> Vec<Problem> {
    let mut problems = Vec::new();
    for entry in &sheet.entries {
        let says = |words: &&&str| entry.notes.iter().any(|note| note.to_lowercase().contains(**words));
        problems.extend(UNCHECKED.iter().find(says).map(|words| {
            let what = format!("{} says \"{words}\"; write `later: PART`, which is checked", entry.id);
            Problem::at(&sheet.file, entry.line, what)
        }));
        let Some(Excuse::Later(part)) = &entry.excuse else { continue };
        let (controllers, gates) = (controllers_in(part), gates_in(part));
        let has_landed = controllers
            .iter()
            .filter(|name| landed.controllers.contains(**name))
            .chain(gates.iter().filter(|name| landed.gates.contains(**name)));
        problems.extend(has_landed.map(|name| {
            let what = format!("{} waits for {name}, which has landed: prove it", entry.id);
            Problem::at(&sheet.file, entry.line, what)
        }));
        if controllers.is_empty() && gates.is_empty() {
            let what = format!("{} is excused by \"later\" without a controller or a gate", entry.id);
            problems.push(Problem::at(&sheet.file, entry.line, what));
        }
    }
    problems
}

/// The words that are names of controllers.
fn controllers_in(part: &str) -> Vec<&str> {
    let words = part.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
    words.filter(|word| word.ends_with("-controller")).collect()
}

/// The words in backticks after `gate`.
fn gates_in(part: &str) -> Vec<&str> {
    part.split("gate `").skip(1).filter_map(|rest| Some(rest.split_once('`')?.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(excuse: &str) -> Vec<String> {
        let text = format!("# a\nstatus: landed\n\n- **A-1** is\n  *Here:* {excuse}\n");
        let (sheet, _) = Sheet::parse("docs/behaviour/a.md", &text);
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let landed =
            Landed { controllers: set(&["job-controller"]), gates: set(&["JobPodReplacementPolicy"]) };
        problems(&sheet, &landed).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_excuse_names_a_part_that_has_not_landed() {
        assert!(lines("later: cronjob-controller").is_empty());
        assert!(lines("later: gate `WorkloadWithJob`, off by default").is_empty());
        assert!(lines("left out: job-controller").is_empty());
        assert!(lines("job-controller does it otherwise").is_empty());
        let waits = "docs/behaviour/a.md:4: A-1 waits for job-controller, which has landed: prove it";
        assert_eq!(lines("later: cronjob-controller, job-controller"), [waits]);
        assert_eq!(lines("later: gate `JobPodReplacementPolicy`").len(), 1);
        for vague in ["later: leader migration", "later: garbage-collector", "later: with each controller"] {
            assert!(lines(vague)[0].contains("without a controller or a gate"), "{vague}");
        }
    }

    #[test]
    fn a_note_does_not_say_in_free_words_that_a_part_is_missing() {
        for words in [
            "QPS is not limited; job-controller has not landed",
            "left out: the controllers that share it have not landed",
            "Not implemented yet",
            "it is not yet implemented",
        ] {
            let found = lines(words);
            assert!(found.len() == 1 && found[0].contains("write `later: PART`"), "{words}: {found:?}");
        }
        assert!(lines("the pod has landed on a node").is_empty());
    }

    #[test]
    fn names_are_read_from_calls() {
        let text =
            "Controller::new(\"a-controller\").x() Controller::new(NAME) Controller::new(\"b-controller\")";
        assert_eq!(
            literals_after(text, "Controller::new(").collect::<Vec<_>>(),
            ["a-controller", "b-controller"]
        );
    }
}
