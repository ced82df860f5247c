//! Keeps the ConfigMap `kube-root-ca.crt` with the API server's CA bundle in every namespace.
//!
//! Parity: pkg/controller/certificates/rootcacertpublisher.

use std::sync::Arc;

use keleustes_objects::{
    ApiError, ErrorReason, FullMeta as _, InternedStr, Key, Namespace, ROOT_CA_CONFIG_MAP, RootCaConfigMap,
};
use keleustes_plan::{
    Applied, Buckets, Change, Context, Controller, Effects, Grant, Loop, Metric, Outcome, Plan,
    ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::json;

/// Options of the root CA certificate publisher.
#[derive(Clone, Debug, Default)]
pub struct RootCaCertificatePublisherOptions {
    /// The CA bundle as PEM; empty if none is configured.
    pub ca: Arc<str>,
}

/// Data key of the CA bundle.
const CA: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using \
    internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
    guaranteed across distributions of Kubernetes clusters.";

static SYNCS: Metric = Metric::counter(
    "root_ca_cert_publisher_sync_total",
    "Number of namespace syncs happened in root ca cert publisher.",
    &["code"],
);
static DURATIONS: Metric = Metric::histogram(
    "root_ca_cert_publisher_sync_duration_seconds",
    "Number of namespace syncs happened in root ca cert publisher.",
    &["code"],
    Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 },
);

/// Builds the controller.
#[must_use]
pub fn controller(options: &RootCaCertificatePublisherOptions) -> Controller {
    Controller::new("root-ca-certificate-publisher-controller")
        .service_account("root-ca-cert-publisher")
        .may_write(&[Grant { group: "", resource: "configmaps", verbs: &["create", "update"] }])
        .metrics([&SYNCS, &DURATIONS])
        .with_loop(
            Loop::reconciling("root_ca_cert_publisher", Publisher { ca: InternedStr::from(&*options.ca) })
                .keyed_by::<Namespace>()
                .enqueue_on::<Namespace>(namespace_changed)
                .enqueue_on::<RootCaConfigMap>(map_changed),
        )
}

fn namespace_changed(change: &Change<Namespace>, _: &View<'_>, enqueue: &mut Effects) {
    let is_new = change.old().is_none();
    if let Some(namespace) = change.new().filter(|namespace| is_new || namespace.phase == "Active") {
        enqueue.add(&namespace.meta.key);
    }
}

/// A created ConfigMap needs no check: its namespace is enqueued by its own events.
fn map_changed(change: &Change<RootCaConfigMap>, _: &View<'_>, enqueue: &mut Effects) {
    if change.old().is_some() {
        enqueue.add(Key::cluster(&*change.latest().meta.key.namespace));
    }
}

struct Publisher {
    ca: InternedStr,
}

impl Reconciler for Publisher {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let (started, plan) = cx.gather(|view| (view.now().monotonic, decide(view, item, &self.ca)));
        let applied = cx.apply(plan).await;
        let elapsed = cx.gather(|view| view.now().monotonic).saturating_sub(started);
        let (code, result) = sync_result(applied);
        cx.measure(DURATIONS.measurement(&[&code.to_string()], elapsed.as_secs_f64()));
        cx.measure(SYNCS.increment(&[&code.to_string()]));
        result
    }
}

fn decide(view: &View<'_>, namespace: &Key, ca: &InternedStr) -> Plan {
    let key = Key::namespaced(&*namespace.name, ROOT_CA_CONFIG_MAP);
    let Some(map) = view.get::<RootCaConfigMap>(&key) else {
        let metadata = json!({"name": ROOT_CA_CONFIG_MAP, "annotations": {DESCRIPTION: DESCRIBED}});
        let write = Write::create::<RootCaConfigMap>(key, json!({"metadata": metadata, "data": {CA: ca}}))
            // A deleted or terminating namespace needs no ConfigMap.
            .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::NamespaceTerminating])
            .because("the namespace has no CA");
        return Plan::of(write);
    };
    let has_description = map.annotations().value(DESCRIPTION).is_some_and(|text| !text.is_empty());
    let has_ca = map.data.len() == 1 && map.data.get(CA) == Some(ca);
    if has_ca && has_description {
        return Plan::none();
    }
    let mut body = json!({"metadata": map.full_meta_json(), "data": {CA: ca}});
    body["metadata"]["annotations"][DESCRIPTION] = json!(DESCRIBED);
    if !map.binary_data.is_empty() {
        body["binaryData"] = json!(map.binary_data);
    }
    if let Some(immutable) = map.immutable {
        body["immutable"] = json!(immutable);
    }
    Plan::of(Write::put(&**map, "", body).because("its CA bundle or description annotation is wrong"))
}

/// The value of the metric label `code`, and the result of the reconcile.
fn sync_result(applied: Applied) -> (u16, Result<Requeue, ReconcileError>) {
    let code = match applied.outcomes.first() {
        None | Some(Outcome::Done { .. }) => 200,
        // The ConfigMap is deleted, but the cache still contains it; retry.
        Some(Outcome::Unneeded) => {
            return (404, Err(ReconcileError::because("the ConfigMap is deleted")));
        }
        Some(Outcome::Failed(ApiError { code: 0, .. }) | Outcome::NotSent) => 500,
        Some(Outcome::Failed(failure)) => failure.code,
    };
    (code, applied.all_done().map(|()| Requeue::Forget))
}

#[cfg(test)]
mod tests {
    use keleustes_plan::rehearsal::RehearsalCluster;
    use keleustes_plan::rehearsal::is_retried_because;
    use keleustes_plan::{MetricType, RateLimiter};
    use serde_json::Value;

    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----";

    fn the_loop() -> Loop {
        controller(&RootCaCertificatePublisherOptions { ca: PEM.into() }).loops.remove(0)
    }

    fn map(data: &Value, annotations: &Value) -> Value {
        json!({"metadata": {"namespace": "a", "name": ROOT_CA_CONFIG_MAP, "uid": "u", "resourceVersion": "7",
            "labels": {"keep": "me"}, "annotations": annotations}, "data": data})
    }

    fn up_to_date() -> Value {
        map(&json!({CA: PEM}), &json!({DESCRIPTION: DESCRIBED}))
    }

    /// Reconciles namespace `a`; returns the transcript without metrics, and the metrics.
    fn sync(mut cluster: RehearsalCluster) -> (String, String) {
        let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
        let prefix = "measure root_ca_cert_publisher_sync_";
        let (measurements, done): (Vec<_>, Vec<_>) =
            transcript.lines().partition(|line| line.starts_with(prefix));
        let measurements =
            measurements.iter().map(|line| &line[prefix.len()..]).collect::<Vec<_>>().join("; ");
        (done.join("\n"), measurements)
    }

    fn with(map: Value) -> RehearsalCluster {
        RehearsalCluster::of(&the_loop()).with::<RootCaConfigMap>(map)
    }

    fn counted(code: u16) -> String {
        format!("duration_seconds{{{code}}} 0; total{{{code}}} 1")
    }

    /// The body of a write.
    fn body(done: &str) -> Value {
        serde_json::from_str(&done[done.find(": {").unwrap() + 2..]).unwrap()
    }

    /// Proves RCA-10, RCA-20, RCA-22, RCA-24.
    #[test]
    fn missing_config_map_is_created_even_if_the_namespace_is_not_cached() {
        let (done, measurements) = sync(RehearsalCluster::of(&the_loop()));
        assert!(done.starts_with("create configmaps a/kube-root-ca.crt because the namespace has no CA: "));
        let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
            endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed \
            across distributions of Kubernetes clusters.";
        let annotations = json!({"kubernetes.io/description": description});
        let metadata = json!({"name": "kube-root-ca.crt", "annotations": annotations});
        assert_eq!(body(&done), json!({"metadata": metadata, "data": {"ca.crt": PEM}}));
        assert_eq!(measurements, counted(200));
        let a_loop = controller(&RootCaCertificatePublisherOptions::default()).loops.remove(0);
        let transcript = RehearsalCluster::of(&a_loop).reconcile(&a_loop, Key::cluster("a"));
        assert!(
            transcript.contains(r#""data":{"ca.crt":""}"#),
            "a missing CA is written as empty: {transcript}"
        );
    }

    /// Proves RCA-11, RCA-40.
    #[test]
    fn config_map_with_the_ca_and_any_description_is_not_changed() {
        assert_eq!(sync(with(up_to_date())), (String::new(), counted(200)));
        let other_description = map(&json!({CA: PEM}), &json!({DESCRIPTION: "in other words"}));
        assert_eq!(sync(with(other_description)).0, "");
    }

    /// Proves RCA-12, RCA-21, RCA-41.
    #[test]
    fn wrong_config_map_is_updated_and_keeps_other_fields() {
        let mut odd = map(&json!({CA: PEM, "more": "text"}), &json!({"keep": "me too"}));
        odd["binaryData"] = json!({"bytes": "AA=="});
        odd["immutable"] = json!(false);
        let (done, measurements) = sync(with(odd.clone()));
        odd["metadata"]["annotations"][DESCRIPTION] = json!(DESCRIBED);
        odd["data"] = json!({CA: PEM});
        assert_eq!((body(&done), measurements), (odd, counted(200)));
        for wrong in [
            map(&json!({CA: "another"}), &json!({DESCRIPTION: DESCRIBED})),
            map(&json!({}), &json!({DESCRIPTION: DESCRIBED})),
            map(&json!({CA: PEM, "more": "text"}), &json!({DESCRIPTION: DESCRIBED})),
            map(&json!({CA: PEM}), &json!({DESCRIPTION: ""})),
            map(&json!({CA: PEM}), &json!({})),
        ] {
            let (done, _) = sync(with(wrong));
            let mut wanted = up_to_date();
            wanted["metadata"]["annotations"] = json!({DESCRIPTION: DESCRIBED});
            assert_eq!(body(&done), wanted);
        }
    }

    /// Proves RCA-15, RCA-21, RCA-23, RCA-30, RCA-42, RCA-44, RCA-46.
    #[test]
    fn only_creates_in_deleted_or_terminating_namespaces_may_fail() {
        let key = Key::namespaced("a", ROOT_CA_CONFIG_MAP);
        let failure = |code, reason: &str, causes: &[&'static str]| {
            ApiError::from_status(code, reason, "refused", causes.iter().copied(), 0)
        };
        let created = |failure| {
            sync(RehearsalCluster::of(&the_loop()).failing::<RootCaConfigMap>("create", &key, failure))
        };
        for fine in [failure(404, "NotFound", &[]), failure(403, "Forbidden", &["NamespaceTerminating"])] {
            let (done, measurements) = created(fine);
            assert!(done.ends_with("(ignored: refused)"), "{done}");
            assert_eq!(measurements, counted(200));
        }
        for code in [403, 409, 429, 500] {
            let reason = if code == 409 { "AlreadyExists" } else { "" };
            let (done, measurements) = created(failure(code, reason, &[]));
            assert!(is_retried_because(&done, "refused"), "{done}");
            assert_eq!(measurements, counted(code));
        }
        let lost = ApiError::transport(ErrorReason::ConnectionLost, "lost");
        assert_eq!(created(lost).1, counted(500), "a lost connection has no code");
        for code in [404, 409, 422, 500] {
            let cluster = with(map(&json!({}), &json!({})));
            let refused = failure(code, "", &[]);
            let (done, measurements) = sync(cluster.failing::<RootCaConfigMap>("update", &key, refused));
            assert!(done.contains("retry: "), "{done}");
            assert_eq!(measurements, counted(code));
        }
    }

    /// Proves RCA-3, RCA-4, RCA-5, RCA-43.
    #[test]
    fn changed_config_maps_and_active_namespaces_enqueue() {
        let (a_loop, cluster) = (the_loop(), RehearsalCluster::of(&the_loop()));
        let mut maps = keleustes_plan::Store::<RootCaConfigMap>::default();
        let decode = |json: Value| Arc::new(serde_json::from_value::<RootCaConfigMap>(json).unwrap());
        assert!(
            cluster.enqueued_by(&a_loop, maps.apply(decode(up_to_date()))).is_empty(),
            "a created ConfigMap"
        );
        let mut newer = up_to_date();
        newer["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(cluster.enqueued_by(&a_loop, maps.apply(decode(newer))), ["a"]);
        assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(decode(up_to_date()))), ["a"]);
        assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(decode(up_to_date()))), ["a"]);

        let namespace = |phase: &str, version: &str| -> Arc<Namespace> {
            let metadata = json!({"name": "a", "uid": "u", "resourceVersion": version});
            let namespace = json!({"metadata": metadata, "status": {"phase": phase}});
            Arc::new(serde_json::from_value(namespace).unwrap())
        };
        let mut namespaces = keleustes_plan::Store::<Namespace>::default();
        assert_eq!(cluster.enqueued_by(&a_loop, namespaces.apply(namespace("Terminating", "1"))), ["a"]);
        assert_eq!(cluster.enqueued_by(&a_loop, namespaces.apply(namespace("Active", "2"))), ["a"]);
        assert!(cluster.enqueued_by(&a_loop, namespaces.apply(namespace("Terminating", "3"))).is_empty());
        assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(namespace("Active", "4"))), ["a"]);
        assert!(cluster.enqueued_by(&a_loop, Change::resync(namespace("Terminating", "4"))).is_empty());
        assert!(cluster.enqueued_by(&a_loop, Change::deleted(namespace("Active", "4"))).is_empty());
    }

    /// Proves RCA-6, RCA-7, RCA-31, RCA-32.
    #[test]
    fn controller_has_upstreams_names_and_numbers() {
        let mut controller = controller(&RootCaCertificatePublisherOptions::default());
        assert_eq!(controller.name, "root-ca-certificate-publisher-controller");
        assert_eq!(crate::names::aliases_of(controller.name), ["root-ca-cert-publisher"]);
        assert_eq!(controller.service_account, Some("root-ca-cert-publisher"));
        assert_eq!(controller.event_component, None);
        assert!(
            controller.metrics.iter().all(|metric| metric.labels == ["code"] && metric.stability == "ALPHA")
        );
        let buckets = Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 };
        assert_eq!(controller.metrics[1].metric_type, MetricType::Histogram(buckets));
        let a_loop = controller.loops.remove(0);
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("root_ca_cert_publisher", 1, None));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
        let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
        assert_eq!(reads, ["namespaces", "configmaps"]);
    }

    /// Proves RCA-14.
    #[test]
    fn other_config_maps_are_not_watched() {
        let entry = keleustes_plan::KindEntry::of::<RootCaConfigMap>();
        assert_eq!(entry.projection().field_selector, Some("metadata.name=kube-root-ca.crt"));
    }
}
