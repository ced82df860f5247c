//! Starts hollow nodes and provides the handle to them.

use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{ListWatch, Reflector};
use keleustes_objects::{Kind as _, PersistentVolumeClaim, Projection, StorageClass};
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::driver::{Command, Driver};
use crate::engine::{Engine, HollowStats};
use crate::hollow_node::NodeConfig;
use crate::kubelet::PodDefaults;
use crate::projections::{Attachment, ConfigMap, CsiDriver, Node, Pod, Secret, Volume};

/// Hollow nodes and a scheduler, to be started with [`Hollow::builder`].
#[derive(Debug)]
pub struct Hollow;

impl Hollow {
    /// Configures hollow nodes for the cluster of a client.
    pub fn builder(client: Client) -> Builder {
        Builder {
            client,
            nodes: 1,
            name_prefix: "hollow-".to_owned(),
            seed: 0,
            scheduler: false,
            volumes: false,
            mounts: false,
            wall: None,
            max_in_flight: 64,
            node_config: NodeConfig {
                zones: 1,
                region: "hollow".to_owned(),
                cpu: "32".to_owned(),
                memory: "256Gi".to_owned(),
                pods: 110,
                extended: Vec::new(),
                lease_interval: Duration::from_secs(10),
                lease_duration: Duration::from_secs(40),
                status_every: Duration::from_secs(300),
                removes_not_ready_taint: false,
            },
            pod_defaults: PodDefaults {
                start_delay: Duration::from_millis(200),
                start_spread: Duration::from_millis(200),
                batch_run_for: Some(Duration::from_secs(2)),
                batch_killed_code: 0,
                termination_delay: Duration::from_millis(200),
            },
        }
    }
}

/// The number and size of the nodes, and the default behaviour of their pods.
#[must_use = "nothing happens until start() is called"]
pub struct Builder {
    client: Client,
    nodes: usize,
    name_prefix: String,
    seed: u64,
    scheduler: bool,
    volumes: bool,
    mounts: bool,
    wall: Option<Timestamp>,
    max_in_flight: usize,
    node_config: NodeConfig,
    pod_defaults: PodDefaults,
}

impl Builder {
    /// Number of nodes; default 1.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Prefix of the node names; default `hollow-`. A number from 0 follows.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = prefix.into();
        self
    }

    /// Number of zones the nodes are distributed over; default 1.
    pub fn zones(mut self, zones: usize) -> Self {
        self.node_config.zones = zones;
        self
    }

    /// Seed of all random choices.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether to run the hollow scheduler; default no.
    pub fn scheduler(mut self, scheduler: bool) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// Whether ready nodes remove the taint `node.kubernetes.io/not-ready` that the API server adds to new
    /// nodes; default no. Needed in clusters without a node lifecycle controller.
    pub fn untaint(mut self, untaint: bool) -> Self {
        self.node_config.removes_not_ready_taint = untaint;
        self
    }

    /// Whether pods wait for their claims, to be scheduled and to start; nodes report the volumes in use by their pods,
    /// and set every VolumeAttachment to attached as a CSI driver would; default no.
    pub fn volumes(mut self, volumes: bool) -> Self {
        self.volumes = volumes;
        self
    }

    /// Whether pods wait for the ConfigMaps and Secrets that they mount, and events say which volume of a pod cannot be
    /// mounted; default no. Without a controller that creates `kube-root-ca.crt` no pod with a token starts.
    pub fn mounts(mut self, mounts: bool) -> Self {
        self.mounts = mounts;
        self
    }

    /// Capacity of each node; default 32 CPUs, 256Gi and 110 pods.
    pub fn capacity(mut self, cpu: impl Into<String>, memory: impl Into<String>, pods: u32) -> Self {
        self.node_config.cpu = cpu.into();
        self.node_config.memory = memory.into();
        self.node_config.pods = pods;
        self
    }

    /// Adds an extended resource to each node, such as `example.com/gpu`.
    pub fn extended_resource(mut self, name: impl Into<String>, amount: impl Into<String>) -> Self {
        self.node_config.extended.push((name.into(), amount.into()));
        self
    }

    /// Renewal interval and duration of the Leases; default 10 and 40 seconds.
    pub fn leases(mut self, every: Duration, duration: Duration) -> Self {
        self.node_config.lease_interval = every;
        self.node_config.lease_duration = duration;
        self
    }

    /// Interval of status reports without change; default 5 minutes.
    pub fn status_every(mut self, every: Duration) -> Self {
        self.node_config.status_every = every;
        self
    }

    /// Start delay of pods and its random addition; default 200 ms each.
    pub fn start_delay(mut self, delay: Duration, spread: Duration) -> Self {
        self.pod_defaults.start_delay = delay;
        self.pod_defaults.start_spread = spread;
        self
    }

    /// The exit code of containers of Jobs that are terminated gracefully; default 0. Programs that do not handle SIGTERM
    /// exit with 143, and their pod has failed.
    pub fn batch_killed_code(mut self, code: i32) -> Self {
        self.pod_defaults.batch_killed_code = code;
        self
    }

    /// How long pods with restart policy `Never` or `OnFailure` run before they succeed; default 2 s, `None`
    /// for ever.
    pub fn batch_run_for(mut self, time: Option<Duration>) -> Self {
        self.pod_defaults.batch_run_for = time;
        self
    }

    /// How long containers take to terminate; default 200 ms.
    pub fn termination_delay(mut self, delay: Duration) -> Self {
        self.pod_defaults.termination_delay = delay;
        self
    }

    /// Maximum number of requests in flight; default 64.
    pub fn max_in_flight_requests(mut self, max: usize) -> Self {
        self.max_in_flight = max.max(1);
        self
    }

    /// Wall-clock time at the start; it then follows tokio's clock. Default: the system clock.
    pub fn wall_time(mut self, wall: Timestamp) -> Self {
        self.wall = Some(wall);
        self
    }

    /// Starts everything as one task of the current tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use = "the nodes stop when their handle is dropped"]
    pub fn start(self) -> HollowHandle {
        let clock = Clock::starting_at(self.wall.unwrap_or_else(Timestamp::now));
        let prefix = self.name_prefix;
        let names = (0..self.nodes).map(|index| format!("{prefix}{index}"));
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let (sender, commands) = mpsc::channel(16);
        let mut engine =
            Engine::new(names, self.node_config, self.pod_defaults, self.scheduler, self.seed, clock.now());
        if self.volumes {
            engine.watch_claims();
        }
        if self.mounts {
            engine.watch_mounts();
        }
        let driver = Driver {
            engine,
            pods: reflector(&self.client, &mut rng, Pod::RESOURCE),
            nodes: reflector(&self.client, &mut rng, Node::RESOURCE),
            volumes: self.volumes.then(|| reflector(&self.client, &mut rng, Volume::RESOURCE)),
            attachments: self.volumes.then(|| reflector(&self.client, &mut rng, Attachment::RESOURCE)),
            csi_drivers: self.volumes.then(|| reflector(&self.client, &mut rng, CsiDriver::RESOURCE)),
            claims: self.volumes.then(|| reflector(&self.client, &mut rng, PersistentVolumeClaim::RESOURCE)),
            classes: self.volumes.then(|| reflector(&self.client, &mut rng, StorageClass::RESOURCE)),
            config_maps: self.mounts.then(|| reflector(&self.client, &mut rng, ConfigMap::RESOURCE)),
            secrets: self.mounts.then(|| reflector(&self.client, &mut rng, Secret::RESOURCE)),
            client: self.client,
            clock,
            commands,
            max_in_flight: self.max_in_flight,
        };
        HollowHandle { commands: sender, task: tokio::spawn(driver.run()) }
    }
}

fn reflector<T: keleustes_objects::Object>(
    client: &Client,
    rng: &mut fastrand::Rng,
    resource: keleustes_objects::Resource,
) -> Reflector<T> {
    Reflector::new(client.clone(), ListWatch::new(resource, Projection::WHOLE), rng.fork())
}

/// Handle to running hollow nodes. Dropping it stops them without cleanup.
#[derive(Debug)]
pub struct HollowHandle {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl HollowHandle {
    /// Fails a node, as if its machine had lost power: no Lease renewals, no node or pod status. Returns
    /// false if there is no such hollow node.
    pub async fn fail_node(&self, name: &str) -> bool {
        self.ask(|answer| Command::Fail(name.to_owned(), answer)).await.unwrap_or(false)
    }

    /// Recovers a failed node; if its Node object was deleted, it registers again. Returns false if there is
    /// no such hollow node.
    pub async fn recover_node(&self, name: &str) -> bool {
        self.ask(|answer| Command::Recover(name.to_owned(), answer)).await.unwrap_or(false)
    }

    /// Counts of nodes, pods and requests.
    pub async fn stats(&self) -> HollowStats {
        self.ask(Command::HollowStats).await.unwrap_or_default()
    }

    /// Stops after all requests in flight are answered. The objects stay in the API.
    pub async fn stop(mut self) {
        self.ask(Command::Stop).await;
        // An error here is a panic of the task, which was already reported.
        let _ = (&mut self.task).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.ok()?;
        answered.await.ok()
    }
}

impl Drop for HollowHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
