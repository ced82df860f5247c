//! Names, comments and docs use upstream's vocabulary: a list of words with the one to use instead.

use anyhow::Result;

use crate::problem::Problem;
use crate::workspace::{Workspace, extension_of};

/// A word, spelled in halves so that this file does not find itself, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    (concat!("afr", "esh"), "`live read`, `relist` or `again`"),
    (concat!("ane", "w"), "`again` or `recreate`"),
    (concat!("who", "ever"), "the subject's name: the caller, the controller, the leader"),
    (concat!("some", "body"), "the subject's name: the user, another client"),
    (concat!("no", "body"), "the subject's name: no user, no controller, no process"),
    (concat!("am", "end"), "`patch` or `change`"),
    (concat!("de", "ed"), "`action` or `write`"),
    (concat!("de", "eds"), "`actions` or `writes`"),
    (concat!("me", "nd"), "`fix`"),
    (concat!("me", "nds"), "`fixes`"),
    (concat!("me", "nded"), "`fixed`"),
    (concat!("te", "lls"), "`reports`, `writes the status`, `records an event` or `observes a metric`"),
    (concat!("to", "ld"), "`reported`, `received` or `configured`"),
    (concat!("tel", "ling"), "`status_urgency` or the exact verb"),
    (concat!("far", "es"), "`performs`"),
    (concat!("ha", "ste"), "`qps_multiplier`"),
    (concat!("cro", "wds"), "`active_pods_per_node`"),
    (concat!("wok", "en"), "`enqueued` or `notified`"),
    (concat!("wa", "kes"), "`enqueues` or `notifies`"),
    (concat!("rou", "se"), "`requeue_all`"),
    (concat!("sti", "rs"), "`effects`"),
    (concat!("med", "dling"), "`user_interference`"),
    (concat!("misfor", "tune"), "`fault`"),
    (concat!("misfor", "tunes"), "`faults`"),
    (concat!("care", "less"), "`mutant`"),
    (concat!("fare", "well"), "`shutdown`"),
];

/// Phrases, likewise.
const PHRASES: &[(&str, &str)] = &[
    (concat!("on its way", " out"), "`terminating`"),
    (concat!("has come", " as far"), "`has observed resourceVersion N`"),
    (concat!("lets", " go of"), "`releases` or `removes the finalizer`"),
    (concat!("let", "_go"), "`release` or `remove_finalizer`"),
    (concat!("strike", "_off"), "`roll_back`"),
    (concat!("is looked", " at"), "`is read` or `is checked`"),
];

/// Texts of others, copied verbatim.
const VERBATIM: &[&str] = &["docs/behaviour/", "crates/options/tests/recorded/", "LICENSE"];

/// Checks all sources and documents.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let is_prose = |file: &str| matches!(extension_of(file), Some("rs" | "md" | "toml")) || file == ".ci/run";
    let is_ours = |file: &str| !VERBATIM.iter().any(|verbatim| file.starts_with(verbatim));
    for file in workspace.files().filter(|file| is_prose(file) && is_ours(file)) {
        for (index, line) in workspace.read(file)?.lines().enumerate() {
            problems.extend(faults_of(line).into_iter().map(|what| Problem::at(file, index + 1, what)));
        }
    }
    Ok(problems)
}

fn faults_of(line: &str) -> Vec<String> {
    // A name on the wire is not ours to change without a new format.
    if line.contains("#[serde(rename =") {
        return Vec::new();
    }
    let lower = line.to_lowercase();
    let phrases = PHRASES.iter().filter(|(phrase, _)| lower.contains(phrase));
    let mut faults: Vec<_> = phrases.map(|(phrase, instead)| fault(phrase, instead)).collect();
    for word in words_of(line) {
        faults.extend(WORDS.iter().find(|(bad, _)| *bad == word).map(|(bad, instead)| fault(bad, instead)));
    }
    faults
}

fn fault(word: &str, instead: &str) -> String {
    format!("`{word}` is private language; write {instead}")
}

/// The words of a line in lower case: identifiers are split at underscores and capital letters.
fn words_of(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().into_iter().for_each(|word| word.extend(letter.to_lowercase()));
        }
        after_lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_prose_and_identifiers() {
        for line in
            [concat!("// Afr", "esh."), concat!("fn to", "ld_twice()"), concat!("struct UserDe", "ed;")]
        {
            assert_eq!(faults_of(line).len(), 1, "{line}");
        }
        assert!(faults_of(concat!("a pod on its way", " out"))[0].contains("`terminating`"));
    }

    #[test]
    fn longer_words_that_contain_one_are_fine() {
        assert_eq!(faults_of("an amended indeed, threshold, newly, stateless"), [""; 0]);
    }
}
