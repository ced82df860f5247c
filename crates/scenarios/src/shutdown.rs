//! How the manager shuts down, and what it writes with its own credentials.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use keleustes_control_plane::{Process, User};

use crate::TestCluster;

/// Starts one of our managers with its own lease, and waits until it leads.
async fn leader(cluster: &TestCluster, lease: &str, extra_flags: &[&str]) -> anyhow::Result<Process> {
    let real = cluster.real()?;
    let kubeconfig = real.plane().kubeconfig(User::ControllerManager);
    let mut flags = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--leader-elect-resource-name={lease}"),
        "--use-service-account-credentials=true".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    flags.extend(extra_flags.iter().map(ToString::to_string));
    let process = real.ours()?.start_with(real.plane(), lease, &flags)?;
    // The lease alone is not enough: the process learns a moment later that it holds it.
    cluster
        .eventually("a leader", async || {
            let log = std::fs::read_to_string(process.log_path())?;
            Ok(log.contains("Successfully acquired lease").then_some(()))
        })
        .await?;
    Ok(process)
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone()
}

fn signal(pid: u32, name: &str) -> anyhow::Result<()> {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status()?;
    ensure!(sent.success(), "{name} could not be sent");
    Ok(())
}

/// Proves RUN-71, RUN-81.
pub(crate) async fn second_signal_exits_at_once(cluster: &TestCluster) -> anyhow::Result<()> {
    let mut leader = leader(cluster, "second-signal", &[]).await?;
    let api_server = cluster.real()?.plane().api_server_pid().context("an API server")?;
    // While the server does not respond, releasing the lease takes seconds.
    signal(api_server, "-STOP")?;
    let exited = async {
        leader.terminate()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        ensure!(leader.is_running(), "a graceful shutdown waits until the lease is released");
        signal(leader.pid(), "-INT")?;
        Ok(leader.wait_exit(Duration::from_secs(2))?)
    }
    .await;
    signal(api_server, "-CONT")?;
    let status = exited?;
    ensure!(status.code() == Some(1), "a second signal exits with 1, not {status}");
    Ok(())
}

/// Proves RUN-70, RUN-81.
pub(crate) async fn feature_gate_keeps_the_lease_on_exit(cluster: &TestCluster) -> anyhow::Result<()> {
    let leases = cluster.api::<Lease>("kube-system");
    for (lease, gate) in [("kept", "false"), ("given-back", "true")] {
        let gate_flag = format!("--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit={gate}");
        let mut leader = leader(cluster, lease, &[&gate_flag]).await?;
        leader.terminate()?;
        let status = leader.wait_exit(Duration::from_secs(15))?;
        ensure!(status.success(), "a graceful shutdown exits with 0, not {status}");
        let holder = holder(&leases.get(lease).await?).unwrap_or_default();
        ensure!(holder.is_empty() == (gate == "true"), "{lease} is held by {holder:?}");
    }
    Ok(())
}

/// The resources that were written with the manager's own credentials.
fn written_with_manager_credentials(cluster: &TestCluster) -> anyhow::Result<BTreeSet<String>> {
    let entries = cluster.real()?.plane().audit_entries()?.into_iter();
    let writes = entries.filter(|entry| entry.user == User::ControllerManager.name() && entry.is_write());
    let resources = writes.filter_map(|entry| entry.object);
    let named = resources.map(|object| format!("{} {}", object.resource, object.subresource));
    Ok(named.map(|name| name.trim_end().to_owned()).collect())
}

/// Proves RUN-101.
pub(crate) async fn manager_credentials_write_only_expected_resources(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let leader = leader(cluster, "writing", &[]).await?;
    let written = cluster
        .eventually("its lease and its event", async || {
            let written = written_with_manager_credentials(cluster)?;
            Ok((written.contains("leases") && written.contains("events")).then_some(written))
        })
        .await?;
    // The token controller writes Secrets with the manager's own credentials; reviews change nothing.
    let expected = [
        "events",
        "leases",
        "secrets",
        "serviceaccounts",
        "serviceaccounts token",
        "subjectaccessreviews",
        "tokenreviews",
    ];
    let other: Vec<_> = written.iter().filter(|what| !expected.contains(&what.as_str())).collect();
    ensure!(other.is_empty(), "the manager's own credentials wrote {other:?}");
    drop(leader);
    Ok(())
}
