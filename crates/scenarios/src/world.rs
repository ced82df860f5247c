//! The world a scenario plays in, and the patience it needs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::real::Real;

/// A cluster with a controller manager in it.
pub struct World {
    /// Speaks to the cluster as its administrator.
    pub admin: Client,
    /// What can be done to the processes behind it, where there are any.
    pub plane: Option<Box<dyn Plane>>,
    /// How long a controller manager may take to bring something about.
    pub patience: Duration,
    /// The namespaces that were made here.
    namespaces: Mutex<Vec<String>>,
    /// Who is told when this world stands still.
    onlooker: Mutex<Option<UnboundedSender<Stop>>>,
}

/// A moment at which a scenario waits until its world has been looked at; it goes on when this is dropped.
pub(crate) struct Stop {
    /// What was reached.
    pub(crate) what: String,
    _go_on: oneshot::Sender<()>,
}

/// What can be done to the processes of a world.
pub trait Plane: Send + Sync {
    /// Who a bearer token speaks for, as the API server sees it.
    fn identify<'a>(&'a self, token: &'a str) -> BoxFuture<'a, anyhow::Result<Option<String>>>;
    /// Ends the manager at once, without a chance to say goodbye.
    fn kill_manager(&self) -> anyhow::Result<()>;
    /// Starts the manager again after it was killed or ended by itself.
    fn start_manager(&self) -> anyhow::Result<()>;
    /// Starts the manager again if it does not run, as any supervisor would: it ends by itself rather than
    /// work on with a lease that it has lost.
    fn revive_manager(&self) -> anyhow::Result<()>;
    /// Stops the manager's process in its tracks for a while, then lets it go on.
    fn pause_manager<'a>(&'a self, time: Duration) -> BoxFuture<'a, anyhow::Result<()>>;
    /// Ends the API server at once and starts it again.
    fn restart_api_server(&self) -> anyhow::Result<()>;
    /// Ends etcd at once and starts it again after a while.
    fn restart_etcd(&self, away: Duration) -> anyhow::Result<()>;
    /// What the API server refused to the manager or its service accounts, one line each.
    fn refusals(&self) -> anyhow::Result<Vec<String>>;
    /// The end of the manager's log.
    fn manager_log(&self) -> String;
    /// The real control plane, if this is one.
    fn as_real(&self) -> Option<&Real>;
}

impl World {
    /// A world with these processes behind it, if any.
    #[must_use]
    pub fn new(admin: Client, plane: Option<Box<dyn Plane>>, patience: Duration) -> Self {
        Self { admin, plane, patience, namespaces: Mutex::default(), onlooker: Mutex::default() }
    }

    /// Lets somebody look at this world from now on, whenever a scenario says that it stands still.
    pub(crate) fn look_on(&self) -> UnboundedReceiver<Stop> {
        let (stops, reached) = mpsc::unbounded_channel();
        *lock(&self.onlooker) = Some(stops);
        lock(&self.namespaces).clear();
        reached
    }

    /// The namespaces that were made here since somebody looks on.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        lock(&self.namespaces).clone()
    }

    /// Says that nothing will move any more by itself, and waits while somebody looks who wants to know whether
    /// another world has come to the same.
    pub async fn stand_still(&self, what: &str) {
        let Some(onlooker) = lock(&self.onlooker).clone() else { return };
        self.nodes_are_noticed().await;
        let (go_on, looked_at) = oneshot::channel();
        if onlooker.send(Stop { what: what.to_owned(), _go_on: go_on }).is_ok() {
            // Being dropped is the sign.
            let _ = looked_at.await;
        }
    }

    /// Whether another world is to come to the same, so that what only one manager does has no place.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        lock(&self.onlooker).is_some()
    }

    /// Waits until the manager has told of every node. It looks at them every five seconds, and a node that goes
    /// sooner may be told of or not.
    async fn nodes_are_noticed(&self) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let events = self.api::<Event>("default");
        let told = ListParams::default().fields("involvedObject.kind=Node,reason=RegisteredNode");
        let noticed = async || {
            let told = events.list(&told).await?.items;
            let is_told = |node: &Node| {
                told.iter().any(|event| event.involved_object.name.as_ref() == Some(&node.name_any()))
            };
            Ok(nodes.list(&ListParams::default()).await?.iter().all(is_told).then_some(()))
        };
        // Who does not tell of nodes is found out by the comparison.
        let _ = self.eventually("word of every node", noticed).await;
    }

    /// The processes behind this world.
    ///
    /// # Errors
    /// If there are none.
    pub fn plane(&self) -> anyhow::Result<&dyn Plane> {
        self.plane.as_deref().context("this world has no processes")
    }

    /// The real control plane behind this world.
    ///
    /// # Errors
    /// If it is another kind of world.
    pub fn real(&self) -> anyhow::Result<&Real> {
        self.plane()?.as_real().context("this world has no real control plane")
    }

    /// Whether the original is at work, which does a few things that a scenario cannot ask of both.
    #[must_use]
    pub fn runs_original(&self) -> bool {
        self.real().is_ok_and(|real| real.ours().is_err())
    }

    /// Creates a namespace whose name begins like this.
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

    /// Creates a namespace whose name begins like this, and waits until pods can be made in it.
    ///
    /// # Errors
    /// If the server refuses, or if the manager does not give it its account.
    pub(crate) async fn inhabited_namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let namespace = self.namespace(prefix).await?;
        let accounts = self.api::<ServiceAccount>(&namespace);
        self.eventually("the default account", async || Ok(accounts.get_opt("default").await?)).await?;
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

    /// Deletes an object that somebody else may have deleted before.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn delete_if_there<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: DeserializeOwned + Clone + std::fmt::Debug,
    {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop).with_context(|| format!("deleting {name}")),
        }
    }

    /// Puts right what a scenario that was not played to its end left in the way of the next one: nodes, and a
    /// manager that does not run.
    ///
    /// # Errors
    /// If the server refuses, or the manager does not start.
    pub async fn put_right(&self) -> anyhow::Result<()> {
        self.plane()?.revive_manager()?;
        let nodes: Api<Node> = Api::all(self.admin.clone());
        nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }

    /// Objects of any resource.
    #[must_use]
    pub fn dynamic(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.admin.clone(), resource)
    }

    /// Asks again and again until there is an answer.
    ///
    /// # Errors
    /// If asking fails, or no answer comes within this world's patience.
    pub async fn eventually<T>(
        &self,
        what: &str,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = tokio::time::Instant::now() + self.patience;
        loop {
            let answer = ask().await;
            match answer {
                Ok(Some(answer)) => return Ok(answer),
                // An API server that has just been restarted may refuse a few more connections.
                Ok(None) | Err(_) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                Ok(None) => bail!("{what}: not within {:?}", self.patience),
                Err(error) => return Err(error.context(what.to_owned())),
            }
        }
    }

    /// Waits long enough for a manager to do something it should not do.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

/// Holds an object with these finalizers and no others; with none it is let go.
pub(crate) async fn hold<K>(api: &Api<K>, name: &str, finalizers: &[&str]) -> anyhow::Result<()>
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
