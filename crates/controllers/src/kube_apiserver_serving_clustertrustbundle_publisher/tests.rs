//! One bundle is published, and others of the signer are deleted once it is.

use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{MetricType, RateLimiter};
use serde_json::Value;

use super::*;

const CA: &str = "# comment\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const CURRENT: &str = "kubernetes.io:kube-apiserver-serving:000102030405060708090a0b";
const HASH: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

fn options(version: ClusterTrustBundleVersion) -> ClusterTrustBundlePublisherOptions {
    ClusterTrustBundlePublisherOptions { ca: CA.into(), ca_hash: HASH, version }
}

fn publisher() -> Loop {
    controller(&options(ClusterTrustBundleVersion::V1)).unwrap().loops.remove(0)
}

fn bundle(name: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "uid": "u", "resourceVersion": "7", "labels": {"keep": "me"}},
        "spec": {"signerName": KUBE_APISERVER_SERVING_SIGNER, "trustBundle": text}})
}

fn with(bundles: &[Value]) -> RehearsalCluster {
    bundles
        .iter()
        .cloned()
        .fold(RehearsalCluster::of(&publisher()), RehearsalCluster::with::<ClusterTrustBundle>)
}

/// What one sync writes and measures.
fn sync(mut cluster: RehearsalCluster) -> (Vec<String>, String) {
    let transcript = cluster.reconcile(&publisher(), Pass);
    let prefix = "measure clustertrustbundle_publisher_sync_";
    let (measured, done): (Vec<_>, Vec<_>) = transcript.lines().partition(|line| line.starts_with(prefix));
    let measured = measured.iter().map(|line| &line[prefix.len()..]).collect::<Vec<_>>().join("; ");
    (done.into_iter().map(str::to_owned).collect(), measured)
}

fn counted(code: u16) -> String {
    format!("duration_seconds{{{code}}} 0; total{{{code}}} 1")
}

fn body(line: &str) -> Value {
    let json = &line[line.find(": {").unwrap() + 2..];
    serde_json::Deserializer::from_str(json).into_iter::<Value>().next().unwrap().unwrap()
}

/// Proves CTB-10, CTB-11, CTB-20, CTB-40, CTB-52, CTB-53.
#[test]
fn missing_bundle_is_created_under_the_name_of_its_hash() {
    let (done, measured) = sync(with(&[]));
    assert_eq!((done.len(), measured), (1, counted(200)));
    assert!(done[0].starts_with("create clustertrustbundles.certificates.k8s.io"), "{done:?}");
    let spec = json!({"signerName": "kubernetes.io/kube-apiserver-serving", "trustBundle": CA});
    assert_eq!(body(&done[0]), json!({"metadata": {"name": CURRENT}, "spec": spec}));
    assert_ne!(bundle_name(&[9; 12]), CURRENT, "another hash is another name");
}

/// Proves CTB-12, CTB-13, CTB-21, CTB-55, CTB-59.
#[test]
fn changed_bundle_is_restored_and_an_equal_one_is_not_written() {
    let (done, measured) = sync(with(&[bundle(CURRENT, CA)]));
    assert_eq!((done, measured), (vec![], counted(200)), "whatever its labels");
    for text in [format!("{CA}\n"), String::new()] {
        let (done, measured) = sync(with(&[bundle(CURRENT, &text)]));
        assert_eq!((done.len(), measured), (1, counted(200)));
        assert!(done[0].starts_with("put "), "{done:?}");
        assert_eq!(body(&done[0]), bundle(CURRENT, CA), "with its resourceVersion, uid and labels");
    }
}

/// Proves CTB-15, CTB-22, CTB-41, CTB-60, CTB-61.
#[test]
fn other_bundles_are_deleted_after_the_create() {
    let others = [bundle("a", CA), bundle("kubernetes.io:kube-apiserver-serving:old", "x")];
    let (done, measured) = sync(with(&others));
    assert_eq!((done.len(), measured), (3, counted(200)));
    assert!(
        done[0].starts_with("create ") && done[1].starts_with("delete ") && done[2].starts_with("delete ")
    );
    assert!(!done[1].contains("uid"), "deleted by name: {done:?}");
    let mut held = bundle("a", CA);
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (done, _) = sync(with(&[bundle(CURRENT, CA), held]));
    assert!(done.len() == 1 && done[0].starts_with("delete "), "{done:?}");
}

/// Proves CTB-14, CTB-30, CTB-43, CTB-56, CTB-58.
#[test]
fn nothing_is_deleted_if_the_bundle_cannot_be_published() {
    for (code, label) in [(403, 403), (404, 404), (409, 409), (422, 422), (500, 500)] {
        for current in [None, Some(bundle(CURRENT, "other"))] {
            let verb = if current.is_some() { "update" } else { "create" };
            let bundles: Vec<_> = current.into_iter().chain([bundle("old", "x")]).collect();
            let refused = ApiError::from_status(code, "", "refused", [], 0);
            let cluster = with(&bundles).failing::<ClusterTrustBundle>(verb, &Key::cluster(CURRENT), refused);
            let (done, measured) = sync(cluster);
            assert_eq!(measured, counted(label), "{done:?}");
            let text = done.join("\n");
            assert!(text.contains("retry") && !text.contains("delete "), "{text}");
        }
    }
    let lost = ApiError::transport(ErrorReason::ConnectionLost, "lost");
    let cluster = with(&[]).failing::<ClusterTrustBundle>("create", &Key::cluster(CURRENT), lost);
    assert_eq!(sync(cluster).1, counted(500), "without a status of the API server");
}

/// Proves CTB-16.
#[test]
fn failed_delete_does_not_stop_the_others() {
    let bundles = ["a", "b", "c"].map(|name| bundle(name, "x"));
    let refused = |code| ApiError::from_status(code, "", "refused", [], 0);
    let cluster = with(&bundles).failing::<ClusterTrustBundle>("delete", &Key::cluster("b"), refused(500));
    let (done, measured) = sync(cluster);
    let text = done.join("\n");
    assert_eq!((text.matches("delete ").count() >= 3, measured), (true, counted(500)), "{text}");
    assert!(text.contains("retry"), "{text}");
    let gone = ApiError::from_status(404, "NotFound", "gone", [], 0);
    let (done, measured) =
        sync(with(&bundles).failing::<ClusterTrustBundle>("delete", &Key::cluster("b"), gone));
    assert!(!done.join("\n").contains("retry") && measured == counted(200), "{done:?}");
}

/// Proves CTB-6, CTB-7, CTB-8, CTB-31, CTB-42, CTB-62.
#[test]
fn every_version_watches_the_bundles_of_the_signer() {
    assert!(controller(&ClusterTrustBundlePublisherOptions::default()).is_none(), "without a CA");
    for version in ClusterTrustBundleVersion::ALL {
        let controller = controller(&options(version)).unwrap();
        assert_eq!(controller.name, NAME);
        assert_eq!(controller.service_account, Some("kube-apiserver-serving-clustertrustbundle-publisher"));
        assert!(controller.event_component.is_none());
        assert_eq!(
            controller.metrics[1].metric_type,
            MetricType::Histogram(Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 })
        );
        let [a_loop] = &controller.loops[..] else { panic!("one loop") };
        assert_eq!(
            (a_loop.queue, a_loop.workers, a_loop.max_retries),
            ("ca_cert_publisher_cluster_trust_bundles", 1, None)
        );
        assert_eq!((a_loop.rate_limiter, a_loop.initial_items.len()), (RateLimiter::DEFAULT, 1));
        let [kind] = &a_loop.reads[..] else { panic!("one kind") };
        assert_eq!(kind.resource().version, version.name());
        assert_eq!(
            kind.projection().field_selector,
            Some("spec.signerName=kubernetes.io/kube-apiserver-serving")
        );
    }
    let a_loop = publisher();
    let cluster = RehearsalCluster::of(&a_loop);
    let one = || Arc::new(serde_json::from_value::<ClusterTrustBundle>(bundle("a", "x")).unwrap());
    let mut store = keleustes_plan::Store::<ClusterTrustBundle>::default();
    assert_eq!(cluster.enqueued_by(&a_loop, store.apply(one())), ["pass"]);
    assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(one())), ["pass"]);
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(one())), ["pass"]);
}
