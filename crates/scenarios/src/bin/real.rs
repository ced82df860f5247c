//! Runs the scenarios on a real control plane: `cargo xtask real`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use keleustes_control_plane::ControlPlane;
use keleustes_control_plane::build::Program;
use keleustes_scenarios::comparison::TestClusterPair;
use keleustes_scenarios::real::{Manager, RealCluster, built_manager};
use keleustes_scenarios::shadow::{ShadowBeside, shadow_writes_nothing};
use keleustes_scenarios::{GROUPS, Group, RunsOn, Scenario, TestCluster};

/// Flags of every manager beyond those of a kubeadm manifest.
const EXTRA_FLAGS: &[&str] = &["--v=4"];

/// The default of `--shadow-window`.
const SHADOW_WINDOW: Duration = Duration::from_secs(30);
/// The same for autoscalers: the original learns of new kinds every 30 s, and scales every 15 s.
const SHADOW_WINDOW_OF_SCALING: Duration = Duration::from_secs(60);

/// Scenarios that start a second manager with other flags: the shadow has those of the leader.
const NOT_SHADOWED: &[&str] = &["unused_legacy_token_is_invalidated_and_then_deleted"];

/// Runs scenarios on a real control plane, with RBAC enabled and a service account for each controller.
#[derive(Parser)]
struct Args {
    /// Which controller manager runs.
    #[arg(long, value_enum, default_value = "ours")]
    manager: ManagerKind,
    /// The program file of our manager; by default the one built together with this program.
    #[arg(long)]
    program: Option<std::path::PathBuf>,
    /// Also runs scenarios in which the original takes part.
    #[arg(long)]
    beside_original: bool,
    /// Runs each scenario with our manager and with the original at once, and compares the resulting
    /// objects.
    #[arg(long, conflicts_with = "manager")]
    compare: bool,
    /// Runs the scenarios with the original as the leader and a shadow of ours beside it; fails if the shadow reports a
    /// difference that is not listed as known.
    #[arg(long, conflicts_with_all = ["manager", "compare", "beside_original"])]
    shadow: bool,
    /// After a comparison, also runs the scenarios that it left out, with our manager only.
    #[arg(long, requires = "compare")]
    rest: bool,
    /// Does not compare scenarios whose name contains this; may be repeated.
    #[arg(long, requires = "compare")]
    uncompared: Vec<String>,
    /// Runs the API server of the minor version before, v1.36, with our manager.
    #[arg(long, conflicts_with_all = ["manager", "compare", "shadow", "beside_original"])]
    older_api_server: bool,
    /// Repeats a failed scenario once, and reports it: real processes on a busy machine can be slow.
    /// Comparisons always do.
    #[arg(long)]
    again: bool,
    /// Skips scenarios whose name contains this; may be repeated.
    #[arg(long)]
    without: Vec<String>,
    /// Only scenarios whose name contains one of these.
    filters: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ManagerKind {
    Ours,
    Go,
}

impl Args {
    fn manager_kind(&self) -> ManagerKind {
        if self.shadow { ManagerKind::Go } else { self.manager }
    }

    fn manager(&self) -> anyhow::Result<Manager> {
        Ok(match self.manager_kind() {
            ManagerKind::Ours => Manager::Ours(self.program.clone().map_or_else(built_manager, Ok)?),
            ManagerKind::Go => Manager::Original,
        })
    }

    /// The scenarios that this pass runs.
    fn wants(&self, pass: Pass, scenario: &Scenario) -> bool {
        let names = |parts: &[String]| parts.iter().any(|part| scenario.name.contains(part));
        let named = (self.filters.is_empty() || names(&self.filters)) && !names(&self.without);
        let is_compared = self.compare && TestClusterPair::can_run(scenario) && !names(&self.uncompared);
        let runnable = match scenario.runs_on {
            RunsOn::Slow if self.filters.is_empty() => false,
            _ if pass == Pass::Compare => is_compared,
            RunsOn::Anywhere | RunsOn::Slow | RunsOn::RealCluster => !is_compared,
            RunsOn::Processes => self.manager_kind() == ManagerKind::Ours,
            RunsOn::BesideOriginal => self.beside_original && self.manager == ManagerKind::Ours,
        };
        let is_shadowed = !self.shadow || !NOT_SHADOWED.contains(&scenario.name);
        named && runnable && is_shadowed
    }

    fn passes(&self) -> &'static [Pass] {
        match (self.compare, self.rest) {
            (false, _) => &[Pass::Alone],
            (true, false) => &[Pass::Compare],
            (true, true) => &[Pass::Compare, Pass::Alone],
        }
    }
}

/// How the scenarios of a group are run.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// With both managers at once.
    Compare,
    /// With one manager.
    Alone,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let mut tally = Tally::default();
    for &pass in args.passes() {
        for group in GROUPS.iter().filter(|group| group.scenarios.iter().any(|one| args.wants(pass, one))) {
            match pass {
                Pass::Compare => compare(&args, group, &mut tally).await?,
                Pass::Alone => play(&args, group, &mut tally).await?,
            }
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the scenarios of a group in one cluster.
async fn play(args: &Args, group: &Group, tally: &mut Tally) -> anyhow::Result<()> {
    let mut builder = ControlPlane::builder().with_older_api_server(args.older_api_server);
    if args.beside_original {
        builder = builder.with_program(Program::KubeControllerManager);
    }
    let cluster = RealCluster::start_on(builder, group, args.manager()?, EXTRA_FLAGS)?;
    let shadow = if args.shadow { Some(start_shadow(&cluster, group).await?) } else { None };
    let cluster = cluster.into_test_cluster().await?;
    for scenario in group.scenarios.iter().filter(|scenario| args.wants(Pass::Alone, scenario)) {
        let began = Instant::now();
        let mut result = (scenario.play)(&cluster).await;
        if args.again
            && let Err(error) = &result
        {
            println!("again   {} ({:.1} s): {error:#}", scenario.name, began.elapsed().as_secs_f64());
            cluster.clean_up().await?;
            result = (scenario.play)(&cluster).await;
        }
        if result.is_err() {
            cluster.clean_up().await?;
        }
        tally.record(scenario.name, began, result);
    }
    if let Some(shadow) = shadow {
        let began = Instant::now();
        tally.record("shadow_has_no_unlisted_difference", began, no_difference(&shadow).await);
        let written = shadow_writes_nothing(cluster.real()?.plane());
        tally.record("shadow_writes_nothing", began, written);
    }
    tally.record("no_request_of_the_manager_is_refused", Instant::now(), no_request_refused(&cluster));
    if tally.failed > 0
        && let Some(plane) = &cluster.processes
    {
        println!("the last lines of the manager's log:\n{}", plane.manager_log());
    }
    Ok(())
}

/// Starts a shadow beside the manager of a cluster, with the same flags.
async fn start_shadow(cluster: &RealCluster, group: &Group) -> anyhow::Result<ShadowBeside> {
    let flags: Vec<String> =
        EXTRA_FLAGS.iter().chain(group.manager_args).map(|&flag| flag.to_owned()).collect();
    let window = if group.has_metrics { SHADOW_WINDOW_OF_SCALING } else { SHADOW_WINDOW };
    let shadow = ShadowBeside::start(cluster.plane(), window, &flags)?;
    shadow.wait_until_ready().await?;
    Ok(shadow)
}

/// Prints the report of a shadow once every decision has had its time.
async fn no_difference(shadow: &ShadowBeside) -> anyhow::Result<()> {
    shadow.wait_for_window().await;
    println!("{}", shadow.report("text")?);
    let report = shadow.report_json()?;
    let (count, agreements) = (&report["total"]["differences"], &report["total"]["agreements"]);
    anyhow::ensure!(agreements.as_u64() > Some(0), "the shadow agreed with nothing");
    anyhow::ensure!(count.as_u64() == Some(0), "the shadow reports {count} unlisted differences");
    Ok(())
}

/// Runs the scenarios of a group in two clusters at once.
async fn compare(args: &Args, group: &Group, tally: &mut Tally) -> anyhow::Result<()> {
    let mut clusters = TestClusterPair::start(group, args.manager()?, EXTRA_FLAGS).await?;
    for scenario in group.scenarios.iter().filter(|scenario| args.wants(Pass::Compare, scenario)) {
        let began = Instant::now();
        tally.record(scenario.name, began, clusters.play(scenario).await);
    }
    let stale = clusters.stale();
    let result = if stale.is_empty() { Ok(()) } else { Err(anyhow::anyhow!("{}", stale.join("\n"))) };
    tally.record("every_listed_difference_occurs", Instant::now(), result);
    tally.record("no_request_of_the_manager_is_refused", Instant::now(), no_request_refused(clusters.ours()));
    Ok(())
}

/// How many scenarios passed.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn record(&mut self, name: &str, began: Instant, result: anyhow::Result<()>) {
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

fn no_request_refused(cluster: &TestCluster) -> anyhow::Result<()> {
    let refusals = cluster.processes()?.refusals()?;
    anyhow::ensure!(refusals.is_empty(), "the audit log has:\n{}", refusals.join("\n"));
    Ok(())
}
