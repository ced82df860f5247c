//! A server on a socket, and raw clients.

// Each test binary uses only some of these.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A TLS stream to the server.
pub(crate) type Stream = TlsStream<TcpStream>;

/// Path of the ConfigMaps.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Serves `server` on a socket.
pub(crate) async fn serving(server: &ApiServer, limits: Limits) -> RunningServer {
    let address = "127.0.0.1:0".parse().expect("an address");
    serve(server.clone(), address, Pki::generate().expect("keys"), limits).await.expect("a free port")
}

/// Stores a ConfigMap without HTTP.
pub(crate) fn seed(server: &ApiServer, name: &str, value: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"k": value}});
    server.seed(object).expect("a valid object");
}

/// A connection without client certificate, for arbitrary bytes.
pub(crate) async fn raw(serving: &RunningServer) -> Stream {
    connect(serving, &[]).await
}

async fn connect(serving: &RunningServer, protocols: &[&[u8]]) -> Stream {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(serving.pki().ca_pem().as_bytes());
    roots.add(authority.expect("a certificate")).expect("a usable authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(serving.address()).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake")
}

/// The server's output until it closes the connection or sends nothing for a second.
pub(crate) async fn read_all(stream: &mut Stream) -> String {
    let mut output = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut buffer)).await {
        if count == 0 {
            break;
        }
        output.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&output).into_owned()
}

/// The server's answer to these bytes on a new connection.
pub(crate) async fn answer_to(serving: &RunningServer, bytes: &[u8]) -> String {
    let mut stream = raw(serving).await;
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    read_all(&mut stream).await
}

/// Whether the server still answers normally.
pub(crate) async fn is_healthy(serving: &RunningServer) -> bool {
    let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    answer_to(serving, request).await.ends_with("ok")
}

/// An HTTP/2 client, with many requests on one connection.
pub(crate) async fn multiplexed(serving: &RunningServer) -> SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(connect(serving, &[b"h2"]).await);
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // A small window, so that unread data stays in the server.
    builder.initial_stream_window_size(16 * 1024).max_concurrent_streams(20_000);
    let (sender, connection) = builder.handshake(stream).await.expect("an HTTP/2 client");
    tokio::spawn(connection);
    sender
}

/// Sends a request and returns when the response headers have arrived.
pub(crate) async fn send_get(sender: &mut SendRequest<Empty<Bytes>>, target: &str) -> Response<Incoming> {
    let request = Request::get(format!("https://localhost{target}")).body(Empty::new()).expect("a request");
    sender.ready().await.expect("an open connection");
    sender.send_request(request).await.expect("a response")
}
