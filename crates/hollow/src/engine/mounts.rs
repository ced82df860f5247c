//! What pods wait for before their first container starts, and the events by which kubelets say so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{ArcStr, InternedStr, Key};
use serde_json::json;

use super::volumes::Volumes;
use super::{Engine, PodRecord, Writer};
use crate::claims::Claims;
use crate::clock::{after, stamp};
use crate::pod_events::{EVENTS, PodEvent};
use crate::projections::{ConfigKind, ConfigMap, PodConfig, Secret};

/// Parity: `pkg/util/goroutinemap/exponentialbackoff`, between two attempts to mount a volume.
const RETRY_BASE: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(122);

/// ConfigMaps and Secrets, and the pods whose volumes cannot be mounted.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    /// Pods do not wait for ConfigMaps and Secrets that are not watched.
    is_watched: bool,
    synced: BTreeSet<ConfigKind>,
    /// The names of the entries.
    configs: BTreeMap<(ConfigKind, Key), Box<[ArcStr]>>,
    failed: BTreeMap<Key, FailedMount>,
}

/// Why a pod waits for its volumes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// It takes its time, which is no failure.
    Progress,
    /// Something is missing.
    Failed(String),
}

/// A failure that is repeated until it is gone, and the event that counts it.
#[derive(Debug)]
struct FailedMount {
    message: String,
    event: Option<Key>,
    count: u32,
    next_at: Timestamp,
    delay: Duration,
}

impl Mounts {
    /// Why a pod on this node waits.
    ///
    /// Parity: the messages of a kubelet's events.
    pub(super) fn wait_reason(
        &self,
        claims: &Claims,
        volumes: &Volumes,
        namespace: &InternedStr,
        record: &PodRecord,
        attached: &BTreeSet<ArcStr>,
    ) -> Option<WaitReason> {
        let are_configs_unknown = self.is_watched && self.synced.len() < 2 && !record.configs.is_empty();
        if are_configs_unknown || !claims.are_ready() && !record.claims.is_empty() {
            return Some(WaitReason::Progress);
        }
        let problems = record.claims.iter().filter_map(|claim| {
            claims.mount_error(namespace, claim).map(|problem| (claim.volume.as_str(), problem))
        });
        let (names, problems): (Vec<&str>, Vec<String>) = problems.unzip();
        if !names.is_empty() {
            let (names, problems) = (names.join(" "), problems.join("; "));
            return Some(WaitReason::Failed(format!(
                "Unable to attach or mount volumes: unmounted volumes=[{names}], unattached volumes=[], \
                 failed to process volumes=[{names}]: {problems}"
            )));
        }
        let configs = record.configs.iter().filter(|_| self.is_watched);
        let mut problems = configs.filter_map(|config| Some((config, self.problem(namespace, config)?)));
        if let Some((config, problem)) = problems.next() {
            let volume = &config.volume;
            let message = format!("MountVolume.SetUp failed for volume {volume:?} : {problem}");
            return Some(WaitReason::Failed(message));
        }
        volumes.are_missing(namespace, &record.claims, attached).then_some(WaitReason::Progress)
    }

    fn problem(&self, namespace: &InternedStr, config: &PodConfig) -> Option<String> {
        let key = Key { namespace: namespace.clone(), name: config.name.clone() };
        let (kind, missing_entry) = match config.kind {
            ConfigKind::ConfigMap => ("configmap", "configmap references non-existent config key"),
            ConfigKind::Secret => ("secret", "references non-existent secret key"),
        };
        let Some(entries) = self.configs.get(&(config.kind, key)) else {
            return Some(format!("{kind} {:?} not found", config.name));
        };
        let mut wanted = config.entries.iter();
        let missing = wanted.find(|wanted| !entries.iter().any(|entry| **entry == ***wanted))?;
        Some(format!("{missing_entry}: {missing}"))
    }

    /// Records why a pod waits, or that it does not.
    pub(super) fn note(&mut self, pod: &Key, reason: Option<WaitReason>, now: Timestamp) {
        match reason {
            Some(WaitReason::Failed(message)) if self.is_watched => {
                if self.failed.get(pod).is_none_or(|known| known.message != message) {
                    // Watches are not in order: what is missing now may exist already.
                    let next_at = after(now, RETRY_BASE);
                    let first = FailedMount { message, event: None, count: 0, next_at, delay: RETRY_BASE };
                    self.failed.insert(pod.clone(), first);
                }
            }
            _ => self.forget(pod),
        }
    }

    pub(super) fn forget(&mut self, pod: &Key) {
        self.failed.remove(pod);
    }

    /// When the next attempt to mount the volumes of a pod fails.
    pub(super) fn due(&self, pod: &Key) -> Option<Timestamp> {
        self.failed.get(pod).map(|failed| failed.next_at)
    }

    /// The request that records the next failure.
    pub(super) fn call(&mut self, pod: &Key, record: &PodRecord, now: Timestamp) -> Option<Call> {
        let failed = self.failed.get_mut(pod).filter(|failed| failed.next_at <= now)?;
        failed.next_at = after(now, failed.delay);
        failed.delay = failed.delay.saturating_mul(2).min(RETRY_MAX);
        failed.count += 1;
        if let Some(event) = &failed.event {
            let patch = json!({"count": failed.count, "lastTimestamp": stamp(now)});
            return Some(Call::patch(&EVENTS, event, PatchType::Merge, &patch));
        }
        let object = json!({
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": record.uid},
            "spec": {"nodeName": record.node},
        });
        let event = PodEvent::new("Warning", "FailedMount", failed.message.clone()).object(&object, now);
        let name = event["metadata"]["name"].as_str().unwrap_or_default();
        failed.event = Some(Key::namespaced(&*pod.namespace, name));
        Some(Call::create(&EVENTS, &pod.namespace, &event))
    }

    /// The pods of a namespace whose volumes cannot be mounted.
    fn failed_in(&self, namespace: &InternedStr) -> Vec<Key> {
        self.failed.keys().filter(|pod| pod.namespace == *namespace).cloned().collect()
    }
}

impl Engine {
    /// ConfigMaps and Secrets are watched: pods wait for them, and failures are recorded as events.
    pub(crate) fn watch_mounts(&mut self) {
        self.mounts.is_watched = true;
    }

    /// Applies a complete list of ConfigMaps.
    pub(crate) fn replace_config_maps(&mut self, objects: Vec<ConfigMap>, now: Timestamp) {
        let objects = objects.into_iter().map(|object| (object.meta.key, object.entries));
        self.replace_configs(ConfigKind::ConfigMap, objects, now);
    }

    /// Applies a complete list of Secrets.
    pub(crate) fn replace_secrets(&mut self, objects: Vec<Secret>, now: Timestamp) {
        let objects = objects.into_iter().map(|object| (object.meta.key, object.entries));
        self.replace_configs(ConfigKind::Secret, objects, now);
    }

    fn replace_configs(
        &mut self,
        kind: ConfigKind,
        objects: impl Iterator<Item = (Key, Box<[ArcStr]>)>,
        now: Timestamp,
    ) {
        self.mounts.synced.insert(kind);
        self.mounts.configs.retain(|(known, _), _| *known != kind);
        self.mounts.configs.extend(objects.map(|(key, entries)| ((kind, key), entries)));
        self.update_queue_of_waiting(now);
    }

    /// Applies an added or updated ConfigMap or Secret.
    pub(crate) fn observe_config(
        &mut self,
        kind: ConfigKind,
        key: Key,
        entries: Box<[ArcStr]>,
        now: Timestamp,
    ) {
        let waiting = self.mounts.failed_in(&key.namespace);
        self.mounts.configs.insert((kind, key), entries);
        waiting.into_iter().for_each(|pod| self.update_queue(&Writer::Pod(pod), now));
    }

    /// Applies a deleted ConfigMap or Secret. A pod that has started keeps its files.
    pub(crate) fn forget_config(&mut self, kind: ConfigKind, key: &Key) {
        self.mounts.configs.remove(&(kind, key.clone()));
    }

    /// Checks all pods that wait for their volumes.
    pub(super) fn update_queue_of_waiting(&mut self, now: Timestamp) {
        let waiting = self.pods.iter().filter(|(_, record)| record.lifecycle.is_waiting_for_volumes());
        for pod in waiting.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.update_queue(&Writer::Pod(pod), now);
        }
    }
}
