//! State of a controller that exists in the process only.
#![expect(clippy::disallowed_types, reason = "this is the one way in which controllers share state")]

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// In-process state of a controller, shared by its enqueue functions and reconciles.
///
/// It is empty when a process starts. The documentation of each use states what a restart or failover loses and why
/// that is safe.
pub struct Memory<T>(Arc<Mutex<States<T>>>);

struct States<T> {
    now: T,
    /// As it was in a new process.
    initial: T,
}

impl<T: Clone> Memory<T> {
    /// State with this initial value.
    pub fn new(initial: T) -> Self {
        Self(Arc::new(Mutex::new(States { now: initial.clone(), initial })))
    }
}

impl<T: Clone + Send + 'static> Memory<T> {
    /// Reads or changes the state under its lock. `f` must be fast and must not call `with` on the same state. In a dry
    /// run, `f` gets a copy; see [`ScratchMemory`].
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if !IN_USE.with_borrow(Option::is_some) {
            return f(&mut self.lock().now);
        }
        // Taken out while `f` runs, which may use other states.
        let address = Arc::as_ptr(&self.0).addr();
        let (copied, is_new_process) = IN_USE.with_borrow_mut(|copies| {
            let copies = copies.as_mut();
            copies.map_or((None, false), |copies| (copies.states.remove(&address), copies.is_new_process))
        });
        let mut copy = copied.and_then(|copy| copy.downcast::<T>().ok());
        let mut state = copy.take().unwrap_or_else(|| {
            let states = self.lock();
            Box::new(if is_new_process { states.initial.clone() } else { states.now.clone() })
        });
        let result = f(&mut state);
        IN_USE.with_borrow_mut(|copies| copies.as_mut().map(|copies| copies.states.insert(address, state)));
        result
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, States<T>> {
        // A reconcile that panics is retried; the state it left half changed is as good as any other.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Memory<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone + Default> Default for Memory<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[derive(Default)]
struct Copies {
    states: BTreeMap<usize, Box<dyn Any + Send>>,
    is_new_process: bool,
}

thread_local! {
    /// The copies of the dry run that this thread is in, if it is in one.
    static IN_USE: RefCell<Option<Copies>> = const { RefCell::new(None) };
}

/// The memory of a dry run: every [`Memory`] that is used inside [`ScratchMemory::scope`] is copied on first use, and
/// only the copy is changed. So an enqueue function or a reconcile can be run to see what it would do, without
/// an effect on the running controller.
#[derive(Default)]
pub struct ScratchMemory(Option<Copies>);

impl ScratchMemory {
    /// Every memory is as in a process that has just started.
    #[must_use]
    pub fn of_new_process() -> Self {
        Self(Some(Copies { is_new_process: true, ..Copies::default() }))
    }

    /// Runs `f` on copies of all memories. The copies live as long as this value; scopes cannot be nested.
    pub fn scope<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let outer = IN_USE.replace(Some(self.0.take().unwrap_or_default()));
        // Also after a panic, which the caller contains: other tasks of this thread use the real memory.
        let _restore = Restore { outer, copies: &mut self.0 };
        f()
    }
}

struct Restore<'a> {
    outer: Option<Copies>,
    copies: &'a mut Option<Copies>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        *self.copies = IN_USE.replace(self.outer.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dry_run_of_a_new_process_starts_with_the_initial_memory() {
        let numbers = Memory::new(vec![1]);
        numbers.with(|numbers| numbers.push(2));
        let mut scratch = ScratchMemory::of_new_process();
        scratch.scope(|| numbers.with(|numbers| numbers.push(3)));
        scratch.scope(|| numbers.with(|numbers| assert_eq!(*numbers, [1, 3])));
        numbers.with(|numbers| assert_eq!(*numbers, [1, 2]));
    }

    #[test]
    fn dry_run_changes_a_copy_of_the_memory() {
        let (numbers, names) = (Memory::new(vec![1]), Memory::new(String::from("a")));
        let mut scratch = ScratchMemory::default();
        scratch.scope(|| {
            numbers.with(|numbers| numbers.push(2));
            names.with(|names| {
                names.push('b');
                numbers.with(|numbers| numbers.push(names.len()));
            });
        });
        numbers.with(|numbers| assert_eq!(*numbers, [1], "the real memory is as it was"));
        scratch.scope(|| {
            numbers.with(|numbers| assert_eq!(*numbers, [1, 2, 2], "later steps see earlier changes"));
            names.with(|names| assert_eq!(names, "ab"));
        });
        names.with(|names| assert_eq!(names, "a"));
    }

    #[test]
    fn panic_in_a_dry_run_ends_its_scope() {
        let memory = Memory::new(0);
        let mut scratch = ScratchMemory::default();
        let run =
            std::panic::AssertUnwindSafe(|| scratch.scope(|| memory.with(|_| panic!("over one object"))));
        assert!(std::panic::catch_unwind(run).is_err());
        memory.with(|number| *number += 1);
        memory.with(|number| assert_eq!(*number, 1, "the real memory is used again"));
    }
}
