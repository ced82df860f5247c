//! Keeps a ConfigMap with the CA of the API server in every namespace.
//!
//! Parity: pkg/controller/certificates/rootcacertpublisher.

use std::sync::Arc;

use keleustes_objects::{
    ApiError, ErrorReason, FullMeta as _, InternedStr, Key, Namespace, ROOT_CA_CONFIG_MAP, RootCaConfigMap,
};
use keleustes_plan::{
    Applied, BoxFuture, Buckets, Change, Context, Controller, Enqueue, Grant, Item, Loop, Metric, Outcome,
    Plan, ReconcileError, Reconciler, Requeue, View, Write,
};
use serde_json::json;

/// What the controller is told.
#[derive(Clone, Debug, Default)]
pub struct RootCaCertificatePublisherOptions {
    /// The CA, as PEM; empty if none is known.
    pub ca: Arc<str>,
}

/// The key under which the CA is kept.
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

/// The controller.
#[must_use]
pub fn controller(settings: &RootCaCertificatePublisherOptions) -> Controller {
    Controller::new("root-ca-certificate-publisher-controller")
        .also_known_as(&["root-ca-cert-publisher"])
        .service_account("root-ca-cert-publisher")
        .may_write(&[Grant { group: "", resource: "configmaps", verbs: &["create", "update"] }])
        .metrics([&SYNCS, &DURATIONS])
        .with_loop(
            Loop::reconciling("root_ca_cert_publisher", Publishing { ca: InternedStr::from(&*settings.ca) })
                .enqueue_on::<Namespace>(namespace_changed)
                .enqueue_on::<RootCaConfigMap>(map_changed),
        )
}

fn namespace_changed(change: &Change<Namespace>, _: &View<'_>, wakes: &mut Enqueue) {
    let is_new = change.old().is_none();
    if let Some(namespace) = change.new().filter(|namespace| is_new || namespace.phase == "Active") {
        wakes.add(&namespace.meta.key);
    }
}

/// A map that has just been made is what its maker wanted; if not, its namespace is looked at anyway.
fn map_changed(change: &Change<RootCaConfigMap>, _: &View<'_>, wakes: &mut Enqueue) {
    if change.old().is_some() {
        wakes.add(Key::cluster(&*change.latest().meta.key.namespace));
    }
}

struct Publishing {
    ca: InternedStr,
}

impl Reconciler for Publishing {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            let (began, plan) = cx.gather(|view| (view.now().monotonic, decide(view, item, &self.ca)));
            let applied = cx.apply(plan).await;
            let took = cx.gather(|view| view.now().monotonic).saturating_sub(began);
            let (code, result) = verdict(applied);
            cx.measure(DURATIONS.measurement(&[&code.to_string()], took.as_secs_f64()));
            cx.measure(SYNCS.increment(&[&code.to_string()]));
            result
        })
    }
}

fn decide(view: &View<'_>, namespace: &Key, ca: &InternedStr) -> Plan {
    let key = Key::namespaced(&*namespace.name, ROOT_CA_CONFIG_MAP);
    let Some(map) = view.get::<RootCaConfigMap>(&key) else {
        let metadata = json!({"name": ROOT_CA_CONFIG_MAP, "annotations": {DESCRIPTION: DESCRIBED}});
        let write = Write::create::<RootCaConfigMap>(key, json!({"metadata": metadata, "data": {CA: ca}}))
            // A namespace that is gone or goes needs nothing.
            .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::NamespaceTerminating])
            .because("the namespace has no CA");
        return Plan::of(write);
    };
    let is_described = map.annotations().value(DESCRIPTION).is_some_and(|text| !text.is_empty());
    let is_right = map.data.len() == 1 && map.data.get(CA) == Some(ca);
    if is_right && is_described {
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
    Plan::of(Write::put(&**map, "", body).because("the CA or its description is not as it should be"))
}

/// The code that the sync is counted under, and what follows.
fn verdict(applied: Applied) -> (u16, Result<Requeue, ReconcileError>) {
    let code = match applied.outcomes.first() {
        None | Some(Outcome::Done { .. }) => 200,
        // What was to be changed is gone. Its deletion has not been seen here yet, so it is tried again.
        Some(Outcome::Unneeded) => {
            return (404, Err(ReconcileError::because("the config map is gone")));
        }
        Some(Outcome::Failed(ApiError { code: 0, .. }) | Outcome::NotSent) => 500,
        Some(Outcome::Failed(failure)) => failure.code,
    };
    (code, applied.all_done().map(|()| Requeue::Forget))
}

#[cfg(test)]
mod tests {
    use keleustes_plan::rehearsal::RehearsalCluster;
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

    fn right() -> Value {
        map(&json!({CA: PEM}), &json!({DESCRIPTION: DESCRIBED}))
    }

    /// What is done about namespace `a`, without what is measured.
    fn sync(mut world: RehearsalCluster) -> (String, String) {
        let transcript = world.reconcile(&the_loop(), Key::cluster("a"));
        let measured = "measure root_ca_cert_publisher_sync_";
        let (told, done): (Vec<_>, Vec<_>) = transcript.lines().partition(|line| line.starts_with(measured));
        let told = told.iter().map(|line| &line[measured.len()..]).collect::<Vec<_>>().join("; ");
        (done.join("\n"), told)
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
    fn a_missing_map_is_created_whatever_is_known_of_the_namespace() {
        let (done, told) = sync(RehearsalCluster::of(&the_loop()));
        assert!(done.starts_with("create configmaps a/kube-root-ca.crt because the namespace has no CA: "));
        let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
            endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed \
            across distributions of Kubernetes clusters.";
        let annotations = json!({"kubernetes.io/description": description});
        let metadata = json!({"name": "kube-root-ca.crt", "annotations": annotations});
        assert_eq!(body(&done), json!({"metadata": metadata, "data": {"ca.crt": PEM}}));
        assert_eq!(told, counted(200));
        let a_loop = controller(&RootCaCertificatePublisherOptions::default()).loops.remove(0);
        let transcript = RehearsalCluster::of(&a_loop).reconcile(&a_loop, Key::cluster("a"));
        assert!(transcript.contains(r#""data":{"ca.crt":""}"#), "no CA is an empty one: {transcript}");
    }

    /// Proves RCA-11, RCA-40.
    #[test]
    fn a_map_with_the_ca_and_any_description_is_left_alone() {
        assert_eq!(sync(with(right())), (String::new(), counted(200)));
        let otherwise = map(&json!({CA: PEM}), &json!({DESCRIPTION: "in other words"}));
        assert_eq!(sync(with(otherwise)).0, "");
    }

    /// Proves RCA-12, RCA-21, RCA-41.
    #[test]
    fn any_other_map_is_put_right_and_keeps_the_rest() {
        let mut odd = map(&json!({CA: PEM, "more": "text"}), &json!({"keep": "me too"}));
        odd["binaryData"] = json!({"bytes": "AA=="});
        odd["immutable"] = json!(false);
        let (done, told) = sync(with(odd.clone()));
        odd["metadata"]["annotations"][DESCRIPTION] = json!(DESCRIBED);
        odd["data"] = json!({CA: PEM});
        assert_eq!((body(&done), told), (odd, counted(200)));
        for wrong in [
            map(&json!({CA: "another"}), &json!({DESCRIPTION: DESCRIBED})),
            map(&json!({}), &json!({DESCRIPTION: DESCRIBED})),
            map(&json!({CA: PEM, "more": "text"}), &json!({DESCRIPTION: DESCRIBED})),
            map(&json!({CA: PEM}), &json!({DESCRIPTION: ""})),
            map(&json!({CA: PEM}), &json!({})),
        ] {
            let (done, _) = sync(with(wrong));
            let mut wanted = right();
            wanted["metadata"]["annotations"] = json!({DESCRIPTION: DESCRIBED});
            assert_eq!(body(&done), wanted);
        }
    }

    /// Proves RCA-15, RCA-21, RCA-23, RCA-30, RCA-42, RCA-44, RCA-46.
    #[test]
    fn only_a_create_in_a_namespace_that_is_gone_or_goes_may_fail() {
        let key = Key::namespaced("a", ROOT_CA_CONFIG_MAP);
        let failure = |code, reason: &str, causes: &[&'static str]| {
            ApiError::from_status(code, reason, "refused", causes.iter().copied(), 0)
        };
        let created = |failure| {
            sync(RehearsalCluster::of(&the_loop()).failing::<RootCaConfigMap>("create", &key, failure))
        };
        for fine in [failure(404, "NotFound", &[]), failure(403, "Forbidden", &["NamespaceTerminating"])] {
            let (done, told) = created(fine);
            assert!(done.ends_with("(refused, which is fine: refused)"), "{done}");
            assert_eq!(told, counted(200));
        }
        for code in [403, 409, 429, 500] {
            let reason = if code == 409 { "AlreadyExists" } else { "" };
            let (done, told) = created(failure(code, reason, &[]));
            assert!(done.ends_with("retry: refused"), "{done}");
            assert_eq!(told, counted(code));
        }
        let lost = ApiError::transport(ErrorReason::ConnectionLost, "lost");
        assert_eq!(created(lost).1, counted(500), "no answer has no code");
        for code in [404, 409, 422, 500] {
            let world = with(map(&json!({}), &json!({})));
            let refused = failure(code, "", &[]);
            let (done, told) = sync(world.failing::<RootCaConfigMap>("update", &key, refused));
            assert!(done.contains("retry: "), "{done}");
            assert_eq!(told, counted(code));
        }
    }

    /// Proves RCA-3, RCA-4, RCA-5, RCA-43.
    #[test]
    fn changed_maps_and_active_namespaces_wake() {
        let (a_loop, world) = (the_loop(), RehearsalCluster::of(&the_loop()));
        let mut maps = keleustes_plan::Store::<RootCaConfigMap>::default();
        let decode = |json: Value| Arc::new(serde_json::from_value::<RootCaConfigMap>(json).unwrap());
        assert!(world.enqueued_by(&a_loop, maps.apply(decode(right()))).is_empty(), "a new one");
        let mut newer = right();
        newer["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(world.enqueued_by(&a_loop, maps.apply(decode(newer))), ["a"]);
        assert_eq!(world.enqueued_by(&a_loop, Change::resync(decode(right()))), ["a"]);
        assert_eq!(world.enqueued_by(&a_loop, Change::deleted(decode(right()))), ["a"]);

        let namespace = |phase: &str, version: &str| -> Arc<Namespace> {
            let metadata = json!({"name": "a", "uid": "u", "resourceVersion": version});
            let namespace = json!({"metadata": metadata, "status": {"phase": phase}});
            Arc::new(serde_json::from_value(namespace).unwrap())
        };
        let mut namespaces = keleustes_plan::Store::<Namespace>::default();
        assert_eq!(world.enqueued_by(&a_loop, namespaces.apply(namespace("Terminating", "1"))), ["a"]);
        assert_eq!(world.enqueued_by(&a_loop, namespaces.apply(namespace("Active", "2"))), ["a"]);
        assert!(world.enqueued_by(&a_loop, namespaces.apply(namespace("Terminating", "3"))).is_empty());
        assert_eq!(world.enqueued_by(&a_loop, Change::resync(namespace("Active", "4"))), ["a"]);
        assert!(world.enqueued_by(&a_loop, Change::resync(namespace("Terminating", "4"))).is_empty());
        assert!(world.enqueued_by(&a_loop, Change::deleted(namespace("Active", "4"))).is_empty());
    }

    /// Proves RCA-6, RCA-7, RCA-31, RCA-32.
    #[test]
    fn it_is_known_by_the_original_s_names_and_numbers() {
        let mut controller = controller(&RootCaCertificatePublisherOptions::default());
        assert_eq!(controller.name, "root-ca-certificate-publisher-controller");
        assert_eq!(controller.aliases, ["root-ca-cert-publisher"]);
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
    fn other_maps_never_reach_it() {
        let entry = keleustes_plan::KindEntry::of::<RootCaConfigMap>();
        assert_eq!(entry.projection().field_selector, Some("metadata.name=kube-root-ca.crt"));
    }
}
