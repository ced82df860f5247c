//! `explain` on a real control plane: the caller's credentials and RBAC, a leader and a standby, kubectl's plugins.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::ResourceQuota;
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, Process, User};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::TestCluster;
use crate::real::{Manager, RealCluster, controllers_flag};

/// The ClusterRole of the documentation.
const ROLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/explain/clusterrole.yaml");
/// Its group.
const GROUP: &str = "keleustes-explain";

/// A manager with its own lease, and its secure port.
struct Explaining {
    port: u16,
    program: PathBuf,
    _process: Process,
}

impl Explaining {
    fn start(real: &RealCluster, name: &str) -> anyhow::Result<Self> {
        let (plane, manager) = (real.plane(), real.ours()?);
        let port = plane.free_port()?;
        let flags = [controllers_flag(), "--leader-elect-resource-name=explaining".to_owned()];
        let process = manager.start_with(plane, name, &plane.manager_args_with(port, &flags))?;
        Ok(Self { port, program: Manager::program(&manager, plane)?, _process: process })
    }

    /// Runs `explain` as the user of a kubeconfig.
    fn explain(&self, kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.arg("explain").args(args);
        Ok(self.with_connection(&mut command, kubeconfig).output()?)
    }

    fn with_connection<'a>(&self, command: &'a mut Command, kubeconfig: &Path) -> &'a mut Command {
        let server = format!("https://127.0.0.1:{}", self.port);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--server", &server])
    }

    /// Runs `explain` until it prints this text.
    async fn explain_until(
        &self,
        cluster: &TestCluster,
        kubeconfig: &Path,
        args: &[&str],
        wanted: &str,
    ) -> anyhow::Result<String> {
        let explained = async || {
            let text = printed(&self.explain(kubeconfig, args)?);
            ensure!(text.contains(wanted), "no {wanted:?} in:\n{text}");
            Ok(Some(text))
        };
        cluster.eventually("an explanation", explained).await
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn first_five(text: &str) -> String {
    text.lines().take(5).collect::<Vec<_>>().join("\n")
}

fn apply_role(plane: &ControlPlane) -> anyhow::Result<()> {
    let applied = plane.kubectl(User::Admin)?.args(["apply", "-f", ROLE]).output()?;
    ensure!(applied.status.success(), "{}", printed(&applied));
    Ok(())
}

/// A Deployment whose pods exceed a quota; returns its namespace.
async fn deployment_beyond_its_quota(cluster: &TestCluster) -> anyhow::Result<String> {
    let namespace = cluster.namespace_with_service_account("explaining").await?;
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}});
    let quotas = cluster.api::<ResourceQuota>(&namespace);
    cluster.create(&quotas, quota).await?;
    let is_counted = |quota: ResourceQuota| quota.status.and_then(|status| status.used).is_some();
    cluster
        .eventually("the status of the quota", async || {
            Ok(is_counted(quotas.get("small").await?).then_some(()))
        })
        .await?;
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "any:1"}]}}}});
    cluster.create(&cluster.api::<Deployment>(&namespace), web).await?;
    Ok(namespace)
}

/// The documented ClusterRole allows `explain`, and without it the caller reads how to get it. The leader names the
/// cause; a standby says that it is one, and computes the same.
pub(crate) async fn explain_needs_the_documented_role_and_works_on_a_standby(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let real = cluster.real()?;
    real.stop_manager()?;
    let plane = real.plane();
    let caller = plane.kubeconfig_for("explaining", Some(GROUP))?;
    let leader = Explaining::start(real, "explaining-leader")?;
    let namespace = deployment_beyond_its_quota(cluster).await?;
    let web = ["deployment/web", "-n", &namespace];

    let refused = leader.explain_until(cluster, &caller, &web, "cannot get path").await?;
    ensure!(refused.contains("\"/debug/keleustes/explain\""), "{refused}");
    ensure!(
        refused.contains("the ClusterRole keleustes-explain in packaging/explain grants it"),
        "{refused}"
    );
    apply_role(plane)?;

    let text = leader.explain_until(cluster, &caller, &web, "exceeded quota: small").await?;
    ensure!(
        first_five(&text).contains("exceeded quota: small"),
        "the first five lines name the cause:\n{text}"
    );
    ensure!(text.contains("Manager:      leader (Lease held by "), "{text}");
    // The role is for explanations only, and those of the group only.
    let other = plane.kubeconfig_for("another", None)?;
    let other = printed(&leader.explain(&other, &web)?);
    ensure!(other.contains("User \"another\" cannot get path"), "{other}");

    let standby = Explaining::start(real, "explaining-standby")?;
    let text = standby.explain_until(cluster, &caller, &web, "Manager:      standby (leader: ").await?;
    ensure!(!text.contains("leader: unknown"), "{text}");
    let text = standby.explain_until(cluster, &caller, &web, "exceeded quota: small").await?;
    ensure!(first_five(&text).contains("exceeded quota: small"), "{text}");
    let sets = cluster.api::<ReplicaSet>(&namespace).list(&ListParams::default()).await?;
    let set = sets.items.first().context("a ReplicaSet")?.name_any();
    let set = ["rs", set.as_str(), "-n", &namespace];
    standby.explain_until(cluster, &caller, &set, "Wants:    create pods").await?;

    formats_and_plugin(&leader, plane, &caller, &namespace)?;
    drop((leader, standby));
    cluster.processes()?.start_manager()?;
    // Long enough for its lease to be acquired, so that the next scenario finds a leader.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// `-o json` and `-o yaml`; and the same by kubectl, which finds a plugin by the name of its file.
fn formats_and_plugin(
    leader: &Explaining,
    plane: &ControlPlane,
    caller: &Path,
    namespace: &str,
) -> anyhow::Result<()> {
    let json = leader.explain(caller, &["deploy", "web", "-n", namespace, "-o", "json"])?;
    let value: Value = serde_json::from_slice(&json.stdout).with_context(|| printed(&json))?;
    ensure!(value["kind"] == "Explanation" && value["state"] == "blocked", "{value}");
    let yaml = printed(&leader.explain(caller, &["deploy/web", "-n", namespace, "-o", "yaml"])?);
    ensure!(yaml.contains("\nkind: Explanation\n"), "{yaml}");

    let folder = plane.scratch_dir().join("plugins");
    std::fs::create_dir_all(&folder)?;
    let plugin = folder.join("kubectl-keleustes");
    if !plugin.exists() {
        symlink(&leader.program, plugin)?;
    }
    let mut kubectl = Command::new(plane.binary(Program::Kubectl)?);
    kubectl.env("PATH", &folder).args(["keleustes", "explain", "deploy/web", "-n", namespace]);
    let text = printed(&leader.with_connection(&mut kubectl, caller).output()?);
    ensure!(text.starts_with("Name:         deployment/web\n"), "{text}");
    ensure!(first_five(&text).contains("exceeded quota: small"), "{text}");
    Ok(())
}
