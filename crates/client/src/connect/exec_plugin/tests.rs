//! Exec plugins as real programs, with a TLS server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use keleustes_objects::ErrorReason;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::connect::tests::{Files, Server, base64, kubeconfig};
use crate::connect::{ConnectError, ConnectionObserver, ExecPluginStatus};
use crate::layers::MayWrite;
use crate::{Call, ClientFactory, ClientOptions, Connection};

const VERSION: &str = "client.authentication.k8s.io/v1";

/// A server, the files of an exec plugin and the recorded notifications.
struct PluginTest {
    server: Server,
    files: Files,
    notifications: Arc<Notifications>,
}

#[derive(Default)]
struct Notifications(Mutex<Vec<String>>);

impl Notifications {
    fn record(&self, record: String) {
        self.0.lock().push(record);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl ConnectionObserver for Notifications {
    fn exec_plugin_called(&self, end: ExecPluginStatus) {
        self.record(format!("{end:?}"));
    }

    fn exec_plugin_certificate_expires(&self, origin: &str, at: Option<Timestamp>) {
        assert!(origin.starts_with("kubeconfig /") && origin.ends_with("/config"), "{origin}");
        self.record(match at {
            Some(at) => format!("certificate until {}", at.strftime("%Y")),
            None => "no certificate".to_owned(),
        });
    }

    fn exec_plugin_certificate_rotated(&self, age: Duration) {
        self.record(format!("certificate replaced after {} days", age.as_secs() / 86_400));
    }
}

impl PluginTest {
    async fn new() -> Self {
        let test = Self { server: Server::start().await, files: Files::new(), notifications: Arc::default() };
        // A shell with a script, because a program that was just written may still be open in a child process
        // of another test, and then cannot be executed (ETXTBSY).
        std::os::unix::fs::symlink("/bin/sh", test.files.path().join("plugin")).unwrap();
        test
    }

    /// A plugin that records its call and then runs these lines.
    fn plugin(&self, lines: &str) {
        let here = self.files.path().display();
        self.files.write("script", &format!("cd {here}\necho >> calls\n{lines}\n"));
    }

    /// The plugin's `exec` configuration.
    fn exec(&self) -> String {
        let script = self.files.path().join("script");
        exec("./plugin").replace('}', &format!(", args: ['{}']}}", script.display()))
    }

    /// Sets the status that the plugin returns from now on.
    fn returns(&self, status: &Value) {
        let answer = json!({"kind": "ExecCredential", "apiVersion": VERSION, "status": status});
        self.files.write("answer", &answer.to_string());
    }

    fn calls(&self) -> usize {
        let calls = std::fs::read_to_string(self.files.path().join("calls"));
        calls.map(|calls| calls.lines().count()).unwrap_or_default()
    }

    fn connect(&self, exec: &str) -> Result<Connection, ConnectError> {
        let ca = base64(&self.server.ca.pem());
        let cluster = [("server", &*self.server.url()), ("certificate-authority-data", &ca)];
        let text = kubeconfig(&cluster, &[("exec", exec)]);
        Connection::open(Some(&self.files.write("config", &text)), None, Some(self.notifications.clone()))
    }

    /// A connection with a plugin that prints what is in the file `answer`.
    fn with_plugin(&self) -> Connection {
        self.plugin("cat answer");
        self.connect(&self.exec()).unwrap()
    }
}

fn exec(command: &str) -> String {
    format!("{{apiVersion: {VERSION}, command: {command}, interactiveMode: Never}}")
}

fn call() -> Call {
    Call::raw(Method::GET, "/version")
}

fn root(connection: &Connection) -> kube::Client {
    ClientFactory::new(connection.clone(), ClientOptions::default()).root("a")
}

fn in_seconds(seconds: i64) -> String {
    (Timestamp::now() + SignedDuration::from_secs(seconds)).to_string()
}

#[tokio::test]
async fn exec_plugin_token_is_used_and_shared_by_requests() {
    let test = PluginTest::new().await;
    let client = root(&test.with_plugin());
    assert_eq!(test.calls(), 0, "no request has been sent");
    test.returns(&json!({"token": "one"}));
    let (one, other) = (call(), call());
    let (a, b) = tokio::join!(one.send(&client), other.send(&client));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((&a["authorization"], &b["authorization"]), (&"Bearer one".into(), &"Bearer one".into()));
    assert_eq!((&a["certified"], test.calls()), (&false.into(), 1), "concurrent requests cause one call");
    assert_eq!(test.notifications.take(), ["NoError", "no certificate"]);
}

/// The plugin may run for a minute, and the lease be lost meanwhile.
#[tokio::test]
async fn write_that_waits_for_the_exec_plugin_is_checked_afterwards() {
    let test = PluginTest::new().await;
    let connection = test.with_plugin();
    test.returns(&json!({"token": "one"}));
    let called = test.notifications.clone();
    let may_write: MayWrite = Arc::new(move || called.0.lock().is_empty());
    let factory = ClientFactory::new(connection, ClientOptions::default()).with_write_fence(may_write);
    let client = factory.root("a");
    let failure = Call::raw(Method::POST, "/version").send(&client).await.unwrap_err();
    assert_eq!((failure.message.as_str(), test.calls()), ("not sent: this process may no longer write", 1));
    assert!(call().send(&client).await.is_ok(), "reads are sent");
}

#[tokio::test]
async fn exec_plugin_is_called_again_after_its_token_expired() {
    let test = PluginTest::new().await;
    let client = root(&test.with_plugin());
    test.returns(&json!({"token": "one", "expirationTimestamp": in_seconds(3600)}));
    for _ in 0..3 {
        assert_eq!(call().send(&client).await.unwrap()["authorization"], "Bearer one");
    }
    assert_eq!(test.calls(), 1);

    let ended = PluginTest::new().await;
    let client = root(&ended.with_plugin());
    ended.returns(&json!({"token": "one", "expirationTimestamp": in_seconds(-1)}));
    let first = call().send(&client).await.unwrap();
    ended.returns(&json!({"token": "two"}));
    let second = call().send(&client).await.unwrap();
    assert_eq!(
        (&first["authorization"], &second["authorization"]),
        (&"Bearer one".into(), &"Bearer two".into())
    );
    assert_eq!(first["peer"], second["peer"], "a new token uses the same connection");
    assert_eq!(ended.calls(), 2);
}

#[tokio::test]
async fn exec_plugin_is_called_again_after_a_401() {
    let test = PluginTest::new().await;
    let connection = test.with_plugin();
    let client = root(&connection);
    test.returns(&json!({"token": "refused"}));
    connection.prefetch_credentials().await.unwrap();
    test.returns(&json!({"token": "accepted"}));
    let failure = call().send(&client).await.unwrap_err();
    assert_eq!((failure.reason, test.calls()), (ErrorReason::Unauthorized, 2));
    assert_eq!(call().send(&client).await.unwrap()["authorization"], "Bearer accepted");
    assert_eq!(test.calls(), 2);
    // Controllers use their own tokens and not the plugin's.
    let anonymous = kube::Client::new(connection.anonymous(), "default");
    assert_eq!(call().send(&anonymous).await.unwrap()["authorization"], Value::Null);
}

#[tokio::test]
async fn exec_plugin_certificate_is_used_on_its_own_connections() {
    let test = PluginTest::new().await;
    let client = root(&test.with_plugin());
    let returns = |(certificate, key): (String, String), ends: i64| {
        test.returns(&json!({
            "clientCertificateData": certificate,
            "clientKeyData": key,
            "token": "and a token",
            "expirationTimestamp": in_seconds(ends),
        }));
    };
    returns(test.server.client_certificate(), -1);
    let first = call().send(&client).await.unwrap();
    assert_eq!((&first["certified"], &first["authorization"]), (&true.into(), &"Bearer and a token".into()));
    let same = call().send(&client).await.unwrap();
    assert_eq!((&same["certificate"], &same["peer"]), (&first["certificate"], &first["peer"]));
    returns(test.server.client_certificate(), 3600);
    let second = call().send(&client).await.unwrap();
    assert_ne!(second["certificate"], first["certificate"]);
    assert_ne!(second["peer"], first["peer"], "a new certificate uses a new connection");
    assert_eq!(test.calls(), 3);
    // rcgen's certificates are valid from 1975 to 4096.
    let notifications = test.notifications.take();
    assert_eq!(notifications.iter().filter(|record| *record == "NoError").count(), 3);
    assert_eq!(
        notifications.iter().filter(|record| *record == "certificate until 4096").count(),
        3,
        "{notifications:?}"
    );
    let replaced = |record: &&String| record.starts_with("certificate replaced after ");
    assert_eq!(notifications.iter().filter(replaced).count(), 1, "{notifications:?}");
}

#[tokio::test]
async fn exec_plugin_receives_arguments_environment_and_cluster_info() {
    let test = PluginTest::new().await;
    let script =
        "printenv KUBERNETES_EXEC_INFO > info; printf '%s|' \"$FLAVOUR\" \"$@\" > arguments; cat answer";
    test.plugin(script);
    test.returns(&json!({"token": "t"}));
    let more = "', a, 'b c'], env: [{name: FLAVOUR, value: salt}], provideClusterInfo: true}";
    let exec = test.exec().replace("']}", more).replace("Never", "IfAvailable");
    test.connect(&exec).unwrap().prefetch_credentials().await.unwrap();
    let read = |name: &str| std::fs::read_to_string(test.files.path().join(name)).unwrap();
    assert_eq!(read("arguments"), "salt|a|b c|");
    let info: Value = serde_json::from_str(&read("info")).unwrap();
    assert_eq!((&info["kind"], &info["apiVersion"]), (&"ExecCredential".into(), &VERSION.into()));
    assert!(info["spec"]["interactive"].is_boolean());
    let cluster = &info["spec"]["cluster"];
    assert_eq!(cluster["server"], test.server.url());
    assert_eq!(cluster["certificate-authority-data"], base64(&test.server.ca.pem()));
}

#[tokio::test]
async fn invalid_exec_plugin_output_is_reported_and_never_quoted() {
    let test = PluginTest::new().await;
    let (certificate, key) = test.server.client_certificate();
    let (_, other_key) = test.server.client_certificate();
    let of = |version: &str, status: Value| {
        json!({"kind": "ExecCredential", "apiVersion": version, "status": status}).to_string()
    };
    let rows = [
        ("hunter2", "its output is not an ExecCredential"),
        ("{\"kind\": \"ExecCredential\", \"hunter2\": ", "its output is not an ExecCredential"),
        ("kind: Secret\ndata: hunter2", "it must answer with an ExecCredential of version"),
        (&of("client.authentication.k8s.io/v1beta1", json!({"token": "hunter2"})), "of version client"),
        (&of(VERSION, Value::Null), "its ExecCredential has no status"),
        (&of(VERSION, json!({})), "its ExecCredential has neither a token nor a certificate and key"),
        (&of(VERSION, json!({"token": "hunter2\n"})), "its token is not a valid header value"),
        (
            &of(VERSION, json!({"token": "hunter2", "expirationTimestamp": "soon"})),
            "is not an ExecCredential",
        ),
        (&of(VERSION, json!({"clientKeyData": key})), "a certificate or a key but not both"),
        (
            &of(VERSION, json!({"clientCertificateData": "hunter2", "clientKeyData": key})),
            "its certificate cannot be read",
        ),
        (
            &of(VERSION, json!({"clientCertificateData": certificate, "clientKeyData": "hunter2"})),
            "a certificate and key that cannot be used",
        ),
        (
            &of(VERSION, json!({"clientCertificateData": certificate, "clientKeyData": other_key})),
            "a certificate and key that cannot be used",
        ),
    ];
    let connection = test.with_plugin();
    let client = root(&connection);
    for (answer, wanted) in rows {
        test.files.write("answer", answer);
        let error = connection.prefetch_credentials().await.unwrap_err();
        let failure = call().send(&client).await.unwrap_err();
        assert_eq!(failure.reason, ErrorReason::Unauthorized);
        for text in [error.to_string(), format!("{error:?}"), failure.to_string()] {
            assert!(text.contains(wanted), "{wanted:?} in {text}");
            assert!(!text.contains("hunter2") && !text.contains("PRIVATE"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }
    assert!(test.notifications.take().iter().all(|record| record == "NoError"), "no credentials are used");
}

#[tokio::test]
async fn failed_exec_plugin_is_named_in_the_error() {
    let test = PluginTest::new().await;
    test.plugin("echo hunter2; exit 7");
    let check = async |exec: &str, wanted: &str, end: &str| {
        let error = test.connect(exec).unwrap().prefetch_credentials().await.unwrap_err().to_string();
        assert!(error.contains("bad credentials: getting credentials: exec"), "{error}");
        assert!(error.contains(wanted) && !error.contains("hunter2"), "{wanted:?} in {error}");
        assert_eq!(test.notifications.take(), Vec::from_iter((!end.is_empty()).then(|| end.to_owned())));
    };
    check(&test.exec(), "/plugin failed with exit status: 7", "ExecutionError(7)").await;
    check(&exec("./absent"), "/absent cannot be run: No such file", "PluginNotFound").await;
    let hint = "{apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never, \
                installHint: \"get it\\n  there\"}";
    check(
        hint,
        "no-such-plugin cannot be run: No such file or directory (os error 2); get it there",
        "PluginNotFound",
    )
    .await;
    test.plugin("kill -9 $$");
    check(&test.exec(), "failed with signal: 9", "ExecutionError(-1)").await;
    check(&exec("./script"), "cannot be run: Permission denied", "PluginNotFound").await;
    if !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        let always = test.exec().replace("Never", "Always");
        check(&always, "standard input is not a terminal", "").await;
    }
}

#[tokio::test]
async fn hanging_exec_plugin_times_out_and_is_killed() {
    let test = PluginTest::new().await;
    test.plugin("echo $$ > pid; exec sleep 600");
    let connection = test.connect(&test.exec()).unwrap();
    let prefetching = tokio::spawn(async move { connection.prefetch_credentials().await });
    let pid = loop {
        let pid = std::fs::read_to_string(test.files.path().join("pid")).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    tokio::time::pause();
    let error = prefetching.await.unwrap().unwrap_err().to_string();
    assert!(error.ends_with("plugin has not ended within 60s"), "{error}");
    assert_eq!(test.notifications.take(), ["ClientInternalError"]);
    tokio::time::resume();
    // It has been killed, but its parent may not have reaped it yet.
    let state = || std::fs::read_to_string(Path::new("/proc").join(&pid).join("stat")).unwrap_or_default();
    for _ in 0..500 {
        if state().is_empty() || state().contains(") Z ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the plugin is still running: {}", state());
}

#[tokio::test]
async fn static_credentials_take_precedence_over_exec_plugin() {
    let test = PluginTest::new().await;
    test.plugin("cat answer");
    test.returns(&json!({"token": "the plugin's"}));
    let ca = base64(&test.server.ca.pem());
    let (certificate, key) = test.server.client_certificate();
    let (certificate, key) = (base64(&certificate), base64(&key));
    let exec = test.exec();
    let credentials_used = async |user: &[(&str, &str)]| {
        let cluster = [("server", &*test.server.url()), ("certificate-authority-data", &ca)];
        let text = kubeconfig(&cluster, &[user, &[("exec", &exec)]].concat());
        let answer = call().send(&root(&test.files.open(&text).unwrap())).await.unwrap();
        (answer["authorization"].clone(), answer["certified"].clone())
    };
    assert_eq!(credentials_used(&[("token", "its-own")]).await, ("Bearer its-own".into(), false.into()));
    let pair = [("client-certificate-data", &*certificate), ("client-key-data", &*key)];
    assert_eq!(credentials_used(&pair).await, (Value::Null, true.into()));
    assert_eq!(test.calls(), 0);
    assert_eq!(credentials_used(&[]).await, ("Bearer the plugin's".into(), false.into()));
}
