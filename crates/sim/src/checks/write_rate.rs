//! No hot loops: the writes of one controller to one object are bounded.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::uid;
use crate::recorder::ObservedWrite;

/// More than this number of writes of one controller to one object within this time is a violation.
const WRITES_MAX: usize = 60;
const WITHIN: Duration = Duration::from_secs(10);

/// Counts recent writes.
#[derive(Default)]
pub struct WriteRate {
    /// By controller, request and UID. The UID matters: a scheduler that has not observed a taint binds one
    /// new pod after another to the tainted node.
    recent: BTreeMap<(String, String, String), VecDeque<Duration>>,
}

impl Checker for WriteRate {
    fn name(&self) -> &'static str {
        "write rate"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if !write.by_manager() || write.request.name.is_empty() {
            return Ok(());
        }
        let object_uid = write.before.as_deref().map_or_else(String::new, |before| uid(before).to_owned());
        let recent =
            self.recent.entry((write.component.clone(), write.request.to_string(), object_uid)).or_default();
        recent.push_back(write.at);
        while recent.front().is_some_and(|first| write.at - *first > WITHIN) {
            recent.pop_front();
        }
        if recent.len() > WRITES_MAX { Err(format!("{} writes in {WITHIN:?}", recent.len())) } else { Ok(()) }
    }
}
