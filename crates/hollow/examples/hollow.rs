//! Plays nodes, and a scheduler if asked to, in the cluster of a kubeconfig until it is interrupted.
//!
//! ```text
//! cargo run -p keleustes-hollow --example hollow -- --kubeconfig FILE --nodes 10 --scheduler
//! ```

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_hollow::Hollow;

#[derive(Parser)]
struct Arguments {
    /// Where the cluster is.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many nodes to play.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Over how many zones.
    #[arg(long, default_value_t = 1)]
    zones: usize,
    /// Play the scheduler as well.
    #[arg(long)]
    scheduler: bool,
    /// Take the taint off new nodes, where no node lifecycle controller runs.
    #[arg(long)]
    untaint: bool,
    /// Report volumes in use and attachments as done.
    #[arg(long)]
    volumes: bool,
    /// What everything random descends from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seconds pass between two lines about what there is and what was written.
    #[arg(long, default_value_t = 10)]
    report_every: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    let connection = Connection::open(Some(&arguments.kubeconfig), None, None)?;
    let client = ClientFactory::new(connection, ClientOptions::default()).root("hollow");
    let hollow = Hollow::builder(client)
        .nodes(arguments.nodes)
        .zones(arguments.zones)
        .scheduler(arguments.scheduler)
        .untaint(arguments.untaint)
        .volumes(arguments.volumes)
        .seed(arguments.seed)
        .start();
    let mut report = tokio::time::interval(Duration::from_secs(arguments.report_every.max(1)));
    loop {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => break,
            _ = report.tick() => {
                let tally = hollow.tally().await;
                let processor = processor_seconds().map(|spent| format!(", {spent:.2} s of processor"));
                println!(
                    "{} nodes, {} pods ({} running, {} waiting), {} writes, {} failures{}",
                    tally.nodes, tally.pods, tally.running, tally.waiting, tally.writes, tally.failures,
                    processor.unwrap_or_default()
                );
            }
        }
    }
    hollow.stop().await;
    Ok(())
}

/// What this process has used so far, where the system tells.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}
