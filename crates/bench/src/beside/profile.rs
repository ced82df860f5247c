//! Where the time of a phase goes: profiles of the manager and of the API server, kept as files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use tokio::task::JoinHandle;

/// How many seconds one profile of the API server covers. It says nothing of one that is cut short, so a phase
/// has several.
const SECONDS: usize = 5;

/// Profiles that are being taken.
pub(super) struct Profile {
    manager: Child,
    server: JoinHandle<()>,
}

impl Profile {
    /// Begins one of a manager and of the API server that a client reaches. Files are called after the phase.
    pub(super) fn begin(folder: &Path, phase: &str, manager: u32, client: &Client) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let file = |what: &str| folder.join(format!("{}-{what}", phase.replace(' ', "-")));
        let manager = Command::new("perf")
            .args(["record", "--quiet", "--freq=499", "--call-graph=fp", "--pid"])
            .arg(manager.to_string())
            .arg("--output")
            .arg(file("manager.perf"))
            .stdout(Stdio::null())
            .spawn()
            .context("perf cannot be started; it is needed for profiles of managers")?;
        let server = tokio::spawn(of_server(client.clone(), file("server")));
        Ok(Self { manager, server })
    }

    /// Ends both.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.server.abort();
        // An interrupt is how perf is told to write down what it has.
        Command::new("kill").args(["-INT", &self.manager.id().to_string()]).status()?;
        self.manager.wait()?;
        Ok(())
    }
}

/// Takes one profile after the other until it is told to stop.
async fn of_server(client: Client, name: PathBuf) {
    for n in 0.. {
        let asked = async {
            let path = format!("/debug/pprof/profile?seconds={SECONDS}");
            let answer = client.send(http::Request::get(path).body(Body::empty())?).await?;
            let file = name.with_extension(format!("{n}.pprof"));
            anyhow::Ok(fs::write(file, answer.into_body().collect().await?.to_bytes())?)
        };
        if let Err(error) = asked.await {
            eprintln!("no profile of the API server: {error:#}");
            return;
        }
    }
}
