//! Measurements, side by side with the original in one run: `cargo xtask bench`.

mod apiserver;
mod beside;
mod cascade;
mod graph;
mod kinds;
mod metadata;
mod meters;
mod namespace;
mod requests;
mod slices;
mod workloads;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures the manager, side by side with the original in one run.")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What the embedded API server holds and how fast it lists and watches.
    Apiserver {
        /// How many pods are stored.
        #[arg(long, default_value_t = 100_000)]
        pods: usize,
        /// How many watches are open while pods change.
        #[arg(long, default_value_t = 100)]
        watches: usize,
    },
    /// How many requests it takes to delete owners, with their dependents or without.
    Cascade {
        /// How many owners.
        #[arg(long, default_value_t = 200)]
        owners: usize,
        /// How many dependents each has.
        #[arg(long, default_value_t = 10)]
        dependents: usize,
    },
    /// What objects cost in the garbage collector's graph.
    Graph {
        /// How many objects, owners and dependents together.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// What objects of the frequent kinds cost in memory and take to read.
    Kinds {
        /// How many pods of each sort; of other kinds there are fewer.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// Ours and the original under the same loads, one after the other on fresh control planes.
    SideBySide(beside::Wanted),
    /// How many EndpointSlice writes the same churn of one large Service takes.
    Slices {
        /// How many pods the Service has.
        #[arg(long, default_value_t = 1000)]
        pods: usize,
        /// How often both play it, in turn.
        #[arg(long, default_value_t = 1)]
        rounds: usize,
        /// Leaves the original out.
        #[arg(long)]
        without_original: bool,
    },
    /// What Secrets and ConfigMaps cost that no controller is interested in.
    Metadata {
        /// How many, half of them Secrets and half ConfigMaps.
        #[arg(long, default_value_t = 50_000)]
        objects: usize,
        /// Leaves the original out.
        #[arg(long)]
        without_original: bool,
    },
    /// How long a namespace full of objects takes to go, and how many requests.
    Namespace {
        /// How many objects, of eleven kinds.
        #[arg(long, default_value_t = 5000)]
        objects: usize,
        /// How often each manager has to.
        #[arg(long, default_value_t = 2)]
        rounds: usize,
    },
    /// How long Deployments take to start, roll and go, and how many writes that is.
    Workloads(workloads::Options),
    /// Fills metadata-only caches and prints what they cost; used by `metadata`, in a process of its own.
    #[command(hide = true)]
    FillMetadataCaches {
        /// How to reach the API server.
        kubeconfig: PathBuf,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse().what {
        What::Apiserver { pods, watches } => apiserver::measure(pods, watches).await,
        What::Cascade { owners, dependents } => cascade::measure(owners, dependents).await,
        What::Graph { objects } => graph::measure(objects),
        What::Kinds { objects } => kinds::measure(objects),
        What::SideBySide(wanted) => beside::measure(&wanted).await,
        What::Slices { pods, rounds, without_original } => {
            slices::measure(pods, rounds, !without_original).await
        }
        What::Metadata { objects, without_original } => metadata::measure(objects, !without_original).await,
        What::Namespace { objects, rounds } => namespace::measure(objects, rounds).await,
        What::Workloads(options) => workloads::measure(&options).await,
        What::FillMetadataCaches { kubeconfig } => metadata::fill_caches(&kubeconfig).await,
    }
}
