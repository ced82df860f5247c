//! Deletes the content of a namespace and reports what remains and how long that may take.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, ApiResource, ErrorReason, Kind, PartialObjectMeta, Resource, Time, Uid};
use keleustes_plan::{Context, OnFailure, Outcome, Plan, PropagationPolicy, ReconcileError, Target, Write};

use super::conditions::discovery_failure_message;
use super::live_namespace::LiveNamespace;
use super::pods::Pod;

/// Estimate for finalizers. Parity: finalizerEstimateSeconds.
const FINALIZER_ESTIMATE_SECONDS: u64 = 15;
const BECAUSE: &str = "its namespace is terminating";

/// The result of deleting the content of a namespace once.
#[derive(Default)]
pub(super) struct DeletionResult {
    /// Error of discovery, if incomplete.
    pub(super) discovery_failure: Option<String>,
    /// Error about a malformed group version.
    pub(super) parsing_failure: Option<String>,
    /// Errors of resources, one line each.
    pub(super) content_failures: Vec<String>,
    /// Number of remaining objects per resource, without zeros.
    pub(super) remaining: BTreeMap<Resource, usize>,
    /// Number of objects per remaining finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Estimated seconds until the remaining content is deleted.
    pub(super) estimate_seconds: u64,
    /// The longest Retry-After of the server.
    retry_after: Option<Duration>,
}

impl DeletionResult {
    /// The reconcile error, if anything failed.
    pub(super) fn failure(&self) -> Option<ReconcileError> {
        let failures =
            self.discovery_failure.iter().chain(&self.parsing_failure).chain(&self.content_failures);
        let failures: Vec<_> = failures.map(String::as_str).collect();
        let retry = || ReconcileError {
            retry_after: self.retry_after,
            ..ReconcileError::because(failures.join("; "))
        };
        (!failures.is_empty()).then(retry)
    }

    /// Adds the result of one resource. The longest estimate counts.
    fn add(&mut self, resource: &Resource, remaining: Remaining) {
        self.estimate_seconds = self.estimate_seconds.max(remaining.estimate_seconds);
        if remaining.count > 0 {
            self.remaining.insert(resource.clone(), remaining.count);
        }
        for (finalizer, count) in remaining.finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
        if let Some(failure) = remaining.failure {
            self.retry_after = self.retry_after.max(failure.retry_after);
            self.content_failures.push(failure.to_string());
        }
    }
}

/// Deletes the content of a namespace. Parity: deleteAllContent.
pub(super) async fn delete(cx: &mut Context<'_>, namespace: &LiveNamespace) -> DeletionResult {
    let mut result = DeletionResult::default();
    let resources = deletable(cx, &mut result).await;
    let (pods, others): (Vec<_>, Vec<_>) = resources.iter().partition(|one| one.resource == Pod::RESOURCE);
    for (resource, remaining) in delete_pods(cx, namespace, &pods).await {
        result.add(&resource, remaining);
    }
    if !result.remaining.is_empty() {
        // The other resources were not listed, so no totals are reported. Parity: the original reports none
        // either.
        result.remaining.clear();
        result.finalizers.clear();
        return result;
    }
    for (resource, remaining) in delete_resources(cx, &namespace.meta.key.name, &others).await {
        result.add(&resource, remaining);
    }
    result
}

/// The namespaced resources with verb `delete`, from live discovery.
async fn deletable(cx: &mut Context<'_>, result: &mut DeletionResult) -> Vec<ApiResource> {
    let discovered = match cx.discover().await {
        Ok(discovered) => discovered,
        Err(failure) => {
            result.retry_after = failure.retry_after;
            result.discovery_failure = Some(failure.to_string());
            return Vec::new();
        }
    };
    if let Some(why) = discovered.root_failure() {
        result.discovery_failure = Some(why.to_owned());
        return Vec::new();
    }
    if !discovered.failed.is_empty() {
        result.discovery_failure = Some(discovery_failure_message(&discovered.failed));
    }
    let resources = discovered.preferred().into_iter();
    let resources: Vec<_> =
        resources.filter(|one| one.resource.namespaced && one.has_verb("delete")).cloned().collect();
    let versions = resources.iter().map(|one| one.resource.api_version());
    if let Some(malformed) = versions.into_iter().find(|version| version.matches('/').count() > 1) {
        result.parsing_failure = Some(format!("unexpected GroupVersion string: {malformed}"));
        return Vec::new();
    }
    resources
}

/// The remaining objects of one resource.
#[derive(Default)]
struct Remaining {
    count: usize,
    finalizers: BTreeMap<String, usize>,
    estimate_seconds: u64,
    failure: Option<ApiError>,
}

impl Remaining {
    fn failed(failure: ApiError, estimate_seconds: u64) -> Self {
        Self { estimate_seconds, failure: Some(failure), ..Self::default() }
    }

    /// Evaluates the final list. Remaining objects without estimate and without finalizers are an error.
    fn of(
        objects: &[Arc<PartialObjectMeta>],
        estimate_seconds: u64,
        error_message: impl FnOnce() -> String,
    ) -> Self {
        let mut remaining = Self { count: objects.len(), ..Self::default() };
        for finalizer in objects.iter().flat_map(|object| &object.meta.finalizers) {
            *remaining.finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
        match (remaining.count, estimate_seconds, remaining.finalizers.is_empty()) {
            (0, ..) => {}
            (_, 1.., _) => remaining.estimate_seconds = estimate_seconds,
            (_, 0, false) => remaining.estimate_seconds = FINALIZER_ESTIMATE_SECONDS,
            (_, 0, true) => {
                remaining.failure = Some(ApiError::transport(ErrorReason::Other, error_message()));
            }
        }
        remaining
    }
}

/// Deletes the pods. The estimate is the longest termination grace period, counted from the deletionTimestamp
/// of the namespace.
async fn delete_pods(
    cx: &mut Context<'_>,
    namespace: &LiveNamespace,
    pods: &[&ApiResource],
) -> Vec<(Resource, Remaining)> {
    let name = &namespace.meta.key.name;
    if pods.is_empty() {
        return Vec::new();
    }
    let pods_found = match cx.list::<Pod>(name).await {
        Ok(pods_found) => pods_found,
        Err(failure) => return vec![(Pod::RESOURCE, Remaining::failed(failure, 0))],
    };
    let Some(longest) = pods_found.iter().map(|pod| pod.grace_seconds).max() else { return Vec::new() };
    let now = cx.gather(|view| view.now().wall);
    let elapsed_since = |since: Time| now.unix_seconds().saturating_sub(since.unix_seconds());
    let grace_period_over =
        namespace.meta.deletion_timestamp.is_some_and(|since| elapsed_since(since) >= longest.cast_signed());
    delete_and_verify(cx, name, pods, &[], if grace_period_over { 0 } else { longest }).await
}

/// Deletes the objects of resources in parallel and returns what remains of those that were not empty.
///
/// Some objects are served by two resources, as events are. A resource whose first object was already
/// returned by another one is not deleted again, but its final list is checked like any other. An aggregated API may
/// serve objects without UIDs, which are all taken for different ones.
async fn delete_resources(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
) -> Vec<(Resource, Remaining)> {
    let lists = list_each(cx, namespace, resources, Some(1)).await;
    let (mut non_empty, mut duplicates, mut seen_uids) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut is_new = |uid: &Uid| uid.is_empty() || seen_uids.insert(uid.clone());
    for (one, list_each) in resources.iter().zip(lists) {
        match list_each {
            Ok(Some(first)) if first.is_empty() => {}
            Ok(Some(first)) if !first.iter().map(|object| &object.meta.uid).all(&mut is_new) => {
                duplicates.push(*one);
            }
            // A resource that cannot be listed, or whose list failed, may contain objects.
            _ => non_empty.push(*one),
        }
    }
    delete_and_verify(cx, namespace, &non_empty, &duplicates, 0).await
}

/// Deletes the objects of resources that may contain some, and lists them and their duplicates afterwards.
async fn delete_and_verify(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
    duplicates: &[&ApiResource],
    estimate: u64,
) -> Vec<(Resource, Remaining)> {
    let deletions = delete_collections(cx, namespace, resources).await;
    let (mut remaining, mut to_check) = (Vec::new(), Vec::new());
    for (one, deletion) in resources.iter().zip(deletions) {
        let deleted = match deletion {
            CollectionDelete::Unsupported => delete_each(cx, namespace, one).await,
            CollectionDelete::Sent(result) => result,
        };
        match deleted {
            Ok(()) => to_check.push(*one),
            Err(failure) => remaining.push((one.resource.clone(), Remaining::failed(failure, estimate))),
        }
    }
    to_check.extend(duplicates);
    let lists = list_each(cx, namespace, &to_check, None).await;
    for (one, list_each) in to_check.into_iter().zip(lists) {
        let remaining_of_one = match list_each {
            Ok(Some(objects)) => Remaining::of(&objects, estimate, || unexpected(namespace, &one.resource)),
            // A resource that cannot be listed counts as empty.
            Ok(None) => Remaining { estimate_seconds: estimate, ..Remaining::default() },
            Err(failure) => Remaining::failed(failure, estimate),
        };
        remaining.push((one.resource.clone(), remaining_of_one));
    }
    remaining
}

/// Lists each resource, in order; `None` where it cannot be listed.
async fn list_each(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
    limit: Option<u32>,
) -> Vec<Result<Option<Vec<Arc<PartialObjectMeta>>>, ApiError>> {
    let listable = resources.iter().filter(|one| one.has_verb("list")).map(|one| &one.resource);
    let mut answers = cx.list_metadata(listable, namespace, limit).await.into_iter();
    let mut answer = |one: &ApiResource| match one.has_verb("list").then(|| answers.next()).flatten() {
        None => Ok(None),
        Some(Err(failure)) if is_unsupported(&failure) => Ok(None),
        Some(answer) => answer.map(Some),
    };
    resources.iter().map(|one| answer(one)).collect()
}

/// The result of a deletecollection.
enum CollectionDelete {
    /// The server does not support it for this resource.
    Unsupported,
    /// It was sent.
    Sent(Result<(), ApiError>),
}

/// Sends deletecollection requests in parallel.
async fn delete_collections(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
) -> Vec<CollectionDelete> {
    let write = |one: &&ApiResource| {
        Write::delete_collection(&one.resource, namespace)
            .propagation_policy(PropagationPolicy::Background)
            .on_failure(OnFailure::ContinueAndRetry)
            .because(BECAUSE)
    };
    let supported = |one: &&&ApiResource| one.has_verb("deletecollection");
    let mut plan = Plan::none();
    plan.push_parallel(resources.iter().filter(supported).map(write).collect());
    let applied = cx.apply(plan).await;
    let mut results = applied.outcomes.into_iter().map(|outcome| delete_result(outcome, &applied.error));
    let deletion = |one: &&ApiResource| match supported(&one).then(|| results.next()).flatten() {
        None => CollectionDelete::Unsupported,
        Some(Err(failure)) if is_unsupported(&failure) => CollectionDelete::Unsupported,
        Some(result) => CollectionDelete::Sent(result),
    };
    resources.iter().map(deletion).collect()
}

/// Deletes the objects of a resource one by one. An object recreated in the meantime is deleted by the next
/// reconcile.
async fn delete_each(cx: &mut Context<'_>, namespace: &str, one: &ApiResource) -> Result<(), ApiError> {
    let objects = list_each(cx, namespace, &[one], None).await.pop().unwrap_or(Ok(None))?;
    let write = |object: &Arc<PartialObjectMeta>| {
        Write::delete_target(Target::of_resource(&one.resource, &object.meta))
            .propagation_policy(PropagationPolicy::Background)
            .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::MethodNotAllowed, ErrorReason::Conflict])
            .on_failure(OnFailure::ContinueAndRetry)
            .because(BECAUSE)
    };
    let mut plan = Plan::none();
    plan.push_slow_start(objects.iter().flatten().map(write).collect());
    let applied = cx.apply(plan).await;
    applied.outcomes.into_iter().try_for_each(|outcome| delete_result(outcome, &applied.error))
}

/// Whether a deletion was sent and accepted.
fn delete_result(outcome: Outcome, retry: &Option<ReconcileError>) -> Result<(), ApiError> {
    match outcome {
        Outcome::Done { .. } | Outcome::Unneeded => Ok(()),
        Outcome::Failed(failure) => Err(failure),
        Outcome::NotSent => {
            let because = retry.as_ref().map_or("not tried", |retry| &retry.because);
            Err(ApiError::transport(ErrorReason::Other, because))
        }
    }
}

fn is_unsupported(failure: &ApiError) -> bool {
    matches!(failure.reason, ErrorReason::NotFound | ErrorReason::MethodNotAllowed)
}

fn unexpected(namespace: &str, resource: &Resource) -> String {
    let Resource { group, version, plural, .. } = resource;
    format!(
        "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
    )
}
