//! `explain` of a playground: no set-up, the caller's credentials, RBAC.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use http::Method;
use keleustes_client::{Call, PatchType};
use keleustes_objects::Key;
use serde_json::{Value, json};

use crate::playground::{DEPLOYMENTS, PROGRAM, Playground, deployment};

#[tokio::test(flavor = "multi_thread")]
async fn playground_explains_without_set_up() {
    let playground = Playground::start();
    let admin = playground.admin();
    Call::create(&DEPLOYMENTS, "default", &deployment("oars", "any:1")).send(&admin).await.unwrap();
    let text = playground.explain_until(&["deploy/oars"], "State:        as wanted");
    assert!(text.contains("create replicasets.apps default/oars-"), "its history is shown: {text}");
    assert!(text.contains("Manager:      leader") && text.contains("node/"), "{text}");

    let json = playground.explain_until(&["deployment", "oars", "-o", "json"], "\"Explanation\"");
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["object"]["name"], &value["state"]), (&json!("oars"), &json!("as wanted")));
    playground
        .explain_until(&["deployments.apps/oars", "-n", "default", "--output=yaml"], "kind: Explanation\n");

    refusals(&playground);
    as_plugin(&playground);
    watching(&playground, &admin).await;
    live_page(&playground).await;
}

fn refusals(playground: &Playground) {
    let program = Path::new(PROGRAM);
    let failed = |args: &[&str]| {
        let output = playground.run(program, args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let unknown = failed(&["explain", "widget/x"]);
    assert!(unknown.contains("the server doesn't have a resource type \"widget\""), "{unknown}");
    let invalid = failed(&["explain", "pod", ".."]);
    assert!(invalid.contains("invalid name"), "{invalid}");
    // The manager's own user is authenticated, and not allowed.
    let other = playground.kubeconfig.with_file_name("manager.kubeconfig");
    let server = playground.manager();
    let other = other.to_str().unwrap();
    let forbidden = failed(&["explain", "pod/x", "--kubeconfig", other, "--server", &server]);
    assert!(forbidden.contains("cannot get path") && forbidden.contains("keleustes-explain"), "{forbidden}");
    let refused = failed(&["explain", "pod/x", "--server", "https://127.0.0.1:1"]);
    assert!(refused.contains("asking https://127.0.0.1:1"), "{refused}");
}

/// `--watch` prints the explanation again when it has changed.
async fn watching(playground: &Playground, admin: &kube::Client) {
    let mut process = Command::new(PROGRAM)
        .args(["explain", "deploy/oars", "--watch"])
        .env("KUBECONFIG", &playground.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "Name:         deployment/oars");
    let pause = json!({"spec": {"paused": true}});
    let key = Key::namespaced("default", "oars");
    Call::patch(&DEPLOYMENTS, &key, PatchType::Merge, &pause).send(admin).await.unwrap();
    let (separator, cause) = ("---".to_owned(), "paused: `kubectl rollout resume`");
    assert!(lines.any(|line| line == separator) && lines.any(|line| line.contains(cause)));
    process.kill().unwrap();
    process.wait().unwrap();
}

fn as_plugin(playground: &Playground) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-keleustes");
    std::os::unix::fs::symlink(PROGRAM, &plugin).unwrap();
    let output = playground.run(&plugin, &["explain", "deploy/oars"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Name:         deployment/oars\n"), "{text}");
    let output = playground.run(&plugin, &["--leader-elect=false"]);
    assert!(!output.status.success(), "a plugin never becomes a manager");
}

async fn live_page(playground: &Playground) {
    let client = playground.secure_port();
    let get = |path: &'static str| {
        let client = client.clone();
        async move { Call::raw(Method::GET, path).send_for_bytes(&client).await }
    };
    let page = String::from_utf8(get("/debug/keleustes/").await.unwrap().to_vec()).unwrap();
    assert!(page.contains("<script src=\"page.js\" defer></script>"), "{page}");
    for asset in ["/debug/keleustes/page.js", "/debug/keleustes/page.css"] {
        assert!(!get(asset).await.unwrap().is_empty(), "{asset}");
    }
    let overview: Value = serde_json::from_slice(&get("/debug/keleustes/overview").await.unwrap()).unwrap();
    let controllers = overview["controllers"].as_array().unwrap();
    let deployments = controllers.iter().find(|there| there["name"] == "deployment-controller").unwrap();
    assert_eq!((&overview["leads"], &deployments["state"]), (&json!(true), &json!("running")));
    assert!(deployments["loops"][0]["reconciles"].as_u64().unwrap() > 0, "{deployments}");
    assert!(overview["decisions"].as_array().unwrap().len() > 5);
    assert!(get("/debug/keleustes/nothing").await.is_err());
}
