//! Finds cached objects by a part of their name.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Explainer;
use crate::inspection::is_same;

/// An object that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundObject {
    /// The resource as kubectl takes it.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What a search found.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    /// The best matches: equal names first, then names that begin with the text, then names that contain it.
    pub found: Vec<FoundObject>,
    /// How many more there are.
    pub not_shown: usize,
}

impl Explainer {
    /// The cached objects whose names contain a text, at most `limit`.
    #[must_use]
    pub fn search(&self, text: &str, limit: usize) -> SearchResult {
        let text = text.to_lowercase();
        if text.is_empty() {
            return SearchResult::default();
        }
        // The best matches so far; the worst one is dropped when there are too many.
        let mut best: BTreeSet<(u8, FoundObject)> = BTreeSet::new();
        let mut not_shown = 0;
        let caches = self.caches.all();
        for (at, cache) in caches.iter().enumerate() {
            let resource = cache.entry().resource();
            // Several projections of a resource hold the same objects.
            if caches[..at].iter().any(|earlier| is_same(earlier.entry().resource(), resource)) {
                continue;
            }
            cache.for_each_meta(&mut |meta| {
                let Some(rank) = rank(&meta.key.name, &text) else { return };
                let found = FoundObject {
                    resource: resource.to_string(),
                    namespace: meta.key.namespace.to_string(),
                    name: meta.key.name.to_string(),
                };
                best.insert((rank, found));
                if best.len() > limit {
                    best.pop_last();
                    not_shown += 1;
                }
            });
        }
        SearchResult { found: best.into_iter().map(|(_, found)| found).collect(), not_shown }
    }
}

/// How well a name matches, the best first; `None` if it does not.
fn rank(name: &str, text: &str) -> Option<u8> {
    match name {
        _ if name == text => Some(0),
        _ if name.starts_with(text) => Some(1),
        _ if name.contains(text) => Some(2),
        _ => None,
    }
}
