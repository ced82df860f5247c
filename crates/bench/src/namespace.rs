//! How long a namespace full of objects takes to go, and how many requests that takes, with either manager.

use std::time::{Duration, Instant};

use anyhow::bail;
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, DeleteOptions};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{AuditEntry, ControlPlane, Process, User};
use keleustes_objects::{ErrorReason, Key, Resource};
use keleustes_scenarios::real::{Manager, Real, built_manager};
use serde_json::{Value, json};

use crate::requests::{NAMESPACES, define, of, send_all};

/// As whom the controller speaks.
const USER: &str = "system:serviceaccount:kube-system:namespace-controller";
const WISHES: Resource = Resource::namespaced("example.com", "v1", "wishes", "Wish");

/// What is in the namespace, and how many shares of all there are of it.
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
    (WISHES, 2),
];

/// What the end of one namespace took.
struct Taken {
    whose: &'static str,
    time: Duration,
    entries: Vec<AuditEntry>,
}

/// Fills namespaces and has them emptied by ours and by the original, in turn.
pub(crate) async fn measure(objects: usize, rounds: usize) -> anyhow::Result<()> {
    let (real, ours, client) = stage("namespace-controller")?;
    define(&client, &[WISHES]).await?;
    let mut all = Vec::new();
    for round in 0..rounds {
        for manager in [&ours, &Manager::Original] {
            let whose = manager.whose();
            let name = format!("full-{round}-{}", all.len());
            eprintln!("filling {name} with {objects} objects for {whose} ...");
            fill(&client, &name, objects).await?;
            let _manager = start(&real, manager, "namespace-controller")?;
            all.push(empty(&real, &client, &name, whose).await?);
        }
    }
    print(&all);
    Ok(())
}

/// A control plane on which either manager can run, ours, and a client of its administrator.
pub(crate) fn stage(controller: &str) -> anyhow::Result<(Real, Manager, kube::Client)> {
    let builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    let ours = Manager::Ours(built_manager()?);
    let real = Real::start_on(builder, ours.clone(), &[&format!("--controllers={controller}")])?;
    real.stop_manager()?;
    let connection = Connection::open(Some(&real.plane().kubeconfig(User::Admin)), None, None)?;
    let client = ClientFactory::new(connection, ClientOptions::default()).root("bench");
    Ok((real, ours, client))
}

/// Starts a manager that runs one controller and does nothing else.
pub(crate) fn start(real: &Real, manager: &Manager, controller: &str) -> anyhow::Result<Process> {
    let flags = [&format!("--controllers={controller}"), "--leader-elect=false"];
    let process = manager.start(real.plane(), &manager.whose().replace(' ', "-"), &flags)?;
    // Long enough for either to have filled its caches.
    std::thread::sleep(Duration::from_secs(8));
    Ok(process)
}

async fn empty(real: &Real, client: &kube::Client, name: &str, whose: &'static str) -> anyhow::Result<Taken> {
    let before = real.plane().audit_mark()?;
    let key = Key::cluster(name);
    let began = Instant::now();
    Call::delete(&NAMESPACES, &key, &DeleteOptions::default()).send(client).await?;
    loop {
        match Call::get(&NAMESPACES, &key).send(client).await {
            Err(failure) if failure.reason == ErrorReason::NotFound => break,
            Err(failure) => return Err(failure.into()),
            Ok(there) if began.elapsed() > Duration::from_secs(900) => bail!("{whose}: {}", there["status"]),
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let time = began.elapsed();
    eprintln!("... {whose} took {:.1} s", time.as_secs_f64());
    // The log is written a moment after the answer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let entries = real.plane().audit_since(before)?.into_iter();
    Ok(Taken { whose, time, entries: entries.filter(|entry| entry.user == USER).collect() })
}

fn print(all: &[Taken]) {
    println!("| whose | seconds | collections deleted | puts | of them refused | lists and reads |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for Taken { whose, time, entries } in all {
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
    let body = of(&NAMESPACES, json!({"metadata": {"name": namespace}}));
    Call::create(&NAMESPACES, "", &body).send(client).await?;
    // Pods need the account that no controller makes here.
    let accounts = &CONTENT[4].0;
    let account = of(accounts, json!({"metadata": {"name": "default"}}));
    Call::create(accounts, namespace, &account).send(client).await?;
    let shares: usize = CONTENT.iter().map(|(_, share)| share).sum();
    let all = CONTENT.iter().flat_map(|(resource, share)| {
        (0..objects * share / shares).map(move |n| (resource, object(resource, namespace, n)))
    });
    let calls = all.map(|(resource, object)| Call::create(resource, namespace, &object));
    send_all(client, "filling the namespace", calls).await
}

fn object(resource: &Resource, namespace: &str, n: usize) -> Value {
    let mut object = of(resource, json!({"metadata": {"name": format!("object-{n:05}")}}));
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
