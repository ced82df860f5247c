//! Every numbered behaviour is proved by a test that names it, or carries the reason why not.

mod claims;
mod coverage;
mod deviations;
mod id;
mod later;
mod sheet;
mod source_sheets;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

pub use claims::Claim;
pub use coverage::{Coverage, Verdict};
pub use id::Id;
pub use sheet::{Entry, Excuse, Sheet, Status};

use crate::problem::Problem;
use crate::workspace::Workspace;

/// Where the sheets live.
const SHEETS: &str = "docs/behaviour";

/// The generated overview beside them.
pub const OVERVIEW: &str = "docs/behaviour/COVERAGE.md";

/// The generated page of all deviations.
pub const DEVIATIONS: &str = "docs/differences/sheets.md";

/// Files of the folder that are not sheets.
const NOT_SHEETS: [&str; 2] = ["README.md", "COVERAGE.md"];

/// All sheets, all claims, and what is wrong with either.
pub struct Behaviour {
    /// Every sheet compared with the claims of the tests.
    pub coverages: Vec<Coverage>,
    /// Malformed sheets, claims that prove nothing, unknown ids.
    pub problems: Vec<Problem>,
}

impl Behaviour {
    /// Reads the sheets and the tests of the workspace.
    pub fn gather(workspace: &Workspace) -> Result<Self> {
        let (mut sheets, mut problems) = (Vec::new(), Vec::new());
        for file in workspace.files_in(SHEETS, "md") {
            let name = file.rsplit('/').next().unwrap_or(file);
            if !NOT_SHEETS.contains(&name) {
                let (sheet, faults) = Sheet::parse(file, &workspace.read(file)?);
                sheets.push(sheet);
                problems.extend(faults);
            }
        }
        let (claims, faults) = claims::gather(workspace)?;
        problems.extend(faults);
        problems.extend(shared_prefixes(&sheets));
        problems.extend(unknown_ids(&sheets, &claims));
        let coverages = sheets.into_iter().map(|sheet| Coverage::of(sheet, &claims)).collect();
        Ok(Self { coverages, problems })
    }

    /// The coverage of one sheet, by its file name without the ending or by its prefix.
    pub fn sheet(&self, name: &str) -> Result<&Coverage> {
        let found = self.coverages.iter().find(|coverage| coverage.sheet.is_called(name));
        let Some(found) = found else {
            let known: Vec<_> = self.coverages.iter().map(|coverage| coverage.sheet.name.as_str()).collect();
            bail!("there is no sheet `{name}`; there are: {}", known.join(", "));
        };
        Ok(found)
    }

    /// The text of the overview.
    pub fn overview(&self) -> String {
        coverage::overview(&self.coverages)
    }

    /// The generated pages, each with its file.
    pub fn pages(&self) -> [(&'static str, String); 2] {
        let sheets: Vec<_> = self.coverages.iter().map(|coverage| &coverage.sheet).collect();
        [(OVERVIEW, self.overview()), (DEVIATIONS, deviations::page(&sheets))]
    }
}

/// Finds everything that is wrong with sheets, claims and the overview.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let behaviour = Behaviour::gather(workspace)?;
    let mut problems = behaviour.problems.clone();
    problems.extend(behaviour.coverages.iter().flat_map(Coverage::problems));
    let sheets: Vec<_> = behaviour.coverages.iter().map(|coverage| &coverage.sheet).collect();
    problems.extend(source_sheets::check(workspace, &sheets)?);
    problems.extend(later::check(workspace, &sheets)?);
    for (file, text) in behaviour.pages() {
        if workspace.read(file).ok().as_deref() != Some(&text) {
            problems.push(Problem::of(file, "is out of date; run `cargo xtask behaviour --write`"));
        }
    }
    Ok(problems)
}

fn shared_prefixes(sheets: &[Sheet]) -> Vec<Problem> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for sheet in sheets {
        if let Some(first) = seen.insert(&sheet.prefix, &sheet.file) {
            problems
                .push(Problem::of(&sheet.file, format!("shares the prefix {} with {first}", sheet.prefix)));
        }
    }
    problems
}

fn unknown_ids(sheets: &[Sheet], claims: &[Claim]) -> Vec<Problem> {
    let is_known = |id: &Id| sheets.iter().any(|sheet| sheet.entries.iter().any(|entry| entry.id == *id));
    let unknown = claims.iter().filter(|claim| !is_known(&claim.id));
    unknown
        .map(|claim| {
            let what = format!("`{}` claims to prove {}, which no sheet has", claim.test, claim.id);
            Problem::at(&claim.file, claim.line, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_of_an_unknown_id_is_a_problem() {
        let (sheet, _) = Sheet::parse("docs/behaviour/a.md", "# a\nstatus: landed\n\n- **A-1** is\n");
        let claim = |number: &str| Claim {
            id: number.parse().unwrap(),
            test: "t".to_owned(),
            file: "x.rs".to_owned(),
            line: 3,
        };
        let problems = unknown_ids(&[sheet], &[claim("A-1"), claim("A-2"), claim("B-1")]);
        assert_eq!(problems.len(), 2);
        assert_eq!(problems[0].to_string(), "x.rs:3: `t` claims to prove A-2, which no sheet has");
    }

    #[test]
    fn two_sheets_may_not_share_a_prefix() {
        let sheet = |file: &str| Sheet::parse(file, "# a\nstatus: landed\n\n- **A-1** is\n").0;
        assert_eq!(shared_prefixes(&[sheet("a.md"), sheet("b.md")]).len(), 1);
    }
}
