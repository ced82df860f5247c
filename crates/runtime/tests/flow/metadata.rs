//! Metadata-only caches: nothing else is requested, received or kept.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Kind as _, PartialObjectMeta, Resource};
use keleustes_plan::{AnyChange, KindEntry};
use keleustes_runtime::caches::EventHandler;
use parking_lot::Mutex;
use serde_json::json;

use crate::test_cluster::{ChangeLog, ConfigMap, TestCluster, settle, wait};

/// Records the names and labels of changed objects.
#[derive(Default)]
struct RecordingHandler(Mutex<Vec<String>>);

impl EventHandler for RecordingHandler {
    fn on_changes(&self, changes: &[AnyChange]) {
        for new in changes.iter().filter_map(|change| change.new.clone()) {
            let partial = new.into_any().downcast::<PartialObjectMeta>().expect("metadata and nothing else");
            let label = partial.meta.labels.value("tier").map(ToString::to_string).unwrap_or_default();
            self.0.lock().push(format!("{} {label}", partial.meta.key));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_metadata_is_received_and_kept() {
    for (resource, kind) in [
        (Resource::namespaced("", "v1", "configmaps", "ConfigMap"), "ConfigMap"),
        (Resource::namespaced("", "v1", "secrets", "Secret"), "Secret"),
    ] {
        let cluster = TestCluster::new();
        let object = |name: &str, tier: &str| {
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "a", "name": name,
                "labels": {"tier": tier}}, "data": {"content": "aHVudGVyMg=="}})
        };
        cluster.server.seed(object("x", "front")).unwrap();
        let plural = resource.plural.to_string();
        let cache = cluster.caches.cache(&KindEntry::metadata_of(resource));
        let recorded = Arc::new(RecordingHandler::default());
        cache.add_event_handler(recorded.clone());
        cache.wait_for_sync().await;
        cluster.server.seed(object("y", "back")).unwrap();
        cluster.server.seed(object("x", "middle")).unwrap();
        settle().await;
        cluster.server.compact();
        cluster.server.expire_watches();
        cluster.server.remove(&plural, "a", "y");
        wait(Duration::from_secs(120)).await;
        let delivered = ["a/x front", "a/y back", "a/x middle", "a/x middle"];
        assert_eq!(*recorded.0.lock(), delivered, "the relist delivers the unchanged object again");
        assert_eq!(cache.len(), 1);

        let accepts = cluster.tap.accepts.lock().clone();
        assert!(
            accepts.len() >= 2 && accepts.iter().all(|accept| accept.contains("as=PartialObjectMetadata"))
        );
        let received: Vec<u8> = cluster.tap.received.lock().concat();
        let received = String::from_utf8(received).unwrap();
        assert!(received.contains("PartialObjectMetadata") && received.contains(r#""tier":"front""#));
        assert!(!received.contains("aHVudGVyMg"), "the server never sent the content");
        assert!(
            !cluster.metrics.text().contains("informer_store_resource_version{"),
            "only for caches of full objects"
        );
    }
}

/// A paged list requests partial objects, too.
#[tokio::test(start_paused = true)]
async fn only_metadata_is_received_where_streaming_lists_are_refused() {
    let cluster = TestCluster::new();
    let refused =
        keleustes_apiserver::InjectedFault::status(422, "Invalid", "sendInitialEvents is forbidden");
    cluster.faults.add(keleustes_apiserver::FaultRule::new(refused).target("sendInitialEvents"));
    cluster.put("a/x", "very-red");
    let cache = cluster.caches.cache(&KindEntry::metadata_of(ConfigMap::RESOURCE));
    cache.wait_for_sync().await;
    cluster.put("a/y", "very-red");
    settle().await;
    assert_eq!(cache.len(), 2);
    let received = cluster.tap.received.lock().concat();
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains("PartialObjectMetadataList") && !received.contains("very-red"));
}

/// Full objects and metadata of one resource are two caches.
/// Proves RUN-44.
#[tokio::test(start_paused = true)]
async fn full_objects_and_metadata_are_separate_caches() {
    let cluster = TestCluster::new();
    cluster.put("a/x", "red");
    let full = cluster.synced_cache::<ConfigMap>().await;
    let metadata = cluster.caches.cache(&KindEntry::metadata_of(ConfigMap::RESOURCE));
    metadata.wait_for_sync().await;
    assert!(!Arc::ptr_eq(&full, &metadata));
    let again = cluster.caches.cache(&KindEntry::metadata_of(ConfigMap::RESOURCE));
    assert!(Arc::ptr_eq(&again, &metadata));
    let (one, two) = (ChangeLog::at(&full), ChangeLog::at(&metadata));
    cluster.put("a/y", "red");
    settle().await;
    assert_eq!(
        (one.take(), two.take()),
        (vec!["+a/x".into(), "+a/y".into()], vec!["+a/x".into(), "+a/y".into()])
    );
}
