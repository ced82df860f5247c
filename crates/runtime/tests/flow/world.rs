//! A world for one test: an API server, faults, a watch that can be made to lag, and small controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use keleustes_apiserver::{ApiServer, Faults, LoggedRequest, clock};
use keleustes_objects::{Kind, Object, ObjectMeta, Resource, WireMeta};
use keleustes_plan::{
    AnyChange, BoxFuture as ScriptFuture, Context, Controller, Item, KindEntry, Loop, PlannedEvent,
    ReconcileError, Reconciler, Requeue,
};
use keleustes_runtime::caches::{Cache, Caches, EventHandler};
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::handover::PredecessorState;
use keleustes_runtime::loops::{self, ControllerContext, RunningController};
use keleustes_runtime::metrics::Metrics;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, Layer as _, Service};

/// Long enough for everything that has no reason to wait, too short for anything that has.
const MOMENT: Duration = Duration::from_millis(1);

/// When every world begins: 2026-01-01T00:00:00Z.
const START_NANOSECONDS: i64 = 1_767_225_600_000_000_000;

pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) faults: Faults,
    pub(crate) tap: Tap,
    pub(crate) metrics: Metrics,
    pub(crate) caches: Caches,
    pub(crate) leads: Arc<AtomicBool>,
    pub(crate) events: Arc<Mutex<Vec<PlannedEvent>>>,
    pub(crate) surroundings: ControllerContext,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::resyncing(None)
    }

    pub(crate) fn resyncing(resync_period: Option<Duration>) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self::around(ApiServer::builder().seed(7).clock(clock::following_tokio(start)).build(), resync_period)
    }

    /// A new process around a server that may have seen others.
    pub(crate) fn around(server: ApiServer, resync_period: Option<Duration>) -> Self {
        Self::since(tokio::time::Instant::now(), server, resync_period)
    }

    /// A new process in a world that began some time ago.
    pub(crate) fn since(
        began: tokio::time::Instant,
        server: ApiServer,
        resync_period: Option<Duration>,
    ) -> Self {
        let (faults, tap, metrics) = (Faults::new(), Tap::default(), Metrics::new());
        // The wall clock goes with the time of the test, as the server's does.
        let wall = move || START_NANOSECONDS + i64::try_from(began.elapsed().as_nanos()).unwrap();
        let (clocks, chance) = (Clocks::new(wall), Random::seeded(7));
        let client = tap.client(&faults, &server);
        let caches = Caches::new(client, clocks.clone(), chance.clone(), metrics.clone(), resync_period);
        let leads = Arc::new(AtomicBool::new(true));
        let surroundings = ControllerContext {
            caches: caches.clone(),
            clocks,
            random: chance,
            metrics: metrics.clone(),
            is_leader: Arc::new({
                let leads = leads.clone();
                move || leads.load(Ordering::Relaxed)
            }),
            in_flight_max: 4,
            predecessor_state: Arc::new(PredecessorState::None),
        };
        Self { server, faults, tap, metrics, caches, leads, events: Arc::default(), surroundings }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.tap.client(&self.faults, &self.server)
    }

    pub(crate) async fn start(&self, controller: Controller) -> RunningController {
        let events = self.events.clone();
        let record = Arc::new(move |note| events.lock().push(note));
        loops::start(controller, &self.surroundings, self.client(), record).await
    }

    /// Ends the process, so that the next one of the same test has the time for itself.
    pub(crate) async fn stop(self, running: RunningController) {
        running.stop().await;
        self.caches.stop().await;
    }

    /// A filled cache of a kind.
    pub(crate) async fn filled<T: Kind>(&self) -> Arc<Cache> {
        let cache = self.caches.cache(&KindEntry::of::<T>());
        cache.wait_for_sync().await;
        cache
    }

    /// Stores a ConfigMap with one entry.
    pub(crate) fn put(&self, key: &str, colour: &str) {
        self.server.seed(config_map(key, colour)).unwrap();
    }

    pub(crate) fn remove(&self, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap();
        assert!(self.server.remove("configmaps", namespace, name), "{key} is not there");
    }

    pub(crate) fn colour(&self, key: &str) -> Option<String> {
        let (namespace, name) = key.split_once('/').unwrap();
        let object = self.server.object("configmaps", namespace, name)?;
        object["data"]["colour"].as_str().map(str::to_owned)
    }

    /// The requests that changed something, or tried to.
    pub(crate) fn writes(&self) -> Vec<LoggedRequest> {
        self.server.requests().into_iter().filter(|request| request.method != Method::GET).collect()
    }

    /// How often a kind has been listed, streamed or watched.
    pub(crate) fn reads(&self, plural: &str, words: &str) -> usize {
        let collection = format!("/{plural}?");
        let fits = |request: &LoggedRequest| {
            request.method == Method::GET
                && request.target.contains(&collection)
                && request.target.contains(words)
        };
        self.server.requests().iter().filter(|request| fits(request)).count()
    }

    /// Whether the metrics have this line.
    pub(crate) fn metric(&self, line: &str) -> bool {
        self.metrics.text().lines().any(|there| there == line)
    }
}

/// Lets everything happen that has no reason to wait.
pub(crate) async fn settle() {
    tokio::time::sleep(MOMENT).await;
}

pub(crate) async fn wait(duration: Duration) {
    tokio::time::sleep(duration).await;
}

pub(crate) fn config_map(key: &str, colour: &str) -> Value {
    let (namespace, name) = key.split_once('/').unwrap();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
        "data": {"colour": colour}})
}

/// No object of this colour can be decoded.
pub(crate) const UNREADABLE: &str = "unreadable";

/// A kind for tests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Wire")]
pub(crate) struct ConfigMap {
    pub(crate) meta: ObjectMeta,
    pub(crate) colour: String,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(default)]
    colour: String,
}

impl TryFrom<Wire> for ConfigMap {
    type Error = &'static str;

    /// One colour stands for whatever a decoder may stumble over.
    fn try_from(wire: Wire) -> Result<Self, &'static str> {
        let colour = wire.data.colour;
        if colour == UNREADABLE { Err("unreadable") } else { Ok(Self { meta: wire.metadata.into(), colour }) }
    }
}

impl Object for ConfigMap {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for ConfigMap {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
}

/// Writes down what it is told: `+`, `-`, `~` or `=` (resync), the key, and the version's place in the
/// world at the moment of telling.
pub(crate) struct Notebook {
    cache: Arc<Cache>,
    lines: Mutex<Vec<String>>,
    pub(crate) bookmarks: Mutex<usize>,
}

impl Notebook {
    pub(crate) fn at(cache: &Arc<Cache>) -> Arc<Self> {
        let notebook =
            Arc::new(Self { cache: cache.clone(), lines: Mutex::default(), bookmarks: Mutex::default() });
        cache.add_event_handler(notebook.clone());
        notebook
    }

    /// How much was told since the last time it was asked.
    pub(crate) fn lines(&self) -> usize {
        self.lines.lock().len()
    }

    /// What was told since the last time it was asked.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }
}

impl EventHandler for Notebook {
    fn on_changes(&self, changes: &[AnyChange]) {
        if changes.is_empty() {
            *self.bookmarks.lock() += 1;
        }
        for change in changes {
            let meta = change.meta().unwrap();
            let sign = match (&change.old, &change.new, change.resync) {
                (_, _, true) => '=',
                (None, _, _) => '+',
                (Some(_), Some(_), _) => '~',
                (Some(_), None, _) => '-',
            };
            // The table must hold at least this state, or none if it is gone.
            assert!(
                !self.cache.resource_version().is_older_than(&meta.resource_version),
                "told before the table holds it"
            );
            self.lines.lock().push(format!("{sign}{}", meta.key));
        }
    }
}

/// A script made of a function.
pub(crate) struct Act<F>(F);

impl<F> Reconciler for Act<F>
where
    F: for<'a> Fn(&'a mut Context<'_>, &'a Item) -> ScriptFuture<'a, Result<Requeue, ReconcileError>>
        + Send
        + Sync,
{
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> ScriptFuture<'a, Result<Requeue, ReconcileError>> {
        (self.0)(cx, item)
    }
}

/// The way to make one; what a closure may return is told by its bounds.
pub(crate) fn act<F>(act: F) -> Act<F>
where
    F: for<'a> Fn(&'a mut Context<'_>, &'a Item) -> ScriptFuture<'a, Result<Requeue, ReconcileError>>
        + Send
        + Sync,
{
    Act(act)
}

/// A loop that is woken by every change of a ConfigMap, under its key, and does this.
pub(crate) fn on_config_maps<F>(act: F) -> Loop
where
    F: for<'a> Fn(&'a mut Context<'_>, &'a Item) -> ScriptFuture<'a, Result<Requeue, ReconcileError>>
        + Send
        + Sync
        + 'static,
{
    Loop::reconciling("test", self::act(act))
        .enqueue_on::<ConfigMap>(|change, _, wakes| wakes.add(&change.latest().meta.key))
}

/// Stands between client and server: notes what is asked for and what comes back, and can hold the
/// frames of watches back.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) accepts: Arc<Mutex<Vec<String>>>,
    pub(crate) received: Arc<Mutex<Vec<Bytes>>>,
    lags: watch::Sender<&'static str>,
    /// How long the answer to a POST is under way.
    pub(crate) answers_take: Arc<Mutex<Duration>>,
}

impl Default for Tap {
    fn default() -> Self {
        let lags = watch::Sender::new("");
        Self { accepts: Arc::default(), received: Arc::default(), lags, answers_take: Arc::default() }
    }
}

impl Tap {
    /// From now on, watches of this resource deliver nothing; `*` stands for all.
    pub(crate) fn lag(&self, plural: &'static str) {
        self.lags.send_replace(plural);
    }

    /// What was held back is delivered.
    pub(crate) fn catch_up(&self) {
        self.lags.send_replace("");
    }

    fn client(&self, faults: &Faults, server: &ApiServer) -> kube::Client {
        kube::Client::new(Tapped { inner: faults.layer(server.clone()), tap: self.clone() }, "default")
    }
}

#[derive(Clone)]
struct Tapped<S> {
    inner: S,
    tap: Tap,
}

type Boxed = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

impl<S, B, R> Service<Request<B>> for Tapped<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    R: http_body::Body<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    type Response = Response<Boxed>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Boxed>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let accept =
            request.headers().get(http::header::ACCEPT).map(|value| value.to_str().unwrap().to_owned());
        self.tap.accepts.lock().push(accept.unwrap_or_default());
        let target = request.uri().to_string();
        let is_post = request.method() == Method::POST;
        let (tap, answer) = (self.tap.clone(), self.inner.call(request));
        Box::pin(async move {
            let response = answer.await?;
            let takes = *tap.answers_take.lock();
            if is_post && !takes.is_zero() {
                wait(takes).await;
            }
            Ok(response.map(|body| held_back(tap, target, body).boxed_unsync()))
        })
    }
}

fn held_back<R>(
    tap: Tap,
    target: String,
    body: R,
) -> impl http_body::Body<Data = Bytes, Error = BoxError> + Send
where
    R: http_body::Body<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    StreamBody::new(futures::stream::unfold((tap, target, body), |(tap, target, mut body)| async move {
        let frame = body.frame().await?;
        if let Some(data) = frame.as_ref().ok().and_then(|frame| frame.data_ref()) {
            tap.received.lock().push(data.clone());
        }
        if target.contains("watch=true") {
            let delivers =
                |lags: &&str| lags.is_empty() || *lags != "*" && !target.contains(&format!("/{lags}?"));
            let _ = tap.lags.subscribe().wait_for(delivers).await;
        }
        Some((frame, (tap, target, body)))
    }))
}
