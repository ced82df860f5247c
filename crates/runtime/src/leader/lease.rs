//! The Lease on the API server: read, written against the version that was seen, watched.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use keleustes_client::Call;
use keleustes_objects::{Failure, Key, Reason, Resource, Uid, Version};
use keleustes_plan::Involved;
use kube::Client;
use kube::core::params::WatchParams;
use kube::core::{Request, WatchEvent};
use serde_json::{Value, json};

use super::record::LeaseRecord;

const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

/// How long one watch lasts before it is opened anew; a dead connection is not trusted for longer.
const WATCH_SECONDS: u32 = 290;

/// One Lease object and the way to it.
#[derive(Clone)]
pub(super) struct Lease {
    client: Client,
    key: Key,
    request_timeout: Duration,
    /// The object as it was last read or written; updates keep its metadata and ask for its version.
    seen: Option<Value>,
}

/// What a watch of the Lease brings.
#[derive(Debug)]
pub(super) enum Change {
    /// This is its state now.
    Is(LeaseRecord, Version),
    /// It was deleted.
    Gone,
}

impl Lease {
    pub(super) fn new(client: Client, key: Key, request_timeout: Duration) -> Self {
        Self { client, key, request_timeout, seen: None }
    }

    /// Reads it.
    pub(super) async fn read(&mut self) -> Result<LeaseRecord, Failure> {
        let answer = self.send(Call::get(&LEASES, &self.key)).await;
        if answer.as_ref().is_err_and(|failure| failure.reason == Reason::NotFound) {
            self.seen = None;
        }
        let lease = answer?;
        let record = LeaseRecord::of(&lease);
        self.seen = Some(lease);
        Ok(record)
    }

    /// Writes the record over the state that was last seen, or creates the Lease if none was.
    pub(super) async fn write(&mut self, record: &LeaseRecord) -> Result<(), Failure> {
        let call = match &self.seen {
            Some(seen) => {
                let mut lease = seen.clone();
                lease["spec"] = record.spec();
                Call::replace(&LEASES, &self.key, &lease)
            }
            None => {
                let (name, namespace) = (&*self.key.name, &*self.key.namespace);
                let lease = json!({
                    "apiVersion": LEASES.api_version(),
                    "kind": LEASES.kind,
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": record.spec(),
                });
                Call::create(&LEASES, namespace, &lease)
            }
        };
        self.seen = Some(self.send(call).await?);
        Ok(())
    }

    /// The version that was last read or written.
    pub(super) fn version(&self) -> Version {
        self.metadata("resourceVersion").into()
    }

    /// The Lease as the object of an event.
    pub(super) fn involved(&self) -> Involved {
        let uid = Uid::from(self.metadata("uid"));
        Involved::named(&LEASES, &self.key.namespace, &self.key.name, uid, self.version())
    }

    /// Its changes, beginning with its present state. Ends never; while no watch can be had it is silent.
    pub(super) fn changes(&self, pause: Duration) -> BoxStream<'static, Change> {
        let lease = self.clone();
        let watches = stream::unfold(Duration::ZERO, move |wait| {
            let lease = lease.clone();
            async move {
                tokio::time::sleep(wait).await;
                Some((lease.watch().await, pause))
            }
        });
        watches.flatten().boxed()
    }

    /// One watch, until it ends or fails.
    async fn watch(self) -> BoxStream<'static, Change> {
        let only_it = WatchParams::default()
            .fields(&format!("metadata.name={}", self.key.name))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        // Without a version the server begins with the present state.
        let Ok(request) = Request::new(LEASES.collection_path(&self.key.namespace)).watch(&only_it, "")
        else {
            return stream::empty().boxed();
        };
        let opened = tokio::time::timeout(self.request_timeout, self.client.request_events::<Value>(request));
        match opened.await {
            Ok(Ok(events)) => events
                .map(|event| event.map_err(|error| error.to_string()).and_then(change))
                .take_while(|change| std::future::ready(is_good(change)))
                .filter_map(|change| std::future::ready(change.ok().flatten()))
                .boxed(),
            Ok(Err(error)) => {
                tracing::debug!(lease = %self.key, %error, "the lease cannot be watched, polling goes on");
                stream::empty().boxed()
            }
            Err(_) => stream::empty().boxed(),
        }
    }

    fn metadata(&self, field: &str) -> &str {
        self.seen.as_ref().and_then(|seen| seen["metadata"][field].as_str()).unwrap_or_default()
    }

    async fn send(&self, call: Call) -> Result<Value, Failure> {
        // The server is told as well, so that a write nobody waits for any more is less likely to land.
        let seconds = self.request_timeout.as_secs_f64();
        let call = call.query("timeout", format!("{seconds}s"));
        tokio::time::timeout(self.request_timeout, call.send(&self.client)).await.unwrap_or_else(|_| {
            Err(Failure::transport(Reason::Unreachable, format!("no answer to {call} within {seconds} s")))
        })
    }
}

fn change(event: WatchEvent<Value>) -> Result<Option<Change>, String> {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
            let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            Ok(Some(Change::Is(LeaseRecord::of(&lease), version.into())))
        }
        WatchEvent::Deleted(_) => Ok(Some(Change::Gone)),
        WatchEvent::Bookmark(_) => Ok(None),
        WatchEvent::Error(status) => Err(status.message),
    }
}

fn is_good(change: &Result<Option<Change>, String>) -> bool {
    if let Err(error) = change {
        tracing::debug!(%error, "the watch of the lease ended, polling goes on");
    }
    change.is_ok()
}
