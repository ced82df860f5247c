//! Passes watch events, responses and time to the engine and sends its requests; one task for all nodes and
//! pods.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use keleustes_client::{Delta, Reflector, WriteResponse};
use keleustes_objects::{ApiError, PersistentVolumeClaim, StorageClass};
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::engine::{Engine, HollowStats, Input, Writer};
use crate::projections::{Attachment, ConfigMap, CsiDriver, Node, Pod, Secret, Volume};

/// A command from the handle.
pub(crate) enum Command {
    Fail(String, oneshot::Sender<bool>),
    Recover(String, oneshot::Sender<bool>),
    HollowStats(oneshot::Sender<HollowStats>),
    Stop(oneshot::Sender<()>),
}

/// The task behind the handle.
pub(crate) struct Driver {
    pub(crate) client: Client,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) pods: Reflector<Pod>,
    pub(crate) nodes: Reflector<Node>,
    /// Only watched if enabled.
    pub(crate) volumes: Option<Reflector<Volume>>,
    pub(crate) attachments: Option<Reflector<Attachment>>,
    pub(crate) csi_drivers: Option<Reflector<CsiDriver>>,
    pub(crate) claims: Option<Reflector<PersistentVolumeClaim>>,
    pub(crate) classes: Option<Reflector<StorageClass>>,
    pub(crate) config_maps: Option<Reflector<ConfigMap>>,
    pub(crate) secrets: Option<Reflector<Secret>>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) max_in_flight: usize,
}

type Responses = FuturesUnordered<BoxFuture<'static, (Writer, Result<WriteResponse, ApiError>)>>;

impl Driver {
    /// Runs until it receives [`Command::Stop`] or the handle is dropped.
    pub(crate) async fn run(mut self) {
        let mut responses = Responses::new();
        loop {
            self.send(&mut responses);
            let due = self.engine.due();
            // Commands and timers come first: a burst of watch events must not delay Lease renewals.
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None => return,
                    Some(Command::Stop(done)) => {
                        // Requests in flight may still take effect; the caller of `stop` waits for them.
                        while responses.next().await.is_some() {}
                        let _ = done.send(());
                        return;
                    }
                    Some(command) => self.run_command(command),
                },
                () = until(due, &self.clock), if due.is_some() => self.engine.tick(self.clock.now()),
                Some((writer, answer)) = responses.next(), if !responses.is_empty() => {
                    self.engine.on_response(&writer, &answer, self.clock.now());
                }
                delta = self.pods.next() => self.apply(delta),
                delta = self.nodes.next() => self.apply(delta),
                delta = next_of(&mut self.volumes) => self.apply(delta),
                delta = next_of(&mut self.attachments) => self.apply(delta),
                delta = next_of(&mut self.csi_drivers) => self.apply(delta),
                delta = next_of(&mut self.claims) => self.apply(delta),
                delta = next_of(&mut self.classes) => self.apply(delta),
                delta = next_of(&mut self.config_maps) => self.apply(delta),
                delta = next_of(&mut self.secrets) => self.apply(delta),
            }
        }
    }

    fn send(&mut self, responses: &mut Responses) {
        let now = self.clock.now();
        while responses.len() < self.max_in_flight
            && let Some((writer, call)) = self.engine.next_call(now)
        {
            let client = self.client.clone();
            responses.push(async move { (writer, call.send_for_metadata(&client).await) }.boxed());
        }
    }

    fn run_command(&mut self, command: Command) {
        let now = self.clock.now();
        // A failed send means that the caller no longer waits.
        match command {
            Command::Fail(name, answer) => drop(answer.send(self.engine.fail_node(&name, now))),
            Command::Recover(name, answer) => drop(answer.send(self.engine.recover_node(&name, now))),
            Command::HollowStats(answer) => drop(answer.send(self.engine.stats())),
            Command::Stop(answer) => drop(answer.send(())),
        }
    }

    fn apply<T: Input>(&mut self, delta: Delta<T>) {
        let now = self.clock.now();
        match delta {
            Delta::Replace { objects, .. } => T::replace(&mut self.engine, objects, now),
            Delta::Apply(object) => object.observe(&mut self.engine, now),
            Delta::Delete(object) => T::forget(&mut self.engine, object.key(), now),
            Delta::DeleteKey { key, .. } => T::forget(&mut self.engine, &key, now),
            Delta::Bookmark(_) => {}
        }
    }
}

async fn next_of<T>(reflector: &mut Option<Reflector<T>>) -> Delta<T> {
    match reflector {
        Some(reflector) => reflector.next().await,
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Timestamp>, clock: &Clock) {
    match due {
        Some(due) => sleep_until(clock.instant(due)).await,
        None => sleep_until(Instant::now()).await,
    }
}
