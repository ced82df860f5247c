//! Observers hear of every object of everything that is served, whatever comes and goes meanwhile.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_objects::{Key, ObjectMeta, Resource};
use keleustes_plan::{
    Controller, Effects, InvolvedObject, Item, Loop, Metric, Observer, PlannedEvent, Requeue,
};
use keleustes_runtime::loops;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{ConfigMap, World, act, settle, wait};

static FAILURES: Metric = Metric::counter("test_failures_total", "For tests.", &[]);

/// Writes down what it hears, and wakes an item for every ConfigMap of colour.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Vec<String>>>);

impl Witness {
    fn note(&self, sign: &str, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects) {
        assert!(&*meta.key.name != "panic", "one odd object");
        // What a server brings along by itself is of no interest here.
        if matches!(&*resource.plural, "configmaps" | "widgets" | "secrets")
            && !meta.key.namespace.starts_with("kube-")
        {
            self.0.lock().push(format!("{sign}{} {}", resource.plural, meta.key));
            stir.enqueue("echo", meta.key.clone());
        }
    }

    fn heard(&self) -> Vec<String> {
        let mut heard = std::mem::take(&mut *self.0.lock());
        heard.sort();
        heard
    }
}

impl Observer for Witness {
    fn queue(&self) -> &'static str {
        "test_changes"
    }

    fn failures(&self) -> &'static Metric {
        &FAILURES
    }

    fn ignores(&self, resource: &Resource) -> bool {
        resource.plural == "events"
    }

    fn on_list(&self, resource: &Resource, metas: &[&ObjectMeta], unreadable: &[Key], stir: &mut Effects) {
        metas.iter().for_each(|meta| self.note("=", resource, meta, stir));
        for key in unreadable {
            self.0.lock().push(format!("?{} {key}", resource.plural));
        }
        if metas.is_empty() && unreadable.is_empty() && resource.plural == "widgets" {
            self.0.lock().push("no widgets".to_owned());
        }
    }

    fn on_update(&self, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects) {
        self.note("+", resource, meta, stir);
    }

    fn on_delete(&self, resource: &Resource, meta: &ObjectMeta, stir: &mut Effects) {
        self.note("-", resource, meta, stir);
    }

    fn on_start_leading(&self, stir: &mut Effects) {
        stir.enqueue("echo", Key::cluster("begin"));
        stir.enqueue_rate_limited("echo", Key::cluster("slowly"));
        stir.events.push(PlannedEvent::normal(InvolvedObject::default(), "Begin", "begins"));
    }
}

/// A controller that observes and writes down what it is asked to work on.
fn echo(witness: &Witness, worked: &Arc<Mutex<Vec<String>>>) -> Controller {
    let worked = worked.clone();
    let script = act(move |_, item: &Item| {
        worked.lock().push(item.key.to_string());
        Box::pin(async { Ok(Requeue::Forget) })
    });
    Controller::new("test").observer(witness.clone()).with_loop(Loop::reconciling("echo", script))
}

async fn observing(world: &World) -> (Witness, loops::RunningController) {
    let witness = Witness::default();
    let running = world.start(echo(&witness, &Arc::default())).await;
    settle().await;
    (witness, running)
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

pub(crate) async fn define_widgets(world: &World) {
    keleustes_client::Call::create(&definitions(), "", &widgets_definition())
        .send(&world.client())
        .await
        .unwrap();
}

/// Serves widgets in these versions, the first of them preferred and stored.
pub(crate) async fn serve_widgets_as(world: &World, versions: &[&str]) {
    let mut definition = widgets_definition();
    let one = definition["spec"]["versions"][0].clone();
    let versions = versions.iter().enumerate().map(|(at, name)| {
        let mut version = one.clone();
        version["name"] = json!(name);
        version["storage"] = json!(at == 0);
        version
    });
    definition["spec"]["versions"] = versions.collect();
    assert!(world.server.remove("customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.org"));
    keleustes_client::Call::create(&definitions(), "", &definition).send(&world.client()).await.unwrap();
}

fn definitions() -> Resource {
    Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
}

/// Proves GC-4, GC-6, GC-7, GC-9.
#[tokio::test(start_paused = true)]
async fn everything_is_heard_of_and_nothing_is_read_twice() {
    let world = World::new();
    world.put("a/one", "red");
    let cache = world.filled::<ConfigMap>().await;
    let (witness, _running) = observing(&world).await;
    assert_eq!(witness.heard(), ["=configmaps a/one"]);
    world.put("a/two", "red");
    world.put("a/one", "blue");
    settle().await;
    world.remove("a/one");
    world
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "s"}}))
        .unwrap();
    settle().await;
    assert_eq!(
        witness.heard(),
        ["+configmaps a/one", "+configmaps a/two", "+secrets a/s", "-configmaps a/one"]
    );
    assert_eq!(world.reads("configmaps", "watch=true"), 1, "the shared cache has them already");
    assert_eq!(world.reads("events", ""), 0);
    assert_eq!(cache.len(), 1);
    let text = world.metrics.text();
    let changes = text.lines().find(|line| line.starts_with("workqueue_adds_total{name=\"test_changes\"}"));
    assert!(changes.is_some_and(|line| !line.ends_with(" 0")), "{changes:?}");
    let discoveries = || world.server.requests().iter().filter(|request| request.target == "/apis").count();
    assert_eq!(discoveries(), 1);
    wait(Duration::from_secs(29)).await;
    assert_eq!(discoveries(), 1);
    wait(Duration::from_secs(2)).await;
    assert_eq!(discoveries(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_metadata_is_read_of_what_no_cache_holds() {
    let world = World::new();
    let (_witness, _running) = observing(&world).await;
    let asked =
        world.tap.accepts.lock().iter().filter(|accept| accept.contains("PartialObjectMetadata")).count();
    assert!(asked > 40, "{asked} resources");
    assert_eq!(world.reads("secrets", "watch=true"), 1);
}

/// Proves GC-26, GC-136, GC-137.
#[tokio::test(start_paused = true)]
async fn kinds_come_and_go_while_it_runs() {
    let world = World::new();
    let (witness, _running) = observing(&world).await;
    define_widgets(&world).await;
    world.server.seed(widget("one")).unwrap();
    wait(Duration::from_secs(31)).await;
    assert_eq!(witness.heard(), ["=widgets a/one"]);
    world.server.seed(widget("two")).unwrap();
    settle().await;
    assert_eq!(witness.heard(), ["+widgets a/two"]);
    // The end of a kind is the end of its objects, which must still be heard of.
    assert!(world.server.remove("widgets.example.org", "a", "one"));
    assert!(world.server.remove("widgets.example.org", "a", "two"));
    assert!(world.server.remove("customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.org"));
    settle().await;
    assert_eq!(witness.heard(), ["-widgets a/one", "-widgets a/two"]);
    wait(Duration::from_secs(120)).await;
    world.server.clear_requests();
    wait(Duration::from_secs(120)).await;
    assert_eq!(world.reads("widgets", ""), 0, "nobody asks for what is not served any more");
    define_widgets(&world).await;
    wait(Duration::from_secs(31)).await;
    assert_eq!(witness.heard(), ["no widgets"], "it can come back");
}

/// Proves GC-21, GC-22, GC-103.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_discovered_stays_observed() {
    let world = World::new();
    define_widgets(&world).await;
    let (witness, _running) = observing(&world).await;
    assert_eq!(witness.heard(), ["no widgets"]);
    world.server.set_group_version_failing("example.org", "v1", true);
    wait(Duration::from_secs(35)).await;
    world.server.set_group_version_failing("example.org", "v1", false);
    wait(Duration::from_secs(35)).await;
    world.server.seed(widget("one")).unwrap();
    settle().await;
    assert_eq!(witness.heard(), ["+widgets a/one"], "they were not even listed again");
    assert!(!world.metrics.text().contains("test_failures_total 1"), "none of this was a failure");
}

/// Proves GC-20, GC-103.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_changes_nothing() {
    let world = World::new();
    let (witness, _running) = observing(&world).await;
    let rule = FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "away"))
        .method(Method::GET)
        .target("/apis")
        .times(1);
    world.faults.add(rule);
    wait(Duration::from_secs(31)).await;
    assert!(world.metric("test_failures_total 1"), "{}", world.metrics.text());
    world
        .server
        .seed(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "s"}}))
        .unwrap();
    settle().await;
    assert_eq!(witness.heard(), ["+secrets a/s"]);
    wait(Duration::from_secs(31)).await;
    assert!(world.metric("test_failures_total 1"));
}

/// Proves GC-12, GC-23, GC-140.
#[tokio::test(start_paused = true)]
async fn one_kind_that_cannot_be_listed_holds_nobody_up_for_long() {
    let world = World::new();
    define_widgets(&world).await;
    world.put("a/one", "red");
    world.faults.add(
        FaultRule::new(InjectedFault::status(500, "InternalError", "no conversion")).target("/widgets?"),
    );
    let (witness, worked) = (Witness::default(), Arc::default());
    let began = tokio::time::Instant::now();
    let _running = world.start(echo(&witness, &worked)).await;
    assert_eq!(began.elapsed().as_secs(), 30, "workers wait half a minute");
    settle().await;
    assert!(witness.heard().contains(&"=configmaps a/one".to_owned()));
    assert!(worked.lock().contains(&"begin".to_owned()));
    wait(Duration::from_secs(1)).await;
    assert!(world.metric("test_failures_total 1"), "{}", world.metrics.text());
    wait(Duration::from_secs(61)).await;
    assert!(world.metric("test_failures_total 1"), "counted once, as nothing more has changed");
    world.faults.disable_all();
    wait(Duration::from_secs(61)).await;
    assert_eq!(witness.heard(), ["no widgets"]);
}

/// Proves GC-12.
#[tokio::test(start_paused = true)]
async fn workers_begin_as_soon_as_everything_has_been_seen_and_not_before_anything_has() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    let (_, running) = observing(&world).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    world.stop(running).await;

    let world = World::new();
    world.faults.add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "away")).target("/api"));
    let began = tokio::time::Instant::now();
    let (_, _running) = observing(&world).await;
    assert_eq!(began.elapsed().as_secs(), 30, "no monitors are no reason to begin");
}

/// Proves GC-13.
#[tokio::test(start_paused = true)]
async fn a_standby_observes_and_whoever_begins_is_told_what_is_to_be_done() {
    let world = World::new();
    let (witness, worked) = (Witness::default(), Arc::default());
    let controller = echo(&witness, &worked);
    loops::prepare(&controller, &world.caches);
    settle().await;
    world.put("a/one", "red");
    settle().await;
    assert_eq!(witness.heard(), ["+configmaps a/one"]);
    assert!(worked.lock().is_empty());
    let running = world.start(controller).await;
    settle().await;
    assert_eq!(*worked.lock(), ["begin"], "what was heard before is not repeated");
    wait(Duration::from_millis(10)).await;
    assert_eq!(*worked.lock(), ["begin", "slowly"]);
    assert_eq!(world.events.lock().iter().map(|event| &*event.reason).collect::<Vec<_>>(), ["Begin"]);
    world.put("a/two", "red");
    settle().await;
    assert_eq!(worked.lock().last().map(String::as_str), Some("a/two"));
    running.stop().await;
    world.put("a/three", "red");
    settle().await;
    assert_eq!(worked.lock().last().map(String::as_str), Some("a/two"), "whoever has stopped works no more");
}

/// Proves GC-136.
#[tokio::test(start_paused = true)]
async fn what_went_unheard_in_a_gap_is_told_by_the_next_list() {
    let world = World::new();
    for name in ["one", "two", "three"] {
        world.put(&format!("a/{name}"), "red");
    }
    let _cache = world.filled::<ConfigMap>().await;
    let (witness, _running) = observing(&world).await;
    witness.heard();
    world.tap.lag("configmaps");
    world.remove("a/one");
    world.remove("a/two");
    world.put("a/two", "blue");
    world.server.compact();
    world.server.expire_watches();
    world.tap.catch_up();
    wait(Duration::from_secs(5)).await;
    let heard = witness.heard();
    assert!(heard.contains(&"-configmaps a/one".to_owned()), "{heard:?}");
    assert!(heard.contains(&"-configmaps a/two".to_owned()), "another life is another object: {heard:?}");
    assert!(heard.contains(&"+configmaps a/two".to_owned()), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn one_object_that_an_observer_panics_over_spoils_no_other() {
    let world = World::new();
    let (witness, _running) = observing(&world).await;
    world.put("a/panic", "red");
    world.put("a/fine", "red");
    settle().await;
    assert_eq!(witness.heard(), ["+configmaps a/fine"]);
    assert!(world.metric("keleustes_sync_panics_total{controller=\"test_changes\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_comes_later_takes_over() {
    let world = World::new();
    world.put("a/one", "red");
    let (witness, _running) = observing(&world).await;
    let before = world.reads("configmaps", "watch=true");
    let _cache = world.filled::<ConfigMap>().await;
    wait(Duration::from_secs(31)).await;
    assert_eq!(witness.heard(), ["=configmaps a/one", "=configmaps a/one"]);
    world.server.cut_watches();
    world.put("a/two", "red");
    wait(Duration::from_secs(5)).await;
    assert_eq!(witness.heard(), ["+configmaps a/two"], "once, not twice");
    assert_eq!(world.reads("configmaps", "watch=true"), before + 2, "only the cache has come back");
}
