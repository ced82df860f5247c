//! A pod: shared template, own identity, and status.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use keleustes_objects::protobuf::Message;
use keleustes_objects::{ArcStr, InternedStr, Key, Object, ObjectMeta, Resource, Time};
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
    /// The PersistentVolumeClaims it mounts.
    pub(crate) claims: Box<[PodClaim]>,
    /// The ConfigMaps and Secrets it mounts, without optional ones.
    pub(crate) configs: Box<[PodConfig]>,
    pub(crate) status: PodStatus,
}

/// A PersistentVolumeClaim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodClaim {
    /// The name of the volume in the pod.
    pub(crate) volume: ArcStr,
    /// The name of the claim.
    pub(crate) name: ArcStr,
    /// Whether it is created for the pod.
    pub(crate) is_ephemeral: bool,
}

impl PodClaim {
    pub(crate) fn key(&self, namespace: &InternedStr) -> Key {
        Key { namespace: namespace.clone(), name: self.name.clone() }
    }
}

/// A ConfigMap or Secret that a pod mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodConfig {
    /// The name of the volume in the pod.
    pub(crate) volume: ArcStr,
    pub(crate) kind: ConfigKind,
    pub(crate) name: ArcStr,
    /// The entries that are mounted by name; they must exist.
    pub(crate) entries: Box<[InternedStr]>,
}

/// A kind of object whose entries are mounted as files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConfigKind {
    ConfigMap,
    Secret,
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
    pub(crate) const RESOURCE: Resource = Resource::built_in("", "Pod");
}

/// The fields that are read from protobuf.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    Message::of(
        &Pod::RESOURCE,
        "
        spec {
            activeDeadlineSeconds hostNetwork nodeName nodeSelector overhead priority restartPolicy schedulerName
            terminationGracePeriodSeconds
            affinity {
                nodeAffinity { requiredDuringSchedulingIgnoredDuringExecution }
                podAffinity,podAntiAffinity {
                    requiredDuringSchedulingIgnoredDuringExecution {
                        labelSelector namespaceSelector { } namespaces topologyKey
                    }
                }
            }
            containers,initContainers {
                image name restartPolicy
                ports { hostPort protocol }
                resources { requests }
            }
            readinessGates { conditionType }
            resources { requests }
            schedulingGates { }
            tolerations { effect key operator value }
            volumes {
                name
                configMap { name items { key } optional }
                ephemeral { }
                persistentVolumeClaim { claimName }
                projected { sources { configMap,secret { name items { key } optional } } }
                secret { secretName items { key } optional }
            }
        }
        status {
            phase podIP startTime
            conditions { lastTransitionTime message reason status type }
            containerStatuses {
                restartCount
                state,lastState { running { startedAt } terminated { exitCode finishedAt startedAt } }
            }
        }
        ",
    )
});

impl Object for Pod {
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
    name: ArcStr,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<serde::de::IgnoredAny>,
    projected: Option<WireProjected>,
    config_map: Option<WireConfig>,
    secret: Option<WireConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireProjected {
    #[serde(deserialize_with = "nullable")]
    sources: Vec<WireVolume>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireConfig {
    // A volume names its Secret differently from a projected source.
    #[serde(alias = "secretName")]
    name: ArcStr,
    #[serde(deserialize_with = "nullable")]
    items: Vec<WireItem>,
    optional: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireItem {
    key: InternedStr,
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
        let configs = spec.volumes.iter().flat_map(WireVolume::configs).collect();
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
            configs,
            status: wire.status,
        }
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

impl WireVolume {
    fn claim(&self, pod: &str) -> Option<PodClaim> {
        let name = match (&self.persistent_volume_claim, &self.ephemeral) {
            (Some(claim), _) => claim.claim_name.clone(),
            (None, Some(_)) => ArcStr::from(format!("{pod}-{}", self.name)),
            (None, None) => return None,
        };
        let is_ephemeral = self.persistent_volume_claim.is_none();
        Some(PodClaim { volume: self.name.clone(), name, is_ephemeral })
    }

    fn configs(&self) -> impl Iterator<Item = PodConfig> {
        let projected = self.projected.iter().flat_map(|projected| &projected.sources);
        let sources = std::iter::once(self).chain(projected);
        let of_kinds = sources.flat_map(|source| {
            [(ConfigKind::ConfigMap, &source.config_map), (ConfigKind::Secret, &source.secret)]
        });
        let given = of_kinds.filter_map(|(kind, config)| Some((kind, config.as_ref()?)));
        given.filter(|(_, config)| config.optional != Some(true)).map(|(kind, config)| PodConfig {
            volume: self.name.clone(),
            kind,
            name: config.name.clone(),
            entries: config.items.iter().map(|item| item.key.clone()).collect(),
        })
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
    use keleustes_objects::Encoded;

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
        let claims: Vec<_> = two.claims.iter().map(|claim| (&*claim.name, claim.is_ephemeral)).collect();
        assert_eq!(claims, [("data-y", false), ("y-e", true)]);
    }

    #[test]
    fn required_configs_are_read_from_all_places() {
        let pod = read(
            r#"{"metadata":{"name":"p"},"spec":{"volumes":[
                {"name":"a","configMap":{"name":"settings","items":[{"key":"k","path":"p"}]}},
                {"name":"b","secret":{"secretName":"password"}},
                {"name":"c","configMap":{"name":"extra","optional":true}},
                {"name":"d","projected":{"sources":[{"serviceAccountToken":{"path":"token"}},{"configMap":{"name":"ca"}},
                    {"secret":{"name":"key"}},{"secret":{"name":"more","optional":true}}]}},
                {"name":"e","emptyDir":{}}]}}"#,
        );
        let read: Vec<_> = pod.configs.iter().map(|one| (&*one.volume, one.kind, &*one.name)).collect();
        let expected = [
            ("a", ConfigKind::ConfigMap, "settings"),
            ("b", ConfigKind::Secret, "password"),
            ("d", ConfigKind::ConfigMap, "ca"),
            ("d", ConfigKind::Secret, "key"),
        ];
        assert_eq!(read, expected);
        assert_eq!(*pod.configs[0].entries, [InternedStr::from("k")]);
    }

    /// A number of up to fourteen bits in protobuf.
    fn varint(number: usize) -> Vec<u8> {
        let byte = |bits: usize| u8::try_from(bits & 0x7f).unwrap();
        if number < 0x80 { vec![byte(number)] } else { vec![byte(number) | 0x80, byte(number >> 7)] }
    }

    /// A message or a string in protobuf.
    fn part(number: usize, parts: &[&[u8]]) -> Vec<u8> {
        let bytes = parts.concat();
        [varint(number << 3 | 2), varint(bytes.len()), bytes].concat()
    }

    #[test]
    fn protobuf_and_json_decode_to_the_same_pod() {
        let text = |number, text: &str| part(number, &[text.as_bytes()]);
        let annotation = part(12, &[&text(1, "hollow.keleustes.io/start-delay"), &text(2, "2s")]);
        let metadata = part(1, &[&text(1, "p"), &text(3, "n"), &text(5, "u"), &annotation]);
        let request = part(2, &[&text(1, "cpu"), &part(2, &[&text(1, "100m")])]);
        let port = part(6, &[&[2 << 3, 80], &text(4, "UDP")]);
        let container = part(2, &[&text(1, "c"), &text(2, "i"), &port, &part(8, &[&request])]);
        let claim = part(1, &[&text(1, "v"), &part(2, &[&part(10, &[&text(1, "data")])])]);
        let item = part(2, &[&text(1, "k"), &text(2, "p")]);
        let config = part(1, &[&text(1, "c"), &part(2, &[&part(19, &[&part(1, &[&text(1, "m")]), &item])])]);
        let secret = part(1, &[&text(1, "s"), &part(2, &[&part(6, &[&text(1, "password"), &[4 << 3, 0]])])]);
        let optional = part(1, &[&part(1, &[&part(1, &[&text(1, "x")]), &[4 << 3, 1]])]);
        let sources = [optional, part(1, &[&part(1, &[&part(1, &[&text(1, "y")])])])].concat();
        let projected = part(1, &[&text(1, "p"), &part(2, &[&part(26, &[&sources])])]);
        let volumes = [claim, config, secret, projected].concat();
        let spec = part(2, &[&volumes, &container, &text(3, "Never"), &[4 << 3, 5], &text(10, "n1")]);
        let ready = part(2, &[&text(1, "Ready"), &text(2, "True"), &part(4, &[&[1 << 3, 60]]), &text(6, "")]);
        let exited = part(2, &[&part(3, &[&[1 << 3, 3], &part(6, &[&[1 << 3, 61]])])]);
        let status = part(3, &[&text(1, "Running"), &ready, &part(8, &[&exited, &[5 << 3, 1]])]);
        let pod: Pod = Encoded::Protobuf(&[metadata, spec, status].concat()).read().unwrap();
        let json = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","annotations":{"hollow.keleustes.io/start-delay":"2s"}},
            "spec":{"nodeName":"n1","restartPolicy":"Never","terminationGracePeriodSeconds":5,
                "containers":[{"name":"c","image":"i","ports":[{"hostPort":80,"protocol":"UDP"}],
                    "resources":{"requests":{"cpu":"100m"}}}],
                "volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"data"}},
                    {"name":"c","configMap":{"name":"m","items":[{"key":"k","path":"p"}]}},
                    {"name":"s","secret":{"secretName":"password","optional":false}},
                    {"name":"p","projected":{"sources":[
                        {"secret":{"name":"x","optional":true}},{"secret":{"name":"y"}}]}}]},
            "status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"1970-01-01T00:01:00Z"}],
                "containerStatuses":[{"restartCount":1,
                    "state":{"terminated":{"exitCode":3,"finishedAt":"1970-01-01T00:01:01Z"}}}]}}"#;
        assert_eq!(pod, read(json));
        assert_eq!((pod.template.requests.cpu, pod.claims.len(), pod.configs.len()), (100, 1, 3));
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
