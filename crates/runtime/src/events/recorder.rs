//! Records events without waiting and writes them in order; events that are not written are logged. Only
//! repetitions may be written later (see [`RepetitionCoalescer`]).

use std::time::Duration;

use fastrand::Rng;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::{Controller, PlannedEvent};
use kube::Client;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::coalescing::RepetitionCoalescer;
use super::component::log_level;
use super::correlate::{ClockReading, CorrelatedEvent, Correlator, EventCorrelateResult};
use super::event::{EVENTS, Event, EventNames, StoredEvent, WallNanos};
use crate::clock::Clocks;

/// How many events may be queued. If more are recorded, the newest are dropped.
const WAITING_MAX: usize = 1000;

/// How often a write is tried while there is no response.
const TRIES_MAX: u32 = 12;

/// How long to wait between tries.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Records the events of one component. Clones share one pipeline.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Queued>,
    clocks: Clocks,
    log_level: Level,
}

enum Queued {
    Event(Box<Recorded>),
    /// To be answered when the events before it have been written.
    Written(oneshot::Sender<()>),
}

/// An event and when it was recorded.
struct Recorded {
    event: PlannedEvent,
    at: WallNanos,
}

impl EventRecorder {
    /// A pipeline for a component. Events are queued from now on; they are written once [`EventWriter::run`]
    /// runs.
    #[must_use]
    pub fn new(
        component: &'static str,
        client: Client,
        clocks: Clocks,
        mut random: Rng,
    ) -> (Self, EventWriter) {
        let (queue, recorded) = mpsc::channel(WAITING_MAX);
        let recorder = Self { queue, clocks: clocks.clone(), log_level: log_level(component) };
        let writer = EventWriter {
            component,
            recorded,
            client,
            clocks,
            names: EventNames::new(random.fork()),
            random,
            correlator: Correlator::new(),
            coalescer: RepetitionCoalescer::new(),
        };
        (recorder, writer)
    }

    /// A pipeline for a controller with its own client, if the controller records events at all.
    #[must_use]
    pub fn for_controller(
        controller: &Controller,
        client: Client,
        clocks: Clocks,
        random: Rng,
    ) -> Option<(Self, EventWriter)> {
        let component = controller.event_component?;
        Some(Self::new(component, client, clocks, random))
    }

    /// Records an event. This never waits: if the queue is full, the event is dropped and logged.
    pub fn record(&self, event: PlannedEvent) {
        self.log(&event);
        let at = WallNanos(self.clocks.wall_nanoseconds());
        let (queued, why) = match self.queue.try_send(Queued::Event(Box::new(Recorded { event, at }))) {
            Ok(()) => return,
            Err(TrySendError::Full(queued)) => (queued, "too many queued events, dropped event"),
            Err(TrySendError::Closed(queued)) => (queued, "the recorder has stopped, dropped event"),
        };
        let Queued::Event(dropped) = queued else { return };
        let (object, reason) = (involved_key(&dropped.event), dropped.event.reason);
        tracing::error!(%object, reason, "Unable to record event: {why}");
    }

    /// Returns when all events that were recorded before have been written or given up, except repetitions, which
    /// may be written later; or when the writer has ended.
    pub async fn written(&self) {
        let (written, is_written) = oneshot::channel();
        if self.queue.send(Queued::Written(written)).await.is_ok() {
            // The sender is dropped if the writer ends.
            let _ = is_written.await;
        }
    }

    fn log(&self, event: &PlannedEvent) {
        // A level is part of a log line's static metadata, so each needs its own line. What the original
        // calls `message` is `note` here, because `message` is the name of the line's own text.
        macro_rules! event_occurred {
            ($level:expr, $target:literal) => {
                tracing::event!(
                    target: $target,
                    $level,
                    object = %involved_key(event),
                    fieldPath = event.involved_object.field_path,
                    kind = event.involved_object.kind,
                    apiVersion = event.involved_object.api_version,
                    "type" = event.event_type.as_str(),
                    reason = event.reason,
                    note = event.message,
                    "Event occurred"
                )
            };
        }
        if self.log_level == Level::INFO {
            event_occurred!(Level::INFO, "keleustes_runtime::events::recorder");
        } else {
            event_occurred!(Level::DEBUG, "keleustes_runtime::events::recorder::v3");
        }
    }
}

fn involved_key(event: &PlannedEvent) -> Key {
    Key::namespaced(event.involved_object.namespace.as_str(), event.involved_object.name.as_str())
}

/// Writes the events of an [`EventRecorder`], one after the other.
pub struct EventWriter {
    component: &'static str,
    recorded: mpsc::Receiver<Queued>,
    client: Client,
    clocks: Clocks,
    names: EventNames,
    random: Rng,
    correlator: Correlator,
    coalescer: RepetitionCoalescer,
}

impl EventWriter {
    /// Writes until `stop` is cancelled, or until no recorder is left and everything is written. Events that
    /// are queued when `stop` is cancelled are lost: events do not delay a shutdown.
    pub async fn run(mut self, stop: CancellationToken) {
        let writing = async {
            loop {
                if self.is_next_due() {
                    self.write_next().await;
                    continue;
                }
                let due_at = self.coalescer.due_at().map(|due_at| self.clocks.instant(due_at));
                tokio::select! {
                    biased;
                    recorded = self.recorded.recv() => match recorded {
                        Some(Queued::Event(recorded)) => self.take(recorded.event, recorded.at).await,
                        // Nothing waits for the answer any more if it cannot be sent.
                        Some(Queued::Written(written)) => drop(written.send(())),
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

    async fn take(&mut self, event: PlannedEvent, at: WallNanos) {
        let event = Event::new(event, self.component, at, &mut self.names);
        let now = ClockReading {
            wall: WallNanos(self.clocks.wall_nanoseconds()),
            monotonic: self.clocks.monotonic(),
        };
        match self.correlator.correlate(event, now, &mut self.names) {
            EventCorrelateResult::Write(repetition) if repetition.event.count() > 1 => {
                self.coalescer.add(*repetition, now.monotonic);
            }
            EventCorrelateResult::Write(first_event) => self.write(*first_event).await,
            EventCorrelateResult::Skip => {}
        }
    }

    fn is_next_due(&self) -> bool {
        self.coalescer.due_at().is_some_and(|due_at| due_at <= self.clocks.monotonic())
    }

    /// Writes the repetition that has waited longest; false if none waits.
    async fn write_next(&mut self) -> bool {
        let Some(repetition) = self.coalescer.next() else { return false };
        self.write(repetition).await;
        true
    }

    /// Tries until there is a response, and gives up after 12 tries. Later events wait meanwhile: order
    /// matters more than speed, and they would fail as well.
    async fn write(&mut self, correlated: CorrelatedEvent) {
        let event = &correlated.event;
        for tries in 1..=TRIES_MAX {
            match self.send(event).await {
                Ok(stored) => return self.correlator.refresh(correlated, stored),
                Err(failure) if is_response(&failure) => return log_rejection(event, &failure),
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

    /// The first wait is random, so that not all managers retry at the same moment.
    fn delay_after(&mut self, tries: u32) -> Duration {
        if tries == 1 { RETRY_DELAY.mul_f64(self.random.f64()) } else { RETRY_DELAY }
    }

    async fn send(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let key = event.key();
        if event.count() > 1 {
            let patch = Call::patch(&EVENTS, &key, PatchType::Strategic, &event.repetition());
            match patch.send_as(&self.client).await {
                // The API server keeps events for an hour or so; a counted event may have expired there, or
                // was never stored. It is created again under its name, with the whole count.
                Err(failure) if failure.reason == ErrorReason::NotFound => {}
                response => return response,
            }
        }
        let create = Call::create(&EVENTS, &key.namespace, event);
        create.send_as(&self.client).await
    }
}

/// Sleeps until an instant, or for ever if there is none.
async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Whether the API server responded, so that a retry would change nothing. Only responses have a code; a
/// missing token and an unreadable response have none.
fn is_response(failure: &ApiError) -> bool {
    failure.code != 0
}

fn log_rejection(event: &Event, failure: &ApiError) {
    let (event, error) = (event.key(), failure);
    match failure.reason {
        // Both are common and no error: a response lost after the event was stored, and the last events of a
        // terminating namespace.
        ErrorReason::AlreadyExists | ErrorReason::NamespaceTerminating => {
            tracing::trace!(target: "keleustes_runtime::events::recorder::v5", %event, %error, "Server rejected event (will not retry!)");
        }
        _ => tracing::error!(%event, %error, "Server rejected event (will not retry!)"),
    }
}

#[cfg(test)]
mod tests;
