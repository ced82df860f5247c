//! Memory and speed of the embedded API server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use keleustes_apiserver::http::{Limits, Pki, serve};
use keleustes_apiserver::service::Body;
use keleustes_apiserver::{ApiServer, User};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::meters::Meter;

const NAMESPACES: usize = 20;
/// How many changes the server keeps for watches; with the default every pod would be stored twice.
const HISTORY_LIMIT: usize = 1000;
/// How many pods change while watches are open.
const CHANGES: usize = 2000;

/// Fills a server in this process and prints a table of measurements.
pub(crate) async fn measure(pods: usize, watches: usize) -> anyhow::Result<()> {
    let server = ApiServer::builder().history_limit(HISTORY_LIMIT).request_log_limit(0).build();
    for at in 0..NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{at}")}});
        server.seed(namespace).map_err(|status| anyhow::anyhow!("{status}"))?;
    }
    let empty = Meter::own().anonymous()?;
    println!("| measurement | value |");
    println!("| --- | --- |");
    let began = Instant::now();
    for at in 0..pods {
        create(&server, at).await?;
    }
    println!("| creates | {:.0} a second |", per_second(pods, began.elapsed()));
    let full = Meter::own().anonymous()?;
    println!("| memory of a pod | {} bytes |", full.saturating_sub(empty) / pods.max(1) as u64);
    let (bytes, elapsed) = list(&server, "/api/v1/pods").await?;
    println!("| text of a pod | {} bytes |", bytes / pods.max(1));
    println!("| list all, in process | {} |", rate(pods, bytes, elapsed));
    let selected = "/api/v1/pods?labelSelector=app%3Da7&fieldSelector=spec.nodeName%3Dnode-7";
    let (_, elapsed) = list(&server, selected).await?;
    println!("| list by label and field | {:.0} ms |", elapsed.as_secs_f64() * 1000.0);
    let (pages, elapsed) = pages(&server).await?;
    println!("| list in {pages} pages of 500 | {:.0} ms |", elapsed.as_secs_f64() * 1000.0);
    socket(&server, pods).await?;
    watch(&server, watches).await?;
    println!("| memory of the process at the end | {} MB |", Meter::own().anonymous()? / 1_000_000);
    Ok(())
}

fn per_second(count: usize, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

fn rate(count: usize, bytes: usize, elapsed: Duration) -> String {
    let megabytes = bytes as f64 / 1e6 / elapsed.as_secs_f64();
    format!("{:.0} pods a second, {megabytes:.0} MB a second", per_second(count, elapsed))
}

async fn send(
    server: &ApiServer,
    method: Method,
    target: &str,
    body: Option<&Value>,
) -> anyhow::Result<Response<Body>> {
    let content = body.map(Value::to_string).unwrap_or_default();
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder().method(method).uri(target).header("content-type", kind);
    let response = server.clone().oneshot(request.body(content)?).await?;
    ensure!(response.status().is_success(), "{target}: {}", response.status());
    Ok(response)
}

async fn create(server: &ApiServer, at: usize) -> anyhow::Result<()> {
    let pod = json!({
        "metadata": {"generateName": "web-7d9c5b6f4-", "labels": {"app": format!("a{}", at % 50), "pod-template-hash": "7d9c5b6f4"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9c5b6f4",
                "uid": "3c1d1a52-9c4f-4d6b-8a53-1f0a52d8f1c2", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"nodeName": format!("node-{}", at % 1000), "containers": [{"name": "web", "image": "registry.example/web:1.2.3",
            "ports": [{"containerPort": 8080}], "env": [{"name": "A", "value": "b"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}}}]},
    });
    let target = format!("/api/v1/namespaces/n{}/pods", at % NAMESPACES);
    send(server, Method::POST, &target, Some(&pod)).await?;
    Ok(())
}

async fn list(server: &ApiServer, target: &str) -> anyhow::Result<(usize, Duration)> {
    let began = Instant::now();
    let body = send(server, Method::GET, target, None).await?.into_body().collect().await?.to_bytes();
    Ok((body.len(), began.elapsed()))
}

async fn pages(server: &ApiServer) -> anyhow::Result<(usize, Duration)> {
    let (began, mut pages, mut token) = (Instant::now(), 0, String::new());
    loop {
        let target = format!("/api/v1/pods?limit=500&continue={token}");
        let body = send(server, Method::GET, &target, None).await?.into_body().collect().await?.to_bytes();
        pages += 1;
        // The continue token is in the metadata at the beginning, so that the items need not be parsed.
        let head = String::from_utf8_lossy(&body[..body.len().min(1000)]).into_owned();
        match head.split_once("\"continue\":\"").and_then(|(_, rest)| rest.split_once('"')) {
            Some((next, _)) => token = next.to_owned(),
            None => return Ok((pages, began.elapsed())),
        }
    }
}

/// The same list over TLS with a real client.
async fn socket(server: &ApiServer, pods: usize) -> anyhow::Result<()> {
    let address = "127.0.0.1:0".parse().context("an address")?;
    let serving = serve(server.clone(), address, Pki::generate()?, Limits::default()).await?;
    let kubeconfig = Kubeconfig::from_yaml(&serving.kubeconfig(&User::admin())?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let began = Instant::now();
    let text = client.request_text(Request::get("/api/v1/pods").body(Vec::new())?).await?;
    println!("| list all, over HTTPS | {} |", rate(pods, text.len(), began.elapsed()));
    serving.stop().await;
    Ok(())
}

/// Changes pods while watches are open, and counts the delivered events.
async fn watch(server: &ApiServer, watches: usize) -> anyhow::Result<()> {
    let target = format!("/api/v1/pods?watch=true&resourceVersion={}", server.resource_version());
    let mut open = Vec::new();
    for _ in 0..watches {
        open.push(send(server, Method::GET, &target, None).await?.into_body());
    }
    let first_pods = send(server, Method::GET, &format!("/api/v1/pods?limit={CHANGES}"), None).await?;
    let first_pods: Value = serde_json::from_slice(&first_pods.into_body().collect().await?.to_bytes())?;
    let metadata_field =
        |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let pods = first_pods["items"].as_array().into_iter().flatten();
    let names: Vec<(String, String)> =
        pods.map(|pod| (metadata_field(pod, "namespace"), metadata_field(pod, "name"))).collect();
    let began = Instant::now();
    for (namespace, name) in &names {
        let target = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let patch = json!({"metadata": {"annotations": {"changed": "yes"}}});
        send(server, Method::PATCH, &target, Some(&patch)).await?;
    }
    let changed = began.elapsed();
    let (mut frames, mut bytes) = (0, 0);
    for body in &mut open {
        for _ in 0..names.len() {
            let frame = body.frame().await.context("a watch ended")??;
            bytes += frame.data_ref().map_or(0, |data| data.len());
            frames += 1;
        }
    }
    println!("| changes with {watches} watches open | {:.0} a second |", per_second(names.len(), changed));
    println!(
        "| watch events delivered | {} |",
        rate(frames, bytes, began.elapsed()).replace("pods", "events")
    );
    Ok(())
}
