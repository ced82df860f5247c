//! Records the current resourceVersion of a resource in the status of its running migration.

use std::time::Duration;

use keleustes_objects::{Key, Resource, StorageVersionMigration};
use keleustes_plan::{Context, Memory, Now, PageRequest, Plan, ReconcileError, Reconciler, Requeue};

use super::conditions::{self, NewStatus};
use super::served::{self, gvr, retry};

/// No namespace can have this name, so the list of its objects is empty, and only has a resourceVersion.
const NO_NAMESPACE: &str = "@fake:svm_ns!";

/// How long after one discovery that is not cached the next one may follow for resources that are not found.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// Reconciles one migration.
pub(super) struct RecordResourceVersion {
    /// When a resource that is not in the cached discovery was last looked up in a new one, by the monotonic clock. A
    /// restart loses it, which permits one more discovery.
    pub(super) last_discovery: Memory<Option<Duration>>,
}

impl Reconciler for RecordResourceVersion {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let (migration, now) =
            cx.gather(|view| (view.get::<StorageVersionMigration>(item).cloned(), view.now()));
        let Some(migration) = migration.filter(|migration| {
            conditions::is_running(migration)
                && !conditions::is_terminal(migration)
                && migration.status.resource_version.is_empty()
        }) else {
            return Ok(Requeue::Forget);
        };
        let mut status = NewStatus::of(&migration, now.wall);
        status = match self.find(cx, &migration, now).await? {
            None => status.failed("resource does not exist in discovery"),
            Some(resource) => record(cx, &resource, status).await?,
        };
        cx.apply(Plan::of(status.write("the migration is running")))
            .await
            .all_done()
            .map(|()| Requeue::Forget)
    }
}

impl RecordResourceVersion {
    /// The resource of a migration; `None` if it is not served, and the migration is old enough for that to be final.
    async fn find(
        &self,
        cx: &mut Context<'_>,
        migration: &StorageVersionMigration,
        now: Now,
    ) -> Result<Option<Resource>, ReconcileError> {
        let wanted = &migration.spec.resource;
        let cached = cx.cached_discovery().await.map_err(|error| retry("discovery failed", &error))?;
        if let Some(found) = served::resource_for(&cached, wanted)? {
            return Ok(Some(found));
        }
        if !served::is_young(migration, now) {
            return Ok(None);
        }
        let is_due = self.last_discovery.with(|last| {
            let is_due = last.is_none_or(|last| now.monotonic.saturating_sub(last) > DISCOVERY_INTERVAL);
            if is_due {
                *last = Some(now.monotonic);
            }
            is_due
        });
        if is_due {
            let newest = cx.discover().await.map_err(|error| retry("discovery failed", &error))?;
            if let Some(found) = served::resource_for(&newest, wanted)? {
                return Ok(Some(found));
            }
        }
        let message = "resource does not exist in our rest mapper, requeuing to attempt again";
        Err(ReconcileError::because(message).quietly())
    }
}

/// The status with the resourceVersion of the resource, or with the reason why the resource cannot be migrated.
async fn record<'a>(
    cx: &mut Context<'_>,
    resource: &Resource,
    mut status: NewStatus<'a>,
) -> Result<NewStatus<'a>, ReconcileError> {
    let newest = cx.discover().await.map_err(|error| retry("discovery failed", &error))?;
    if !served::is_migratable(&newest, resource)? {
        let gvr = gvr(resource);
        return Ok(status.failed(&format!(
            "resource {gvr:?} does not support discovery operations: [update patch list]"
        )));
    }
    let namespace = if resource.namespaced { NO_NAMESPACE } else { "" }.to_owned();
    let request = PageRequest { resource: resource.clone(), namespace, limit: Some(1), continue_token: None };
    let listed = cx.list_page(&request).await.map_err(|error| {
        retry(&format!("error getting latest resourceVersion for {}", gvr(resource)), &error)
    })?;
    let latest = listed.resource_version;
    if let Err(why) = served::compare(&latest, &latest) {
        return Ok(
            status.failed(&format!("latest resourceVersion for {} is not valid: {why}", gvr(resource)))
        );
    }
    status.status.resource_version = latest;
    Ok(status)
}
