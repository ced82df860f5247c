//! A node as the scheduler and its hollow node read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use keleustes_objects::protobuf::Message;
use keleustes_objects::{ArcStr, InternedStr, Object, ObjectMeta, Resource, Time};
use serde::{Deserialize, Serialize};

use super::{Requests, WireMeta, nullable};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub(crate) struct Node {
    pub(crate) meta: ObjectMeta,
    pub(crate) unschedulable: bool,
    pub(crate) taints: Box<[Taint]>,
    pub(crate) allocatable: Requests,
    /// Whether its `Ready` condition is `True`.
    pub(crate) is_ready: bool,
    /// `spec.podCIDR`.
    pub(crate) pod_cidr: InternedStr,
    /// Whether the annotation `failed` is `true`.
    pub(crate) is_failed: bool,
    /// The names in `status.volumesAttached`.
    pub(crate) volumes_attached: BTreeSet<ArcStr>,
}

/// One taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Taint {
    pub(crate) key: InternedStr,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) value: InternedStr,
    pub(crate) effect: Effect,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<Time>,
}

/// The effect of a taint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(crate) enum Effect {
    #[default]
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// A value of a later API version.
    #[serde(other)]
    Unknown,
}

impl Node {
    pub(crate) const RESOURCE: Resource = Resource::built_in("", "Node");
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &Node::RESOURCE,
        "
        spec { podCIDR taints unschedulable }
        status { allocatable conditions { status type } volumesAttached { name } }
        ",
    )
});

impl Object for Node {
    const MESSAGE: Option<&'static LazyLock<Message>> = Some(&MESSAGE);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    unschedulable: bool,
    #[serde(deserialize_with = "nullable")]
    taints: Box<[Taint]>,
    #[serde(rename = "podCIDR")]
    pod_cidr: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "nullable")]
    allocatable: BTreeMap<InternedStr, String>,
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    volumes_attached: Vec<AttachedVolume>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AttachedVolume {
    name: ArcStr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: InternedStr,
    status: InternedStr,
}

impl From<Wire> for Node {
    fn from(mut wire: Wire) -> Self {
        let conditions = &wire.status.conditions;
        Self {
            meta: wire.metadata.meta(),
            unschedulable: wire.spec.unschedulable,
            taints: wire.spec.taints,
            allocatable: Requests::read(&wire.status.allocatable),
            is_ready: conditions.iter().any(|one| &*one.r#type == "Ready" && &*one.status == "True"),
            pod_cidr: wire.spec.pod_cidr,
            is_failed: wire.metadata.annotations.failed,
            volumes_attached: wire.status.volumes_attached.into_iter().map(|volume| volume.name).collect(),
        }
    }
}
