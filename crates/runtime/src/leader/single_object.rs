//! One object on the API server, identified by name: read, written with the observed resourceVersion,
//! watched.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use keleustes_client::Call;
use keleustes_objects::{ApiError, ErrorReason, Key, Resource, ResourceVersion, Uid};
use keleustes_plan::InvolvedObject;
use kube::Client;
use kube::core::params::WatchParams;
use kube::core::{Request, WatchEvent};
use serde_json::{Value, json};

/// How long one watch lasts before it is opened again; a silent connection is not trusted for much longer.
const WATCH_SECONDS: u32 = 290;

/// One object and its client.
#[derive(Clone)]
pub(super) struct SingleObject {
    client: Client,
    resource: &'static Resource,
    key: Key,
    request_timeout: Duration,
    /// The object as it was last read or written; updates keep its metadata and its resourceVersion.
    observed: Option<Value>,
}

/// A change delivered by a watch of the object.
#[derive(Debug)]
pub(super) enum Change {
    /// The current state of the object.
    Current(Value),
    /// The object does not exist, as of this resourceVersion.
    Deleted(ResourceVersion),
}

impl SingleObject {
    pub(super) fn new(
        client: Client,
        resource: &'static Resource,
        key: Key,
        request_timeout: Duration,
    ) -> Self {
        Self { client, resource, key, request_timeout, observed: None }
    }

    /// Reads the object.
    pub(super) async fn read(&mut self) -> Result<&Value, ApiError> {
        let answer = self.send(Call::get(self.resource, &self.key)).await;
        if answer.as_ref().is_err_and(|failure| failure.reason == ErrorReason::NotFound) {
            self.observed = None;
        }
        Ok(self.observed.insert(answer?))
    }

    /// Updates the last observed state with this spec, or creates the object if none was observed.
    pub(super) async fn write(&mut self, spec: Value) -> Result<(), ApiError> {
        let call = match &self.observed {
            Some(observed) => {
                let mut object = observed.clone();
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
        self.observed = Some(self.send(call).await?);
        Ok(())
    }

    /// Sets or removes an annotation of the last observed state, for the next write.
    pub(super) fn annotate(&mut self, name: &str, value: Option<String>) {
        let Some(observed) = &mut self.observed else { return };
        match (value, observed["metadata"]["annotations"].as_object_mut()) {
            (Some(value), _) => observed["metadata"]["annotations"][name] = Value::String(value),
            (None, Some(annotations)) => drop(annotations.remove(name)),
            (None, None) => {}
        }
    }

    /// The state that was last read, written or [taken](Self::take).
    pub(super) fn observed(&self) -> Option<&Value> {
        self.observed.as_ref()
    }

    /// Takes a watched change as the state to write against; false if a read or a write has observed a newer
    /// one.
    pub(super) fn take(&mut self, change: Change) -> bool {
        self.observed = match change {
            Change::Current(object) if version_of(&object).is_older_than(&self.version()) => return false,
            Change::Deleted(version) if version.is_older_than(&self.version()) => return false,
            Change::Current(object) => Some(object),
            Change::Deleted(_) => None,
        };
        true
    }

    /// The last observed resourceVersion.
    pub(super) fn version(&self) -> ResourceVersion {
        self.observed.as_ref().map(version_of).unwrap_or_default()
    }

    /// The object as the involved object of an event.
    pub(super) fn involved(&self) -> InvolvedObject {
        let uid = self
            .observed
            .as_ref()
            .and_then(|observed| observed["metadata"]["uid"].as_str())
            .unwrap_or_default();
        InvolvedObject::named(
            self.resource,
            &self.key.namespace,
            &self.key.name,
            Uid::from(uid),
            self.version(),
        )
    }

    /// Its changes, starting with the current state. The stream never ends; while the object cannot be
    /// watched, it is silent and tries again after each pause.
    pub(super) fn changes(&self, pause: Duration) -> BoxStream<'static, Change> {
        let named = self.clone();
        let watches = stream::unfold(Duration::ZERO, move |wait| {
            let named = named.clone();
            async move {
                tokio::time::sleep(wait).await;
                let changes = named.watch().await.unwrap_or_else(|error| {
                    tracing::debug!(object = %named.key, error, "watch failed, retrying");
                    stream::empty().boxed()
                });
                Some((changes, pause))
            }
        });
        watches.flatten().boxed()
    }

    /// One list and one watch from there on, until it ends or fails.
    async fn watch(&self) -> Result<BoxStream<'static, Change>, String> {
        let by_name = format!("metadata.name={}", self.key.name);
        let list_request =
            Call::list(self.resource, &self.key.namespace).query("fieldSelector", by_name.clone());
        let list = self.send(list_request).await.map_err(|failure| failure.to_string())?;
        let current = match list["items"].as_array().and_then(|items| items.first()) {
            Some(item) => Change::Current(self.with_type(item)),
            None => Change::Deleted(version_of(&list)),
        };
        let params = WatchParams::default().fields(&by_name).timeout(WATCH_SECONDS);
        let request = Request::new(self.resource.collection_path(&self.key.namespace))
            .watch(&params, &version_of(&list).to_string())
            .map_err(|error| error.to_string())?;
        let opening = self.client.request_events::<Value>(request);
        let opened = tokio::time::timeout(self.request_timeout, opening).await;
        let events = opened.map_err(|_| "no response")?.map_err(|error| error.to_string())?;
        let changes = events
            .take_until(tokio::time::sleep(Duration::from_secs((WATCH_SECONDS + 10).into())))
            .map(|event| event.map_err(|error| error.to_string()).and_then(change))
            .take_while(|change| std::future::ready(is_ok_or_log(change)))
            .filter_map(|change| std::future::ready(change.ok().flatten()));
        Ok(stream::iter([current]).chain(changes).boxed())
    }

    /// An item of a list has neither apiVersion nor kind; an object to be written needs both.
    fn with_type(&self, item: &Value) -> Value {
        let mut object = item.clone();
        object["apiVersion"] = self.resource.api_version().into();
        object["kind"] = (*self.resource.kind).into();
        object
    }

    async fn send(&self, call: Call) -> Result<Value, ApiError> {
        // The API server gets the timeout, too, so that a write whose response is no longer awaited is less
        // likely to take effect.
        let seconds = self.request_timeout.as_secs_f64();
        let call = call.query("timeout", format!("{seconds}s"));
        tokio::time::timeout(self.request_timeout, call.send(&self.client)).await.unwrap_or_else(|_| {
            Err(ApiError::transport(
                ErrorReason::ConnectionLost,
                format!("no response to {call} within {seconds} s"),
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
        WatchEvent::Deleted(object) => Ok(Some(Change::Deleted(version_of(&object)))),
        WatchEvent::Bookmark(_) => Ok(None),
        WatchEvent::Error(status) => Err(status.message),
    }
}

fn is_ok_or_log(change: &Result<Option<Change>, String>) -> bool {
    if let Err(error) = change {
        tracing::debug!(error, "watch ended");
    }
    change.is_ok()
}
