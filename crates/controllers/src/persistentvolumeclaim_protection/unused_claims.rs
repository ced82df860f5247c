//! What a live list of pods has shown about other claims of its namespace, so that they need no list of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{Key, PersistentVolumeClaim, ResourceVersion};

/// How long a claim may be judged by a list that was made for another one: enough for some hundred claims of a namespace
/// that are deleted together, at the default rate limit of the client.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Claims that no pod used when the pods of their namespace were last listed, each with the resourceVersion that its
/// cache had before the list.
///
/// Only the answer "unused" is kept, and only for the same state of the claim. If that has a deletionTimestamp, then
/// the list was made after the deletion, and no kubelet starts a pod that came later. If it has none, then a pod that
/// came later is in the cache or enqueues the claim when it is. The process forgets this when it restarts, which costs
/// another list.
#[derive(Clone, Default)]
pub(super) struct UnusedClaims(BTreeMap<Key, (ResourceVersion, Duration)>);

impl UnusedClaims {
    /// Remembers claims that a list begun at this monotonic time has shown to be unused.
    pub(super) fn remember<'a>(
        &mut self,
        claims: impl Iterator<Item = &'a PersistentVolumeClaim>,
        listed_at: Duration,
    ) {
        self.0.retain(|_, (_, listed)| is_recent(*listed, listed_at));
        for claim in claims {
            let version = claim.meta.resource_version.clone();
            self.0.insert(claim.meta.key.clone(), (version, listed_at));
        }
    }

    /// Whether a recent list has shown that the claim in this state is unused. The answer is given once.
    pub(super) fn take(&mut self, claim: &PersistentVolumeClaim, now: Duration) -> bool {
        let known = self.0.remove(&claim.meta.key);
        known
            .is_some_and(|(version, listed)| version == claim.meta.resource_version && is_recent(listed, now))
    }
}

fn is_recent(listed: Duration, now: Duration) -> bool {
    now.saturating_sub(listed) <= AGE_MAX
}
