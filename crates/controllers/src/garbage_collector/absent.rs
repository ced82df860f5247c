//! Remembers owners that are known not to exist, so that a thousand orphans of one owner cost one question.

use std::collections::BTreeMap;

use super::identity::Identity;

/// How many are remembered; those that nobody asked about for the longest time go first.
const ENTRIES_MAX: usize = 500;

/// Identities that do not exist. A uid is used once, so what does not exist stays that way.
#[derive(Default)]
pub(crate) struct Absent {
    /// When each was last of use, counted in uses.
    used_at: BTreeMap<Identity, u64>,
    by_use: BTreeMap<u64, Identity>,
    uses: u64,
}

impl Absent {
    /// Remembers an identity.
    pub(crate) fn add(&mut self, identity: &Identity) {
        self.touch(identity);
        if self.used_at.len() > ENTRIES_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used_at.remove(&oldest);
        }
    }

    /// Whether an identity is known not to exist. Asking keeps it in memory.
    pub(crate) fn has(&mut self, identity: &Identity) -> bool {
        let known = self.used_at.contains_key(identity);
        if known {
            self.touch(identity);
        }
        known
    }

    fn touch(&mut self, identity: &Identity) {
        self.uses += 1;
        if let Some(before) = self.used_at.insert(identity.clone(), self.uses) {
            self.by_use.remove(&before);
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
            line: TypeMeta::new("v1", "Pod"),
            key: Key::namespaced(namespace, "owner"),
            uid: Uid::from(uid),
        }
    }

    /// Proves GC-120.
    #[test]
    fn five_hundred_identities_are_kept_and_those_not_asked_about_go_first() {
        let mut absent = Absent::default();
        let nth = |n: usize| identity("ns", &n.to_string());
        (0..500).for_each(|n| absent.add(&nth(n)));
        assert!(absent.has(&nth(0)), "the five hundredth still fits, and this question refreshes the first");
        absent.add(&nth(500));
        assert!(absent.has(&nth(0)));
        assert!(!absent.has(&nth(1)), "the one that was of use longest ago has made room");
        assert!(absent.has(&nth(2)));
        absent.add(&nth(2));
        assert!((3..=500).all(|n| absent.has(&nth(n))), "adding again takes no more room");
        assert!(!absent.has(&identity("elsewhere", "3")), "the namespace belongs to the identity");
        assert_eq!(absent.used_at.len(), absent.by_use.len());
    }
}
