//! ReplicationControllers. Their status is that of ReplicaSets without `terminatingReplicas`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::protobuf::FullMessage;
use crate::{Kind, Labels, PodTemplate, ReplicaSetStatus, Resource};

spec_status_kind! {
    /// A ReplicationController.
    ReplicationController, ReplicationControllerSpec, ReplicaSetStatus,
    Resource::built_in("", "ReplicationController"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> = LazyLock::new(|| FullMessage::of(&ReplicationController::RESOURCE, ""));

/// The spec of a ReplicationController.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicationControllerSpec {
    /// The desired number of pods.
    pub replicas: i32,
    /// How long a pod must be ready to count as available.
    pub min_ready_seconds: i32,
    /// The labels that select its pods; empty selects none.
    pub selector: Labels,
    /// The pod template.
    #[serde(deserialize_with = "null_is_default")]
    pub template: PodTemplate,
}

/// The API's defaults.
impl Default for ReplicationControllerSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            min_ready_seconds: 0,
            selector: Labels::default(),
            template: PodTemplate::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replication_controller_is_decoded() {
        let controller: ReplicationController = serde_json::from_str(
            r#"{"metadata":{"name":"web","namespace":"a"},
                "spec":{"replicas":2,"selector":{"app":"web"},"template":{"metadata":{"labels":{"app":"web"}}}},
                "status":{"replicas":2,"readyReplicas":1}}"#,
        )
        .unwrap();
        assert!(controller.spec.selector.is_subset_of(controller.spec.template.labels()));
        assert_eq!(controller.status.ready_replicas, 1);
        let bare: ReplicationController =
            serde_json::from_str(r#"{"metadata":{"name":"r"},"spec":{"template":null}}"#).unwrap();
        assert_eq!((bare.spec.replicas, bare.spec.template.raw()), (1, "{}"));
    }
}
