//! LRU cache of owners that do not exist, so that a thousand dependents of one deleted owner cost one live
//! read. Parity: absentOwnerCache.

use std::collections::BTreeMap;

use super::identity::Identity;

/// Capacity; the least recently used entry is evicted first.
const ENTRIES_MAX: usize = 500;

/// Identities that do not exist. UIDs are never reused, so an entry never becomes wrong.
#[derive(Clone, Default)]
pub(crate) struct AbsentOwnerCache {
    /// The value of `uses` at each identity's last use.
    used_at: BTreeMap<Identity, u64>,
    by_use: BTreeMap<u64, Identity>,
    uses: u64,
}

impl AbsentOwnerCache {
    /// Adds an identity.
    pub(crate) fn add(&mut self, identity: &Identity) {
        self.touch(identity);
        if self.used_at.len() > ENTRIES_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used_at.remove(&oldest);
        }
    }

    /// Whether an identity is known not to exist. A lookup counts as a use.
    pub(crate) fn has(&mut self, identity: &Identity) -> bool {
        let known = self.used_at.contains_key(identity);
        if known {
            self.touch(identity);
        }
        known
    }

    fn touch(&mut self, identity: &Identity) {
        self.uses += 1;
        if let Some(last_use) = self.used_at.insert(identity.clone(), self.uses) {
            self.by_use.remove(&last_use);
        }
        self.by_use.insert(self.uses, identity.clone());
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{Key, TypeMeta, Uid};

    use super::*;

    fn identity(namespace: &str, uid: &str) -> Identity {
        Identity {
            type_meta: TypeMeta::new("v1", "Pod"),
            key: Key::namespaced(namespace, "owner"),
            uid: Uid::from(uid),
        }
    }

    /// Proves GC-120.
    #[test]
    fn absent_owner_cache_keeps_five_hundred_identities_and_evicts_the_least_recently_used() {
        let mut absent = AbsentOwnerCache::default();
        let nth = |n: usize| identity("ns", &n.to_string());
        (0..500).for_each(|n| absent.add(&nth(n)));
        assert!(
            absent.has(&nth(0)),
            "500 entries fit, and this lookup makes the first one most recently used"
        );
        absent.add(&nth(500));
        assert!(absent.has(&nth(0)));
        assert!(!absent.has(&nth(1)), "the least recently used entry is evicted");
        assert!(absent.has(&nth(2)));
        absent.add(&nth(2));
        assert!((3..=500).all(|n| absent.has(&nth(n))), "adding an entry twice takes one place");
        assert!(!absent.has(&identity("elsewhere", "3")), "the namespace is part of the identity");
        assert_eq!(absent.used_at.len(), absent.by_use.len());
    }
}
