//! Plays the scenarios on a real control plane: `cargo xtask real`.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use keleustes_control_plane::ControlPlane;
use keleustes_control_plane::build::Program;
use keleustes_scenarios::real::{Manager, Real, built_manager};
use keleustes_scenarios::{ALL, Scenario, Stage, World};

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
    /// Only scenarios whose name contains this.
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Whose {
    Ours,
    Go,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let manager = match args.manager {
        Whose::Ours => Manager::Ours(args.program.clone().map_or_else(built_manager, Ok)?),
        Whose::Go => Manager::Original,
    };
    let wanted = |scenario: &&Scenario| {
        let named = args.filter.as_ref().is_none_or(|filter| scenario.name.contains(filter.as_str()));
        let playable = match scenario.stage {
            Stage::Anywhere | Stage::Real => true,
            Stage::Processes => args.manager == Whose::Ours,
            Stage::BesideOriginal => args.manager == Whose::Ours && args.beside_original,
        };
        named && playable
    };
    let mut builder = ControlPlane::builder();
    if args.beside_original || args.manager == Whose::Go {
        builder = builder.with_program(Program::KubeControllerManager);
    }
    let world = Real::start_on(builder, manager, &["--v=4"])?.into_world().await?;
    let (mut passed, mut failed) = (0, 0);
    let mut tell = |name: &str, began: Instant, result: anyhow::Result<()>| {
        let took = began.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                println!("ok      {name} ({took:.1} s)");
                passed += 1;
            }
            Err(error) => {
                println!("FAILED  {name} ({took:.1} s): {error:#}");
                failed += 1;
            }
        }
    };
    for scenario in ALL.iter().filter(wanted) {
        let began = Instant::now();
        let result = (scenario.play)(&world).await;
        tell(scenario.name, began, result);
    }
    tell("nothing_is_refused_to_the_manager", Instant::now(), nothing_refused(&world));
    if failed > 0
        && let Some(plane) = &world.plane
    {
        println!("the end of the manager's log:\n{}", plane.manager_log());
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn nothing_refused(world: &World) -> anyhow::Result<()> {
    let refusals = world.plane()?.refusals()?;
    anyhow::ensure!(refusals.is_empty(), "the audit log has:\n{}", refusals.join("\n"));
    Ok(())
}
