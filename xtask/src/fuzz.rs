//! Runs the targets of crates/fuzz with libFuzzer, guided by coverage.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xtask::workspace::{Workspace, cargo};

/// What rustc and LLVM need to record which branches an input takes; all of it is in stable toolchains.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// As in crates/fuzz, a second to react, and what no input may need.
const LIMITS: [&str; 3] = ["-max_len=4096", "-timeout=10", "-rss_limit_mb=1024"];

const CORPUS: &str = "crates/fuzz/corpus";

/// What is run, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// The targets; all of them, one after the other, if none is named
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
}

impl Options {
    /// Runs the targets. Inputs that reach new code are added to the corpus.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<ExitCode> {
        let root = workspace.root();
        let targets = self.chosen(root)?;
        let program = build(root)?;
        let mut findings = Vec::new();
        for target in &targets {
            let fuzzer = Fuzzer { root, program: &program, target };
            println!("{target}");
            if !fuzzer.search(self.minutes)? {
                findings.push(target);
            }
            fuzzer.keep_new_inputs()?;
        }
        if findings.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        for target in findings {
            println!("{target} has findings; replay them with:");
            println!("    cargo run -p keleustes-fuzz -- {target} target/fuzz/findings/{target}-*");
        }
        Ok(ExitCode::FAILURE)
    }

    fn chosen(&self, root: &Path) -> Result<Vec<String>> {
        let folders = fs::read_dir(root.join(CORPUS)).context("listing the corpus")?;
        let mut known = folders
            .map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>>>()?;
        known.sort();
        if let Some(unknown) = self.targets.iter().find(|target| !known.contains(target)) {
            bail!("there is no target `{unknown}`; there are: {}", known.join(", "));
        }
        Ok(if self.targets.is_empty() { known } else { self.targets.clone() })
    }
}

/// Builds the program that libFuzzer is part of, with the versions of dependencies that the workspace has.
fn build(root: &Path) -> Result<PathBuf> {
    fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock")).context("copying Cargo.lock")?;
    let version = Command::new("rustc").arg("-vV").output().context("starting rustc")?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc has no host")?;
    let mut build = cargo();
    build.current_dir(root).env("RUSTFLAGS", COVERAGE);
    build.args(["build", "--release", "--manifest-path=fuzz/Cargo.toml", "--target-dir=target/fuzz"]);
    // With a target, the flags do not apply to build scripts, which have no libFuzzer.
    build.args(["--target", host]);
    ensure!(build.status().context("starting cargo")?.success(), "the fuzzer does not build");
    Ok(root.join("target/fuzz").join(host).join("release/keleustes-libfuzzer"))
}

struct Fuzzer<'a> {
    root: &'a Path,
    program: &'a Path,
    target: &'a str,
}

impl Fuzzer<'_> {
    /// Inputs that libFuzzer has found in this checkout, more than are kept.
    fn found_dir(&self) -> PathBuf {
        self.root.join("target/fuzz/found").join(self.target)
    }

    fn kept_dir(&self) -> PathBuf {
        self.root.join(CORPUS).join(self.target)
    }

    /// Runs until the time is over or something is found; returns whether nothing is.
    fn search(&self, minutes: f64) -> Result<bool> {
        let findings = self.root.join("target/fuzz/findings");
        fs::create_dir_all(&findings)?;
        fs::create_dir_all(self.found_dir())?;
        let prefix = findings.join(format!("{}-", self.target));
        let seconds = (minutes * 60.0).ceil();
        self.libfuzzer(&[
            format!("-max_total_time={seconds}").into(),
            format!("-artifact_prefix={}", prefix.display()).into(),
            "-print_final_stats=1".into(),
            self.found_dir().into(),
            self.kept_dir().into(),
        ])
    }

    /// Adds the found inputs that reach code which no kept one reaches.
    fn keep_new_inputs(&self) -> Result<()> {
        let args =
            ["-merge=1".into(), "-use_counters=0".into(), self.kept_dir().into(), self.found_dir().into()];
        ensure!(self.libfuzzer(&args)?, "merging the corpus of {} failed", self.target);
        Ok(())
    }

    fn libfuzzer(&self, args: &[OsString]) -> Result<bool> {
        let mut command = Command::new(self.program);
        command.env("KELEUSTES_FUZZ_TARGET", self.target).args(LIMITS).args(args);
        Ok(command.status().context("starting the fuzzer")?.success())
    }
}
