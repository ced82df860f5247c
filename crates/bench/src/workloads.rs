//! The time and the writes to create, roll and delete Deployments, with either manager.
//!
//! Pods are neither bound nor run: each is marked ready as soon as it is observed, and is removed at once
//! when it is deleted. Only the managers and the API server are measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{AuditEntry, AuditMark, ControlPlane, User};
use keleustes_scenarios::real::{Manager, RealCluster, built_manager, client_of};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// The controllers that create and delete the pods of Deployments.
const CONTROLLERS: &str =
    "--controllers=deployment-controller,replicaset-controller,garbage-collector-controller";
/// Their service accounts.
const USERS: [&str; 3] = ["deployment-controller", "replicaset-controller", "generic-garbage-collector"];
/// The concurrency of requests that create Deployments and mark pods ready.
const CONCURRENCY: usize = 16;
/// How often the end of a phase is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A manager that has written nothing for this time has finished.
const QUIET_PERIOD: Duration = Duration::from_secs(5);
/// How long one phase may take.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many Deployments.
    #[arg(long, default_value_t = 1)]
    deployments: usize,
    /// How many pods each has.
    #[arg(long, default_value_t = 1000)]
    replicas: usize,
    /// `--kube-api-qps` and burst of both managers; by default those of each manager.
    #[arg(long)]
    qps: Option<usize>,
    /// How many rounds both run, alternating.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Measures only ours.
    #[arg(long)]
    without_original: bool,
}

/// The phases, in order.
const PHASES: [&str; 3] = ["create", "roll", "delete"];

/// The result of one phase.
struct Outcome {
    time: Duration,
    /// Writes by verb and resource, such as `create pods`.
    writes: BTreeMap<String, usize>,
}

/// Runs the phases with both managers, and prints the results.
pub(crate) async fn measure(options: &Options) -> anyhow::Result<()> {
    let builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    let mut flags = vec![CONTROLLERS.to_owned(), "--leader-elect=false".to_owned()];
    if let Some(qps) = options.qps {
        flags.extend([format!("--kube-api-qps={qps}"), format!("--kube-api-burst={qps}")]);
    }
    let ours = Manager::Ours(built_manager()?);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let real = RealCluster::start_on(builder, &keleustes_scenarios::USUAL, ours.clone(), &flags)?;
    real.stop_manager()?;
    let mut all = BTreeMap::<&str, Vec<Vec<Outcome>>>::new();
    for round in 0..options.rounds {
        for manager in [&ours, &Manager::Original] {
            let whose = manager.whose();
            if options.without_original && whose != "ours" {
                continue;
            }
            let name = format!("{}-{round}", whose.replace(' ', "-"));
            let _process = manager.start(real.plane(), &name, &flags)?;
            // Long enough for either to fill its caches.
            tokio::time::sleep(Duration::from_secs(10)).await;
            eprintln!("round {}, {whose} ...", round + 1);
            let outcomes = WorkloadBench::create(&real, &name, options).await?.play().await?;
            all.entry(whose).or_default().push(outcomes);
        }
    }
    print(&all);
    Ok(())
}

fn print(all: &BTreeMap<&str, Vec<Vec<Outcome>>>) {
    println!("| what | whose | seconds | writes | of them |");
    println!("| --- | --- | ---: | ---: | --- |");
    for (at, phase) in PHASES.iter().enumerate() {
        for (whose, rounds) in all {
            for round in rounds {
                let Outcome { time, writes } = &round[at];
                let parts: Vec<_> = writes.iter().map(|(what, count)| format!("{count} {what}")).collect();
                let total: usize = writes.values().sum();
                let seconds = time.as_secs_f64();
                println!("| {phase} | {whose} | {seconds:.1} | {total} | {} |", parts.join(", "));
            }
        }
    }
}

/// Deployments in a namespace of their own.
struct WorkloadBench<'r> {
    real: &'r RealCluster,
    namespace: String,
    options: &'r Options,
    deployments: Api<Deployment>,
    sets: Api<ReplicaSet>,
    pods: Api<Pod>,
}

impl<'r> WorkloadBench<'r> {
    async fn create(real: &'r RealCluster, namespace: &str, options: &'r Options) -> anyhow::Result<Self> {
        let client = client_of(real.plane(), User::Admin).await?;
        let post = PostParams::default();
        let named = |name: &str| json!({"metadata": {"name": name}});
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&post, &serde_json::from_value(named(namespace))?).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        accounts.create(&post, &serde_json::from_value(named("default"))?).await?;
        Ok(Self {
            real,
            namespace: namespace.to_owned(),
            options,
            deployments: Api::namespaced(client.clone(), namespace),
            sets: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client, namespace),
        })
    }

    async fn play(&self) -> anyhow::Result<Vec<Outcome>> {
        let readiness = tokio::spawn(mark_pods_ready(self.pods.clone()));
        let mut outcomes = Vec::new();
        for phase in PHASES {
            let before = self.real.plane().audit_mark()?;
            let began = Instant::now();
            let numbers = stream::iter(0..self.options.deployments);
            let applied = numbers.map(|number| self.apply(phase, number)).buffer_unordered(CONCURRENCY);
            applied.try_collect::<Vec<()>>().await?;
            while !self.is_done(phase).await? {
                ensure!(began.elapsed() < TIMEOUT, "phase {phase} does not finish");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let time = began.elapsed();
            let writes = self.all_writes(before).await?;
            let total: usize = writes.values().sum();
            eprintln!("  {phase}: {:.1} s, {total} writes", time.as_secs_f64());
            outcomes.push(Outcome { time, writes });
        }
        readiness.abort();
        Ok(outcomes)
    }

    async fn apply(&self, phase: &str, number: usize) -> anyhow::Result<()> {
        let name = format!("web-{number:03}");
        match phase {
            "create" => {
                let object = deployment(&name, self.options.replicas);
                self.deployments.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            }
            "roll" => {
                let patch = Patch::Merge(json!({"spec": {"template": template(&name, "v2")}}));
                self.deployments.patch(&name, &PatchParams::default(), &patch).await?;
            }
            _ => {
                self.deployments.delete(&name, &DeleteParams::background()).await?;
            }
        }
        Ok(())
    }

    async fn is_done(&self, phase: &str) -> anyhow::Result<bool> {
        let deployments = self.deployments.list(&ListParams::default()).await?;
        if phase == "delete" {
            let one = ListParams::default().limit(1);
            return Ok(deployments.items.is_empty()
                && self.pods.list_metadata(&one).await?.items.is_empty()
                && self.sets.list_metadata(&one).await?.items.is_empty());
        }
        let wanted = i32::try_from(self.options.replicas)?;
        let is_done = |deployment: &Deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            status.observed_generation == deployment.metadata.generation && counts == [Some(wanted); 3]
        };
        Ok(deployments.items.len() == self.options.deployments && deployments.iter().all(is_done))
    }

    /// The writes since then, once no more follow: the last events and status updates belong to the phase,
    /// too, and arrive late at a low rate limit.
    async fn all_writes(&self, before: AuditMark) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut writes = self.writes(before)?;
        loop {
            tokio::time::sleep(QUIET_PERIOD).await;
            let now = self.writes(before)?;
            if now == writes {
                return Ok(writes);
            }
            writes = now;
        }
    }

    /// The writes of the managers in this namespace since then, successful or not.
    fn writes(&self, before: AuditMark) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut writes = BTreeMap::new();
        for entry in self.real.plane().audit_since(before)? {
            if let Some(what) = self.write_kind(&entry) {
                *writes.entry(what).or_default() += 1;
            }
        }
        Ok(writes)
    }

    fn write_kind(&self, entry: &AuditEntry) -> Option<String> {
        let user = entry.user.strip_prefix("system:serviceaccount:kube-system:")?;
        let object = entry.object.as_ref()?;
        if !entry.is_write() || !USERS.contains(&user) || object.namespace != self.namespace {
            return None;
        }
        let refused = if entry.code >= 400 { " refused" } else { "" };
        let slash = if object.subresource.is_empty() { "" } else { "/" };
        Some(format!("{} {}{slash}{}{refused}", entry.verb, object.resource, object.subresource))
    }
}

fn template(name: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": image}]},
    })
}

fn deployment(name: &str, replicas: usize) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    let spec = json!({"replicas": replicas, "selector": selector, "template": template(name, "v1")});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Marks every pod ready as soon as it is observed.
async fn mark_pods_ready(pods: Api<Pod>) {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let patch = Patch::Merge(status);
    loop {
        if let Ok(events) = pods.watch(&WatchParams::default(), "0").await {
            let marking = events.for_each_concurrent(CONCURRENCY, async |event| {
                let Ok(WatchEvent::Added(pod)) = event else { return };
                let pending =
                    pod.status.as_ref().is_none_or(|status| status.phase.as_deref() != Some("Running"));
                if pending {
                    // A deleted pod needs no status.
                    let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
                }
            });
            marking.await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
