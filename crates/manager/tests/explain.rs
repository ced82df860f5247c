//! `explain` and the live page of the program that ships, in a playground: no set-up, the caller's credentials, RBAC.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use http::Method;
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, OtherServer, ServerTrust};
use keleustes_objects::Resource;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-controller-manager");
const PATIENCE: Duration = Duration::from_secs(60);
const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");

struct Playground {
    process: Child,
    kubeconfig: PathBuf,
}

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Playground {
    fn start() -> Self {
        let mut process = Command::new(PROGRAM)
            .args(["playground", "--nodes=1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let kubeconfig =
            lines.find_map(|line| line.trim().strip_prefix("export KUBECONFIG=").map(PathBuf::from));
        // Read on, so that the program never writes to a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, kubeconfig: kubeconfig.unwrap() }
    }

    fn run(&self, program: &Path, args: &[&str]) -> Output {
        Command::new(program).args(args).env("KUBECONFIG", &self.kubeconfig).output().unwrap()
    }

    /// Runs `explain` until its output has this text.
    fn explain_until(&self, args: &[&str], wanted: &str) -> String {
        let began = Instant::now();
        loop {
            let output = self.run(Path::new(PROGRAM), &[&["explain"], args].concat());
            let text = String::from_utf8(output.stdout).unwrap();
            if text.contains(wanted) {
                return text;
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(began.elapsed() < PATIENCE, "{wanted:?} does not come: {text}{errors}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn admin(&self) -> kube::Client {
        let connection = Connection::open(Some(&self.kubeconfig), None, None).unwrap();
        ClientFactory::new(connection, ClientOptions::default()).root("test")
    }

    /// The address of the manager's secure port.
    fn manager(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let after = text.split_once("keleustes.dev/manager").unwrap().1;
        after.split_once("server: ").unwrap().1.lines().next().unwrap().trim().to_owned()
    }

    fn secure_port(&self) -> kube::Client {
        let server = OtherServer { url: self.manager(), trust: ServerTrust::Anyone };
        let connection = Connection::open_other_server(&self.kubeconfig, &server).unwrap();
        ClientFactory::new(connection, ClientOptions::default()).root("test")
    }
}

fn deployment(name: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

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
