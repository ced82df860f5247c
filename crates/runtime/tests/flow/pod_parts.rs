//! The cache of pods holds the parts that the controllers of a process read, and no others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use keleustes_controllers::legacy_serviceaccount_token_cleaner::{self, LegacyTokenCleanerOptions};
use keleustes_controllers::replicaset::{self, ReplicaSetOptions};
use keleustes_objects::{Key, Pod, PodParts};
use keleustes_plan::{Controller, KindEntry, Loop, Plan};
use keleustes_runtime::loops::prepare;
use serde_json::json;

use crate::test_cluster::{TestCluster, settle};

/// A cluster with a pod that refers to a Secret and requests CPU.
fn cluster_with_pod() -> TestCluster {
    let cluster = TestCluster::new();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "p"},
        "spec": {"imagePullSecrets": [{"name": "registry"}], "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    cluster.server.seed(pod).unwrap();
    cluster
}

/// The pod as the cache of a process with these controllers holds it.
async fn cached_pod(cluster: &TestCluster, controllers: &[Controller]) -> Arc<Pod> {
    prepare(controllers, &cluster.caches);
    let cache = cluster.synced_cache::<Pod>().await;
    let pod = cache.object(&Key::namespaced("a", "p")).unwrap();
    pod.into_any().downcast().unwrap()
}

#[tokio::test(start_paused = true)]
async fn cache_of_pods_holds_the_parts_that_enabled_controllers_declare() {
    let replicaset = || replicaset::controller(&ReplicaSetOptions::default());
    let cleaner = || legacy_serviceaccount_token_cleaner::controller(LegacyTokenCleanerOptions::default());

    let cluster = cluster_with_pod();
    let pod = cached_pod(&cluster, &[replicaset()]).await;
    assert_eq!(pod.spec.parts(), PodParts::NONE);
    assert!(catch_unwind(AssertUnwindSafe(|| pod.spec.secret_names())).is_err());
    let late = catch_unwind(AssertUnwindSafe(|| prepare([&cleaner()], &cluster.caches)));
    assert!(late.is_err(), "the cache cannot get a part later");
    cluster.caches.stop().await;

    // The controller that opens the cache is not the one that reads the part.
    let cluster = cluster_with_pod();
    let pod = cached_pod(&cluster, &[replicaset(), cleaner()]).await;
    assert_eq!(pod.spec.parts(), PodParts::SECRET_NAMES);
    assert_eq!(pod.spec.secret_names(), ["registry"]);
    assert!(catch_unwind(AssertUnwindSafe(|| pod.spec.containers())).is_err());
    cluster.caches.stop().await;
}

/// A list of the live objects has all parts, whatever the cache has.
#[tokio::test(start_paused = true)]
async fn read_of_an_undeclared_part_is_a_contained_panic() {
    let cluster = cluster_with_pod();
    let a_loop = Loop::deciding("test", |view, _: &Key| {
        let _ = view.all::<Pod>().map(|pod| pod.spec.secret_names().len()).sum::<usize>();
        Plan::none()
    });
    let a_loop = a_loop.enqueue_on::<Pod>(|change, _, enqueue| enqueue.add(&change.latest().meta.key));
    let running = cluster.start(Controller::new("test").with_loop(a_loop)).await;
    settle().await;
    assert!(cluster.metric(r#"keleustes_sync_panics_total{controller="test"} 1"#));
    running.stop().await;
    let live = keleustes_plan::ListRequest::new(KindEntry::of::<Pod>(), "a");
    assert_eq!(live.kind.pod_parts(), PodParts::ALL);
}
