//! The server on a socket works with real clients and shuts down gracefully.

mod support;

use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keleustes_apiserver::http::{HttpError, Limits, Pki, RunningServer, serve};
use keleustes_apiserver::{ApiServer, User};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use support::serving;
use tokio::net::TcpStream;

async fn client(serving: &RunningServer, user: &User) -> Client {
    let kubeconfig =
        Kubeconfig::from_yaml(&serving.kubeconfig(user).expect("a certificate")).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).expect("a ConfigMap")
}

#[tokio::test]
async fn certificates_authenticate_and_roles_authorize() {
    let server = ApiServer::builder().rbac(true).build();
    let serving = serving(&server, Limits::default()).await;
    let admin = client(&serving, &User::admin()).await;
    Api::<ConfigMap>::default_namespaced(admin)
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let user = User::service_account("kube-system", "namespace-controller");
    let jane = client(&serving, &User::new("jane", &[])).await;
    let refused = Api::<Secret>::all(jane).list(&Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("jane"), "{refused}");
    let controller = client(&serving, &user).await;
    assert!(Api::<ConfigMap>::all(controller).list(&Default::default()).await.is_ok());
    let log: Vec<_> = server.requests().iter().map(|r| (r.user.clone(), r.verb.clone(), r.code)).collect();
    assert_eq!(
        log,
        [
            ("kubernetes-admin".to_owned(), "create".to_owned(), 201),
            ("jane".to_owned(), "list".to_owned(), 403),
            ("system:serviceaccount:kube-system:namespace-controller".to_owned(), "list".to_owned(), 200),
        ]
    );
    serving.stop().await;
}

#[tokio::test]
async fn stopping_ends_watches_cleanly_and_quickly() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, Limits::default()).await;
    let api = Api::<ConfigMap>::default_namespaced(client(&serving, &User::admin()).await);
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap());
    // The end of the initial events.
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Bookmark(_))));
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    let began = Instant::now();
    let address = serving.address();
    serving.stop().await;
    assert!(matches!(events.try_next().await, Ok(None)));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn port_in_use_is_an_error() {
    let server = ApiServer::builder().build();
    let first = serving(&server, Limits::default()).await;
    let again = serve(server, first.address(), Pki::generate().unwrap(), Limits::default()).await;
    assert!(matches!(again, Err(HttpError::Listen { .. })));
}
