//! Claims are read from doc comments above tests and scenarios; a claim on anything else is a problem.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::id::Id;
use crate::problem::Problem;
use crate::source::{Function, Source};
use crate::workspace::Workspace;

/// How a claim begins. It ends with a full stop, or where an explanation begins.
const OPENING: &str = "Proves ";

/// Scenarios are plain functions that their crate's own runner calls, so they carry no test attribute.
const SCENARIOS: &str = "crates/scenarios/";

/// One test that says it proves one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it says it proves.
    pub id: Id,
    /// The name of the test.
    pub test: String,
    /// Its file.
    pub file: String,
    /// The line of the claim.
    pub line: usize,
}

/// Reads the claims of all sources.
pub(super) fn gather(workspace: &Workspace) -> Result<(Vec<Claim>, Vec<Problem>)> {
    let mut texts = BTreeMap::new();
    for file in workspace.rust_files() {
        texts.insert(file.to_owned(), workspace.read(file)?);
    }
    let scenario_words = words_of_scenarios(&texts);
    let (mut claims, mut problems) = (Vec::new(), Vec::new());
    for (file, text) in &texts {
        let (found, faults) = claims_of(file, text, &scenario_words);
        claims.extend(found);
        problems.extend(faults);
    }
    Ok((claims, problems))
}

/// How often each name occurs in the code of the scenarios crate: a registered scenario occurs at least twice.
fn words_of_scenarios(texts: &BTreeMap<String, String>) -> BTreeMap<String, usize> {
    let mut words = BTreeMap::new();
    for text in texts.iter().filter(|(file, _)| file.starts_with(SCENARIOS)).map(|(_, text)| text) {
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            for word in line.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
                *words.entry(word.to_owned()).or_default() += 1;
            }
        }
    }
    words
}

fn claims_of(file: &str, text: &str, scenario_words: &BTreeMap<String, usize>) -> (Vec<Claim>, Vec<Problem>) {
    let (mut claims, mut problems) = (Vec::new(), Vec::new());
    let source = match Source::parse(text) {
        Ok(source) => source,
        Err(error) => {
            return (claims, vec![Problem::of(file, format!("does not parse: {error}"))]);
        }
    };
    let mut attached = BTreeSet::new();
    for function in &source.functions {
        for (line, sentence) in sentences(function) {
            attached.insert(line);
            let fault = fault_of(file, function, scenario_words);
            problems.extend(fault.map(|what| Problem::at(file, line, format!("`{}` {what}", function.name))));
            match ids_in(&sentence) {
                Ok(ids) => claims.extend(ids.into_iter().map(|id| Claim {
                    id,
                    test: function.name.clone(),
                    file: file.to_owned(),
                    line,
                })),
                Err(word) => problems.push(Problem::at(
                    file,
                    line,
                    format!("`{word}` is no id; list each id by itself: `Proves ABC-1, ABC-2.`"),
                )),
            }
        }
    }
    for (index, line) in text.lines().enumerate() {
        let is_claim = line.trim_start().strip_prefix("/// ").is_some_and(|doc| doc.starts_with(OPENING));
        if is_claim && !attached.contains(&(index + 1)) {
            problems.push(Problem::at(
                file,
                index + 1,
                "this claim stands above no function, so it proves nothing",
            ));
        }
    }
    (claims, problems)
}

/// Why a claim on this function proves nothing.
fn fault_of(
    file: &str,
    function: &Function,
    scenario_words: &BTreeMap<String, usize>,
) -> Option<&'static str> {
    let registered = scenario_words.get(&function.name).is_some_and(|count| *count > 1);
    match function {
        Function { is_ignored: true, .. } => Some("is ignored, so it proves nothing"),
        Function { is_test: true, .. } => None,
        _ if !file.starts_with(SCENARIOS) => Some("is not a test, so it proves nothing"),
        _ if !registered => Some("is not registered with the scenarios, so nothing runs it"),
        _ => None,
    }
}

/// The claims in a doc comment, each with the line it begins on.
fn sentences(function: &Function) -> Vec<(usize, String)> {
    let starts = function.docs.iter().enumerate().filter(|(_, (_, text))| text.starts_with(OPENING));
    starts
        .map(|(index, (line, _))| {
            let rest: Vec<_> = function.docs[index..].iter().map(|(_, text)| text.as_str()).collect();
            let text = rest.join(" ");
            let list = &text[OPENING.len()..];
            let end = list.find(". ").or_else(|| list.strip_suffix('.').map(str::len)).unwrap_or(list.len());
            let end = list.find([':', ';', '(']).map_or(end, |at| at.min(end));
            (*line, list[..end].to_owned())
        })
        .collect()
}

fn ids_in(list: &str) -> Result<Vec<Id>, String> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and");
    let ids: Vec<Id> =
        words.map(|word| word.parse().map_err(|_| word.to_owned())).collect::<Result<_, _>>()?;
    if ids.is_empty() { Err(list.to_owned()) } else { Ok(ids) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let texts = BTreeMap::from([(file.to_owned(), text.to_owned())]);
        let (claims, problems) = claims_of(file, text, &words_of_scenarios(&texts));
        let claims = claims.iter().map(|claim| format!("{} {}", claim.test, claim.id)).collect();
        (claims, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn a_test_claims_the_ids_of_its_sentence() {
        let text = "/// Shows more.\n///\n/// Proves A-1, A-2 and\n/// A-3. Not A-4.\n#[tokio::test]\nasync fn t() {}\n";
        let text = format!("{text}/// Proves B-1: see A-9.\n#[test]\nfn u() {{}}\n");
        assert_eq!(
            check("a.rs", &text),
            (vec!["t A-1".into(), "t A-2".into(), "t A-3".into(), "u B-1".into()], vec![])
        );
    }

    #[test]
    fn a_claim_needs_a_test_that_runs() {
        assert!(check("a.rs", "/// Proves A-1.\nfn t() {}\n").1[0].contains("is not a test"));
        assert!(
            check("a.rs", "/// Proves A-1.\n#[test]\n#[ignore]\nfn t() {}\n").1[0].contains("is ignored")
        );
        assert!(
            check("a.rs", "/// Proves A-1.\nconst T: u8 = 1;\n").1[0]
                .starts_with("a.rs:1: this claim stands")
        );
    }

    #[test]
    fn a_scenario_counts_once_it_is_registered() {
        let text = "/// Proves A-1.\nfn swap() {}\n";
        let file = "crates/scenarios/src/swap.rs";
        assert!(check(file, text).1[0].contains("is not registered"));
        let registered = format!("{text}const ALL: &[fn()] = &[swap];\n");
        assert_eq!(check(file, &registered), (vec!["swap A-1".into()], vec![]));
    }

    #[test]
    fn ids_are_listed_one_by_one() {
        for list in ["A-1..A-3", "A-1-3", "everything", ""] {
            let problems = check("a.rs", &format!("/// Proves {list}.\n#[test]\nfn t() {{}}\n")).1;
            assert_eq!(problems.len(), 1, "{list}: {problems:?}");
        }
    }
}
