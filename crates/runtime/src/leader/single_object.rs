//! One object on the API server, known by name: read, written against the version that was seen, watched.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use keleustes_client::Call;
use keleustes_objects::{ApiError, ErrorReason, Key, Resource, ResourceVersion, Uid};
use keleustes_plan::InvolvedObject;
use kube::Client;
use kube::core::params::WatchParams;
use kube::core::{Request, WatchEvent};
use serde_json::{Value, json};

/// How long one watch lasts before it is opened anew; a silent connection is not trusted for much longer.
const WATCH_SECONDS: u32 = 290;

/// One object and the way to it.
#[derive(Clone)]
pub(super) struct SingleObject {
    client: Client,
    resource: &'static Resource,
    key: Key,
    request_timeout: Duration,
    /// The object as it was last read or written; updates keep its metadata and ask for its version.
    seen: Option<Value>,
}

/// What a watch of the object brings.
#[derive(Debug)]
pub(super) enum Change {
    /// This is its state now.
    Current(Value),
    /// It is not there.
    Deleted,
}

impl SingleObject {
    pub(super) fn new(
        client: Client,
        resource: &'static Resource,
        key: Key,
        request_timeout: Duration,
    ) -> Self {
        Self { client, resource, key, request_timeout, seen: None }
    }

    /// Reads it.
    pub(super) async fn read(&mut self) -> Result<&Value, ApiError> {
        let answer = self.send(Call::get(self.resource, &self.key)).await;
        if answer.as_ref().is_err_and(|failure| failure.reason == ErrorReason::NotFound) {
            self.seen = None;
        }
        Ok(self.seen.insert(answer?))
    }

    /// Puts this spec into the state that was last seen, or creates the object if none was.
    pub(super) async fn write(&mut self, spec: Value) -> Result<(), ApiError> {
        let call = match &self.seen {
            Some(seen) => {
                let mut object = seen.clone();
                object["spec"] = spec;
                Call::replace(self.resource, &self.key, &object)
            }
            None => {
                let (name, namespace) = (&*self.key.name, &*self.key.namespace);
                let object = json!({
                    "apiVersion": self.resource.api_version(),
                    "kind": self.resource.kind,
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": spec,
                });
                Call::create(self.resource, namespace, &object)
            }
        };
        self.seen = Some(self.send(call).await?);
        Ok(())
    }

    /// Gives the state that was last seen an annotation, or takes it away, for the next write.
    pub(super) fn annotate(&mut self, name: &str, value: Option<String>) {
        let Some(seen) = &mut self.seen else { return };
        match (value, seen["metadata"]["annotations"].as_object_mut()) {
            (Some(value), _) => seen["metadata"]["annotations"][name] = Value::String(value),
            (None, Some(annotations)) => drop(annotations.remove(name)),
            (None, None) => {}
        }
    }

    /// The state that was last read, written or [taken](Self::take).
    pub(super) fn seen(&self) -> Option<&Value> {
        self.seen.as_ref()
    }

    /// Makes what a watch brought the state to write against; false if a read or a write was faster.
    pub(super) fn take(&mut self, change: Change) -> bool {
        self.seen = match change {
            Change::Current(object) if version_of(&object).is_older_than(&self.version()) => return false,
            Change::Current(object) => Some(object),
            Change::Deleted => None,
        };
        true
    }

    /// The version that was last seen.
    pub(super) fn version(&self) -> ResourceVersion {
        self.seen.as_ref().map(version_of).unwrap_or_default()
    }

    /// The object as the subject of an event.
    pub(super) fn involved(&self) -> InvolvedObject {
        let uid = self.seen.as_ref().and_then(|seen| seen["metadata"]["uid"].as_str()).unwrap_or_default();
        InvolvedObject::named(
            self.resource,
            &self.key.namespace,
            &self.key.name,
            Uid::from(uid),
            self.version(),
        )
    }

    /// Its changes, beginning with its present state. Ends never; while it cannot be watched it is silent
    /// and tries again after each pause.
    pub(super) fn changes(&self, pause: Duration) -> BoxStream<'static, Change> {
        let named = self.clone();
        let watches = stream::unfold(Duration::ZERO, move |wait| {
            let named = named.clone();
            async move {
                tokio::time::sleep(wait).await;
                let changes = named.watch().await.unwrap_or_else(|error| {
                    tracing::debug!(object = %named.key, error, "it cannot be watched");
                    stream::empty().boxed()
                });
                Some((changes, pause))
            }
        });
        watches.flatten().boxed()
    }

    /// One look and one watch from there on, until it ends or fails.
    async fn watch(&self) -> Result<BoxStream<'static, Change>, String> {
        let only_it = format!("metadata.name={}", self.key.name);
        let look = Call::list(self.resource, &self.key.namespace).query("fieldSelector", only_it.clone());
        let list = self.send(look).await.map_err(|failure| failure.to_string())?;
        let present = match list["items"].as_array().and_then(|items| items.first()) {
            Some(item) => Change::Current(self.whole(item)),
            None => Change::Deleted,
        };
        let params = WatchParams::default().fields(&only_it).timeout(WATCH_SECONDS);
        let request = Request::new(self.resource.collection_path(&self.key.namespace))
            .watch(&params, &version_of(&list).to_string())
            .map_err(|error| error.to_string())?;
        let opening = self.client.request_events::<Value>(request);
        let opened = tokio::time::timeout(self.request_timeout, opening).await;
        let events = opened.map_err(|_| "no answer")?.map_err(|error| error.to_string())?;
        let changes = events
            .take_until(tokio::time::sleep(Duration::from_secs((WATCH_SECONDS + 10).into())))
            .map(|event| event.map_err(|error| error.to_string()).and_then(change))
            .take_while(|change| std::future::ready(is_good(change)))
            .filter_map(|change| std::future::ready(change.ok().flatten()));
        Ok(stream::iter([present]).chain(changes).boxed())
    }

    /// An item of a list says neither version nor kind of the API; one that is to be written must.
    fn whole(&self, item: &Value) -> Value {
        let mut object = item.clone();
        object["apiVersion"] = self.resource.api_version().into();
        object["kind"] = (*self.resource.kind).into();
        object
    }

    async fn send(&self, call: Call) -> Result<Value, ApiError> {
        // The server is told as well, so that a write nobody waits for any more is less likely to land.
        let seconds = self.request_timeout.as_secs_f64();
        let call = call.query("timeout", format!("{seconds}s"));
        tokio::time::timeout(self.request_timeout, call.send(&self.client)).await.unwrap_or_else(|_| {
            Err(ApiError::transport(
                ErrorReason::ConnectionLost,
                format!("no answer to {call} within {seconds} s"),
            ))
        })
    }
}

fn version_of(object: &Value) -> ResourceVersion {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into()
}

fn change(event: WatchEvent<Value>) -> Result<Option<Change>, String> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Ok(Some(Change::Current(object))),
        WatchEvent::Deleted(_) => Ok(Some(Change::Deleted)),
        WatchEvent::Bookmark(_) => Ok(None),
        WatchEvent::Error(status) => Err(status.message),
    }
}

fn is_good(change: &Result<Option<Change>, String>) -> bool {
    if let Err(error) = change {
        tracing::debug!(error, "a watch ended");
    }
    change.is_ok()
}
