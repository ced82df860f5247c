//! The number of requests that the garbage collector sends when owners are deleted, with either manager.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use keleustes_client::{Call, DeleteOptions, PropagationPolicy};
use keleustes_control_plane::AuditEntry;
use keleustes_objects::{Key, Resource};
use keleustes_scenarios::real::{Manager, RealCluster};
use kube::Client;
use serde_json::{Value, json};

use crate::namespace::{control_plane_for, start};
use crate::requests::{NAMESPACES, items, with_type};

const CONTROLLER: &str = "garbage-collector-controller";
/// The user of its requests.
const USER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
const MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");

/// How long the garbage collection may take.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Deletes the same owners with each propagation policy, with ours and with the original.
pub(crate) async fn measure(owners: usize, dependents: usize) -> anyhow::Result<()> {
    let (real, ours, client) = control_plane_for(CONTROLLER)?;
    println!("| dependents are | whose | seconds | deletes | patches | reads | refused |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for (how, propagation) in [
        ("deleted after their owners", PropagationPolicy::Background),
        ("deleted before their owners", PropagationPolicy::Foreground),
        ("orphaned", PropagationPolicy::Orphan),
    ] {
        for manager in [&ours, &Manager::Original] {
            let whose = manager.whose();
            let namespace = format!("{propagation:?}-{}", whose.replace(' ', "-")).to_lowercase();
            eprintln!("creating {owners} owners of {dependents} objects each in {namespace} ...");
            fill(&client, &namespace, owners, dependents).await?;
            let _manager = start(&real, manager, CONTROLLER)?;
            let (time, entries) = cascade(&real, &client, &namespace, owners, propagation).await?;
            let count = |fits: fn(&&AuditEntry) -> bool| entries.iter().filter(fits).count();
            println!(
                "| {how} | {whose} | {:.1} | {} | {} | {} | {} |",
                time.as_secs_f64(),
                count(|entry| entry.verb == "delete"),
                count(|entry| entry.verb == "patch"),
                count(|entry| entry.verb == "get"),
                count(|entry| entry.code >= 400),
            );
        }
    }
    Ok(())
}

fn owner(n: usize) -> String {
    format!("owner-{n:04}")
}

async fn fill(client: &Client, namespace: &str, owners: usize, dependents: usize) -> anyhow::Result<()> {
    let body = with_type(&NAMESPACES, json!({"metadata": {"name": namespace}}));
    Call::create(&NAMESPACES, "", &body).send(client).await?;
    stream::iter(0..owners)
        .map(async |n| {
            let map = with_type(&MAPS, json!({"metadata": {"name": owner(n)}}));
            let created = Call::create(&MAPS, namespace, &map).send(client).await?;
            let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner(n),
                "uid": created["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
            for m in 0..dependents {
                let name = format!("{}-{m:03}", owner(n));
                let metadata = json!({"name": name, "ownerReferences": [reference]});
                let secret = with_type(&SECRETS, json!({"metadata": metadata}));
                Call::create(&SECRETS, namespace, &secret).send_discarding_body(client).await?;
            }
            anyhow::Ok(())
        })
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Deletes all owners and waits until the garbage collector has finished.
async fn cascade(
    real: &RealCluster,
    client: &Client,
    namespace: &str,
    owners: usize,
    propagation: PropagationPolicy,
) -> anyhow::Result<(Duration, Vec<AuditEntry>)> {
    let before = real.plane().audit_mark()?;
    let began = Instant::now();
    for n in 0..owners {
        let deletion = DeleteOptions { propagation_policy: Some(propagation), ..DeleteOptions::default() };
        Call::delete(&MAPS, &Key::namespaced(namespace, owner(n)), &deletion).send(client).await?;
    }
    while !is_done(client, namespace, propagation).await? {
        ensure!(began.elapsed() < TIMEOUT, "the garbage collection in {namespace} does not finish");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let time = began.elapsed();
    // The audit log is written a moment after the response, and a superfluous request may still follow.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let is_relevant = |entry: &AuditEntry| {
        let object = entry.object.as_ref();
        entry.user == USER
            && object.is_some_and(|object| object.namespace == namespace && !object.name.is_empty())
    };
    let entries = real.plane().audit_since(before)?.into_iter();
    Ok((time, entries.filter(is_relevant).collect()))
}

async fn is_done(client: &Client, namespace: &str, propagation: PropagationPolicy) -> anyhow::Result<bool> {
    let listed = async |resource: &Resource| items(client, &Call::list(resource, namespace)).await;
    let has_no_owner = |secret: &Value| secret["metadata"]["ownerReferences"].is_null();
    let secrets = listed(&SECRETS).await?;
    let done = match propagation {
        PropagationPolicy::Orphan => secrets.iter().all(has_no_owner),
        PropagationPolicy::Background | PropagationPolicy::Foreground => secrets.is_empty(),
    };
    Ok(done && listed(&MAPS).await?.is_empty())
}
