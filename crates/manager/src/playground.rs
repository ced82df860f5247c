//! A whole cluster in one process: an API server, hollow nodes and the manager, on loopback, with nothing to install.
//!
//! The manager is the one that ships: it reads a kubeconfig and connects to the API server over HTTPS. Ctrl-C ends
//! everything; only the folder given by `--data` persists.

mod demo;

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use keleustes_apiserver::state_dir::StateDir;
use keleustes_apiserver::{ApiServer, Builder, User, entropy, private_files, state_dir};
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_hollow::Hollow;
use tokio::sync::watch;

use crate::logging::Verbosity;
use crate::{command, run};

const HELP: &str = "\
Starts a whole cluster to play with, in this one process.

Usage: kube-controller-manager playground [--nodes N] [--data DIR] [--port PORT] [--manager=off] [--demo]

  --nodes N      how many nodes to play, 3 by default
  --data DIR     keeps the cluster in a folder, and goes on with what is there
  --port PORT    where the API server listens on loopback; any free port by default
  --manager=off  leaves the manager out, to bring your own
  --demo         plays a rollout, the loss of a node and a failover, and ends
";

/// How long the parts may take to stop after Ctrl-C.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);
const SAVE_EVERY: Duration = Duration::from_millis(200);
const EVENTS_LIVE: Duration = Duration::from_secs(3600);
const LEASE_LIVES: Duration = Duration::from_secs(40);

/// The names of the files in the folder, besides those of the API server.
const FILES: [&str; 5] = ["kubeconfig", "manager.kubeconfig", "sa.key", "first.log", "second.log"];

/// The options of the playground.
#[derive(Debug, PartialEq, Eq)]
struct PlaygroundOptions {
    nodes: usize,
    data: Option<PathBuf>,
    port: u16,
    manager: bool,
    demo: bool,
}

/// Runs until Ctrl-C.
pub(crate) fn run(args: &[&str]) -> ExitCode {
    if args.iter().any(|arg| matches!(*arg, "--help" | "-h")) {
        print!("{HELP}");
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
        let mut options = Self { nodes: 3, data: None, port: 0, manager: true, demo: false };
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
                ("--data", folder) if !folder.is_empty() => options.data = Some(folder.into()),
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
    // Deleted when the process ends, unless `--data` names a folder.
    let scratch = tempfile::Builder::new()
        .prefix("keleustes-playground-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()?;
    let folder = options.data.as_deref().unwrap_or_else(|| scratch.path());
    let (ending, ended) = watch::channel(false);
    let (serving, keeping) = start_server(options, folder, ended).await?;
    println!("API server   {} ({} ms)", serving.address(), began.elapsed().as_millis());

    let kubeconfig = folder.join("kubeconfig");
    write(&kubeconfig, &serving.kubeconfig(&User::admin())?)?;
    let connection = Connection::open(Some(&kubeconfig), None, None)?;
    let admin = ClientFactory::new(connection, ClientOptions::default());
    let nodes =
        Hollow::builder(admin.root("hollow-nodes")).nodes(options.nodes).scheduler(true).untaint(true);
    let nodes = match options.demo {
        true => nodes.leases(demo::LEASE_EVERY, LEASE_LIVES),
        false => nodes,
    };
    let nodes = nodes.volumes(true).start();
    println!("nodes        {} hollow ones, and a scheduler", options.nodes);
    let worked = if options.demo {
        let client = admin.root("demo");
        let manager_flags = manager_flags(&serving, folder)?;
        demo::Demo { client, nodes: &nodes, manager_flags, folder }.play().await
    } else {
        greet(options, &kubeconfig, began);
        if options.manager { manage(&serving, folder).await } else { Ok(tokio::signal::ctrl_c().await?) }
    };
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

/// Commands to try; README shows them as well.
const TO_TRY: &str = "    kubectl get nodes
    kubectl create deployment oars --image=any:1 --replicas=6
    kubectl rollout status deployment oars
    kubectl set image deployment oars any=any:2 && kubectl get pods -w
";

fn greet(options: &PlaygroundOptions, kubeconfig: &Path, began: Instant) {
    println!("manager      {}", if options.manager { "this one" } else { "none; start your own" });
    println!("\nready after {} ms. In another terminal:\n", began.elapsed().as_millis());
    println!("    export KUBECONFIG={}", kubeconfig.display());
    println!("{TO_TRY}\nCtrl-C ends everything.");
}

type Keeping = tokio::task::JoinHandle<std::io::Result<()>>;

/// The API server's options. Everything random comes from the operating system: with a seed, UIDs would repeat after a
/// restart, and any user of the machine could compute the tokens.
fn server_builder() -> Builder {
    let builder = ApiServer::builder().entropy(entropy::operating_system());
    builder.rbac(true).service_accounts(true).event_ttl(EVENTS_LIVE).request_log_limit(1000)
}

async fn start_server(
    options: &PlaygroundOptions,
    folder: &Path,
    ended: watch::Receiver<bool>,
) -> anyhow::Result<(RunningServer, Option<Keeping>)> {
    let builder = server_builder();
    let (server, pki, keeping) = match &options.data {
        None => (builder.build(), Pki::generate()?, None),
        Some(data) => {
            let files = [&FILES[..], &state_dir::FILES].concat();
            private_files::create_dir(data, &files).with_context(|| format!("--data={}", data.display()))?;
            let (server, keeper, found) =
                StateDir::open(folder, builder).with_context(|| format!("--data={}", data.display()))?;
            println!("data         {} entries read, {} lost", found.entries, found.skipped);
            let keeping = tokio::spawn(keeper.run(server.clone(), SAVE_EVERY, ended));
            (server, Pki::load_or_generate(folder)?, Some(keeping))
        }
    };
    let address = SocketAddr::from(([127, 0, 0, 1], options.port));
    let serving = serve(server, address, pki, Limits::default())
        .await
        .with_context(|| format!("the API server cannot listen on {address}"))?;
    Ok((serving, keeping))
}

/// The flags by which a manager connects to the server, as in a kubeadm manifest.
fn manager_flags(serving: &RunningServer, folder: &Path) -> anyhow::Result<Vec<String>> {
    let file = |name: &str| folder.join(name);
    let user = User::new("system:kube-controller-manager", &[]);
    write(&file("manager.kubeconfig"), &serving.kubeconfig(&user)?)?;
    write(&file("ca.crt"), serving.pki().ca_pem())?;
    if !file("sa.key").exists() {
        write(&file("sa.key"), &rcgen::KeyPair::generate()?.serialize_pem())?;
    }
    Ok(vec![
        format!("--kubeconfig={}", file("manager.kubeconfig").display()),
        format!("--service-account-private-key-file={}", file("sa.key").display()),
        format!("--root-ca-file={}", file("ca.crt").display()),
        "--use-service-account-credentials=true".to_owned(),
        "--secure-port=0".to_owned(),
    ])
}

/// Runs the manager in this process until Ctrl-C.
async fn manage(serving: &RunningServer, folder: &Path) -> anyhow::Result<()> {
    let mut flags = manager_flags(serving, folder)?;
    flags.push("--leader-elect=false".to_owned());
    let options = command::read(flags.into_iter().map(Into::into));
    let Ok(options) = options else { bail!("the manager refuses the playground's flags") };
    run::run_until_stopped(&options, &Verbosity::new(0, Vec::new())).await
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    private_files::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use keleustes_client::Call;
    use serde_json::{Value, json};

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
            let options = PlaygroundOptions { nodes: 0, data, port: 0, manager: false, demo: false };
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
    async fn only_the_owner_can_read_the_files_of_a_playground() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for _ in 0..2 {
            let cluster = Cluster::start(Some(&data)).await;
            manager_flags(&cluster.serving, &data).unwrap();
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

    #[test]
    fn readme_shows_the_printed_commands() {
        assert!(include_str!("../../../README.md").contains(TO_TRY), "README.md shows other commands");
    }

    #[test]
    fn options_are_parsed_and_unknown_ones_refused() {
        let wanted =
            PlaygroundOptions { nodes: 5, data: Some("d".into()), port: 6443, manager: false, demo: false };
        assert_eq!(
            PlaygroundOptions::read(&["--nodes=5", "--data=d", "--port=6443", "--manager=off"]).unwrap(),
            wanted
        );
        let apart = ["--nodes", "5", "--data", "d", "--port", "6443", "--manager", "off"];
        assert_eq!(PlaygroundOptions::read(&apart).unwrap(), wanted);
        for bad in ["--nodes=many", "--nodes", "--data=", "--port=70000", "--manager=maybe", "--what", "x"] {
            assert!(PlaygroundOptions::read(&[bad]).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn error_names_a_port_in_use() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let options = PlaygroundOptions { nodes: 0, data: None, port, manager: false, demo: false };
        let error = play(&options).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{error}");
    }
}
