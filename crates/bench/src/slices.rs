//! The number of EndpointSlice writes for the same changes of one large Service.
//!
//! The pods have no kubelet: their status is written here, at the same rate for both managers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{AuditEntry, ControlPlane, User};
use keleustes_scenarios::real::{Manager, RealCluster, built_manager, client_of};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Only this controller, so that no other one writes.
const FLAGS: [&str; 2] = ["--controllers=endpointslice-controller", "--leader-elect=false"];
const NODE: &str = "bench-node";

/// What happens to the pods, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All become ready, 100 a second.
    Start,
    /// Readiness toggles, 100 times a second.
    Flap,
    /// Each is replaced by a new one, 20 a second.
    Rollout,
    /// Readiness toggles, twice a second.
    Trickle,
    /// Changes that do not affect endpoints, 100 times a second.
    Irrelevant,
}

const PHASES: [(Phase, &str); 5] = [
    (Phase::Start, "all pods become ready, 100 a second"),
    (Phase::Flap, "300 changes of readiness, 100 a second"),
    (Phase::Rollout, "every pod is replaced, 20 a second"),
    (Phase::Trickle, "40 changes of readiness, 2 a second"),
    (Phase::Irrelevant, "1,000 changes that do not affect endpoints"),
];

/// The result of one phase.
struct Outcome {
    writes: usize,
    /// From the last change of a pod until the slices reflect it.
    delay: Duration,
}

/// Applies the same changes with both managers and prints their writes.
pub(crate) async fn measure(pods: usize, rounds: usize, with_original: bool) -> anyhow::Result<()> {
    let builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    let real =
        RealCluster::start_on(builder, &keleustes_scenarios::USUAL, Manager::Ours(built_manager()?), &FLAGS)?;
    let client = client_of(real.plane(), User::Admin).await?;
    let node =
        json!({"metadata": {"name": NODE}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    create::<Node>(&Api::all(client.clone()), node).await?;
    let (mut ours, mut original) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("round {}: ours ...", round + 1);
        ours.push(Churn::new(&real, &client, &format!("ours-{round}"), pods).await?.play().await?);
        if with_original {
            real.stop_manager()?;
            let go = real.plane().start_go_manager(&FLAGS)?;
            eprintln!("round {}: the original ...", round + 1);
            original
                .push(Churn::new(&real, &client, &format!("original-{round}"), pods).await?.play().await?);
            drop(go);
            keleustes_scenarios::ControlPlaneProcesses::start_manager(&real)?;
        }
    }
    println!(
        "| what happens to {pods} pods of one Service | ours | the original | listed after, ours | the original |"
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (at, (_, name)) in PHASES.iter().enumerate() {
        let of = |runs: &[Vec<Outcome>]| {
            let writes: Vec<_> = runs.iter().map(|run| run[at].writes.to_string()).collect();
            let listed: Vec<_> =
                runs.iter().map(|run| format!("{:.2} s", run[at].delay.as_secs_f64())).collect();
            (writes.join(", "), listed.join(", "))
        };
        let ((ours, ours_shown), (original, original_shown)) = (of(&ours), of(&original));
        println!("| {name} | {ours} | {original} | {ours_shown} | {original_shown} |");
    }
    Ok(())
}

async fn create<K>(api: &Api<K>, object: Value) -> anyhow::Result<()>
where
    K: serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// One Service and its pods under one manager.
struct Churn<'r> {
    real: &'r RealCluster,
    namespace: String,
    pods: Api<Pod>,
    slices: Api<EndpointSlice>,
    count: usize,
    /// The expected endpoints, and whether they are ready.
    wanted: BTreeMap<String, bool>,
}

impl<'r> Churn<'r> {
    async fn new(
        real: &'r RealCluster,
        client: &Client,
        namespace: &str,
        count: usize,
    ) -> anyhow::Result<Self> {
        create::<Namespace>(&Api::all(client.clone()), json!({"metadata": {"name": namespace}})).await?;
        create::<ServiceAccount>(
            &Api::namespaced(client.clone(), namespace),
            json!({"metadata": {"name": "default"}}),
        )
        .await?;
        let service = json!({"metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
        create::<Service>(&Api::namespaced(client.clone(), namespace), service).await?;
        let churn = Self {
            real,
            namespace: namespace.to_owned(),
            pods: Api::namespaced(client.clone(), namespace),
            slices: Api::namespaced(client.clone(), namespace),
            count,
            wanted: BTreeMap::new(),
        };
        let made = stream::iter(0..count).map(|n| churn.create_pod(format!("old-{n:04}")));
        made.buffer_unordered(16).try_collect::<Vec<()>>().await?;
        Ok(churn)
    }

    async fn play(mut self) -> anyhow::Result<Vec<Outcome>> {
        self.wait_until_listed().await?;
        let mut outcomes = Vec::new();
        for (phase, name) in PHASES {
            let before = self.writes()?;
            self.play_phase(phase).await?;
            let ended = Instant::now();
            self.wait_until_listed().await.with_context(|| name.to_owned())?;
            let delay = ended.elapsed();
            tokio::time::sleep(Duration::from_secs(3)).await;
            self.wait_until_listed().await.with_context(|| format!("{name}, later"))?;
            let writes = self.writes()? - before;
            eprintln!("  {name}: {writes} writes, listed after {:.2} s", delay.as_secs_f64());
            outcomes.push(Outcome { writes, delay });
        }
        Ok(outcomes)
    }

    async fn play_phase(&mut self, phase: Phase) -> anyhow::Result<()> {
        let old = |n: usize| format!("old-{n:04}");
        match phase {
            Phase::Start => {
                let names: Vec<_> = (0..self.count).map(old).collect();
                self.wanted.extend(names.iter().map(|name| (name.clone(), true)));
                self.each(names, 100, |name| self.make_ready(name)).await
            }
            Phase::Flap => self.flap(300, 100, old).await,
            Phase::Rollout => {
                let numbers: Vec<_> = (0..self.count).collect();
                self.wanted = numbers.iter().map(|n| (format!("new-{n:04}"), true)).collect();
                self.each(numbers, 20, |n| self.replace(n)).await
            }
            Phase::Trickle => self.flap(40, 2, |n| format!("new-{n:04}")).await,
            Phase::Irrelevant => {
                let names: Vec<_> = (0..1000).map(|n| format!("new-{:04}", n % self.count)).collect();
                self.each(names, 100, |name| self.annotate(name)).await
            }
        }
    }

    /// Applies an action to each item at this rate.
    async fn each<T, F>(
        &self,
        things: impl IntoIterator<Item = T>,
        per_second: u32,
        act: impl Fn(T) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let begun = tokio::time::Instant::now();
        let scheduled = things.into_iter().enumerate().map(|(at, thing)| {
            let due = begun + Duration::from_secs(1) * u32::try_from(at).unwrap_or(u32::MAX) / per_second;
            let act = &act;
            async move {
                tokio::time::sleep_until(due).await;
                act(thing).await
            }
        });
        stream::iter(scheduled).buffer_unordered(64).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Toggles the readiness of pods spread over the Service, this number of times.
    async fn flap(
        &mut self,
        times: usize,
        per_second: u32,
        name: impl Fn(usize) -> String,
    ) -> anyhow::Result<()> {
        // A prime that does not divide any likely number of pods, so that no pod is selected twice.
        let names: Vec<_> = (0..times.min(self.count)).map(|n| name(n * 7919 % self.count)).collect();
        for name in &names {
            let ready = self.wanted.get_mut(name).context("a pod")?;
            *ready = !*ready;
        }
        self.each(names, per_second, |name| self.toggle_readiness(name)).await
    }

    async fn toggle_readiness(&self, name: String) -> anyhow::Result<()> {
        self.patch_status(&name, json!({"conditions": [condition(self.wanted[&name])]})).await
    }

    async fn annotate(&self, name: String) -> anyhow::Result<()> {
        let note = json!({"metadata": {"annotations": {"note": format!("{:?}", Instant::now())}}});
        self.pods.patch(&name, &PatchParams::default(), &Patch::Merge(note)).await?;
        Ok(())
    }

    async fn create_pod(&self, name: String) -> anyhow::Result<()> {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": NODE, "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "i"}]},
        });
        create(&self.pods, pod).await
    }

    async fn make_ready(&self, name: String) -> anyhow::Result<()> {
        let (kind, number) = name.split_once('-').context("a kind and a number")?;
        let number: usize = number.parse()?;
        let net = if kind == "old" { 1 } else { 2 };
        let ip = format!("10.{net}.{}.{}", number / 250, number % 250 + 1);
        let status =
            json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition(true)]});
        self.patch_status(&name, status).await
    }

    /// As a rollout does: the new pod is ready before the old one is deleted.
    async fn replace(&self, n: usize) -> anyhow::Result<()> {
        let (old, new) = (format!("old-{n:04}"), format!("new-{n:04}"));
        self.create_pod(new.clone()).await?;
        self.make_ready(new).await?;
        self.pods.delete(&old, &DeleteParams::default()).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.pods.delete(&old, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    async fn patch_status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn wait_until_listed(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let wanted = ListParams::default().labels("kubernetes.io/service-name=web");
        loop {
            let slices = self.slices.list(&wanted).await?;
            let endpoints = slices.items.iter().flat_map(|slice| slice.endpoints.iter().flatten());
            let listed = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
                let name = endpoint.target_ref.as_ref()?.name.clone()?;
                Some((name, endpoint.conditions.as_ref()?.ready?))
            };
            let listed: BTreeMap<_, _> = endpoints.filter_map(listed).collect();
            if !slices.items.is_empty() && listed == self.wanted {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} of {} pods are listed", listed.len(), self.wanted.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The number of EndpointSlice writes in the namespace so far, successful or not.
    fn writes(&self) -> anyhow::Result<usize> {
        let is_ours = |entry: &&AuditEntry| {
            let object = entry.object.as_ref();
            let is_slice = object.is_some_and(|object| {
                object.resource == "endpointslices" && object.namespace == self.namespace
            });
            is_slice && ["create", "update", "patch", "delete"].contains(&&*entry.verb)
        };
        Ok(self.real.plane().audit_entries()?.iter().filter(is_ours).count())
    }
}

fn condition(ready: bool) -> Value {
    json!({"type": "Ready", "status": if ready { "True" } else { "False" }})
}
