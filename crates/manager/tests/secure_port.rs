//! The secure port of the running program: anonymous clients can neither delay the renewal of the Lease nor keep a health
//! probe out, and requests are logged.
//!
//! `cargo test -p keleustes-manager --test secure_port -- --nocapture` prints the measured delays.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use keleustes_apiserver::{ApiServer, User};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

/// The configured time between two renewals.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// How late a renewal or the answer to a probe may be; a Lease is lost after ten seconds.
const LATE_MAX: Duration = Duration::from_secs(3);
const FLOOD: Duration = Duration::from_secs(6);

/// Accepts every certificate: the manager generates its own.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A client without sessions to resume, so that each connection costs the server a whole handshake.
fn connect(address: SocketAddr) -> std::io::Result<Tls> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate));
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config.with_no_client_auth()), name).unwrap();
    let socket = TcpStream::connect_timeout(&address, LATE_MAX)?;
    socket.set_read_timeout(Some(LATE_MAX))?;
    socket.set_write_timeout(Some(LATE_MAX))?;
    Ok(StreamOwned::new(session, socket))
}

/// The status line of the response to a request.
fn get(address: SocketAddr, path: &str, header: &str) -> std::io::Result<String> {
    let mut tls = connect(address)?;
    tls.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(tls).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// The whole response to a request, as far as it can be read.
fn read(address: SocketAddr, path: &str) -> String {
    let mut text = Vec::new();
    if let Ok(mut tls) = connect(address) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = tls.write_all(request.as_bytes()).and_then(|()| tls.read_to_end(&mut text));
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn handshake(address: SocketAddr, _: usize) {
    if let Ok(mut tls) = connect(address) {
        let _ = tls.flush();
        // An answer means that the handshake is complete.
        let _ = tls.write_all(b"x\r\n\r\n").and_then(|()| tls.read(&mut [0; 16]));
    }
}

fn random_token(address: SocketAddr, number: usize) {
    let _ =
        get(address, "/metrics", &format!("Authorization: Bearer random-{number}\r\nConnection: close\r\n"));
}

/// The flag of a manager that leads without a Lease.
const NO_ELECTION: &str = "--leader-elect=false";

/// A manager that leads, and its API server.
struct Cluster {
    server: ApiServer,
    address: SocketAddr,
    manager: Child,
    _serving: RunningServer,
    directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

impl Cluster {
    async fn start(more: &[&str]) -> Self {
        let server =
            ApiServer::builder().rbac(true).token("t", User::new("ann", &["system:masters"])).build();
        let address = "127.0.0.1:0".parse().unwrap();
        let serving =
            serve(server.clone(), address, Pki::generate().unwrap(), Limits::default()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let url = serving.address();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://{url}', insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"));
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", kubeconfig.display()));
        }
        command.arg(format!("--leader-elect-retry-period={}ms", RETRY_PERIOD.as_millis()));
        command.args(["--bind-address=127.0.0.1", "--authentication-tolerate-lookup-failure"]);
        command.arg("--allow-missing-controllers");
        command.args(more);
        command.arg(format!("--secure-port={port}")).stdin(Stdio::null());
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let manager = command.stderr(log.try_clone().unwrap()).stdout(log).spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let cluster = Self { server, address, manager, _serving: serving, directory };
        let deadline = Instant::now() + Duration::from_secs(60);
        let elects = !more.contains(&NO_ELECTION);
        while elects && cluster.renewed().is_none() || get(address, "/healthz", "").is_err() {
            assert!(Instant::now() < deadline, "the manager does not lead");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        cluster
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// The time of the last renewal, as the Lease has it.
    fn renewed(&self) -> Option<String> {
        let lease =
            self.server.object("leases.coordination.k8s.io", "kube-system", "kube-controller-manager")?;
        Some(lease["spec"]["renewTime"].as_str()?.to_owned())
    }

    /// The longest time between two renewals, and the longest answer to a probe, while `client` runs in many threads.
    async fn under(&self, client: fn(SocketAddr, usize)) -> (Duration, Duration, usize) {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let address = self.address;
        let flood: Vec<_> = (0..24)
            .map(|_| {
                let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        client(address, done.fetch_add(1, Ordering::Relaxed));
                    }
                })
            })
            .collect();
        let probes = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut slowest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let asked_at = Instant::now();
                    assert_eq!(get(address, "/healthz", "").unwrap(), "HTTP/1.1 200 OK");
                    slowest = slowest.max(asked_at.elapsed());
                    std::thread::sleep(Duration::from_millis(100));
                }
                slowest
            })
        };
        let (ends_at, mut longest) = (Instant::now() + FLOOD, Duration::ZERO);
        let (mut renewed, mut since) = (self.renewed(), Instant::now());
        while Instant::now() < ends_at {
            tokio::time::sleep(Duration::from_millis(10)).await;
            longest = longest.max(since.elapsed());
            if self.renewed() != renewed {
                (renewed, since) = (self.renewed(), Instant::now());
            }
        }
        stop.store(true, Ordering::Relaxed);
        let slowest = probes.join().expect("every probe is answered");
        flood.into_iter().for_each(|thread| thread.join().unwrap());
        (longest, slowest, done.load(Ordering::Relaxed))
    }
}

/// Proves SRV-17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_renewed_and_probes_are_answered_under_a_flood_of_anonymous_clients() {
    let mut cluster = Cluster::start(&[]).await;
    let nothing: fn(SocketAddr, usize) = |_, _| std::thread::sleep(Duration::from_millis(50));
    for (name, client) in
        [("no clients", nothing), ("TLS handshakes", handshake), ("random bearer tokens", random_token)]
    {
        let (renewal, probe, requests) = cluster.under(client).await;
        println!(
            "{name}: {requests} in {FLOOD:?}, renewals at most {renewal:?} apart ({RETRY_PERIOD:?} wanted), \
             slowest probe {probe:?}"
        );
        assert!(renewal < RETRY_PERIOD + LATE_MAX, "{name}: {renewal:?} between two renewals");
        assert!(probe < LATE_MAX, "{name}: a probe took {probe:?}");
        assert!(cluster.manager.try_wait().unwrap().is_none(), "{name}: the manager ended");
    }
}

/// Proves SRV-21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_has_a_check_of_the_election_only_if_there_is_one() {
    for (more, elects) in [(&[][..], true), (&[NO_ELECTION][..], false)] {
        let cluster = Cluster::start(more).await;
        let report = || read(cluster.address, "/healthz?verbose");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !report().contains("[+]serviceaccount-controller ok\n") {
            assert!(Instant::now() < deadline, "no controller has started: {}", report());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(report().contains("healthz check passed"), "{}", report());
        assert_eq!(report().contains("[+]leaderElection ok\n"), elects, "{}", report());
        assert!(!report().contains("ping") && !report().contains("informer-sync"), "{}", report());
    }
}

/// Proves SRV-95, EVT-55.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_events_are_logged_from_verbosity_3_on() {
    for (verbosity, logged) in [(2, false), (3, true)] {
        let cluster = Cluster::start(&[&format!("--v={verbosity}")]).await;
        assert_eq!(
            get(cluster.address, "/metrics", "Connection: close\r\n").unwrap(),
            "HTTP/1.1 403 Forbidden"
        );
        let replica_set = serde_json::json!({"kind": "ReplicaSet", "apiVersion": "apps/v1",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        let namespace =
            serde_json::json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}});
        let _ = cluster.server.seed(namespace);
        cluster.server.seed(replica_set).unwrap();
        let (request, event) = ("\"HTTP\" verb=\"GET\" uri=\"/metrics\"", "kind=\"ReplicaSet\"");
        let deadline = Instant::now() + Duration::from_secs(if logged { 30 } else { 3 });
        let seen = || [request, event].map(|words| cluster.log().contains(words));
        while seen() != [true, true] && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(seen(), [logged, logged], "verbosity {verbosity}: {}", cluster.log());
    }
}

/// Proves SRV-85.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ownership_graph_is_served_below_the_garbage_collectors_path_only() {
    let cluster = Cluster::start(&[]).await;
    let page = |path: &str| {
        let path = format!("/debug/controllers/garbage-collector-controller{path}");
        get(cluster.address, &path, "Authorization: Bearer t\r\nConnection: close\r\n").unwrap()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while page("/graph") != "HTTP/1.1 200 OK" {
        assert!(Instant::now() < deadline, "{}", page("/graph"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(page("/graph?uid=a&uid=b"), "HTTP/1.1 200 OK");
    for other in ["", "/", "/graph/x", "/other"] {
        assert_eq!(page(other), "HTTP/1.1 404 Not Found", "{other}");
    }
}
