//! Runs hollow nodes, and optionally the hollow scheduler, against a kubeconfig until it is interrupted.
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
    /// Path of the kubeconfig.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Number of hollow nodes.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Number of zones.
    #[arg(long, default_value_t = 1)]
    zones: usize,
    /// Run the hollow scheduler.
    #[arg(long)]
    scheduler: bool,
    /// Remove the not-ready taint from new nodes; needed without a node lifecycle controller.
    #[arg(long)]
    untaint: bool,
    /// Report volumes in use and set VolumeAttachments to attached.
    #[arg(long)]
    volumes: bool,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seconds between two lines of statistics.
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
                let stats = hollow.stats().await;
                let processor = processor_seconds().map(|spent| format!(", {spent:.2} CPU seconds"));
                println!(
                    "{} nodes, {} pods ({} running, {} pending), {} writes, {} failures{}",
                    stats.nodes, stats.pods, stats.running, stats.pending, stats.writes, stats.failures,
                    processor.unwrap_or_default()
                );
            }
        }
    }
    hollow.stop().await;
    Ok(())
}

/// CPU seconds used by this process, if the system reports them.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}
