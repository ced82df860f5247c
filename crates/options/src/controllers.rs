//! Which controllers run: the first entry of `--controllers` that names a controller decides.

use crate::go_text::quote;

/// A controller that `--controllers` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// The canonical name.
    pub name: &'a str,
    /// The alias; empty if it has none.
    pub alias: &'a str,
    /// Whether `*` enables it.
    pub on_by_default: bool,
}

/// The value of `--controllers`, with aliases replaced by canonical names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledControllers {
    entries: Vec<String>,
}

impl EnabledControllers {
    /// Replaces aliases. Unknown names stay; [`problems`] reports them.
    pub(crate) fn new(given: &[String], known: &[Controller<'_>]) -> Self {
        let canonical = |entry: &String| match entry.strip_prefix('-') {
            Some(name) => format!("-{}", canonical(name, known)),
            None => canonical(entry, known).to_owned(),
        };
        Self { entries: given.iter().map(canonical).collect() }
    }

    /// The entries with canonical names, as in `/configz`.
    #[must_use]
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// Whether the controller of this canonical name runs.
    #[must_use]
    pub fn enables(&self, name: &str, on_by_default: bool) -> bool {
        for entry in &self.entries {
            if entry == name {
                return true;
            }
            if entry.strip_prefix('-') == Some(name) {
                return false;
            }
        }
        on_by_default && self.entries.iter().any(|entry| entry == "*")
    }
}

/// The errors of entries that name no controller, in the spelling of the command line.
pub(crate) fn problems(given: &[String], known: &[Controller<'_>]) -> Vec<String> {
    let unknown = |entry: &String| {
        let name = entry.strip_prefix('-').unwrap_or(entry);
        let is_known =
            entry == "*" || known.iter().any(|controller| controller.name == canonical(name, known));
        (!is_known).then(|| format!("{} is not in the list of known controllers", quote(name)))
    };
    given.iter().filter_map(unknown).collect()
}

fn canonical<'a>(name: &'a str, known: &[Controller<'a>]) -> &'a str {
    let by_alias = |controller: &&Controller<'a>| !name.is_empty() && controller.alias == name;
    known.iter().find(by_alias).map_or(name, |controller| controller.name)
}
