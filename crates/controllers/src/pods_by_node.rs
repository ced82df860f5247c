//! Index of pods by node.

use keleustes_objects::Pod;
use keleustes_plan::Index;

/// Pods by `spec.nodeName`.
pub(crate) const BY_NODE: Index<Pod> = Index {
    name: "spec.nodeName",
    values: |pod, emit| {
        if !pod.node_name.is_empty() {
            emit(pod.node_name.clone());
        }
    },
};
