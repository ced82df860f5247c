//! Proof that earlier processes on this machine have ended, so that the Lease of one that crashed need not expire first.
//!
//! The proof is a lock that the kernel grants to one process at a time and takes back when that process has ended, however it
//! ended. The process that has the lock writes its identity behind it, after those that it finds there. A process that gets the lock
//! therefore knows that every process with one of these identities has ended, and a Lease that names one of them has no
//! writer any more. It knows nothing about any other holder: that Lease expires as usual.
//!
//! The identities are good for one boot of one machine; the implementation in the manager sees to that.

use std::collections::BTreeSet;

use super::elector::MonotonicTime;

/// A lock on this machine that one process at a time can have, and that ends with its process.
pub trait ProcessLock: Send + Sync {
    /// Takes the lock, unless this process has it already, and records this identity behind it. Returns the identities of
    /// processes that had the lock before and have ended; `None` while another process has the lock.
    ///
    /// # Errors
    /// Why the lock cannot be used now; it is tried again.
    fn take(&self, identity: &str) -> Result<Option<Vec<String>>, String>;
}

/// Processes on this machine that are known to have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedProcesses {
    identities: BTreeSet<String>,
    /// When this became known: they wrote nothing after it.
    known_at: MonotonicTime,
}

impl EndedProcesses {
    /// Processes that are known to have ended by now.
    pub(super) fn new(identities: Vec<String>, known_at: MonotonicTime) -> Self {
        Self { identities: identities.into_iter().collect(), known_at }
    }

    /// When the process with this identity was first known to have ended.
    pub(super) fn known_at(&self, identity: &str) -> Option<MonotonicTime> {
        (!identity.is_empty() && self.identities.contains(identity)).then_some(self.known_at)
    }
}
