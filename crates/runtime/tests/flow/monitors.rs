//! Observers receive every object of every served resource, while resources come and go.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{ApiResource, Key, ObjectMeta, Resource};
use keleustes_plan::{
    Controller, Effects, InvolvedObject, KindEntry, Loop, Metric, Observer, PlannedEvent, Requeue,
};
use keleustes_runtime::handover::PredecessorState;
use keleustes_runtime::leader::{Handover as _, Predecessor};
use keleustes_runtime::loops;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::test_cluster::{ConfigMap, TestCluster, UNREADABLE, reconcile_with, settle, wait};

static FAILURES: Metric = Metric::counter("test_failures_total", "For tests.", &[]);

/// Records what it receives, and enqueues an item for every object of three resources.
#[derive(Clone, Default)]
struct RecordingObserver(Arc<Mutex<Vec<String>>>);

impl RecordingObserver {
    fn record(&self, sign: &str, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects) {
        assert!(&*meta.key.name != "panic", "panics over one object");
        // Objects that the server creates by itself are ignored.
        if matches!(&*resource.plural, "configmaps" | "widgets" | "secrets")
            && !meta.key.namespace.starts_with("kube-")
        {
            self.0.lock().push(format!("{sign}{} {}", resource.plural, meta.key));
            effects.enqueue("echo", meta.key.clone());
        }
    }

    fn take(&self) -> Vec<String> {
        let mut take = std::mem::take(&mut *self.0.lock());
        take.sort();
        take
    }
}

impl Observer for RecordingObserver {
    fn queue(&self) -> Option<&'static str> {
        Some("test_changes")
    }

    fn failures(&self) -> Option<&'static Metric> {
        Some(&FAILURES)
    }

    fn ignores(&self, resource: &ApiResource) -> bool {
        resource.resource.plural == "events"
    }

    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], effects: &mut Effects) {
        metas.iter().for_each(|meta| self.record("=", resource, meta, effects));
        for key in unreadable {
            self.0.lock().push(format!("?{} {key}", resource.plural));
        }
        if metas.is_empty() && unreadable.is_empty() && resource.plural == "widgets" {
            self.0.lock().push("no widgets".to_owned());
        }
    }

    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects) {
        self.record("+", resource, meta, effects);
    }

    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, effects: &mut Effects) {
        self.record("-", resource, meta, effects);
    }

    fn on_start_leading(&self, effects: &mut Effects) {
        effects.enqueue("echo", Key::cluster("begin"));
        effects.enqueue_rate_limited("echo", Key::cluster("rate-limited"));
        effects.record(PlannedEvent::normal(InvolvedObject::default(), "Begin", "begins"));
    }
}

/// A controller with an observer that records the items it reconciles.
fn echo(observer: &RecordingObserver, reconciled: &Arc<Mutex<Vec<String>>>) -> Controller {
    let reconciled = reconciled.clone();
    let reconciler = reconcile_with(move |_, item: &Key| {
        reconciled.lock().push(item.to_string());
        Box::pin(async { Ok(Requeue::Forget) })
    });
    Controller::new("test").observer(observer.clone()).with_loop(Loop::reconciling("echo", reconciler))
}

/// The graph of the garbage collector must contain what the previous leader wrote: a dependent that it lacks would
/// not be orphaned.
#[tokio::test(start_paused = true)]
async fn monitor_that_is_behind_the_previous_leader_relists() {
    for has_record in [true, false] {
        let cluster = TestCluster::new();
        let observer = RecordingObserver::default();
        let controller = echo(&observer, &Arc::default());
        loops::prepare([&controller], &cluster.caches);
        settle().await;
        let monitors = cluster.caches.monitors(controller.observer.as_ref().unwrap());
        monitors.wait_for_sync().await;
        let no_watch = FaultRule::new(InjectedFault::Hang).resource("configmaps").target("?resourceVersion=");
        cluster.faults.add(no_watch);
        cluster.server.cut_watches();
        settle().await;
        observer.take();
        cluster.put("a/new", "red");
        settle().await;
        assert!(observer.take().is_empty());
        let version = cluster.server.resource_version().to_string();
        let record = json!({"configmaps": {"lastEvent": version, "lastList": "1"}});
        let predecessor =
            if has_record { Predecessor::LeftRecord(record) } else { Predecessor::LeftNoRecord(None) };
        tokio::time::sleep(Duration::from_secs(1)).await;
        let state = PredecessorState::of(&predecessor, &cluster.context.clocks);
        state.wait_for_monitors(&monitors).await;
        assert_eq!(observer.take(), ["=configmaps a/new"], "has a record: {has_record}");
        cluster.caches.stop().await;
    }
}

/// A successor must reach the graph of its predecessor as well, not only the caches.
#[tokio::test(start_paused = true)]
async fn handover_covers_resources_that_only_monitors_watch() {
    let cluster = TestCluster::new();
    let observer = RecordingObserver::default();
    let controller = echo(&observer, &Arc::default());
    loops::prepare([&controller], &cluster.caches);
    settle().await;
    cluster.caches.monitors(controller.observer.as_ref().unwrap()).wait_for_sync().await;
    assert!(cluster.caches.all().is_empty(), "no controller reads ConfigMaps");
    cluster.put("a/one", "red");
    settle().await;
    let recorded = || cluster.caches.handover_record().unwrap()["configmaps"].clone();
    let written = cluster.server.object("configmaps", "a", "one").unwrap();
    assert_eq!(recorded()["lastEvent"], written["metadata"]["resourceVersion"]);

    let unreachable = InjectedFault::status(503, "ServiceUnavailable", "unavailable");
    let unreachable = FaultRule::new(unreachable).resource("configmaps").verbs(&["list", "watch"]);
    let unreachable = cluster.faults.add(unreachable);
    cluster.server.cut_watches();
    settle().await;
    observer.take();
    cluster.put("a/two", "red");
    let version = cluster.server.resource_version().to_string();
    let mut record = cluster.caches.handover_record().unwrap();
    record["configmaps"] = json!({"lastEvent": version, "lastList": "1"});
    let state = PredecessorState::of(&Predecessor::LeftRecord(record), &cluster.context.clocks);
    let mut caught_up = Box::pin(cluster.caches.written_versions().catch_up(&cluster.caches, &state));
    let five_minutes = Duration::from_secs(300);
    assert!(tokio::time::timeout(five_minutes, &mut caught_up).await.is_err(), "waits for the monitor");
    assert_eq!(recorded(), Value::Null, "and records nothing that it has not reached");
    assert_eq!(observer.take(), [""; 0]);
    cluster.faults.disable(unreachable);
    tokio::time::timeout(five_minutes, caught_up).await.expect("the monitor can list again");
    assert_eq!(observer.take(), ["=configmaps a/one", "=configmaps a/two"]);
    assert_ne!(recorded(), Value::Null);
    cluster.caches.stop().await;
}

async fn observing(cluster: &TestCluster) -> (RecordingObserver, loops::RunningController) {
    let observer = RecordingObserver::default();
    let running = cluster.start(echo(&observer, &Arc::default())).await;
    settle().await;
    (observer, running)
}

pub(crate) fn widgets_definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"namespace": "a", "name": name}})
}

pub(crate) async fn define_widgets(cluster: &TestCluster) {
    keleustes_client::Call::create(&definitions(), "", &widgets_definition())
        .send(&cluster.client())
        .await
        .unwrap();
}

/// Serves widgets in these versions, the first of them preferred and stored.
pub(crate) async fn serve_widgets_as(cluster: &TestCluster, versions: &[&str]) {
    let mut definition = widgets_definition();
    let one = definition["spec"]["versions"][0].clone();
    let versions = versions.iter().enumerate().map(|(at, name)| {
        let mut version = one.clone();
        version["name"] = json!(name);
        version["storage"] = json!(at == 0);
        version
    });
    definition["spec"]["versions"] = versions.collect();
    assert!(cluster.server.remove(
        "customresourcedefinitions.apiextensions.k8s.io",
        "",
        "widgets.example.org"
    ));
    keleustes_client::Call::create(&definitions(), "", &definition).send(&cluster.client()).await.unwrap();
}

fn definitions() -> Resource {
    Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
}

/// Proves GC-4, GC-6, GC-7, GC-9.
#[tokio::test(start_paused = true)]
async fn every_object_is_observed_and_nothing_is_read_twice() {
    let cluster = TestCluster::new();
    cluster.put("a/one", "red");
    let cache = cluster.synced_cache::<ConfigMap>().await;
    let (observer, _running) = observing(&cluster).await;
    assert_eq!(observer.take(), ["=configmaps a/one"]);
    cluster.put("a/two", "red");
    cluster.put("a/one", "blue");
    settle().await;
    cluster.remove("a/one");
    cluster
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "s"}}))
        .unwrap();
    settle().await;
    assert_eq!(
        observer.take(),
        ["+configmaps a/one", "+configmaps a/two", "+secrets a/s", "-configmaps a/one"]
    );
    assert_eq!(cluster.reads("configmaps", "watch=true"), 1, "the shared cache has them already");
    assert_eq!(cluster.reads("events", ""), 0);
    assert_eq!(cache.len(), 1);
    let text = cluster.metrics.text();
    let changes = text.lines().find(|line| line.starts_with("workqueue_adds_total{name=\"test_changes\"}"));
    assert!(changes.is_some_and(|line| !line.ends_with(" 0")), "{changes:?}");
    let discoveries = || cluster.server.requests().iter().filter(|request| request.target == "/apis").count();
    assert_eq!(discoveries(), 1);
    wait(Duration::from_secs(29)).await;
    assert_eq!(discoveries(), 1);
    wait(Duration::from_secs(2)).await;
    assert_eq!(discoveries(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_metadata_is_read_of_uncached_resources() {
    let cluster = TestCluster::new();
    let (_witness, _running) = observing(&cluster).await;
    let asked =
        cluster.tap.accepts.lock().iter().filter(|accept| accept.contains("PartialObjectMetadata")).count();
    assert!(asked > 40, "{asked} resources");
    assert_eq!(cluster.reads("secrets", "watch=true"), 1);
}

/// Proves GC-26, GC-136, GC-137, RUN-57.
#[tokio::test(start_paused = true)]
async fn resources_are_observed_while_they_are_served() {
    let cluster = TestCluster::new();
    let (observer, _running) = observing(&cluster).await;
    define_widgets(&cluster).await;
    cluster.server.seed(widget("one")).unwrap();
    wait(Duration::from_secs(31)).await;
    assert_eq!(observer.take(), ["=widgets a/one"]);
    cluster.server.seed(widget("two")).unwrap();
    settle().await;
    assert_eq!(observer.take(), ["+widgets a/two"]);
    // Deleting a CustomResourceDefinition deletes its objects, which must still be delivered.
    assert!(cluster.server.remove("widgets.example.org", "a", "one"));
    assert!(cluster.server.remove("widgets.example.org", "a", "two"));
    assert!(cluster.server.remove(
        "customresourcedefinitions.apiextensions.k8s.io",
        "",
        "widgets.example.org"
    ));
    settle().await;
    assert_eq!(observer.take(), ["-widgets a/one", "-widgets a/two"]);
    let series = "keleustes_undecodable_objects_total{group=\"example.org\",resource=\"widgets\"}";
    assert!(cluster.metrics.text().contains(series));
    // The open watch ends, and the next one is refused.
    wait(Duration::from_secs(15 * 60)).await;
    assert!(!cluster.metrics.text().contains(series), "custom kinds may come and go for years");
    cluster.server.clear_requests();
    wait(Duration::from_secs(120)).await;
    assert_eq!(cluster.reads("widgets", ""), 0, "no requests for a resource that is no longer served");
    define_widgets(&cluster).await;
    wait(Duration::from_secs(31)).await;
    assert_eq!(observer.take(), ["no widgets"], "it is observed again when it is served again");
    assert!(cluster.metrics.text().contains(series));
}

/// Proves GC-21, GC-22, GC-103.
#[tokio::test(start_paused = true)]
async fn resources_of_a_failed_group_version_stay_observed() {
    let cluster = TestCluster::new();
    define_widgets(&cluster).await;
    let (observer, _running) = observing(&cluster).await;
    assert_eq!(observer.take(), ["no widgets"]);
    cluster.server.set_group_version_failing("example.org", "v1", true);
    wait(Duration::from_secs(35)).await;
    cluster.server.set_group_version_failing("example.org", "v1", false);
    wait(Duration::from_secs(35)).await;
    cluster.server.seed(widget("one")).unwrap();
    settle().await;
    assert_eq!(observer.take(), ["+widgets a/one"], "no relist");
    assert!(!cluster.metrics.text().contains("test_failures_total 1"), "this does not count as a failure");
}

/// Proves GC-20, GC-103.
#[tokio::test(start_paused = true)]
async fn failed_discovery_changes_nothing() {
    let cluster = TestCluster::new();
    let (observer, _running) = observing(&cluster).await;
    let rule = FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "unavailable"))
        .method(Method::GET)
        .target("/apis")
        .times(1);
    cluster.faults.add(rule);
    wait(Duration::from_secs(31)).await;
    assert!(cluster.metric("test_failures_total 1"), "{}", cluster.metrics.text());
    cluster
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "s"}}))
        .unwrap();
    settle().await;
    assert_eq!(observer.take(), ["+secrets a/s"]);
    wait(Duration::from_secs(31)).await;
    assert!(cluster.metric("test_failures_total 1"));
}

/// Proves GC-12, GC-23, GC-140.
#[tokio::test(start_paused = true)]
async fn resource_that_cannot_be_listed_delays_start_by_at_most_30_seconds() {
    // Widgets have a watch of the monitors' own, ConfigMaps a shared cache.
    for failing in ["widgets", "configmaps"] {
        let cluster = TestCluster::new();
        define_widgets(&cluster).await;
        cluster.put("a/one", "red");
        cluster.faults.add(
            FaultRule::new(InjectedFault::status(500, "InternalError", "no conversion"))
                .resource(failing)
                .verbs(&["list", "watch"]),
        );
        let _cache = cluster.caches.cache(&KindEntry::of::<ConfigMap>());
        let (observer, reconciled) = (RecordingObserver::default(), Arc::default());
        let began = tokio::time::Instant::now();
        let running = cluster.start(echo(&observer, &reconciled)).await;
        assert_eq!(began.elapsed().as_secs(), 30, "workers wait for 30 s: {failing}");
        settle().await;
        let of_the_others = if failing == "widgets" { "=configmaps a/one" } else { "no widgets" };
        assert_eq!(observer.take(), [of_the_others]);
        assert!(reconciled.lock().contains(&"begin".to_owned()));
        wait(Duration::from_secs(1)).await;
        assert!(cluster.metric("test_failures_total 1"), "{}", cluster.metrics.text());
        wait(Duration::from_secs(61)).await;
        assert!(cluster.metric("test_failures_total 1"), "counted once: the set of resources is the same");
        cluster.faults.disable_all();
        wait(Duration::from_secs(61)).await;
        let of_this_one = if failing == "widgets" { "no widgets" } else { "=configmaps a/one" };
        assert_eq!(observer.take(), [of_this_one], "as soon as it can be listed");
        cluster.stop(running).await;
    }
}

/// Proves GC-12.
#[tokio::test(start_paused = true)]
async fn workers_start_when_all_resources_are_listed_and_not_without_any() {
    let cluster = TestCluster::new();
    let began = tokio::time::Instant::now();
    let (_, running) = observing(&cluster).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    cluster.stop(running).await;

    let cluster = TestCluster::new();
    cluster
        .faults
        .add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "unavailable")).target("/api"));
    let began = tokio::time::Instant::now();
    let (_, _running) = observing(&cluster).await;
    assert_eq!(began.elapsed().as_secs(), 30, "without monitors the controller waits, too");
}

/// Proves GC-13.
#[tokio::test(start_paused = true)]
async fn standby_observes_and_new_leader_gets_pending_items() {
    let cluster = TestCluster::new();
    let (observer, reconciled) = (RecordingObserver::default(), Arc::default());
    let controller = echo(&observer, &reconciled);
    loops::prepare([&controller], &cluster.caches);
    settle().await;
    cluster.put("a/one", "red");
    settle().await;
    assert_eq!(observer.take(), ["+configmaps a/one"]);
    assert!(reconciled.lock().is_empty());
    let running = cluster.start(controller).await;
    settle().await;
    assert_eq!(*reconciled.lock(), ["begin"], "changes from before are not repeated");
    wait(Duration::from_millis(10)).await;
    assert_eq!(*reconciled.lock(), ["begin", "rate-limited"]);
    assert_eq!(cluster.events.lock().iter().map(|event| &*event.reason).collect::<Vec<_>>(), ["Begin"]);
    cluster.put("a/two", "red");
    settle().await;
    assert_eq!(reconciled.lock().last().map(String::as_str), Some("a/two"));
    running.stop().await;
    cluster.put("a/three", "red");
    settle().await;
    assert_eq!(
        reconciled.lock().last().map(String::as_str),
        Some("a/two"),
        "a stopped controller reconciles nothing"
    );
}

/// Proves GC-136.
#[tokio::test(start_paused = true)]
async fn relist_delivers_changes_missed_in_a_gap() {
    let cluster = TestCluster::new();
    for name in ["one", "two", "three"] {
        cluster.put(&format!("a/{name}"), "red");
    }
    let _cache = cluster.synced_cache::<ConfigMap>().await;
    let (observer, _running) = observing(&cluster).await;
    observer.take();
    cluster.tap.lag("configmaps");
    cluster.remove("a/one");
    cluster.remove("a/two");
    cluster.put("a/two", "blue");
    cluster.server.compact();
    cluster.server.expire_watches();
    cluster.tap.catch_up();
    wait(Duration::from_secs(5)).await;
    let take = observer.take();
    assert!(take.contains(&"-configmaps a/one".to_owned()), "{take:?}");
    assert!(take.contains(&"-configmaps a/two".to_owned()), "another UID is another object: {take:?}");
    assert!(take.contains(&"+configmaps a/two".to_owned()), "{take:?}");
}

/// The metadata of a widget cannot be decoded when it is deleted; a ConfigMap of a shared cache cannot be either.
#[tokio::test(start_paused = true)]
async fn deletion_of_an_undecodable_object_is_observed() {
    let cluster = TestCluster::new();
    define_widgets(&cluster).await;
    cluster.server.seed(widget("one")).unwrap();
    cluster.put("a/one", "red");
    let _cache = cluster.synced_cache::<ConfigMap>().await;
    let (observer, _running) = observing(&cluster).await;
    assert_eq!(observer.take(), ["=configmaps a/one", "=widgets a/one"]);
    let uid = cluster.server.object("widgets.example.org", "a", "one").unwrap()["metadata"]["uid"].clone();
    let version = cluster.server.resource_version().to_string();
    let deleted = json!({"type": "DELETED", "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"namespace": "a", "name": "one", "uid": uid, "resourceVersion": version, "finalizers": 7}}});
    let body = format!("{deleted}\n").into();
    let undecodable = InjectedFault::RawBody { code: 200, body };
    let undecodable =
        cluster.faults.add(FaultRule::new(undecodable).resource("widgets").watch(true).times(1));
    cluster.put("a/one", UNREADABLE);
    settle().await;
    cluster.server.cut_watches();
    cluster.remove("a/one");
    wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.faults.hits(undecodable), 1);
    assert_eq!(observer.take(), ["-configmaps a/one", "-widgets a/one"]);
}

#[tokio::test(start_paused = true)]
async fn observer_panic_over_one_object_does_not_affect_others() {
    let cluster = TestCluster::new();
    let (observer, _running) = observing(&cluster).await;
    cluster.put("a/panic", "red");
    cluster.put("a/fine", "red");
    settle().await;
    assert_eq!(observer.take(), ["+configmaps a/fine"]);
    assert!(cluster.metric("keleustes_sync_panics_total{controller=\"test_changes\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn cache_started_later_replaces_the_monitor_watch() {
    let cluster = TestCluster::new();
    cluster.put("a/one", "red");
    let (observer, _running) = observing(&cluster).await;
    let before = cluster.reads("configmaps", "watch=true");
    let _cache = cluster.synced_cache::<ConfigMap>().await;
    wait(Duration::from_secs(31)).await;
    assert_eq!(observer.take(), ["=configmaps a/one", "=configmaps a/one"]);
    cluster.server.cut_watches();
    cluster.put("a/two", "red");
    wait(Duration::from_secs(5)).await;
    assert_eq!(observer.take(), ["+configmaps a/two"], "once, not twice");
    assert_eq!(cluster.reads("configmaps", "watch=true"), before + 2, "only the cache watches again");
}
