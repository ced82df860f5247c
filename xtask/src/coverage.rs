//! `cargo xtask coverage`: which lines of a crate its own unit tests run.
//!
//! The unit tests of `controllers` are synchronous: a decision that only a cluster could reach would show here.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use xtask::workspace::{Workspace, cargo};

/// Files of tests are no lines to cover.
const TESTS: &str = r"(tests|testing)(/|\.rs$)|_tests\.rs$|crates/(objects|plan)/|/registry/src/|/rustc/";

/// The options of `cargo xtask coverage`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder of the crate below crates
    #[arg(default_value = "controllers")]
    package: String,
    /// Fail below this percentage of lines
    #[arg(long, default_value_t = 95.0)]
    at_least: f64,
    /// List the lines of each file as well
    #[arg(long)]
    files: bool,
}

impl Options {
    /// Builds the unit tests with counters, runs them and prints how many lines they ran.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<ExitCode> {
        let target = target_directory(workspace);
        let profiles = target.join("profiles");
        // Counters of an earlier program do not fit this one.
        let _ = fs::remove_dir_all(&profiles);
        fs::create_dir_all(&profiles)?;
        let program = build(workspace, &self.package, &target)?;
        let mut tests = Command::new(&program);
        tests.current_dir(workspace.root().join("crates").join(&self.package)).arg("--quiet");
        tests.env("LLVM_PROFILE_FILE", profiles.join("%m-%p.profraw"));
        ensure!(tests.status()?.success(), "the tests fail");
        let merged = target.join("coverage.profdata");
        merge(&profiles, &merged)?;
        let summary = summary(&program, &merged)?;
        if self.files {
            summary.files.iter().for_each(|file| println!("{file}"));
        }
        let percent = 100.0 * summary.covered as f64 / summary.lines.max(1) as f64;
        println!("{} of {} lines of {}: {percent:.1} %", summary.covered, summary.lines, self.package);
        Ok(if percent < self.at_least { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Apart from other builds: programs with counters share nothing with them.
fn target_directory(workspace: &Workspace) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace.root().join(target).join("coverage")
}

/// Builds the unit tests and returns their program.
fn build(workspace: &Workspace, package: &str, target: &Path) -> Result<PathBuf> {
    let package = format!("keleustes-{package}");
    let mut build = cargo();
    build.args(["test", "--locked", "--package", &package, "--lib", "--no-run", "--message-format=json"]);
    build.env("RUSTFLAGS", "-C instrument-coverage").env("CARGO_INCREMENTAL", "0");
    build.env("CARGO_TARGET_DIR", target).current_dir(workspace.root());
    // Build scripts and macros run with counters, too.
    build.env("LLVM_PROFILE_FILE", target.join("build.profraw")).stderr(std::process::Stdio::inherit());
    let built = build.output().context("starting cargo")?;
    ensure!(built.status.success(), "the tests do not build");
    let messages = String::from_utf8(built.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next().context("cargo names no test program")
}

fn merge(profiles: &Path, merged: &Path) -> Result<()> {
    let mut merge = llvm_tool("llvm-profdata")?;
    merge.args(["merge", "--sparse", "--output"]).arg(merged);
    for profile in fs::read_dir(profiles)? {
        merge.arg(profile?.path());
    }
    ensure!(merge.status()?.success(), "llvm-profdata fails");
    Ok(())
}

/// Counted lines.
struct Summary {
    lines: u64,
    covered: u64,
    /// One text per file that is not covered completely.
    files: Vec<String>,
}

fn summary(program: &Path, merged: &Path) -> Result<Summary> {
    let mut export = llvm_tool("llvm-cov")?;
    export.args(["export", "--summary-only", "--ignore-filename-regex", TESTS]);
    export.arg("--instr-profile").arg(merged).arg(program);
    let exported = export.output()?;
    ensure!(exported.status.success(), "llvm-cov fails: {}", String::from_utf8_lossy(&exported.stderr));
    let exported: Value = serde_json::from_slice(&exported.stdout)?;
    let data = &exported["data"][0];
    let count = |of: &Value, what: &str| of["lines"][what].as_u64().unwrap_or_default();
    let mut files: Vec<_> = data["files"].as_array().into_iter().flatten().collect();
    let missed = |file: &Value| count(&file["summary"], "count") - count(&file["summary"], "covered");
    files.retain(|file| missed(file) > 0);
    files.sort_by_key(|file| std::cmp::Reverse(missed(file)));
    let text = |file: &&Value| {
        format!(
            "{:>5} of {:>5} missed  {}",
            missed(file),
            count(&file["summary"], "count"),
            file["filename"].as_str().unwrap_or_default()
        )
    };
    let totals = &data["totals"];
    Ok(Summary {
        lines: count(totals, "count"),
        covered: count(totals, "covered"),
        files: files.iter().map(text).collect(),
    })
}

/// A tool of the toolchain's component `llvm-tools`, which fits the counters of its compiler.
fn llvm_tool(name: &str) -> Result<Command> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().context("starting rustc")?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let target = format!("{ARCH}-unknown-linux-gnu");
    let path = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("bin").join(name);
    ensure!(path.exists(), "{name} is missing; run: rustup component add llvm-tools");
    Ok(Command::new(path))
}
