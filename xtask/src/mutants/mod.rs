//! Mutation testing: changes one operator or one function body at a time and lists the changes that no test notices.
//!
//! All sampled mutants are compiled into one program, each behind a check of the environment variable `MUTANT`, so that
//! a crate is built once and not once per mutant, which takes hours (cargo-mutants would). What is inside of macro calls
//! and constants is not changed.

mod find;
mod render;
mod run;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use xtask::workspace::Workspace;

/// The options of `cargo xtask mutants`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder of the crate below crates, such as `controllers`
    package: String,
    /// How many mutants are tried
    #[arg(long, default_value_t = 200)]
    sample: usize,
    /// Which ones: a seed of their random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only files whose path contains this
    #[arg(long)]
    only: Option<String>,
    /// Lists the mutants and tries none
    #[arg(long)]
    list: bool,
}

/// One change of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The file, relative to the repository.
    pub(crate) file: String,
    /// The line where it begins.
    pub(crate) line: usize,
    /// The bytes that it replaces.
    pub(crate) range: Range<usize>,
    /// The change.
    pub(crate) change: Change,
}

/// What a mutant changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Another operator between the operands, whose ranges include the operator's surroundings.
    Operator { left: Range<usize>, right: Range<usize>, from: &'static str, to: &'static str },
    /// The operand without its `!`.
    Not { operand: Range<usize> },
    /// The function returns this at once.
    Body { function: String, value: &'static str },
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        match &self.change {
            Change::Operator { from, to, .. } => write!(f, "replace {from} by {to}"),
            Change::Not { .. } => write!(f, "delete !"),
            Change::Body { function, value: "" } => write!(f, "{function} does nothing"),
            Change::Body { function, value } => write!(f, "{function} returns {value}"),
        }
    }
}

impl Options {
    /// Tries the mutants and prints those that no test notices.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<ExitCode> {
        let folder = format!("crates/{}/src/", self.package);
        let wanted = |file: &&str| {
            file.starts_with(&folder) && self.only.as_ref().is_none_or(|part| file.contains(part.as_str()))
        };
        let files: Vec<&str> = workspace.files().filter(wanted).collect();
        ensure!(!files.is_empty(), "there is no source file of {:?} below crates", self.package);
        let mut mutants = Vec::new();
        for file in files {
            if file.ends_with(".rs") && !is_test_file(file) {
                mutants.extend(find::mutants_of(file, &workspace.read(file)?)?);
            }
        }
        let found = mutants.len();
        let sample: BTreeMap<usize, Mutant> = sample(mutants, self.sample, self.seed);
        println!("{} of {found} mutants of {}", sample.len(), self.package);
        if self.list {
            sample.iter().for_each(|(number, mutant)| println!("{number:>5} {mutant}"));
            return Ok(ExitCode::SUCCESS);
        }
        run::try_all(workspace, &self.package, sample)
    }
}

fn is_test_file(file: &str) -> bool {
    file.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

/// Chooses mutants at random; their numbers stay those of the whole list.
fn sample(mutants: Vec<Mutant>, count: usize, seed: u64) -> BTreeMap<usize, Mutant> {
    let mut numbered: Vec<_> = mutants.into_iter().enumerate().collect();
    let mut random = SplitMix(seed);
    while numbered.len() > count {
        let index = usize::try_from(random.next() % numbered.len() as u64).unwrap_or_default();
        numbered.swap_remove(index);
    }
    numbered.into_iter().collect()
}

/// A small generator of random numbers: the choice must be the same on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
