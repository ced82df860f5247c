//! A value that many can wait for; those who wait go on in the order in which they came.
//!
//! `tokio::sync::watch` was looked at and does not serve: it deals its waiters out over shards by chance of its own, so
//! two runs of one seed would wake them in two orders.

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
    /// A value to begin with.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: Mutex::new(value), changed: Notify::new() }))
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> T {
        *self.0.value.lock()
    }

    /// Makes another value of it.
    pub fn modify(&self, change: impl FnOnce(T) -> T) {
        {
            let mut value = self.0.value.lock();
            *value = change(*value);
        }
        self.0.changed.notify_waiters();
    }

    /// Puts another value in its place.
    pub fn set(&self, value: T) {
        self.modify(|_| value);
    }

    /// Returns when the value fits.
    pub async fn wait_for(&self, fits: impl Fn(T) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            // Whoever changes it after this line wakes us, so no change is missed.
            changed.as_mut().enable();
            if fits(self.get()) {
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
    async fn those_who_wait_go_on_in_the_order_in_which_they_came() {
        for _ in 0..20 {
            let (level, order) = (OrderedWatch::new(0), Arc::new(Mutex::new(Vec::new())));
            let waiting: Vec<_> = (0..30)
                .map(|number| {
                    let (level, order) = (level.clone(), order.clone());
                    tokio::spawn(async move {
                        level.wait_for(|value| value == 2).await;
                        order.lock().push(number);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            level.set(1);
            tokio::task::yield_now().await;
            assert!(order.lock().is_empty());
            level.modify(|value| value + 1);
            for waiting in waiting {
                waiting.await.unwrap();
            }
            assert_eq!(*order.lock(), (0..30).collect::<Vec<_>>());
            level.wait_for(|value| value == 2).await;
        }
    }
}
