//! A pod: shared template, own identity, and status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ArcStr, InternedStr, Object, ObjectMeta, Resource, Time};
use serde::Deserialize;

use super::template::{
    Container, InitContainer, Requests, RestartPolicy, Template, TemplateRef, thousandths,
};
use super::terms::{PodTerms, Toleration, WireAffinity};
use super::{WireMeta, nullable};

/// A pod.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub(crate) struct Pod {
    pub(crate) meta: ObjectMeta,
    pub(crate) generation: i64,
    /// `deletionGracePeriodSeconds`, if the pod is terminating.
    pub(crate) deletion_grace_period: Option<Duration>,
    /// `spec.nodeName`; empty if unbound.
    pub(crate) node: InternedStr,
    /// Whether it has scheduling gates.
    pub(crate) is_gated: bool,
    pub(crate) template: TemplateRef,
    pub(crate) pod_terms: Option<Arc<PodTerms>>,
    /// Names of the PersistentVolumeClaims it mounts.
    pub(crate) claims: Box<[ArcStr]>,
    pub(crate) status: PodStatus,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: Phase,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: ArcStr,
    pub(crate) start_time: Option<Time>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    /// `Unknown`, or a value of a later API version.
    #[serde(other)]
    Unknown,
}

impl Phase {
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// One condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) r#type: InternedStr,
    pub(crate) status: InternedStr,
    pub(crate) reason: InternedStr,
    pub(crate) message: ArcStr,
    pub(crate) last_transition_time: Option<Time>,
}

/// The status of one container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) restart_count: u32,
    #[serde(deserialize_with = "nullable")]
    pub(crate) state: ContainerState,
    #[serde(deserialize_with = "nullable")]
    pub(crate) last_state: ContainerState,
}

/// The state of one container; at most one field is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) running: Option<Running>,
    pub(crate) terminated: Option<Terminated>,
}

/// A running container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Running {
    pub(crate) started_at: Option<Time>,
}

/// A terminated container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) started_at: Option<Time>,
    pub(crate) finished_at: Option<Time>,
}

impl PodStatus {
    pub(crate) fn condition(&self, name: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| &*condition.r#type == name)
    }

    /// Whether a condition exists and is `True`.
    pub(crate) fn condition_is_true(&self, name: &str) -> bool {
        self.condition(name).is_some_and(|condition| &*condition.status == "True")
    }
}

impl Pod {
    pub(crate) const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");
}

impl Object for Pod {
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
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: InternedStr,
    scheduler_name: InternedStr,
    priority: Option<i32>,
    restart_policy: RestartPolicy,
    host_network: bool,
    active_deadline_seconds: Option<u32>,
    termination_grace_period_seconds: Option<u32>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<WireContainer>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<WireContainer>,
    #[serde(deserialize_with = "nullable")]
    readiness_gates: Vec<Gate>,
    #[serde(deserialize_with = "nullable")]
    scheduling_gates: Vec<serde::de::IgnoredAny>,
    resources: WireResources,
    #[serde(deserialize_with = "nullable")]
    overhead: BTreeMap<InternedStr, String>,
    #[serde(deserialize_with = "nullable")]
    node_selector: BTreeMap<InternedStr, InternedStr>,
    #[serde(deserialize_with = "nullable")]
    affinity: WireAffinity,
    #[serde(deserialize_with = "nullable")]
    tolerations: Box<[Toleration]>,
    #[serde(deserialize_with = "nullable")]
    volumes: Vec<WireVolume>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    name: InternedStr,
    image: InternedStr,
    restart_policy: InternedStr,
    resources: WireResources,
    #[serde(deserialize_with = "nullable")]
    ports: Vec<WirePort>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireResources {
    #[serde(deserialize_with = "nullable")]
    requests: BTreeMap<InternedStr, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    host_port: u16,
    protocol: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Gate {
    condition_type: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: InternedStr,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    claim_name: ArcStr,
}

impl From<Wire> for Pod {
    fn from(mut wire: Wire) -> Self {
        let meta = wire.metadata.meta();
        let spec = &mut wire.spec;
        let claims = spec.volumes.iter().filter_map(|volume| volume.claim(&meta.key.name)).collect();
        let node_terms = spec.affinity.node_terms();
        let pod_terms = std::mem::take(&mut spec.affinity).pod_terms(&meta.key.namespace);
        let template = Template {
            scheduler: spec.scheduler_name.clone(),
            priority: spec.priority.unwrap_or(0),
            restart_policy: spec.restart_policy,
            host_network: spec.host_network,
            active_deadline: spec.active_deadline_seconds.map(seconds),
            grace_period: seconds(spec.termination_grace_period_seconds.unwrap_or(30)),
            containers: spec.containers.iter().map(WireContainer::container).collect(),
            init_containers: spec.init_containers.iter().map(WireContainer::init_container).collect(),
            readiness_gates: spec.readiness_gates.iter().map(|gate| gate.condition_type.clone()).collect(),
            requests: spec.requests(),
            node_selector: std::mem::take(&mut spec.node_selector).into_iter().collect(),
            node_terms,
            tolerations: std::mem::take(&mut spec.tolerations),
            behaviour: wire.metadata.annotations,
        };
        Self {
            meta,
            generation: wire.metadata.generation,
            deletion_grace_period: wire.metadata.deletion_grace_period_seconds.map(seconds),
            node: wire.spec.node_name,
            is_gated: !wire.spec.scheduling_gates.is_empty(),
            template: TemplateRef::new(template),
            pod_terms,
            claims,
            status: wire.status,
        }
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

impl WireVolume {
    fn claim(&self, pod: &str) -> Option<ArcStr> {
        match &self.persistent_volume_claim {
            Some(claim) => Some(claim.claim_name.clone()),
            None => self.ephemeral.is_some().then(|| ArcStr::from(format!("{pod}-{}", self.name))),
        }
    }
}

impl WireContainer {
    fn container(&self) -> Container {
        Container { name: self.name.clone(), image: self.image.clone() }
    }

    fn init_container(&self) -> InitContainer {
        InitContainer {
            name: self.name.clone(),
            image: self.image.clone(),
            is_sidecar: &*self.restart_policy == "Always",
        }
    }
}

impl Spec {
    /// The effective requests of the pod: the sum of all containers, or the largest init container with the
    /// sidecars started before it.
    fn requests(&self) -> Requests {
        let mut running = Requests::default();
        let mut sidecars = Requests::default();
        let mut largest = Requests::default();
        for container in &self.init_containers {
            let own = Requests::read(&container.resources.requests);
            let mut with_sidecars = sidecars.clone();
            with_sidecars.add(&own, 1);
            largest.raise_to(&with_sidecars);
            if &*container.restart_policy == "Always" {
                sidecars = with_sidecars;
            }
        }
        for container in &self.containers {
            running.add(&Requests::read(&container.resources.requests), 1);
        }
        running.add(&sidecars, 1);
        running.raise_to(&largest);
        // Pod-level requests replace the sum.
        for (name, amount) in &Requests::named(&self.resources.requests) {
            *running.amount(name) = *amount;
        }
        running.add(&Requests::read(&self.overhead), 1);
        running.pods = 1000;
        let ports = self.containers.iter().flat_map(|container| &container.ports);
        for port in ports.filter(|port| port.host_port != 0) {
            *running.amount(&host_port(port)) = 1000;
        }
        running
    }
}

impl Requests {
    fn named(amounts: &BTreeMap<InternedStr, String>) -> Vec<(InternedStr, i64)> {
        amounts.iter().map(|(name, amount)| (name.clone(), thousandths(amount))).collect()
    }
}

/// A host port is modelled as a resource of which every node has one.
fn host_port(port: &WirePort) -> InternedStr {
    let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
    InternedStr::from(format!("{}{protocol}/{}", Requests::HOST_PORT, port.host_port).as_str())
}

impl Requests {
    /// Prefix of host ports among the resources; no API resource can have such a name.
    pub(crate) const HOST_PORT: &str = "host port ";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Pod {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn effective_requests_are_the_maximum_over_init_and_running() {
        let request = |cpu: &str| format!(r#""resources":{{"requests":{{"cpu":"{cpu}"}}}}"#);
        let pod = |inits: &str, rest: &str| {
            read(&format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{"initContainers":[{inits}],
                   "containers":[{{"name":"a",{}}},{{"name":"b",{}}}]{rest}}}}}"#,
                request("100m"),
                request("200m")
            ))
            .template
            .requests
            .cpu
        };
        let init = |cpu: &str| format!(r#"{{"name":"i",{}}}"#, request(cpu));
        let sidecar = |cpu: &str| format!(r#"{{"name":"s","restartPolicy":"Always",{}}}"#, request(cpu));
        assert_eq!(pod("", ""), 300);
        assert_eq!(pod(&init("1"), ""), 1000);
        assert_eq!(pod(&format!("{},{}", init("50m"), sidecar("50m")), ""), 350);
        assert_eq!(pod(&format!("{},{}", sidecar("50m"), init("1")), ""), 1050);
        assert_eq!(pod("", r#","overhead":{"cpu":"10m"}"#), 310);
        assert_eq!(pod("", r#","resources":{"requests":{"cpu":"2"}}"#), 2000);
    }

    #[test]
    fn pods_of_one_template_share_one_allocation() {
        let pod = |name: &str, node: &str| {
            read(&format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"{name}"}},
                    "spec":{{"nodeName":"{node}","containers":[{{"name":"c","image":"i","ports":[{{"hostPort":80}}]}}],
                    "volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"data-{name}"}}}},{{"name":"e","ephemeral":{{}}}}]}}}}"#
            ))
        };
        let (one, two) = (pod("x", ""), pod("y", "n1"));
        // Interned values are equal exactly if they are identical.
        assert_eq!(one.template, two.template);
        assert_eq!(one.template.requests.other(&InternedStr::from("host port TCP/80")), 1000);
        assert_eq!(*two.claims, [ArcStr::from("data-y"), ArcStr::from("y-e")]);
    }

    #[test]
    fn null_and_unknown_fields_are_accepted() {
        let pod = read(
            r#"{"metadata":{"name":"p","annotations":null,"labels":null},"spec":{"containers":null,"affinity":null,"novelty":1},
                "status":{"phase":"Novel","conditions":null,"containerStatuses":[{"state":null,"lastState":{}}]}}"#,
        );
        assert_eq!(pod.status.phase, Phase::Unknown);
    }
}
