//! Only the election: competes for the locks of a manager, prints each change, and does no other work.
//!
//! For trying out on a real cluster how processes, also those of other programs, hand over a Lease:
//!
//! ```text
//! cargo run -p keleustes-runtime --example elector -- --kubeconfig FILE [--migration] [--coordinated] [--keep]
//! ```
//!
//! `--keep` lets the Lease expire when the program is stopped, instead of releasing it. Every line begins
//! with the seconds since 1970, so that lines of several programs can be merged. While it leads, it checks
//! every 50 ms whether it may write and prints each change.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::leader::{
    Announcer, CLIENT_NAME, Candidacy, Candidate, ElectionObserver, LeaderElectionConfig, Lock, Locks,
    LocksOutcome, Migration, Term, host_name, identity,
};
use keleustes_runtime::metrics::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

type Failed = Box<dyn std::error::Error>;

#[derive(Default)]
struct Arguments {
    kubeconfig: Option<PathBuf>,
    migration: bool,
    coordinated: bool,
    keep: bool,
}

fn main() -> ExitCode {
    let result = arguments().and_then(|arguments| {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(&arguments))
    });
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn arguments() -> Result<Arguments, Failed> {
    let mut arguments = Arguments::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--kubeconfig" => arguments.kubeconfig = args.next().map(PathBuf::from),
            "--migration" => arguments.migration = true,
            "--coordinated" => arguments.coordinated = true,
            "--keep" => arguments.keep = true,
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    Ok(arguments)
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Failed> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        print("stopping");
        stopping.cancel();
    });

    let connection = Connection::open(arguments.kubeconfig.as_deref(), None, None)?;
    let factory = ClientFactory::new(connection, ClientOptions::default());
    let (clocks, random) =
        (Clocks::new(wall_nanoseconds), Random::seeded(wall_nanoseconds().cast_unsigned()));
    let metrics = Metrics::new();
    let mut config = LeaderElectionConfig::new(identity(&host_name()?, &mut random.fork()));
    config.release_on_stop = !arguments.keep;
    config.coordinated = arguments.coordinated;
    print(&format!("identity {}", config.identity));

    if arguments.coordinated {
        let candidacy = Candidacy {
            identity: config.identity.clone(),
            binary_version: "1.37.1".to_owned(),
            emulation_version: "1.37.0".to_owned(),
        };
        let client = factory.root("kube-controller-manager");
        let candidate = Candidate::new(client, candidacy, clocks.clone(), &metrics);
        tokio::spawn(candidate.run(stop.clone().cancelled_owned()));
    }
    let events = factory.root("kube-controller-manager");
    let (announcer, writer) = Announcer::new(events, clocks.clone(), random.fork(), metrics);
    let writing = tokio::spawn(writer.run(CancellationToken::new()));
    let observer: Arc<dyn ElectionObserver> = Arc::new(announcer);
    let migration = arguments.migration.then(Migration::default);
    let client = factory.root(CLIENT_NAME);
    let locks = Locks::elected(&client, config, migration, &clocks, random.fork(), &observer)?;
    drop(observer);
    let finish = locks.run(&stop, work).await;
    print(&format!("{finish:?}"));
    // No recorder is left, so this ends when everything is written.
    let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
    Ok(if matches!(finish, LocksOutcome::Lost(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints when it may write and when not, until it is stopped.
async fn work(term: Term) -> Result<(), String> {
    let Term { lock, leadership, stop, ready, .. } = term;
    ready.signal();
    let name = match lock {
        Lock::Main => "the main lock",
        Lock::Migration => "the migration lock",
    };
    let mut held = false;
    while !stop.is_cancelled() {
        if leadership.still_held() != held {
            held = !held;
            print(&format!("{name}: {}", if held { "may write" } else { "may not write" }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn print(what: &str) {
    println!("{:.3} {what}", wall_nanoseconds() as f64 / 1e9);
}

fn wall_nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
