//! Workloads: the templates from which PodGroups are created.

use serde::Deserialize;
use serde_json::Value;

use crate::meta::null_is_default;
use crate::{ArcStr, InternedStr, Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// A Workload. API servers serve it only with a feature gate and `--runtime-config`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Workload {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.controllerRef`: the object whose pods it describes.
    pub controller_ref: Option<WorkloadControllerRef>,
    /// `spec.podGroupTemplates`, as the server sent them: a PodGroup copies all of their fields.
    pub pod_group_templates: Box<[Value]>,
}

/// The object whose pods a Workload describes, in the namespace of the Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadControllerRef {
    /// The API group.
    pub api_group: InternedStr,
    /// The kind.
    pub kind: InternedStr,
    /// The name.
    pub name: ArcStr,
}

impl Object for Workload {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Workload {
    const RESOURCE: Resource = Resource::built_in("scheduling.k8s.io", "Workload");
    const PROJECTION: Projection = Projection::WHOLE.optional();
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    controller_ref: Option<WorkloadControllerRef>,
    #[serde(deserialize_with = "null_is_default")]
    pod_group_templates: Box<[Value]>,
}

impl From<Wire> for Workload {
    fn from(wire: Wire) -> Self {
        Self {
            meta: wire.metadata.into(),
            controller_ref: wire.spec.controller_ref,
            pod_group_templates: wire.spec.pod_group_templates,
        }
    }
}
