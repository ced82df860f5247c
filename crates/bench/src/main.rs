//! Measurements, side by side with the original in one run: `cargo xtask bench`.

mod apiserver;
mod cascade;
mod graph;
mod kinds;
mod metadata;
mod meters;
mod namespace;
mod requests;
mod side_by_side;
mod slices;
mod soak;
mod workloads;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures the manager, side by side with the original in one run.")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Memory and speed of the embedded API server.
    Apiserver {
        /// How many pods are stored.
        #[arg(long, default_value_t = 100_000)]
        pods: usize,
        /// How many watches are open while pods change.
        #[arg(long, default_value_t = 100)]
        watches: usize,
    },
    /// The number of requests when owners are deleted, with or without their dependents.
    Cascade {
        /// How many owners.
        #[arg(long, default_value_t = 200)]
        owners: usize,
        /// How many dependents each has.
        #[arg(long, default_value_t = 10)]
        dependents: usize,
    },
    /// Memory and time per object in the garbage collector's graph.
    Graph {
        /// How many objects, owners and dependents together.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// Memory and decoding time per object of the frequent kinds.
    Kinds {
        /// How many pods of each variant; other kinds have fewer objects.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// Cold starts with up to 100,000 pods and 10,000 nodes, on the embedded API server.
    Large(side_by_side::LargeArgs),
    /// Ours and the original under the same loads, one after the other on new control planes.
    SideBySide(side_by_side::SideBySideArgs),
    /// Two managers under load for an hour, with restarts, slow disks, rotated credentials and failing requests.
    Soak(soak::SoakArgs),
    /// The number of EndpointSlice writes for the same changes of one large Service.
    Slices {
        /// How many pods the Service has.
        #[arg(long, default_value_t = 1000)]
        pods: usize,
        /// How many rounds both run, alternating.
        #[arg(long, default_value_t = 1)]
        rounds: usize,
        /// Measures only ours.
        #[arg(long)]
        without_original: bool,
    },
    /// Memory per Secret or ConfigMap that no controller acts on.
    Metadata {
        /// How many, half of them Secrets and half ConfigMaps.
        #[arg(long, default_value_t = 50_000)]
        objects: usize,
        /// Measures only ours.
        #[arg(long)]
        without_original: bool,
    },
    /// The time and the requests to delete a namespace full of objects.
    Namespace {
        /// How many objects, of eleven kinds.
        #[arg(long, default_value_t = 5000)]
        objects: usize,
        /// How many rounds each manager runs.
        #[arg(long, default_value_t = 2)]
        rounds: usize,
    },
    /// Draws the pictures of the documentation from the measurements in docs/data.
    Pictures,
    /// The time and the writes to create, roll and delete Deployments.
    Workloads(workloads::Options),
    /// Fills metadata-only caches and prints their memory per object; used by `metadata`, in a separate
    /// process.
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
        What::Large(args) => side_by_side::measure_large(&args).await,
        What::SideBySide(args) => side_by_side::measure(&args).await,
        What::Soak(args) => soak::run(&args).await,
        What::Slices { pods, rounds, without_original } => {
            slices::measure(pods, rounds, !without_original).await
        }
        What::Metadata { objects, without_original } => metadata::measure(objects, !without_original).await,
        What::Namespace { objects, rounds } => namespace::measure(objects, rounds).await,
        What::Pictures => side_by_side::draw(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")),
        What::Workloads(options) => workloads::measure(&options).await,
        What::FillMetadataCaches { kubeconfig } => metadata::fill_caches(&kubeconfig).await,
    }
}
