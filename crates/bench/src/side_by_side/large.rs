//! Cold starts in a cluster that is too large for a real control plane on one machine: on the embedded API server, which runs
//! in this process, with hollow nodes. This manager creates the pods of every size; both are then started on them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use keleustes_apiserver::private_files;
use keleustes_apiserver::{ApiServer, User};
use keleustes_control_plane::Process;
use keleustes_control_plane::build::{BinaryCache, Program};
use keleustes_hollow::Hollow;
use keleustes_objects::Key;
use keleustes_scenarios::real::built_manager;
use kube::Client;

use super::bench_cluster::{BenchCluster, wait_until_cpu_below};
use super::loads::{create_deployments, keys, namespace_names, scale};
use super::objects::create_namespaces;
use crate::meters::Meter;

const REPLICAS: usize = 100;
const NAMESPACES: usize = 20;
/// How many changes the server keeps for watches; its default would keep every pod several times.
const HISTORY_LIMIT: usize = 20_000;

/// How large the cluster becomes.
#[derive(Args)]
pub(crate) struct LargeArgs {
    /// Pods at the largest of four sizes, each twice the previous one.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Nodes at the largest size.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Measures only ours.
    #[arg(long)]
    without_original: bool,
    /// The folder for logs and credentials.
    #[arg(long, default_value = "target/large")]
    out: PathBuf,
}

/// What one cold start costs.
struct ColdStart {
    first_write: f64,
    new_pod: f64,
    cpu: f64,
    resident: f64,
    peak: f64,
}

/// Lets a cluster grow and prints a table of cold starts.
pub(crate) async fn measure(args: &LargeArgs) -> anyhow::Result<()> {
    let ours = built_manager()?;
    let original = (!args.without_original).then(original_manager).transpose()?;
    let server = ApiServer::builder().history_limit(HISTORY_LIMIT).request_log_limit(0).build();
    let address = "127.0.0.1:0".parse().context("an address")?;
    let serving = serve(server.clone(), address, Pki::generate()?, Limits::default()).await?;
    let cluster =
        LargeCluster { client: Client::new(server.clone(), "default"), server, folder: args.out.clone() };
    cluster.write_kubeconfig(&serving)?;
    let namespaces = namespace_names(NAMESPACES);
    let deployments = keys(&namespaces, (args.pods / REPLICAS).max(8));
    let mut manager = cluster.spawn(&ours, 0, "ours-first")?;
    create_namespaces(&cluster.client, &namespaces).await?;
    println!(
        "| pods | nodes | manager | first useful write | new pod ready | CPU time | resident memory | its peak |"
    );
    println!("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    let mut created = 0;
    for (step, part) in [8, 4, 2, 1].into_iter().enumerate() {
        let (count, nodes) = (deployments.len() / part, (args.nodes / part).max(1));
        let pods_each = u32::try_from(args.pods * 2 / args.nodes.max(1) + 10)?;
        let builder = Hollow::builder(cluster.client.clone()).nodes(nodes).zones(3).scheduler(true);
        let hollow = builder.capacity("1000", "4000Gi", pods_each).start();
        create_deployments(&cluster.client, &deployments[created..count], REPLICAS).await?;
        created = count;
        eprintln!("{} pods exist", count * REPLICAS);
        let wanted = REPLICAS + 2 * step;
        for (program, whose, replicas) in
            [(Some(&ours), "ours", wanted + 1), (original.as_ref(), "the original", wanted + 2)]
        {
            let Some(program) = program else { continue };
            wait_until_cpu_below(&mut manager, idle_cpu(nodes)).await?;
            end(&mut manager)?;
            let started;
            (manager, started) = cluster.cold_start(program, whose, nodes, &deployments[0], replicas).await?;
            print_row(count * REPLICAS, nodes, whose, &started);
        }
        // Ours creates the pods of the next size.
        end(&mut manager)?;
        cluster.server.remove("leases.coordination.k8s.io", "kube-system", "kube-controller-manager");
        manager = cluster.spawn(&ours, nodes, &format!("ours-{step}"))?;
        hollow.stop().await;
    }
    end(&mut manager)?;
    serving.stop().await;
    Ok(())
}

fn original_manager() -> anyhow::Result<PathBuf> {
    let programs = BinaryCache::from_env().provide(&[Program::KubeControllerManager])?;
    Ok(programs.path(Program::KubeControllerManager).context("the original does not build")?.to_owned())
}

fn end(manager: &mut Process) -> anyhow::Result<()> {
    manager.kill9()?;
    manager.wait_exit(Duration::from_secs(10))?;
    Ok(())
}

/// The CPU seconds that an idle manager may use in two seconds, most of them for heartbeats.
fn idle_cpu(nodes: usize) -> f64 {
    0.1 + nodes as f64 * 0.000_1
}

fn print_row(pods: usize, nodes: usize, whose: &str, started: &ColdStart) {
    let ColdStart { first_write, new_pod, cpu, resident, peak } = started;
    println!(
        "| {pods} | {nodes} | {whose} | {first_write:.2} s | {new_pod:.2} s | {cpu:.2} s | {:.1} MB | {:.1} MB |",
        resident / 1e6,
        peak / 1e6
    );
}

/// The embedded server and the folder of its managers.
struct LargeCluster {
    server: ApiServer,
    client: Client,
    folder: PathBuf,
}

impl LargeCluster {
    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    fn write_kubeconfig(&self, serving: &RunningServer) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let text = serving.kubeconfig(&User::admin())?;
        Ok(private_files::write(&self.kubeconfig(), &text)?)
    }

    /// Starts a manager. Heartbeats may come late on a busy machine, which must not evict pods.
    fn spawn(&self, program: &Path, nodes: usize, name: &str) -> anyhow::Result<Process> {
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.args([
            "--secure-port=0",
            "--node-monitor-grace-period=1h",
            "--kube-api-qps=2000",
            "--kube-api-burst=2000",
        ]);
        let log = self.folder.join(format!("{name}-{nodes}.log"));
        Ok(Process::spawn(name, &command, &log)?)
    }

    /// Scales a Deployment, and starts a manager that finds it so.
    async fn cold_start(
        &self,
        program: &Path,
        name: &str,
        nodes: usize,
        deployment: &Key,
        replicas: usize,
    ) -> anyhow::Result<(Process, ColdStart)> {
        self.server.remove("leases.coordination.k8s.io", "kube-system", "kube-controller-manager");
        scale(&self.client, deployment, replicas).await?;
        let replica_set = self.replica_set_of(deployment)?;
        let began = Instant::now();
        let mut manager = self.spawn(program, nodes, &name.replace(' ', "-"))?;
        let first_write = self.until(&replica_set, "/spec/replicas", replicas, began).await?;
        let new_pod = self.until(&replica_set, "/status/readyReplicas", replicas, began).await?;
        wait_until_cpu_below(&mut manager, idle_cpu(nodes)).await?;
        let meter = Meter(manager.pid());
        let (cpu, resident, peak) = (meter.cpu()?, meter.resident()?, meter.peak()?);
        Ok((manager, ColdStart { first_write, new_pod, cpu, resident, peak }))
    }

    /// The only ReplicaSet of a Deployment.
    fn replica_set_of(&self, deployment: &Key) -> anyhow::Result<Key> {
        let sets = self.server.objects("replicasets.apps");
        let found = sets.iter().find(|set| {
            set["metadata"]["namespace"] == *deployment.namespace
                && set["metadata"]["ownerReferences"][0]["name"] == *deployment.name
        });
        let name = found.and_then(|set| set["metadata"]["name"].as_str()).context("no ReplicaSet exists")?;
        Ok(Key::namespaced(&*deployment.namespace, name))
    }

    /// Waits until a ReplicaSet has this number, and returns the seconds since then.
    async fn until(&self, set: &Key, field: &str, wanted: usize, began: Instant) -> anyhow::Result<f64> {
        loop {
            let found = self.server.object("replicasets.apps", &set.namespace, &set.name);
            let number = found.as_ref().and_then(|set| set.pointer(field)?.as_u64());
            if number == Some(wanted as u64) {
                return Ok(began.elapsed().as_secs_f64());
            }
            anyhow::ensure!(
                began.elapsed() < BenchCluster::TIMEOUT,
                "{set} has {number:?} at {field} instead of {wanted}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
