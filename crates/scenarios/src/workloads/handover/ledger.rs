//! Everything that happens to pods is written down, and so is how many pods each Deployment asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::loads::{ASKED_MAX, MARK};
use crate::World;

/// What happened to the pods of each workload: how many of each image came and went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Created, by workload and image.
    pub(super) came: BTreeMap<(String, String), usize>,
    /// Asked to go, or gone.
    pub(super) went: BTreeMap<(String, String), usize>,
}

impl Account {
    /// Fails with what is in one of them only.
    pub(super) fn must_be(&self, expected: &Self) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        for (what, seen, wanted) in
            [("came", &self.came, &expected.came), ("went", &self.went, &expected.went)]
        {
            let of = |map: &BTreeMap<_, usize>, key| map.get(key).copied().unwrap_or(0);
            for key in seen.keys().chain(wanted.keys()).collect::<BTreeSet<_>>() {
                let (seen, wanted) = (of(seen, key), of(wanted, key));
                if seen != wanted {
                    wrong.push(format!("{seen} pods of {key:?} {what}, {wanted} are accounted for"));
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

#[derive(Default)]
struct Book {
    known: BTreeSet<String>,
    going: BTreeSet<String>,
    account: Account,
    marks: BTreeSet<String>,
    /// The sizes of ReplicaSets by Deployment and name.
    sizes: BTreeMap<String, BTreeMap<String, i64>>,
    problems: Vec<String>,
}

/// Follows pods and ReplicaSets from the moment it is opened.
pub(super) struct Ledger {
    book: Arc<Mutex<Book>>,
    pods: Api<Pod>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Ledger {
    pub(super) async fn open(world: &World, namespace: &str) -> anyhow::Result<Self> {
        let book = Arc::new(Mutex::new(Book::default()));
        let (pods, sets) = (world.api::<Pod>(namespace), world.api::<ReplicaSet>(namespace));
        let pods_task = follow(pods.clone(), book.clone(), Book::note_pod).await?;
        let sets_task = follow(sets, book.clone(), Book::note_set).await?;
        Ok(Self { book, pods, tasks: vec![pods_task, sets_task] })
    }

    /// What happened since the last time, up to now for certain.
    pub(super) async fn close(&self, world: &World, phase: usize) -> anyhow::Result<Account> {
        let mark = format!("{MARK}-{phase}");
        let spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]});
        world.create(&self.pods, json!({"metadata": {"name": mark}, "spec": spec})).await?;
        world
            .eventually("the mark", async || Ok(lock(&self.book).marks.contains(&mark).then_some(())))
            .await?;
        let mut book = lock(&self.book);
        if !book.problems.is_empty() {
            bail!("{}", book.problems.join("\n"));
        }
        Ok(std::mem::take(&mut book.account))
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes every event of a kind from now on, and misses none.
async fn follow<K>(
    api: Api<K>,
    book: Arc<Mutex<Book>>,
    note: fn(&mut Book, &Value, bool),
) -> anyhow::Result<JoinHandle<()>>
where
    K: kube::Resource
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug
        + Send
        + 'static,
{
    let mut version = api.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    Ok(tokio::spawn(async move {
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                continue;
            };
            let mut events = events.boxed();
            // A connection that breaks is taken up where it ended.
            while let Ok(Some(event)) = events.try_next().await {
                let (object, is_gone) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                    WatchEvent::Deleted(object) => (object, true),
                    WatchEvent::Bookmark(mark) => {
                        version = mark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(error) => {
                        lock(&book)
                            .problems
                            .push(format!("what happened is not known for certain: {error:?}"));
                        return;
                    }
                };
                version = object.resource_version().unwrap_or_default();
                note(&mut lock(&book), &serde_json::to_value(&object).unwrap_or_default(), is_gone);
            }
        }
    }))
}

impl Book {
    fn note_pod(&mut self, pod: &Value, is_gone: bool) {
        let text = |at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        if name.starts_with(MARK) {
            self.marks.insert(name);
            return;
        }
        let key = (text("/metadata/labels/app"), text("/spec/containers/0/image"));
        if self.known.insert(uid.clone()) {
            *self.account.came.entry(key.clone()).or_default() += 1;
        }
        if (is_gone || pod.pointer("/metadata/deletionTimestamp").is_some()) && self.going.insert(uid) {
            *self.account.went.entry(key).or_default() += 1;
        }
        let restarts = pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_i64);
        if restarts.is_some_and(|times| times > 0) {
            self.problems.push(format!("{name} was restarted"));
        }
    }

    fn note_set(&mut self, set: &Value, is_gone: bool) {
        let text = |at: &str| set.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, owner) = (text("/metadata/name"), text("/metadata/ownerReferences/0/name"));
        if owner.is_empty() {
            return;
        }
        let size = set.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        let sizes = self.sizes.entry(owner.clone()).or_default();
        sizes.insert(name, if is_gone { 0 } else { size });
        let asked: i64 = sizes.values().sum();
        if asked > ASKED_MAX {
            self.problems.push(format!("{asked} pods were asked for at once by {owner}"));
        }
    }
}
