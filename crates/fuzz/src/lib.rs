//! Arbitrary bytes for everything that reads what others wrote: each target is a function that panics on a defect.
//!
//! A target accepts every input. It panics if the code under test panics, or if a property does not hold: two ways to
//! read the same thing agree, and what is printed can be read again. The kept inputs in `corpus` are replayed and
//! mutated by `cargo test`; `cargo xtask fuzz` searches for new ones, guided by coverage.

mod certificates;
mod configuration;
mod expressions;
pub mod mutate;
mod objects;
mod texts;
mod transcription;
mod watches;

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Inputs are not longer: short ones reach the same code and run faster.
pub const INPUT_BYTES_MAX: usize = 4096;

/// A function to call with arbitrary bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line, and that of its folder in the corpus.
    pub name: &'static str,
    /// Panics on a defect.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("json", objects::json),
    target("protobuf", objects::protobuf),
    target("watch", watches::run),
    target("selectors", texts::selectors),
    target("quantities", texts::quantities),
    target("times", texts::times),
    target("cron", texts::cron),
    target("cel-parser", expressions::parser),
    target("cel-checker", expressions::checker),
    target("openapi", expressions::openapi),
    target("csr", certificates::requests),
    target("kubeconfig", configuration::kubeconfig),
    target("flags", configuration::flags),
];

/// The target of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// The folder of its kept inputs.
    #[must_use]
    pub fn corpus_dir(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }

    /// The kept inputs with their paths, sorted.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn corpus(&self) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut paths = fs::read_dir(self.corpus_dir())?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        paths.into_iter().map(|path| Ok((path.clone(), fs::read(path)?))).collect()
    }
}

/// The first byte of an input, which chooses among variants, and the rest.
fn choice(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}

/// The input as text, if it is text.
fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}
