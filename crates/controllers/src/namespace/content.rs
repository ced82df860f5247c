//! Deletes what is in a namespace, as far as it goes now, and tells what is left and how long that may take.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, ApiResource, ErrorReason, Kind, PartialObjectMeta, Resource, Time};
use keleustes_plan::{Context, OnFailure, Outcome, Plan, PropagationPolicy, ReconcileError, Target, Write};

use super::conditions::undiscovered;
use super::live::Live;
use super::pods::Pod;

/// How long finalizers are expected to take.
const FINALIZERS_SECONDS: u64 = 15;
const BECAUSE: &str = "its namespace is being deleted";

/// What one pass over a namespace came to.
#[derive(Default)]
pub(super) struct Pass {
    /// Why not all of the server's resources are known.
    pub(super) discovery_failure: Option<String>,
    /// Why a resource's group and version make no sense.
    pub(super) parsing_failure: Option<String>,
    /// What went wrong with resources, one line each.
    pub(super) content_failures: Vec<String>,
    /// How many objects are left, where some are.
    pub(super) remaining: BTreeMap<Resource, usize>,
    /// How many objects each finalizer holds.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// How long what is left may take.
    pub(super) estimate_seconds: u64,
    /// How long the server wants to be left alone.
    retry_after: Option<Duration>,
}

impl Pass {
    /// Why the namespace cannot go yet and the pass is to be tried again, if it failed.
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

    /// Adds what is left of a resource. The longest estimate counts.
    fn add(&mut self, resource: &Resource, left: Left) {
        self.estimate_seconds = self.estimate_seconds.max(left.estimate_seconds);
        if left.count > 0 {
            self.remaining.insert(resource.clone(), left.count);
        }
        for (finalizer, count) in left.finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
        if let Some(failure) = left.failure {
            self.retry_after = self.retry_after.max(failure.retry_after);
            self.content_failures.push(failure.to_string());
        }
    }
}

/// Deletes what is in a namespace.
pub(super) async fn delete(cx: &mut Context<'_>, namespace: &Live) -> Pass {
    let mut pass = Pass::default();
    let resources = deletable(cx, &mut pass).await;
    let (pods, others): (Vec<_>, Vec<_>) = resources.iter().partition(|one| one.resource == Pod::RESOURCE);
    for (resource, left) in delete_pods(cx, namespace, &pods).await {
        pass.add(&resource, left);
    }
    if !pass.remaining.is_empty() {
        // Nothing is known of the rest yet, and so nothing is told of what remains.
        pass.remaining.clear();
        pass.finalizers.clear();
        return pass;
    }
    for (resource, left) in empty(cx, &namespace.meta.key.name, &others).await {
        pass.add(&resource, left);
    }
    pass
}

/// The resources that can be deleted from a namespace, as the server tells them now.
async fn deletable(cx: &mut Context<'_>, pass: &mut Pass) -> Vec<ApiResource> {
    let discovered = match cx.discover().await {
        Ok(discovered) => discovered,
        Err(failure) => {
            pass.retry_after = failure.retry_after;
            pass.discovery_failure = Some(failure.to_string());
            return Vec::new();
        }
    };
    if let Some(why) = discovered.root_failure() {
        pass.discovery_failure = Some(why.to_owned());
        return Vec::new();
    }
    if !discovered.failed.is_empty() {
        pass.discovery_failure = Some(undiscovered(&discovered.failed));
    }
    let resources = discovered.preferred().into_iter();
    let resources: Vec<_> =
        resources.filter(|one| one.resource.namespaced && one.has_verb("delete")).cloned().collect();
    let versions = resources.iter().map(|one| one.resource.api_version());
    if let Some(odd) = versions.into_iter().find(|version| version.matches('/').count() > 1) {
        pass.parsing_failure = Some(format!("unexpected GroupVersion string: {odd}"));
        return Vec::new();
    }
    resources
}

/// What is left of one resource.
#[derive(Default)]
struct Left {
    count: usize,
    finalizers: BTreeMap<String, usize>,
    estimate_seconds: u64,
    failure: Option<ApiError>,
}

impl Left {
    fn failed(failure: ApiError, estimate_seconds: u64) -> Self {
        Self { estimate_seconds, failure: Some(failure), ..Self::default() }
    }

    /// What a last look shows. Objects that should be gone, and that no finalizer holds, are a failure.
    fn of(
        objects: &[Arc<PartialObjectMeta>],
        estimate_seconds: u64,
        complaint: impl FnOnce() -> String,
    ) -> Self {
        let mut left = Self { count: objects.len(), ..Self::default() };
        for finalizer in objects.iter().flat_map(|object| &object.meta.finalizers) {
            *left.finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
        match (left.count, estimate_seconds, left.finalizers.is_empty()) {
            (0, ..) => {}
            (_, 1.., _) => left.estimate_seconds = estimate_seconds,
            (_, 0, false) => left.estimate_seconds = FINALIZERS_SECONDS,
            (_, 0, true) => left.failure = Some(ApiError::transport(ErrorReason::Other, complaint())),
        }
        left
    }
}

/// Deletes the pods, which may take as long as the slowest of them asks for, counted from when the
/// deletion of the namespace was asked for.
async fn delete_pods(cx: &mut Context<'_>, namespace: &Live, pods: &[&ApiResource]) -> Vec<(Resource, Left)> {
    let name = &namespace.meta.key.name;
    if pods.is_empty() {
        return Vec::new();
    }
    let there = match cx.list::<Pod>(name).await {
        Ok(there) => there,
        Err(failure) => return vec![(Pod::RESOURCE, Left::failed(failure, 0))],
    };
    let Some(longest) = there.iter().map(|pod| pod.grace_seconds).max() else { return Vec::new() };
    let now = cx.gather(|view| view.now().wall);
    let passed = |since: Time| now.unix_seconds().saturating_sub(since.unix_seconds());
    let is_over =
        namespace.meta.deletion_timestamp.is_some_and(|since| passed(since) >= longest.cast_signed());
    empty_full(cx, name, pods, &[], if is_over { 0 } else { longest }).await
}

/// Empties resources, all at once, and tells what is left of each that held something.
///
/// Some objects are served by two resources, as events are; whose first object another has shown is not
/// asked to delete it again, but looked at like any other in the end.
async fn empty(cx: &mut Context<'_>, namespace: &str, resources: &[&ApiResource]) -> Vec<(Resource, Left)> {
    let looks = look(cx, namespace, resources, Some(1)).await;
    let (mut full, mut twins, mut shown) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (one, look) in resources.iter().zip(looks) {
        match look {
            Ok(Some(first)) if first.is_empty() => {}
            Ok(Some(first)) if !first.iter().all(|object| shown.insert(object.meta.uid.clone())) => {
                twins.push(*one);
            }
            // What cannot be listed, or could not be this time, may hold something.
            _ => full.push(*one),
        }
    }
    empty_full(cx, namespace, &full, &twins, 0).await
}

/// Empties resources that hold something or may, and tells what is left of them and of their twins.
async fn empty_full(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
    twins: &[&ApiResource],
    estimate: u64,
) -> Vec<(Resource, Left)> {
    let deletions = delete_collections(cx, namespace, resources).await;
    let (mut left, mut to_check) = (Vec::new(), Vec::new());
    for (one, deletion) in resources.iter().zip(deletions) {
        let deleted = match deletion {
            Deletion::Unsupported => delete_each(cx, namespace, one).await,
            Deletion::Sent(result) => result,
        };
        match deleted {
            Ok(()) => to_check.push(*one),
            Err(failure) => left.push((one.resource.clone(), Left::failed(failure, estimate))),
        }
    }
    to_check.extend(twins);
    let looks = look(cx, namespace, &to_check, None).await;
    for (one, look) in to_check.into_iter().zip(looks) {
        let of_one = match look {
            Ok(Some(objects)) => Left::of(&objects, estimate, || unexpected(namespace, &one.resource)),
            // What is there cannot be known, so it is taken for nothing.
            Ok(None) => Left { estimate_seconds: estimate, ..Left::default() },
            Err(failure) => Left::failed(failure, estimate),
        };
        left.push((one.resource.clone(), of_one));
    }
    left
}

/// What there is of each resource, in order; `None` where it cannot be listed.
async fn look(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
    at_most: Option<u32>,
) -> Vec<Result<Option<Vec<Arc<PartialObjectMeta>>>, ApiError>> {
    let listable = resources.iter().filter(|one| one.has_verb("list")).map(|one| &one.resource);
    let mut answers = cx.list_metadata(listable, namespace, at_most).await.into_iter();
    let mut answer = |one: &ApiResource| match one.has_verb("list").then(|| answers.next()).flatten() {
        None => Ok(None),
        Some(Err(failure)) if is_unsupported(&failure) => Ok(None),
        Some(answer) => answer.map(Some),
    };
    resources.iter().map(|one| answer(one)).collect()
}

/// What became of the wish to delete a whole collection.
enum Deletion {
    /// The server does not do that.
    Unsupported,
    /// It was asked.
    Sent(Result<(), ApiError>),
}

/// Deletes whole collections, all at once.
async fn delete_collections(
    cx: &mut Context<'_>,
    namespace: &str,
    resources: &[&ApiResource],
) -> Vec<Deletion> {
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
    let mut results = applied.outcomes.into_iter().map(|outcome| settled(outcome, &applied.error));
    let deletion = |one: &&ApiResource| match supported(&one).then(|| results.next()).flatten() {
        None => Deletion::Unsupported,
        Some(Err(failure)) if is_unsupported(&failure) => Deletion::Unsupported,
        Some(result) => Deletion::Sent(result),
    };
    resources.iter().map(deletion).collect()
}

/// Deletes the objects of a resource one by one. Whatever took another life meanwhile is met in the next pass.
async fn delete_each(cx: &mut Context<'_>, namespace: &str, one: &ApiResource) -> Result<(), ApiError> {
    let objects = look(cx, namespace, &[one], None).await.pop().unwrap_or(Ok(None))?;
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
    applied.outcomes.into_iter().try_for_each(|outcome| settled(outcome, &applied.error))
}

/// Whether a deletion was sent and accepted; one that was not even tried was not.
fn settled(outcome: Outcome, retry: &Option<ReconcileError>) -> Result<(), ApiError> {
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
