//! Services: selector, ports and addresses.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::{ArcStr, IntOrString, InternedStr, Kind, Labels, Object, ObjectMeta, Resource, WireMeta};

/// A Service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Service {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `selector`; `None` if its endpoints are managed elsewhere. An empty selector differs from none and selects
    /// everything, although the server never returns one.
    pub selector: Option<Labels>,
    /// Its ports.
    pub ports: Box<[ServicePort]>,
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    pub service_type: InternedStr,
    /// `clusterIP`: an IP address, `None`, or empty.
    pub cluster_ip: ArcStr,
    /// `ipFamilies`, the primary one first.
    pub ip_families: Box<[InternedStr]>,
    /// Whether pods that are not ready are published.
    pub publish_not_ready_addresses: bool,
    /// `trafficDistribution`.
    pub traffic_distribution: Option<InternedStr>,
    /// `allocateLoadBalancerNodePorts`.
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// Annotation `service.kubernetes.io/topology-aware-hints`.
    pub topology_aware_hints: Option<InternedStr>,
    /// Annotation `service.kubernetes.io/topology-mode`.
    pub topology_mode: Option<InternedStr>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name; a single port may have none.
    pub name: InternedStr,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: InternedStr,
    /// The application protocol.
    pub app_protocol: Option<InternedStr>,
    /// The port that clients use.
    pub port: i32,
    /// The number or name of the pods' port; absent or zero means `port`.
    pub target_port: Option<IntOrString>,
    /// The port on every node; zero for none.
    pub node_port: i32,
}

/// The API's defaults.
impl Default for ServicePort {
    fn default() -> Self {
        Self {
            name: InternedStr::default(),
            protocol: "TCP".into(),
            app_protocol: None,
            port: 0,
            target_port: None,
            node_port: 0,
        }
    }
}

impl Service {
    /// Whether it has no cluster IP.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ip.is_empty() || self.cluster_ip == "None"
    }
}

impl Object for Service {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for Service {
    const RESOURCE: Resource = Resource::built_in("", "Service");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Option<ReadAnnotations>>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReadAnnotations {
    #[serde(rename = "service.kubernetes.io/topology-aware-hints")]
    topology_aware_hints: Option<InternedStr>,
    #[serde(rename = "service.kubernetes.io/topology-mode")]
    topology_mode: Option<InternedStr>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    selector: Option<Labels>,
    #[serde(deserialize_with = "null_is_empty")]
    ports: Box<[ServicePort]>,
    r#type: InternedStr,
    #[serde(rename = "clusterIP")]
    cluster_ip: ArcStr,
    #[serde(deserialize_with = "null_is_empty")]
    ip_families: Box<[InternedStr]>,
    #[serde(deserialize_with = "null_is_default")]
    publish_not_ready_addresses: bool,
    traffic_distribution: Option<InternedStr>,
    allocate_load_balancer_node_ports: Option<bool>,
}

impl From<Wire> for Service {
    fn from(mut wire: Wire) -> Self {
        let annotations = wire.metadata.annotations.take().unwrap_or_default();
        let spec = wire.spec;
        Self {
            meta: wire.metadata.into(),
            selector: spec.selector,
            ports: spec.ports,
            service_type: spec.r#type,
            cluster_ip: spec.cluster_ip,
            ip_families: spec.ip_families,
            publish_not_ready_addresses: spec.publish_not_ready_addresses,
            traffic_distribution: spec.traffic_distribution,
            allocate_load_balancer_node_ports: spec.allocate_load_balancer_node_ports,
            topology_aware_hints: annotations.topology_aware_hints,
            topology_mode: annotations.topology_mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_decoded() {
        let service: Service = serde_json::from_str(
            r#"{"metadata":{"name":"web","namespace":"a","annotations":{"service.kubernetes.io/topology-mode":"Auto","x":"y"}},
                "spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],
                        "ports":[{"name":"http","port":80,"targetPort":"web","protocol":"TCP","appProtocol":"h2c"},
                                 {"name":"dns","port":53,"targetPort":5353,"protocol":"UDP"},{"port":1}],
                        "selector":{"app":"web"},"trafficDistribution":"PreferSameZone","sessionAffinity":"None"},
                "status":{"loadBalancer":{}}}"#,
        )
        .unwrap();
        assert_eq!(service.ports[0].target_port, Some(IntOrString::from("web")));
        assert_eq!(service.ports[1].target_port, Some(IntOrString::Int(5353)));
        assert_eq!(service.topology_mode.as_deref(), Some("Auto"));
        assert_eq!(service.ports[2].protocol, "TCP");
        assert!(!service.is_headless() && service.selector.is_some());
        let bare: Service =
            serde_json::from_str(r#"{"metadata":{"name":"e"},"spec":{"clusterIP":"None","selector":null}}"#)
                .unwrap();
        assert!(bare.is_headless() && bare.selector.is_none() && bare.ports.is_empty());
    }
}
