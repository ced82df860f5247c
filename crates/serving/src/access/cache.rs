//! A bounded cache with expiry.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A bounded map whose entries expire.
pub(super) struct Expiring<K, V>(Mutex<LruCache<K, (V, Instant)>>);

impl<K: Hash + Eq, V: Clone> Expiring<K, V> {
    pub(super) fn new(entries_max: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::new(entries_max)))
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut entries = self.0.lock();
        let (value, expires_at) = entries.get(key)?;
        if Instant::now() < *expires_at {
            return Some(value.clone());
        }
        entries.pop(key);
        None
    }

    /// Caches the value for `lifetime`; not at all if that is zero.
    pub(super) fn put(&self, key: K, value: V, lifetime: Duration) {
        if !lifetime.is_zero() {
            self.0.lock().put(key, (value, Instant::now() + lifetime));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_expire_and_the_least_recently_used_is_evicted() {
        let cache = Expiring::new(NonZeroUsize::new(2).unwrap());
        cache.put("a", 1, Duration::from_secs(10));
        cache.put("b", 2, Duration::from_secs(20));
        cache.put("never", 3, Duration::ZERO);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"never")), (Some(1), Some(2), None));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (None, Some(2)));
        cache.put("c", 3, Duration::from_secs(10));
        cache.put("d", 4, Duration::from_secs(10));
        assert_eq!((cache.get(&"b"), cache.get(&"d")), (None, Some(4)));
    }
}
