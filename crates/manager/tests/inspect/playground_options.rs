//! What docs/playground.md promises of the program beside the cluster itself: pages, logs, exit code and the demonstration.

use std::process::Command;
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, OtherServer, ServerTrust};
use kube::client::Body;

use crate::playground::{DEPLOYMENTS, PROGRAM, Playground, deployment, wait_until_connected};

/// The status and the text of a page of the manager for a client without credentials, such as `curl -k`.
async fn page(playground: &Playground, path: &str) -> (StatusCode, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("anonymous");
    let text = "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}], \
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], \
                contexts: [{name: c, context: {cluster: c, user: u}}]}";
    std::fs::write(&file, text).unwrap();
    let server = OtherServer { url: playground.manager(), trust: ServerTrust::Anyone };
    let connection = Connection::open_other_server(&file, &server).unwrap();
    let client = ClientFactory::new(connection, ClientOptions::default()).root("test");
    let response = client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.into()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_of_a_playground_serves_its_pages_on_loopback_without_credentials() {
    let playground = Playground::start();
    wait_until_connected(&playground.manager());
    for (path, words) in [
        ("/metrics", "\nkubernetes_build_info{"),
        ("/statusz", "kube-controller-manager statusz"),
        ("/configz", "kubecontrollermanager.config.k8s.io"),
    ] {
        let (status, text) = page(&playground, path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        assert!(text.contains(words), "{path}: {text}");
    }
    let (status, _) = page(&playground, "/debug/keleustes/explain").await;
    assert_ne!(status, StatusCode::OK, "pages that show objects are not open");
    // Every address of 127.0.0.0/8 is one of this machine, but only one of them is served.
    let elsewhere = playground.manager().replace("https://127.0.0.1", "127.0.0.2");
    assert!(std::net::TcpStream::connect(&elsewhere).is_err(), "it listens on {elsewhere}");
}

/// Waits for a line on stderr.
fn logged(playground: &Playground, words: &[&str]) -> String {
    let (began, patience) = (Instant::now(), Duration::from_secs(60));
    let mut seen = String::new();
    loop {
        let left = patience.saturating_sub(began.elapsed());
        let Ok(line) = playground.errors.recv_timeout(left) else { panic!("no {words:?} in {seen}") };
        if words.iter().all(|words| line.contains(words)) {
            return line;
        }
        seen.push_str(&line);
        seen.push('\n');
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verbosity_4_logs_every_write_with_its_reason_on_stderr() {
    let playground = Playground::start_with(&["-v", "4"]);
    let admin = playground.admin();
    let oars = deployment("oars", "any:1");
    Call::create(&DEPLOYMENTS, "default", &oars).send(&admin).await.unwrap();
    for (write, controller) in [
        ("create replicasets.apps default/oars-", "deployment-controller"),
        ("create pods default/", "replicaset-controller"),
    ] {
        let line = logged(&playground, &[write]);
        assert!(line.contains(" because "), "{line}");
        assert!(line.contains(&format!("controller=\"{controller}\"")), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn playground_without_verbosity_logs_nothing() {
    let mut playground = Playground::start();
    let admin = playground.admin();
    let oars = deployment("oars", "any:1");
    Call::create(&DEPLOYMENTS, "default", &oars).send(&admin).await.unwrap();
    playground.explain_until(&["deploy/oars"], "State:        as wanted");
    assert_eq!(playground.terminate().code(), Some(0));
    assert_eq!(playground.errors.iter().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn playground_without_a_manager_ends_with_code_0_on_sigterm() {
    let mut playground = Playground::start_with(&["--manager=off"]);
    let folder = playground.kubeconfig.parent().unwrap().to_owned();
    playground.manager_flags();
    let status = playground.terminate();
    assert_eq!(status.code(), Some(0), "{status}: {:?}", playground.errors.iter().collect::<Vec<_>>());
    assert!(!folder.exists(), "{} is left behind", folder.display());
}

/// Into a pipe it prints whole lines, which a file or a log shows as they are.
#[test]
fn demonstration_in_a_pipe_prints_plain_lines_and_says_that_timings_are_shortened() {
    let output = Command::new(PROGRAM).args(["playground", "--demo"]).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(control), "{:?}", text.matches(control).collect::<Vec<_>>());
    let shortened = text.find("Timings of nodes are shortened").unwrap_or_else(|| panic!("{text}"));
    let acts = ["── A rollout ──", "── A node is lost ──", "── A manager ends ──", "Done in "];
    let places = acts.map(|act| text.find(act).unwrap_or_else(|| panic!("{act} in {text}")));
    assert!(shortened < places[0] && places.is_sorted(), "{text}");
}
