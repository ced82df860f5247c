//! Migrates the objects of one StorageVersionMigration.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use keleustes_objects::{
    ApiError, ErrorReason, Key, Resource, ResourceVersion, StorageVersionMigration, Uid,
};
use keleustes_plan::{
    Context, Memory, MonitorState, OnFailure, Outcome, PageRequest, PatchKind, Plan, Precondition,
    ReconcileError, Reconciler, Requeue, Target, Write,
};
use serde_json::json;

use super::NAME;
use super::conditions::{self, Counts, NewStatus};
use super::served::{self, gvr, retry};

/// How many objects one reconcile patches, one after the other. Between two slices the process may shut down, and
/// another migration may take the worker.
pub(super) const SLICE: usize = 100;

/// How many objects one page of the list has, as in the lists of client-go.
const PAGE: u32 = 500;

/// How long a reconcile waits for the first list of the resource's monitor.
const MONITOR_WAIT: Duration = Duration::from_secs(10);

/// The objects that are left, by the UID of the migration.
#[derive(Clone, Default)]
pub(super) struct MigrationsInProgress(BTreeMap<Uid, InProgress>);

/// What is left of one migration.
#[derive(Clone)]
struct InProgress {
    resource: Resource,
    /// `status.resourceVersion`, which the candidates were selected by.
    resource_version: ResourceVersion,
    /// How many objects the resource had.
    total: usize,
    /// The objects that are left, the next one last.
    candidates: Vec<(Key, ResourceVersion)>,
}

impl MigrationsInProgress {
    /// Forgets a migration that ended or was deleted.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.0.remove(uid);
    }
}

impl InProgress {
    fn counts(&self) -> Counts {
        Counts { left: self.candidates.len(), total: self.total }
    }
}

/// Reconciles one migration. What is left of it is lost on failover, and listed again.
pub(super) struct Migrate {
    pub(super) in_progress: Memory<MigrationsInProgress>,
}

/// How a slice ended.
enum Slice {
    /// All objects of the slice are migrated.
    Done,
    /// The patch of one object failed, and the same patch may succeed later.
    Transient(ReconcileError, ApiError),
    /// The patch of one object failed for good.
    Fatal(ApiError),
    /// This process does not lead any more.
    Stopped(ReconcileError),
}

impl Reconciler for Migrate {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(migration) = cx.gather(|view| view.get::<StorageVersionMigration>(item).cloned()) else {
            return Ok(Requeue::Forget);
        };
        if conditions::is_terminal(&migration) || migration.status.resource_version.is_empty() {
            return Ok(Requeue::Forget);
        }
        let uid = &migration.meta.uid;
        let known = self.in_progress.with(|in_progress| in_progress.0.remove(uid));
        let known = known.filter(|known| known.resource_version == migration.status.resource_version);
        let mut in_progress = match known {
            Some(known) => known,
            None => match begin(cx, &migration).await? {
                Ok(begun) => begun,
                Err(why) => {
                    return self.finish(cx, &migration, |status| status.failed(&unhandled(&why))).await;
                }
            },
        };
        let slice = patch_slice(cx, &mut in_progress).await;
        let counts = in_progress.counts();
        self.keep(cx, uid, in_progress);
        match slice {
            Slice::Done if counts.left > 0 => Ok(Requeue::after(Duration::ZERO, "the objects that are left")),
            Slice::Done => {
                self.finish(cx, &migration, |status| status.running(Some(counts), None).succeeded()).await
            }
            Slice::Fatal(error) => {
                let Counts { left, total } = counts;
                let why = format!("{left}/{total} not yet migrated. {}", unhandled(&error.to_string()));
                self.finish(cx, &migration, |status| status.running(Some(counts), None).failed(&why)).await
            }
            Slice::Transient(retry, error) => {
                let now = cx.gather(|view| view.now().wall);
                let status = NewStatus::of(&migration, now).running(Some(counts), Some(&error));
                if status.is_changed() {
                    let write = status.write("an object could not be migrated yet");
                    cx.apply(Plan::of(write.on_failure(OnFailure::ReturnOutcome))).await;
                }
                Err(retry)
            }
            Slice::Stopped(retry) => Err(retry),
        }
    }
}

impl Migrate {
    /// Keeps what is left for the next reconcile, unless the migration was deleted meanwhile.
    fn keep(&self, cx: &Context<'_>, uid: &Uid, left: InProgress) {
        cx.gather(|view| {
            if view.all::<StorageVersionMigration>().any(|migration| migration.meta.uid == *uid) {
                self.in_progress.with(|in_progress| in_progress.0.insert(uid.clone(), left));
            }
        });
    }

    /// Writes the status of a migration that has ended. If that fails, only the last step is repeated.
    async fn finish(
        &self,
        cx: &mut Context<'_>,
        migration: &StorageVersionMigration,
        ended: impl FnOnce(NewStatus<'_>) -> NewStatus<'_>,
    ) -> Result<Requeue, ReconcileError> {
        let now = cx.gather(|view| view.now().wall);
        let status = ended(NewStatus::of(migration, now));
        if status.is_changed() {
            cx.apply(Plan::of(status.write("the migration has ended"))).await.all_done()?;
        }
        self.in_progress.with(|in_progress| in_progress.forget(&migration.meta.uid));
        Ok(Requeue::Forget)
    }
}

/// The message of an error that ends a migration.
fn unhandled(why: &str) -> String {
    format!("migration encountered unhandled error: {why}")
}

/// Lists the objects of a migration when the monitor of its resource has reached the migration's resourceVersion. The
/// inner error is the reason why the migration fails.
async fn begin(
    cx: &mut Context<'_>,
    migration: &StorageVersionMigration,
) -> Result<Result<InProgress, String>, ReconcileError> {
    let retry_quietly = |why: String| Err(ReconcileError::because(why).quietly());
    let discovered = cx.cached_discovery().await.map_err(|error| retry("discovery failed", &error))?;
    let is_young = |cx: &Context<'_>| cx.gather(|view| served::is_young(migration, view.now()));
    let Some(resource) = served::resource_for(&discovered, &migration.spec.resource)? else {
        if is_young(cx) {
            return retry_quietly(
                "resource does not exist in rest mapper, requeuing to attempt again".to_owned(),
            );
        }
        return Ok(Err("unable to obtain GVR from discovery".to_owned()));
    };
    let wanted = &migration.status.resource_version;
    match cx.monitor(&resource, MONITOR_WAIT).await {
        MonitorState::Missing => retry_quietly(format!("no monitor found for resource {}", gvr(&resource))),
        MonitorState::Listing if is_young(cx) => {
            retry_quietly("resource does not exist in GC, requeuing to attempt again".to_owned())
        }
        // Parity: the original formats an error that is nil.
        MonitorState::Listing => Ok(Err("resource does not exist in GC: %!w(<nil>)".to_owned())),
        MonitorState::Reached(reached) => match served::compare(&reached, wanted) {
            Ok(Ordering::Less) => retry_quietly(format!(
                "GC cache is not up to date, requeuing to attempt again. gcListResourceVersion: {reached}, \
                 listResourceVersion: {wanted}"
            )),
            Ok(_) => list(cx, &resource, wanted).await,
            Err(why) => {
                Ok(Err(format!("error comparing resource versions between GC and SVM resource: {why}")))
            }
        },
    }
}

/// Lists all objects of a resource, and keeps those that are not newer than the resourceVersion.
async fn list(
    cx: &mut Context<'_>,
    resource: &Resource,
    wanted: &ResourceVersion,
) -> Result<Result<InProgress, String>, ReconcileError> {
    let (mut total, mut candidates) = (0, Vec::new());
    let (namespace, limit) = (String::new(), Some(PAGE));
    let mut request = PageRequest { resource: resource.clone(), namespace, limit, continue_token: None };
    loop {
        let page = match cx.list_page(&request).await {
            Ok(page) => page,
            // The continue token has expired: list without pages.
            Err(error) if error.reason == ErrorReason::Gone && request.limit.is_some() => {
                (request.limit, request.continue_token) = (None, None);
                (total, candidates) = (0, Vec::new());
                continue;
            }
            Err(error) => return Err(retry(&format!("error listing {}", gvr(resource)), &error)),
        };
        total += page.objects.len();
        for object in page.objects {
            match served::compare(&object.meta.resource_version, wanted) {
                Ok(Ordering::Greater) => {} // It was written meanwhile, so it is migrated.
                Ok(_) => candidates.push((object.meta.key, object.meta.resource_version)),
                Err(why) => return Ok(Err(why)),
            }
        }
        request.continue_token = page.continue_token;
        if request.continue_token.is_none() {
            candidates.reverse();
            let (resource, resource_version) = (resource.clone(), wanted.clone());
            return Ok(Ok(InProgress { resource, resource_version, total, candidates }));
        }
    }
}

/// Patches the next objects, one after the other.
async fn patch_slice(cx: &mut Context<'_>, in_progress: &mut InProgress) -> Slice {
    for _ in 0..SLICE {
        let Some((key, version)) = in_progress.candidates.last() else { break };
        let write = patch(&in_progress.resource, key, version);
        let applied = cx.apply(Plan::of(write.clone())).await;
        match applied.outcomes.into_iter().next() {
            Some(Outcome::Done { .. } | Outcome::Unneeded) => {
                in_progress.candidates.pop();
            }
            Some(Outcome::Failed(error)) if is_retriable(&error) => {
                return Slice::Transient(ReconcileError::from_write(&write, &error), error);
            }
            Some(Outcome::Failed(error)) => return Slice::Fatal(error),
            Some(Outcome::NotSent) | None => {
                let stopped = || ReconcileError::because(format!("{write}: not sent"));
                return Slice::Stopped(applied.error.unwrap_or_else(stopped));
            }
        }
    }
    Slice::Done
}

/// A patch that changes nothing, so that the API server encodes and stores the object again. An object that was changed
/// or deleted meanwhile is not to be patched.
fn patch(resource: &Resource, key: &Key, version: &ResourceVersion) -> Write {
    let target = Target::named(resource, key.clone(), Precondition::ResourceVersionInBody);
    let body = json!({
        "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": {"resourceVersion": version},
    });
    Write::patch_target(target, PatchKind::Merge, body)
        .field_manager(NAME)
        .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
        .on_failure(OnFailure::ReturnOutcome)
        .because("its resource is migrated")
}

/// Whether the same patch may succeed later. Unlike in the original, this holds for every failure of the connection: a
/// refused connection says nothing about the object.
///
/// Parity: `isRetriableError` of pkg/controller/storageversionmigrator/storageversionmigrator.go.
fn is_retriable(error: &ApiError) -> bool {
    match error.reason {
        ErrorReason::TooManyRequests
        | ErrorReason::Unavailable
        | ErrorReason::ResourceVersionTooLarge
        | ErrorReason::ConnectionRefused
        | ErrorReason::ConnectionLost => true,
        ErrorReason::UnreadableResponse => false,
        // A write that was not sent, because this process does not lead any more, has no status.
        _ => error.code == 0 || error.code == 429,
    }
}
