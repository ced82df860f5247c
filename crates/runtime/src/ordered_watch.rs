//! A value that many tasks can wait for; waiters resume in the order in which they started waiting.
//!
//! `tokio::sync::watch` is not suitable: it distributes waiters over shards at random, from a source that no
//! seed reaches, so two runs of one seed would resume them in different orders.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A value that can be waited for. Clones share it.
#[derive(Clone, Debug)]
pub struct OrderedWatch<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> OrderedWatch<T> {
    /// Creates it with this value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: Mutex::new(value), changed: Notify::new() }))
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> T {
        *self.0.value.lock()
    }

    /// Replaces the value by a function of it and notifies all waiters.
    pub fn modify(&self, change: impl FnOnce(T) -> T) {
        {
            let mut value = self.0.value.lock();
            *value = change(*value);
        }
        self.0.changed.notify_waiters();
    }

    /// Replaces the value and notifies all waiters.
    pub fn set(&self, value: T) {
        self.modify(|_| value);
    }

    /// Returns when the predicate holds for the value.
    pub async fn wait_for(&self, predicate: impl Fn(T) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            // A change after this line notifies this waiter, so no change is missed.
            changed.as_mut().enable();
            if predicate(self.get()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiters_resume_in_the_order_in_which_they_started_waiting() {
        for _ in 0..20 {
            let (watched, order) = (OrderedWatch::new(0), Arc::new(Mutex::new(Vec::new())));
            let waiting: Vec<_> = (0..30)
                .map(|number| {
                    let (watched, order) = (watched.clone(), order.clone());
                    tokio::spawn(async move {
                        watched.wait_for(|value| value == 2).await;
                        order.lock().push(number);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            watched.set(1);
            tokio::task::yield_now().await;
            assert!(order.lock().is_empty());
            watched.modify(|value| value + 1);
            for waiting in waiting {
                waiting.await.unwrap();
            }
            assert_eq!(*order.lock(), (0..30).collect::<Vec<_>>());
            watched.wait_for(|value| value == 2).await;
        }
    }
}
