//! The cluster in which a scenario runs, and how to wait for results in it.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::{BoxFuture, LocalBoxFuture};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::real::RealCluster;

/// A cluster with a controller manager in it.
pub struct TestCluster {
    /// A client with administrator credentials.
    pub admin: Client,
    /// The processes of the control plane, where there are any.
    pub processes: Option<Box<dyn ControlPlaneProcesses>>,
    /// How long to wait for a result of the controller manager.
    pub timeout: Duration,
    /// Starts managers of scenarios where there are no processes.
    start_manager: Option<StartManager>,
    /// The namespaces that are compared: those that were created here, and others by name.
    namespaces: Mutex<Vec<String>>,
    /// Receives the checkpoints of the scenario.
    observer: Mutex<Option<UnboundedSender<Checkpoint>>>,
}

/// Starts a manager that runs these controllers only, with these flags.
pub type StartManager =
    Box<dyn for<'a> Fn(&'a [&'a str], &'a [&'a str]) -> LocalBoxFuture<'a, anyhow::Result<OwnManager>>>;

/// A second manager that a scenario has started, beside that of the cluster; it ends when this is dropped.
pub struct OwnManager(#[expect(dead_code, reason = "it is dropped")] Box<dyn Any>);

impl OwnManager {
    /// A manager that ends when this is dropped.
    pub fn new(manager: impl Any) -> Self {
        Self(Box::new(manager))
    }
}

/// A checkpoint at which a scenario waits until the cluster has been read; it continues when this is
/// dropped.
pub(crate) struct Checkpoint {
    /// A description.
    pub(crate) what: String,
    _resume: oneshot::Sender<()>,
}

/// Control over the processes of a cluster.
pub trait ControlPlaneProcesses: Send + Sync {
    /// The user that the API server authenticates a bearer token as.
    fn identify<'a>(&'a self, token: &'a str) -> BoxFuture<'a, anyhow::Result<Option<String>>>;
    /// Kills the manager without a graceful shutdown.
    fn kill_manager(&self) -> anyhow::Result<()>;
    /// Starts the manager after it was killed or has exited.
    fn start_manager(&self) -> anyhow::Result<()>;
    /// Starts the manager if it is not running, as a supervisor would: a manager exits when it loses its
    /// lease.
    fn ensure_manager_runs(&self) -> anyhow::Result<()>;
    /// Pauses the manager's process (SIGSTOP) for a while.
    fn pause_manager<'a>(&'a self, time: Duration) -> BoxFuture<'a, anyhow::Result<()>>;
    /// Kills the API server and starts it again.
    fn restart_api_server(&self) -> anyhow::Result<()>;
    /// Kills etcd and starts it again after a while.
    fn restart_etcd(&self, away: Duration) -> anyhow::Result<()>;
    /// The requests of the manager and its service accounts that the API server rejected, one line each.
    fn refusals(&self) -> anyhow::Result<Vec<String>>;
    /// The last lines of the manager's log.
    fn manager_log(&self) -> String;
    /// The real control plane, if this is one.
    fn as_real(&self) -> Option<&RealCluster>;
}

impl TestCluster {
    /// A cluster with these processes, if any.
    #[must_use]
    pub fn new(admin: Client, processes: Option<Box<dyn ControlPlaneProcesses>>, timeout: Duration) -> Self {
        Self {
            admin,
            processes,
            timeout,
            start_manager: None,
            namespaces: Mutex::default(),
            observer: Mutex::default(),
        }
    }

    /// Starts the managers of scenarios in this way.
    #[must_use]
    pub fn with_own_managers(self, start_manager: StartManager) -> Self {
        Self { start_manager: Some(start_manager), ..self }
    }

    /// Starts a second manager of the same kind, ours or the original, that runs only these controllers.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn own_manager(&self, controllers: &[&str], flags: &[&str]) -> anyhow::Result<OwnManager> {
        if let Some(start) = &self.start_manager {
            return start(controllers, flags).await;
        }
        let real = self.real()?;
        let mut all = vec![format!("--controllers={}", controllers.join(",")), "--leader-elect=false".into()];
        all.extend(flags.iter().map(ToString::to_string));
        Ok(OwnManager::new(real.manager().start(real.plane(), "own-manager", &all)?))
    }

    /// Returns the checkpoints of scenarios from now on, and forgets earlier namespaces.
    pub(crate) fn observe_checkpoints(&self) -> UnboundedReceiver<Checkpoint> {
        let (checkpoints, receiver) = mpsc::unbounded_channel();
        *lock(&self.observer) = Some(checkpoints);
        lock(&self.namespaces).clear();
        receiver
    }

    /// The namespaces that are compared since `observe_checkpoints`.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        lock(&self.namespaces).clone()
    }

    /// Declares that the cluster will not change by itself any more, and waits while an observer compares
    /// it with another cluster.
    pub async fn checkpoint(&self, what: &str) {
        let Some(observer) = lock(&self.observer).clone() else { return };
        self.wait_for_node_events().await;
        let (resume, resumed) = oneshot::channel();
        if observer.send(Checkpoint { what: what.to_owned(), _resume: resume }).is_ok() {
            // The observer drops the checkpoint to resume the scenario.
            let _ = resumed.await;
        }
    }

    /// Whether the cluster is compared with another one, so that actions that only one manager performs
    /// must be left out.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        lock(&self.observer).is_some()
    }

    /// Waits until the manager has recorded an event for every node: it checks nodes every five seconds and
    /// may miss a node that is deleted sooner.
    async fn wait_for_node_events(&self) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let events = self.api::<Event>("default");
        let registered = ListParams::default().fields("involvedObject.kind=Node,reason=RegisteredNode");
        let all_registered = async || {
            let registered = events.list(&registered).await?.items;
            let is_registered = |node: &Node| {
                registered.iter().any(|event| event.involved_object.name.as_ref() == Some(&node.name_any()))
            };
            Ok(nodes.list(&ListParams::default()).await?.iter().all(is_registered).then_some(()))
        };
        // A missing event shows in the comparison.
        let _ = self.eventually("an event for every node", all_registered).await;
    }

    /// The processes of this cluster.
    ///
    /// # Errors
    /// If there are none.
    pub fn processes(&self) -> anyhow::Result<&dyn ControlPlaneProcesses> {
        self.processes.as_deref().context("this cluster has no processes")
    }

    /// The real control plane of this cluster.
    ///
    /// # Errors
    /// If there is none.
    pub fn real(&self) -> anyhow::Result<&RealCluster> {
        self.processes()?.as_real().context("this cluster has no real control plane")
    }

    /// Whether the original runs, which differs in a few ways that scenarios must allow for.
    #[must_use]
    pub fn runs_original(&self) -> bool {
        self.real().is_ok_and(|real| real.ours().is_err())
    }

    /// Creates a namespace with this name prefix.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"generateName": format!("{prefix}-")}}))?;
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let created =
            namespaces.create(&PostParams::default(), &namespace).await.context("creating a namespace")?;
        lock(&self.namespaces).push(created.name_any());
        Ok(created.name_any())
    }

    /// Compares also a namespace of the cluster itself with that of another cluster.
    pub(crate) fn compare_namespace(&self, name: &str) {
        lock(&self.namespaces).push(name.to_owned());
    }

    /// Creates a namespace with this name prefix, and waits until pods can be created in it.
    ///
    /// # Errors
    /// If the server rejects it, or if the manager does not create the ServiceAccount.
    pub(crate) async fn namespace_with_service_account(&self, prefix: &str) -> anyhow::Result<String> {
        let namespace = self.namespace(prefix).await?;
        let accounts = self.api::<ServiceAccount>(&namespace);
        self.eventually("the default ServiceAccount", async || Ok(accounts.get_opt("default").await?))
            .await?;
        Ok(namespace)
    }

    /// Objects of a kind in a namespace.
    #[must_use]
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// Creates an object from JSON.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn create<K>(&self, api: &Api<K>, object: Value) -> anyhow::Result<K>
    where
        K: DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object).await.context("creating an object")
    }

    /// Deletes an object that may be deleted already.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn delete_if_exists<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: DeserializeOwned + Clone + std::fmt::Debug,
    {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop).with_context(|| format!("deleting {name}")),
        }
    }

    /// Removes what an aborted scenario left behind: deletes all nodes but those of kwok, which belong to the cluster, and
    /// starts the manager if it is not running.
    ///
    /// # Errors
    /// If the server rejects a request, or the manager does not start.
    pub async fn clean_up(&self) -> anyhow::Result<()> {
        self.processes()?.ensure_manager_runs()?;
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let of_scenarios = ListParams::default().labels("type!=kwok");
        nodes.delete_collection(&DeleteParams::default(), &of_scenarios).await?;
        Ok(())
    }

    /// Objects of any resource.
    #[must_use]
    pub fn dynamic(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.admin.clone(), resource)
    }

    /// Polls until there is an answer.
    ///
    /// # Errors
    /// If polling fails or there is no answer within the timeout.
    pub async fn eventually<T>(
        &self,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = tokio::time::Instant::now() + self.timeout;
        loop {
            let answer = ask().await;
            match answer {
                Ok(Some(answer)) => return Ok(answer),
                // An API server that was just restarted may refuse connections for a moment.
                Ok(None) | Err(_) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                Ok(None) => bail!("{what}: not within {:?}", self.timeout),
                Err(error) => return Err(error.context(what.to_owned())),
            }
        }
    }

    /// Waits long enough for a manager to do something it must not do.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

/// Sets the finalizers of an object; an empty list removes them.
pub(crate) async fn set_finalizers<K>(api: &Api<K>, name: &str, finalizers: &[&str]) -> anyhow::Result<()>
where
    K: DeserializeOwned + Clone + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
