//! Plays the scenarios on a real control plane: `cargo xtask real`.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use keleustes_control_plane::ControlPlane;
use keleustes_control_plane::build::Program;
use keleustes_scenarios::comparison::Worlds;
use keleustes_scenarios::real::{Manager, Real, built_manager};
use keleustes_scenarios::{ALL, Scenario, Stage, World};

/// What every manager is told beyond a kubeadm manifest.
const FLAGS: &[&str] = &["--v=4"];

/// Plays scenarios on a real control plane, with RBAC on and a service account for each controller.
#[derive(Parser)]
struct Args {
    /// Whose controller manager is at work.
    #[arg(long, value_enum, default_value = "ours")]
    manager: Whose,
    /// Our manager's program; by default the one that was built together with this one.
    #[arg(long)]
    program: Option<std::path::PathBuf>,
    /// Also plays scenarios in which the original takes part.
    #[arg(long)]
    beside_original: bool,
    /// Plays each scenario with our manager and with the original at once, and compares what they come to.
    #[arg(long, conflicts_with_all = ["manager", "beside_original"])]
    compare: bool,
    /// Plays a scenario that fails once more, and tells: real processes on a busy machine have bad moments.
    /// Comparisons always do.
    #[arg(long)]
    again: bool,
    /// No scenarios whose name contains this; may be given several times.
    #[arg(long)]
    without: Vec<String>,
    /// Only scenarios whose name contains one of these.
    filters: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Whose {
    Ours,
    Go,
}

impl Args {
    fn manager(&self) -> anyhow::Result<Manager> {
        Ok(match self.manager {
            Whose::Ours => Manager::Ours(self.program.clone().map_or_else(built_manager, Ok)?),
            Whose::Go => Manager::Original,
        })
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let names = |parts: &[String]| parts.iter().any(|part| scenario.name.contains(part));
        let named = (self.filters.is_empty() || names(&self.filters)) && !names(&self.without);
        let playable = match scenario.stage {
            _ if self.compare => Worlds::can_play(scenario),
            Stage::Anywhere | Stage::Real => true,
            Stage::Processes => self.manager == Whose::Ours,
            Stage::BesideOriginal => self.beside_original && self.manager == Whose::Ours,
        };
        named && playable
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let tally = if args.compare { compare(&args).await? } else { play(&args).await? };
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays scenarios in one world.
async fn play(args: &Args) -> anyhow::Result<Tally> {
    let mut builder = ControlPlane::builder();
    if args.beside_original || args.manager == Whose::Go {
        builder = builder.with_program(Program::KubeControllerManager);
    }
    let world = Real::start_on(builder, args.manager()?, FLAGS)?.into_world().await?;
    let mut tally = Tally::default();
    for scenario in ALL.iter().filter(|scenario| args.wants(scenario)) {
        let began = Instant::now();
        let mut result = (scenario.play)(&world).await;
        if args.again
            && let Err(error) = &result
        {
            println!("again   {} ({:.1} s): {error:#}", scenario.name, began.elapsed().as_secs_f64());
            world.put_right().await?;
            result = (scenario.play)(&world).await;
        }
        if result.is_err() {
            world.put_right().await?;
        }
        tally.note(scenario.name, began, result);
    }
    tally.note("nothing_is_refused_to_the_manager", Instant::now(), nothing_refused(&world));
    if tally.failed > 0
        && let Some(plane) = &world.plane
    {
        println!("the end of the manager's log:\n{}", plane.manager_log());
    }
    Ok(tally)
}

/// Plays scenarios in two worlds at once.
async fn compare(args: &Args) -> anyhow::Result<Tally> {
    let mut worlds = Worlds::start(args.manager()?, FLAGS).await?;
    let mut tally = Tally::default();
    for scenario in ALL.iter().filter(|scenario| args.wants(scenario)) {
        let began = Instant::now();
        tally.note(scenario.name, began, worlds.play(scenario).await);
    }
    let stale = worlds.stale();
    let result = if stale.is_empty() { Ok(()) } else { Err(anyhow::anyhow!("{}", stale.join("\n"))) };
    tally.note("every_listed_difference_is_there", Instant::now(), result);
    Ok(tally)
}

/// How many scenarios held.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn note(&mut self, name: &str, began: Instant, result: anyhow::Result<()>) {
        let took = began.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                println!("ok      {name} ({took:.1} s)");
                self.passed += 1;
            }
            Err(error) => {
                println!("FAILED  {name} ({took:.1} s): {error:#}");
                self.failed += 1;
            }
        }
    }
}

fn nothing_refused(world: &World) -> anyhow::Result<()> {
    let refusals = world.plane()?.refusals()?;
    anyhow::ensure!(refusals.is_empty(), "the audit log has:\n{}", refusals.join("\n"));
    Ok(())
}
