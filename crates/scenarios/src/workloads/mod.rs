//! Workloads keep the pods they want, roll them in order, and keep their revision history.

pub(crate) mod daemonsets;
pub(crate) mod deployments;
pub(crate) mod disruptions;
pub(crate) mod handover;
pub(crate) mod replicas;
pub(crate) mod statefulsets;
pub(crate) mod templates;

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use crate::TestCluster;

/// A namespace whose pods have no kubelet: the scenario writes their status.
struct WorkloadFixture<'w> {
    cluster: &'w TestCluster,
    name: String,
    deployments: Api<Deployment>,
    sets: Api<ReplicaSet>,
    pods: Api<Pod>,
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

impl<'w> WorkloadFixture<'w> {
    async fn create(cluster: &'w TestCluster, prefix: &str) -> anyhow::Result<Self> {
        let name = cluster.namespace_with_service_account(prefix).await?;
        let (deployments, sets, pods) = (cluster.api(&name), cluster.api(&name), cluster.api(&name));
        Ok(Self { cluster, name, deployments, sets, pods })
    }

    /// Pods that are not terminating.
    async fn active_pods(&self) -> anyhow::Result<Vec<Pod>> {
        let pods = self.pods.list(&ListParams::default()).await?;
        Ok(pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
    }

    async fn mark_ready(&self, pod: &Pod) -> anyhow::Result<()> {
        let condition = json!({
            "type": "Ready", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let patch = Patch::Merge(json!({
            "metadata": {"uid": pod.uid()},
            "status": {"phase": "Running", "conditions": [condition]},
        }));
        match self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            // It was deleted meanwhile, and perhaps recreated.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            patched => patched.map(drop).context("marking a pod ready"),
        }
    }

    async fn active_pods_become(&self, wanted: usize) -> anyhow::Result<Vec<Pod>> {
        let ask = async || {
            let pods = self.active_pods().await?;
            Ok((pods.len() == wanted).then_some(pods))
        };
        self.cluster.eventually(&format!("{wanted} pods"), ask).await
    }

    /// Waits until the events about objects of a kind satisfy the predicate.
    async fn events_become(&self, kind: &str, is_right: impl Fn(&[String]) -> bool) -> anyhow::Result<()> {
        let messages = RefCell::new(Vec::new());
        let ask = async || {
            let events =
                self.cluster.api::<Event>(&self.name).list(&ListParams::default()).await?.into_iter();
            let about = events.filter(|event| event.involved_object.kind.as_deref() == Some(kind));
            let texts = about.filter_map(|event| Some(format!("{} {}", event.reason?, event.message?)));
            messages.replace(texts.collect());
            Ok(is_right(&messages.borrow()).then_some(()))
        };
        let done = self.cluster.eventually("events", ask).await;
        done.with_context(|| format!("{:?}", messages.borrow()))
    }

    /// The image of each ControllerRevision, by revision number.
    async fn revisions(&self) -> anyhow::Result<BTreeMap<i64, String>> {
        let all = self.cluster.api::<ControllerRevision>(&self.name).list(&ListParams::default()).await?;
        let entry = |revision: &ControllerRevision| {
            let image = revision.data.0.pointer("/spec/template/spec/containers/0/image");
            Some((revision.revision?, image?.as_str()?.to_owned()))
        };
        all.iter().map(|revision| entry(revision).context("a number and a template")).collect()
    }
}

fn is_ready(pod: &Pod) -> bool {
    condition(&pod.status, "Ready").starts_with("True")
}

/// Status and reason of a condition.
fn condition(status: &impl Serialize, r#type: &str) -> String {
    let status = serde_json::to_value(status).unwrap_or_default();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|one| one["type"] == r#type);
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    found.next().map_or_else(String::new, |one| format!("{} {}", text(one, "status"), text(one, "reason")))
}

fn image(pod: &Pod) -> String {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| &spec.containers).find_map(|one| one.image.clone()).unwrap_or_default()
}
