//! The fifty workloads, what each phase asks of them, and the pods that this accounts for.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::ledger::Account;
use crate::World;

/// How many phases there are; the first creates everything.
pub(super) const PHASES: usize = 4;
/// How many nodes there are.
pub(super) const NODES: usize = 3;
pub(super) const DEPLOYMENTS: usize = 14;
pub(super) const STATEFUL_SETS: usize = 8;
pub(super) const DAEMON_SETS: usize = 4;
/// ReplicaSets, as many ReplicationControllers, and in every phase as many new Jobs.
const SETS: usize = 8;
/// How the names begin of pods that belong to no workload.
pub(super) const MARK: &str = "mark";

/// How many pods a Deployment wants, and may ask for at once.
const REPLICAS: usize = 4;
pub(super) const ASKED_MAX: i64 = 5;
const RANKS: usize = 3;
const COMPLETIONS: usize = 4;
/// Templates go forth and back, so that what one leader remembered is used by the other.
const IMAGES: [&str; PHASES] = ["v1", "v2", "v1", "v2"];
/// What does not roll keeps its template and is scaled.
const KEPT: &str = "v0";
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

    /// What a phase asks for.
    fn spec(self, name: &str, phase: usize) -> Value {
        let selector = json!({"matchLabels": {"app": name}});
        let rolled = template(name, IMAGES[phase]);
        match self {
            Self::Deployment => json!({
                "replicas": REPLICAS, "minReadySeconds": 1, "selector": selector, "template": rolled,
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            }),
            Self::StatefulSet => {
                json!({"replicas": RANKS, "serviceName": "s", "selector": selector, "template": rolled})
            }
            Self::DaemonSet => json!({"selector": selector, "template": rolled}),
            Self::ReplicaSet => {
                json!({"replicas": SIZES[phase], "selector": selector, "template": template(name, KEPT)})
            }
            Self::ReplicationController => {
                let selector = json!({"app": name});
                json!({"replicas": SIZES[phase], "selector": selector, "template": template(name, KEPT)})
            }
            Self::Job => {
                let mut template = rolled;
                template["spec"]["restartPolicy"] = json!("Never");
                json!({"completions": COMPLETIONS, "parallelism": 2, "template": template})
            }
        }
    }

    /// How many of which image come and go in a phase.
    fn accounts_for(self, phase: usize) -> [(usize, &'static str); 2] {
        let before = phase.checked_sub(1);
        let rolled = |count: usize| {
            let gone = before.map_or((0, ""), |before| (count, IMAGES[before]));
            [(count, IMAGES[phase]), gone]
        };
        match self {
            Self::Deployment => rolled(REPLICAS),
            Self::StatefulSet => rolled(RANKS),
            Self::DaemonSet => rolled(NODES),
            Self::ReplicaSet | Self::ReplicationController => {
                let had = before.map_or(0, |before| SIZES[before]);
                [(SIZES[phase].saturating_sub(had), KEPT), (had.saturating_sub(SIZES[phase]), KEPT)]
            }
            Self::Job => [(COMPLETIONS, IMAGES[phase]), (0, "")],
        }
    }

    /// Whether all is done that was asked for.
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
                count("succeeded") == all_of(spec)
                    && conditions.into_iter().any(|one| one["type"] == "Complete")
            }
        }
    }
}

fn all_of(job: &Value) -> u64 {
    job["completions"].as_u64().unwrap_or(0)
}

fn rolled_out(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["reason"] == "NewReplicaSetAvailable")
}

/// Rich enough that two programs could write it down differently.
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
pub(super) struct Loads<'w> {
    world: &'w World,
    namespace: String,
}

impl<'w> Loads<'w> {
    pub(super) fn new(world: &'w World, namespace: &str) -> Self {
        Self { world, namespace: namespace.to_owned() }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.admin.clone(), &self.namespace, &kind.resource())
    }

    /// Asks for what a phase asks for.
    pub(super) async fn begin(&self, phase: usize) -> anyhow::Result<()> {
        let all = KINDS.iter().flat_map(|(kind, count)| (0..*count).map(|at| (*kind, at)));
        let asked = stream::iter(all).map(|(kind, at)| self.ask(kind, kind.name(at, phase), phase));
        asked.buffer_unordered(8).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn ask(&self, kind: Kind, name: String, phase: usize) -> anyhow::Result<()> {
        let (api, resource) = (self.api(kind), kind.resource());
        let spec = kind.spec(&name, phase);
        if phase == 0 || kind == Kind::Job {
            let object = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "metadata": {"name": name}, "spec": spec,
            });
            return self.world.create(&api, object).await.map(drop).with_context(|| name);
        }
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(&name, &PatchParams::default(), &patch).await.map(drop).with_context(|| name)
    }

    /// How many workloads have not yet done what a phase asked for.
    pub(super) async fn under_way(&self, phase: usize) -> anyhow::Result<usize> {
        let mut under_way = 0;
        for (kind, count) in KINDS {
            let objects = self.api(kind).list(&ListParams::default()).await?;
            let wanted: Vec<_> = (0..count).map(|at| kind.name(at, phase)).collect();
            let objects = objects.iter().filter(|object| wanted.contains(&object.name_any()));
            let objects: Vec<_> = objects.map(serde_json::to_value).collect::<Result<_, _>>()?;
            under_way += count - objects.iter().filter(|object| kind.is_done(object)).count();
        }
        Ok(under_way)
    }

    /// The pods that come and go in a phase because of what it asks for, and no others.
    pub(super) fn accounts_for(phase: usize) -> Account {
        let mut account = Account::default();
        for (kind, count) in KINDS {
            for at in 0..count {
                let [came, went] = kind.accounts_for(phase);
                let name = kind.name(at, phase);
                for (map, (count, image)) in [(&mut account.came, came), (&mut account.went, went)] {
                    if count > 0 {
                        map.insert((name.clone(), image.to_owned()), count);
                    }
                }
            }
        }
        account
    }

    /// One more Deployment, after all the others.
    pub(super) async fn begin_last(&self) -> anyhow::Result<()> {
        self.ask(Kind::Deployment, "last".to_owned(), 0).await
    }

    pub(super) async fn last_is_done(&self) -> anyhow::Result<Option<()>> {
        let last = serde_json::to_value(self.api(Kind::Deployment).get("last").await?)?;
        Ok(Kind::Deployment.is_done(&last).then_some(()))
    }
}
