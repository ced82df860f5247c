//! The HTTP endpoints that operators and monitoring read return what the original's return, or the
//! difference is listed.
//!
//! Both managers run on one control plane with the same flags, first with ours leading and the original
//! standing by, then the other way round. Their responses in each role are split into items and compared.

mod all_controllers;
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

pub(crate) use self::all_controllers::all_controllers_of_the_original_start_with_the_flags_of_kubeadm;
use self::differences::Differences;
use self::items::{Items, checks, fields, metrics};
use crate::TestCluster;
use crate::real::{Manager, built_manager, client_of, controllers_flag};
use crate::tokens::{token, token_secret};

const FLAGZ: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
const STATUSZ: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";

/// How long a manager may take to become the leader, or to do its work; after a lost lease the original
/// takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a manager runs before it is read: long enough for another election round.
const SETTLE_TIME: Duration = Duration::from_secs(6);

/// One manager of the two on one control plane.
struct Side<'a> {
    plane: &'a ControlPlane,
    port: u16,
    manager: Manager,
    /// Flags beyond those of a kubeadm manifest.
    flags: Vec<String>,
}

impl Side<'_> {
    fn start(&self) -> anyhow::Result<Process> {
        let flags = self.plane.manager_args_with(self.port, &self.flags);
        self.manager.start_with(self.plane, &self.manager.whose().replace(' ', "-"), &flags)
    }

    /// A client of the endpoints with a token that may read them all.
    async fn client(&self) -> anyhow::Result<Client> {
        let mut kubeconfig = Kubeconfig::read_from(self.plane.kubeconfig(User::Admin))?;
        for cluster in &mut kubeconfig.clusters {
            let cluster = cluster.cluster.as_mut().context("a cluster")?;
            cluster.server = Some(format!("https://127.0.0.1:{}", self.port));
            cluster.certificate_authority_data = None;
            cluster.insecure_skip_tls_verify = Some(true);
        }
        for user in &mut kubeconfig.auth_infos {
            let token = Some(reader_token(self.plane)?.into());
            user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// The items of all endpoints.
    async fn fetch_items(&self) -> anyhow::Result<Items> {
        let client = self.client().await?;
        let page = async |target: &str, accept: &str| {
            let request = http::Request::get(target).header("Accept", accept).body(Vec::new())?;
            client
                .request_text(request)
                .await
                .with_context(|| format!("{target} of {}", self.manager.whose()))
        };
        let mut items = Items::new();
        // The first request makes sure that both have served a request and done a token review.
        page("/metrics", "*/*").await?;
        metrics(&page("/metrics", "*/*").await?, "/metrics", &mut items)?;
        metrics(&page("/metrics/slis", "*/*").await?, "/metrics/slis", &mut items)?;
        checks(&page("/healthz?verbose", "*/*").await?, &mut items);
        for (target, accept) in [("/configz", "*/*"), ("/flagz", FLAGZ), ("/statusz", STATUSZ)] {
            let text = page(target, accept).await?;
            fields(&serde_json::from_str(&text).context(text)?, target, &mut items);
        }
        // The only flag that must differ.
        items.remove("/flagz flags.secure-port");
        Ok(items)
    }

    /// The garbage collector's graph around an object, line by line. Only a leader has one.
    async fn graph(&self, uid: &str, items: &mut Items) -> anyhow::Result<()> {
        let client = self.client().await?;
        let target = format!("/debug/controllers/garbage-collector-controller/graph?uid={uid}");
        let text = client.request_text(http::Request::get(&target).body(Vec::new())?).await?;
        let lines = text.lines().enumerate().map(|(n, line)| (format!("{target} {n:03}"), line.to_owned()));
        items.extend(lines);
        Ok(())
    }

    /// Waits until the health checks of its controllers are listed.
    async fn wait_until_leading(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        let began = tokio::time::Instant::now();
        while began.elapsed() < TIMEOUT {
            let request = http::Request::get("/healthz?verbose").body(Vec::new())?;
            let health = client.request_text(request).await.unwrap_or_default();
            if health.contains("serviceaccount-controller ok") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{} does not become the leader", self.manager.whose())
    }
}

/// Creates the ServiceAccount of the client.
fn create_reader(plane: &ControlPlane) -> anyhow::Result<()> {
    kubectl(plane, "create serviceaccount reader -n default")?;
    kubectl(plane, "create clusterrole pages --verb=get --non-resource-url=*")?;
    kubectl(plane, "create clusterrolebinding pages --clusterrole=pages --serviceaccount=default:reader")?;
    Ok(())
}

/// A token that may read every endpoint.
fn reader_token(plane: &ControlPlane) -> anyhow::Result<String> {
    kubectl(plane, "create token reader -n default")
}

fn kubectl(plane: &ControlPlane, arguments: &str) -> anyhow::Result<String> {
    let done = plane.kubectl(User::Admin)?.args(arguments.split(' ')).output()?;
    ensure!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

/// Creates an owner and a dependent that also has an owner of an unserved kind; returns the UID of the
/// owner.
async fn create_owner_graph(cluster: &TestCluster) -> anyhow::Result<String> {
    let (maps, secrets) = (cluster.api::<ConfigMap>("default"), cluster.api::<Secret>("default"));
    let owner = cluster.create(&maps, json!({"metadata": {"name": "graph-owner"}})).await?;
    let uid = owner.metadata.uid.context("a uid")?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "graph-owner", "uid": uid});
    let unserved = json!({"apiVersion": "example.com/v1", "kind": "Unserved", "name": "x", "uid": "x"});
    let metadata = json!({"name": "graph-dependent", "ownerReferences": [reference, unserved]});
    cluster.create(&secrets, json!({"metadata": metadata})).await?;
    Ok(uid)
}

/// A test cluster with administrator credentials.
async fn admin(plane: &ControlPlane) -> anyhow::Result<TestCluster> {
    Ok(TestCluster::new(client_of(plane, User::Admin).await?, None, TIMEOUT))
}

/// Gives every controller something to do, and waits for it.
async fn give_work(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace_with_service_account("pages").await?;
    let accounts = cluster.api::<ServiceAccount>(&namespace);
    let secrets = cluster.api::<Secret>(&namespace);
    cluster.create(&accounts, json!({"metadata": {"name": "builder"}})).await?;
    cluster.create(&secrets, token_secret("t", "builder")).await?;
    cluster.eventually("the token", async || token(&secrets, "t").await).await?;
    Ok(())
}

/// Proves GC-105, GC-106, GC-107, GC-108, GC-109, RUN-11, RUN-13, RUN-54, RUN-106, RUN-108, RUN-109.
pub(crate) async fn http_endpoints_match_the_original(_: &TestCluster) -> anyhow::Result<()> {
    let plane = ControlPlane::builder().with_program(Program::KubeControllerManager).start()?;
    create_reader(&plane)?;
    let cluster = admin(&plane).await?;
    let owner = create_owner_graph(&cluster).await?;
    let flags = || vec![controllers_flag()];
    let side =
        |manager| anyhow::Ok(Side { plane: &plane, port: plane.free_port()?, manager, flags: flags() });
    let (ours, original) = (side(Manager::Ours(built_manager()?))?, side(Manager::Original)?);

    let mut collected = BTreeMap::new();
    let mut leader: Option<Process> = None;
    for (leader_name, standby_name) in [("ours", "the original"), ("the original", "ours")] {
        let side = |name| if name == "ours" { &ours } else { &original };
        // No other manager runs yet, so that the start order decides who leads.
        if leader.is_none() {
            leader = Some(side(leader_name).start()?);
        }
        side(leader_name).wait_until_leading().await?;
        let standby = side(standby_name).start()?;
        give_work(&cluster).await?;
        tokio::time::sleep(SETTLE_TIME).await;
        let mut leading = side(leader_name).fetch_items().await?;
        side(leader_name).graph(&owner, &mut leading).await?;
        collected.insert((leader_name, "leading"), leading);
        collected.insert((standby_name, "standing by"), side(standby_name).fetch_items().await?);
        if let Some(mut before) = leader.replace(standby) {
            before.stop(Duration::from_secs(15))?;
        }
    }
    let mut accepted = Differences::read()?;
    let mut unlisted = Vec::new();
    for role in ["leading", "standing by"] {
        unlisted.extend(accepted.unlisted(
            role,
            &collected[&("the original", role)],
            &collected[&("ours", role)],
        ));
    }
    unlisted.extend(accepted.stale());
    ensure!(unlisted.is_empty(), "{} problems\n{}", unlisted.len(), unlisted.join("\n"));
    Ok(())
}
