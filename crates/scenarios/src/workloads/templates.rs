//! A changed pod template rolls pods only where the original rolls them: a Deployment compares templates by value, a
//! StatefulSet and a DaemonSet compare the text of their revisions, and a ReplicaSet, a ReplicationController, a Job and a
//! CronJob compare nothing.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::WorkloadFixture;
use crate::TestCluster;

/// A template with a memory limit, a CPU limit and a probed port.
fn template(app: &str, memory: &str, cpu: &str, port: &Value) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"nodeSelector": {"fleet": "none"}, "containers": [{
            "name": "c", "image": "v1", "ports": [{"name": "http", "containerPort": 80}],
            "resources": {"limits": {"memory": memory, "cpu": cpu}, "requests": {"memory": "0", "cpu": "0"}},
            "livenessProbe": {"httpGet": {"port": port}},
        }]},
    })
}

/// The same for a Job.
fn job_template(app: &str, memory: &str, cpu: &str, port: &Value) -> Value {
    let mut template = template(app, memory, cpu, port);
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

/// One object of each kind, with the same template but for its label. The CronJob is not due before the next 29 February.
struct Templates<'w> {
    fixture: WorkloadFixture<'w>,
    stateful_sets: Api<StatefulSet>,
    daemon_sets: Api<DaemonSet>,
    revisions: Api<ControllerRevision>,
    controllers: Api<ReplicationController>,
    jobs: Api<Job>,
    cron_jobs: Api<CronJob>,
}

const KINDS: [&str; 4] = ["deployment", "statefulset", "daemonset", "replicaset"];

impl<'w> Templates<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let fixture = WorkloadFixture::create(cluster, "respelling").await?;
        let name = fixture.name.clone();
        let this = Self {
            stateful_sets: cluster.api(&name),
            daemon_sets: cluster.api(&name),
            revisions: cluster.api(&name),
            controllers: cluster.api(&name),
            jobs: cluster.api(&name),
            cron_jobs: cluster.api(&name),
            fixture,
        };
        let [deployment, stateful_set, mut daemon_set, replica_set] = KINDS.map(|kind| {
            let template = template(kind, "1Gi", "0.5", &json!(80));
            json!({
                "metadata": {"name": kind},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": kind}}, "template": template},
            })
        });
        daemon_set["spec"].as_object_mut().context("a spec")?.remove("replicas");
        cluster.create(&this.fixture.deployments, deployment).await?;
        cluster.create(&this.stateful_sets, stateful_set).await?;
        cluster.create(&this.daemon_sets, daemon_set).await?;
        cluster.create(&this.fixture.sets, replica_set).await?;
        this.create_others().await?;
        Ok(this)
    }

    /// Creates the ReplicationController, the Job and the CronJob.
    async fn create_others(&self) -> anyhow::Result<()> {
        let (cluster, port) = (self.fixture.cluster, json!(80));
        let template = template("replicationcontroller", "1Gi", "0.5", &port);
        let spec = json!({"replicas": 1, "selector": {"app": "replicationcontroller"}, "template": template});
        let controller = json!({"metadata": {"name": "replicationcontroller"}, "spec": spec});
        cluster.create(&self.controllers, controller).await?;
        let spec = json!({"template": job_template("job", "1Gi", "0.5", &port)});
        cluster.create(&self.jobs, json!({"metadata": {"name": "job"}, "spec": spec})).await?;
        let spec = json!({"template": job_template("cronjob", "1Gi", "0.5", &port)});
        let spec = json!({"schedule": "0 0 29 2 *", "jobTemplate": {"spec": spec}});
        cluster.create(&self.cron_jobs, json!({"metadata": {"name": "cronjob"}, "spec": spec})).await?;
        Ok(())
    }

    /// Changes the templates of all kinds; that of the Job only in words, because it is immutable.
    async fn change(&self, memory: &str, cpu: &str, port: &Value) -> anyhow::Result<()> {
        let patch = |kind| Patch::Merge(json!({"spec": {"template": template(kind, memory, cpu, port)}}));
        let with = PatchParams::default();
        self.fixture.deployments.patch("deployment", &with, &patch("deployment")).await?;
        self.stateful_sets.patch("statefulset", &with, &patch("statefulset")).await?;
        self.daemon_sets.patch("daemonset", &with, &patch("daemonset")).await?;
        self.fixture.sets.patch("replicaset", &with, &patch("replicaset")).await?;
        self.controllers.patch("replicationcontroller", &with, &patch("replicationcontroller")).await?;
        let spec = |kind| json!({"spec": {"template": job_template(kind, memory, cpu, port)}});
        if *port == json!(80) {
            self.jobs.patch("job", &with, &Patch::Merge(spec("job"))).await?;
        }
        let cron_job = json!({"spec": {"jobTemplate": spec("cronjob")}});
        self.cron_jobs.patch("cronjob", &with, &Patch::Merge(cron_job)).await?;
        Ok(())
    }

    /// How many ReplicaSets the Deployment has, how many revisions the sets have, and how many Jobs there are, once all are
    /// observed.
    async fn counts(&self) -> anyhow::Result<Option<[usize; 4]>> {
        let observed = is_observed(&self.fixture.deployments, "deployment").await?
            && is_observed(&self.stateful_sets, "statefulset").await?
            && is_observed(&self.daemon_sets, "daemonset").await?
            && is_observed(&self.fixture.sets, "replicaset").await?
            && is_observed(&self.controllers, "replicationcontroller").await?;
        let sets = self.fixture.sets.list(&ListParams::default()).await?;
        let revisions = self.revisions.list(&ListParams::default()).await?;
        let of =
            |kind: &str| revisions.iter().filter(|revision| revision.name_any().starts_with(kind)).count();
        let sets = sets.iter().filter(|set| !set.owner_references().is_empty()).count();
        let jobs = self.jobs.list(&ListParams::default()).await?.items.len();
        Ok(observed.then_some([sets, of("statefulset"), of("daemonset"), jobs]))
    }

    /// Waits for these counts, and checks that they stay.
    async fn counts_stay(&self, wanted: [usize; 4]) -> anyhow::Result<()> {
        let cluster = self.fixture.cluster;
        let ask = async || Ok((self.counts().await? == Some(wanted)).then_some(()));
        cluster.eventually(&format!("{wanted:?} ReplicaSets, revisions and Jobs"), ask).await?;
        cluster.settle().await;
        let counts = self.counts().await?;
        ensure!(counts == Some(wanted), "{counts:?} ReplicaSets, revisions and Jobs, not {wanted:?}");
        cluster.checkpoint(&format!("{wanted:?} ReplicaSets, revisions and Jobs")).await;
        Ok(())
    }

    /// The uids of the pods of the Deployment and of the kinds that compare nothing.
    async fn kept_pods(&self) -> anyhow::Result<Vec<Option<String>>> {
        let owners = "app in (deployment, replicaset, replicationcontroller, job, cronjob)";
        let pods = self.fixture.pods.list(&ListParams::default().labels(owners)).await?;
        let mut uids: Vec<_> = pods.iter().map(kube::ResourceExt::uid).collect();
        uids.sort();
        Ok(uids)
    }

    async fn replica_set_names(&self) -> anyhow::Result<Vec<String>> {
        let sets: Vec<ReplicaSet> = self.fixture.sets.list(&ListParams::default()).await?.items;
        Ok(sets.iter().map(kube::ResourceExt::name_any).filter(|name| name != "replicaset").collect())
    }
}

async fn is_observed<K>(api: &Api<K>, name: &str) -> anyhow::Result<bool>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::to_value(api.get(name).await?)?;
    Ok(object["metadata"]["generation"] == object["status"]["observedGeneration"])
}

/// Proves DEP-17, REV-16, REV-36, REV-39, REV-46.
pub(crate) async fn respelled_templates_roll_where_text_is_compared(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let templates = Templates::create(cluster).await?;
    templates.counts_stay([1, 1, 1, 1]).await?;
    // Both programs give the ReplicaSet and the DaemonSet's revision the names that the original computes.
    let names = templates.replica_set_names().await?;
    ensure!(names == ["deployment-6646fd55b5"], "{names:?}");
    let pods = || async {
        let four = async || {
            let pods = templates.kept_pods().await?;
            Ok((pods.len() == 4).then_some(pods))
        };
        cluster.eventually("four pods", four).await
    };
    let before = pods().await?;

    // The same amounts in other words: the Deployment keeps its ReplicaSet, the StatefulSet and the
    // DaemonSet get a revision, and the other kinds keep their pods.
    templates.change("1073741824", "500m", &json!(80)).await?;
    templates.counts_stay([1, 2, 2, 1]).await?;
    // Other words for the CPU alone, which the API server spells as before: nothing changes.
    templates.change("1073741824", "0.5", &json!(80)).await?;
    templates.counts_stay([1, 2, 2, 1]).await?;
    ensure!(pods().await? == before, "pods were replaced");

    // The name of a port is not its number.
    templates.change("1073741824", "500m", &json!("http")).await?;
    templates.counts_stay([2, 3, 3, 1]).await?;
    // Rolling back reuses what is there.
    templates.change("1Gi", "0.5", &json!(80)).await?;
    templates.counts_stay([2, 3, 3, 1]).await?;
    // Neither has replaced the pod that it had.
    let after = templates.kept_pods().await?;
    ensure!(before.iter().all(|uid| after.contains(uid)), "{before:?} became {after:?}");
    Ok(())
}
