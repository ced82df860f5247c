//! Both managers under the same loads, one after the other, each on a fresh control plane.

mod growth;
mod loads;
mod objects;
mod plot;
mod profile;
mod projection;
mod relay;
mod report;
mod stage;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use keleustes_scenarios::real::{Manager, built_manager};

use self::loads::{LOADS, Load};
use self::report::Report;
use self::stage::{Setting, Stage};

/// What is to be measured.
#[derive(Args)]
pub(crate) struct Wanted {
    /// The loads; all of them if none is named.
    loads: Vec<String>,
    /// The size of every load, in percent of the full one.
    #[arg(long, default_value_t = 100)]
    percent: usize,
    /// A twentieth of every load.
    #[arg(long, conflicts_with = "percent")]
    quick: bool,
    /// How often every load is played with both.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// `--kube-api-qps` and `--kube-api-burst` of both.
    #[arg(long, default_value_t = 2000, conflicts_with = "defaults")]
    qps: u32,
    /// Leaves both at their own defaults of those two.
    #[arg(long)]
    defaults: bool,
    /// Leaves the original out.
    #[arg(long)]
    without_original: bool,
    /// Also keeps profiles of every phase: of managers for perf, of the API server for pprof. They cost time.
    #[arg(long)]
    profile: bool,
    /// The folder that the table, the plots and the raw figures go to.
    #[arg(long, default_value = "target/side-by-side")]
    out: PathBuf,
}

/// Plays the loads and writes down how the two compare.
pub(crate) async fn measure(wanted: &Wanted) -> anyhow::Result<()> {
    let loads = chosen(&wanted.loads)?;
    let percent = if wanted.quick { 5 } else { wanted.percent.max(1) };
    let ours = built_manager()?;
    let mut report = Report::new(percent)?;
    for round in 1..=wanted.rounds {
        for load in &loads {
            let original = (!wanted.without_original).then_some(Manager::Original);
            for manager in [Manager::Ours(ours.clone())].into_iter().chain(original) {
                let qps = (!wanted.defaults).then_some(wanted.qps);
                let profiles = wanted.profile.then(|| wanted.out.join("profiles"));
                let setting = Setting { manager, percent, qps, profiles };
                eprintln!("{}, {}, round {round}", load.name, setting.manager.whose());
                let mut stage = Stage::set(setting, load.name).await?;
                (load.play)(&mut stage).await?;
                report.add(stage.end().await);
                // After each, so that an end before the end loses little.
                report.write(&wanted.out)?;
            }
        }
    }
    println!("{}", report.table());
    println!("The plots and the raw figures are in {}.", wanted.out.display());
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
