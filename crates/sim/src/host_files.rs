//! The host of the managers: directories of volumes, which exist in name only. Each removal is reported to the checkers of the
//! storm that runs on this thread.

use std::cell::RefCell;
use std::sync::Arc;

use keleustes_apiserver::ApiServer;
use keleustes_controllers::persistentvolume_binder::HostFiles;

use crate::recorder::Recorder;

thread_local! {
    /// The recorder and the API server of the storm on this thread.
    static STORM: RefCell<Option<(Arc<Recorder>, ApiServer)>> = const { RefCell::new(None) };
}

/// Reports the removals on this thread until it is dropped.
pub(crate) struct Observation(());

/// Reports the removals on this thread to the checkers of a storm.
pub(crate) fn observe(recorder: &Arc<Recorder>, server: &ApiServer) -> Observation {
    STORM.set(Some((recorder.clone(), server.clone())));
    Observation(())
}

impl Drop for Observation {
    fn drop(&mut self) {
        STORM.set(None);
    }
}

/// A host without files.
pub(crate) struct SimulatedHostFiles;

impl HostFiles for SimulatedHostFiles {
    fn create_directory(&self, _path: &str) -> Result<(), String> {
        Ok(())
    }

    fn remove_all(&self, path: &str) -> Result<(), String> {
        STORM.with_borrow(|storm| {
            if let Some((recorder, server)) = storm {
                recorder.on_removed_directory(server, path);
            }
        });
        Ok(())
    }

    fn new_uuid(&self) -> String {
        // Nothing is provisioned on the host in a storm.
        "00000000-0000-4000-8000-000000000000".to_owned()
    }
}
