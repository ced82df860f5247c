//! One of the two managers: its process with a memory limit, its credentials in files, and its memory over time.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keleustes_control_plane::{ControlPlane, Process, User};
use keleustes_pki::{Authority, Subject, Usage};
use keleustes_scenarios::real::built_manager;

use super::proxy::FaultProxy;
use crate::meters::Meter;

/// An outage of the only API server is no reason to lose the Lease, as operators of such clusters set it up: restarts on
/// a busy machine take longer than the ten seconds of the default.
const LEASE_FLAGS: [&str; 3] = [
    "--leader-elect-lease-duration=60s",
    "--leader-elect-renew-deadline=45s",
    "--leader-elect-retry-period=2s",
];
/// As in the flags.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(45);
/// How long a manager may take to exit after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How a manager is restarted on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// SIGKILL, as by the kernel when memory runs out.
    Kill,
    /// SIGTERM, as by an upgrade.
    Terminate,
}

/// A manager behind its own proxy.
pub(super) struct SoakManager {
    pub(super) proxy: FaultProxy,
    plane: Arc<ControlPlane>,
    name: String,
    /// The folder of its kubeconfig, certificate and key.
    folder: PathBuf,
    // The group of the limit can be removed once its process has ended, so the process is dropped first.
    process: Process,
    memory_limit: MemoryLimit,
}

impl SoakManager {
    /// Starts it with its first client certificate.
    pub(super) fn start(
        plane: &Arc<ControlPlane>,
        authority: &Authority,
        proxy: FaultProxy,
        name: &str,
        limit_bytes: u64,
        certificate_life: Duration,
    ) -> anyhow::Result<Self> {
        let folder = plane.scratch_dir().join(name);
        fs::create_dir_all(&folder)?;
        write_certificate(authority, &folder, certificate_life)?;
        fs::write(folder.join("kubeconfig"), kubeconfig(&proxy.url(), &plane.ca_file(), &folder))?;
        let memory_limit = MemoryLimit::create(name, limit_bytes);
        let process = spawn(plane, name, &folder, &memory_limit)?;
        Ok(Self { proxy, plane: Arc::clone(plane), name: name.to_owned(), folder, process, memory_limit })
    }

    /// Whether the kernel enforces the memory limit.
    pub(super) fn is_limited(&self) -> bool {
        self.memory_limit.group.is_some()
    }

    /// Replaces certificate and key, one after the other, as a rotation does.
    pub(super) fn rotate(&self, authority: &Authority, life: Duration) -> anyhow::Result<()> {
        write_certificate(authority, &self.folder, life)
    }

    /// Ends it, and starts it again as a kubelet does.
    pub(super) fn restart(&mut self, how: Restart) -> anyhow::Result<()> {
        match how {
            Restart::Kill => self.process.kill9()?,
            Restart::Terminate => {
                self.process.terminate()?;
                let status = self.process.wait_exit(EXIT_TIMEOUT)?;
                anyhow::ensure!(status.success(), "{} exits with {status} after SIGTERM", self.name);
            }
        }
        self.start_again()
    }

    /// How it has exited, if it has; then it is started again.
    pub(super) fn restarted_after_exit(&mut self) -> anyhow::Result<Option<String>> {
        let Some(status) = self.process.exit_status() else { return Ok(None) };
        let exit = format!("{} has exited: {status}\n{}", self.name, self.process.log_tail());
        self.start_again()?;
        Ok(Some(exit))
    }

    fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = spawn(&self.plane, &self.name, &self.folder, &self.memory_limit)?;
        Ok(())
    }

    /// Its process.
    pub(super) fn meter(&self) -> Meter {
        Meter(self.process.pid())
    }
}

fn spawn(plane: &ControlPlane, name: &str, folder: &Path, limit: &MemoryLimit) -> anyhow::Result<Process> {
    let mut flags = vec![
        format!("--kubeconfig={}", folder.join("kubeconfig").display()),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=200".to_owned(),
    ];
    flags.extend(LEASE_FLAGS.map(str::to_owned));
    let flags = plane.manager_args_with(plane.free_port()?, &flags);
    let mut command = limit.command(&built_manager()?);
    command.args(flags);
    Ok(Process::spawn(name, &command, &plane.logs_dir().join(format!("{name}.log")))?)
}

fn write_certificate(authority: &Authority, folder: &Path, life: Duration) -> anyhow::Result<()> {
    let name = User::ControllerManager.name();
    let subject = Subject { name, group: None, alt_names: &[], usage: Usage::Client };
    let issued = authority.issue_for(&subject, life)?;
    fs::write(folder.join("client.crt"), issued.certificate.pem())?;
    fs::write(folder.join("client.key"), issued.key.serialize_pem())?;
    Ok(())
}

fn kubeconfig(server: &str, authority: &Path, folder: &Path) -> String {
    let [certificate, key] = ["client.crt", "client.key"].map(|name| folder.join(name));
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "soak",
        "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "manager"}}],
        "clusters": [{"name": "soak", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "manager", "user": {"client-certificate": certificate, "client-key": key}}],
    })
    .to_string()
}

/// A control group with a memory limit, where this process may make one.
struct MemoryLimit {
    group: Option<PathBuf>,
}

/// The memory controller of cgroup v2 and of v1: its folder, and the file of the limit.
const CONTROLLERS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

impl MemoryLimit {
    fn create(name: &str, bytes: u64) -> Self {
        let group = CONTROLLERS.iter().find_map(|(root, file)| {
            let group = Path::new(root).join(format!("keleustes-soak-{}-{name}", std::process::id()));
            fs::create_dir(&group).ok()?;
            // The kernel has made the file, unless this is no control group.
            let limit = OpenOptions::new().write(true).open(group.join(file));
            if limit.is_ok_and(|mut limit| limit.write_all(bytes.to_string().as_bytes()).is_ok()) {
                return Some(group);
            }
            let _ = fs::remove_dir(&group);
            None
        });
        Self { group }
    }

    /// A command that runs the program within the limit.
    fn command(&self, program: &Path) -> Command {
        let Some(group) = &self.group else { return Command::new(program) };
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(group.join("cgroup.procs")).arg(program);
        shell
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            // Processes that end are members for a moment.
            for _ in 0..50 {
                if fs::remove_dir(group).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// The certificate authority of a control plane.
pub(super) fn authority(plane: &ControlPlane) -> anyhow::Result<Authority> {
    let certificate = fs::read_to_string(plane.ca_file()).context("the authority's certificate")?;
    let key = fs::read_to_string(plane.ca_key_file()).context("the authority's key")?;
    Ok(Authority::from_pem("kubernetes", certificate, &key)?)
}
