//! Invalid kubeconfigs, and connections to a TLS server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::AUTHORIZATION;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{Call, ClientFactory, ClientOptions};

pub(super) fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn base64_of(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A kubeconfig made of the lines of its cluster and its user.
pub(super) fn kubeconfig(cluster: &[(&str, &str)], user: &[(&str, &str)]) -> String {
    let lines = |fields: &[(&str, &str)]| {
        fields.iter().fold(String::new(), |mut text, (name, value)| {
            write!(text, "\n    {name}: {value}").unwrap();
            text
        })
    };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
         contexts:\n- name: it\n  context: {{cluster: here, user: me}}\n\
         clusters:\n- name: here\n  cluster:{}\n\
         users:\n- name: me\n  user:{}\n",
        lines(cluster),
        if user.is_empty() { " {}".to_owned() } else { lines(user) },
    )
}

pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn open(&self, text: &str) -> Result<Connection, ConnectError> {
        Connection::open(Some(&self.write("config", text)), None, None)
    }
}

#[tokio::test]
async fn invalid_kubeconfig_is_reported_with_its_path() {
    let files = Files::new();
    let server = ("server", "https://127.0.0.1:6443");
    let missing = Connection::open(Some(Path::new("/nowhere/at/all")), None, None).err().unwrap();
    assert!(matches!(missing, ConnectError::Missing { .. }), "{missing}");
    assert_eq!(missing.to_string(), "kubeconfig /nowhere/at/all does not exist");

    let check = |text: &str, expected: &str| {
        let error = files.open(text).err().unwrap().to_string();
        assert!(error.contains("/config"), "without the path: {error}");
        assert!(error.contains(expected), "{expected:?} in {error}");
    };
    check("clusters: {", "it is no kubeconfig, see line");
    check("apiVersion: v1\nkind: Config\n", "no current-context");
    check("current-context: x\n", "there is no context \"x\"");
    check(&kubeconfig(&[server], &[]).replace("name: here", "name: there"), "there is no cluster \"here\"");
    check(&kubeconfig(&[("tls-server-name", "x")], &[]), "bad server address: it is missing");
    check(&kubeconfig(&[("server", "127.0.0.1:6443")], &[]), "neither http:// nor https://");
    check(&kubeconfig(&[server, ("certificate-authority-data", "'%%%'")], &[]), "bad certificate-authority");
    check(
        &kubeconfig(&[server, ("certificate-authority-data", &base64("no certificate"))], &[]),
        "bad certificate-authority: it holds no certificate",
    );
    check(&kubeconfig(&[server, ("certificate-authority", "/nowhere")], &[]), "bad certificate-authority");
    check(&kubeconfig(&[server], &[("client-certificate-data", &base64("x"))]), "bad client certificate");
    let user = [("client-certificate-data", &*base64("x")), ("client-key-data", &*base64("y"))];
    check(&kubeconfig(&[server], &user), "bad client certificate");
    check(&kubeconfig(&[server], &[("tokenFile", "/nowhere")]), "bad credentials");
    check(&kubeconfig(&[server, ("proxy-url", "ftp://proxy")], &[]), "bad proxy: proxy-url must begin with");
    check("apiVersion: v1\nkind: Pod\n", "it is of kind \"Pod\", not Config");
    let (certificate, _) = Server::start().await.client_certificate();
    let ca = base64(&certificate);
    let both = [server, ("insecure-skip-tls-verify", "true"), ("certificate-authority-data", &ca)];
    check(&kubeconfig(&both, &[]), "together with insecure-skip-tls-verify");
}

#[tokio::test]
async fn ambiguous_or_incomplete_user_is_refused() {
    let files = Files::new();
    let empty = files.write("empty", "\n");
    let check = |user: &[(&str, &str)], expected: &str| {
        let text = kubeconfig(&[("server", "https://127.0.0.1:6443")], user);
        let error = files.open(&text).err().unwrap().to_string();
        assert!(error.contains("bad credentials: ") && error.ends_with(expected), "{expected:?} in {error}");
    };
    check(
        &[("token", "t"), ("username", "u"), ("password", "p")],
        "there is a token and a password; only one of them can be used",
    );
    check(
        &[("token", "t"), ("as-groups", "[g]")],
        "as-uid, as-groups and as-user-extra say nothing without as",
    );
    check(&[("exec", "{interactiveMode: Never}")], "the exec plugin has no command");
    check(&[("exec", "{command: x, interactiveMode: Never}")], "the exec plugin has no apiVersion");
    let of_version =
        |version: &str| format!("{{command: x, apiVersion: client.authentication.k8s.io/{version}}}");
    check(&[("exec", &of_version("v1"))], "the exec plugin has no interactiveMode");
    let unknown = "the exec plugin has an unknown apiVersion \"client.authentication.k8s.io/v9\"";
    check(&[("exec", &of_version("v9"))], unknown);
    check(
        &[("exec", &of_version("v1beta1")), ("auth-provider", "{name: oidc, config: {}}")],
        "there is an exec plugin and an auth-provider; only one of them can be used",
    );
    check(
        &[("auth-provider", "{name: gcp, config: {cmd-path: /bin/true}}")],
        "there is no auth-provider \"gcp\", only \"oidc\"; use an exec plugin",
    );
    check(&[("auth-provider", "{name: oidc, config: {}}")], "failed OIDC: missing field id-token");
    check(&[("tokenFile", empty.to_str().unwrap())], "empty is empty");
}

#[tokio::test]
async fn invalid_kubeconfig_is_not_quoted() {
    let files = Files::new();
    let text = kubeconfig(&[("server", "https://127.0.0.1:6443")], &[("token", "hunter2\n  : [")]);
    let error = files.open(&text).err().unwrap();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

/// Proves RUN-21.
#[test]
fn user_agent_starts_like_the_originals_and_ends_with_the_component() {
    let agent = user_agent("shared-informers");
    let version = env!("CARGO_PKG_VERSION");
    assert!(agent.starts_with(&format!("kube-controller-manager/v1.37.1 ({}) ", platform())), "{agent}");
    assert!(agent.ends_with(&format!(") keleustes/{version}/shared-informers")), "{agent}");
}

/// A CA and a server that responds with the client's credentials. It refuses the token `refused` with 401.
pub(super) struct Server {
    pub(super) ca: CertifiedIssuer<'static, KeyPair>,
    address: std::net::SocketAddr,
    pub(super) acceptor: TlsAcceptor,
}

impl Server {
    pub(super) async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "ca");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();

        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(roots.into()).allow_unauthenticated().build().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut tls = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        tokio::spawn(Self::serve(listener, acceptor.clone()));
        Self { ca, address, acceptor }
    }

    async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
        loop {
            let (socket, peer) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let certificate = stream.get_ref().1.peer_certificates().map(|chain| base64_of(&chain[0]));
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let authorization = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap());
                let answer = serde_json::json!({
                    "version": format!("{:?}", request.version()),
                    "certified": certificate.is_some(),
                    "certificate": certificate,
                    "authorization": authorization,
                    "peer": peer.port(),
                    "uri": request.uri().path(),
                    // Makes the same response that of a service account and of a token request.
                    "metadata": {"namespace": "kube-system", "name": "job-controller"},
                    "spec": {"expirationSeconds": 3600},
                    "status": {"token": "of-the-controller"},
                });
                let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
                if authorization == Some("Bearer refused") {
                    *response.status_mut() = StatusCode::UNAUTHORIZED;
                }
                let hangs = request.uri().path() == "/for-ever";
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                // The API servers' default.
                builder.http2().max_concurrent_streams(100);
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    pub(super) fn client_certificate(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "system:kube-controller-manager");
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Proves RUN-23.
#[tokio::test]
async fn manager_presents_its_certificate_and_controllers_do_not() {
    let server = Server::start().await;
    let (certificate, key) = server.client_certificate();
    let (ca, url) = (server.ca.pem(), server.url());
    let text = kubeconfig(
        &[("server", &url), ("certificate-authority-data", &base64(&ca))],
        &[("client-certificate-data", &base64(&certificate)), ("client-key-data", &base64(&key))],
    );
    let connection = Files::new().open(&text).unwrap();
    assert_eq!(connection.host(), server.address.to_string());
    assert_eq!(connection.embedded_ca(), Some(ca.as_bytes()));

    let factory = ClientFactory::new(connection.clone(), ClientOptions::default());
    let call = Call::raw(http::Method::GET, "/version");
    let one = call.send(&factory.root("a")).await.unwrap();
    assert_eq!((&one["certified"], &one["version"]), (&true.into(), &"HTTP/2.0".into()));
    let two = call.send(&factory.root("b")).await.unwrap();
    assert_eq!(two["peer"], one["peer"], "clients share a connection");
    let anonymous = kube::Client::new(connection.anonymous(), "default");
    assert_eq!(call.send(&anonymous).await.unwrap()["certified"], false);
}

/// A server that sees both takes the certificate, and the controller would act as the manager.
///
/// Proves RUN-23.
#[tokio::test]
async fn controller_client_sends_its_token_and_never_the_managers_certificate() {
    let server = Server::start().await;
    let (certificate, key) = server.client_certificate();
    let text = kubeconfig(
        &[("server", &server.url()), ("certificate-authority-data", &base64(&server.ca.pem()))],
        &[("client-certificate-data", &base64(&certificate)), ("client-key-data", &base64(&key))],
    );
    let options = ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() };
    let factory = ClientFactory::new(Files::new().open(&text).unwrap(), options);
    let call = Call::raw(http::Method::GET, "/version");
    // Before and after the manager's own connection exists, which must not be shared.
    for _ in 0..2 {
        let answer = call.send(&factory.for_controller("job-controller")).await.unwrap();
        assert_eq!(answer["certified"], false);
        assert_eq!(answer["authorization"], "Bearer of-the-controller");
        let own = call.send(&factory.root("a")).await.unwrap();
        assert_eq!((&own["certified"], &own["authorization"]), (&true.into(), &serde_json::Value::Null));
        assert_ne!(own["peer"], answer["peer"]);
    }
}

/// A cluster with many kinds has more watches than a server accepts on one connection.
#[tokio::test]
async fn request_is_served_while_hundreds_of_watches_are_open() {
    let server = Server::start().await;
    let cluster = [("server", &*server.url()), ("certificate-authority-data", &*base64(&server.ca.pem()))];
    let connection = Files::new().open(&kubeconfig(&cluster, &[])).unwrap();
    let factory = ClientFactory::new(connection, ClientOptions::default());
    let client = factory.root("a");
    let watches: Vec<_> = (0..250)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { Call::raw(http::Method::GET, "/for-ever").send(&client).await })
        })
        .collect();
    // All of them are in flight.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let call = Call::raw(http::Method::GET, "/version");
    let answer = tokio::time::timeout(std::time::Duration::from_secs(10), call.send(&client)).await;
    assert_eq!(answer.expect("a response in time").unwrap()["version"], "HTTP/2.0");
    watches.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Proves RCA-2.
#[tokio::test]
async fn credential_files_and_master_override_work() {
    let server = Server::start().await;
    let files = Files::new();
    let (certificate, key) = server.client_certificate();
    files.write("ca.crt", &server.ca.pem());
    files.write("me.crt", &certificate);
    files.write("me.key", &key);
    let text = kubeconfig(
        &[("server", "https://nowhere.invalid"), ("certificate-authority", "ca.crt")],
        &[("client-certificate", "me.crt"), ("client-key", "me.key")],
    );
    let path = files.write("config", &text);
    let connection = Connection::open(Some(&path), Some(&format!("{}/prefix/", server.url())), None).unwrap();
    assert_eq!(connection.embedded_ca(), None, "a path is not data");
    let factory = ClientFactory::new(connection, ClientOptions::default());
    let answer = Call::raw(http::Method::GET, "/version").send(&factory.root("a")).await.unwrap();
    assert_eq!((&answer["certified"], &answer["uri"]), (&true.into(), &"/prefix/version".into()));
}

/// Proves RUN-4.
#[tokio::test]
async fn client_certificate_is_reloaded_from_disk() {
    let server = Server::start().await;
    let files = Files::new();
    let write = |(certificate, key): (String, String)| {
        files.write("me.crt", &certificate);
        files.write("me.key", &key);
    };
    write(server.client_certificate());
    let ca = base64(&server.ca.pem());
    let text = kubeconfig(
        &[("server", &server.url()), ("certificate-authority-data", &ca)],
        &[("client-certificate", "me.crt"), ("client-key", "me.key")],
    );
    let client = ClientFactory::new(files.open(&text).unwrap(), ClientOptions::default()).root("a");
    let call = Call::raw(http::Method::GET, "/version");
    let peer = async || call.send(&client).await.unwrap()["peer"].clone();
    let first = peer().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert_eq!(peer().await, first, "the files have not changed");

    files.write("me.crt", "not a certificate");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert_eq!(peer().await, first, "an invalid pair keeps the valid one in use");

    write(server.client_certificate());
    assert_eq!(peer().await, first, "files are not read for each request");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert_ne!(peer().await, first, "a new certificate uses a new connection");
}

/// Waits for a minute of real time: kube reads both files by the clocks of the system.
///
/// Proves RUN-4.
#[tokio::test]
async fn token_and_ca_files_are_read_again_after_a_minute() {
    let (server, other) = (Server::start().await, Server::start().await);
    let files = Files::new();
    let (url, ca) = (server.url(), base64(&server.ca.pem()));
    files.write("token", "first");
    let with_token =
        kubeconfig(&[("server", &url), ("certificate-authority-data", &ca)], &[("tokenFile", "token")]);
    let with_token = ClientFactory::new(files.open(&with_token).unwrap(), ClientOptions::default()).root("a");
    files.write("ca.crt", &other.ca.pem());
    let with_ca = kubeconfig(&[("server", &url), ("certificate-authority", "ca.crt")], &[]);
    let with_ca = ClientFactory::new(files.open(&with_ca).unwrap(), ClientOptions::default()).root("b");
    let call = Call::raw(http::Method::GET, "/version");
    let token = async || call.send(&with_token).await.unwrap()["authorization"].clone();
    assert_eq!(token().await, "Bearer first");
    let refused = call.send(&with_ca).await.unwrap_err();
    assert!(refused.message.contains("certificate"), "{refused}");

    files.write("token", "second");
    files.write("ca.crt", &server.ca.pem());
    assert_eq!(token().await, "Bearer first", "the file is not read for each request");
    assert!(call.send(&with_ca).await.is_err(), "the file is not read for each connection");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(token().await, "Bearer second");
    call.send(&with_ca).await.expect("the rotated CA is trusted");
}

/// As `base64` writes it.
#[tokio::test]
async fn base64_of_a_kubeconfig_may_be_broken_into_lines() {
    let (server, files) = (Server::start().await, Files::new());
    let (certificate, key) = server.client_certificate();
    let broken = |text: &str| {
        let lines: Vec<_> = base64(text).as_bytes().chunks(76).map(<[u8]>::to_vec).collect();
        format!("\"{}\\r\\n\"", String::from_utf8(lines.join(&b"\\n"[..])).unwrap())
    };
    let text = kubeconfig(
        &[("server", &server.url()), ("certificate-authority-data", &broken(&server.ca.pem()))],
        &[("client-certificate-data", &broken(&certificate)), ("client-key-data", &broken(&key))],
    );
    let connection = files.open(&text).unwrap();
    assert_eq!(connection.embedded_ca(), Some(server.ca.pem().as_bytes()));
    let client = ClientFactory::new(connection, ClientOptions::default()).root("a");
    let answer = Call::raw(http::Method::GET, "/version").send(&client).await.unwrap();
    assert_eq!(answer["certified"], true);
}

/// `kubectl create token` ends its output with a newline, and so does every editor.
#[tokio::test]
async fn token_file_may_end_with_a_newline_and_precedes_the_token() {
    let (server, files) = (Server::start().await, Files::new());
    let cluster = [("server", &*server.url()), ("certificate-authority-data", &*base64(&server.ca.pem()))];
    files.write("token", " of-the-file\n");
    let call = Call::raw(http::Method::GET, "/version");
    let sent = async |user: &[(&str, &str)]| {
        let connection = files.open(&kubeconfig(&cluster, user)).unwrap();
        let client = ClientFactory::new(connection, ClientOptions::default()).root("a");
        call.send(&client).await.unwrap()["authorization"].clone()
    };
    assert_eq!(sent(&[("tokenFile", "token")]).await, "Bearer of-the-file");
    assert_eq!(sent(&[("tokenFile", "token"), ("token", "other")]).await, "Bearer of-the-file");
    assert_eq!(sent(&[("tokenFile", "absent"), ("token", "other")]).await, "Bearer other");
}

#[tokio::test]
async fn server_certificate_of_another_ca_is_refused() {
    let (server, other) = (Server::start().await, Server::start().await);
    let text = kubeconfig(
        &[("server", &server.url()), ("certificate-authority-data", &base64(&other.ca.pem()))],
        &[],
    );
    let factory = ClientFactory::new(Files::new().open(&text).unwrap(), ClientOptions::default());
    let failure = Call::raw(http::Method::GET, "/version").send(&factory.root("a")).await.unwrap_err();
    assert!(!failure.is_status_reply(), "{failure}");
    assert!(failure.message.contains("certificate"), "{failure}");
}
