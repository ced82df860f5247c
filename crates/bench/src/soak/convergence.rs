//! The state of the cluster after the faults, judged by the checkers of the storms.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use keleustes_apiserver::ApiServer;
use keleustes_client::Call;
use keleustes_objects::Resource;
use keleustes_sim::checks::{
    Checker, daemonset, deployment, disruption, endpointslice, garbage, job, namespace, quota, replicas,
    statefulset,
};
use kube::Client;
use serde::{Deserialize, Serialize};

use crate::requests::{NAMESPACES, items, with_type};

/// How long the cluster may take: a lost token is retried for a minute, a finished Job is deleted after one.
const TIMEOUT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_secs(5);

/// The kinds that the checkers read, and the owners of their objects.
static KINDS: [Resource; 15] = [
    NAMESPACES,
    Resource::cluster("", "v1", "nodes", "Node"),
    Resource::namespaced("", "v1", "pods", "Pod"),
    Resource::namespaced("", "v1", "services", "Service"),
    Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota"),
    Resource::namespaced("", "v1", "configmaps", "ConfigMap"),
    Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount"),
    Resource::namespaced("apps", "v1", "deployments", "Deployment"),
    Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"),
    Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet"),
    Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet"),
    Resource::namespaced("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Resource::namespaced("batch", "v1", "jobs", "Job"),
    Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource::namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
];

fn checkers() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(namespace::Namespaces),
        Box::new(garbage::Garbage),
        Box::new(deployment::Deployments::default()),
        Box::new(replicas::Replicas::default()),
        Box::new(statefulset::StatefulSets),
        Box::new(daemonset::DaemonSets::default()),
        Box::new(job::Jobs::default()),
        Box::new(endpointslice::EndpointSlices::default()),
        Box::new(disruption::Budgets::default()),
        Box::new(quota::Quotas),
    ]
}

/// What one checker says in the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The controller or property.
    pub(super) checker: String,
    /// Seconds from the end of the faults until it was satisfied; none if it never was.
    pub(super) seconds: Option<f64>,
    /// What it found last, if it never was.
    pub(super) violation: String,
}

/// Waits until all checkers are satisfied at once, or the time is over.
pub(super) async fn wait(client: &Client) -> anyhow::Result<Vec<Outcome>> {
    let began = Instant::now();
    let mut satisfied_at: Vec<Option<f64>> = vec![None; checkers().len()];
    loop {
        let elapsed = began.elapsed();
        let copy = match copy_of(client).await {
            Ok(copy) => copy,
            Err(error) if elapsed > TIMEOUT => return Err(error),
            Err(_) => {
                tokio::time::sleep(POLL).await;
                continue;
            }
        };
        let verdicts: Vec<_> =
            checkers().iter().map(|checker| (checker.name(), checker.check_converged(&copy))).collect();
        for (at, (_, verdict)) in satisfied_at.iter_mut().zip(&verdicts) {
            *at = verdict.is_ok().then(|| at.unwrap_or(elapsed.as_secs_f64()));
        }
        if verdicts.iter().all(|(_, verdict)| verdict.is_ok()) || elapsed > TIMEOUT {
            let outcome = |((name, verdict), seconds): ((&'static str, Result<(), String>), _)| Outcome {
                checker: name.to_owned(),
                seconds,
                violation: verdict.err().unwrap_or_default(),
            };
            return Ok(verdicts.into_iter().zip(satisfied_at).map(outcome).collect());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// An embedded API server with the objects of the real one, which is where the checkers look.
async fn copy_of(client: &Client) -> anyhow::Result<ApiServer> {
    let copy = ApiServer::builder().request_log_limit(0).build();
    for object in copy.snapshot() {
        let text = |pointer: &str| object.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default();
        let kind = KINDS.iter().find(|kind| kind.kind == text("/kind"));
        if let Some(kind) = kind {
            copy.remove(&kind.to_string(), text("/metadata/namespace"), text("/metadata/name"));
        }
    }
    for kind in &KINDS {
        for object in items(client, &Call::list(kind, "")).await? {
            copy.seed(with_type(kind, object)).map_err(|status| anyhow!("copying {kind}: {status}"))?;
        }
    }
    Ok(copy)
}
