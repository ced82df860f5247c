//! Marks generated token Secrets that have not been used for a long time as invalid, and deletes them when they have been
//! invalid for as long.
//!
//! There is one item: a pass over all token Secrets, requeued 24 hours after it ended. A pass that marks a Secret never
//! deletes it. The API server tracks the use of tokens in a label, since the date in its tracking ConfigMap.
//!
//! Parity: pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::go_time::parse_date;
use keleustes_objects::{
    ErrorReason, InternedStr, Key, LegacyTokenTracking, Pod, PodParts, ServiceAccount, Time, TokenSecret, Uid,
};
use keleustes_plan::{
    Context, Controller, Grant, Loop, NEXT_PASS, Now, OnFailure, Pass, PatchKind, Plan, ReconcileError,
    Reconciler, Requeue, View, Write,
};
use serde_json::json;

/// Options of the legacy token cleaner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyTokenCleanerOptions {
    /// How long a token must not have been used before it is marked, and then marked before it is deleted
    /// (`--legacy-service-account-token-clean-up-period`).
    pub clean_up_period: Duration,
}

impl Default for LegacyTokenCleanerOptions {
    fn default() -> Self {
        Self { clean_up_period: Duration::from_secs(365 * 24 * 3600) }
    }
}

/// Delay from the end of one pass to the start of the next.
const SYNC_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Label of the day on which a token was last used, written by the API server.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Label of the day since which the API server rejects a token.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

const SECONDS_PER_DAY: i64 = 24 * 3600;
const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// Builds the controller.
#[must_use]
pub fn controller(options: LegacyTokenCleanerOptions) -> Controller {
    Controller::new("legacy-serviceaccount-token-cleaner-controller")
        .service_account("legacy-service-account-token-cleaner")
        .may_write(&[
            Grant { group: "", resource: "configmaps", verbs: &["get"] },
            Grant { group: "", resource: "secrets", verbs: &["delete", "patch"] },
        ])
        .with_loop(
            Loop::reconciling("legacy_serviceaccount_token_cleaner", Cleaner { options })
                .reads::<ServiceAccount>()
                .reads::<TokenSecret>()
                .reads_pod_parts(PodParts::SECRET_NAMES)
                .initial_item(Pass),
        )
}

struct Cleaner {
    options: LegacyTokenCleanerOptions,
}

impl Reconciler<Pass> for Cleaner {
    async fn reconcile(&self, cx: &mut Context<'_>, _: &Pass) -> Result<Requeue, ReconcileError> {
        let limits = Limits::at(cx.gather(|view| view.now()), self.options.clean_up_period);
        let key = Key::namespaced("kube-system", LegacyTokenTracking::NAME);
        let tracking = cx.fetch::<LegacyTokenTracking>(&key).await?;
        if tracking.is_some_and(|tracking| limits.is_tracked_long_enough(&tracking)) {
            let plan = cx.gather(|view| decide(view, &limits));
            cx.apply(plan).await.all_done()?;
        }
        Ok(Requeue::after(SYNC_INTERVAL, NEXT_PASS))
    }
}

/// The times that a pass compares with, from one clock reading.
struct Limits {
    now_nanoseconds: i128,
    /// The clean-up period before now.
    past_nanoseconds: i128,
    /// The date of now.
    today: String,
    /// The date of the clean-up period before now.
    limit: String,
}

impl Limits {
    fn at(now: Now, clean_up_period: Duration) -> Self {
        let period = i128::try_from(clean_up_period.as_nanos()).unwrap_or(i128::MAX);
        let now_nanoseconds = now.wall_nanoseconds();
        let past_nanoseconds = now_nanoseconds.saturating_sub(period);
        Self {
            now_nanoseconds,
            past_nanoseconds,
            today: date(now_nanoseconds),
            limit: date(past_nanoseconds),
        }
    }

    /// Whether the use of tokens has been tracked for the clean-up period, counted from the day after the first.
    fn is_tracked_long_enough(&self, tracking: &LegacyTokenTracking) -> bool {
        let since = tracking.since.as_deref().and_then(parse_date);
        let period = self.now_nanoseconds - self.past_nanoseconds;
        let day_after = |days: i64| i128::from((days + 1) * SECONDS_PER_DAY) * NANOSECONDS_PER_SECOND;
        since.is_some_and(|days| self.now_nanoseconds >= day_after(days).saturating_add(period))
    }
}

/// The date of a time, as `2006-01-02`.
fn date(nanoseconds: i128) -> String {
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOSECONDS_PER_SECOND)).unwrap_or(i64::MIN + 1);
    Time::from_unix_seconds(seconds).to_string().chars().take_while(|char| *char != 'T').collect()
}

/// Marks and deletes token Secrets. Parity: evaluateSATokens.
fn decide(view: &View<'_>, limits: &Limits) -> Plan {
    let mut used_by_pods = BTreeMap::new();
    let writes = view.all::<TokenSecret>().filter_map(|secret| {
        let is_candidate = is_unused(secret, limits) && is_generated(secret, view);
        if !is_candidate || is_used_by_pod(secret, view, &mut used_by_pods) {
            return None;
        }
        match secret.meta.labels.value(INVALID_SINCE).filter(|since| parse_date(since).is_some()) {
            None => Some(mark(secret, &limits.today)),
            Some(since) => (since.as_str() < limits.limit.as_str()).then(|| delete(secret)),
        }
    });
    let writes = writes.collect();
    let mut plan = Plan::none();
    plan.push_parallel(writes);
    plan
}

/// Whether a Secret is old enough, not terminating, and its token has not been used for the clean-up period.
fn is_unused(secret: &TokenSecret, limits: &Limits) -> bool {
    let created = secret
        .meta
        .creation_timestamp
        .map_or(i128::MIN, |created| i128::from(created.unix_seconds()) * NANOSECONDS_PER_SECOND);
    let is_unused = secret
        .meta
        .labels
        .value(LAST_USED)
        .is_none_or(|day| parse_date(day).is_some() && day.as_str() < limits.limit.as_str());
    created < limits.past_nanoseconds && secret.meta.deletion_timestamp.is_none() && is_unused
}

/// Whether a Secret was generated with its ServiceAccount, which then lists it.
fn is_generated(secret: &TokenSecret, view: &View<'_>) -> bool {
    let key = Key::namespaced(&*secret.meta.key.namespace, &*secret.account_name);
    let account = view.get::<ServiceAccount>(&key).filter(|_| !secret.account_name.is_empty());
    let is_same = |account: &&Arc<ServiceAccount>| {
        secret.account_uid.is_empty() || account.meta.uid == Uid::from(secret.account_uid.as_str())
    };
    account.filter(is_same).is_some_and(|account| account.secrets.contains(&secret.meta.key.name))
}

/// Whether a pod of the namespace refers to a Secret, in whatever phase it is.
fn is_used_by_pod(
    secret: &TokenSecret,
    view: &View<'_>,
    used_by_pods: &mut BTreeMap<InternedStr, BTreeSet<InternedStr>>,
) -> bool {
    let namespace = &secret.meta.key.namespace;
    let used = used_by_pods.entry(namespace.clone()).or_insert_with(|| {
        view.in_namespace::<Pod>(namespace).flat_map(|pod| pod.spec.secret_names().iter().cloned()).collect()
    });
    used.contains(&*secret.meta.key.name)
}

fn mark(secret: &TokenSecret, today: &str) -> Write {
    let (name, namespace) = (&secret.meta.key.name, &secret.meta.key.namespace);
    let labels = json!({INVALID_SINCE: today});
    let metadata = json!({"name": name, "namespace": namespace, "uid": secret.meta.uid, "labels": labels});
    Write::patch(
        secret,
        PatchKind::Merge,
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata}),
    )
    .on_failure(OnFailure::LogOnly)
    .because("its token has not been used for the clean-up period")
}

fn delete(secret: &TokenSecret) -> Write {
    Write::delete(secret)
        .resource_version_precondition(&secret.meta.resource_version)
        .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
        .on_failure(OnFailure::LogOnly)
        .because("its token has been invalid for the clean-up period")
}

#[cfg(test)]
mod tests;
