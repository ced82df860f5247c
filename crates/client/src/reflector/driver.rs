//! Sends what the policy asks for and hands on what comes back, holding nothing but the unfinished.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use keleustes_objects::{ApiError, DecodeError, Encoded, ErrorReason, Key, ObjectMeta, ResourceVersion};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, Sleep, timeout_at};

use super::decode::{self, Event, ExpectedType, Sent, Trace};
use super::pieces::{Items, Piece, Pieces};
use super::policy::{Ask, EventType, Policy};
use super::{Delta, ListWatch, ReflectorObserver};
use crate::failure;
use crate::writes::unreadable;

/// The server ends a watch by itself; one that is still open this long after has lost its server.
const WATCH_MARGIN: Duration = Duration::from_secs(30);
/// A server gives up on a list after a minute; a page that takes longer than this will not come.
pub(super) const PAGE_WITHIN: Duration = Duration::from_secs(120);

/// Lists and watches one source for as long as it is asked for more.
pub struct Reflector<T> {
    client: Client,
    told: Told<T>,
    expected: ExpectedType,
    policy: Policy,
    doing: Doing,
    gathered: Gathered<T>,
}

/// What the reflector waits for. It is kept here and not on the stack of [`Reflector::next`], which may
/// be dropped at any time.
enum Doing {
    /// Nothing: the next request is due.
    Nothing,
    Waiting(Pin<Box<Sleep>>),
    Opening(Exchange, BoxFuture<'static, Result<Response<Body>, ApiError>>),
    ReadingEvents(Exchange, Body, Pieces),
    ReadingItems(Exchange, Body, Items),
}

/// The request that is under way.
#[derive(Clone, Copy)]
struct Exchange {
    is_list: bool,
    started_at: Instant,
    deadline: Instant,
    events: u64,
}

impl<T> Reflector<T> {
    /// A reflector that has not yet asked for anything.
    #[must_use]
    pub fn new(client: Client, source: ListWatch<T>, chance: fastrand::Rng) -> Self {
        Self {
            client,
            expected: ExpectedType::of(&source.resource, source.projection.metadata_only),
            told: Told { source, observer: None },
            policy: Policy::new(chance),
            doing: Doing::Nothing,
            gathered: Gathered::new(),
        }
    }

    /// Lets somebody hear of what the consumer is not told.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn ReflectorObserver>) -> Self {
        self.told.observer = Some(observer);
        self
    }

    /// What is listed and watched.
    #[must_use]
    pub fn list_watch(&self) -> &ListWatch<T> {
        &self.told.source
    }

    /// The version of the consumer's copy once it has applied what [`Reflector::next`] last returned.
    #[must_use]
    pub fn last_sync_resource_version(&self) -> &ResourceVersion {
        self.policy.last_seen()
    }

    /// Gives up whatever is under way; the next delta is a [`Delta::Replace`] of the newest state.
    pub fn relist(&mut self) {
        self.policy.renew();
        self.gathered = Gathered::new();
        self.doing = Doing::Nothing;
    }

    /// The next delta. The first one is a [`Delta::Replace`]; failures are waited out.
    ///
    /// Dropping the future loses nothing: the next call goes on where this one was.
    pub async fn next(&mut self) -> Delta<T> {
        loop {
            let delta = match &mut self.doing {
                Doing::Nothing => self.ask(),
                Doing::Waiting(sleep) => {
                    sleep.as_mut().await;
                    self.doing = Doing::Nothing;
                    None
                }
                Doing::Opening(exchange, opening) => {
                    let opened = timeout_at(exchange.deadline, opening).await;
                    self.opened(opened.unwrap_or_else(|_| Err(late("no answer"))))
                }
                Doing::ReadingEvents(exchange, body, pieces) => match pieces.next() {
                    Ok(Some(bytes)) => {
                        exchange.events += 1;
                        let piece = pieces.piece(&bytes);
                        self.hear(piece)
                    }
                    Ok(None) => match chunk(body, exchange.deadline).await {
                        Ok(Some(received)) => {
                            pieces.push(received);
                            None
                        }
                        // A connection that breaks, or goes silent past the time at which the server
                        // should have ended the watch, says nothing about what was heard before.
                        Ok(None) | Err(_) => self.closed(),
                    },
                    Err(malformed) => self.failed(&unreadable(&malformed.to_string())),
                },
                Doing::ReadingItems(exchange, body, items) => match chunk(body, exchange.deadline).await {
                    Ok(Some(received)) => {
                        let (gathered, told) = (&mut self.gathered, &self.told);
                        let cut = items.push(&received, |item| match told.item(item) {
                            Ok(object) => gathered.objects.push(object),
                            Err(trace) => gathered.unreadable.extend(trace.name.parse().ok()),
                        });
                        cut.err().and_then(|malformed| self.failed(&unreadable(&malformed.to_string())))
                    }
                    Ok(None) => self.end_page(),
                    Err(failure) => self.failed(&failure),
                },
            };
            if let Some(delta) = delta {
                return delta;
            }
        }
    }

    fn ask(&mut self) -> Option<Delta<T>> {
        let ask = self.policy.ask();
        let call = self.told.source.call(&ask);
        let (is_list, within) = match ask {
            Ask::List { .. } => (true, PAGE_WITHIN),
            Ask::Stream { timeout_seconds, .. } | Ask::Watch { timeout_seconds, .. } => {
                (false, Duration::from_secs(timeout_seconds.into()) + WATCH_MARGIN)
            }
        };
        tracing::debug!(%call, "asking");
        let started_at = Instant::now();
        let exchange = Exchange { is_list, started_at, deadline: started_at + within, events: 0 };
        let client = self.client.clone();
        self.doing = Doing::Opening(exchange, Box::pin(async move { call.open(&client).await }));
        None
    }

    fn opened(&mut self, opened: Result<Response<Body>, ApiError>) -> Option<Delta<T>> {
        let Doing::Opening(exchange, _) = &self.doing else {
            return None;
        };
        match opened {
            Ok(response) if exchange.is_list => {
                self.doing = Doing::ReadingItems(*exchange, response.into_body(), Items::default());
            }
            Ok(response) => {
                let media_type = response.headers().get(CONTENT_TYPE);
                let pieces = Pieces::of(media_type.map_or(&[], |value| value.as_bytes()));
                self.doing = Doing::ReadingEvents(*exchange, response.into_body(), pieces);
            }
            Err(failure) => return self.failed(&failure),
        }
        None
    }

    /// Takes in one event of a watch.
    fn hear(&mut self, piece: Piece<'_>) -> Option<Delta<T>> {
        match decode::event(piece) {
            Event::Object(event, object) => self.hear_object(event, object, piece),
            Event::Bookmark { version, ends_initial_events } if self.policy.is_streaming() => {
                if !ends_initial_events {
                    return None;
                }
                self.policy.streamed(&version);
                Some(self.replace(version))
            }
            Event::Bookmark { version, .. } => {
                let moves = self.policy.event(EventType::Bookmark, &version);
                moves.then_some(Delta::Bookmark(version))
            }
            Event::Error(failure) => self.failed(&failure),
            Event::Unknown => {
                tracing::error!(resource = %self.told.source.resource, "skipping a watch event of unknown type");
                None
            }
            Event::Unreadable => self.failed(&unreadable("a watch event cannot be read")),
        }
    }

    fn hear_object(&mut self, event: EventType, sent: Sent<'_>, piece: Piece<'_>) -> Option<Delta<T>> {
        let object = if self.expected.fits(sent) {
            match decode::object(self.told.source.decode, sent, piece) {
                Err(DecodeError::RequiresJson) => {
                    self.speak_json();
                    return None;
                }
                object => object.map_err(|error| error.to_string()),
            }
        } else {
            Err("it is of another type".to_owned())
        };
        let object = match object {
            Ok(object) => object,
            Err(why) => {
                let Trace { name, version } = self.told.undecodable(sent, &why);
                if self.policy.is_streaming() {
                    self.gathered.unreadable.extend(name.parse().ok());
                    return None;
                }
                // The consumer must not wait for a version that it will never be told of.
                return self.policy.event(event, &version).then_some(Delta::Bookmark(version));
            }
        };
        if self.policy.is_streaming() {
            self.gathered.event(event, object, self.told.source.meta);
            return None;
        }
        self.policy.event(event, &(self.told.source.meta)(&object).resource_version);
        Some(match event {
            EventType::Deleted => Delta::Delete(object),
            _ => Delta::Apply(object),
        })
    }

    /// The server knows fields that are not known here, and JSON loses none.
    fn speak_json(&mut self) {
        tracing::info!(resource = %self.told.source.resource, "the server is of another version; asking for JSON");
        self.told.source.accepts_protobuf = false;
        self.relist();
    }

    fn end_page(&mut self) -> Option<Delta<T>> {
        let Doing::ReadingItems(_, _, items) = std::mem::replace(&mut self.doing, Doing::Nothing) else {
            return None;
        };
        let page = items
            .finish()
            .map_err(|malformed| unreadable(&malformed.to_string()))
            .and_then(|envelope| decode::envelope(&envelope));
        match page {
            Ok((version, next)) => {
                let version = self.policy.paged(version, next)?;
                Some(self.replace(version))
            }
            Err(failure) => self.failed(&failure),
        }
    }

    fn replace(&mut self, version: ResourceVersion) -> Delta<T> {
        let gathered = std::mem::replace(&mut self.gathered, Gathered::new());
        let (objects, unreadable) = gathered.finish(self.told.source.meta);
        tracing::debug!(resource = %self.told.source.resource, objects = objects.len(), %version, "synced");
        Delta::Replace { objects, unreadable, version }
    }

    /// The watch ended without an error.
    fn closed(&mut self) -> Option<Delta<T>> {
        let Doing::ReadingEvents(exchange, ..) = &self.doing else {
            return None;
        };
        let now = Instant::now();
        let lasted = now.duration_since(exchange.started_at);
        let wait = self.policy.closed(now, lasted, exchange.events);
        self.wait(wait)
    }

    fn failed(&mut self, failure: &ApiError) -> Option<Delta<T>> {
        tracing::info!(resource = %self.told.source.resource, %failure, "list or watch failed");
        if let Some(observer) = &self.told.observer {
            observer.failed(&self.told.source.resource, failure);
        }
        let wait = self.policy.failed(Instant::now(), failure);
        self.wait(wait)
    }

    /// Whatever was gathered so far belonged to an answer that is not going to be complete.
    fn wait(&mut self, wait: Duration) -> Option<Delta<T>> {
        self.gathered = Gathered::new();
        self.doing =
            if wait.is_zero() { Doing::Nothing } else { Doing::Waiting(Box::pin(tokio::time::sleep(wait))) };
        None
    }
}

fn late(what: &str) -> ApiError {
    ApiError::transport(ErrorReason::ConnectionLost, format!("{what} in time"))
}

/// The next part of a body; nothing at its end.
pub(super) async fn chunk(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| late("no end of the answer"))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(failure::of(&error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// What is listed, and who hears of what is left out.
struct Told<T> {
    source: ListWatch<T>,
    observer: Option<Arc<dyn ReflectorObserver>>,
}

impl<T> Told<T> {
    /// Reads an item of a list.
    fn item(&self, text: &[u8]) -> Result<T, Trace> {
        let Ok(text) = std::str::from_utf8(text) else {
            let text = String::from_utf8_lossy(text);
            return Err(self.undecodable(Sent::Json(&text), "it is not UTF-8"));
        };
        let why = match (self.source.decode)(Encoded::Json(text)) {
            Ok(object) => return Ok(object),
            Err(error) => error.to_string(),
        };
        Err(self.undecodable(Sent::Json(text), &why))
    }

    fn undecodable(&self, object: Sent<'_>, why: &str) -> Trace {
        let trace = decode::trace(object);
        let resource = &self.source.resource;
        tracing::error!(%resource, object = trace.name, why, "leaving out an object that cannot be read");
        if let Some(observer) = &self.observer {
            observer.undecodable(resource, &trace.name);
        }
        trace
    }
}

/// The objects of a list that is not complete yet.
struct Gathered<T> {
    objects: Vec<T>,
    /// What happened to objects after their initial event, if anything did: their last state, or none.
    later: BTreeMap<Key, Option<T>>,
    /// Objects that could not be read.
    unreadable: Vec<Key>,
}

impl<T> Gathered<T> {
    fn new() -> Self {
        Self { objects: Vec::new(), later: BTreeMap::new(), unreadable: Vec::new() }
    }

    /// Initial events come once for each object and are just put down; only what comes between them and
    /// their end has to be looked up again.
    fn event(&mut self, event: EventType, object: T, meta: fn(&T) -> &ObjectMeta) {
        let key = &meta(&object).key;
        match event {
            EventType::Deleted => {
                self.later.insert(key.clone(), None);
            }
            EventType::Modified => {
                let key = key.clone();
                self.later.insert(key, Some(object));
            }
            _ if self.later.contains_key(key) => {
                let key = key.clone();
                self.later.insert(key, Some(object));
            }
            _ => self.objects.push(object),
        }
    }

    fn finish(mut self, meta: fn(&T) -> &ObjectMeta) -> (Vec<T>, Vec<Key>) {
        if !self.later.is_empty() {
            self.objects.retain(|object| !self.later.contains_key(&meta(object).key));
            self.objects.extend(self.later.into_values().flatten());
        }
        self.objects.shrink_to_fit();
        (self.objects, self.unreadable)
    }
}
