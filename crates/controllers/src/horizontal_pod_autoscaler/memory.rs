//! What the controller remembers between reconciles: selectors of all autoscalers, recommendations and scale events.
//!
//! A restart or failover loses it. Selectors are stored again by the first reconcile of each autoscaler; the size of
//! the target at that time counts as a recommendation and holds back scaling for one window; policies see no earlier
//! changes. Parity: the original loses the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{Key, Pod, TextSelector};

use super::normalize::History;

/// The memory of the controller.
#[derive(Clone, Default)]
pub(super) struct AutoscalerMemory {
    /// The selectors of registered autoscalers; one that matches nothing until a reconcile knows better.
    selectors: BTreeMap<Key, TextSelector>,
    /// By key and not by UID, as in the original: an autoscaler that is created again within a period inherits them.
    histories: BTreeMap<Key, History>,
}

impl AutoscalerMemory {
    /// Registers an autoscaler, if it is unknown.
    pub(super) fn register(&mut self, key: &Key) {
        self.selectors.entry(key.clone()).or_insert_with(TextSelector::nothing);
    }

    /// Forgets the selector of a deleted autoscaler, so that it makes no other ambiguous.
    pub(super) fn deregister(&mut self, key: &Key) {
        self.selectors.remove(key);
    }

    /// The number of registered autoscalers.
    pub(super) fn registered(&self) -> usize {
        self.selectors.len()
    }

    /// Stores the selector of a registered autoscaler; false if it is not registered.
    pub(super) fn store_selector(&mut self, key: &Key, selector: &TextSelector) -> bool {
        let known = self.selectors.get_mut(key);
        known.map(|known| *known = selector.clone()).is_some()
    }

    /// The autoscalers of the same namespace that select one of the pods.
    pub(super) fn selecting(&self, namespace: &str, pods: &[Arc<Pod>]) -> Vec<&Key> {
        // Pods of a StatefulSet have no labels in common, so a search among those found before would be quadratic.
        let mut labels: Vec<_> = pods.iter().map(|pod| &pod.meta.labels).collect();
        labels.sort_by(|one, other| one.iter().cmp(other.iter()));
        labels.dedup();
        let of_namespace = self.selectors.iter().filter(|(key, _)| key.namespace == namespace);
        let selecting =
            of_namespace.filter(|(_, selector)| labels.iter().any(|labels| selector.matches(labels)));
        selecting.map(|(key, _)| key).collect()
    }

    /// The history of an autoscaler.
    pub(super) fn history(&mut self, key: &Key) -> &mut History {
        self.histories.entry(key.clone()).or_default()
    }

    /// Forgets the history of an autoscaler that is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.histories.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cpu_time::cpu_seconds;

    #[test]
    fn autoscalers_of_many_different_pods_are_found_once() {
        let pod = |n: usize| -> Arc<Pod> {
            let labels = json!({"app": "web", "statefulset.kubernetes.io/pod-name": format!("web-{n}")});
            let metadata =
                json!({"name": format!("web-{n}"), "namespace": "a", "uid": "u", "labels": labels});
            Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        let (mut memory, key) = (AutoscalerMemory::default(), Key::namespaced("a", "h"));
        memory.register(&key);
        memory.register(&Key::namespaced("b", "h"));
        memory.register(&Key::namespaced("a", "other"));
        memory.store_selector(&key, &TextSelector::parse("app=web").unwrap());
        let mut pods: Vec<_> = (0..60_000).map(pod).collect();
        pods.push(pods[0].clone());
        let began = cpu_seconds();
        assert_eq!(memory.selecting("a", &pods), [&key]);
        let seconds = cpu_seconds() - began;
        assert!(seconds < 5.0, "{seconds} s of CPU time");
    }
}
