//! Builds and runs programs of the workspace, connected to the terminal.

use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, ensure};
use clap::Args;
use xtask::dist;
use xtask::workspace::{Workspace, cargo};

/// The profile of programs that work for minutes; `release` is quick to build instead.
const OPTIMISED: &str = "--profile=bench";

/// A program that is run against a freshly built manager.
#[derive(Args)]
pub(crate) struct WithManager {
    /// Build and run with optimisations
    #[arg(long)]
    release: bool,
    /// Use the packaged manager, which takes longer to build, and the rest with optimisations
    #[arg(long, conflicts_with = "release")]
    packaged: bool,
    /// Passed to the program unchanged
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl WithManager {
    /// Builds the manager, then runs a program of a package and returns its exit code.
    pub(crate) fn run(&self, workspace: &Workspace, package: &str, program: &str) -> Result<ExitCode> {
        if self.packaged {
            let manager = dist::program::build(workspace)?;
            let mut run = run_of(package, program, Some(OPTIMISED), &self.args);
            run.env("KELEUSTES_MANAGER", manager);
            return ended(run, workspace);
        }
        if !self.release {
            return run_unoptimised(workspace, program, &self.args);
        }
        let mut build = cargo();
        build.args(["build", "--package", "keleustes-manager", OPTIMISED]);
        ensure!(status(build, workspace)?.success(), "the manager does not build");
        ended(run_of(package, program, Some(OPTIMISED), &self.args), workspace)
    }
}

/// A program that needs no manager.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Standalone {
    /// Passed to the program unchanged; see its `--help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl Standalone {
    /// Runs a program and returns its exit code.
    pub(crate) fn run(&self, workspace: &Workspace, program: &str) -> Result<ExitCode> {
        run_unoptimised(workspace, program, &self.args)
    }

    /// The same with optimisations, for CPU-bound programs.
    pub(crate) fn run_optimised(
        &self,
        workspace: &Workspace,
        package: &str,
        program: &str,
    ) -> Result<ExitCode> {
        ended(run_of(package, program, Some(OPTIMISED), &self.args), workspace)
    }
}

/// Builds all programs of the workspace, then runs one. Together they use one set of features of their dependencies; cargo would
/// recompile most of the workspace for each program alone.
fn run_unoptimised(workspace: &Workspace, program: &str, args: &[String]) -> Result<ExitCode> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--bins"]);
    ensure!(status(build, workspace)?.success(), "the workspace does not build");
    let this_program = std::env::current_exe().context("locating this program")?;
    let mut run = Command::new(this_program.with_file_name(program));
    run.args(args);
    ended(run, workspace)
}

fn run_of(package: &str, program: &str, profile: Option<&str>, args: &[String]) -> Command {
    let mut run = cargo();
    run.args(["run", "--quiet", "--package", package, "--bin", program]).args(profile);
    run.arg("--").args(args);
    run
}

fn ended(run: Command, workspace: &Workspace) -> Result<ExitCode> {
    let ended = status(run, workspace)?;
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs something at the top of the repository.
fn status(mut command: Command, workspace: &Workspace) -> Result<ExitStatus> {
    command.current_dir(workspace.root()).status().context("starting cargo")
}
