//! The two clusters of the session: the playground, and kube-apiserver with the same hollow nodes and
//! manager.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, Process, User};
use keleustes_hollow::{Hollow, HollowHandle, record_pod_events};
use kube::config::Kubeconfig;
use tokio::io::AsyncWriteExt as _;
use tokio_util::task::AbortOnDropHandle;

use super::session::Command;
use crate::real::{Manager, built_manager, client_of};

/// How long a cluster may take until its nodes are ready, and how long a command may take.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The signal status of a command that timed out.
const SIGKILL: i32 = 9;

/// A cluster, and a folder in which commands run.
pub(super) struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    /// Processes that end when the cluster is dropped.
    _parts: Parts,
}

struct Parts {
    _nodes: Option<HollowHandle>,
    _pod_events: Option<AbortOnDropHandle<()>>,
    _process: Process,
}

impl Cluster {
    /// The embedded API server, as the playground starts it.
    pub(super) async fn embedded(plane: &ControlPlane) -> anyhow::Result<Self> {
        let folder = plane.scratch_dir().join("embedded");
        let data = folder.join("data");
        let mut command = std::process::Command::new(built_manager()?);
        command.arg("playground").arg(format!("--data={}", data.display()));
        std::fs::create_dir_all(&folder)?;
        let process = Process::spawn("playground", &command, &plane.logs_dir().join("playground.log"))?;
        let kubeconfig = data.join("kubeconfig");
        for _ in 0..100 {
            if kubeconfig.exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ensure!(kubeconfig.exists(), "the playground does not start: {}", process.log_tail());
        Self::at(folder, plane, &kubeconfig, Parts { _nodes: None, _pod_events: None, _process: process })
            .await
    }

    /// The real API server with our hollow nodes and our manager.
    pub(super) async fn real(plane: &ControlPlane) -> anyhow::Result<Self> {
        let folder = plane.scratch_dir().join("real");
        let kubeconfig = plane.kubeconfig(User::Admin);
        // The nodes have ranges for pods, like the playground's.
        let flags = ["--leader-elect=false", "--cluster-cidr=10.32.0.0/11"];
        let manager = Manager::Ours(built_manager()?).start(plane, "manager", &flags)?;
        let nodes =
            Hollow::builder(client_of(plane, User::Admin).await?).nodes(3).scheduler(true).untaint(true);
        let nodes = nodes.volumes(true).mounts(true).batch_killed_code(143).start();
        let pod_events = tokio::spawn(record_pod_events(client_of(plane, User::Admin).await?));
        let parts = Parts {
            _nodes: Some(nodes),
            _pod_events: Some(AbortOnDropHandle::new(pod_events)),
            _process: manager,
        };
        Self::at(folder, plane, &kubeconfig, parts).await
    }

    async fn at(
        folder: PathBuf,
        plane: &ControlPlane,
        kubeconfig: &Path,
        parts: Parts,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("kubeconfig"), with_equal_names(kubeconfig)?)?;
        let kubectl = plane.binary(Program::Kubectl)?;
        let programs = kubectl.parent().context("a folder of programs")?.to_owned();
        let cluster = Self { folder, programs, _parts: parts };
        cluster.settle().await?;
        Ok(cluster)
    }

    /// Waits until every node can take pods and has its range, and every namespace has its ServiceAccount.
    async fn settle(&self) -> anyhow::Result<()> {
        let ready = "kubectl wait --for=condition=Ready nodes --all --timeout=1s >/dev/null 2>&1 \
            && test -z \"$(kubectl get nodes -o 'jsonpath={.items[*].spec.taints}')\" \
            && test $(kubectl get nodes -o name | wc -l) = 3 \
            && test $(kubectl get nodes -o 'jsonpath={.items[*].spec.podCIDR}' | wc -w) = 3 \
            && test $(kubectl get serviceaccounts -A -o name | wc -l) -ge 4";
        let began = tokio::time::Instant::now();
        loop {
            let result = self.shell(ready, "").await?;
            if result.status.success() {
                return Ok(());
            }
            if began.elapsed() > TIMEOUT {
                let output_text = String::from_utf8_lossy(&result.stderr).into_owned();
                bail!("{}: the nodes are not ready: {output_text}", self.folder.display());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Puts a file where the commands run.
    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.folder.join(name), text)?)
    }

    /// Runs a command and returns its output, standard output first.
    pub(super) async fn run(&self, command: &Command) -> anyhow::Result<(bool, String)> {
        let output = self.shell(&command.line, &command.input).await?;
        let mut output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output_text.is_empty() && !output_text.ends_with('\n') {
            output_text.push('\n');
        }
        output_text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), output_text))
    }

    async fn shell(&self, line: &str, input: &str) -> anyhow::Result<Output> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(self.programs.clone()).chain(std::env::split_paths(&path));
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", line])
            .current_dir(&self.folder)
            .env("PATH", std::env::join_paths(paths)?)
            // The settings and caches of the caller's home must not matter.
            .env("HOME", &self.folder)
            .env("KUBECONFIG", "kubeconfig")
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("a standard input")?;
        // A command that reads nothing may have exited already.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        match tokio::time::timeout(TIMEOUT, child.wait_with_output()).await {
            Ok(output) => Ok(output?),
            Err(_) => Ok(Output {
                status: ExitStatus::from_raw(SIGKILL),
                stdout: Vec::new(),
                stderr: b"timed out".to_vec(),
            }),
        }
    }
}

/// The kubeconfig with the same names on both sides.
fn with_equal_names(file: &Path) -> anyhow::Result<String> {
    let mut config = Kubeconfig::read_from(file)?;
    for context in &mut config.contexts {
        "session".clone_into(&mut context.name);
        let context = context.context.as_mut().context("a context")?;
        "cluster".clone_into(&mut context.cluster);
        context.user = Some("admin".to_owned());
    }
    for cluster in &mut config.clusters {
        "cluster".clone_into(&mut cluster.name);
    }
    for user in &mut config.auth_infos {
        "admin".clone_into(&mut user.name);
    }
    config.current_context = Some("session".to_owned());
    // Every YAML reader reads JSON.
    Ok(serde_json::to_string(&config)?)
}
