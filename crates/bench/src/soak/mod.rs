//! Two managers of ours under load for an hour of real time, while everything around them fails now and then.

mod convergence;
mod disturbances;
mod load;
mod manager;
mod proxy;
pub(crate) mod report;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_control_plane::{ControlPlane, User};
use keleustes_hollow::Hollow;
use keleustes_pki::Authority;
use kube::Client;
use parking_lot::Mutex;

use self::disturbances::{Disturbance, disturb_in_background, schedule, wait_until};
use self::load::Users;
use self::manager::{SoakManager, authority};
use self::proxy::FaultProxy;
use self::report::{Report, Sample};

const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Between disturbances of the control plane, and between rotations, in a soak of an hour; shorter ones have each at least
/// once.
const DISTURBANCE_INTERVAL: Duration = Duration::from_secs(120);
const ROTATION_INTERVAL: Duration = Duration::from_secs(180);
/// A client certificate outlives its rotation by this: managers look at the files once a minute.
const CERTIFICATE_MARGIN: Duration = Duration::from_secs(150);
const PODS_A_NODE: usize = 100;
const UNPLANNED: &str = "unplanned restarts";
const AFTER_LONG_OUTAGE: &str = "restarts after an outage longer than the renew deadline";

/// How long, and how much.
#[derive(Args)]
pub(crate) struct SoakArgs {
    /// How long users and faults are active, in minutes of real time.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// About how many pods there are.
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// The memory limit of each manager, in MiB.
    #[arg(long, default_value_t = 64)]
    memory_limit: u64,
    /// Decides what users do and which requests fail.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder for the table, the plot and the data.
    #[arg(long, default_value = "target/soak")]
    out: PathBuf,
}

/// What the parts of a soak share.
struct Soak {
    plane: Arc<ControlPlane>,
    authority: Authority,
    managers: Mutex<Vec<SoakManager>>,
    report: Mutex<Report>,
    began: Instant,
    length: Duration,
    rotation: Duration,
    /// When the disturbance of the control plane that is going on began.
    disturbed_since: Mutex<Option<Instant>>,
    /// When the last one that took longer than the renew deadline ended.
    long_outage_ended: Mutex<Option<Instant>>,
}

/// Runs a soak; an error if anything is wrong in the end.
pub(crate) async fn run(args: &SoakArgs) -> anyhow::Result<()> {
    let plane = Arc::new(ControlPlane::builder().start()?);
    let client = client(&plane, User::Admin, "soak")?;
    let nodes = args.pods * 2 / PODS_A_NODE + 2;
    let hollow = Hollow::builder(self::client(&plane, User::Admin, "hollow")?);
    let hollow = hollow.nodes(nodes).zones(3).scheduler(true).capacity("1000", "4000Gi", PODS_A_NODE as u32);
    let hollow = hollow.batch_run_for(Some(Duration::from_secs(2))).start();
    let soak = Soak::start(args, plane).await?;
    let mut users = Users::new(client.clone(), args.pods, args.seed);
    users.create_all().await;
    let outcomes = tokio::select! {
        biased;
        ended = soak.watch_managers() => match ended? {},
        outcomes = soak.play(&mut users, &client) => outcomes?,
    };
    hollow.stop().await;
    soak.finish(args, &users, outcomes)
}

/// A client with its own connections.
fn client(plane: &ControlPlane, user: User, name: &'static str) -> anyhow::Result<Client> {
    let connection = Connection::open(Some(&plane.kubeconfig(user)), None, None)?;
    Ok(ClientFactory::new(connection, ClientOptions::default()).root(name))
}

impl Soak {
    async fn start(args: &SoakArgs, plane: Arc<ControlPlane>) -> anyhow::Result<Self> {
        let length = Duration::from_secs_f64(args.minutes * 60.0);
        let rotation = ROTATION_INTERVAL.min(length / 3);
        let authority = authority(&plane)?;
        let mut managers = Vec::new();
        for (name, seed) in [("manager-a", args.seed), ("manager-b", !args.seed)] {
            let upstream = Connection::open(Some(&plane.kubeconfig(User::ControllerManager)), None, None)?;
            let proxy = FaultProxy::start(&authority, upstream, seed).await?;
            let (limit, life) = (args.memory_limit << 20, rotation + CERTIFICATE_MARGIN);
            managers.push(SoakManager::start(&plane, &authority, proxy, name, limit, life)?);
        }
        let report = Report {
            minutes: args.minutes,
            memory_limit: args.memory_limit as f64,
            limit_enforced: managers.iter().all(SoakManager::is_limited),
            ..Report::default()
        };
        let (managers, report) = (Mutex::new(managers), Mutex::new(report));
        Ok(Self {
            plane,
            authority,
            managers,
            report,
            began: Instant::now(),
            length,
            rotation,
            disturbed_since: Mutex::default(),
            long_outage_ended: Mutex::default(),
        })
    }

    /// Users and faults until the time is over, and then the way back to rest.
    async fn play(&self, users: &mut Users, client: &Client) -> anyhow::Result<Vec<convergence::Outcome>> {
        let act = async {
            users.act_until(self.began + self.length).await;
            Ok(())
        };
        tokio::try_join!(act, self.disturb())?;
        eprintln!("faults end; waiting until the cluster has converged");
        self.managers.lock().iter().for_each(|manager| manager.proxy.end_faults());
        convergence::wait(client).await
    }

    /// Everything that happens to the control plane and to the leader.
    async fn disturb(&self) -> anyhow::Result<()> {
        let interval = DISTURBANCE_INTERVAL.min(self.length / 7);
        for (at, what) in schedule(self.length, interval, self.rotation) {
            wait_until(self.began, at).await;
            if self.began.elapsed() > self.length {
                // An earlier one took longer than its interval.
                return Ok(());
            }
            eprintln!("{:5.1} min: {what:?}", self.began.elapsed().as_secs_f64() / 60.0);
            match what {
                Disturbance::RotateCertificates => {
                    let life = self.rotation + CERTIFICATE_MARGIN;
                    let managers = self.managers.lock();
                    managers.iter().try_for_each(|manager| manager.rotate(&self.authority, life))?;
                }
                Disturbance::RestartLeader(how) => {
                    let mut managers = self.managers.lock();
                    let leader = managers.iter_mut().max_by_key(|manager| manager.proxy.lease_written());
                    leader.context("there are managers")?.restart(how)?;
                }
                _ => {
                    let began = Instant::now();
                    *self.disturbed_since.lock() = Some(began);
                    disturb_in_background(&self.plane, what).await?;
                    *self.disturbed_since.lock() = None;
                    if began.elapsed() > manager::RENEW_DEADLINE {
                        *self.long_outage_ended.lock() = Some(Instant::now());
                    }
                }
            }
            self.report.lock().count(format!("{what:?}"), 1);
        }
        Ok(())
    }

    /// Samples the memory, and notes unexpected exits.
    async fn watch_managers(&self) -> anyhow::Result<Infallible> {
        loop {
            self.look()?;
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }

    fn look(&self) -> anyhow::Result<()> {
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        for (number, manager) in self.managers.lock().iter_mut().enumerate() {
            let mut report = self.report.lock();
            if let Some(exit) = manager.restarted_after_exit()? {
                eprintln!("{minutes:5.1} min: {exit}");
                if self.is_after_long_outage() {
                    report.count(AFTER_LONG_OUTAGE, 1);
                } else {
                    report.violations.push(exit.lines().next().unwrap_or_default().to_owned());
                    report.count(UNPLANNED, 1);
                }
            }
            let meter = manager.meter();
            // A process that exits just now is noticed next time.
            if let (Ok(resident), Ok(peak)) = (meter.resident(), meter.peak()) {
                report.samples.push(Sample::of_bytes(number, meter.0, minutes, resident, peak));
            }
        }
        Ok(())
    }

    /// Whether the control plane is or was away for so long that a leader loses its Lease and a starting manager gives up.
    /// On a machine that is too slow the soak does this by accident.
    fn is_after_long_outage(&self) -> bool {
        let is_recent = |at: Instant| at.elapsed() < manager::RENEW_DEADLINE;
        let is_long = |since: Instant| since.elapsed() > manager::RENEW_DEADLINE;
        self.disturbed_since.lock().is_some_and(is_long)
            || self.long_outage_ended.lock().is_some_and(is_recent)
    }

    fn finish(
        self,
        args: &SoakArgs,
        users: &Users,
        outcomes: Vec<convergence::Outcome>,
    ) -> anyhow::Result<()> {
        self.look()?;
        let mut report = self.report.into_inner();
        report.outcomes = outcomes;
        report.count(UNPLANNED, 0);
        report.count(AFTER_LONG_OUTAGE, 0);
        report.count("requests of users", users.actions as u64);
        report.count("requests of users that failed", users.failed as u64);
        for manager in self.managers.lock().iter() {
            let counts = manager.proxy.counts();
            report.count("requests of managers", counts.requests.load(Ordering::Relaxed));
            report
                .count("requests of managers that failed on purpose", counts.failed.load(Ordering::Relaxed));
            report.count("requests with an expired certificate", counts.expired.load(Ordering::Relaxed));
            report.count("tokens issued to managers", counts.tokens.load(Ordering::Relaxed));
            report.count("certificates used by managers", counts.certificates.lock().len() as u64);
        }
        report.write(&args.out)?;
        println!("{}", report.table());
        println!("The plot and the data are in {}.", args.out.display());
        let problems = report.problems();
        if problems.is_empty() {
            return Ok(());
        }
        bail!("the soak has failed:\n{}", problems.join("\n"))
    }
}
