//! Plugins that are real programs, asked by a client for a server with TLS.

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
use crate::{Call, ClientFactory, ClientOptions, Connection};

const VERSION: &str = "client.authentication.k8s.io/v1";

/// A server, a plugin for it in a folder, and what is told of both.
struct World {
    server: Server,
    files: Files,
    told: Arc<Notes>,
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn note(&self, note: String) {
        self.0.lock().push(note);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl ConnectionObserver for Notes {
    fn exec_plugin_called(&self, end: ExecPluginStatus) {
        self.note(format!("{end:?}"));
    }

    fn exec_plugin_certificate_expires(&self, origin: &str, at: Option<Timestamp>) {
        assert!(origin.starts_with("kubeconfig /") && origin.ends_with("/config"), "{origin}");
        self.note(match at {
            Some(at) => format!("certificate until {}", at.strftime("%Y")),
            None => "no certificate".to_owned(),
        });
    }

    fn exec_plugin_certificate_rotated(&self, age: Duration) {
        self.note(format!("certificate replaced after {} days", age.as_secs() / 86_400));
    }
}

impl World {
    async fn new() -> Self {
        let world = Self { server: Server::start().await, files: Files::new(), told: Arc::default() };
        // A shell with a script, because a program that was just written may still be open in a child of
        // another test, and then cannot be run.
        std::os::unix::fs::symlink("/bin/sh", world.files.path().join("plugin")).unwrap();
        world
    }

    /// A plugin that notes that it was asked, and then runs these lines.
    fn plugin(&self, lines: &str) {
        let here = self.files.path().display();
        self.files.write("script", &format!("cd {here}\necho >> asked\n{lines}\n"));
    }

    /// A kubeconfig's words for the plugin.
    fn exec(&self) -> String {
        let script = self.files.path().join("script");
        exec("./plugin").replace('}', &format!(", args: ['{}']}}", script.display()))
    }

    /// What the plugin will answer from now on, with more in its status.
    fn answers(&self, status: &Value) {
        let answer = json!({"kind": "ExecCredential", "apiVersion": VERSION, "status": status});
        self.files.write("answer", &answer.to_string());
    }

    fn asked(&self) -> usize {
        let asked = std::fs::read_to_string(self.files.path().join("asked"));
        asked.map(|asked| asked.lines().count()).unwrap_or_default()
    }

    fn connect(&self, exec: &str) -> Result<Connection, ConnectError> {
        let ca = base64(&self.server.ca.pem());
        let cluster = [("server", &*self.server.url()), ("certificate-authority-data", &ca)];
        let text = kubeconfig(&cluster, &[("exec", exec)]);
        Connection::open(Some(&self.files.write("config", &text)), None, Some(self.told.clone()))
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
async fn a_plugin_s_token_is_shown_until_it_ends() {
    let world = World::new().await;
    let client = root(&world.with_plugin());
    assert_eq!(world.asked(), 0, "nobody has asked for anything");
    world.answers(&json!({"token": "one"}));
    let (one, other) = (call(), call());
    let (a, b) = tokio::join!(one.send(&client), other.send(&client));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((&a["shown"], &b["shown"]), (&"Bearer one".into(), &"Bearer one".into()));
    assert_eq!((&a["certified"], world.asked()), (&false.into(), 1), "many requests ask once");
    assert_eq!(world.told.take(), ["Well", "no certificate"]);
}

#[tokio::test]
async fn a_plugin_is_asked_again_when_its_token_has_ended() {
    let world = World::new().await;
    let client = root(&world.with_plugin());
    world.answers(&json!({"token": "one", "expirationTimestamp": in_seconds(3600)}));
    for _ in 0..3 {
        assert_eq!(call().send(&client).await.unwrap()["shown"], "Bearer one");
    }
    assert_eq!(world.asked(), 1);

    let ended = World::new().await;
    let client = root(&ended.with_plugin());
    ended.answers(&json!({"token": "one", "expirationTimestamp": in_seconds(-1)}));
    let first = call().send(&client).await.unwrap();
    ended.answers(&json!({"token": "two"}));
    let second = call().send(&client).await.unwrap();
    assert_eq!((&first["shown"], &second["shown"]), (&"Bearer one".into(), &"Bearer two".into()));
    assert_eq!(first["peer"], second["peer"], "another token needs no other connection");
    assert_eq!(ended.asked(), 2);
}

#[tokio::test]
async fn a_refused_token_is_replaced_and_the_refusal_told() {
    let world = World::new().await;
    let connection = world.with_plugin();
    let client = root(&connection);
    world.answers(&json!({"token": "refused"}));
    connection.prefetch_credentials().await.unwrap();
    world.answers(&json!({"token": "accepted"}));
    let failure = call().send(&client).await.unwrap_err();
    assert_eq!((failure.reason, world.asked()), (ErrorReason::Unauthorized, 2));
    assert_eq!(call().send(&client).await.unwrap()["shown"], "Bearer accepted");
    assert_eq!(world.asked(), 2);
    // Controllers bring tokens of their own and have nothing to do with the plugin's.
    let anonymous = kube::Client::new(connection.anonymous(), "default");
    assert_eq!(call().send(&anonymous).await.unwrap()["shown"], Value::Null);
}

#[tokio::test]
async fn a_plugin_s_certificate_is_shown_on_connections_of_its_own() {
    let world = World::new().await;
    let client = root(&world.with_plugin());
    let answers = |(certificate, key): (String, String), ends: i64| {
        world.answers(&json!({
            "clientCertificateData": certificate,
            "clientKeyData": key,
            "token": "and a token",
            "expirationTimestamp": in_seconds(ends),
        }));
    };
    answers(world.server.client_certificate(), -1);
    let first = call().send(&client).await.unwrap();
    assert_eq!((&first["certified"], &first["shown"]), (&true.into(), &"Bearer and a token".into()));
    let same = call().send(&client).await.unwrap();
    assert_eq!((&same["certificate"], &same["peer"]), (&first["certificate"], &first["peer"]));
    answers(world.server.client_certificate(), 3600);
    let second = call().send(&client).await.unwrap();
    assert_ne!(second["certificate"], first["certificate"]);
    assert_ne!(second["peer"], first["peer"], "another certificate needs another connection");
    assert_eq!(world.asked(), 3);
    // rcgen's certificates are good from 1975 to 4096.
    let told = world.told.take();
    assert_eq!(told.iter().filter(|note| *note == "Well").count(), 3);
    assert_eq!(told.iter().filter(|note| *note == "certificate until 4096").count(), 3, "{told:?}");
    let replaced = |note: &&String| note.starts_with("certificate replaced after ");
    assert_eq!(told.iter().filter(replaced).count(), 1, "{told:?}");
}

#[tokio::test]
async fn a_plugin_is_told_what_it_needs_to_know() {
    let world = World::new().await;
    let script = "printenv KUBERNETES_EXEC_INFO > info; printf '%s|' \"$FLAVOUR\" \"$@\" > words; cat answer";
    world.plugin(script);
    world.answers(&json!({"token": "t"}));
    let more = "', a, 'b c'], env: [{name: FLAVOUR, value: salt}], provideClusterInfo: true}";
    let exec = world.exec().replace("']}", more).replace("Never", "IfAvailable");
    world.connect(&exec).unwrap().prefetch_credentials().await.unwrap();
    let read = |name: &str| std::fs::read_to_string(world.files.path().join(name)).unwrap();
    assert_eq!(read("words"), "salt|a|b c|");
    let info: Value = serde_json::from_str(&read("info")).unwrap();
    assert_eq!((&info["kind"], &info["apiVersion"]), (&"ExecCredential".into(), &VERSION.into()));
    assert!(info["spec"]["interactive"].is_boolean());
    let cluster = &info["spec"]["cluster"];
    assert_eq!(cluster["server"], world.server.url());
    assert_eq!(cluster["certificate-authority-data"], base64(&world.server.ca.pem()));
}

#[tokio::test]
async fn what_goes_wrong_with_a_plugin_is_told_and_never_quoted() {
    let world = World::new().await;
    let (certificate, key) = world.server.client_certificate();
    let (_, other_key) = world.server.client_certificate();
    let of = |version: &str, status: Value| {
        json!({"kind": "ExecCredential", "apiVersion": version, "status": status}).to_string()
    };
    let rows = [
        ("hunter2", "what it has printed is no ExecCredential"),
        ("{\"kind\": \"ExecCredential\", \"hunter2\": ", "what it has printed is no ExecCredential"),
        ("kind: Secret\ndata: hunter2", "it must answer with an ExecCredential of version"),
        (&of("client.authentication.k8s.io/v1beta1", json!({"token": "hunter2"})), "of version client"),
        (&of(VERSION, Value::Null), "it has answered without a status"),
        (&of(VERSION, json!({})), "it has answered with neither a token nor a certificate and key"),
        (&of(VERSION, json!({"token": "hunter2\n"})), "its token cannot be sent"),
        (&of(VERSION, json!({"token": "hunter2", "expirationTimestamp": "soon"})), "is no ExecCredential"),
        (&of(VERSION, json!({"clientKeyData": key})), "a certificate or a key and not with both"),
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
    let connection = world.with_plugin();
    let client = root(&connection);
    for (answer, wanted) in rows {
        world.files.write("answer", answer);
        let error = connection.prefetch_credentials().await.unwrap_err();
        let failure = call().send(&client).await.unwrap_err();
        assert_eq!(failure.reason, ErrorReason::Unauthorized);
        for said in [error.to_string(), format!("{error:?}"), failure.to_string()] {
            assert!(said.contains(wanted), "{wanted:?} in {said}");
            assert!(!said.contains("hunter2") && !said.contains("PRIVATE"), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }
    assert!(world.told.take().iter().all(|note| note == "Well"), "none was taken up");
}

#[tokio::test]
async fn a_plugin_that_fails_is_named() {
    let world = World::new().await;
    world.plugin("echo hunter2; exit 7");
    let says = async |exec: &str, wanted: &str, end: &str| {
        let error = world.connect(exec).unwrap().prefetch_credentials().await.unwrap_err().to_string();
        assert!(error.contains("bad credentials: getting credentials: exec"), "{error}");
        assert!(error.contains(wanted) && !error.contains("hunter2"), "{wanted:?} in {error}");
        assert_eq!(world.told.take(), Vec::from_iter((!end.is_empty()).then(|| end.to_owned())));
    };
    says(&world.exec(), "/plugin failed with exit status: 7", "Failed(7)").await;
    says(&exec("./absent"), "/absent cannot be run: No such file", "NotFound").await;
    let hint = "{apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never, \
                installHint: \"get it\\n  there\"}";
    says(
        hint,
        "no-such-plugin cannot be run: No such file or directory (os error 2); get it there",
        "NotFound",
    )
    .await;
    world.plugin("kill -9 $$");
    says(&world.exec(), "failed with signal: 9", "Failed(-1)").await;
    says(&exec("./script"), "cannot be run: Permission denied", "NotFound").await;
    if !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        let always = world.exec().replace("Never", "Always");
        says(&always, "standard input is not a terminal", "").await;
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_given_up_and_ended() {
    let world = World::new().await;
    world.plugin("echo $$ > pid; exec sleep 600");
    let connection = world.connect(&world.exec()).unwrap();
    let asking = tokio::spawn(async move { connection.prefetch_credentials().await });
    let pid = loop {
        let pid = std::fs::read_to_string(world.files.path().join("pid")).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    tokio::time::pause();
    let error = asking.await.unwrap().unwrap_err().to_string();
    assert!(error.ends_with("plugin has not ended within 60s"), "{error}");
    assert_eq!(world.told.take(), ["ClientInternalError"]);
    tokio::time::resume();
    // It has been killed; who was its parent may still have to take note.
    let state = || std::fs::read_to_string(Path::new("/proc").join(&pid).join("stat")).unwrap_or_default();
    for _ in 0..500 {
        if state().is_empty() || state().contains(") Z ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the plugin lives on: {}", state());
}

#[tokio::test]
async fn what_a_kubeconfig_holds_itself_comes_before_its_plugin() {
    let world = World::new().await;
    world.plugin("cat answer");
    world.answers(&json!({"token": "the plugin's"}));
    let ca = base64(&world.server.ca.pem());
    let (certificate, key) = world.server.client_certificate();
    let (certificate, key) = (base64(&certificate), base64(&key));
    let exec = world.exec();
    let shown = async |user: &[(&str, &str)]| {
        let cluster = [("server", &*world.server.url()), ("certificate-authority-data", &ca)];
        let text = kubeconfig(&cluster, &[user, &[("exec", &exec)]].concat());
        let answer = call().send(&root(&world.files.open(&text).unwrap())).await.unwrap();
        (answer["shown"].clone(), answer["certified"].clone())
    };
    assert_eq!(shown(&[("token", "its-own")]).await, ("Bearer its-own".into(), false.into()));
    let pair = [("client-certificate-data", &*certificate), ("client-key-data", &*key)];
    assert_eq!(shown(&pair).await, (Value::Null, true.into()));
    assert_eq!(world.asked(), 0);
    assert_eq!(shown(&[]).await, ("Bearer the plugin's".into(), false.into()));
}
