//! Both managers under the same loads, one after the other, each on a new control plane.

mod bench_cluster;
mod bursts;
mod controller_loads;
mod device_loads;
mod growth;
mod large;
mod loads;
mod objects;
mod pictures;
pub(crate) mod plot;
mod profile;
mod projection;
mod proxy;
mod report;
mod schedules;
mod storage;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use keleustes_scenarios::real::{Manager, built_manager};

use self::bench_cluster::{BenchCluster, BenchOptions};
pub(crate) use self::large::{LargeArgs, measure as measure_large};
use self::loads::{LOADS, Load};
pub(crate) use self::pictures::draw;
use self::report::Report;

/// What to measure.
#[derive(Args)]
pub(crate) struct SideBySideArgs {
    /// The loads; all of them if none is named.
    loads: Vec<String>,
    /// The size of every load, in percent of the full one.
    #[arg(long, default_value_t = 100)]
    percent: usize,
    /// A twentieth of every load.
    #[arg(long, conflicts_with = "percent")]
    quick: bool,
    /// How often every load is run with both.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// `--kube-api-qps` and `--kube-api-burst` of both.
    #[arg(long, default_value_t = 2000, conflicts_with = "defaults")]
    qps: u32,
    /// Uses the defaults of both for these two flags.
    #[arg(long)]
    defaults: bool,
    /// Measures only ours.
    #[arg(long)]
    without_original: bool,
    /// Also records profiles of every phase: of managers for perf, of the API server for pprof. This slows
    /// them down.
    #[arg(long)]
    profile: bool,
    /// The folder for the table, the plots and the raw measurements.
    #[arg(long, default_value = "target/side-by-side")]
    out: PathBuf,
}

/// Runs the loads and writes the comparison.
pub(crate) async fn measure(args: &SideBySideArgs) -> anyhow::Result<()> {
    let loads = chosen(&args.loads)?;
    let percent = if args.quick { 5 } else { args.percent.max(1) };
    let ours = built_manager()?;
    let mut report = Report::new(percent)?;
    for round in 1..=args.rounds {
        for load in &loads {
            let original = (!args.without_original).then_some(Manager::Original);
            for manager in [Manager::Ours(ours.clone())].into_iter().chain(original) {
                let qps = (!args.defaults).then_some(args.qps);
                let profiles = args.profile.then(|| args.out.join("profiles"));
                let options = BenchOptions { manager, percent, qps, profiles };
                eprintln!("{}, {}, round {round}", load.name, options.manager.whose());
                let mut cluster = BenchCluster::start(options, load.name).await?;
                (load.play)(&mut cluster).await?;
                report.add(cluster.finish().await);
                // After each load, so that an aborted run keeps its results.
                report.write(&args.out)?;
            }
        }
    }
    println!("{}", report.table());
    println!("The plots and the raw measurements are in {}.", args.out.display());
    Ok(())
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Load>> {
    if names.is_empty() {
        return Ok(LOADS.iter().collect());
    }
    let mut loads = Vec::new();
    for name in names {
        let Some(load) = LOADS.iter().find(|load| load.name == name) else {
            let known: Vec<_> = LOADS.iter().map(|load| load.name).collect();
            bail!("there is no load `{name}`; there are: {}", known.join(", "));
        };
        loads.push(load);
    }
    Ok(loads)
}
