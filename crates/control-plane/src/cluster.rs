//! The parts of a control plane start in order, are ready before they are used, and end together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::audit::{self, AuditEntry, AuditMark};
use crate::build::{BinaryCache, Program, Programs};
use crate::components;
use crate::error::{During, Error, Result};
use crate::etcd;
use crate::pki::{KeyKind, Pki, User};
use crate::ports::Port;
use crate::probe::Probe;
use crate::process::Process;
use crate::scratch::Scratch;

/// How long a part may take to get ready; the API server needs a few seconds on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// How long a part may take to end when it is asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(30);

/// How often readiness is asked for.
const POLL: Duration = Duration::from_millis(50);

/// How a part is stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// SIGTERM: requests in flight complete, watches end gracefully.
    Gracefully,
    /// SIGKILL: connections break off.
    Kill,
}

/// What a control plane is to consist of.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    scheduler: bool,
    kwok_nodes: Option<usize>,
    go_manager: Option<Vec<String>>,
    api_server_args: Vec<String>,
    service_account_keys: KeyKind,
    logs: Option<PathBuf>,
    also: Vec<Program>,
    metrics_server: bool,
    metrics_adapter: bool,
    older_api_server: bool,
}

impl Builder {
    /// Runs kube-scheduler.
    pub fn with_scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// Runs kwok and creates `nodes` nodes named `node-0`, `node-1`, … for it to simulate. It simulates nodes created later too.
    pub fn with_kwok(mut self, nodes: usize) -> Self {
        self.kwok_nodes = Some(nodes);
        self
    }

    /// Runs Go's kube-controller-manager with `args` after those of [`ControlPlane::manager_args`].
    pub fn with_go_manager<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.go_manager = Some(args.into_iter().map(Into::into).collect());
        self
    }

    /// Runs metrics-server behind the aggregation layer. kwok, which it needs, reports what the annotations
    /// `kwok.x-k8s.io/usage-cpu` and `kwok.x-k8s.io/usage-memory` of pods say.
    pub fn with_metrics_server(mut self) -> Self {
        self.metrics_server = true;
        self
    }

    /// Runs an adapter for custom and external metrics behind the aggregation layer.
    pub fn with_metrics_adapter(mut self) -> Self {
        self.metrics_adapter = true;
        self
    }

    /// Runs the API server of the minor version before, if `older`.
    pub fn with_older_api_server(mut self, older: bool) -> Self {
        self.older_api_server = older;
        self
    }

    fn api_server(&self) -> Program {
        if self.older_api_server { Program::OlderKubeApiserver } else { Program::KubeApiserver }
    }

    /// Makes sure that a program is built without running it, for a later [`ControlPlane::start_go_manager`] for instance.
    pub fn with_program(mut self, program: Program) -> Self {
        self.also.push(program);
        self
    }

    /// Adds an argument to those of kube-apiserver; the last one of a name wins.
    pub fn api_server_arg(mut self, arg: impl Into<String>) -> Self {
        self.api_server_args.push(arg.into());
        self
    }

    /// Chooses the kind of key service-account tokens are signed with (RSA by default).
    pub fn service_account_keys(mut self, kind: KeyKind) -> Self {
        self.service_account_keys = kind;
        self
    }

    /// Writes all logs, the audit log among them, to `dir`, where they stay.
    pub fn keep_logs(mut self, dir: impl Into<PathBuf>) -> Self {
        self.logs = Some(dir.into());
        self
    }

    /// The programs this control plane needs.
    pub fn programs(&self) -> Vec<Program> {
        let mut wanted = Program::BASE.to_vec();
        wanted.retain(|program| *program != Program::KubeApiserver);
        wanted.push(self.api_server());
        wanted.extend(self.scheduler.then_some(Program::KubeScheduler));
        wanted.extend(self.kwok_nodes.map(|_| Program::Kwok));
        wanted.extend(self.go_manager.as_ref().map(|_| Program::KubeControllerManager));
        wanted.extend(self.metrics_server.then_some(Program::MetricsServer));
        wanted.extend(self.metrics_adapter.then_some(Program::MetricsAdapter));
        wanted.extend(&self.also);
        wanted.sort();
        wanted.dedup();
        wanted
    }

    /// Builds what is missing, starts everything, and returns when it is ready.
    pub fn start(self) -> Result<ControlPlane> {
        let workshop = BinaryCache::from_env();
        let programs = workshop.provide(&self.programs())?;
        let plane = ControlPlane::prepare(&self, &workshop, programs)?;
        plane.start_etcd()?;
        plane.start_api_server()?;
        if self.scheduler {
            *plane.slot(&plane.scheduler) = Some(plane.start_scheduler()?);
        }
        if let Some(nodes) = self.kwok_nodes {
            *plane.slot(&plane.kwok) = Some(plane.start_kwok(self.metrics_server)?);
            plane.create_nodes(nodes)?;
        }
        if self.metrics_server {
            *plane.slot(&plane.metrics_server) = Some(plane.start_metrics_server()?);
        }
        if self.metrics_adapter {
            *plane.slot(&plane.metrics_adapter) = Some(plane.start_metrics_adapter()?);
        }
        if let Some(args) = &self.go_manager {
            *plane.slot(&plane.go_manager) = Some(plane.start_go_manager(args)?);
        }
        Ok(plane)
    }
}

/// A running control plane. Everything it started ends when it is dropped, the last started first.
///
/// All methods take `&self`, so that it can be shared between the threads of a test.
#[derive(Debug)]
pub struct ControlPlane {
    // Rust drops fields in this order, and it is the order in which the parts must end.
    go_manager: Mutex<Option<Process>>,
    metrics_adapter: Mutex<Option<Process>>,
    metrics_server: Mutex<Option<Process>>,
    kwok: Mutex<Option<Process>>,
    scheduler: Mutex<Option<Process>>,
    api_server: Mutex<Option<Process>>,
    etcd: Mutex<Option<Process>>,
    scratch: Scratch,
    logs: PathBuf,
    programs: Programs,
    pki: Pki,
    claims: PathBuf,
    ports: Mutex<Vec<Port>>,
    etcd_args: Vec<String>,
    etcd_ready: Probe,
    etcd_port: u16,
    api_server_program: Program,
    api_server_args: Vec<String>,
    api_server_ready: Probe,
    api_server_port: u16,
    /// Where the metrics adapter takes values.
    pub(crate) metric_values_port: OnceLock<u16>,
}

impl ControlPlane {
    /// etcd and kube-apiserver, until more is asked for.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Writes everything the parts will read, and chooses their ports.
    fn prepare(builder: &Builder, workshop: &BinaryCache, programs: Programs) -> Result<Self> {
        let scratch = Scratch::create("keleustes-control-plane-")?;
        let logs = builder.logs.clone().unwrap_or_else(|| scratch.path().join("logs"));
        fs::create_dir_all(&logs).during(|| format!("creating {}", logs.display()))?;
        let pki = Pki::create(&scratch.path().join("pki"), builder.service_account_keys)?;
        let claims = workshop.port_claims();
        let ports = [Port::claim(&claims)?, Port::claim(&claims)?, Port::claim(&claims)?];
        let [etcd_port, peer_port, api_server_port] = [0, 1, 2].map(|index: usize| ports[index].number());
        pki.write_kubeconfigs(&format!("https://127.0.0.1:{api_server_port}"))?;
        let audit_policy = scratch.path().join("audit-policy.yaml");
        fs::write(&audit_policy, audit::POLICY).during(|| format!("writing {}", audit_policy.display()))?;
        let mut api_server_args = components::api_server(&components::ApiServer {
            pki: &pki,
            etcd_port,
            port: api_server_port,
            audit_policy: &audit_policy,
            audit_log: &logs.join(AUDIT_LOG),
            cert_dir: &scratch.path().join("apiserver-certs"),
        });
        api_server_args.extend(builder.api_server_args.iter().cloned());
        let api_server_ready = Probe::https(api_server_port, "/readyz", pki.cluster_authority()?)
            .during(|| "trusting the cluster authority")?;
        Ok(Self {
            go_manager: Mutex::default(),
            metrics_adapter: Mutex::default(),
            metrics_server: Mutex::default(),
            kwok: Mutex::default(),
            scheduler: Mutex::default(),
            api_server: Mutex::default(),
            etcd: Mutex::default(),
            etcd_args: components::etcd(&scratch.path().join("etcd"), etcd_port, peer_port),
            etcd_ready: Probe::http(etcd_port, "/readyz"),
            etcd_port,
            api_server_program: builder.api_server(),
            api_server_args,
            api_server_ready,
            api_server_port,
            metric_values_port: OnceLock::new(),
            scratch,
            logs,
            programs,
            pki,
            claims,
            ports: Mutex::new(Vec::from(ports)),
        })
    }

    /// Where the API server listens on loopback, the same across restarts.
    pub fn api_server_port(&self) -> u16 {
        self.api_server_port
    }

    /// Where the metrics adapter takes values of custom metrics on loopback, by HTTP; `None` if it does not run.
    pub fn metric_values_port(&self) -> Option<u16> {
        self.metric_values_port.get().copied()
    }

    /// `https://127.0.0.1:<port>`, the same across restarts.
    pub fn api_server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_server_port)
    }

    /// The kubeconfig file of a user.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.pki.kubeconfig(user)
    }

    /// Makes a kubeconfig file for any user name, optionally in a group; RBAC decides its permissions.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let file = format!("user-{}.kubeconfig", user.replace(['/', ':'], "-"));
        self.pki.write_kubeconfig(&file, &self.api_server_url(), user, group)
    }

    /// The certificate of the authority that signs for the API server and its clients.
    pub fn ca_file(&self) -> PathBuf {
        self.pki.file("ca.crt")
    }

    /// The private key of that authority.
    pub fn ca_key_file(&self) -> PathBuf {
        self.pki.file("ca.key")
    }

    /// The certificate of the authority behind the aggregation layer.
    pub fn front_proxy_ca_file(&self) -> PathBuf {
        self.pki.file("front-proxy-ca.crt")
    }

    /// The private key service-account tokens are signed with.
    pub fn service_account_key_file(&self) -> PathBuf {
        self.pki.file("sa.key")
    }

    /// The public key the API server verifies service-account tokens with.
    pub fn service_account_public_key_file(&self) -> PathBuf {
        self.pki.file("sa.pub")
    }

    /// Where a program is; an error if neither the builder's choices nor [`Builder::with_program`] asked for it.
    pub fn binary(&self, program: Program) -> Result<&Path> {
        self.programs.path(program).ok_or_else(|| Error::Refused {
            what: format!("finding {program}"),
            said: "this control plane was not started with it".into(),
        })
    }

    /// kubectl as a user, ready for further arguments.
    pub fn kubectl(&self, user: User) -> Result<Command> {
        let mut command = Command::new(self.binary(Program::Kubectl)?);
        command.arg("--kubeconfig").arg(self.kubeconfig(user));
        // Discovery results of other control planes on the same port must not be believed.
        command.arg("--cache-dir").arg(self.scratch.path().join("kubectl-cache"));
        Ok(command)
    }

    /// A directory that is removed together with the control plane, for files of a test.
    pub fn scratch_dir(&self) -> &Path {
        self.scratch.path()
    }

    /// The directory of all logs, `<name>.log` each.
    pub fn logs_dir(&self) -> &Path {
        &self.logs
    }

    /// A port on loopback, reserved for the caller until the control plane ends.
    pub fn free_port(&self) -> Result<u16> {
        let port = Port::claim(&self.claims)?;
        let number = port.number();
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).push(port);
        Ok(number)
    }

    /// The file the API server writes its audit log to.
    pub fn audit_log_path(&self) -> PathBuf {
        self.logs.join(AUDIT_LOG)
    }

    /// Every request that has been answered so far, across restarts of the API server.
    pub fn audit_entries(&self) -> Result<Vec<AuditEntry>> {
        self.audit_since(AuditMark::default())
    }

    /// How many requests have been answered so far, as a mark for [`Self::audit_since`].
    pub fn audit_mark(&self) -> Result<AuditMark> {
        audit::mark(&self.audit_log_path())
    }

    /// The requests that have been answered since a mark.
    pub fn audit_since(&self, mark: AuditMark) -> Result<Vec<AuditEntry>> {
        audit::read(&self.audit_log_path(), mark)
    }

    /// The process id of the API server, if it runs.
    pub fn api_server_pid(&self) -> Option<u32> {
        self.slot(&self.api_server).as_ref().map(Process::pid)
    }

    /// The process id of etcd, if it runs.
    pub fn etcd_pid(&self) -> Option<u32> {
        self.slot(&self.etcd).as_ref().map(Process::pid)
    }

    /// Starts the API server, unless it runs, and waits until it is ready.
    pub fn start_api_server(&self) -> Result<()> {
        let start = || self.spawn(self.api_server_program, "kube-apiserver", &self.api_server_args);
        self.start_into(&self.api_server, start, &self.api_server_ready)
    }

    /// Stops the API server.
    pub fn stop_api_server(&self, how: Stop) -> Result<()> {
        stop(&mut self.slot(&self.api_server), how)
    }

    /// Stops the API server and starts it again on the same port.
    pub fn restart_api_server(&self, how: Stop) -> Result<()> {
        self.stop_api_server(how)?;
        self.start_api_server()
    }

    /// Starts etcd, unless it runs, and waits until it is ready.
    pub fn start_etcd(&self) -> Result<()> {
        let start = || self.spawn(Program::Etcd, "etcd", &self.etcd_args);
        self.start_into(&self.etcd, start, &self.etcd_ready)
    }

    /// Stops etcd; the API server stays and is not ready until etcd is back.
    pub fn stop_etcd(&self, how: Stop) -> Result<()> {
        stop(&mut self.slot(&self.etcd), how)
    }

    /// Stops etcd and starts it again with the same data and ports, then waits until the API server is ready again.
    pub fn restart_etcd(&self, how: Stop) -> Result<()> {
        self.stop_etcd(how)?;
        self.start_etcd()?;
        self.wait_ready()
    }

    /// Freezes etcd (SIGSTOP), as a disk does that stops to write: requests wait.
    pub fn pause_etcd(&self) -> Result<()> {
        self.slot(&self.etcd).as_mut().map_or(Ok(()), Process::pause)
    }

    /// Lets a frozen etcd go on.
    pub fn resume_etcd(&self) -> Result<()> {
        self.slot(&self.etcd).as_mut().map_or(Ok(()), Process::resume)
    }

    /// Stores a value in etcd, past the API server and its validation.
    pub fn put_in_etcd(&self, key: &str, value: &[u8]) -> Result<()> {
        etcd::put(self.etcd_port, key, value).during(|| format!("writing {key} to etcd"))
    }

    /// Deletes a key in etcd, past the API server.
    pub fn delete_in_etcd(&self, key: &str) -> Result<()> {
        etcd::delete(self.etcd_port, key).during(|| format!("deleting {key} in etcd"))
    }

    /// Waits until the API server, which must run, is ready.
    pub fn wait_ready(&self) -> Result<()> {
        match self.slot(&self.api_server).as_mut() {
            Some(process) => until_ready(process, &self.api_server_ready),
            None => Err(Error::Refused {
                what: "waiting for kube-apiserver".into(),
                said: "it is stopped".into(),
            }),
        }
    }

    /// The arguments a kubeadm manifest would give to kube-controller-manager here; they serve Go's manager and ours.
    pub fn manager_args(&self, secure_port: u16) -> Vec<String> {
        components::controller_manager(&self.pki, secure_port)
    }

    /// Those of [`Self::manager_args`] with `args` in place of, or else after, them.
    pub fn manager_args_with<A: AsRef<str>>(&self, secure_port: u16, args: &[A]) -> Vec<String> {
        // A list that is given twice is added up, not replaced, so the earlier one must go.
        let flag = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
        let given: Vec<_> = args.iter().map(|arg| flag(arg.as_ref())).collect();
        let mut all = self.manager_args(secure_port);
        all.retain(|arg| !given.contains(&flag(arg)));
        all.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        all
    }

    /// Starts Go's kube-controller-manager with `args` in place of, or else after, those of
    /// [`Self::manager_args`]; it ends when dropped.
    ///
    /// It returns when the manager has opened its port, which is before it has acquired the Lease.
    pub fn start_go_manager<A: AsRef<str>>(&self, args: &[A]) -> Result<Process> {
        let port = self.free_port()?;
        let all = self.manager_args_with(port, args);
        let mut process = self.spawn(Program::KubeControllerManager, "go-kube-controller-manager", &all)?;
        until_listening(&mut process, port)?;
        Ok(process)
    }

    /// The manager started by [`Builder::with_go_manager`], to pause or kill it, or to take it out.
    pub fn go_manager(&self) -> MutexGuard<'_, Option<Process>> {
        self.slot(&self.go_manager)
    }

    /// The error that names a part which ended by itself, if one did.
    pub fn exited_component(&self) -> Option<Error> {
        let parts = [
            &self.etcd,
            &self.api_server,
            &self.scheduler,
            &self.kwok,
            &self.metrics_server,
            &self.metrics_adapter,
            &self.go_manager,
        ];
        parts.into_iter().find_map(|part| self.slot(part).as_mut().and_then(Process::ended_early))
    }

    fn start_scheduler(&self) -> Result<Process> {
        let port = self.free_port()?;
        let args = components::scheduler(&self.pki, port);
        let mut process = self.spawn(Program::KubeScheduler, "kube-scheduler", &args)?;
        until_listening(&mut process, port)?;
        Ok(process)
    }

    fn start_kwok(&self, reports_usage: bool) -> Result<Process> {
        let port = self.free_port()?;
        let mut args = components::kwok(&self.pki, self.programs.kwok_stages(), port);
        if reports_usage {
            args.extend(components::kwok_usage(self.programs.kwok_usage(), port));
        }
        self.spawn(Program::Kwok, "kwok", &args)
    }

    fn create_nodes(&self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.create_all(&format!("{count} nodes"), &components::nodes(count))
    }

    /// Creates the objects of a manifest.
    pub(crate) fn create_all(&self, what: &str, objects: &str) -> Result<()> {
        let manifest = self.scratch.path().join("manifest.json");
        fs::write(&manifest, objects).during(|| format!("writing {}", manifest.display()))?;
        let mut command = self.kubectl(User::Admin)?;
        command.args(["create", "--validate=false", "-f"]).arg(&manifest);
        run_kubectl(command, &format!("creating {what}"))
    }

    pub(crate) fn spawn(&self, program: Program, name: &str, args: &[String]) -> Result<Process> {
        let mut command = Command::new(self.binary(program)?);
        command.args(args).current_dir(self.scratch.path());
        Process::spawn(name, &command, &self.logs.join(format!("{name}.log")))
    }

    fn start_into(
        &self,
        slot: &Mutex<Option<Process>>,
        start: impl FnOnce() -> Result<Process>,
        ready: &Probe,
    ) -> Result<()> {
        let mut slot = self.slot(slot);
        drop(slot.take_if(|process| !process.is_running()));
        let process = match slot.as_mut() {
            Some(running) => running,
            None => slot.insert(start()?),
        };
        until_ready(process, ready)
    }

    /// A test that panicked while it held the slot has not broken the process in it.
    fn slot<'a>(&self, slot: &'a Mutex<Option<Process>>) -> MutexGuard<'a, Option<Process>> {
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn run_kubectl(mut command: Command, what: &str) -> Result<()> {
    let answer = command.output().during(|| "running kubectl")?;
    if answer.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    Err(Error::Refused { what: what.into(), said })
}

/// The name of the audit log among the logs.
const AUDIT_LOG: &str = "audit.log";

fn stop(slot: &mut Option<Process>, how: Stop) -> Result<()> {
    let Some(mut process) = slot.take() else {
        return Ok(());
    };
    match how {
        Stop::Gracefully => process.stop(GRACE).map(drop),
        Stop::Kill => process.kill9(),
    }
}

fn until_ready(process: &mut Process, probe: &Probe) -> Result<()> {
    until(process, || probe.ask())
}

pub(crate) fn until_listening(process: &mut Process, port: u16) -> Result<()> {
    until(process, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|err| err.to_string())
    })
}

/// Asks until the answer is yes; ends early when the process does.
fn until(process: &mut Process, mut ask: impl FnMut() -> Result<(), String>) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let last = match ask() {
            Ok(()) => return Ok(()),
            Err(last) => last,
        };
        if let Some(ended) = process.ended_early() {
            return Err(ended);
        }
        if Instant::now() >= deadline {
            return Err(Error::NotReady {
                program: process.name().to_owned(),
                seconds: READY_WITHIN.as_secs(),
                last,
                tail: process.log_tail(),
            });
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_of_the_chosen_parts_are_wanted() {
        assert_eq!(ControlPlane::builder().programs(), Program::BASE);
        let all = ControlPlane::builder().with_scheduler().with_kwok(1).with_go_manager([""; 0]);
        let all = all.with_metrics_server().with_metrics_adapter();
        let all = all.with_program(Program::LocalPathProvisioner).with_program(Program::OlderKubeApiserver);
        assert_eq!(all.programs(), Program::ALL);
        let older = ControlPlane::builder().with_older_api_server(true).programs();
        assert_eq!(older, [Program::Etcd, Program::Kubectl, Program::OlderKubeApiserver]);
        let with_kubectl_again = ControlPlane::builder().with_program(Program::Kubectl);
        assert_eq!(with_kubectl_again.programs(), Program::BASE);
    }

    #[test]
    fn a_part_that_ends_instead_of_getting_ready_is_reported_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo port is taken; exit 1"]);
        let mut process = Process::spawn("kube-apiserver", &command, &dir.path().join("log")).unwrap();
        let error = until(&mut process, || Err("connection refused".into())).unwrap_err().to_string();
        assert!(error.contains("kube-apiserver ended") && error.contains("port is taken"), "{error}");
    }

    #[test]
    fn a_control_plane_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<ControlPlane>();
    }
}
