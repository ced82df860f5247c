//! Notes go in without waiting and reach the API in order, or the log says what became of them. Only repetitions may
//! come a little later (see [`RepetitionCoalescer`]).

use std::time::Duration;

use fastrand::Rng;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::{Controller, PlannedEvent};
use kube::Client;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::coalescing::RepetitionCoalescer;
use super::component::log_level;
use super::correlate::{ClockReading, CorrelatedEvent, Correlator, EventCorrelateResult};
use super::event::{EVENTS, Event, EventNames, StoredEvent, WallNanos};
use crate::clock::Clocks;

/// How many notes may wait. A controller that says more than the API takes loses the newest.
const WAITING_MAX: usize = 1000;

/// How often an event is tried while no answer comes.
const TRIES_MAX: u32 = 12;

/// How long to wait between tries.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Takes the notes of one component. Clones share one pipeline.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Noted>,
    clocks: Clocks,
    log_level: Level,
}

/// A note and when it was taken.
struct Noted {
    note: PlannedEvent,
    at: WallNanos,
}

impl EventRecorder {
    /// A pipeline for a component. Notes are kept from now on; they are written once
    /// [`EventWriter::run`] does.
    #[must_use]
    pub fn new(
        component: &'static str,
        client: Client,
        clocks: Clocks,
        mut chance: Rng,
    ) -> (Self, EventWriter) {
        let (queue, noted) = mpsc::channel(WAITING_MAX);
        let recorder = Self { queue, clocks: clocks.clone(), log_level: log_level(component) };
        let writer = EventWriter {
            component,
            noted,
            client,
            clocks,
            names: EventNames::new(chance.fork()),
            chance,
            correlator: Correlator::new(),
            gathering: RepetitionCoalescer::new(),
        };
        (recorder, writer)
    }

    /// A pipeline for a controller with its own client, if the controller records events at all.
    #[must_use]
    pub fn for_controller(
        controller: &Controller,
        client: Client,
        clocks: Clocks,
        chance: Rng,
    ) -> Option<(Self, EventWriter)> {
        let component = controller.event_component?;
        Some(Self::new(component, client, clocks, chance))
    }

    /// Takes a note. This never waits: if too many notes wait already, the note is dropped and the log
    /// says so.
    pub fn record(&self, note: PlannedEvent) {
        self.log(&note);
        let at = WallNanos(self.clocks.wall_nanoseconds());
        let (dropped, why) = match self.queue.try_send(Noted { note, at }) {
            Ok(()) => return,
            Err(TrySendError::Full(dropped)) => (dropped.note, "too many queued events, dropped event"),
            Err(TrySendError::Closed(dropped)) => (dropped.note, "the recorder has stopped, dropped event"),
        };
        let (object, reason) = (involved(&dropped), dropped.reason);
        tracing::error!(%object, reason, "Unable to record event: {why}");
    }

    fn log(&self, note: &PlannedEvent) {
        // A level is part of a log line's fixed description, so each needs a line of its own. What the
        // original calls `message` is `note` here, because `message` is the name of the line's own text.
        macro_rules! event_occurred {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    object = %involved(note),
                    fieldPath = note.involved_object.field_path,
                    kind = note.involved_object.kind,
                    apiVersion = note.involved_object.api_version,
                    "type" = note.event_type.as_str(),
                    reason = note.reason,
                    note = note.message,
                    "Event occurred"
                )
            };
        }
        if self.log_level == Level::INFO {
            event_occurred!(Level::INFO);
        } else {
            event_occurred!(Level::DEBUG);
        }
    }
}

fn involved(note: &PlannedEvent) -> Key {
    Key::namespaced(note.involved_object.namespace.as_str(), note.involved_object.name.as_str())
}

/// Writes what a [`EventRecorder`] was told, one event after the other.
pub struct EventWriter {
    component: &'static str,
    noted: mpsc::Receiver<Noted>,
    client: Client,
    clocks: Clocks,
    names: EventNames,
    chance: Rng,
    correlator: Correlator,
    gathering: RepetitionCoalescer,
}

impl EventWriter {
    /// Writes until told to stop, or until no recorder is left and all is written. What waits when it is
    /// told to stop is lost: events are no reason to stay.
    pub async fn run(mut self, stop: CancellationToken) {
        let writing = async {
            loop {
                if self.is_next_due() {
                    self.write_next().await;
                    continue;
                }
                let due_at = self.gathering.due_at().map(|due_at| self.clocks.instant(due_at));
                tokio::select! {
                    biased;
                    noted = self.noted.recv() => match noted {
                        Some(Noted { note, at }) => self.take(note, at).await,
                        None => break,
                    },
                    () = sleep_until(due_at) => {}
                }
            }
            while self.write_next().await {}
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = writing => {}
        }
    }

    async fn take(&mut self, note: PlannedEvent, at: WallNanos) {
        let event = Event::new(note, self.component, at, &mut self.names);
        let now = ClockReading {
            wall: WallNanos(self.clocks.wall_nanoseconds()),
            monotonic: self.clocks.monotonic(),
        };
        match self.correlator.correlate(event, now, &mut self.names) {
            EventCorrelateResult::Write(repetition) if repetition.event.count() > 1 => {
                self.gathering.add(*repetition, now.monotonic);
            }
            EventCorrelateResult::Write(first) => self.write(*first).await,
            EventCorrelateResult::Skip => {}
        }
    }

    fn is_next_due(&self) -> bool {
        self.gathering.due_at().is_some_and(|due_at| due_at <= self.clocks.monotonic())
    }

    /// Writes the repetition that has waited longest; false if none does.
    async fn write_next(&mut self) -> bool {
        let Some(repetition) = self.gathering.next() else { return false };
        self.write(repetition).await;
        true
    }

    /// Tries until an answer comes, and gives up after some minutes. Later events wait meanwhile: order
    /// is worth more than speed, and they would fare no better.
    async fn write(&mut self, correlated: CorrelatedEvent) {
        let event = &correlated.event;
        for tries in 1..=TRIES_MAX {
            match self.send(event).await {
                Ok(stored) => return self.correlator.refresh(correlated, stored),
                Err(failure) if is_answer(&failure) => return log_refusal(event, &failure),
                Err(failure) => {
                    let (event, error) = (event.key(), failure);
                    tracing::error!(%event, %error, "Unable to write event (may retry after sleeping)");
                }
            }
            if tries < TRIES_MAX {
                let delay = self.delay_after(tries);
                tokio::time::sleep(delay).await;
            }
        }
        tracing::error!(event = %event.key(), "Unable to write event (retry limit exceeded!)");
    }

    /// The first wait is left to chance, lest all managers of the world come back at the same moment.
    fn delay_after(&mut self, tries: u32) -> Duration {
        if tries == 1 { RETRY_DELAY.mul_f64(self.chance.f64()) } else { RETRY_DELAY }
    }

    async fn send(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let key = event.key();
        if event.count() > 1 {
            let patch = Call::patch(&EVENTS, &key, PatchType::Strategic, &event.repetition());
            match patch.send_as(&self.client).await {
                // The API keeps events for an hour or so; what we still count it may have forgotten, or
                // never got. It is made anew under its name, with all that was counted.
                Err(failure) if failure.reason == ErrorReason::NotFound => {}
                answer => return answer,
            }
        }
        let create = Call::create(&EVENTS, &key.namespace, event);
        create.send_as(&self.client).await
    }
}

/// Sleeps until a moment, or for ever if there is none.
async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Whether the API had its say, so that asking again would change nothing. Codes are those of answers;
/// a token that cannot be had and an answer that cannot be read have none.
fn is_answer(failure: &ApiError) -> bool {
    failure.code != 0
}

fn log_refusal(event: &Event, failure: &ApiError) {
    let (event, error) = (event.key(), failure);
    match failure.reason {
        // Both are common and nobody's fault: an answer lost after the event was stored, and the last
        // events of a namespace that is being emptied.
        ErrorReason::AlreadyExists | ErrorReason::NamespaceTerminating => {
            tracing::trace!(%event, %error, "Server rejected event (will not retry!)");
        }
        _ => tracing::error!(%event, %error, "Server rejected event (will not retry!)"),
    }
}

#[cfg(test)]
mod tests;
