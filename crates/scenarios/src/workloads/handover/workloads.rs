//! The fifty workloads, their specs in each phase, and the pods that are expected to be created and
//! deleted.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::pod_log::PodCounts;
use crate::TestCluster;

/// How many phases there are; the first creates everything.
pub(super) const PHASES: usize = 4;
/// How many nodes there are.
pub(super) const NODES: usize = 3;
pub(super) const DEPLOYMENTS: usize = 14;
pub(super) const STATEFUL_SETS: usize = 8;
pub(super) const DAEMON_SETS: usize = 4;
/// ReplicaSets, as many ReplicationControllers, and in every phase as many new Jobs.
const SETS: usize = 8;
/// Name prefix of the marker pods.
pub(super) const MARKER: &str = "mark";

/// The replicas of a Deployment, and the most that its ReplicaSets may request at once.
const REPLICAS: usize = 4;
pub(super) const REQUESTED_MAX: i64 = 5;
const STATEFUL_REPLICAS: usize = 3;
const COMPLETIONS: usize = 4;
/// Templates alternate, so that the revisions of one leader are reused by the other.
const IMAGES: [&str; PHASES] = ["v1", "v2", "v1", "v2"];
/// Workloads without rollouts keep their template and are scaled.
const CONSTANT_IMAGE: &str = "v0";
const SIZES: [usize; PHASES] = [4, 6, 3, 5];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
    ReplicaSet,
    ReplicationController,
    Job,
}

const KINDS: [(Kind, usize); 6] = [
    (Kind::Deployment, DEPLOYMENTS),
    (Kind::StatefulSet, STATEFUL_SETS),
    (Kind::DaemonSet, DAEMON_SETS),
    (Kind::ReplicaSet, SETS),
    (Kind::ReplicationController, SETS),
    (Kind::Job, SETS),
];

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Self::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
            Self::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
            Self::ReplicationController => ApiResource::erase::<ReplicationController>(&()),
            Self::Job => ApiResource::erase::<Job>(&()),
        }
    }

    fn name(self, at: usize, phase: usize) -> String {
        match self {
            Self::Deployment => format!("dep-{at}"),
            Self::StatefulSet => format!("sts-{at}"),
            Self::DaemonSet => format!("ds-{at}"),
            Self::ReplicaSet => format!("rs-{at}"),
            Self::ReplicationController => format!("rc-{at}"),
            Self::Job => format!("job-{phase}-{at}"),
        }
    }

    /// The spec of a phase.
    fn spec(self, name: &str, phase: usize) -> Value {
        let selector = json!({"matchLabels": {"app": name}});
        let rolling = template(name, IMAGES[phase]);
        match self {
            Self::Deployment => json!({
                "replicas": REPLICAS, "minReadySeconds": 1, "selector": selector, "template": rolling,
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            }),
            Self::StatefulSet => {
                json!({"replicas": STATEFUL_REPLICAS, "serviceName": "s", "selector": selector, "template": rolling})
            }
            Self::DaemonSet => json!({"selector": selector, "template": rolling}),
            Self::ReplicaSet => {
                json!({"replicas": SIZES[phase], "selector": selector, "template": template(name, CONSTANT_IMAGE)})
            }
            Self::ReplicationController => {
                let selector = json!({"app": name});
                json!({"replicas": SIZES[phase], "selector": selector, "template": template(name, CONSTANT_IMAGE)})
            }
            Self::Job => {
                let mut template = rolling;
                template["spec"]["restartPolicy"] = json!("Never");
                json!({"completions": COMPLETIONS, "parallelism": 2, "template": template})
            }
        }
    }

    /// How many pods of which image are created and deleted in a phase.
    fn expected_counts(self, phase: usize) -> [(usize, &'static str); 2] {
        let before = phase.checked_sub(1);
        let after_rollout = |count: usize| {
            let replaced = before.map_or((0, ""), |before| (count, IMAGES[before]));
            [(count, IMAGES[phase]), replaced]
        };
        match self {
            Self::Deployment => after_rollout(REPLICAS),
            Self::StatefulSet => after_rollout(STATEFUL_REPLICAS),
            Self::DaemonSet => after_rollout(NODES),
            Self::ReplicaSet | Self::ReplicationController => {
                let previous = before.map_or(0, |before| SIZES[before]);
                [
                    (SIZES[phase].saturating_sub(previous), CONSTANT_IMAGE),
                    (previous.saturating_sub(SIZES[phase]), CONSTANT_IMAGE),
                ]
            }
            Self::Job => [(COMPLETIONS, IMAGES[phase]), (0, "")],
        }
    }

    /// Whether the status matches the spec.
    fn is_done(self, object: &Value) -> bool {
        let (spec, status) = (&object["spec"], &object["status"]);
        let count = |field: &str| status[field].as_u64().unwrap_or(0);
        let seen = status["observedGeneration"] == object["metadata"]["generation"];
        let all = spec["replicas"].as_u64().unwrap_or(0);
        let all_are = |fields: &[&str]| fields.iter().all(|field| count(field) == all);
        match self {
            Self::Deployment => {
                seen && all_are(&["replicas", "updatedReplicas", "availableReplicas"]) && rolled_out(status)
            }
            Self::StatefulSet => {
                seen && all_are(&["replicas", "updatedReplicas", "currentReplicas", "availableReplicas"])
                    && status["currentRevision"] == status["updateRevision"]
            }
            Self::DaemonSet => {
                let wanted = count("desiredNumberScheduled");
                seen && wanted > 0
                    && ["updatedNumberScheduled", "numberAvailable"]
                        .iter()
                        .all(|field| count(field) == wanted)
            }
            Self::ReplicaSet | Self::ReplicationController => {
                seen && all_are(&["replicas", "readyReplicas", "availableReplicas"])
            }
            Self::Job => {
                let conditions = status["conditions"].as_array().into_iter().flatten();
                count("succeeded") == completions(spec)
                    && conditions.into_iter().any(|one| one["type"] == "Complete")
            }
        }
    }
}

fn completions(job: &Value) -> u64 {
    job["completions"].as_u64().unwrap_or(0)
}

fn rolled_out(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["reason"] == "NewReplicaSetAvailable")
}

/// A template with enough fields that two programs could serialize it differently.
fn template(name: &str, image: &str) -> Value {
    let own_name = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    json!({
        "metadata": {"labels": {"app": name}, "annotations": {"example.com/note": "<a> & \u{2028} \"b\" \u{e9}"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 1000, "fsGroup": 0},
            "tolerations": [{"key": "example.com/any", "operator": "Exists"}],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "0.5Gi"}}, {"name": "none", "emptyDir": {}}],
            "containers": [{
                "name": "c", "image": image, "args": ["--less=<&>", ""],
                "env": [{"name": "EMPTY", "value": ""}, {"name": "NAME", "valueFrom": own_name}],
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "1m", "memory": "1024Ki"}, "limits": {"cpu": "0.1"}},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp", "readOnly": false}],
                "readinessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1},
            }],
        },
    })
}

/// The workloads of one namespace.
pub(super) struct Workloads<'w> {
    cluster: &'w TestCluster,
    namespace: String,
}

impl<'w> Workloads<'w> {
    pub(super) fn new(cluster: &'w TestCluster, namespace: &str) -> Self {
        Self { cluster, namespace: namespace.to_owned() }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.admin.clone(), &self.namespace, &kind.resource())
    }

    /// Creates or patches all workloads for a phase.
    pub(super) async fn start_phase(&self, phase: usize) -> anyhow::Result<()> {
        let all = KINDS.iter().flat_map(|(kind, count)| (0..*count).map(|at| (*kind, at)));
        let asked = stream::iter(all).map(|(kind, at)| self.apply(kind, kind.name(at, phase), phase));
        asked.buffer_unordered(8).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn apply(&self, kind: Kind, name: String, phase: usize) -> anyhow::Result<()> {
        let (api, resource) = (self.api(kind), kind.resource());
        let spec = kind.spec(&name, phase);
        if phase == 0 || kind == Kind::Job {
            let object = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "metadata": {"name": name}, "spec": spec,
            });
            return self.cluster.create(&api, object).await.map(drop).with_context(|| name);
        }
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(&name, &PatchParams::default(), &patch).await.map(drop).with_context(|| name)
    }

    /// How many workloads have not completed a phase.
    pub(super) async fn unfinished(&self, phase: usize) -> anyhow::Result<usize> {
        let mut unfinished = 0;
        for (kind, count) in KINDS {
            let objects = self.api(kind).list(&ListParams::default()).await?;
            let wanted: Vec<_> = (0..count).map(|at| kind.name(at, phase)).collect();
            let objects = objects.iter().filter(|object| wanted.contains(&object.name_any()));
            let objects: Vec<_> = objects.map(serde_json::to_value).collect::<Result<_, _>>()?;
            unfinished += count - objects.iter().filter(|object| kind.is_done(object)).count();
        }
        Ok(unfinished)
    }

    /// The pods that are created and deleted in a phase because of its specs.
    pub(super) fn expected_counts(phase: usize) -> PodCounts {
        let mut counts = PodCounts::default();
        for (kind, count) in KINDS {
            for at in 0..count {
                let [created, deleted] = kind.expected_counts(phase);
                let name = kind.name(at, phase);
                for (map, (count, image)) in [(&mut counts.created, created), (&mut counts.deleted, deleted)]
                {
                    if count > 0 {
                        map.insert((name.clone(), image.to_owned()), count);
                    }
                }
            }
        }
        counts
    }

    /// Creates one more Deployment, after all the others.
    pub(super) async fn create_last(&self) -> anyhow::Result<()> {
        self.apply(Kind::Deployment, "last".to_owned(), 0).await
    }

    pub(super) async fn last_is_done(&self) -> anyhow::Result<Option<()>> {
        let last = serde_json::to_value(self.api(Kind::Deployment).get("last").await?)?;
        Ok(Kind::Deployment.is_done(&last).then_some(()))
    }
}
