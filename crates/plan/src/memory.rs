//! State of a controller that exists in the process only.
#![expect(clippy::disallowed_types, reason = "this is the one way in which controllers share state")]

use std::sync::{Arc, Mutex, PoisonError};

/// In-process state of a controller, shared by its enqueue functions and reconciles.
///
/// It is empty when a process starts. The documentation of each use states what a restart or failover loses and why
/// that is safe.
pub struct Memory<T>(Arc<Mutex<T>>);

impl<T> Memory<T> {
    /// State with this initial value.
    pub fn new(initial: T) -> Self {
        Self(Arc::new(Mutex::new(initial)))
    }

    /// Reads or changes the state under its lock. `f` must be fast and must not call `with` on the same state.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // A reconcile that panics is retried; the state it left half changed is as good as any other.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Memory<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Default> Default for Memory<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
