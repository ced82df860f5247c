//! How the manager ends when it is told to, and what it has written by then.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use keleustes_control_plane::{Process, User};

use crate::World;

/// One of ours that holds a lease of its own.
async fn leader(world: &World, lease: &str, more: &[&str]) -> anyhow::Result<Process> {
    let real = world.real()?;
    let kubeconfig = real.plane().kubeconfig(User::ControllerManager);
    let mut flags = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--leader-elect-resource-name={lease}"),
        "--use-service-account-credentials=true".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    flags.extend(more.iter().map(ToString::to_string));
    let process = real.ours()?.start_with(real.plane(), lease, &flags)?;
    // Not by its lease alone: it has that for a moment before it knows.
    world
        .eventually("a leader that knows that it is one", async || {
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
pub(crate) async fn a_second_signal_ends_it_at_once(world: &World) -> anyhow::Result<()> {
    let mut leader = leader(world, "impatient", &[]).await?;
    let api_server = world.real()?.plane().api_server_pid().context("an API server")?;
    // With a server that does not answer, giving the lease back takes seconds.
    signal(api_server, "-STOP")?;
    let ended = async {
        leader.terminate()?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        ensure!(leader.is_running(), "an orderly end waits for the lease to be given back");
        signal(leader.pid(), "-INT")?;
        Ok(leader.wait_exit(Duration::from_secs(2))?)
    }
    .await;
    signal(api_server, "-CONT")?;
    let status = ended?;
    ensure!(status.code() == Some(1), "a second signal ends it with 1, not {status}");
    Ok(())
}

/// Proves RUN-70, RUN-81.
pub(crate) async fn the_gate_keeps_the_lease(world: &World) -> anyhow::Result<()> {
    let leases = world.api::<Lease>("kube-system");
    for (lease, gate) in [("kept", "false"), ("given-back", "true")] {
        let gate_flag = format!("--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit={gate}");
        let mut leader = leader(world, lease, &[&gate_flag]).await?;
        leader.terminate()?;
        let status = leader.wait_exit(Duration::from_secs(15))?;
        ensure!(status.success(), "an orderly stop is a success, not {status}");
        let holder = holder(&leases.get(lease).await?).unwrap_or_default();
        ensure!(holder.is_empty() == (gate == "true"), "{lease} is held by {holder:?}");
    }
    Ok(())
}

/// The resources that were written with the manager's own credentials.
fn written_by_the_manager(world: &World) -> anyhow::Result<BTreeSet<String>> {
    let entries = world.real()?.plane().audit_entries()?.into_iter();
    let writes = entries.filter(|entry| entry.user == User::ControllerManager.name() && entry.is_write());
    let resources = writes.filter_map(|entry| entry.object);
    let named = resources.map(|object| format!("{} {}", object.resource, object.subresource));
    Ok(named.map(|name| name.trim_end().to_owned()).collect())
}

/// Proves RUN-101.
pub(crate) async fn the_manager_itself_writes_little(world: &World) -> anyhow::Result<()> {
    let leader = leader(world, "writing", &[]).await?;
    let written = world
        .eventually("its lease and its event", async || {
            let written = written_by_the_manager(world)?;
            Ok((written.contains("leases") && written.contains("events")).then_some(written))
        })
        .await?;
    // Secrets are the token controller's, which works with the manager's own credentials; reviews only ask.
    let may = [
        "events",
        "leases",
        "secrets",
        "serviceaccounts",
        "serviceaccounts token",
        "subjectaccessreviews",
        "tokenreviews",
    ];
    let other: Vec<_> = written.iter().filter(|what| !may.contains(&what.as_str())).collect();
    ensure!(other.is_empty(), "the manager itself wrote {other:?}");
    drop(leader);
    Ok(())
}
