//! Runs one sequence on both servers, step by step, and compares the responses.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::compare::{self, Difference};
use crate::normalize::Symbols;
use crate::sequence::{Answers, Sequence, Step, TrialContext};
use crate::server::{Reply, Server, Stream};

/// How long one server may take for an event that the other has sent; long, for busy machines.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for an event that the other server has not sent. Ours has sent all events when it
/// responds.
const IDLE_TIMEOUT: Duration = Duration::from_millis(60);
/// The delay of a step that must not run in the same second as the one before it.
const NEXT_SECOND: Duration = Duration::from_secs(1);

/// How long the real server's caches may lag behind a write.
const CACHE_LAG: Duration = Duration::from_millis(500);

/// The two servers.
#[derive(Clone)]
pub struct Servers {
    /// The original.
    pub real: Server,
    /// The embedded one.
    pub ours: Server,
}

/// The outcome of a sequence on both servers.
#[derive(Debug, Default)]
pub struct TrialOutcome {
    /// The number of requests to each server.
    pub requests: u64,
    /// The number of compared events.
    pub events: u64,
    /// Whether the real server panicked: there is no response to compare, and its state is unknown.
    pub panicked: bool,
    /// Differences in the order they were found; the comparison ends at one that changes stored state.
    pub differences: Vec<Difference>,
}

/// The requests and responses of one server.
struct ServerSession {
    side: Server,
    answers: Answers,
    symbols: Symbols,
    streams: Vec<(usize, Stream)>,
}

impl ServerSession {
    fn new(side: &Server, namespace: &str) -> ServerSession {
        let symbols = Symbols::new(namespace, Timestamp::now());
        ServerSession { side: side.clone(), answers: Answers::new(), symbols, streams: Vec::new() }
    }

    /// The normalized response to a step; `None` if it is a stream.
    async fn send(&mut self, step: &Step, place: &TrialContext) -> anyhow::Result<Option<Value>> {
        let request = step.ask.concrete(place, &self.answers);
        match self.side.ask(&request, step.verb == "watch").await? {
            Reply::Stream(stream) => {
                self.streams.push((step.id, stream));
                Ok(None)
            }
            Reply::Answer(answer) => {
                let normal = self.symbols.answer(&answer);
                self.answers.insert(step.id, answer.body);
                Ok(Some(normal))
            }
        }
    }
}

impl Servers {
    /// Runs the sequence on both servers. `listed` says which differences are accepted.
    ///
    /// # Errors
    /// If a server does not answer.
    pub async fn try_sequence(
        &self,
        sequence: &Sequence,
        place: &TrialContext,
        listed: &mut impl FnMut(&Difference) -> bool,
    ) -> anyhow::Result<TrialOutcome> {
        let mut outcome = TrialOutcome::default();
        let [mut real, mut ours] =
            [&self.real, &self.ours].map(|side| ServerSession::new(side, &place.namespace));
        for step in &sequence.steps {
            outcome.requests += 1;
            if step.stores_current_second() {
                tokio::time::sleep(NEXT_SECOND).await;
            }
            let title = format!("{} {}", step.verb, step.resource);
            let theirs = match real.send(step, place).await {
                Err(error) if is_panic(&error) => {
                    outcome.panicked = true;
                    return Ok(outcome);
                }
                theirs => theirs?,
            };
            let mine = ours.send(step, place).await?;
            if step.settles {
                tokio::time::sleep(CACHE_LAG).await;
            }
            let found = match (theirs, mine) {
                (None, None) => Vec::new(),
                (theirs, mine) => {
                    let stream_started = || serde_json::json!({"code": 200, "body": {}});
                    let (theirs, mine) =
                        (theirs.unwrap_or_else(stream_started), mine.unwrap_or_else(stream_started));
                    compare::answers(step.id, &title, &theirs, &mine)
                }
            };
            // A request that only one server accepted leaves different states.
            let states_differ = found.iter().any(|difference| difference.item.contains(" code "));
            let unlisted = found.iter().filter(|difference| !listed(difference)).count() > 0;
            outcome.differences.extend(found);
            if states_differ || unlisted {
                return Ok(outcome);
            }
        }
        watch(sequence, &mut real, &mut ours, &mut outcome).await;
        Ok(outcome)
    }
}

/// Whether the server reset only this one HTTP/2 stream.
fn is_panic(error: &anyhow::Error) -> bool {
    let reset = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<h2::Error>().and_then(h2::Error::reason) == Some(h2::Reason::INTERNAL_ERROR)
    };
    error.chain().any(reset)
}

async fn watch(
    sequence: &Sequence,
    real: &mut ServerSession,
    ours: &mut ServerSession,
    outcome: &mut TrialOutcome,
) {
    let streams = std::mem::take(&mut ours.streams).into_iter().zip(std::mem::take(&mut real.streams));
    for ((id, mut mine), (_, mut theirs)) in streams {
        let Some(step) = sequence.steps.iter().find(|step| step.id == id) else { continue };
        let mut our_events = mine.events(usize::MAX, IDLE_TIMEOUT).await;
        let mut their_events = theirs.events(our_events.len(), TIMEOUT).await;
        their_events.extend(theirs.events(usize::MAX, IDLE_TIMEOUT).await);
        our_events.extend(mine.events(their_events.len().saturating_sub(our_events.len()), TIMEOUT).await);
        let normal = |symbols: &mut Symbols, events: &[Value]| -> Vec<Value> {
            events.iter().map(|event| symbols.event(event)).collect()
        };
        let (their_events, our_events) =
            (normal(&mut real.symbols, &their_events), normal(&mut ours.symbols, &our_events));
        outcome.events += our_events.len() as u64;
        let title = format!("watch {}", step.resource);
        outcome.differences.extend(compare::streams(id, &title, &their_events, &our_events));
    }
}
