//! A test cluster: an API server, faults, watches that can be made to lag, and small controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use keleustes_apiserver::{ApiServer, Faults, LoggedRequest, clock};
use keleustes_objects::{Key, Kind, Object, ObjectMeta, Resource, WireMeta};
use keleustes_plan::{
    AnyChange, BoxFuture as ReconcileFuture, Context, Controller, KindEntry, Loop, PlannedEvent,
    ReconcileError, Reconciler, Requeue,
};
use keleustes_runtime::caches::{Cache, Caches, EventHandler};
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::explain::Explainer;
use keleustes_runtime::handover::PredecessorState;
use keleustes_runtime::inspection::Inspection;
use keleustes_runtime::loops::{self, ControllerContext, RunningController};
use keleustes_runtime::metrics::Metrics;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, Layer as _, Service};

/// Long enough for everything that does not wait for a timer, too short for anything that does.
const SETTLE_FOR: Duration = Duration::from_millis(1);

/// When every test cluster starts: 2026-01-01T00:00:00Z.
pub(crate) const START_NANOSECONDS: i64 = 1_767_225_600_000_000_000;

pub(crate) struct TestCluster {
    pub(crate) server: ApiServer,
    pub(crate) faults: Faults,
    pub(crate) tap: Tap,
    pub(crate) metrics: Metrics,
    pub(crate) caches: Caches,
    pub(crate) is_leader: Arc<AtomicBool>,
    pub(crate) events: Arc<Mutex<Vec<PlannedEvent>>>,
    pub(crate) context: ControllerContext,
}

impl TestCluster {
    pub(crate) fn new() -> Self {
        Self::resyncing(None)
    }

    pub(crate) fn resyncing(resync_period: Option<Duration>) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self::on_server(
            ApiServer::builder().seed(7).clock(clock::following_tokio(start)).build(),
            resync_period,
        )
    }

    /// A new process on a server that other processes may have used.
    pub(crate) fn on_server(server: ApiServer, resync_period: Option<Duration>) -> Self {
        Self::started_at(tokio::time::Instant::now(), server, resync_period)
    }

    /// A new process in a cluster that started some time ago.
    pub(crate) fn started_at(
        began: tokio::time::Instant,
        server: ApiServer,
        resync_period: Option<Duration>,
    ) -> Self {
        let (faults, tap, metrics) = (Faults::new(), Tap::default(), Metrics::new());
        // The wall clock follows the test's paused time, as the server's does.
        let wall = move || START_NANOSECONDS + i64::try_from(began.elapsed().as_nanos()).unwrap();
        let (clocks, random) = (Clocks::new(wall), Random::seeded(7));
        let client = tap.client(&faults, &server);
        let caches = Caches::new(client, clocks.clone(), random.clone(), metrics.clone(), resync_period);
        let is_leader = Arc::new(AtomicBool::new(true));
        let inspection = Inspection::new(clocks.clone());
        let context = ControllerContext {
            caches: caches.clone(),
            inspection,
            clocks,
            random,
            metrics: metrics.clone(),
            is_leader: Arc::new({
                let is_leader = is_leader.clone();
                move || is_leader.load(Ordering::Relaxed)
            }),
            in_flight_max: 4,
            predecessor_state: Arc::new(PredecessorState::None),
            shadow: None,
        };
        Self { server, faults, tap, metrics, caches, is_leader, events: Arc::default(), context }
    }

    /// Explains the objects of this cluster. It knows of no Lease.
    pub(crate) fn explainer(&self) -> Explainer {
        Explainer {
            inspection: self.context.inspection.clone(),
            caches: self.caches.clone(),
            clocks: self.context.clocks.clone(),
            metrics: self.metrics.clone(),
            client: self.client(),
            lease: None,
        }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.tap.client(&self.faults, &self.server)
    }

    pub(crate) async fn start(&self, controller: Controller) -> RunningController {
        let events = self.events.clone();
        let record = Arc::new(move |event| events.lock().push(event));
        loops::start(controller, &self.context, self.client(), record).await.unwrap()
    }

    /// Starts several controllers, which share the caches of the process from the beginning.
    pub(crate) async fn start_all(&self, controllers: Vec<Controller>) -> Vec<RunningController> {
        loops::prepare(&controllers, &self.caches);
        let mut running = Vec::new();
        for controller in controllers {
            running.push(self.start(controller).await);
        }
        running
    }

    /// Stops the process, so that the next one of the same test runs alone.
    pub(crate) async fn stop(self, running: RunningController) {
        running.stop().await;
        self.caches.stop().await;
    }

    /// A synced cache of a kind.
    pub(crate) async fn synced_cache<T: Kind>(&self) -> Arc<Cache> {
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
        assert!(self.server.remove("configmaps", namespace, name), "{key} does not exist");
    }

    pub(crate) fn colour(&self, key: &str) -> Option<String> {
        let (namespace, name) = key.split_once('/').unwrap();
        let object = self.server.object("configmaps", namespace, name)?;
        object["data"]["colour"].as_str().map(str::to_owned)
    }

    /// The write requests.
    pub(crate) fn writes(&self) -> Vec<LoggedRequest> {
        self.server.requests().into_iter().filter(|request| request.method != Method::GET).collect()
    }

    /// How many list and watch requests of a resource contain these words.
    pub(crate) fn reads(&self, plural: &str, text: &str) -> usize {
        let collection = format!("/{plural}?");
        let fits = |request: &LoggedRequest| {
            request.method == Method::GET
                && request.target.contains(&collection)
                && request.target.contains(text)
        };
        self.server.requests().iter().filter(|request| fits(request)).count()
    }

    /// Whether a panic was contained anywhere.
    pub(crate) fn has_panicked(&self) -> bool {
        has_panicked(&self.metrics.text())
    }

    /// Whether the metrics have this line.
    pub(crate) fn metric(&self, line: &str) -> bool {
        self.metrics.text().lines().any(|metric_line| metric_line == line)
    }
}

/// Whether a panic was contained anywhere, according to these metrics.
pub(crate) fn has_panicked(metrics: &str) -> bool {
    let mut panics = metrics.lines().filter(|line| line.starts_with("keleustes_sync_panics_total{"));
    panics.any(|line| !line.ends_with(" 0"))
}

/// Lets everything happen that does not wait for a timer.
pub(crate) async fn settle() {
    tokio::time::sleep(SETTLE_FOR).await;
}

pub(crate) async fn wait(duration: Duration) {
    tokio::time::sleep(duration).await;
}

pub(crate) fn config_map(key: &str, colour: &str) -> Value {
    let (namespace, name) = key.split_once('/').unwrap();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
        "data": {"colour": colour}})
}

/// An object of this colour cannot be decoded.
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

    /// One colour stands for anything that a decoder rejects.
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

/// Records changes: `+`, `-`, `~` or `=` (unchanged) and the key, and checks that the store holds them.
pub(crate) struct ChangeLog {
    cache: Arc<Cache>,
    lines: Mutex<Vec<String>>,
    pub(crate) bookmarks: Mutex<usize>,
}

impl ChangeLog {
    pub(crate) fn at(cache: &Arc<Cache>) -> Arc<Self> {
        let log =
            Arc::new(Self { cache: cache.clone(), lines: Mutex::default(), bookmarks: Mutex::default() });
        cache.add_event_handler(log.clone());
        log
    }

    /// How many changes were recorded since the last `take`.
    pub(crate) fn lines(&self) -> usize {
        self.lines.lock().len()
    }

    /// The changes since the last `take`.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }
}

impl EventHandler for ChangeLog {
    fn on_changes(&self, changes: &[AnyChange]) {
        if changes.is_empty() {
            *self.bookmarks.lock() += 1;
        }
        for change in changes {
            let meta = change.meta().unwrap();
            let sign = match (&change.old, &change.new, change.is_unchanged()) {
                (_, _, true) => '=',
                (None, _, _) => '+',
                (Some(_), Some(_), _) => '~',
                (Some(_), None, _) => '-',
            };
            // The store must be at this resourceVersion or a later one.
            assert!(
                !self.cache.resource_version().is_older_than(&meta.resource_version),
                "delivered before the store holds it"
            );
            self.lines.lock().push(format!("{sign}{}", meta.key));
        }
    }
}

/// A reconciler made of a function.
pub(crate) struct FnReconciler<F>(F);

impl<F> Reconciler for FnReconciler<F>
where
    F: for<'a> Fn(&'a mut Context<'_>, &'a Key) -> ReconcileFuture<'a, Result<Requeue, ReconcileError>>
        + Send
        + Sync,
{
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        (self.0)(cx, item).await
    }
}

/// Creates one; the bounds give the closure's return type.
pub(crate) fn reconcile_with<F>(reconcile: F) -> FnReconciler<F>
where
    F: for<'a> Fn(&'a mut Context<'_>, &'a Key) -> ReconcileFuture<'a, Result<Requeue, ReconcileError>>
        + Send
        + Sync,
{
    FnReconciler(reconcile)
}

/// A loop that reconciles every changed ConfigMap with this function.
pub(crate) fn on_config_maps<F>(reconcile: F) -> Loop
where
    F: for<'a> Fn(&'a mut Context<'_>, &'a Key) -> ReconcileFuture<'a, Result<Requeue, ReconcileError>>
        + Send
        + Sync
        + 'static,
{
    Loop::reconciling("test", reconcile_with(reconcile))
        .enqueue_on::<ConfigMap>(|change, _, enqueue| enqueue.add(&change.latest().meta.key))
}

/// Sits between client and server: records what is requested and received, and can hold back the frames of
/// watches.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) accepts: Arc<Mutex<Vec<String>>>,
    pub(crate) received: Arc<Mutex<Vec<Bytes>>>,
    lags: watch::Sender<&'static str>,
    /// How long the response to a POST is delayed.
    pub(crate) post_response_delay: Arc<Mutex<Duration>>,
}

impl Default for Tap {
    fn default() -> Self {
        let lags = watch::Sender::new("");
        Self { accepts: Arc::default(), received: Arc::default(), lags, post_response_delay: Arc::default() }
    }
}

impl Tap {
    /// From now on, watches of this resource deliver nothing; `*` means all resources.
    pub(crate) fn lag(&self, plural: &'static str) {
        self.lags.send_replace(plural);
    }

    /// Delivers what was held back.
    pub(crate) fn catch_up(&self) {
        self.lags.send_replace("");
    }

    fn client(&self, faults: &Faults, server: &ApiServer) -> kube::Client {
        kube::Client::new(TappedService { inner: faults.layer(server.clone()), tap: self.clone() }, "default")
    }
}

#[derive(Clone)]
struct TappedService<S> {
    inner: S,
    tap: Tap,
}

type Boxed = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

impl<S, B, R> Service<Request<B>> for TappedService<S>
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
            let delay = *tap.post_response_delay.lock();
            if is_post && !delay.is_zero() {
                wait(delay).await;
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
