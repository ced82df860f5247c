//! The part of a pod spec that all pods of a template share.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::placement::WireAffinity;
use crate::{ArcStr, InternedStr, Toleration};

/// The fields of a pod spec that come from the template and that a controller reads. A field that differs between pods
/// of one template must not be here, because then they could not share the allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSpec {
    /// Its containers.
    pub containers: Box<[Container]>,
    /// Sidecars: init containers with `restartPolicy: Always`.
    pub sidecars: Box<[Container]>,
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: InternedStr,
    /// `tolerations`.
    pub tolerations: Box<[Toleration]>,
    /// `subdomain`.
    pub subdomain: InternedStr,
    /// `hostNetwork`.
    pub host_network: bool,
    /// `terminationGracePeriodSeconds`.
    pub termination_grace_period_seconds: Option<i64>,
    /// `priority`.
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

/// The part of a pod spec that differs between pods of a template.
pub(super) struct Own {
    pub(super) node_name: InternedStr,
    pub(super) hostname: ArcStr,
    pub(super) affinity_node: Option<InternedStr>,
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
    /// Separates the fields of the pod from those of its template.
    pub(super) fn split(self) -> (Own, PodSpec) {
        let claim = |volume: WireVolume| {
            Some((InternedStr::from(&*volume.name), volume.persistent_volume_claim?.claim_name))
        };
        let own = Own {
            node_name: self.node_name,
            hostname: self.hostname,
            affinity_node: self.affinity.and_then(named_node),
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

/// The only node name in the first `metadata.name In` requirement of the required node affinity.
fn named_node(affinity: WireAffinity) -> Option<InternedStr> {
    let terms = affinity.required()?;
    match terms.iter().find_map(|term| term.named_nodes())? {
        [name] => Some(name.clone()),
        _ => None,
    }
}
