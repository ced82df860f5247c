//! The developer tools: `cargo xtask COMMAND`.

mod control_plane;
mod coverage;
mod fuzz;
mod mutants;
mod run;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use xtask::behaviour::{Behaviour, Coverage, Verdict};
use xtask::house::RULES;
use xtask::problem::Problem;
use xtask::workspace::Workspace;
use xtask::{changelog, dist};

/// The developer tools.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the house checks: dependencies, purity, sizes, tidiness, changelog, behaviour ids
    House {
        /// Check only these rules
        rules: Vec<String>,
    },
    /// Show which behaviour ids are proved by a test
    Behaviour {
        /// Show the ids of this sheet (file name or prefix) with the tests that prove them
        sheet: Option<String>,
        /// Show only ids that are neither proved nor excused
        #[arg(long)]
        missing: bool,
        /// Update docs/behaviour/COVERAGE.md and docs/differences/sheets.md
        #[arg(long)]
        write: bool,
    },
    /// Start a real control plane and keep it until Ctrl-C; builds it on first use (needs Go)
    ControlPlane(control_plane::Options),
    /// Run the scenarios on a real control plane, which is built on first use (needs Go)
    Real(run::WithManager),
    /// Compare the embedded API server with the real one, request by request (needs Go)
    Judge(run::Standalone),
    /// Compare cron schedules with the library that the original uses (needs Go)
    JudgeCron(run::Standalone),
    /// Let CronJobs run through a month and compare every reconcile with the original (needs Go)
    JudgeCronJobs(run::Standalone),
    /// Compare requests, events, sizes and status of autoscalers with the original's (needs Go)
    JudgeHpa(run::Standalone),
    /// Compare signed certificates with those of the original's authority (needs Go)
    JudgeCertificates(run::Standalone),
    /// Compare which bootstrap tokens sign cluster-info, their signatures and expirations with the original's (needs Go)
    JudgeJws(run::Standalone),
    /// Compare the choice of volumes for claims with the original's (needs Go)
    JudgeVolumes(run::Standalone),
    /// Compare the type checking of admission policies with the original's (needs Go)
    JudgeCel(run::Standalone),
    /// Compare hashes, revision data and equality of pod templates with the original's (needs Go)
    Templates(run::Standalone),
    /// Simulate clusters with faults, each from one seed
    Storm(run::Standalone),
    /// Search for inputs that break a parser or decoder, guided by coverage (needs a C++ compiler)
    Fuzz(fuzz::Options),
    /// Measure the manager on a real control plane (needs Go)
    Bench(run::WithManager),
    /// Change one operator or function of a crate at a time and list the changes that no test notices
    Mutants(mutants::Options),
    /// Show how many lines of a crate its unit tests run (needs rustup's llvm-tools)
    Coverage(coverage::Options),
    /// Show the notes of the next release, collected from the fragments in changelog.d
    Changelog {
        /// Update CHANGELOG.md
        #[arg(long)]
        write: bool,
    },
    /// Build a release: static program, image, bill of materials, man page, completions, checksums (needs the musl target)
    Dist {
        /// Build only the program: linked statically, without the playground
        #[arg(long)]
        program: bool,
    },
}

fn main() -> ExitCode {
    match run_command(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(command: Command) -> Result<ExitCode> {
    let workspace = Workspace::open()?;
    match command {
        Command::House { rules } => check_house(&workspace, &rules),
        Command::Behaviour { sheet, missing, write } => {
            show_behaviour(&workspace, sheet.as_deref(), missing, write)
        }
        Command::ControlPlane(options) => options.run(),
        Command::Real(program) => program.run(&workspace, "keleustes-scenarios", "real"),
        Command::Judge(program) => program.run(&workspace, "judge"),
        Command::JudgeHpa(program) => program.run(&workspace, "judge-hpa"),
        Command::JudgeCron(program) => program.run(&workspace, "judge-cron"),
        Command::JudgeCronJobs(program) => program.run(&workspace, "judge-cron-jobs"),
        Command::JudgeCertificates(program) => program.run(&workspace, "judge-certificates"),
        Command::JudgeJws(program) => program.run(&workspace, "judge-jws"),
        Command::JudgeVolumes(program) => program.run(&workspace, "judge-volumes"),
        Command::JudgeCel(program) => program.run(&workspace, "judge-cel"),
        Command::Templates(program) => program.run(&workspace, "templates"),
        Command::Storm(program) => program.run_optimised(&workspace, "keleustes-sim", "storm"),
        Command::Fuzz(options) => options.run(&workspace),
        Command::Bench(program) => program.run(&workspace, "keleustes-bench", "bench"),
        Command::Mutants(options) => options.run(&workspace),
        Command::Coverage(options) => options.run(&workspace),
        Command::Changelog { write } => show_changelog(&workspace, write),
        Command::Dist { program } => {
            let built = if program { dist::program::build(&workspace)? } else { dist::build(&workspace)? };
            println!("{}", built.display());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check_house(workspace: &Workspace, wanted: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = wanted.iter().find(|name| !RULES.iter().any(|rule| rule.name == **name)) {
        let known: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        bail!("there is no rule `{unknown}`; there are: {}", known.join(", "));
    }
    let mut all_hold = true;
    for rule in RULES.iter().filter(|rule| wanted.is_empty() || wanted.iter().any(|name| name == rule.name)) {
        let problems = (rule.check)(workspace)?;
        println!("{} {:<12} {}", if problems.is_empty() { "ok  " } else { "FAIL" }, rule.name, rule.keeps);
        print_problems(&problems);
        all_hold &= problems.is_empty();
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_changelog(workspace: &Workspace, write: bool) -> Result<ExitCode> {
    let text = changelog::collected(workspace)?;
    if write {
        workspace.write(changelog::FILE, &text)?;
    } else {
        print!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn show_behaviour(
    workspace: &Workspace,
    sheet: Option<&str>,
    missing: bool,
    write: bool,
) -> Result<ExitCode> {
    let behaviour = Behaviour::gather(workspace)?;
    if write {
        for (file, text) in behaviour.pages() {
            workspace.write(file, &text)?;
        }
    }
    match sheet {
        Some(name) => print_sheet(behaviour.sheet(name)?, missing),
        None if missing => behaviour.coverages.iter().for_each(|coverage| print_sheet(coverage, true)),
        None => print!("{}", behaviour.overview()),
    }
    print_problems(&behaviour.problems);
    Ok(if behaviour.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_sheet(coverage: &Coverage, missing_only: bool) {
    println!("{}", coverage.sheet.name);
    for (entry, verdict, tests) in coverage.rows() {
        let note = match verdict {
            Verdict::Missing => "missing".to_owned(),
            _ if missing_only => continue,
            Verdict::Proved => tests.join(", "),
            Verdict::LeftOut => "left out".to_owned(),
            Verdict::Later => "later".to_owned(),
        };
        println!("  {:<8} {} [{note}]", entry.id.to_string(), entry.text);
    }
}

fn print_problems(problems: &[Problem]) {
    for problem in problems {
        println!("       {problem}");
    }
}
