//! A whole cluster to play with, in this one process: an API server, hollow nodes and the manager, on
//! loopback, with nothing to install.
//!
//! The manager is the one that ships: it reads a kubeconfig and speaks HTTPS to the API server like any
//! other. Everything ends with Ctrl-C; what is kept is kept in the folder given by `--data`.

mod demo;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use keleustes_apiserver::http::{Limits, Pki, RunningServer, serve};
use keleustes_apiserver::state_dir::StateDir;
use keleustes_apiserver::{ApiServer, User};
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

/// How long the parts may take to end after Ctrl-C.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);
const SAVE_EVERY: Duration = Duration::from_millis(200);
const EVENTS_LIVE: Duration = Duration::from_secs(3600);
const LEASE_LIVES: Duration = Duration::from_secs(40);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    nodes: usize,
    data: Option<PathBuf>,
    port: u16,
    manager: bool,
    demo: bool,
}

/// Plays until Ctrl-C.
pub(crate) fn run(args: &[&str]) -> ExitCode {
    if args.iter().any(|arg| matches!(*arg, "--help" | "-h")) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let played = Wish::read(args).and_then(|wish| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(play(&wish))
    });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("playground: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Wish {
    fn read(args: &[&str]) -> anyhow::Result<Self> {
        let mut wish = Self { nodes: 3, data: None, port: 0, manager: true, demo: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if *arg == "--demo" {
                wish.demo = true;
                continue;
            }
            let (flag, value) = arg.split_once('=').unwrap_or_else(|| (arg, next_value(&mut args)));
            let number = || value.parse::<u16>().with_context(|| format!("{arg:?} needs a number"));
            match (flag, value) {
                ("--nodes", _) => wish.nodes = number()?.into(),
                ("--port", _) => wish.port = number()?,
                ("--data", folder) if !folder.is_empty() => wish.data = Some(folder.into()),
                ("--manager", "on") => wish.manager = true,
                ("--manager", "off") => wish.manager = false,
                _ => bail!("{arg:?} is not known here\n\n{HELP}"),
            }
        }
        Ok(wish)
    }
}

/// The value of a flag that stands beside it; another flag is none.
fn next_value<'a>(args: &mut std::slice::Iter<'_, &'a str>) -> &'a str {
    let value = args.as_slice().first().copied().filter(|next| !next.starts_with("--"));
    if value.is_some() {
        args.next();
    }
    value.unwrap_or_default()
}

async fn play(wish: &Wish) -> anyhow::Result<()> {
    let began = Instant::now();
    // Gone with the process unless a folder was given.
    let scratch = tempfile::Builder::new().prefix("keleustes-playground-").tempdir()?;
    let folder = wish.data.as_deref().unwrap_or_else(|| scratch.path());
    let (ending, ended) = watch::channel(false);
    let (serving, keeping) = start_server(wish, folder, ended).await?;
    println!("API server   {} ({} ms)", serving.address(), began.elapsed().as_millis());

    let kubeconfig = folder.join("kubeconfig");
    write(&kubeconfig, &serving.kubeconfig(&User::admin())?)?;
    let connection = Connection::open(Some(&kubeconfig), None, None)?;
    let admin = ClientFactory::new(connection, ClientOptions::default());
    let nodes = Hollow::builder(admin.root("hollow-nodes")).nodes(wish.nodes).scheduler(true).untaint(true);
    let nodes = match wish.demo {
        true => nodes.leases(demo::LEASE_EVERY, LEASE_LIVES),
        false => nodes,
    };
    let nodes = nodes.volumes(true).start();
    println!("nodes        {} hollow ones, and a scheduler", wish.nodes);
    let worked = if wish.demo {
        let client = admin.root("demo");
        let manager_flags = manager_flags(&serving, folder)?;
        demo::Demo { client, nodes: &nodes, manager_flags, folder }.play().await
    } else {
        greet(wish, &kubeconfig, began);
        if wish.manager { manage(&serving, folder).await } else { Ok(tokio::signal::ctrl_c().await?) }
    };
    // Whoever still holds a connection then is cut off: this is the end of the world.
    let _ = tokio::time::timeout(STOPPED_WITHIN, nodes.stop()).await;
    let _ = tokio::time::timeout(STOPPED_WITHIN, serving.stop()).await;
    // Without a folder nobody listens.
    let _ = ending.send(true);
    if let Some(keeping) = keeping {
        keeping.await??;
    }
    worked
}

/// Says what there is, and what to try.
/// What a newcomer can type; the README shows it as well.
const TO_TRY: &str = "    kubectl get nodes
    kubectl create deployment oars --image=any:1 --replicas=6
    kubectl rollout status deployment oars
    kubectl set image deployment oars any=any:2 && kubectl get pods -w
";

fn greet(wish: &Wish, kubeconfig: &Path, began: Instant) {
    println!("manager      {}", if wish.manager { "this one" } else { "yours: none runs here" });
    println!("\nready after {} ms. In another terminal:\n", began.elapsed().as_millis());
    println!("    export KUBECONFIG={}", kubeconfig.display());
    println!("{TO_TRY}\nCtrl-C ends it all.");
}

type Keeping = tokio::task::JoinHandle<std::io::Result<()>>;

async fn start_server(
    wish: &Wish,
    folder: &Path,
    ended: watch::Receiver<bool>,
) -> anyhow::Result<(RunningServer, Option<Keeping>)> {
    let builder = ApiServer::builder().rbac(true).service_accounts(true);
    let builder = builder.event_ttl(EVENTS_LIVE).request_log_limit(1000);
    let (server, pki, keeping) = match &wish.data {
        None => (builder.build(), Pki::generate()?, None),
        Some(data) => {
            std::fs::create_dir_all(data).with_context(|| format!("--data={}", data.display()))?;
            let (server, keeper, found) =
                StateDir::open(folder, builder).with_context(|| format!("--data={}", data.display()))?;
            println!("data         {} entries read, {} lost", found.entries, found.skipped);
            let keeping = tokio::spawn(keeper.run(server.clone(), SAVE_EVERY, ended));
            (server, Pki::load_or_generate(folder)?, Some(keeping))
        }
    };
    let address = SocketAddr::from(([127, 0, 0, 1], wish.port));
    let serving = serve(server, address, pki, Limits::default())
        .await
        .with_context(|| format!("the API server cannot listen on {address}"))?;
    Ok((serving, keeping))
}

/// The flags by which a manager finds the server, as a kubeadm manifest would give them.
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

/// Runs the manager in this process; ends with Ctrl-C.
async fn manage(serving: &RunningServer, folder: &Path) -> anyhow::Result<()> {
    let mut flags = manager_flags(serving, folder)?;
    flags.push("--leader-elect=false".to_owned());
    let options = command::read(flags.into_iter().map(Into::into));
    let Ok(options) = options else { bail!("the manager does not take the playground's flags") };
    run::run_until_stopped(&options, &Verbosity::new(0, Vec::new())).await
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Keys are in it: nobody else's business.
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_shows_what_is_printed() {
        assert!(include_str!("../../../README.md").contains(TO_TRY), "README.md shows something else to try");
    }

    #[test]
    fn wishes_are_read_and_strange_ones_refused() {
        let wanted = Wish { nodes: 5, data: Some("d".into()), port: 6443, manager: false, demo: false };
        assert_eq!(Wish::read(&["--nodes=5", "--data=d", "--port=6443", "--manager=off"]).unwrap(), wanted);
        let apart = ["--nodes", "5", "--data", "d", "--port", "6443", "--manager", "off"];
        assert_eq!(Wish::read(&apart).unwrap(), wanted);
        for bad in ["--nodes=many", "--nodes", "--data=", "--port=70000", "--manager=maybe", "--what", "x"] {
            assert!(Wish::read(&[bad]).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let wish = Wish { nodes: 0, data: None, port, manager: false, demo: false };
        let error = play(&wish).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{error}");
    }
}
