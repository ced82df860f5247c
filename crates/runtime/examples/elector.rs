//! Only the election: competes for the locks of a manager, says what becomes of it, and does no other work.
//!
//! For trying out on a real cluster how processes, also those of other programs, hand a Lease to each other:
//!
//! ```text
//! cargo run -p keleustes-runtime --example elector -- --kubeconfig FILE [--migration] [--coordinated] [--keep]
//! ```
//!
//! `--keep` leaves the Lease to run out when the program is told to stop. Every line begins with the seconds since
//! 1970, so that lines of several programs can be merged. While it leads it asks its guard every 50 ms and says
//! when the answer changes.

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
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(live(&arguments))
    });
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn arguments() -> Result<Arguments, Failed> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kubeconfig" => arguments.kubeconfig = words.next().map(PathBuf::from),
            "--migration" => arguments.migration = true,
            "--coordinated" => arguments.coordinated = true,
            "--keep" => arguments.keep = true,
            _ => return Err(format!("what is {word}?").into()),
        }
    }
    Ok(arguments)
}

async fn live(arguments: &Arguments) -> Result<ExitCode, Failed> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        say("told to stop");
        stopping.cancel();
    });

    let connection = Connection::open(arguments.kubeconfig.as_deref(), None, None)?;
    let factory = ClientFactory::new(connection, ClientOptions::default());
    let (clocks, chance) =
        (Clocks::new(wall_nanoseconds), Random::seeded(wall_nanoseconds().cast_unsigned()));
    let metrics = Metrics::new();
    let mut settings = LeaderElectionConfig::new(identity(&host_name()?, &mut chance.fork()));
    settings.release_on_stop = !arguments.keep;
    settings.coordinated = arguments.coordinated;
    say(&format!("I am {}", settings.identity));

    if arguments.coordinated {
        let candidacy = Candidacy {
            identity: settings.identity.clone(),
            binary_version: "1.37.1".to_owned(),
            emulation_version: "1.37.0".to_owned(),
        };
        let client = factory.root("kube-controller-manager");
        let candidate = Candidate::new(client, candidacy, clocks.clone(), &metrics);
        tokio::spawn(candidate.run(stop.clone().cancelled_owned()));
    }
    let events = factory.root("kube-controller-manager");
    let (announcer, writer) = Announcer::new(events, clocks.clone(), chance.fork(), metrics);
    let writing = tokio::spawn(writer.run(CancellationToken::new()));
    let observer: Arc<dyn ElectionObserver> = Arc::new(announcer);
    let migration = arguments.migration.then(Migration::default);
    let client = factory.root(CLIENT_NAME);
    let locks = Locks::elected(&client, settings, migration, &clocks, chance.fork(), &observer)?;
    drop(observer);
    let finish = locks.run(&stop, work).await;
    say(&format!("{finish:?}"));
    // Nobody records any more, so this ends when all is written.
    let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
    Ok(if matches!(finish, LocksOutcome::Lost(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Says when it may write and when not, until it is told to end.
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
            say(&format!("{name}: {}", if held { "I may write" } else { "I may not write" }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn say(what: &str) {
    println!("{:.3} {what}", wall_nanoseconds() as f64 / 1e9);
}

fn wall_nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
