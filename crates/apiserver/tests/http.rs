//! On a socket the server speaks to real clients, holds out against hostile ones, and ends in an orderly way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keleustes_apiserver::http::{HttpError, Limits, Pki, Serving, serve};
use keleustes_apiserver::{ApiServer, User};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

async fn serving(server: &ApiServer, limits: Limits) -> Serving {
    let address = "127.0.0.1:0".parse().expect("an address");
    serve(server.clone(), address, Pki::fresh().expect("keys"), limits).await.expect("a free port")
}

async fn client(serving: &Serving, user: &User) -> Client {
    let kubeconfig =
        Kubeconfig::from_yaml(&serving.kubeconfig(user).expect("a certificate")).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).expect("a ConfigMap")
}

/// A raw TLS connection without a client certificate.
async fn raw(serving: &Serving) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(serving.pki().authority_pem().as_bytes());
    roots.add(authority.expect("a certificate")).expect("a usable authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(serving.address()).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake")
}

/// What the server says until it hangs up or has nothing more to say for a second.
async fn heard(stream: &mut TlsStream<TcpStream>) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut buffer)).await {
        if count == 0 {
            break;
        }
        all.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn certificates_say_who_asks_and_roles_what_they_may() {
    let server = ApiServer::builder().rbac(true).build();
    let serving = serving(&server, Limits::default()).await;
    let admin = client(&serving, &User::admin()).await;
    Api::<ConfigMap>::default_namespaced(admin)
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let user = User::service_account("kube-system", "namespace-controller");
    let somebody = client(&serving, &User::new("somebody", &[])).await;
    let refused = Api::<Secret>::all(somebody).list(&Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("somebody"), "{refused}");
    let controller = client(&serving, &user).await;
    assert!(Api::<ConfigMap>::all(controller).list(&Default::default()).await.is_ok());
    let log: Vec<_> = server.requests().iter().map(|r| (r.user.clone(), r.verb.clone(), r.code)).collect();
    assert_eq!(
        log,
        [
            ("kubernetes-admin".to_owned(), "create".to_owned(), 201),
            ("somebody".to_owned(), "list".to_owned(), 403),
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
async fn a_port_in_use_is_told() {
    let server = ApiServer::builder().build();
    let first = serving(&server, Limits::default()).await;
    let again = serve(server, first.address(), Pki::fresh().unwrap(), Limits::default()).await;
    assert!(matches!(again, Err(HttpError::Listen { .. })));
}

#[tokio::test]
async fn malformed_and_oversized_requests_get_errors() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, Limits::default()).await;
    let huge_header = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let huge_body = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{}",
        5_000_000,
        "x".repeat(5_000_000)
    );
    for (request, expected) in [
        ("nonsense\r\n\r\n", "400"),
        ("GET /%zz HTTP/1.1\r\nhost: x\r\n\r\n", "400"),
        (
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n{{{",
            "400",
        ),
        (&huge_header, "431"),
        (&huge_body, "413"),
    ] {
        let mut stream = raw(&serving).await;
        // The server may hang up before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = heard(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer:.200}");
    }
    // Somebody who does not even speak TLS is simply left.
    let mut plain = TcpStream::connect(serving.address()).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut buffer = Vec::new();
    let _ = plain.read_to_end(&mut buffer).await;
    let mut stream = raw(&serving).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(heard(&mut stream).await.ends_with("ok"));
}

#[tokio::test]
async fn slow_and_too_many_clients_are_let_go() {
    let limits = Limits {
        connections_max: 3,
        handshake_within: Duration::from_millis(200),
        headers_within: Duration::from_millis(200),
        body_within: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = ApiServer::builder().build();
    let serving = serving(&server, limits).await;
    let mut slow = raw(&serving).await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nho").await.unwrap();
    let mut slower = raw(&serving).await;
    let half = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{";
    slower.write_all(half.as_bytes()).await.unwrap();
    let _silent = TcpStream::connect(serving.address()).await.unwrap();
    assert!(is_closed(serving.address()).await, "a fourth client has no place");
    heard(&mut slow).await;
    assert!(heard(&mut slower).await.starts_with("HTTP/1.1 408"));
    drop((slow, slower));
    // Once the slow ones are gone there is room again.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut stream = raw(&serving).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(heard(&mut stream).await.ends_with("ok"));
}

async fn is_closed(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let mut buffer = [0; 16];
    let read = tokio::time::timeout(Duration::from_millis(150), stream.read(&mut buffer)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn watches_are_bounded_in_number_and_in_what_waits_for_them() {
    let server = ApiServer::builder().watches_max(10_000).frames_max(5).build();
    let api = Api::<ConfigMap>::default_namespaced(Client::new(server.clone(), "default"));
    let mut open = Vec::new();
    for _ in 0..10_000 {
        open.push(api.watch(&WatchParams::default(), "0").await.unwrap());
    }
    assert_eq!(server.open_watches(), 10_000);
    let refused = api.watch(&WatchParams::default(), "0").await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 429));
    for at in 0..6 {
        server
            .seed(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{at}")}}))
            .unwrap();
    }
    // Nobody has read anything, so everybody has been told to begin again.
    assert_eq!(server.open_watches(), 0);
    let mut first = Box::pin(open.swap_remove(0));
    assert!(matches!(first.try_next().await.unwrap(), Some(WatchEvent::Error(status)) if status.code == 410));
}
