//! What a controller remembers in the process and nowhere else.
#![expect(clippy::disallowed_types, reason = "this is the one way in which controllers share state")]

use std::sync::{Arc, Mutex, PoisonError};

/// A controller's memory, shared by its wake functions, decisions and scripts.
///
/// It begins empty in every process: whoever declares one says in its documentation what is lost with
/// the process and why that is safe.
pub struct Memory<T>(Arc<Mutex<T>>);

impl<T> Memory<T> {
    /// A memory that begins with this.
    pub fn new(first: T) -> Self {
        Self(Arc::new(Mutex::new(first)))
    }

    /// Looks at it and changes it. Nobody else does meanwhile, so it must be quick and must not call
    /// itself.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // A turn that panicked is contained and tried again; its half-made change is like any other state.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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
