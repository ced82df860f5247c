//! All controllers of the original run here too, with the same health checks and queues, and within their roles.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use keleustes_control_plane::ControlPlane;
use keleustes_control_plane::build::Program;

use super::differences::Differences;
use super::items::Items;
use super::{SETTLE_TIME, Side, admin, create_reader, give_work};
use crate::TestCluster;
use crate::real::{API_SERVER_FOR_EVERY_CONTROLLER, EVERY_CONTROLLER, Manager, built_manager};

/// How many controllers the original runs without a cloud provider.
const COUNT: usize = 49;

const HEALTH: &str = "/healthz?verbose ";
const QUEUES: &str = "/metrics workqueue_";
/// The original gives the queues of this controller no name, so that they have no metrics.
const UNNAMED_THERE: &str = "{name=resourcepoolstatusrequest";

/// The health checks and queues of a manager that leads, and its refused requests.
async fn lead(side: &Side<'_>, cluster: &TestCluster) -> anyhow::Result<(Items, Vec<String>)> {
    let mark = side.plane.audit_mark()?;
    let mut process = side.start()?;
    side.wait_until_leading().await?;
    give_work(cluster).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let mut items = side.fetch_items().await?;
    items.retain(|name, _| name.starts_with(HEALTH) || name.starts_with(QUEUES));
    process.stop(Duration::from_secs(15))?;
    let refused = side.plane.audit_since(mark)?.into_iter().filter(|entry| {
        entry.is_from_manager() && (entry.code == 401 || entry.code == 403 && !entry.authorised)
    });
    let refused = refused.map(|entry| format!("{} {} {} {}", entry.code, entry.user, entry.verb, entry.uri));
    Ok((items, refused.collect()))
}

/// The controllers that have a health check.
fn controllers(items: &Items) -> BTreeSet<String> {
    let checks = items.keys().filter_map(|name| name.strip_prefix(HEALTH));
    let names = checks.filter_map(|check| check.strip_prefix("[+]"));
    names.filter(|name| name.ends_with("-controller")).map(str::to_owned).collect()
}

/// Proves CSRS-66.
pub(crate) async fn all_controllers_of_the_original_start_with_the_flags_of_kubeadm(
    _: &TestCluster,
) -> anyhow::Result<()> {
    let mut builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
    for argument in API_SERVER_FOR_EVERY_CONTROLLER {
        builder = builder.api_server_arg(argument);
    }
    let plane = builder.start()?;
    create_reader(&plane)?;
    let cluster = admin(&plane).await?;
    let flags = || EVERY_CONTROLLER.map(str::to_owned).to_vec();
    let side =
        |manager| anyhow::Ok(Side { plane: &plane, port: plane.free_port()?, manager, flags: flags() });
    let (mut ours, refused) = lead(&side(Manager::Ours(built_manager()?))?, &cluster).await?;
    let (original, _) = lead(&side(Manager::Original)?, &cluster).await?;
    ensure!(refused.is_empty(), "the audit log has:\n{}", refused.join("\n"));
    ours.retain(|name, _| !name.contains(UNNAMED_THERE));
    let (here, there) = (controllers(&ours), controllers(&original));
    let missing: Vec<_> = there.difference(&here).collect();
    let added: Vec<_> = here.difference(&there).collect();
    ensure!(missing.is_empty() && added.is_empty(), "missing here: {missing:?}, only here: {added:?}");
    ensure!(here.len() == COUNT, "{} controllers, not {COUNT}: {here:?}", here.len());
    let unlisted = Differences::read()?.unlisted("leading", &original, &ours);
    ensure!(unlisted.is_empty(), "{} problems\n{}", unlisted.len(), unlisted.join("\n"));
    Ok(())
}
