//! The part of a pod's spec that all pods of one template have in common.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::placement::WireAffinity;
use crate::{ArcStr, InternedStr, Toleration};

/// What a pod's template says, as far as some controller reads it. Nothing that differs between pods
/// of one template may stand here, or they would share nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSpec {
    /// Its containers.
    pub containers: Box<[Container]>,
    /// Init containers that run beside the containers (`restartPolicy: Always`).
    pub sidecars: Box<[Container]>,
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: InternedStr,
    /// What it tolerates.
    pub tolerations: Box<[Toleration]>,
    /// The domain under which its hostname can be found.
    pub subdomain: InternedStr,
    /// Whether it uses the node's network.
    pub host_network: bool,
    /// How long it may take to end.
    pub termination_grace_period_seconds: Option<i64>,
    /// How important it is, as a number.
    pub priority: Option<i32>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its name.
    pub name: InternedStr,
    /// The ports it declares.
    #[serde(deserialize_with = "null_is_empty")]
    pub ports: Box<[ContainerPort]>,
}

/// A port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Its name, if it has one.
    pub name: InternedStr,
    /// Its number.
    pub container_port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: InternedStr,
}

impl Default for ContainerPort {
    fn default() -> Self {
        Self { name: InternedStr::default(), container_port: 0, protocol: "TCP".into() }
    }
}

/// The part of a spec that is a pod's own.
pub(super) struct Own {
    pub(super) node_name: InternedStr,
    pub(super) hostname: ArcStr,
    pub(super) wanted_node: Option<InternedStr>,
    pub(super) claims: Vec<(InternedStr, ArcStr)>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireSpec {
    #[serde(deserialize_with = "null_is_empty")]
    containers: Box<[Container]>,
    #[serde(deserialize_with = "null_is_empty")]
    init_containers: Box<[WireInitContainer]>,
    restart_policy: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    tolerations: Box<[Toleration]>,
    subdomain: InternedStr,
    #[serde(deserialize_with = "null_is_default")]
    host_network: bool,
    termination_grace_period_seconds: Option<i64>,
    priority: Option<i32>,
    node_name: InternedStr,
    hostname: ArcStr,
    affinity: Option<WireAffinity>,
    #[serde(deserialize_with = "null_is_empty")]
    volumes: Box<[WireVolume]>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireInitContainer {
    name: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    ports: Box<[ContainerPort]>,
    restart_policy: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: ArcStr,
    persistent_volume_claim: Option<WireClaim>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    claim_name: ArcStr,
}

impl WireSpec {
    /// Parts what the template says from what is the pod's own.
    pub(super) fn split(self) -> (Own, PodSpec) {
        let claim = |volume: WireVolume| {
            Some((InternedStr::from(&*volume.name), volume.persistent_volume_claim?.claim_name))
        };
        let own = Own {
            node_name: self.node_name,
            hostname: self.hostname,
            wanted_node: self.affinity.and_then(named_node),
            claims: self.volumes.into_iter().filter_map(claim).collect(),
        };
        let sidecars = self.init_containers.into_iter().filter(|init| init.restart_policy == "Always");
        let spec = PodSpec {
            containers: self.containers,
            sidecars: sidecars.map(|init| Container { name: init.name, ports: init.ports }).collect(),
            restart_policy: self.restart_policy,
            tolerations: self.tolerations,
            subdomain: self.subdomain,
            host_network: self.host_network,
            termination_grace_period_seconds: self.termination_grace_period_seconds,
            priority: self.priority,
        };
        (own, spec)
    }
}

/// The one node that the first `metadata.name In` requirement of the required affinity names.
fn named_node(affinity: WireAffinity) -> Option<InternedStr> {
    let terms = affinity.required()?;
    match terms.iter().find_map(|term| term.named_nodes())? {
        [name] => Some(name.clone()),
        _ => None,
    }
}
