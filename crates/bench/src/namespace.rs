//! The time and the requests to delete a namespace full of objects, with either manager.

use std::time::{Duration, Instant};

use anyhow::bail;
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, DeleteOptions};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{AuditEntry, ControlPlane, Process, User};
use keleustes_objects::{ErrorReason, Key, Resource};
use keleustes_scenarios::real::{Manager, RealCluster, built_manager};
use serde_json::{Value, json};

use crate::requests::{NAMESPACES, define, send_all, with_type};

/// The user of the controller's requests.
const USER: &str = "system:serviceaccount:kube-system:namespace-controller";
const CUSTOM: Resource = Resource::namespaced("example.com", "v1", "wishes", "Wish");

/// The content of the namespace: resources and their shares of all objects.
const CONTENT: &[(Resource, usize)] = &[
    (Resource::namespaced("", "v1", "configmaps", "ConfigMap"), 8),
    (Resource::namespaced("", "v1", "secrets", "Secret"), 8),
    (Resource::namespaced("", "v1", "pods", "Pod"), 8),
    (Resource::namespaced("", "v1", "events", "Event"), 8),
    (Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount"), 2),
    (Resource::namespaced("", "v1", "services", "Service"), 2),
    (Resource::namespaced("apps", "v1", "deployments", "Deployment"), 4),
    (Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"), 4),
    (Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease"), 2),
    (Resource::namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role"), 2),
    (CUSTOM, 2),
];

/// The measured deletion of one namespace.
struct NamespaceDeletion {
    whose: &'static str,
    time: Duration,
    entries: Vec<AuditEntry>,
}

/// Fills namespaces and deletes them with ours and with the original, alternating.
pub(crate) async fn measure(objects: usize, rounds: usize) -> anyhow::Result<()> {
    let (real, ours, client) = control_plane_for("namespace-controller")?;
    define(&client, &[CUSTOM]).await?;
    let mut all = Vec::new();
    for round in 0..rounds {
        for manager in [&ours, &Manager::Original] {
            let whose = manager.whose();
            let name = format!("full-{round}-{}", all.len());
            eprintln!("filling {name} with {objects} objects for {whose} ...");
            fill(&client, &name, objects).await?;
            let _manager = start(&real, manager, "namespace-controller")?;
            all.push(delete_and_wait(&real, &client, &name, whose).await?);
        }
    }
    print(&all);
    Ok(())
}

/// A control plane for either manager, the program of ours, and an administrator's client.
pub(crate) fn control_plane_for(controller: &str) -> anyhow::Result<(RealCluster, Manager, kube::Client)> {
    let builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    let ours = Manager::Ours(built_manager()?);
    let real = RealCluster::start_on(
        builder,
        &keleustes_scenarios::USUAL,
        ours.clone(),
        &[&format!("--controllers={controller}")],
    )?;
    real.stop_manager()?;
    let connection = Connection::open(Some(&real.plane().kubeconfig(User::Admin)), None, None)?;
    let client = ClientFactory::new(connection, ClientOptions::default()).root("bench");
    Ok((real, ours, client))
}

/// Starts a manager that runs only one controller.
pub(crate) fn start(real: &RealCluster, manager: &Manager, controller: &str) -> anyhow::Result<Process> {
    let flags = [&format!("--controllers={controller}"), "--leader-elect=false"];
    let process = manager.start(real.plane(), &manager.whose().replace(' ', "-"), &flags)?;
    // Long enough for either to fill its caches.
    std::thread::sleep(Duration::from_secs(8));
    Ok(process)
}

async fn delete_and_wait(
    real: &RealCluster,
    client: &kube::Client,
    name: &str,
    whose: &'static str,
) -> anyhow::Result<NamespaceDeletion> {
    let before = real.plane().audit_mark()?;
    let key = Key::cluster(name);
    let began = Instant::now();
    Call::delete(&NAMESPACES, &key, &DeleteOptions::default()).send(client).await?;
    loop {
        match Call::get(&NAMESPACES, &key).send(client).await {
            Err(failure) if failure.reason == ErrorReason::NotFound => break,
            Err(failure) => return Err(failure.into()),
            Ok(namespace) if began.elapsed() > Duration::from_secs(900) => {
                bail!("{whose}: {}", namespace["status"])
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let time = began.elapsed();
    eprintln!("... {whose} took {:.1} s", time.as_secs_f64());
    // The audit log is written a moment after the response.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let entries = real.plane().audit_since(before)?.into_iter();
    Ok(NamespaceDeletion { whose, time, entries: entries.filter(|entry| entry.user == USER).collect() })
}

fn print(all: &[NamespaceDeletion]) {
    println!("| whose | seconds | collections deleted | updates | updates refused | lists and gets |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for NamespaceDeletion { whose, time, entries } in all {
        let count = |fits: fn(&&AuditEntry) -> bool| entries.iter().filter(fits).count();
        println!(
            "| {whose} | {:.1} | {} | {} | {} | {} |",
            time.as_secs_f64(),
            count(|entry| entry.verb.starts_with("delete")),
            count(|entry| entry.verb == "update"),
            count(|entry| entry.verb == "update" && entry.code >= 400),
            count(|entry| matches!(entry.verb.as_str(), "get" | "list")),
        );
    }
}

async fn fill(client: &kube::Client, namespace: &str, objects: usize) -> anyhow::Result<()> {
    let body = with_type(&NAMESPACES, json!({"metadata": {"name": namespace}}));
    Call::create(&NAMESPACES, "", &body).send(client).await?;
    // Pods need the default ServiceAccount, which no controller creates here.
    let accounts = &CONTENT[4].0;
    let account = with_type(accounts, json!({"metadata": {"name": "default"}}));
    Call::create(accounts, namespace, &account).send(client).await?;
    let shares: usize = CONTENT.iter().map(|(_, share)| share).sum();
    let all = CONTENT.iter().flat_map(|(resource, share)| {
        (0..objects * share / shares).map(move |n| (resource, object(resource, namespace, n)))
    });
    let calls = all.map(|(resource, object)| Call::create(resource, namespace, &object));
    send_all(client, "filling the namespace", calls).await
}

fn object(resource: &Resource, namespace: &str, n: usize) -> Value {
    let mut object = with_type(resource, json!({"metadata": {"name": format!("object-{n:05}")}}));
    let containers = json!([{"name": "c", "image": "image"}]);
    let labels = json!({"app": format!("app-{n}")});
    match &*resource.kind {
        "ConfigMap" => object["data"] = json!({"text": "x".repeat(500)}),
        "Secret" => object["stringData"] = json!({"text": "x".repeat(500)}),
        "Pod" => object["spec"] = json!({"containers": containers}),
        "Event" => object["involvedObject"] = json!({"kind": "Pod", "namespace": namespace, "name": "p"}),
        "Service" => object["spec"] = json!({"clusterIP": "None", "ports": [{"port": 80}]}),
        "Deployment" | "ReplicaSet" => {
            let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
            object["spec"] =
                json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
        }
        _ => {}
    }
    object
}
