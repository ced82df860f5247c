//! Records the creation and deletion of every pod, and the replicas that each Deployment requests.

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

use super::workloads::{MARKER, REQUESTED_MAX};
use crate::TestCluster;

/// How many pods of each workload and image were created and deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodCounts {
    /// Created pods, by workload and image.
    pub(super) created: BTreeMap<(String, String), usize>,
    /// Pods that are terminating or deleted.
    pub(super) deleted: BTreeMap<(String, String), usize>,
}

impl PodCounts {
    /// Fails with the counts that differ.
    pub(super) fn expect_equal(&self, expected: &Self) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        for (what, seen, wanted) in
            [("created", &self.created, &expected.created), ("deleted", &self.deleted, &expected.deleted)]
        {
            let of = |map: &BTreeMap<_, usize>, key| map.get(key).copied().unwrap_or(0);
            for key in seen.keys().chain(wanted.keys()).collect::<BTreeSet<_>>() {
                let (seen, wanted) = (of(seen, key), of(wanted, key));
                if seen != wanted {
                    wrong.push(format!("{seen} pods of {key:?} were {what}, {wanted} are expected"));
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

#[derive(Default)]
struct Entries {
    created_uids: BTreeSet<String>,
    deleted_uids: BTreeSet<String>,
    counts: PodCounts,
    markers: BTreeSet<String>,
    /// spec.replicas of ReplicaSets, by Deployment and name.
    sizes: BTreeMap<String, BTreeMap<String, i64>>,
    problems: Vec<String>,
}

/// Watches pods and ReplicaSets from the moment it is opened.
pub(super) struct PodLog {
    entries: Arc<Mutex<Entries>>,
    pods: Api<Pod>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for PodLog {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl PodLog {
    pub(super) async fn open(cluster: &TestCluster, namespace: &str) -> anyhow::Result<Self> {
        let entries = Arc::new(Mutex::new(Entries::default()));
        let (pods, sets) = (cluster.api::<Pod>(namespace), cluster.api::<ReplicaSet>(namespace));
        let pods_task = follow(pods.clone(), entries.clone(), Entries::record_pod).await?;
        let sets_task = follow(sets, entries.clone(), Entries::record_replica_set).await?;
        Ok(Self { entries, pods, tasks: vec![pods_task, sets_task] })
    }

    /// Takes the counts since the last call; a marker pod makes sure that the watch has delivered all
    /// events up to now.
    pub(super) async fn close(&self, cluster: &TestCluster, phase: usize) -> anyhow::Result<PodCounts> {
        let marker = format!("{MARKER}-{phase}");
        let spec = json!({"schedulerName": "none", "containers": [{"name": "c", "image": "i"}]});
        cluster.create(&self.pods, json!({"metadata": {"name": marker}, "spec": spec})).await?;
        cluster
            .eventually("the marker pod", async || {
                Ok(lock(&self.entries).markers.contains(&marker).then_some(()))
            })
            .await?;
        let mut entries = lock(&self.entries);
        if !entries.problems.is_empty() {
            bail!("{}", entries.problems.join("\n"));
        }
        Ok(std::mem::take(&mut entries.counts))
    }
}

fn lock(entries: &Mutex<Entries>) -> MutexGuard<'_, Entries> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records every event of a kind from now on, and misses none.
async fn follow<K>(
    api: Api<K>,
    entries: Arc<Mutex<Entries>>,
    record: fn(&mut Entries, &Value, bool),
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
            // A broken watch continues from its last resourceVersion.
            while let Ok(Some(event)) = events.try_next().await {
                let (object, is_deleted) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                    WatchEvent::Deleted(object) => (object, true),
                    WatchEvent::Bookmark(marker) => {
                        version = marker.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(error) => {
                        lock(&entries).problems.push(format!("the watch missed events: {error:?}"));
                        return;
                    }
                };
                version = object.resource_version().unwrap_or_default();
                record(&mut lock(&entries), &serde_json::to_value(&object).unwrap_or_default(), is_deleted);
            }
        }
    }))
}

impl Entries {
    fn record_pod(&mut self, pod: &Value, is_deleted: bool) {
        let text = |at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        if name.starts_with(MARKER) {
            self.markers.insert(name);
            return;
        }
        let key = (text("/metadata/labels/app"), text("/spec/containers/0/image"));
        if self.created_uids.insert(uid.clone()) {
            *self.counts.created.entry(key.clone()).or_default() += 1;
        }
        if (is_deleted || pod.pointer("/metadata/deletionTimestamp").is_some())
            && self.deleted_uids.insert(uid)
        {
            *self.counts.deleted.entry(key).or_default() += 1;
        }
        let restarts = pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_i64);
        if restarts.is_some_and(|times| times > 0) {
            self.problems.push(format!("{name} was restarted"));
        }
    }

    fn record_replica_set(&mut self, set: &Value, is_deleted: bool) {
        let text = |at: &str| set.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, owner) = (text("/metadata/name"), text("/metadata/ownerReferences/0/name"));
        if owner.is_empty() {
            return;
        }
        let size = set.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        let sizes = self.sizes.entry(owner.clone()).or_default();
        sizes.insert(name, if is_deleted { 0 } else { size });
        let requested: i64 = sizes.values().sum();
        if requested > REQUESTED_MAX {
            self.problems.push(format!("{requested} replicas were requested at once by {owner}"));
        }
    }
}
