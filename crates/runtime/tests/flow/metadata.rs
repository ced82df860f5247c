//! Caches of bare metadata: nothing else is asked for, sent or kept.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Kind as _, PartialObjectMeta, Resource};
use keleustes_plan::{AnyChange, KindEntry};
use keleustes_runtime::caches::EventHandler;
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{ConfigMap, Notebook, World, settle, wait};

/// Keeps the names and labels of what it is told of.
#[derive(Default)]
struct Names(Mutex<Vec<String>>);

impl EventHandler for Names {
    fn on_changes(&self, changes: &[AnyChange]) {
        for new in changes.iter().filter_map(|change| change.new.clone()) {
            let partial = new.into_any().downcast::<PartialObjectMeta>().expect("metadata and nothing else");
            let label = partial.meta.labels.value("tier").map(ToString::to_string).unwrap_or_default();
            self.0.lock().push(format!("{} {label}", partial.meta.key));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_metadata_travels_and_is_kept() {
    for (resource, kind) in [
        (Resource::namespaced("", "v1", "configmaps", "ConfigMap"), "ConfigMap"),
        (Resource::namespaced("", "v1", "secrets", "Secret"), "Secret"),
    ] {
        let world = World::new();
        let object = |name: &str, tier: &str| {
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "a", "name": name,
                "labels": {"tier": tier}}, "data": {"content": "aHVudGVyMg=="}})
        };
        world.server.seed(object("x", "front")).unwrap();
        let plural = resource.plural.to_string();
        let cache = world.caches.cache(&KindEntry::metadata_of(resource));
        let names = Arc::new(Names::default());
        cache.add_event_handler(names.clone());
        cache.wait_for_sync().await;
        world.server.seed(object("y", "back")).unwrap();
        world.server.seed(object("x", "middle")).unwrap();
        settle().await;
        world.server.compact();
        world.server.expire_watches();
        world.server.remove(&plural, "a", "y");
        wait(Duration::from_secs(120)).await;
        assert_eq!(*names.0.lock(), ["a/x front", "a/y back", "a/x middle"]);
        assert_eq!(cache.len(), 1);

        let asked = world.tap.accepts.lock().clone();
        assert!(asked.len() >= 2 && asked.iter().all(|accept| accept.contains("as=PartialObjectMetadata")));
        let received: Vec<u8> = world.tap.received.lock().concat();
        let received = String::from_utf8(received).unwrap();
        assert!(received.contains("PartialObjectMetadata") && received.contains(r#""tier":"front""#));
        assert!(!received.contains("aHVudGVyMg"), "the content never left the server");
        assert!(!world.metrics.text().contains("informer_store_resource_version{"), "whole objects only");
    }
}

/// A paged list asks for partial objects, too.
#[tokio::test(start_paused = true)]
async fn only_metadata_travels_where_streaming_lists_are_refused() {
    let world = World::new();
    let refused =
        keleustes_apiserver::InjectedFault::status(422, "Invalid", "sendInitialEvents is forbidden");
    world.faults.add(keleustes_apiserver::FaultRule::new(refused).target("sendInitialEvents"));
    world.put("a/x", "very-red");
    let cache = world.caches.cache(&KindEntry::metadata_of(ConfigMap::RESOURCE));
    cache.wait_for_sync().await;
    world.put("a/y", "very-red");
    settle().await;
    assert_eq!(cache.len(), 2);
    let received = world.tap.received.lock().concat();
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains("PartialObjectMetadataList") && !received.contains("very-red"));
}

/// Whole objects and bare metadata of one resource are two caches.
/// Proves RUN-44.
#[tokio::test(start_paused = true)]
async fn whole_objects_and_metadata_do_not_mix() {
    let world = World::new();
    world.put("a/x", "red");
    let whole = world.filled::<ConfigMap>().await;
    let bare = world.caches.cache(&KindEntry::metadata_of(ConfigMap::RESOURCE));
    bare.wait_for_sync().await;
    assert!(!Arc::ptr_eq(&whole, &bare));
    let again = world.caches.cache(&KindEntry::metadata_of(ConfigMap::RESOURCE));
    assert!(Arc::ptr_eq(&again, &bare));
    let (one, two) = (Notebook::at(&whole), Notebook::at(&bare));
    world.put("a/y", "red");
    settle().await;
    assert_eq!(
        (one.take(), two.take()),
        (vec!["+a/x".into(), "+a/y".into()], vec!["+a/x".into(), "+a/y".into()])
    );
}
