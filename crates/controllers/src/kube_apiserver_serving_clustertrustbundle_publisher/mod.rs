//! Publishes the CA bundle of the API server's serving certificates as one ClusterTrustBundle, and deletes older bundles
//! of the same signer.
//!
//! Parity: pkg/controller/certificates/clustertrustbundlepublisher.

use std::sync::Arc;

use keleustes_objects::{
    ApiError, ClusterTrustBundle, ClusterTrustBundleV1Alpha1, ClusterTrustBundleV1Beta1, ErrorReason,
    KUBE_APISERVER_SERVING_SIGNER, Key, TrustBundle,
};
use keleustes_plan::{
    Applied, Buckets, Change, Context, Controller, Effects, Grant, Loop, Metric, OnFailure, Outcome, Pass,
    Plan, Precondition, ReconcileError, Reconciler, Requeue, Target, View, Write,
};
use serde_json::json;

/// The canonical name.
pub const NAME: &str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";

/// Options of the publisher.
#[derive(Clone, Debug, Default)]
pub struct ClusterTrustBundlePublisherOptions {
    /// The CA bundle as PEM. Without one, the controller does not run.
    pub ca: Arc<str>,
    /// The first 12 bytes of the SHA-256 of the CA bundle, which are in the bundle's name.
    pub ca_hash: [u8; 12],
    /// The version of the API that is used.
    pub version: ClusterTrustBundleVersion,
}

/// A version of the API, in the order of preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterTrustBundleVersion {
    /// v1.
    #[default]
    V1,
    /// v1beta1.
    V1Beta1,
    /// v1alpha1.
    V1Alpha1,
}

impl ClusterTrustBundleVersion {
    /// All versions, in the order of preference.
    pub const ALL: [Self; 3] = [Self::V1, Self::V1Beta1, Self::V1Alpha1];

    /// The name in paths.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
            Self::V1Alpha1 => "v1alpha1",
        }
    }
}

static SYNCS: Metric = Metric::counter(
    "clustertrustbundle_publisher_sync_total",
    "Number of syncs that occurred in cluster trust bundle publisher.",
    &["code"],
);
static DURATIONS: Metric = Metric::histogram(
    "clustertrustbundle_publisher_sync_duration_seconds",
    "The time it took to sync a cluster trust bundle.",
    &["code"],
    Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 },
);

/// Builds the controller; `None` without a CA bundle.
#[must_use]
pub fn controller(options: &ClusterTrustBundlePublisherOptions) -> Option<Controller> {
    if options.ca.is_empty() {
        return None;
    }
    let a_loop = match options.version {
        ClusterTrustBundleVersion::V1 => the_loop::<ClusterTrustBundle>(options),
        ClusterTrustBundleVersion::V1Beta1 => the_loop::<ClusterTrustBundleV1Beta1>(options),
        ClusterTrustBundleVersion::V1Alpha1 => the_loop::<ClusterTrustBundleV1Alpha1>(options),
    };
    Some(
        Controller::new(NAME)
            .service_account("kube-apiserver-serving-clustertrustbundle-publisher")
            .may_write(&[
                Grant {
                    group: "certificates.k8s.io",
                    resource: "clustertrustbundles",
                    verbs: &["create", "delete", "list", "update", "watch"],
                },
                Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
            ])
            .metrics([&SYNCS, &DURATIONS])
            .with_loop(a_loop),
    )
}

fn the_loop<T: TrustBundle>(options: &ClusterTrustBundlePublisherOptions) -> Loop {
    let publisher =
        Publisher { ca: options.ca.clone(), name: bundle_name(&options.ca_hash), put_and_delete: plan::<T> };
    Loop::reconciling("ca_cert_publisher_cluster_trust_bundles", publisher)
        .enqueue_on::<T>(bundle_changed::<T>)
        .initial_item(Pass)
}

fn bundle_changed<T: TrustBundle>(_: &Change<T>, _: &View<'_>, enqueue: &mut Effects) {
    enqueue.add(Pass);
}

/// The name of the bundle with this hash.
fn bundle_name(hash: &[u8; 12]) -> String {
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hash}", KUBE_APISERVER_SERVING_SIGNER.replace('/', ":"))
}

struct Publisher {
    ca: Arc<str>,
    name: String,
    put_and_delete: fn(&View<'_>, &str, &str) -> (Plan, Plan),
}

impl Reconciler<Pass> for Publisher {
    async fn reconcile(&self, cx: &mut Context<'_>, _: &Pass) -> Result<Requeue, ReconcileError> {
        let started = cx.gather(|view| view.now().monotonic);
        let (code, result) = self.sync(cx).await;
        let elapsed = cx.gather(|view| view.now().monotonic).saturating_sub(started);
        cx.measure(DURATIONS.measurement(&[&code.to_string()], elapsed.as_secs_f64()));
        cx.measure(SYNCS.increment(&[&code.to_string()]));
        result
    }
}

impl Publisher {
    /// Publishes the bundle, then deletes the others. Returns the value of the metric label `code` as well.
    async fn sync(&self, cx: &mut Context<'_>) -> (u16, Result<Requeue, ReconcileError>) {
        let (put, _) = cx.gather(|view| (self.put_and_delete)(view, &self.name, &self.ca));
        let published = cx.apply(put).await;
        let code = code_of(&published);
        // The bundle is deleted, but the cache still contains it: the others must stay until it is created again.
        if published.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unneeded)) {
            return (code, Err(ReconcileError::because("the bundle is deleted")));
        }
        if let Err(error) = published.all_done() {
            return (code, Err(error));
        }
        // The others are those that are cached after the create, which the cache need not contain yet.
        let (_, delete) = cx.gather(|view| (self.put_and_delete)(view, &self.name, &self.ca));
        let deleted = cx.apply(delete).await;
        (code_of(&deleted), deleted.all_done().map(|()| Requeue::Forget))
    }
}

/// The write that publishes the bundle, if one is needed, and the deletes of all other bundles.
fn plan<T: TrustBundle>(view: &View<'_>, name: &str, ca: &str) -> (Plan, Plan) {
    let spec = json!({"signerName": KUBE_APISERVER_SERVING_SIGNER, "trustBundle": ca});
    let put = match view.get::<T>(&Key::cluster(name)) {
        None => Plan::of(
            Write::create::<T>(Key::cluster(name), json!({"metadata": {"name": name}, "spec": spec}))
                .because("the CA bundle is not published"),
        ),
        Some(bundle) if bundle.trust_bundle() != ca => Plan::of(
            Write::put(&**bundle, "", json!({"metadata": bundle.full_meta_json(), "spec": spec}))
                .because("its trust bundle is not the CA bundle"),
        ),
        Some(_) => Plan::none(),
    };
    let mut delete = Plan::none();
    for other in view.all::<T>().filter(|bundle| *bundle.meta().key.name != *name) {
        let any = Precondition::None(
            "a bundle that was re-created under the name is deleted too, as in the original",
        );
        let target = Target::named(&T::RESOURCE, other.meta().key.clone(), any);
        delete.push(
            Write::delete_target(target)
                .ignoring_errors(&[ErrorReason::NotFound])
                .on_failure(OnFailure::ContinueAndRetry)
                .because("another bundle is published for the signer"),
        );
    }
    (put, delete)
}

/// The value of the metric label `code`: that of the last error, or 200.
fn code_of(applied: &Applied) -> u16 {
    let failed = applied.outcomes.iter().rev().find_map(|outcome| match outcome {
        Outcome::Failed(ApiError { code: 0, .. }) | Outcome::NotSent => Some(500),
        Outcome::Failed(error) => Some(error.code),
        Outcome::Unneeded => Some(404),
        Outcome::Done { .. } => None,
    });
    failed.unwrap_or(200)
}

#[cfg(test)]
mod tests;
