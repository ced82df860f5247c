//! What the binder of each process has learned about volumes from the API server, not from its cache, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::recorder::{LiveRead, ObservedWrite, text};

const COMPONENT: &str = "persistent-volume-binder";

/// The live reads of volumes by binders, and their own writes: the response contains the volume.
#[derive(Default)]
pub(super) struct LiveVolumes {
    /// By process instance and name of the volume.
    states: BTreeMap<(u32, String), Vec<LiveState>>,
}

/// A volume as the API server returned it.
struct LiveState {
    at: Duration,
    /// The volume, if there was one.
    found: Option<Value>,
}

/// Whether a binder sent a write.
pub(super) fn is_by_binder(write: &ObservedWrite) -> bool {
    write.by_manager() && write.component == COMPONENT
}

impl LiveVolumes {
    /// Records a live read if it is one of a volume by a binder.
    pub(super) fn record(&mut self, read: &LiveRead<'_>) {
        if read.component == COMPONENT && read.request.resource == "persistentvolumes" {
            let key = (read.process_instance, read.request.name.clone());
            let state = LiveState { at: read.at, found: read.found.cloned() };
            self.states.entry(key).or_default().push(state);
        }
    }

    /// Records a write if it is one of a volume by a binder.
    pub(super) fn record_write(&mut self, write: &ObservedWrite) {
        if is_by_binder(write) && write.succeeded() && write.request.resource == "persistentvolumes" {
            let key = (write.process_instance, write.request.name.clone());
            let state = LiveState { at: write.at, found: write.after.as_deref().cloned() };
            self.states.entry(key).or_default().push(state);
        }
    }

    /// What the process of a write last read or wrote of a volume before it sent the write: `None` if it read nothing, and
    /// `Some(None)` if there was no volume.
    pub(super) fn read_before(&self, write: &ObservedWrite, volume: &str) -> Option<Option<&Value>> {
        let states = self.states.get(&(write.process_instance, volume.to_owned()))?;
        let last = states.iter().rfind(|state| state.at <= write.send_context.at)?;
        Some(last.found.as_ref())
    }

    /// The volume with this directory that a binder has read last.
    pub(super) fn last_with_directory(&self, path: &str) -> Option<&Value> {
        let states = self.states.values().flatten();
        let found = states.filter_map(|state| Some((state.at, state.found.as_ref()?)));
        let with_path = found.filter(|(_, volume)| text(volume, "/spec/hostPath/path") == path);
        with_path.max_by_key(|(at, _)| *at).map(|(_, volume)| volume)
    }
}
