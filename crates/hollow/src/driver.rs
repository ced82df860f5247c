//! Moves events, answers and time into the engine, and its requests out; one task for all nodes and pods.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use keleustes_client::{Delta, Reflector, WriteResponse};
use keleustes_objects::{ApiError, InternedStr, Object as _};
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::engine::{Engine, Tally, Who};
use crate::seen::{Attachment, Node, Pod, Volume};

/// What a handle asks for.
pub(crate) enum Command {
    Fail(String, oneshot::Sender<bool>),
    Recover(String, oneshot::Sender<bool>),
    Tally(oneshot::Sender<Tally>),
    Stop(oneshot::Sender<()>),
}

/// The task behind a handle.
pub(crate) struct Driver {
    pub(crate) client: Client,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) pods: Reflector<Pod>,
    pub(crate) nodes: Reflector<Node>,
    /// Only watched if asked for.
    pub(crate) volumes: Option<Reflector<Volume>>,
    pub(crate) attachments: Option<Reflector<Attachment>>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) max_in_flight: usize,
}

type Answers = FuturesUnordered<BoxFuture<'static, (Who, Result<WriteResponse, ApiError>)>>;

impl Driver {
    /// Runs until it is told to stop, or nobody is left who could tell.
    pub(crate) async fn run(mut self) {
        let mut answers = Answers::new();
        loop {
            self.send(&mut answers);
            let due = self.engine.due();
            // Commands and time come first: a flood of events must not make leases late.
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None => return,
                    Some(Command::Stop(done)) => {
                        // What was sent may have effect; whoever stops us wants to know that it is over.
                        while answers.next().await.is_some() {}
                        let _ = done.send(());
                        return;
                    }
                    Some(command) => self.obey(command),
                },
                () = until(due, &self.clock), if due.is_some() => self.engine.tick(self.clock.now()),
                Some((who, answer)) = answers.next(), if !answers.is_empty() => {
                    self.engine.answered(&who, &answer, self.clock.now());
                }
                delta = self.pods.next() => self.take_pods(delta),
                delta = self.nodes.next() => self.take_nodes(delta),
                delta = next_of(&mut self.volumes) => self.take_volumes(delta),
                delta = next_of(&mut self.attachments) => self.take_attachments(delta),
            }
        }
    }

    fn send(&mut self, answers: &mut Answers) {
        let now = self.clock.now();
        while answers.len() < self.max_in_flight
            && let Some((who, call)) = self.engine.next_call(now)
        {
            let client = self.client.clone();
            answers.push(async move { (who, call.send_for_metadata(&client).await) }.boxed());
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        // Who no longer waits for an answer does not need one.
        match command {
            Command::Fail(name, answer) => drop(answer.send(self.engine.fail_node(&name, now))),
            Command::Recover(name, answer) => drop(answer.send(self.engine.recover_node(&name, now))),
            Command::Tally(answer) => drop(answer.send(self.engine.tally())),
            Command::Stop(answer) => drop(answer.send(())),
        }
    }

    fn take_pods(&mut self, delta: Delta<Pod>) {
        let now = self.clock.now();
        match delta {
            Delta::Replace { objects, .. } => self.engine.replace_pods(objects, now),
            Delta::Apply(pod) => self.engine.observe_pod(pod, now),
            Delta::Delete(pod) => self.engine.forget_pod(pod.key(), now),
            Delta::DeleteKey { key, .. } => self.engine.forget_pod(&key, now),
            Delta::Bookmark(_) => {}
        }
    }

    fn take_nodes(&mut self, delta: Delta<Node>) {
        let now = self.clock.now();
        match delta {
            Delta::Replace { objects, .. } => self.engine.replace_nodes(&objects, now),
            Delta::Apply(node) => self.engine.observe_node(&node, now),
            Delta::Delete(node) => self.engine.forget_node(&InternedStr::from(&*node.key().name), now),
            Delta::DeleteKey { key, .. } => self.engine.forget_node(&InternedStr::from(&*key.name), now),
            Delta::Bookmark(_) => {}
        }
    }

    fn take_volumes(&mut self, delta: Delta<Volume>) {
        let now = self.clock.now();
        match delta {
            Delta::Replace { objects, .. } => self.engine.replace_volumes(&objects, now),
            Delta::Apply(volume) => self.engine.observe_volume(&volume, now),
            Delta::Delete(volume) => self.engine.forget_volume(&volume.key().name, now),
            Delta::DeleteKey { key, .. } => self.engine.forget_volume(&key.name, now),
            Delta::Bookmark(_) => {}
        }
    }

    fn take_attachments(&mut self, delta: Delta<Attachment>) {
        let now = self.clock.now();
        match delta {
            Delta::Replace { objects, .. } => self.engine.replace_attachments(&objects, now),
            Delta::Apply(attachment) => self.engine.observe_attachment(&attachment, now),
            Delta::Delete(attachment) => self.engine.forget_attachment(&attachment.key().name),
            Delta::DeleteKey { key, .. } => self.engine.forget_attachment(&key.name),
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
