//! A controller adopts an object only after a live read of the owner it adopts it for.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{controller_ref, describe, is_terminating, uid};
use crate::recorder::{LiveRead, ObservedWrite, text};

/// How old the live read may be when the adoption arrives: responses are delayed, and processes are paused.
const LIVE_READ_VALID_FOR: Duration = Duration::from_secs(180);

/// Remembers which owners were read live and were not terminating.
#[derive(Default)]
pub struct Adoption {
    /// By process instance, controller and UID of the owner.
    live_reads: BTreeMap<(u32, String, String), Duration>,
}

impl Checker for Adoption {
    fn name(&self) -> &'static str {
        "adoption"
    }

    fn on_live_read(&mut self, read: &LiveRead<'_>) {
        if let Some(found) = read.found.filter(|found| !is_terminating(found)) {
            let key = (read.process_instance, read.component.to_owned(), uid(found).to_owned());
            self.live_reads.insert(key, read.at);
        }
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if !write.by_manager() || !write.succeeded() || write.request.method != Method::PATCH {
            return Ok(());
        }
        let (Some(before), Some(after)) = (&write.before, &write.after) else { return Ok(()) };
        let Some(owner) = controller_ref(after).filter(|_| controller_ref(before).is_none()) else {
            return Ok(());
        };
        let key = (write.process_instance, write.component.clone(), text(owner, "/uid").to_owned());
        let is_recent = self.live_reads.get(&key).is_some_and(|at| write.at - *at < LIVE_READ_VALID_FOR);
        if is_recent {
            Ok(())
        } else {
            Err(format!("adopted {} without a live read of the owner", describe(after)))
        }
    }
}
