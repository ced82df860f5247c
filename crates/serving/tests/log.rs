//! Log messages. A separate test binary, because a process has one log.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use keleustes_serving::{
    Access, AuthenticationOptions, AuthorizationOptions, CertificateSource, DelegatingClients, HealthChecks,
    PageOptions, Pages, Server, ServingOptions,
};
use prometheus::Registry;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// The log of this process, captured from the first test that reads it.
fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .init();
        log
    })
}

async fn without_kubeconfigs() -> Access {
    let (authentication, authorization) = (AuthenticationOptions::default(), AuthorizationOptions::default());
    let rng = fastrand::Rng::with_seed(1);
    let delegates = DelegatingClients::default();
    Access::open(&authentication, &authorization, delegates, &Registry::new(), rng).await.unwrap()
}

/// Proves SRV-3, SRV-96.
#[tokio::test]
async fn without_kubeconfigs_disabled_authentication_is_logged() {
    let log = log();
    without_kubeconfigs().await;
    let text = log.text();
    let lookup = "configmap/extension-apiserver-authentication in kube-system with: ";
    for words in [
        format!("{lookup}client certificate authentication will not work"),
        format!("{lookup}request-header authentication will not work"),
        "SubjectAccessReview will not work".to_owned(),
    ] {
        assert!(text.contains(&words), "{words} is not in\n{text}");
    }
}

/// Starts a server and requests this page with a token; returns the server's address and the response.
async fn serve_and_get(page: &str) -> (SocketAddr, String) {
    let directory = tempfile::tempdir().unwrap();
    let options = ServingOptions {
        bind_address: [127, 0, 0, 1].into(),
        certificate: CertificateSource::Directory(directory.path().to_owned()),
        ..ServingOptions::default()
    };
    let pages = Pages::new(HealthChecks::new(), Registry::new(), SystemTime::now(), PageOptions::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::from_listener(listener, &options, pages, without_kubeconfigs().await).unwrap();
    let address = server.address();
    tokio::spawn(server.run(std::future::pending()));

    let chain = std::fs::read(directory.path().join("kube-controller-manager.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::pem_slice_iter(&chain).last().unwrap().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let request = format!(
        "GET {page} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: oar\r\n\
         Authorization: Bearer hunter2\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    (address, String::from_utf8(response).unwrap())
}

/// Proves SRV-3, SRV-95.
#[tokio::test]
async fn serving_and_requests_are_logged() {
    let log = log();
    let (address, response) = serve_and_get("/metrics?a=b").await;
    assert!(response.starts_with("HTTP/1.1 403 "), "without a kubeconfig a token is ignored");

    let text = log.text();
    assert!(text.contains(&format!("Serving securely on {address}")), "{text}");
    let line = text.lines().find(|line| line.contains("HTTP verb=GET uri=/metrics?a=b ")).unwrap_or_default();
    for words in ["latency=", "user_agent=\"oar\"", "status=403"] {
        assert!(line.contains(words), "{words} is not in\n{text}");
    }
    assert!(!text.contains("hunter2"), "tokens are never logged");
}

/// Proves SRV-26. Anonymous clients choose the names, so they are not text for the log.
#[tokio::test]
async fn names_of_excluded_health_checks_are_not_logged() {
    let log = log();
    // The log quotes the encoded URI of a request, so the decoded name can only come from the check.
    let (_, response) = serve_and_get("/healthz?verbose&exclude=rowing%2Fboat").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let warning = "warn: some health checks cannot be excluded: no matches for \"rowing/boat\"";
    assert!(response.contains(warning), "{response}");

    let text = log.text();
    assert!(text.contains("uri=/healthz?verbose&exclude=rowing%2Fboat "), "{text}");
    assert!(!text.contains("rowing/boat"), "{text}");
}
