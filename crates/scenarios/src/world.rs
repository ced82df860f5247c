//! The world a scenario plays in, and the patience it needs.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::real::Real;

/// A cluster with a controller manager in it.
pub struct World {
    /// Speaks to the cluster as its administrator.
    pub admin: Client,
    /// What can be done to the processes behind it, where there are any.
    pub plane: Option<Box<dyn Plane>>,
    /// How long a controller manager may take to bring something about.
    pub patience: Duration,
}

/// What can be done to the processes of a world.
pub trait Plane: Send + Sync {
    /// Who a bearer token speaks for, as the API server sees it.
    fn identify<'a>(&'a self, token: &'a str) -> BoxFuture<'a, anyhow::Result<Option<String>>>;
    /// Ends the manager at once, without a chance to say goodbye.
    fn kill_manager(&self) -> anyhow::Result<()>;
    /// Starts the manager again after it was killed or ended by itself.
    fn start_manager(&self) -> anyhow::Result<()>;
    /// Starts the manager again if it has ended by itself, as any supervisor would: it does so rather
    /// than work on with a lease that it has lost.
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
        Ok(created.name_any())
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
