//! Credentials from plugins and token issuers work and never reach the log.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use keleustes_apiserver::{ApiServer, User};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

/// An API server that accepts one token of one user.
struct World {
    server: ApiServer,
    serving: RunningServer,
    folder: tempfile::TempDir,
}

/// A running manager, killed with its test.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    async fn knowing(token: &str) -> Self {
        let ann = User::new("ann", &["system:masters"]);
        let server = ApiServer::builder().rbac(true).token(token, ann).build();
        let address = "127.0.0.1:0".parse().unwrap();
        let serving =
            serve(server.clone(), address, Pki::generate().unwrap(), Limits::default()).await.unwrap();
        Self { server, serving, folder: tempfile::tempdir().unwrap() }
    }

    /// Starts a manager at the highest verbosity.
    fn manage(&self, user: &str, variables: &[(&str, &str)]) -> Manager {
        let kubeconfig = self.folder.path().join("kubeconfig");
        let cluster = format!("server: 'https://{}', insecure-skip-tls-verify: true", self.serving.address());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"));
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", kubeconfig.display()));
        }
        command
            .args(["--bind-address=127.0.0.1", "--v=10", "--allow-missing-controllers"])
            .arg(format!("--secure-port={port}"));
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        Manager(command.stderr(log.try_clone().unwrap()).stdout(log).spawn().unwrap())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits until the manager leads, authenticated as that user.
    async fn until_it_leads(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self
            .server
            .object("leases.coordination.k8s.io", "kube-system", "kube-controller-manager")
            .is_none()
        {
            assert!(Instant::now() < deadline, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let strangers: Vec<_> = self.server.requests().into_iter().filter(|one| one.user != "ann").collect();
        assert!(strangers.is_empty(), "{strangers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_plugin_is_called_once_for_three_kubeconfigs_and_its_token_is_not_logged() {
    let world = World::knowing("hunter2").await;
    let asked = world.folder.path().join("asked");
    let script = format!(
        "echo >> {}; echo '{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\
         \"status\":{{\"token\":\"hunter2\"}}}}'",
        asked.display()
    );
    std::fs::write(world.folder.path().join("script"), script).unwrap();
    let script = world.folder.path().join("script");
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}'], interactiveMode: Never}}",
        script.display()
    );
    let _manager = world.manage(&exec, &[]);
    world.until_it_leads().await;
    assert_eq!(std::fs::read_to_string(asked).unwrap(), "\n");
    assert!(!world.log().contains("hunter2"), "{}", world.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_exec_plugin_ends_the_start_with_its_own_message() {
    let world = World::knowing("hunter2").await;
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never, \
                args: ['-c', 'echo no network >&2; echo hunter2; exit 3']}";
    let mut manager = world.manage(exec, &[]);
    assert_eq!(manager.0.wait().unwrap().code(), Some(1));
    let log = world.log();
    assert!(log.lines().any(|line| line == "no network"), "{log}");
    let last = log.lines().last().unwrap();
    assert!(
        last.contains("bad credentials: getting credentials: exec: executable sh failed with exit status: 3")
    );
    assert!(!log.lines().any(|line| line == "hunter2") && !last.contains("hunter2"), "{log}");
    assert_eq!(world.server.requests().len(), 0);
}

/// An id token with this expiry; the test server does not verify signatures.
fn id_token(ends_at: Timestamp) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.hunter2", part(json!({"alg": "none"})), part(json!({"exp": ends_at.as_second()})))
}

/// An issuer of id tokens over HTTPS on this host: its address, its certificate, and the requests it received.
fn issuer(id_token: String) -> (String, String, Arc<Mutex<Vec<String>>>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let pem = certificate.pem();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (asked, endpoint) = (Arc::new(Mutex::new(Vec::new())), format!("{url}/token"));
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut client = BufReader::new(StreamOwned::new(connection, socket.unwrap()));
            let (mut head, mut length) = (String::new(), 0);
            while client.read_line(&mut head).unwrap_or_default() > 2 {
                let last = head.lines().last().unwrap_or_default().to_lowercase();
                length = last.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
            }
            let mut body = vec![0; length];
            client.read_exact(&mut body).unwrap();
            let asked = format!("{} {}", head.lines().next().unwrap(), String::from_utf8(body).unwrap());
            let answer = if asked.starts_with("GET /.well-known/openid-configuration ") {
                json!({"token_endpoint": endpoint})
            } else {
                json!({"id_token": id_token})
            }
            .to_string();
            notes.lock().unwrap().push(asked);
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", answer.len());
            client.get_mut().write_all((head + &answer).as_bytes()).unwrap();
        }
    });
    (url, pem, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_id_token_is_sent() {
    let token = id_token(Timestamp::now() + SignedDuration::from_hours(1));
    let world = World::knowing(&token).await;
    let _manager =
        world.manage(&format!("auth-provider: {{name: oidc, config: {{id-token: {token}}}}}"), &[]);
    world.until_it_leads().await;
    assert!(!world.log().contains("hunter2"), "{}", world.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_id_token_is_refreshed_at_its_issuer() {
    let old = id_token(Timestamp::now() - SignedDuration::from_hours(1));
    let fresh = id_token(Timestamp::now() + SignedDuration::from_hours(1));
    let world = World::knowing(&fresh).await;
    let (url, certificate, asked) = issuer(fresh);
    let roots = world.folder.path().join("roots");
    std::fs::write(&roots, certificate).unwrap();
    let user = format!(
        "auth-provider: {{name: oidc, config: {{id-token: {old}, idp-issuer-url: '{url}', client-id: me, \
         client-secret: hunter2, refresh-token: hunter2}}}}"
    );
    let _manager = world.manage(&user, &[("SSL_CERT_FILE", roots.to_str().unwrap())]);
    world.until_it_leads().await;
    let asked = asked.lock().unwrap().clone();
    assert!(asked.len() >= 2, "{asked:?}");
    assert_eq!(asked[0], "GET /.well-known/openid-configuration HTTP/1.1 ");
    assert_eq!(asked[1], "POST /token HTTP/1.1 grant_type=refresh_token&refresh_token=hunter2");
    assert!(!world.log().contains("hunter2"), "{}", world.log());
}
