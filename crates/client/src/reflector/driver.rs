//! Sends the requests of the policy and passes the decoded objects on. It buffers only incomplete responses.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

use super::decode::{self, EncodedObject, Event, ExpectedType, UndecodableObject};
use super::framing::{ListItems, WatchFrame, WatchFramer};
use super::policy::{EventType, Policy, ReflectorRequest};
use super::{Delta, ListWatch, ReflectorObserver};
use crate::api_error;
use crate::call::unreadable_response;

/// The server ends a watch after `timeoutSeconds`; a watch that is open this much longer has lost its server.
const WATCH_MARGIN: Duration = Duration::from_secs(30);
/// An API server times out a list after one minute, so a later page will not come.
pub(super) const PAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// Lists and watches one resource while [`Reflector::next`] is called.
pub struct Reflector<T> {
    client: Client,
    decoder: ObjectDecoder<T>,
    expected: ExpectedType,
    policy: Policy,
    state: State,
    partial_list: PartialList<T>,
}

/// What the reflector waits for. It is a field and not on the stack of [`Reflector::next`], whose future may
/// be dropped at any time.
enum State {
    /// The next request is due.
    Idle,
    BackingOff(Pin<Box<Sleep>>),
    Connecting(RequestInFlight, BoxFuture<'static, Result<Response<Body>, ApiError>>),
    ReadingEvents(RequestInFlight, Body, WatchFramer),
    ReadingItems(RequestInFlight, Body, ListItems),
}

/// The request in flight.
#[derive(Clone, Copy)]
struct RequestInFlight {
    is_list: bool,
    started_at: Instant,
    deadline: Instant,
    events: u64,
}

impl<T> Reflector<T> {
    /// A reflector that sends its first request on [`Reflector::next`].
    #[must_use]
    pub fn new(client: Client, list_watch: ListWatch<T>, rng: fastrand::Rng) -> Self {
        Self {
            client,
            expected: ExpectedType::of(&list_watch.resource, list_watch.projection.metadata_only),
            decoder: ObjectDecoder { list_watch, observer: None },
            policy: Policy::new(rng),
            state: State::Idle,
            partial_list: PartialList::new(),
        }
    }

    /// Sets the observer of errors.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn ReflectorObserver>) -> Self {
        self.decoder.observer = Some(observer);
        self
    }

    /// Lists before it watches, and sends no watch-list requests (feature gate `WatchListClient` off).
    #[must_use]
    pub fn without_watch_list(mut self) -> Self {
        self.policy.disable_watch_list();
        self
    }

    /// What this reflector lists and watches.
    #[must_use]
    pub fn list_watch(&self) -> &ListWatch<T> {
        &self.decoder.list_watch
    }

    /// The resourceVersion of the consumer's copy once it has applied the last delta of [`Reflector::next`].
    #[must_use]
    pub fn last_sync_resource_version(&self) -> &ResourceVersion {
        self.policy.last_sync_resource_version()
    }

    /// Drops the current request; the next delta is a [`Delta::Replace`] of the newest state.
    pub fn relist(&mut self) {
        self.policy.restart_from_newest();
        self.partial_list = PartialList::new();
        self.state = State::Idle;
    }

    /// The next delta. The first one is a [`Delta::Replace`]; errors are retried with backoff.
    ///
    /// Cancel-safe: after a dropped future the next call continues where it was.
    pub async fn next(&mut self) -> Delta<T> {
        loop {
            let delta = match &mut self.state {
                State::Idle => self.send_next_request(),
                State::BackingOff(sleep) => {
                    sleep.as_mut().await;
                    self.state = State::Idle;
                    None
                }
                State::Connecting(in_flight, opening) => {
                    let result = timeout_at(in_flight.deadline, opening).await;
                    self.on_response(result.unwrap_or_else(|_| Err(timeout_error("no response"))))
                }
                State::ReadingEvents(in_flight, body, framer) => match framer.next() {
                    Ok(Some(bytes)) => {
                        in_flight.events += 1;
                        let frame = framer.tag(&bytes);
                        self.on_event(frame)
                    }
                    Ok(None) => match next_chunk(body, in_flight.deadline).await {
                        Ok(Some(received)) => {
                            framer.push(received);
                            None
                        }
                        // A connection that breaks, or is silent past the watch timeout, does not invalidate
                        // the events received before.
                        Ok(None) | Err(_) => self.on_close(),
                    },
                    Err(error) => self.on_error(&unreadable_response(&error.to_string())),
                },
                State::ReadingItems(in_flight, body, items) => match next_chunk(body, in_flight.deadline)
                    .await
                {
                    Ok(Some(received)) => {
                        let (partial_list, decoder) = (&mut self.partial_list, &self.decoder);
                        let split = items.push(&received, |item| match decoder.item(item) {
                            Ok(object) => partial_list.objects.push(object),
                            Err(identity) => partial_list.unreadable.extend(identity.key),
                        });
                        split.err().and_then(|error| self.on_error(&unreadable_response(&error.to_string())))
                    }
                    Ok(None) => self.on_page_end(),
                    Err(failure) => self.on_error(&failure),
                },
            };
            if let Some(delta) = delta {
                return delta;
            }
        }
    }

    fn send_next_request(&mut self) -> Option<Delta<T>> {
        let request = self.policy.next_request();
        let call = self.decoder.list_watch.call(&request);
        let (is_list, within) = match request {
            ReflectorRequest::List { .. } => (true, PAGE_TIMEOUT),
            ReflectorRequest::WatchList { timeout_seconds, .. }
            | ReflectorRequest::Watch { timeout_seconds, .. } => {
                (false, Duration::from_secs(timeout_seconds.into()) + WATCH_MARGIN)
            }
        };
        tracing::debug!(request = %call, "sending list or watch");
        let started_at = Instant::now();
        let in_flight = RequestInFlight { is_list, started_at, deadline: started_at + within, events: 0 };
        let client = self.client.clone();
        self.state = State::Connecting(in_flight, Box::pin(async move { call.open(&client).await }));
        None
    }

    fn on_response(&mut self, result: Result<Response<Body>, ApiError>) -> Option<Delta<T>> {
        let State::Connecting(in_flight, _) = &self.state else {
            return None;
        };
        if let (Ok(_), Some(observer)) = (&result, &self.decoder.observer) {
            observer.accepted();
        }
        match result {
            Ok(response) if in_flight.is_list => {
                self.state = State::ReadingItems(*in_flight, response.into_body(), ListItems::default());
            }
            Ok(response) => {
                let media_type = response.headers().get(CONTENT_TYPE);
                let framer = WatchFramer::of(media_type.map_or(&[], |value| value.as_bytes()));
                self.state = State::ReadingEvents(*in_flight, response.into_body(), framer);
            }
            Err(failure) => return self.on_error(&failure),
        }
        None
    }

    /// Processes one watch event.
    fn on_event(&mut self, frame: WatchFrame<'_>) -> Option<Delta<T>> {
        match decode::event(frame) {
            Event::Object(event, object) => self.on_object_event(event, object, frame),
            Event::Bookmark { version, ends_initial_events } if self.policy.is_receiving_initial_events() => {
                if !ends_initial_events {
                    return None;
                }
                self.policy.initial_events_complete(&version);
                Some(self.replace(version))
            }
            Event::Bookmark { version, .. } => {
                let advances = self.policy.event(EventType::Bookmark, &version);
                advances.then_some(Delta::Bookmark(version))
            }
            Event::Error(failure) => self.on_error(&failure),
            Event::Unknown => {
                tracing::error!(resource = %self.decoder.list_watch.resource, "skipping watch event of unknown type");
                None
            }
            Event::Unreadable => self.on_error(&unreadable_response("a watch event cannot be decoded")),
        }
    }

    fn on_object_event(
        &mut self,
        event: EventType,
        encoded: EncodedObject<'_>,
        frame: WatchFrame<'_>,
    ) -> Option<Delta<T>> {
        let object = if self.expected.fits(encoded) {
            let decoder = self.decoder.list_watch.decoder;
            match contain_panic(|| decode::object(decoder, encoded, frame)) {
                Ok(Err(DecodeError::RequiresJson)) => {
                    self.fall_back_to_json();
                    return None;
                }
                Ok(object) => object.map_err(|error| error.to_string()),
                Err(panicked) => Err(panicked),
            }
        } else {
            Err("unexpected apiVersion or kind".to_owned())
        };
        let object = match object {
            Ok(object) => object,
            Err(reason) => {
                let identity = self.decoder.undecodable(encoded, &reason);
                return self.on_undecodable_event(event, identity);
            }
        };
        if self.policy.is_receiving_initial_events() {
            self.partial_list.event(event, object, self.decoder.list_watch.meta);
            return None;
        }
        self.policy.event(event, &(self.decoder.list_watch.meta)(&object).resource_version);
        Some(match event {
            EventType::Deleted => Delta::Delete(object),
            _ => Delta::Apply(object),
        })
    }

    /// Only the identity of the object is known. A deletion takes effect all the same.
    fn on_undecodable_event(&mut self, event: EventType, object: UndecodableObject) -> Option<Delta<T>> {
        let UndecodableObject { key, uid, version } = object;
        let deleted = event == EventType::Deleted;
        match key {
            None if deleted => {
                // Only a list shows which object is gone.
                let none = self.on_error(&unreadable_response("the object of a DELETED event has no name"));
                self.policy.restart_from_newest();
                none
            }
            Some(key) if deleted && self.policy.is_receiving_initial_events() => {
                self.partial_list.delete(key);
                None
            }
            key if self.policy.is_receiving_initial_events() => {
                self.partial_list.unreadable.extend(key);
                None
            }
            Some(key) if deleted => {
                self.policy.event(event, &version);
                Some(Delta::DeleteKey { key, uid, version })
            }
            // A bookmark, so that the consumer does not wait for a resourceVersion that it never receives.
            _ => self.policy.event(event, &version).then_some(Delta::Bookmark(version)),
        }
    }

    /// The object has fields that this protobuf schema does not know; JSON keeps them.
    fn fall_back_to_json(&mut self) {
        tracing::info!(resource = %self.decoder.list_watch.resource, "object has unknown protobuf fields, relisting with JSON");
        self.decoder.list_watch.accepts_protobuf = false;
        self.relist();
    }

    fn on_page_end(&mut self) -> Option<Delta<T>> {
        let State::ReadingItems(_, _, items) = std::mem::replace(&mut self.state, State::Idle) else {
            return None;
        };
        let page = items
            .finish()
            .map_err(|error| unreadable_response(&error.to_string()))
            .and_then(|envelope| decode::envelope(&envelope));
        match page {
            Ok((version, next)) => {
                let version = self.policy.page_received(version, next)?;
                Some(self.replace(version))
            }
            Err(failure) => self.on_error(&failure),
        }
    }

    fn replace(&mut self, version: ResourceVersion) -> Delta<T> {
        let partial_list = std::mem::replace(&mut self.partial_list, PartialList::new());
        let (objects, unreadable) = partial_list.finish(self.decoder.list_watch.meta);
        tracing::debug!(resource = %self.decoder.list_watch.resource, objects = objects.len(), %version, "synced");
        Delta::Replace { objects, unreadable, version }
    }

    /// The response ended without an error.
    fn on_close(&mut self) -> Option<Delta<T>> {
        let State::ReadingEvents(in_flight, ..) = &self.state else {
            return None;
        };
        let now = Instant::now();
        let duration = now.duration_since(in_flight.started_at);
        let delay = self.policy.response_ended(now, duration, in_flight.events);
        self.back_off(delay)
    }

    fn on_error(&mut self, failure: &ApiError) -> Option<Delta<T>> {
        tracing::debug!(resource = %self.decoder.list_watch.resource, error = %failure, "list or watch failed");
        if let Some(observer) = &self.decoder.observer {
            observer.failed(&self.decoder.list_watch.resource, failure);
        }
        let delay = self.policy.request_failed(Instant::now(), failure);
        self.back_off(delay)
    }

    /// Discards the objects received so far: their response will not be completed.
    fn back_off(&mut self, delay: Duration) -> Option<Delta<T>> {
        self.partial_list = PartialList::new();
        self.state = if delay.is_zero() {
            State::Idle
        } else {
            State::BackingOff(Box::pin(tokio::time::sleep(delay)))
        };
        None
    }
}

fn timeout_error(what: &str) -> ApiError {
    ApiError::transport(ErrorReason::ConnectionLost, format!("{what} in time"))
}

/// The next chunk of a body; `None` at its end.
pub(super) async fn next_chunk(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame =
            timeout_at(deadline, body.frame()).await.map_err(|_| timeout_error("response not complete"))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(api_error::from_kube(&error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// A panic over one object must not end the list and watch of all others: nothing would start it again.
fn contain_panic<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|_| "the decoder panicked, which is a bug".to_owned())
}

/// Decodes objects and reports those that cannot be decoded.
struct ObjectDecoder<T> {
    list_watch: ListWatch<T>,
    observer: Option<Arc<dyn ReflectorObserver>>,
}

impl<T> ObjectDecoder<T> {
    /// Decodes an item of a list.
    fn item(&self, text: &[u8]) -> Result<T, UndecodableObject> {
        let Ok(text) = std::str::from_utf8(text) else {
            let text = String::from_utf8_lossy(text);
            return Err(self.undecodable(EncodedObject::Json(&text), "not UTF-8"));
        };
        let reason = match contain_panic(|| self.list_watch.decoder.decode(Encoded::Json(text))) {
            Ok(Ok(object)) => return Ok(object),
            Ok(Err(error)) => error.to_string(),
            Err(panicked) => panicked,
        };
        Err(self.undecodable(EncodedObject::Json(text), &reason))
    }

    fn undecodable(&self, object: EncodedObject<'_>, reason: &str) -> UndecodableObject {
        let identity = decode::identify(object);
        let resource = &self.list_watch.resource;
        let name = identity.key.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%resource, object = name, reason = reason, "skipping object that cannot be decoded");
        if let Some(observer) = &self.observer {
            observer.undecodable(resource, &name);
        }
        identity
    }
}

/// The objects of an incomplete list.
struct PartialList<T> {
    objects: Vec<T>,
    /// The last state of objects that changed after their initial event; `None` if deleted.
    later: BTreeMap<Key, Option<T>>,
    /// Objects that could not be decoded.
    unreadable: Vec<Key>,
}

impl<T> PartialList<T> {
    fn new() -> Self {
        Self { objects: Vec::new(), later: BTreeMap::new(), unreadable: Vec::new() }
    }

    /// Initial events come once per object and are only appended; later events replace or remove an object.
    fn event(&mut self, event: EventType, object: T, meta: fn(&T) -> &ObjectMeta) {
        let key = &meta(&object).key;
        match event {
            EventType::Deleted => {
                let key = key.clone();
                self.delete(key);
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

    /// The object no longer exists, whether or not its last state can be decoded.
    fn delete(&mut self, key: Key) {
        self.unreadable.retain(|unreadable| *unreadable != key);
        self.later.insert(key, None);
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
