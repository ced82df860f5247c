//! The pages that operators and monitoring read say what the original's say, or the difference is listed.
//!
//! Both managers run on one control plane with the same flags, first ours leading and the original standing by,
//! then the other way round. What each tells in each part is taken apart into items and compared.

mod differences;
mod items;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, Process, User};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use self::differences::Differences;
use self::items::{Items, checks, fields, metrics};
use crate::World;
use crate::real::{Manager, built_manager, client_of, controllers_flag};
use crate::tokens::{token, token_secret};

const FLAGZ: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
const STATUSZ: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";

/// How long a manager may take to lead, or to do what it is asked for; a lost lease takes the original seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a manager runs before it is asked: long enough for another election round.
const SETTLING: Duration = Duration::from_secs(6);

/// Both managers on one control plane.
struct Side<'a> {
    plane: &'a ControlPlane,
    port: u16,
    manager: Manager,
}

impl Side<'_> {
    fn start(&self) -> anyhow::Result<Process> {
        let flags = self.plane.manager_args_with(self.port, &[controllers_flag()]);
        self.manager.start_with(self.plane, &self.manager.whose().replace(' ', "-"), &flags)
    }

    /// A client of the pages, with a token that may see them all.
    async fn client(&self) -> anyhow::Result<Client> {
        let mut kubeconfig = Kubeconfig::read_from(self.plane.kubeconfig(User::Admin))?;
        for cluster in &mut kubeconfig.clusters {
            let cluster = cluster.cluster.as_mut().context("a cluster")?;
            cluster.server = Some(format!("https://127.0.0.1:{}", self.port));
            cluster.certificate_authority_data = None;
            cluster.insecure_skip_tls_verify = Some(true);
        }
        for user in &mut kubeconfig.auth_infos {
            let token = Some(reader(self.plane)?.into());
            user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// What it tells, page by page.
    async fn told(&self) -> anyhow::Result<Items> {
        let client = self.client().await?;
        let page = async |target: &str, accept: &str| {
            let request = http::Request::get(target).header("Accept", accept).body(Vec::new())?;
            client
                .request_text(request)
                .await
                .with_context(|| format!("{target} of {}", self.manager.whose()))
        };
        let mut items = Items::new();
        // Asked first once, so that both have answered and reviewed somebody when they tell of it.
        page("/metrics", "*/*").await?;
        metrics(&page("/metrics", "*/*").await?, "/metrics", &mut items)?;
        metrics(&page("/metrics/slis", "*/*").await?, "/metrics/slis", &mut items)?;
        checks(&page("/healthz?verbose", "*/*").await?, &mut items);
        for (target, accept) in [("/configz", "*/*"), ("/flagz", FLAGZ), ("/statusz", STATUSZ)] {
            let text = page(target, accept).await?;
            fields(&serde_json::from_str(&text).context(text)?, target, &mut items);
        }
        // The one flag in which the two must differ.
        items.remove("/flagz flags.secure-port");
        Ok(items)
    }

    /// The graph of owners around an object, line by line. Only a leader has one.
    async fn graph(&self, uid: &str, items: &mut Items) -> anyhow::Result<()> {
        let client = self.client().await?;
        let target = format!("/debug/controllers/garbage-collector-controller/graph?uid={uid}");
        let text = client.request_text(http::Request::get(&target).body(Vec::new())?).await?;
        let lines = text.lines().enumerate().map(|(n, line)| (format!("{target} {n:03}"), line.to_owned()));
        items.extend(lines);
        Ok(())
    }

    /// Waits until its controllers have a say in its health.
    async fn leads(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        let began = tokio::time::Instant::now();
        while began.elapsed() < PATIENCE {
            let request = http::Request::get("/healthz?verbose").body(Vec::new())?;
            let health = client.request_text(request).await.unwrap_or_default();
            if health.contains("serviceaccount-controller ok") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{} does not lead", self.manager.whose())
    }
}

/// A token of somebody who may see every page.
fn reader(plane: &ControlPlane) -> anyhow::Result<String> {
    kubectl(plane, "create token reader -n default")
}

fn kubectl(plane: &ControlPlane, arguments: &str) -> anyhow::Result<String> {
    let done = plane.kubectl(User::Admin)?.args(arguments.split(' ')).output()?;
    ensure!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

/// Makes an owner, a dependent and one more whose owner does not exist, and tells the owner's uid.
async fn owners(world: &World) -> anyhow::Result<String> {
    let (maps, secrets) = (world.api::<ConfigMap>("default"), world.api::<Secret>("default"));
    let owner = world.create(&maps, json!({"metadata": {"name": "graph-owner"}})).await?;
    let uid = owner.metadata.uid.context("a uid")?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "graph-owner", "uid": uid});
    let unserved = json!({"apiVersion": "example.com/v1", "kind": "Unserved", "name": "x", "uid": "x"});
    let metadata = json!({"name": "graph-dependent", "ownerReferences": [reference, unserved]});
    world.create(&secrets, json!({"metadata": metadata})).await?;
    Ok(uid)
}

/// Speaks to a control plane as its administrator.
async fn admin(plane: &ControlPlane) -> anyhow::Result<World> {
    Ok(World::new(client_of(plane, User::Admin).await?, None, PATIENCE))
}

/// Gives every controller that is there something to do, and waits for it.
async fn work(world: &World) -> anyhow::Result<()> {
    let namespace = world.inhabited_namespace("pages").await?;
    let accounts = world.api::<ServiceAccount>(&namespace);
    let secrets = world.api::<Secret>(&namespace);
    world.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    world.create(&secrets, token_secret("t", "builder")).await?;
    world.eventually("the token", async || token(&secrets, "t").await).await?;
    Ok(())
}

/// Proves GC-105, GC-106, GC-107, GC-108, GC-109, RUN-11, RUN-13, RUN-54, RUN-106, RUN-108, RUN-109.
pub(crate) async fn pages_tell_what_the_original_s_tell(_: &World) -> anyhow::Result<()> {
    let plane = ControlPlane::builder().with_program(Program::KubeControllerManager).start()?;
    kubectl(&plane, "create serviceaccount reader -n default")?;
    kubectl(&plane, "create clusterrole pages --verb=get --non-resource-url=*")?;
    kubectl(&plane, "create clusterrolebinding pages --clusterrole=pages --serviceaccount=default:reader")?;
    let world = admin(&plane).await?;
    let owner = owners(&world).await?;
    let side = |manager| anyhow::Ok(Side { plane: &plane, port: plane.free_port()?, manager });
    let (ours, original) = (side(Manager::Ours(built_manager()?))?, side(Manager::Original)?);

    let mut told = BTreeMap::new();
    let mut leader: Option<Process> = None;
    for (leads, stands_by) in [("ours", "the original"), ("the original", "ours")] {
        let side = |name| if name == "ours" { &ours } else { &original };
        // Nobody else can take the lease yet, so the order of starting decides who leads.
        if leader.is_none() {
            leader = Some(side(leads).start()?);
        }
        side(leads).leads().await?;
        let standby = side(stands_by).start()?;
        work(&world).await?;
        tokio::time::sleep(SETTLING).await;
        let mut leading = side(leads).told().await?;
        side(leads).graph(&owner, &mut leading).await?;
        told.insert((leads, "leading"), leading);
        told.insert((stands_by, "standing by"), side(stands_by).told().await?);
        if let Some(mut before) = leader.replace(standby) {
            before.stop(Duration::from_secs(15))?;
        }
    }
    let mut known = Differences::read()?;
    let mut unlisted = Vec::new();
    for role in ["leading", "standing by"] {
        unlisted.extend(known.unlisted(role, &told[&("the original", role)], &told[&("ours", role)]));
    }
    unlisted.extend(known.stale());
    ensure!(unlisted.is_empty(), "{} problems\n{}", unlisted.len(), unlisted.join("\n"));
    Ok(())
}
