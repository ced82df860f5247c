//! Programs of the workspace are built and run as a person would do it, with the terminal handed through.

use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::workspace::{Workspace, cargo};

/// A program that is run against a freshly built manager.
#[derive(Args)]
pub(crate) struct BesideManager {
    /// Build and run with optimisations
    #[arg(long)]
    release: bool,
    /// Build and run as it is packaged: smaller, and slower to build
    #[arg(long, conflicts_with = "release")]
    packaged: bool,
    /// Handed to the program unchanged
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl BesideManager {
    /// Builds the manager, then runs a program of a package and ends as it ends.
    pub(crate) fn run(&self, workspace: &Workspace, package: &str, program: &str) -> Result<ExitCode> {
        let profile =
            if self.packaged { Some("--profile=dist") } else { self.release.then_some("--release") };
        let mut build = cargo();
        build.args(["build", "--package", "keleustes-manager"]).args(profile);
        let built = status(build, workspace)?;
        if !built.success() {
            bail!("the manager does not build");
        }
        run_program(workspace, package, program, profile, &self.args)
    }
}

/// A program that needs nothing but itself.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Alone {
    /// Handed to the program unchanged; `--help` tells what it takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl Alone {
    /// Runs a program of a package and ends as it ends.
    pub(crate) fn run(&self, workspace: &Workspace, package: &str, program: &str) -> Result<ExitCode> {
        run_program(workspace, package, program, None, &self.args)
    }

    /// The same with optimisations, for what computes all the time.
    pub(crate) fn run_optimised(
        &self,
        workspace: &Workspace,
        package: &str,
        program: &str,
    ) -> Result<ExitCode> {
        run_program(workspace, package, program, Some("--release"), &self.args)
    }
}

fn run_program(
    workspace: &Workspace,
    package: &str,
    program: &str,
    profile: Option<&str>,
    args: &[String],
) -> Result<ExitCode> {
    let mut run = cargo();
    run.args(["run", "--quiet", "--package", package, "--bin", program]).args(profile);
    run.arg("--").args(args);
    let ended = status(run, workspace)?;
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn status(mut command: Command, workspace: &Workspace) -> Result<ExitStatus> {
    command.current_dir(workspace.root()).status().context("starting cargo")
}
