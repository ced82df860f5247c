//! A whole cluster in one process: an API server, hollow nodes and the manager, on loopback, with nothing to install.
//!
//! The manager is the one that ships: it reads a kubeconfig and connects to the API server over HTTPS. Ctrl-C ends
//! everything; only the folder given by `--data` persists.

mod api_services;
mod demo;
mod enforcement;
mod live_page;
mod scratch;
mod storage;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use keleustes_apiserver::state_dir::StateDir;
use keleustes_apiserver::{
    ApiServer, Builder, MetricsSource, TokenSigner, User, entropy, private_files, service_account_key,
    state_dir,
};
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, DeleteOptions};
use keleustes_hollow::{Hollow, record_pod_events};
use keleustes_objects::{Key, Resource};
use keleustes_serving::BrowserLogin;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::enforcement::not_enforced;
use self::scratch::Scratch;
use crate::logging::{self, LogFormat, Verbosity};
use crate::{command, run};

/// Writes a line to stdout, as `command::say` does; `println!` panics if the reader has closed the pipe.
macro_rules! say_line {
    ($($text:tt)*) => { $crate::command::say(&format!("{}\n", format_args!($($text)*))) };
}
use say_line;

const HELP: &str = "\
Starts a whole cluster to play with, in this one process.

Usage: kube-controller-manager playground [flags]

  --nodes N            how many nodes to play, 3 by default; with --data, nodes beyond that are removed
  --data DIR           keeps the cluster in a folder, with its port and credentials, and goes on with what is there
  --port PORT          where the API server listens on loopback; by default where it did with --data, or any free port
  --manager=off        leaves the manager out, and prints the command that runs one: this one or the original
  --manager-port PORT  where the manager serves /metrics, /statusz and more on loopback; any free port by default
  -v N                 logs of the manager on stderr; 4 shows every write with its reason
  --demo               plays a rollout, the loss of a node and a failover with shortened timings, and ends

Annotations hollow.keleustes.io/… make pods and nodes fail; see docs/playground.md.
";

/// How long the parts may take to stop after Ctrl-C.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);
const SAVE_EVERY: Duration = Duration::from_millis(200);
const EVENTS_LIVE: Duration = Duration::from_secs(3600);
const LEASE_LIVES: Duration = Duration::from_secs(40);

/// The names of the files in the folder, besides those of the API server.
const FILES: [&str; 6] = ["kubeconfig", "manager.kubeconfig", TOKEN_KEY, "first.log", "second.log", PORT];
/// The key that signs the tokens of service accounts.
const TOKEN_KEY: &str = "sa.key";
/// The port of the API server, so that a copied kubeconfig stays valid.
const PORT: &str = "port";

static NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
static LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
/// Every node gets 256 addresses for pods out of this range, which suffices for 8192 nodes. Nodes, Services, and pods that
/// start before their node has its range have other addresses.
const POD_RANGE: &str = "10.32.0.0/11";

/// Hollow nodes are called like this, with a number.
const NODE_PREFIX: &str = "hollow-";

/// Pages of the manager that every user of the machine may read, and that show no objects.
const OPEN_PAGES: &str = "/healthz,/readyz,/livez,/metrics,/metrics/slis,/statusz,/flagz,/configz";

/// The options of the playground.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlaygroundOptions {
    nodes: usize,
    data: Option<PathBuf>,
    port: u16,
    manager: bool,
    manager_port: u16,
    /// `None` logs nothing.
    verbosity: Option<u32>,
    demo: bool,
}

impl Default for PlaygroundOptions {
    fn default() -> Self {
        Self { nodes: 3, data: None, port: 0, manager: true, manager_port: 0, verbosity: None, demo: false }
    }
}

/// Runs until Ctrl-C.
pub(crate) fn run(args: &[&str]) -> ExitCode {
    if args.iter().any(|arg| matches!(*arg, "--help" | "-h")) {
        command::say(HELP);
        return ExitCode::SUCCESS;
    }
    let played = PlaygroundOptions::read(args).and_then(|options| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(play(&options))
    });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("playground: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl PlaygroundOptions {
    fn read(args: &[&str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if *arg == "--demo" {
                options.demo = true;
                continue;
            }
            let (flag, value) = arg.split_once('=').unwrap_or_else(|| (arg, next_value(&mut args)));
            let number = || value.parse::<u16>().with_context(|| format!("{arg:?} needs a number"));
            match (flag, value) {
                ("--nodes", _) => options.nodes = number()?.into(),
                ("--port", _) => options.port = number()?,
                ("--manager-port", _) => options.manager_port = number()?,
                ("-v" | "--v", _) => options.verbosity = Some(number()?.into()),
                // Absolute, because its files are named in commands for another terminal.
                ("--data", folder) if !folder.is_empty() => {
                    options.data = Some(std::path::absolute(folder)?);
                }
                ("--manager", "on") => options.manager = true,
                ("--manager", "off") => options.manager = false,
                _ => bail!("unknown argument {arg:?}\n\n{HELP}"),
            }
        }
        Ok(options)
    }
}

/// The value of a flag as a separate argument; another flag is not a value.
fn next_value<'a>(args: &mut std::slice::Iter<'_, &'a str>) -> &'a str {
    let value = args.as_slice().first().copied().filter(|next| !next.starts_with("--"));
    if value.is_some() {
        args.next();
    }
    value.unwrap_or_default()
}

async fn play(options: &PlaygroundOptions) -> anyhow::Result<()> {
    let began = Instant::now();
    if let Some(verbosity) = options.verbosity {
        logging::start(LogFormat::Text, Verbosity::new(verbosity, Vec::new()));
    }
    scratch::remove_abandoned(&std::env::temp_dir());
    // Deleted when the process ends, unless `--data` names a folder.
    let scratch = Scratch::create(&std::env::temp_dir())?;
    let folder = options.data.as_deref().unwrap_or_else(|| scratch.path());
    let (ending, ended) = watch::channel(false);
    let (serving, keeping) = start_server(options, folder, ended).await?;
    say_line!("API server   {} ({} ms)", serving.address(), began.elapsed().as_millis());

    let kubeconfig = folder.join("kubeconfig");
    let manager_port = match (options.manager && !options.demo, options.manager_port) {
        (true, 0) => Some(free_port()?),
        (true, chosen) => Some(chosen),
        (false, _) => None,
    };
    write(&kubeconfig, &naming_manager(&serving.kubeconfig(&User::admin())?, manager_port))?;
    let connection = Connection::open(Some(&kubeconfig), None, None)?;
    let admin = ClientFactory::new(connection, ClientOptions::default());
    api_services::register(&admin.root("playground")).await?;
    let api_services = AbortOnDropHandle::new(tokio::spawn(api_services::keep(admin.root("playground"))));
    let removed = remove_nodes(&admin.root("playground"), options.nodes).await?;
    let nodes = Hollow::builder(admin.root("hollow-nodes")).name_prefix(NODE_PREFIX).nodes(options.nodes);
    let nodes = nodes.scheduler(true).untaint(true);
    let nodes = match options.demo {
        true => nodes.leases(demo::LEASE_EVERY, LEASE_LIVES),
        false => nodes,
    };
    // Batch programs seldom handle SIGTERM; a Job must not count their pods as succeeded.
    let nodes = nodes.volumes(true).mounts(true).batch_killed_code(143).start();
    let pod_events = AbortOnDropHandle::new(tokio::spawn(record_pod_events(admin.root("hollow-events"))));
    let driver = storage::start(admin.root("hollow-storage")).await?;
    let removed = if removed == 0 { String::new() } else { format!("; {removed} removed") };
    say_line!("nodes        {} hollow ones, and a scheduler{removed}", options.nodes);
    let worked = if options.demo {
        let client = admin.root("demo");
        let manager_flags = manager_flags(&serving, folder, 0)?;
        demo::Demo { client, nodes: &nodes, manager_flags, folder }.play().await
    } else if let Some(port) = manager_port {
        say_line!("manager      this one; https://127.0.0.1:{port}/statusz, /metrics, /configz … (curl -k)");
        let login = live_page::print_link(port);
        greet(&kubeconfig, began, true);
        manage(manager_flags(&serving, folder, port)?, options.verbosity, login).await
    } else {
        say_line!("manager      none");
        greet(&kubeconfig, began, false);
        say_line!("{}", command_of_a_manager(&manager_flags(&serving, folder, 0)?)?);
        until_signal().await
    };
    drop((pod_events, api_services, driver));
    // Connections that are still open are closed: the cluster ends here.
    let _ = tokio::time::timeout(STOPPED_WITHIN, nodes.stop()).await;
    let _ = tokio::time::timeout(STOPPED_WITHIN, serving.stop()).await;
    // Without `--data` there is nothing to store.
    let _ = ending.send(true);
    if let Some(keeping) = keeping {
        keeping.await??;
    }
    worked
}

/// A kubeconfig that also says where the manager's secure port is, so that `explain` finds it without flags.
fn naming_manager(kubeconfig: &str, port: Option<u16>) -> String {
    let Some(port) = port else { return kubeconfig.to_owned() };
    let extension = format!(
        "    extensions:\n    - name: {}\n      extension:\n        server: https://127.0.0.1:{port}\nusers:\n",
        crate::explain_command::EXTENSION
    );
    kubeconfig.replacen("users:\n", &extension, 1)
}

/// Commands to try; README shows them as well.
const TO_TRY: &str = "    kubectl get nodes
    kubectl create deployment oars --image=any:1 --replicas=6
    kubectl rollout status deployment oars
    kubectl set image deployment oars any=any:2 && kubectl get pods -w
";

fn greet(kubeconfig: &Path, began: Instant, has_manager: bool) {
    say_line!("\nready after {} ms. In another terminal:\n", began.elapsed().as_millis());
    say_line!("    export KUBECONFIG={}", kubeconfig.display());
    say_line!("{TO_TRY}");
    if let Some(program) = std::env::current_exe().ok().filter(|_| has_manager) {
        say_line!("    {} explain deployment/oars\n", program.display());
    }
    say_line!("{FAILURES}\nCtrl-C ends everything.");
}

/// Failures to try; docs/playground.md explains them.
const FAILURES: &str = "Make something fail, with annotations that docs/playground.md lists:

    kubectl annotate node hollow-0 hollow.keleustes.io/failed=true
    kubectl run crasher --image=any --annotations=hollow.keleustes.io/crash-after=2s
";

/// The command that runs a manager with these flags: this program, or the original.
fn command_of_a_manager(flags: &[String]) -> anyhow::Result<String> {
    let program = std::env::current_exe()?;
    let flags = flags.join(" \\\n        ");
    Ok(format!(
        "\nTo run a manager, this one or the original's kube-controller-manager with the same flags:\n\n    \
         {} \\\n        {flags}\n",
        program.display()
    ))
}

/// Returns on SIGINT and SIGTERM.
async fn until_signal() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        biased;
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// A port that nothing listens on.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?.port())
}

/// Removes the nodes of an earlier run with more nodes, which would never become ready again. Returns their number.
async fn remove_nodes(client: &kube::Client, count: usize) -> anyhow::Result<usize> {
    let nodes = Call::list(&NODES, "").send(client).await?;
    let names = nodes["items"].as_array().into_iter().flatten();
    let names = names.filter_map(|node| node["metadata"]["name"].as_str());
    let number = |name: &str| name.strip_prefix(NODE_PREFIX)?.parse::<usize>().ok();
    let mut removed = 0;
    for name in names.filter(|name| number(name).is_some_and(|number| number >= count)) {
        let options = DeleteOptions::default();
        Call::delete(&NODES, &Key::cluster(name), &options).send(client).await?;
        // It has an owner reference to the node as well, but the garbage collector may be off.
        let _ = Call::delete(&LEASES, &Key::namespaced("kube-node-lease", name), &options).send(client).await;
        removed += 1;
    }
    Ok(removed)
}

type Keeping = tokio::task::JoinHandle<std::io::Result<()>>;

/// The API server's options. Everything random comes from the operating system: with a seed, UIDs would repeat after a
/// restart, and any user of the machine could compute the tokens.
fn server_builder() -> Builder {
    let builder = ApiServer::builder().entropy(entropy::operating_system());
    let builder = builder.rbac(true).service_accounts(true).event_ttl(EVENTS_LIVE).request_log_limit(1000);
    let metrics = MetricsSource {
        pod_usage: keleustes_hollow::pod_usage,
        external: keleustes_hollow::external_metrics,
    };
    builder.warn_about(problems).container_log(keleustes_hollow::container_log).metrics(metrics)
}

/// What is stored and has no effect here.
fn problems(object: &Value) -> Vec<String> {
    hollow_problems(object).into_iter().chain(not_enforced(object)).collect()
}

/// Annotations for hollow nodes that have no effect, on an object or in its pod template.
fn hollow_problems(object: &Value) -> Vec<String> {
    // Copied from the template, where they were warned about already, or from an annotation of kubectl.
    let is_copy = object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    if is_copy {
        return Vec::new();
    }
    let places = [
        "/metadata/annotations",
        "/spec/template/metadata/annotations",
        "/spec/jobTemplate/spec/template/metadata/annotations",
    ];
    let found = places.iter().filter_map(|place| object.pointer(place));
    let problems = found.flat_map(keleustes_hollow::annotation_problems);
    problems.chain(keleustes_hollow::external_metric_problems(object)).collect()
}

async fn start_server(
    options: &PlaygroundOptions,
    folder: &Path,
    ended: watch::Receiver<bool>,
) -> anyhow::Result<(RunningServer, Option<Keeping>)> {
    if let Some(data) = &options.data {
        let files = [&FILES[..], &state_dir::FILES].concat();
        private_files::create_dir(data, &files).with_context(|| format!("--data={}", data.display()))?;
    }
    let builder = server_builder().signer(token_signer(folder)?);
    let (server, pki, keeping) = match &options.data {
        None => (builder.build(), Pki::generate()?, None),
        Some(data) => {
            let (server, keeper, found) =
                StateDir::open(folder, builder).with_context(|| format!("--data={}", data.display()))?;
            say_line!("data         {} entries read, {} lost", found.entries, found.skipped);
            let keeping = tokio::spawn(keeper.run(server.clone(), SAVE_EVERY, ended));
            (server, Pki::load_or_generate(folder)?, Some(keeping))
        }
    };
    let port = match &options.data {
        Some(data) if options.port == 0 => remembered_port(data),
        _ => options.port,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let serving = serve(server, address, pki, Limits::default())
        .await
        .with_context(|| format!("the API server cannot listen on {address}"))?;
    if let Some(data) = &options.data {
        write(&data.join(PORT), &serving.address().port().to_string())?;
    }
    Ok((serving, keeping))
}

/// The key of service account tokens, for the API server and for the manager; with `--data` tokens survive a restart.
fn token_signer(folder: &Path) -> anyhow::Result<TokenSigner> {
    let file = folder.join(TOKEN_KEY);
    if !file.exists() {
        write(&file, &rcgen::KeyPair::generate()?.serialize_pem())?;
    }
    let pem = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    service_account_key::signer(&pem).with_context(|| file.display().to_string())
}

/// The port of the last run in this folder, so that copied kubeconfigs stay valid; 0 if there is none or it is taken.
fn remembered_port(folder: &Path) -> u16 {
    let text = std::fs::read_to_string(folder.join(PORT)).unwrap_or_default();
    let port = text.trim().parse().unwrap_or(0);
    if port != 0 && TcpListener::bind(("127.0.0.1", port)).is_err() {
        say_line!("port         {port}, that of the last run, is in use; copied kubeconfigs are not valid");
        return 0;
    }
    port
}

/// The flags by which a manager connects to the server, as in a kubeadm manifest. Port 0 serves no pages.
fn manager_flags(serving: &RunningServer, folder: &Path, port: u16) -> anyhow::Result<Vec<String>> {
    let file = |name: &str| folder.join(name);
    let user = User::new("system:kube-controller-manager", &[]);
    write(&file("manager.kubeconfig"), &serving.kubeconfig(&user)?)?;
    write(&file("ca.crt"), serving.pki().ca_pem())?;
    let kubeconfig = file("manager.kubeconfig").display().to_string();
    let mut flags = vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--service-account-private-key-file={}", file(TOKEN_KEY).display()),
        format!("--root-ca-file={}", file("ca.crt").display()),
        "--use-service-account-credentials=true".to_owned(),
        "--allocate-node-cidrs=true".to_owned(),
        format!("--cluster-cidr={POD_RANGE}"),
        format!("--secure-port={port}"),
    ];
    if port != 0 {
        flags.extend([
            "--bind-address=127.0.0.1".to_owned(),
            format!("--client-ca-file={}", file("ca.crt").display()),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--authentication-skip-lookup=true".to_owned(),
            format!("--authorization-always-allow-paths={OPEN_PAGES}"),
        ]);
    }
    Ok(flags)
}

/// Runs the manager in this process until Ctrl-C or SIGTERM.
async fn manage(mut flags: Vec<String>, verbosity: Option<u32>, login: BrowserLogin) -> anyhow::Result<()> {
    flags.push("--allow-missing-controllers".to_owned());
    flags.push("--leader-elect=false".to_owned());
    let options = command::read(flags.into_iter().map(Into::into));
    let Ok(options) = options else { bail!("the manager refuses the playground's flags") };
    let verbosity = Verbosity::new(verbosity.unwrap_or(0), Vec::new());
    run::run_until_stopped(&options, &verbosity, Some(login)).await
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    private_files::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    /// A playground's API server without nodes and manager.
    struct Cluster {
        serving: RunningServer,
        keeping: Option<Keeping>,
        ending: watch::Sender<bool>,
        client: kube::Client,
        scratch: tempfile::TempDir,
    }

    impl Cluster {
        async fn start(data: Option<&Path>) -> Cluster {
            let scratch = tempfile::tempdir().unwrap();
            let folder = data.unwrap_or_else(|| scratch.path());
            let data = data.map(Path::to_owned);
            let options = PlaygroundOptions { nodes: 0, data, manager: false, ..Default::default() };
            let (ending, ended) = watch::channel(false);
            let (serving, keeping) = start_server(&options, folder, ended).await.unwrap();
            let kubeconfig = folder.join("kubeconfig");
            write(&kubeconfig, &serving.kubeconfig(&User::admin()).unwrap()).unwrap();
            let connection = Connection::open(Some(&kubeconfig), None, None).unwrap();
            let client = ClientFactory::new(connection, ClientOptions::default()).root("test");
            Cluster { serving, keeping, ending, client, scratch }
        }

        async fn post(&self, path: &'static str, body: &Value) -> Value {
            Call::raw(http::Method::POST, path).with_body(body).send(&self.client).await.unwrap()
        }

        /// Creates a service account and returns a token for it, as `kubectl create token` does.
        async fn token(&self) -> String {
            let accounts = "/api/v1/namespaces/default/serviceaccounts";
            self.post(accounts, &json!({"metadata": {"name": "a"}})).await;
            let token = "/api/v1/namespaces/default/serviceaccounts/a/token";
            let request = self.post(token, &json!({"spec": {}})).await;
            request["status"]["token"].as_str().unwrap().to_owned()
        }

        async fn config_maps(&self, names: std::ops::Range<u32>) {
            for number in names {
                let name = format!("c{number}");
                let path = "/api/v1/namespaces/default/configmaps";
                self.post(path, &json!({"metadata": {"name": name}})).await;
            }
        }

        /// The UIDs of all ClusterRoles and ConfigMaps.
        async fn uids(&self) -> Vec<String> {
            let mut uids = Vec::new();
            for path in ["/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/configmaps"] {
                let list = Call::raw(http::Method::GET, path).send(&self.client).await.unwrap();
                let items = list["items"].as_array().unwrap();
                uids.extend(items.iter().map(|item| item["metadata"]["uid"].as_str().unwrap().to_owned()));
            }
            uids
        }

        async fn stop(self) {
            self.serving.stop().await;
            let _ = self.ending.send(true);
            if let Some(keeping) = self.keeping {
                keeping.await.unwrap().unwrap();
            }
            drop(self.scratch);
        }
    }

    #[tokio::test]
    async fn tokens_and_uids_of_two_fresh_playgrounds_differ() {
        let (one, two) = (Cluster::start(None).await, Cluster::start(None).await);
        assert_ne!(one.token().await, two.token().await);
        let (uids, others) = (one.uids().await, two.uids().await);
        assert!(uids.len() > 50 && uids.iter().all(|uid| !others.contains(uid)));
        one.stop().await;
        two.stop().await;
    }

    #[tokio::test]
    async fn playground_restarted_with_its_data_gives_fresh_uids_and_tokens() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        let first = Cluster::start(Some(&data)).await;
        first.config_maps(0..10).await;
        let (before, token) = (first.uids().await, first.token().await);
        first.stop().await;
        let second = Cluster::start(Some(&data)).await;
        assert_eq!(second.uids().await, before, "stored objects keep their uids");
        second.config_maps(10..30).await;
        let after = second.uids().await;
        let distinct: BTreeSet<&String> = after.iter().collect();
        assert_eq!((after.len(), distinct.len()), (before.len() + 20, before.len() + 20));
        let path = "/api/v1/namespaces/default/serviceaccounts/a/token";
        assert_ne!(second.post(path, &json!({"spec": {}})).await["status"]["token"], token.as_str());
        second.stop().await;
    }

    #[tokio::test]
    async fn token_stays_valid_after_a_restart_with_the_same_data() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        let first = Cluster::start(Some(&data)).await;
        let token = first.token().await;
        assert_eq!(token.split('.').count(), 3, "a JSON web token");
        first.stop().await;
        let (second, other) = (Cluster::start(Some(&data)).await, Cluster::start(None).await);
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let review = json!({"spec": {"token": token}});
        let status = second.post(path, &review).await["status"].clone();
        assert_eq!(status["user"]["username"], "system:serviceaccount:default:a", "{status}");
        assert_eq!(other.post(path, &review).await["status"]["authenticated"], Value::Null);
        second.stop().await;
        other.stop().await;
    }

    #[tokio::test]
    async fn kubeconfig_copied_before_a_restart_stays_valid() {
        let parent = tempfile::tempdir().unwrap();
        let (data, copy) = (parent.path().join("data"), parent.path().join("copy"));
        let first = Cluster::start(Some(&data)).await;
        first.config_maps(0..1).await;
        std::fs::copy(data.join("kubeconfig"), &copy).unwrap();
        let address = first.serving.address();
        first.stop().await;
        let second = Cluster::start(Some(&data)).await;
        assert_eq!(second.serving.address(), address);
        let connection = Connection::open(Some(&copy), None, None).unwrap();
        let client = ClientFactory::new(connection, ClientOptions::default()).root("test");
        let path = "/api/v1/namespaces/default/configmaps/c0";
        assert!(Call::raw(http::Method::GET, path).send(&client).await.is_ok());
        second.stop().await;
    }

    #[tokio::test]
    async fn nodes_beyond_the_number_are_removed_and_those_of_others_stay() {
        let cluster = Cluster::start(None).await;
        for name in ["hollow-0", "hollow-1", "hollow-2", "hollow-x", "worker-7"] {
            cluster.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await;
        }
        assert_eq!(remove_nodes(&cluster.client, 1).await.unwrap(), 2);
        let list = Call::list(&NODES, "").send(&cluster.client).await.unwrap();
        let names: Vec<_> =
            list["items"].as_array().unwrap().iter().map(|node| &node["metadata"]["name"]).collect();
        assert_eq!(names, ["hollow-0", "hollow-x", "worker-7"]);
        cluster.stop().await;
    }

    #[tokio::test]
    async fn printed_command_of_a_manager_has_files_that_exist() {
        let cluster = Cluster::start(None).await;
        let flags = manager_flags(&cluster.serving, cluster.scratch.path(), 0).unwrap();
        let command = command_of_a_manager(&flags).unwrap();
        for name in ["manager.kubeconfig", "sa.key", "ca.crt"] {
            let path = cluster.scratch.path().join(name);
            assert!(command.contains(&format!("={} ", path.display())), "{command}");
            assert!(path.exists(), "{name}");
        }
        assert!(command::read(flags.into_iter().map(Into::into)).is_ok());
        cluster.stop().await;
    }

    #[tokio::test]
    async fn only_the_owner_can_read_the_files_of_a_playground() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for _ in 0..2 {
            let cluster = Cluster::start(Some(&data)).await;
            manager_flags(&cluster.serving, &data, 0).unwrap();
            private_files::create(&data.join("first.log")).unwrap();
            assert_eq!(mode(&data), 0o700);
            let mut seen = 0;
            for entry in std::fs::read_dir(&data).unwrap() {
                let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
                let name = name.to_str().unwrap();
                assert!(FILES.contains(&name) || state_dir::FILES.contains(&name), "{name} is in no list");
                assert_eq!(mode(&path), 0o600, "{name}");
                seen += 1;
            }
            assert!(seen >= 8, "{seen} files");
            cluster.stop().await;
            // As an earlier version has left them; the next start repairs them.
            std::fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
            for entry in std::fs::read_dir(&data).unwrap() {
                std::fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn misspelt_annotations_are_warned_about() {
        let misspelt = json!({"hollow.keleustes.io/crashafter": "5s"});
        let deployment = json!({"spec": {"template": {"metadata": {"annotations": misspelt}}}});
        let wanted = "annotation hollow.keleustes.io/crashafter is unknown, did you mean hollow.keleustes.io/crash-after?";
        assert_eq!(hollow_problems(&deployment), [wanted]);
        let of_a_replica_set = json!({"metadata": {"annotations": misspelt, "ownerReferences": [{}]}});
        assert!(hollow_problems(&of_a_replica_set).is_empty());
        let cluster = Cluster::start(None).await;
        let body = json!({"metadata": {"name": "a", "annotations": misspelt}}).to_string();
        let request = http::Request::post("/api/v1/namespaces/default/configmaps")
            .header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(kube::client::Body::from(body.into_bytes())).unwrap();
        let response = cluster.client.send(request).await.unwrap();
        let warning = response.headers()[http::header::WARNING].to_str().unwrap().to_owned();
        assert!(warning.contains("did you mean hollow.keleustes.io/crash-after?"), "{warning}");
        cluster.stop().await;
    }

    #[test]
    fn page_shows_the_printed_failures() {
        let page = include_str!("../../../docs/playground.md");
        for line in FAILURES.lines().filter(|line| line.starts_with("    kubectl")) {
            assert!(page.contains(line.trim()), "docs/playground.md does not show {line:?}");
        }
    }

    #[test]
    fn readme_shows_the_printed_commands() {
        assert!(include_str!("../../../README.md").contains(TO_TRY), "README.md shows other commands");
    }

    #[test]
    fn options_are_parsed_and_unknown_ones_refused() {
        let wanted = PlaygroundOptions {
            nodes: 5,
            // Commands for another terminal name its files.
            data: Some(std::env::current_dir().unwrap().join("d")),
            port: 6443,
            manager: false,
            ..PlaygroundOptions::default()
        };
        assert_eq!(
            PlaygroundOptions::read(&["--nodes=5", "--data=d", "--port=6443", "--manager=off"]).unwrap(),
            wanted
        );
        let apart = ["--nodes", "5", "--data", "d", "--port", "6443", "--manager", "off"];
        assert_eq!(PlaygroundOptions::read(&apart).unwrap(), wanted);
        let observed = PlaygroundOptions::read(&["-v", "4", "--manager-port=10257"]).unwrap();
        assert_eq!((observed.verbosity, observed.manager_port), (Some(4), 10257));
        for bad in
            ["--nodes=many", "-v", "--nodes", "--data=", "--port=70000", "--manager=maybe", "--what", "x"]
        {
            assert!(PlaygroundOptions::read(&[bad]).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn error_names_a_port_in_use() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let options = PlaygroundOptions { nodes: 0, port, manager: false, ..Default::default() };
        let error = play(&options).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{error}");
    }
}
