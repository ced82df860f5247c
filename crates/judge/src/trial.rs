//! One sequence is put to both servers, step by step, and what they say is compared.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::compare::{self, Difference};
use crate::normal::Symbols;
use crate::sequence::{Answers, Place, Sequence, Step};
use crate::side::{Reply, Side, Stream};

/// How long one server may take for an event that the other has sent; on a busy machine that can be long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server is listened to for an event that the other has not sent. Ours has sent all when it answers.
const QUIET: Duration = Duration::from_millis(60);
/// How long a step waits that must not meet the second of the one before it.
const SECOND: Duration = Duration::from_secs(1);

/// The two servers.
#[derive(Clone)]
pub struct Servers {
    /// The original.
    pub real: Side,
    /// The embedded one.
    pub ours: Side,
}

/// What came of a sequence.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Requests made of each server.
    pub requests: u64,
    /// Events compared.
    pub events: u64,
    /// Whether the real server panicked over a request: there is no answer to compare, and what is stored is unknown.
    pub panicked: bool,
    /// Differences, in the order they were found; behind one that changes what is stored nothing is looked at.
    pub differences: Vec<Difference>,
}

/// What one server was asked and said.
struct Hearing {
    side: Side,
    answers: Answers,
    symbols: Symbols,
    streams: Vec<(usize, Stream)>,
}

impl Hearing {
    fn new(side: &Side, namespace: &str) -> Hearing {
        let symbols = Symbols::new(namespace, Timestamp::now());
        Hearing { side: side.clone(), answers: Answers::new(), symbols, streams: Vec::new() }
    }

    /// The answer to the step, in symbols; nothing if it is a stream.
    async fn hear(&mut self, step: &Step, place: &Place) -> anyhow::Result<Option<Value>> {
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
    /// Puts the sequence to both servers. `listed` tells which differences are meant.
    ///
    /// # Errors
    /// If a server does not answer.
    pub async fn try_sequence(
        &self,
        sequence: &Sequence,
        place: &Place,
        listed: &mut impl FnMut(&Difference) -> bool,
    ) -> anyhow::Result<Verdict> {
        let mut verdict = Verdict::default();
        let [mut real, mut ours] = [&self.real, &self.ours].map(|side| Hearing::new(side, &place.namespace));
        for step in &sequence.steps {
            verdict.requests += 1;
            if step.is_stamped() {
                tokio::time::sleep(SECOND).await;
            }
            let asked = format!("{} {}", step.verb, step.resource);
            let theirs = match real.hear(step, place).await {
                Err(error) if is_panic(&error) => {
                    verdict.panicked = true;
                    return Ok(verdict);
                }
                theirs => theirs?,
            };
            let mine = ours.hear(step, place).await?;
            let found = match (theirs, mine) {
                (None, None) => Vec::new(),
                (theirs, mine) => {
                    let streaming = || serde_json::json!({"code": 200, "body": {}});
                    let (theirs, mine) = (theirs.unwrap_or_else(streaming), mine.unwrap_or_else(streaming));
                    compare::answers(step.id, &asked, &theirs, &mine)
                }
            };
            // A request that only one server took leaves them in different states.
            let parted = found.iter().any(|difference| difference.item.contains(" code "));
            let unlisted = found.iter().filter(|difference| !listed(difference)).count() > 0;
            verdict.differences.extend(found);
            if parted || unlisted {
                return Ok(verdict);
            }
        }
        watch(sequence, &mut real, &mut ours, &mut verdict).await;
        Ok(verdict)
    }
}

/// Whether the server has given up on one request, and on nothing else.
fn is_panic(error: &anyhow::Error) -> bool {
    let reset = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<h2::Error>().and_then(h2::Error::reason) == Some(h2::Reason::INTERNAL_ERROR)
    };
    error.chain().any(reset)
}

async fn watch(sequence: &Sequence, real: &mut Hearing, ours: &mut Hearing, verdict: &mut Verdict) {
    let streams = std::mem::take(&mut ours.streams).into_iter().zip(std::mem::take(&mut real.streams));
    for ((id, mut mine), (_, mut theirs)) in streams {
        let Some(step) = sequence.steps.iter().find(|step| step.id == id) else { continue };
        let mut sent = mine.events(usize::MAX, QUIET).await;
        let mut heard = theirs.events(sent.len(), PATIENCE).await;
        heard.extend(theirs.events(usize::MAX, QUIET).await);
        sent.extend(mine.events(heard.len().saturating_sub(sent.len()), PATIENCE).await);
        let normal = |symbols: &mut Symbols, events: &[Value]| -> Vec<Value> {
            events.iter().map(|event| symbols.event(event)).collect()
        };
        let (heard, sent) = (normal(&mut real.symbols, &heard), normal(&mut ours.symbols, &sent));
        verdict.events += sent.len() as u64;
        let asked = format!("watch {}", step.resource);
        verdict.differences.extend(compare::streams(id, &asked, &heard, &sent));
    }
}
