//! The task that connects a stand-in driver to the API server, with delays and faults on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use keleustes_client::{Call, Delta, ListWatch, Reflector};
use keleustes_objects::{
    ApiError, ErrorReason, Key, Kind, PersistentVolume, PersistentVolumeClaim, Pod, Projection, StorageClass,
    VolumeAttachment,
};
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::plan::{DriverOperation, DriverOptions, Observed, Task};

/// A stand-in for a CSI driver: it provisions, deletes and expands volumes through the API alone.
///
/// ```no_run
/// # async fn example(client: kube::Client) {
/// let driver = keleustes_hollow::StorageDriver::new(client, "driver.example.com").start();
/// driver.stop().await;
/// # }
/// ```
#[must_use = "nothing happens until start() is called"]
pub struct StorageDriver {
    client: Client,
    options: DriverOptions,
    seed: u64,
}

/// What goes wrong with an operation of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// The storage refuses: nothing is done, and the operation is tried again later.
    Refused,
    /// All requests are sent, but the driver does not learn that and does everything again.
    LostResponse,
    /// Only the first request is sent.
    Partial,
    /// The operation takes this much longer.
    Hang(Duration),
}

/// Controls a running driver. It stops when this is dropped.
pub struct StorageDriverHandle {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

enum Command {
    Fail(DriverOperation, DriverFault, u32),
    Stop(oneshot::Sender<()>),
}

impl StorageDriver {
    /// Configures a driver of this name.
    pub fn new(client: Client, name: &str) -> Self {
        let options = DriverOptions {
            name: name.to_owned(),
            delay: Duration::from_millis(50),
            retry_delay: Duration::from_millis(500),
            expands_on_node: false,
        };
        Self { client, options, seed: 0 }
    }

    /// How long each operation takes; default 50 ms.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay = delay;
        self
    }

    /// How long a failed operation waits until it is tried again; default 500 ms.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.options.retry_delay = delay;
        self
    }

    /// Whether a node has to finish an expansion while a pod uses the claim; default no.
    pub fn expands_on_node(mut self, on_node: bool) -> Self {
        self.options.expands_on_node = on_node;
        self
    }

    /// Seed of all random choices.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts it as one task of the current tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use = "the driver stops when its handle is dropped"]
    pub fn start(self) -> StorageDriverHandle {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let (commands, receiver) = mpsc::channel(16);
        let running = Running {
            claims: reflector(&self.client, &mut rng),
            volumes: reflector(&self.client, &mut rng),
            classes: reflector(&self.client, &mut rng),
            pods: reflector(&self.client, &mut rng),
            attachments: reflector(&self.client, &mut rng),
            client: self.client,
            options: self.options,
            observed: Observed::default(),
            in_flight: BTreeSet::new(),
            faults: BTreeMap::new(),
            scan_at: Some(Instant::now()),
        };
        StorageDriverHandle { commands, task: tokio::spawn(running.run(receiver)) }
    }
}

fn reflector<T: Kind>(client: &Client, rng: &mut fastrand::Rng) -> Reflector<T> {
    Reflector::new(client.clone(), ListWatch::new(T::RESOURCE, Projection::WHOLE), rng.fork())
}

impl StorageDriverHandle {
    /// Lets the next operations of this kind go wrong, this many times.
    pub async fn fail(&self, operation: DriverOperation, fault: DriverFault, times: u32) {
        // A failed send means that the driver has stopped.
        let _ = self.commands.send(Command::Fail(operation, fault, times)).await;
    }

    /// Stops after all operations have ended. The objects stay in the API.
    pub async fn stop(mut self) {
        let (done, is_done) = oneshot::channel();
        if self.commands.send(Command::Stop(done)).await.is_ok() {
            let _ = is_done.await;
        }
        // An error here is a panic of the task, which was already reported.
        let _ = (&mut self.task).await;
    }
}

impl Drop for StorageDriverHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Running {
    client: Client,
    options: DriverOptions,
    observed: Observed,
    claims: Reflector<PersistentVolumeClaim>,
    volumes: Reflector<PersistentVolume>,
    classes: Reflector<StorageClass>,
    pods: Reflector<Pod>,
    attachments: Reflector<VolumeAttachment>,
    in_flight: BTreeSet<Task>,
    faults: BTreeMap<DriverOperation, (DriverFault, u32)>,
    /// When all objects are searched for something to do; `None` if nothing has changed.
    scan_at: Option<Instant>,
}

/// Changes within this time are looked at together, because each look goes through all objects.
const SCAN_DELAY: Duration = Duration::from_millis(10);

/// Operations that wait or run.
type Operations = FuturesUnordered<BoxFuture<'static, (Task, Step)>>;

/// What is next for a task.
#[derive(Clone, Copy)]
enum Step {
    /// Its delay is over.
    Send,
    /// All its requests are answered.
    Done,
    /// One of them failed.
    Failed,
    /// It may be tried again.
    Retry,
}

impl Running {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut operations = Operations::new();
        loop {
            let scan_at = self.scan_at;
            let has_changed = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    None => return,
                    Some(Command::Fail(operation, fault, times)) => {
                        self.faults.insert(operation, (fault, times));
                        false
                    }
                    Some(Command::Stop(done)) => {
                        self.drain(operations).await;
                        let _ = done.send(());
                        return;
                    }
                },
                () = sleep_until(scan_at.unwrap_or_else(Instant::now)), if scan_at.is_some() => {
                    self.scan_at = None;
                    self.begin(&mut operations);
                    false
                }
                Some((task, step)) = operations.next(), if !operations.is_empty() => {
                    self.advance(task, step, &mut operations)
                }
                delta = self.claims.next() => apply(&mut self.observed.claims, delta),
                delta = self.volumes.next() => apply(&mut self.observed.volumes, delta),
                delta = self.classes.next() => apply(&mut self.observed.classes, delta),
                delta = self.pods.next() => apply(&mut self.observed.pods, delta),
                delta = self.attachments.next() => apply(&mut self.observed.attachments, delta),
            };
            if has_changed {
                self.scan_at.get_or_insert_with(|| Instant::now() + SCAN_DELAY);
            }
        }
    }

    /// Waits for requests that are already sent; nothing new begins.
    async fn drain(&mut self, mut operations: Operations) {
        while operations.next().await.is_some() {}
    }

    /// Begins what is to be done and has not begun.
    fn begin(&mut self, operations: &mut Operations) {
        for task in self.observed.tasks(&self.options) {
            if self.in_flight.insert(task.clone()) {
                let more = match self.faults.get(&task.operation) {
                    Some((DriverFault::Hang(time), _)) => {
                        let time = *time;
                        self.use_up_fault(task.operation);
                        time
                    }
                    _ => Duration::ZERO,
                };
                wait(operations, task, self.options.delay + more, Step::Send);
            }
        }
    }

    fn use_up_fault(&mut self, operation: DriverOperation) -> Option<DriverFault> {
        let (fault, times) = self.faults.get_mut(&operation)?;
        let fault = *fault;
        *times = times.saturating_sub(1);
        if *times == 0 {
            self.faults.remove(&operation);
        }
        Some(fault)
    }

    /// Returns whether there may be something to do.
    fn advance(&mut self, task: Task, step: Step, operations: &mut Operations) -> bool {
        let may_begin = matches!(step, Step::Retry);
        match step {
            Step::Send => self.send(task, operations),
            // The caches show what has been done only later; an operation that is not needed sends nothing.
            Step::Done => wait(operations, task, self.options.delay, Step::Retry),
            Step::Failed => wait(operations, task, self.options.retry_delay, Step::Retry),
            Step::Retry => drop(self.in_flight.remove(&task)),
        }
        may_begin
    }

    fn send(&mut self, task: Task, operations: &mut Operations) {
        let mut calls = self.observed.calls(&task, &self.options);
        let fault = self.use_up_fault(task.operation);
        match fault {
            Some(DriverFault::Refused) => calls.clear(),
            Some(DriverFault::Partial) => calls.truncate(1),
            Some(DriverFault::LostResponse | DriverFault::Hang(_)) | None => {}
        }
        let is_faulty = fault.is_some_and(|fault| !matches!(fault, DriverFault::Hang(_)));
        let client = self.client.clone();
        operations.push(
            async move {
                let is_done = send_all(&client, &calls).await;
                (task, if is_done && !is_faulty { Step::Done } else { Step::Failed })
            }
            .boxed(),
        );
    }
}

fn wait(operations: &mut Operations, task: Task, time: Duration, step: Step) {
    let waiting = async move {
        sleep(time).await;
        (task, step)
    };
    operations.push(waiting.boxed());
}

/// Sends requests in order until one fails.
async fn send_all(client: &Client, calls: &[Call]) -> bool {
    for call in calls {
        match call.send_for_metadata(client).await {
            Ok(_) => {}
            Err(error) if is_done_already(&error) => {}
            Err(error) => {
                tracing::debug!(%error, "storage driver: request failed");
                return false;
            }
        }
    }
    true
}

/// An earlier attempt, whose response was lost, has created or deleted the object.
fn is_done_already(error: &ApiError) -> bool {
    matches!(error.reason, ErrorReason::AlreadyExists | ErrorReason::NotFound)
}

/// Applies a change and returns whether there was one.
fn apply<T: Kind>(objects: &mut BTreeMap<Key, T>, delta: Delta<T>) -> bool {
    let has_changed = !matches!(delta, Delta::Bookmark(_));
    match delta {
        Delta::Replace { objects: all, .. } => {
            *objects = all.into_iter().map(|object| (object.key().clone(), object)).collect();
        }
        Delta::Apply(object) => drop(objects.insert(object.key().clone(), object)),
        Delta::Delete(object) => drop(objects.remove(object.key())),
        Delta::DeleteKey { key, .. } => drop(objects.remove(&key)),
        Delta::Bookmark(_) => {}
    }
    has_changed
}
