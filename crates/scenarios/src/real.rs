//! A real cluster: etcd, kube-apiserver with RBAC, and a controller manager, ours or the original, as
//! separate processes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{Builder, ControlPlane, Process, Stop, User};
use kube::api::PostParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::{ControlPlaneProcesses, Group, TestCluster};

/// Which controller manager runs.
#[derive(Clone, Debug)]
pub enum Manager {
    /// Ours, from this program file.
    Ours(PathBuf),
    /// The original.
    Original,
}

impl Manager {
    /// "ours" or "the original".
    #[must_use]
    pub fn whose(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ours",
            Self::Original => "the original",
        }
    }

    /// The program file.
    ///
    /// # Errors
    /// If the control plane has no such program.
    pub fn program(&self, plane: &ControlPlane) -> anyhow::Result<PathBuf> {
        Ok(match self {
            Self::Ours(program) => program.clone(),
            Self::Original => plane.binary(Program::KubeControllerManager)?.to_owned(),
        })
    }

    /// Starts it with the flags of a kubeadm manifest; `extra_flags` flags replace or extend them. The log file
    /// has this name.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start<A: AsRef<str>>(
        &self,
        plane: &ControlPlane,
        name: &str,
        extra_flags: &[A],
    ) -> anyhow::Result<Process> {
        self.start_with(plane, name, &plane.manager_args_with(plane.free_port()?, extra_flags))
    }

    /// Starts it with only these flags.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_with(&self, plane: &ControlPlane, name: &str, flags: &[String]) -> anyhow::Result<Process> {
        let mut command = Command::new(self.program(plane)?);
        command.args(flags);
        Ok(Process::spawn(name, &command, &plane.logs_dir().join(format!("{name}.log")))?)
    }
}

/// A client for a user of a control plane.
///
/// # Errors
/// If its kubeconfig cannot be used.
pub async fn client_of(plane: &ControlPlane, user: User) -> anyhow::Result<Client> {
    Ok(Client::try_from(config_of(plane, user).await?.0)?)
}

/// A client that does not repeat refused requests (429), for an administrator of a control plane.
pub(crate) async fn client_without_retries(plane: &ControlPlane) -> anyhow::Result<Client> {
    let mut config = config_of(plane, User::Admin).await?.0;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn config_of(plane: &ControlPlane, user: User) -> anyhow::Result<(Config, Kubeconfig)> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(user))?;
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
    Ok((config, kubeconfig))
}

/// A real control plane with a manager in it.
pub struct RealCluster {
    plane: ControlPlane,
    manager: Manager,
    extra_flags: Vec<String>,
    process: Mutex<Option<Process>>,
    /// Intervals in which the API server was not ready. Until its authorizer has read the roles it rejects
    /// all requests, which says nothing about the manager.
    outages: Mutex<Vec<(Timestamp, Timestamp)>>,
}

/// Two Service ranges allow dual-stack Services; single-stack ones use the first.
const SERVICE_RANGES: &str = "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112";

/// APIs that are not served by default; without their gates, no manager uses them.
const ALPHA_APIS: &str = "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true";

/// The controllers that ours implements; the original runs the same ones.
pub const CONTROLLERS: &[&str] = &[
    "serviceaccount-token-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "ttl-controller",
    "job-controller",
    "cronjob-controller",
    "ttl-after-finished-controller",
    "resourcequota-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "pod-garbage-collector-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "persistentvolume-binder-controller",
    "garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "deployment-controller",
    "disruption-controller",
    "horizontal-pod-autoscaler-controller",
    "statefulset-controller",
    "daemonset-controller",
    "resourceclaim-controller",
    "resourcepoolstatusrequest-controller",
    "device-taint-eviction-controller",
    "bootstrap-signer-controller",
    "token-cleaner-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "podcertificaterequest-cleaner-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "podgroup-protection-controller",
    "ephemeral-volume-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-attach-detach-controller",
    "service-cidr-controller",
    "selinux-warning-controller",
    "storage-version-migrator-controller",
];

/// Flags of a manager that runs every controller, also those that must be named and those behind feature gates that are
/// off by default.
pub const EVERY_CONTROLLER: [&str; 2] = [
    "--controllers=*,bootstrap-signer-controller,token-cleaner-controller,selinux-warning-controller",
    "--feature-gates=GenericWorkload=true,DRAResourcePoolStatus=true,StorageVersionAPI=true",
];

/// Flags of an API server that serves what they need.
pub const API_SERVER_FOR_EVERY_CONTROLLER: [&str; 2] = [
    "--feature-gates=GenericWorkload=true,DRAResourcePoolStatus=true,StorageVersionAPI=true,APIServerIdentity=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true,internal.apiserver.k8s.io/v1alpha1=true",
];

/// The flag that selects them.
#[must_use]
pub fn controllers_flag() -> String {
    format!("--controllers={}", CONTROLLERS.join(","))
}

impl RealCluster {
    /// Starts the control plane of a group of scenarios and a manager with the flags of a kubeadm manifest, and the
    /// group's and `extra_flags` after them.
    ///
    /// # Errors
    /// If anything does not start; the message has the end of its log.
    pub fn start(group: &Group, manager: Manager, extra_flags: &[&str]) -> anyhow::Result<Self> {
        Self::start_on(ControlPlane::builder(), group, manager, extra_flags)
    }

    /// As [`RealCluster::start`], on a control plane that the caller configures.
    ///
    /// # Errors
    /// If anything does not start; the message has the end of its log.
    pub fn start_on(
        builder: Builder,
        group: &Group,
        manager: Manager,
        extra_flags: &[&str],
    ) -> anyhow::Result<Self> {
        let mut builder = builder.api_server_arg(SERVICE_RANGES).api_server_arg(ALPHA_APIS);
        for &arg in group.api_server_args {
            builder = builder.api_server_arg(arg);
        }
        if group.has_scheduler {
            builder = builder.with_scheduler();
        }
        for &program in group.programs {
            builder = builder.with_program(program);
        }
        if group.has_metrics {
            // One node, so that the scheduler has no choice that could differ between two clusters.
            builder = builder.with_kwok(1).with_metrics_server().with_metrics_adapter();
        }
        if matches!(manager, Manager::Original) {
            builder = builder.with_program(Program::KubeControllerManager);
        }
        if let Some(logs) = std::env::var_os("KELEUSTES_LOGS").map(PathBuf::from) {
            let beside = matches!(manager, Manager::Original).then_some("original");
            builder = builder.keep_logs(beside.map_or_else(|| logs.clone(), |folder| logs.join(folder)));
        }
        let plane = builder.start()?;
        let flags = extra_flags.iter().chain(group.manager_args);
        let extra_flags = flags.map(|&flag| flag.to_owned()).collect();
        let real = Self { plane, manager, extra_flags, process: Mutex::default(), outages: Mutex::default() };
        real.start_manager()?;
        Ok(real)
    }

    /// The control plane.
    #[must_use]
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Which manager runs.
    #[must_use]
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The process id of the manager.
    ///
    /// # Errors
    /// If it does not run.
    pub fn manager_pid(&self) -> anyhow::Result<u32> {
        Ok(self.process().as_ref().context("no manager is running")?.pid())
    }

    /// This control plane as a test cluster for scenarios.
    ///
    /// # Errors
    /// If its administrator cannot connect.
    pub async fn into_test_cluster(self) -> anyhow::Result<TestCluster> {
        let admin = client_of(&self.plane, User::Admin).await?;
        // A manager that is started after a killed one waits until its lease expires.
        Ok(TestCluster::new(admin, Some(Box::new(self)), Duration::from_secs(120)))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_manager(&self) -> anyhow::Result<Process> {
        let mut flags = self.extra_flags.clone();
        // Both run the same controllers. Not node-ipam, whose scenarios start a manager of their own.
        flags.insert(0, controllers_flag());
        self.manager.start(&self.plane, "manager", &flags)
    }

    /// Restarts parts of the control plane and records how long the API server was not ready.
    fn outage(
        &self,
        restart: impl FnOnce(&ControlPlane) -> keleustes_control_plane::Result<()>,
    ) -> anyhow::Result<()> {
        let from = Timestamp::now();
        restart(&self.plane)?;
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).push((from, Timestamp::now()));
        Ok(())
    }

    /// Our own manager's program.
    ///
    /// # Errors
    /// If this cluster runs the original.
    pub fn ours(&self) -> anyhow::Result<Manager> {
        match &self.manager {
            Manager::Ours(_) => Ok(self.manager.clone()),
            Manager::Original => bail!("this cluster runs the original"),
        }
    }

    /// Stops this cluster's manager gracefully.
    ///
    /// # Errors
    /// If it does not exit.
    pub fn stop_manager(&self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process().take() {
            process.stop(Duration::from_secs(15))?;
        }
        Ok(())
    }

    async fn identify(&self, token: &str) -> anyhow::Result<Option<String>> {
        let (_, mut kubeconfig) = config_of(&self.plane, User::Admin).await?;
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() });
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config)?);
        match reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await {
            Ok(review) => {
                Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username))
            }
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn pause(&self, time: Duration) -> anyhow::Result<()> {
        self.process().as_mut().context("no manager is running")?.pause()?;
        tokio::time::sleep(time).await;
        self.process().as_mut().context("no manager is running")?.resume()?;
        Ok(())
    }

    /// The requests of the manager and its service accounts that were rejected with 401 or 403.
    ///
    /// # Errors
    /// If the audit log cannot be read.
    pub fn refusals(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.plane.audit_entries()?.into_iter();
        let outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        let during_outage = |at: &str| {
            let at: Option<Timestamp> = at.parse().ok();
            at.is_some_and(|at| outages.iter().any(|(from, to)| (from..=to).contains(&&at)))
        };
        let refused = entries.filter(|entry| {
            let refused = entry.code == 401 || entry.code == 403 && !entry.authorised;
            refused && entry.is_from_manager() && !during_outage(&entry.received_at)
        });
        Ok(refused
            .map(|entry| format!("{} {} {} {}", entry.code, entry.user, entry.verb, entry.uri))
            .collect())
    }
}

impl ControlPlaneProcesses for RealCluster {
    fn identify<'a>(&'a self, token: &'a str) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        RealCluster::identify(self, token).boxed()
    }

    fn kill_manager(&self) -> anyhow::Result<()> {
        let Some(mut process) = self.process().take() else { bail!("no manager is running") };
        process.kill9()?;
        process.wait_exit(Duration::from_secs(5))?;
        Ok(())
    }

    fn start_manager(&self) -> anyhow::Result<()> {
        *self.process() = Some(self.spawn_manager()?);
        Ok(())
    }

    fn ensure_manager_runs(&self) -> anyhow::Result<()> {
        let runs = self.process().as_mut().is_some_and(Process::is_running);
        if runs { Ok(()) } else { self.start_manager() }
    }

    fn pause_manager<'a>(&'a self, time: Duration) -> BoxFuture<'a, anyhow::Result<()>> {
        self.pause(time).boxed()
    }

    fn restart_api_server(&self) -> anyhow::Result<()> {
        self.outage(|plane| plane.restart_api_server(Stop::Kill))
    }

    fn restart_etcd(&self, away: Duration) -> anyhow::Result<()> {
        self.outage(|plane| {
            plane.stop_etcd(Stop::Kill)?;
            std::thread::sleep(away);
            plane.start_etcd()?;
            plane.wait_ready()
        })
    }

    fn refusals(&self) -> anyhow::Result<Vec<String>> {
        RealCluster::refusals(self)
    }

    fn as_real(&self) -> Option<&RealCluster> {
        Some(self)
    }

    fn manager_log(&self) -> String {
        self.process().as_ref().map(Process::log_tail).unwrap_or_default()
    }
}

/// The manager that was built together with this program, or the one that `KELEUSTES_MANAGER` names.
///
/// # Errors
/// If its path cannot be determined or does not exist.
pub fn built_manager() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("KELEUSTES_MANAGER").map(PathBuf::from);
    let manager = match named {
        Some(manager) => manager,
        None => std::env::current_exe()?.with_file_name("kube-controller-manager"),
    };
    if !manager.exists() {
        bail!("{} does not exist; build it with: cargo build -p keleustes-manager", manager.display());
    }
    Ok(manager)
}
