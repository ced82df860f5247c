//! Starting hollow nodes, and the handle on those that run.

use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{ListWatch, Reflector};
use keleustes_objects::Projection;
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::driver::{Command, Driver};
use crate::engine::{Engine, Tally};
use crate::kubelet::PodDefaults;
use crate::machine::Build;
use crate::seen::{Attachment, Node, Pod, Volume};

/// Hollow nodes and a scheduler, to be started with [`Hollow::builder`].
#[derive(Debug)]
pub struct Hollow;

impl Hollow {
    /// Prepares hollow nodes in the cluster that a client speaks to.
    pub fn builder(client: Client) -> Builder {
        Builder {
            client,
            nodes: 1,
            name_prefix: "hollow-".to_owned(),
            seed: 0,
            scheduler: false,
            volumes: false,
            wall: None,
            max_in_flight: 64,
            build: Build {
                zones: 1,
                region: "hollow".to_owned(),
                cpu: "32".to_owned(),
                memory: "256Gi".to_owned(),
                pods: 110,
                extended: Vec::new(),
                lease_every: Duration::from_secs(10),
                lease_duration: Duration::from_secs(40),
                status_every: Duration::from_secs(300),
                removes_not_ready_taint: false,
            },
            pod_defaults: PodDefaults {
                start_delay: Duration::from_millis(200),
                start_spread: Duration::from_millis(200),
                batch_run_for: Some(Duration::from_secs(2)),
                termination_delay: Duration::from_millis(200),
            },
        }
    }
}

/// How many nodes there are to be, of what size, and what their pods do by habit.
#[must_use = "nothing happens before it is started"]
pub struct Builder {
    client: Client,
    nodes: usize,
    name_prefix: String,
    seed: u64,
    scheduler: bool,
    volumes: bool,
    wall: Option<Timestamp>,
    max_in_flight: usize,
    build: Build,
    pod_defaults: PodDefaults,
}

impl Builder {
    /// How many nodes; 1 if not said.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// What the names of nodes start with; `hollow-` if not said. A number from 0 follows.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = prefix.into();
        self
    }

    /// Over how many zones the nodes are dealt out; 1 if not said.
    pub fn zones(mut self, zones: usize) -> Self {
        self.build.zones = zones;
        self
    }

    /// What everything random descends from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether to stand in for the scheduler as well; no if not said.
    pub fn scheduler(mut self, scheduler: bool) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// Whether ready nodes take off the taint `node.kubernetes.io/not-ready` that the API server gives each
    /// new node; no if not said. It is for clusters without a node lifecycle controller, which does that.
    pub fn untaint(mut self, untaint: bool) -> Self {
        self.build.removes_not_ready_taint = untaint;
        self
    }

    /// Whether nodes report the volumes that their pods use, and every VolumeAttachment to them as done,
    /// as a storage driver would; no if not said.
    pub fn volumes(mut self, volumes: bool) -> Self {
        self.volumes = volumes;
        self
    }

    /// What each node has to give; 32 processors, 256Gi and 110 pods if not said.
    pub fn capacity(mut self, cpu: impl Into<String>, memory: impl Into<String>, pods: u32) -> Self {
        self.build.cpu = cpu.into();
        self.build.memory = memory.into();
        self.build.pods = pods;
        self
    }

    /// A further resource that each node has, such as `example.com/gpu`.
    pub fn extended_resource(mut self, name: impl Into<String>, amount: impl Into<String>) -> Self {
        self.build.extended.push((name.into(), amount.into()));
        self
    }

    /// How often leases are renewed and how long they hold; 10 and 40 seconds if not said.
    pub fn leases(mut self, every: Duration, duration: Duration) -> Self {
        self.build.lease_every = every;
        self.build.lease_duration = duration;
        self
    }

    /// How often a node reports its status although nothing has changed; 5 minutes if not said.
    pub fn status_every(mut self, every: Duration) -> Self {
        self.build.status_every = every;
        self
    }

    /// How long pods take to start, and how much longer by chance; 200 ms each if not said.
    pub fn start_delay(mut self, delay: Duration, spread: Duration) -> Self {
        self.pod_defaults.start_delay = delay;
        self.pod_defaults.start_spread = spread;
        self
    }

    /// How long pods run whose restart policy is `Never` or `OnFailure` before they succeed; 2 s if not
    /// said, endlessly if `None`.
    pub fn batch_run_for(mut self, time: Option<Duration>) -> Self {
        self.pod_defaults.batch_run_for = time;
        self
    }

    /// How long containers take to end when their pod is deleted; 200 ms if not said.
    pub fn termination_delay(mut self, delay: Duration) -> Self {
        self.pod_defaults.termination_delay = delay;
        self
    }

    /// How many requests may be under way at a time; 64 if not said.
    pub fn max_in_flight_requests(mut self, most: usize) -> Self {
        self.max_in_flight = most.max(1);
        self
    }

    /// The wall time at the start, from which on it follows tokio's clock; the machine's if not said.
    pub fn wall_time(mut self, wall: Timestamp) -> Self {
        self.wall = Some(wall);
        self
    }

    /// Starts everything as one task of the current tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use = "the nodes fall silent when their handle is dropped"]
    pub fn start(self) -> HollowHandle {
        let clock = Clock::starting_at(self.wall.unwrap_or_else(Timestamp::now));
        let prefix = self.name_prefix;
        let names = (0..self.nodes).map(|index| format!("{prefix}{index}"));
        let mut chance = fastrand::Rng::with_seed(self.seed);
        let (sender, commands) = mpsc::channel(16);
        let driver = Driver {
            engine: Engine::new(names, self.build, self.pod_defaults, self.scheduler, self.seed, clock.now()),
            pods: reflector(&self.client, &mut chance, Pod::RESOURCE),
            nodes: reflector(&self.client, &mut chance, Node::RESOURCE),
            volumes: self.volumes.then(|| reflector(&self.client, &mut chance, Volume::RESOURCE)),
            attachments: self.volumes.then(|| reflector(&self.client, &mut chance, Attachment::RESOURCE)),
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
    chance: &mut fastrand::Rng,
    resource: keleustes_objects::Resource,
) -> Reflector<T> {
    Reflector::new(client.clone(), ListWatch::new(resource, Projection::WHOLE), chance.fork())
}

/// Hollow nodes that run. When the handle is dropped they fall silent.
#[derive(Debug)]
pub struct HollowHandle {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl HollowHandle {
    /// Makes a node fall silent, as if its machine had lost power: no lease, no status, no word of its
    /// pods. False if there is no such hollow node.
    pub async fn fail_node(&self, name: &str) -> bool {
        self.ask(|answer| Command::Fail(name.to_owned(), answer)).await.unwrap_or(false)
    }

    /// Makes a node speak again; one whose Node object was deleted registers anew. False if there is no
    /// such hollow node.
    pub async fn recover_node(&self, name: &str) -> bool {
        self.ask(|answer| Command::Recover(name.to_owned(), answer)).await.unwrap_or(false)
    }

    /// How many nodes and pods there are, and what was written.
    pub async fn tally(&self) -> Tally {
        self.ask(Command::Tally).await.unwrap_or_default()
    }

    /// Stops everything, once what was sent has been answered. The objects stay in the API.
    pub async fn stop(mut self) {
        self.ask(Command::Stop).await;
        // An error here is a panic of the task, which has been told of already.
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
