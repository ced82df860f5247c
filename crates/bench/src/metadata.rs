//! Memory per object of which only the metadata is cached, or nothing at all.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, User};
use keleustes_objects::Resource;
use keleustes_plan::KindEntry;
use keleustes_runtime::caches::Caches;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::metrics::Metrics;
use keleustes_scenarios::real::{Manager, RealCluster, built_manager, client_of};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::meters::Meter;

const NAMESPACES: usize = 20;

/// Fills a control plane with objects that no controller acts on and prints the memory per object.
pub(crate) async fn measure(objects: usize, with_original: bool) -> anyhow::Result<()> {
    let mut builder = ControlPlane::builder();
    if with_original {
        builder = builder.with_program(Program::KubeControllerManager);
    }
    let real = RealCluster::start_on(
        builder,
        &keleustes_scenarios::USUAL,
        Manager::Ours(built_manager()?),
        &["--leader-elect=false"],
    )?;
    let ours_empty = Meter(real.manager_pid()?).settled().await?;
    let go = if with_original { Some(Original::start(&real).await?) } else { None };

    eprintln!("creating {objects} objects ...");
    let began = Instant::now();
    create(&client_of(real.plane(), User::Admin).await?, objects).await?;
    eprintln!("... took {:.0} s", began.elapsed().as_secs_f64());

    let ours_full = Meter(real.manager_pid()?).settled().await?;
    let caches = fill_in_another_process(&real, objects)?;
    println!("| what | bytes an object |");
    println!("| --- | --- |");
    let per_object = |more: u64, less: u64| more.saturating_sub(less) / objects as u64;
    println!(
        "| manager, {objects} Secrets and ConfigMaps that no controller acts on | {} |",
        per_object(ours_full, ours_empty)
    );
    println!("| metadata-only caches of the same objects | {caches} |");
    if let Some(go) = go {
        let full = Meter(go.process.pid()).settled().await?;
        println!("| the original, same controllers, same objects | {} |", per_object(full, go.empty));
        println!("\nwhole processes: ours {ours_full} bytes, the original {full} bytes");
    }
    Ok(())
}

/// The original on the same control plane as ours, without leader election.
struct Original {
    process: keleustes_control_plane::Process,
    empty: u64,
}

impl Original {
    async fn start(real: &RealCluster) -> anyhow::Result<Self> {
        let controllers = keleustes_scenarios::real::controllers_flag();
        let process = real.plane().start_go_manager(&[controllers.as_str(), "--leader-elect=false"])?;
        let empty = Meter(process.pid()).settled().await?;
        Ok(Self { process, empty })
    }
}

/// Creates objects as in real clusters: a kilobyte of data, some labels, an annotation.
async fn create(client: &Client, objects: usize) -> anyhow::Result<()> {
    for n in 0..NAMESPACES {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": format!("bulk-{n:02}")}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    stream::iter(0..objects)
        .map(|n| async move {
            let namespace = format!("bulk-{:02}", n % NAMESPACES);
            let metadata = json!({
                "name": format!("settings-of-the-application-{n:06}"),
                "labels": {"app.kubernetes.io/name": "application", "app.kubernetes.io/managed-by": "Helm",
                           "app.kubernetes.io/instance": format!("release-{}", n % 100)},
                "annotations": {"meta.helm.sh/release-name": "release", "note": "x".repeat(200)},
            });
            if n % 2 == 0 {
                let object = json!({"metadata": metadata, "stringData": {"values": "s".repeat(1024)}});
                create_one::<Secret>(client, &namespace, object).await
            } else {
                let object = json!({"metadata": metadata, "data": {"values": "c".repeat(1024)}});
                create_one::<ConfigMap>(client, &namespace, object).await
            }
        })
        .buffer_unordered(32)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

async fn create_one<K>(client: &Client, namespace: &str, object: serde_json::Value) -> anyhow::Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Runs [`fill_caches`] in a separate process.
fn fill_in_another_process(real: &RealCluster, objects: usize) -> anyhow::Result<u64> {
    let kubeconfig = real.plane().kubeconfig(User::ControllerManager);
    let output =
        Command::new(std::env::current_exe()?).arg("fill-metadata-caches").arg(kubeconfig).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers = String::from_utf8(output.stdout)?;
    let (found, bytes) = numbers.trim().split_once(' ').context("two numbers")?;
    ensure!(found.parse::<usize>()? >= objects, "only {found} objects were found");
    Ok(bytes.parse()?)
}

/// Fills metadata-only caches and prints the number of objects and the bytes per object.
pub(crate) async fn fill_caches(kubeconfig: &Path) -> anyhow::Result<()> {
    let connection = Connection::open(Some(kubeconfig), None, None)?;
    let client = ClientFactory::new(connection, ClientOptions::default()).root("metadata-informers");
    let (pid, clocks) = (std::process::id(), Clocks::new(|| 0));
    let caches = Caches::new(client, clocks, Random::seeded(1), Metrics::new(), None);
    // A kind with few objects initializes connections, TLS and the parser, which are not measured.
    let namespaces = Resource::cluster("", "v1", "namespaces", "Namespace");
    caches.cache(&KindEntry::metadata_of(namespaces)).wait_for_sync().await;
    let before = Meter(pid).anonymous()?;
    let secrets = Resource::namespaced("", "v1", "secrets", "Secret");
    let config_maps = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
    let filled = [secrets, config_maps].map(|resource| caches.cache(&KindEntry::metadata_of(resource)));
    for cache in &filled {
        cache.wait_for_sync().await;
    }
    let objects: usize = filled.iter().map(|cache| cache.len()).sum();
    let after = Meter(pid).settled().await?;
    println!("{objects} {}", after.saturating_sub(before) / objects.max(1) as u64);
    Ok(())
}
