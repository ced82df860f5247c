//! A client that sends the same requests to both managers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A client certificate and its key.
pub(crate) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Response headers that are compared.
const HEADERS: [&str; 7] = [
    "cache-control",
    "x-content-type-options",
    "location",
    "warning",
    "x-go-pprof",
    "content-encoding",
    "content-length",
];

/// A client identity.
pub(crate) struct ClientIdentity {
    /// The name in the list of differences.
    pub(crate) name: &'static str,
    /// Request headers with credentials.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The client certificate.
    pub(crate) pair: Option<Pair>,
}

/// A request.
pub(crate) struct TestRequest {
    pub(crate) method: Method,
    pub(crate) target: &'static str,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: &'static str,
}

/// The compared parts of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) headers: BTreeMap<&'static str, String>,
    pub(crate) body: String,
}

impl TestRequest {
    pub(crate) fn get(target: &'static str) -> Self {
        Self { method: Method::GET, target, headers: &[], body: "" }
    }

    /// The name in the list of differences.
    pub(crate) fn name(&self) -> String {
        let headers = self.headers.iter().map(|(name, value)| format!(" [{name}: {value}]"));
        let body = if self.body.is_empty() { String::new() } else { format!(" {:?}", self.body) };
        format!("{} {}{}{body}", self.method, self.target, headers.collect::<String>())
    }
}

/// Sends one request on a new connection.
pub(crate) async fn send(
    address: SocketAddr,
    identity: &ClientIdentity,
    request: Request<Full<Bytes>>,
) -> Response<Incoming> {
    let stream = connect(address, identity).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

pub(crate) async fn request(
    address: SocketAddr,
    identity: &ClientIdentity,
    test_request: &TestRequest,
) -> TestResponse {
    let mut request = Request::builder()
        .method(test_request.method.clone())
        .uri(test_request.target)
        .header("Host", "localhost");
    for (name, value) in test_request.headers {
        request = request.header(*name, *value);
    }
    for (name, value) in &identity.headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::from_static(test_request.body.as_bytes()))).unwrap();
    let (head, body) = send(address, identity, request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    TestResponse {
        status: head.status.as_u16(),
        content_type: header("content-type").unwrap_or_default(),
        headers: HEADERS.iter().filter_map(|name| Some((*name, header(name)?))).collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

async fn connect(
    address: SocketAddr,
    identity: &ClientIdentity,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
    let mut config = match &identity.pair {
        Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Accepts any server certificate: both managers use self-signed ones.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
