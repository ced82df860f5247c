//! CPU profiles of the manager and of the API server during a phase, saved as files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use tokio::task::JoinHandle;

/// The seconds of one API server profile. An aborted profile returns nothing, so that a phase has several.
const SECONDS: usize = 5;

/// Running profilers.
pub(super) struct Profile {
    manager: Child,
    server: JoinHandle<()>,
}

impl Profile {
    /// Profiles a manager, and the API server that the client reaches. The files are named after the phase.
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
        let server = tokio::spawn(profile_server(client.clone(), file("server")));
        Ok(Self { manager, server })
    }

    /// Stops both.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.server.abort();
        // SIGINT makes perf write its data.
        Command::new("kill").args(["-INT", &self.manager.id().to_string()]).status()?;
        self.manager.wait()?;
        Ok(())
    }
}

/// Takes one profile after the other until the task is aborted, and the API server's metrics before the first
/// and after each: their difference states the bytes of watches and responses by resource.
async fn profile_server(client: Client, name: PathBuf) {
    let taken = async {
        save(&client, "/metrics", name.with_extension("before.metrics")).await?;
        for n in 0.. {
            let profile = format!("/debug/pprof/profile?seconds={SECONDS}");
            save(&client, &profile, name.with_extension(format!("{n}.pprof"))).await?;
            save(&client, "/metrics", name.with_extension("after.metrics")).await?;
        }
        anyhow::Ok(())
    };
    if let Err(error) = taken.await {
        eprintln!("no profile of the API server: {error:#}");
    }
}

async fn save(client: &Client, path: &str, file: PathBuf) -> anyhow::Result<()> {
    let answer = client.send(http::Request::get(path).body(Body::empty())?).await?;
    Ok(fs::write(file, answer.into_body().collect().await?.to_bytes())?)
}
