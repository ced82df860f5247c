//! The network: the connection of each party to the API server, with latency and faults.
//!
//! The transport is a service below `kube::Client`, in the place of HTTPS. A request that was sent arrives
//! even if its sender no longer waits, as on a real network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::service::Body as ServerBody;
use keleustes_client::Connection;
use keleustes_runtime::ordered_watch::OrderedWatch;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{BoxError, Service};

use crate::actions::{Fault, FaultEffect, ListedKind, Party, RequestClass};
use crate::fault_effects::{
    connection_reset, expired_event, rejection, too_large_resource_version, truncated_body,
    untrusted_certificate,
};
use crate::recorder::{LeaseHolder, Recorder, RequestInfo, SendContext, SentRequest};
use crate::without_gate::{with_uid_precondition, without_resource_version};

/// Latency of a request in milliseconds when nothing is wrong, and again of its response.
const LATENCY_MS: std::ops::Range<u64> = 1..12;
/// After this time a client gives up on a connection that hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(45);
/// Of a hundred requests in flight when their sender crashes, this number still arrives.
const DELIVERED_AFTER_CRASH_PERCENT: u32 = 50;
/// How often a paused transport checks whether the pause has ended.
const PAUSE_POLL: Duration = Duration::from_secs(1);
/// The server's stale cache is at most this number of revisions behind.
const STALE_REVISIONS_MAX: u64 = 300;

pub(crate) type HttpResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The API server and the faults that all transports share.
pub struct Network {
    server: ApiServer,
    recorder: Arc<Recorder>,
    faults: Mutex<Vec<(Fault, Instant)>>,
    /// The kinds whose lists fail for managers.
    failing_lists: Mutex<BTreeSet<ListedKind>>,
    /// The server is down until then.
    down_until: Mutex<Instant>,
    /// By number: managers that are paused until then.
    paused_until: Mutex<BTreeMap<usize, Instant>>,
    /// By number: the generation of a manager's connections.
    connections: Mutex<BTreeMap<usize, OrderedWatch<u32>>>,
    rng: Mutex<fastrand::Rng>,
    /// The service account of a mutant that never learns the resourceVersions of its writes.
    open_gate: Option<&'static str>,
    /// How many transports were created so far.
    transports: AtomicU32,
}

impl Network {
    /// A network without faults.
    #[must_use]
    pub fn new(
        server: ApiServer,
        recorder: Arc<Recorder>,
        rng: fastrand::Rng,
        open_gate: Option<&'static str>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            recorder,
            faults: Mutex::default(),
            failing_lists: Mutex::default(),
            down_until: Mutex::new(Instant::now()),
            paused_until: Mutex::default(),
            connections: Mutex::default(),
            rng: Mutex::new(rng),
            open_gate,
            transports: AtomicU32::new(0),
        })
    }

    /// Adds a fault, from now on.
    pub fn inject(&self, fault: Fault) {
        let until = Instant::now() + Duration::from_millis(fault.duration_ms);
        self.faults.lock().push((fault, until));
    }

    /// From now on managers can neither list nor watch a kind in all namespaces.
    pub fn fail_lists(&self, kind: ListedKind) {
        self.failing_lists.lock().insert(kind);
        self.server.cut_watches();
    }

    /// All kinds can be listed again. Returns those that could not.
    pub fn recover_lists(&self) -> BTreeSet<ListedKind> {
        std::mem::take(&mut self.failing_lists.lock())
    }

    /// The kinds whose lists fail.
    #[must_use]
    pub fn failing_lists(&self) -> BTreeSet<ListedKind> {
        self.failing_lists.lock().clone()
    }

    /// Whether this is a failing list or watch.
    fn is_failing_list(&self, party: Option<Party>, request: &RequestInfo) -> bool {
        matches!(party, Some(Party::Manager(_)))
            && request.method == http::Method::GET
            && request.name.is_empty()
            && request.namespace.is_empty()
            && self.failing_lists.lock().iter().any(|kind| kind.plural() == request.resource)
    }

    /// Ends all faults, pauses and outages, but not failing lists.
    pub fn clear_faults(&self) {
        self.faults.lock().clear();
        *self.down_until.lock() = Instant::now();
        self.paused_until.lock().clear();
    }

    /// The server is down for a while, and all its watches are closed.
    pub fn stop_server_for(&self, time: Duration) {
        *self.down_until.lock() = Instant::now() + time;
        self.server.cut_watches();
    }

    /// Pauses a manager: it sends and receives nothing for this time. Requests that it had sent are
    /// delivered later.
    pub fn pause_manager(&self, manager: usize, time: Duration) {
        self.paused_until.lock().insert(manager, Instant::now() + time);
    }

    /// Closes the connections of a manager and rejects certificates for a while.
    pub fn rotate_certificates(&self, manager: usize, time: Duration) {
        let (party, duration_ms) =
            (Party::Manager(manager), u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.inject(Fault {
            party,
            requests: RequestClass::All,
            effect: FaultEffect::RejectCertificate,
            percent: 100,
            duration_ms,
        });
        self.connection(Some(party)).modify(|number| number + 1);
    }

    /// The generation of a party's connections.
    fn connection(&self, party: Option<Party>) -> OrderedWatch<u32> {
        let Some(Party::Manager(number)) = party else { return OrderedWatch::new(0) };
        self.connections.lock().entry(number).or_insert_with(|| OrderedWatch::new(0)).clone()
    }

    /// Waits while a party is paused.
    async fn wait_while_paused(&self, party: Option<Party>) {
        let Some(Party::Manager(number)) = party else { return };
        loop {
            let until = self.paused_until.lock().get(&number).copied();
            match until.filter(|until| *until > Instant::now()) {
                // `clear_faults` may end the pause earlier.
                Some(until) => sleep((until - Instant::now()).min(PAUSE_POLL)).await,
                None => return,
            }
        }
    }

    /// A random revision among the latest ones.
    fn stale_revision(&self) -> u64 {
        let now = self.server.resource_version();
        self.rng.lock().u64(now.saturating_sub(STALE_REVISIONS_MAX).max(1)..=now)
    }

    /// The time and the leader when a write is sent.
    fn send_context(&self) -> SendContext {
        SendContext {
            at: self.recorder.began().elapsed(),
            leader: LeaseHolder::now(&self.server),
            lease_state: self.recorder.lease_state(),
        }
    }

    /// The fault that affects a request of this party, if any, and until when.
    fn pick_fault(
        &self,
        party: Option<Party>,
        fits: impl Fn(&Fault) -> bool,
    ) -> Option<(FaultEffect, Instant)> {
        let now = Instant::now();
        let mut faults = self.faults.lock();
        faults.retain(|(_, until)| *until > now);
        let mut rng = self.rng.lock();
        let affects = |(fault, _): &&(Fault, Instant)| {
            Some(fault.party) == party && fits(fault) && rng.u8(..100) < fault.percent
        };
        faults.iter().find(affects).map(|(fault, until)| (fault.effect, *until))
    }

    fn latency(&self) -> Duration {
        Duration::from_millis(self.rng.lock().u64(LATENCY_MS))
    }
}

/// The transport of one process instance of a party. Clones share it.
#[derive(Clone)]
pub struct SimulatedTransport {
    network: Arc<Network>,
    /// The server, for requests without other credentials.
    server: ApiServer,
    party: Option<Party>,
    name: Arc<str>,
    /// Distinguishes the process instances of a party.
    process_instance: u32,
    /// The generation of its connections.
    connection: OrderedWatch<u32>,
    cut_off: OrderedWatch<bool>,
}

impl SimulatedTransport {
    /// A transport for a party; that of users has no party and no faults.
    #[must_use]
    pub fn new(
        network: &Arc<Network>,
        user: keleustes_apiserver::User,
        party: Option<Party>,
        name: &str,
    ) -> Self {
        let server = network.server.acting_as(user);
        let (network, connection) = (network.clone(), network.connection(party));
        let process_instance = network.transports.fetch_add(1, Ordering::Relaxed);
        Self {
            network,
            server,
            party,
            name: name.into(),
            process_instance,
            connection,
            cut_off: OrderedWatch::new(false),
        }
    }

    /// The process has ended: nothing more is sent or received.
    pub fn cut_off(&self) {
        self.cut_off.set(true);
    }

    /// The transport as a client connection.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection::from_service(self.clone())
    }

    fn is_cut_off(&self) -> bool {
        self.cut_off.get()
    }

    async fn send(self, request: Request<Body>) -> Result<HttpResponse, BoxError> {
        if self.is_cut_off() {
            return Err(connection_reset());
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.network.recorder.digest_request(&parts.method, &parts.uri, &body);
        let info = RequestInfo::parse(&parts.method, &parts.uri);
        let request = Request::from_parts(parts, body);
        if !info.is_write() {
            return self.deliver_with_faults(request, info, SendContext::default()).await;
        }
        let send_context = self.network.send_context();
        // A write that was sent arrives even if the response is no longer awaited.
        tokio::spawn(self.deliver_with_faults(request, info, send_context)).await?
    }

    async fn deliver_with_faults(
        self,
        request: Request<Bytes>,
        info: RequestInfo,
        send_context: SendContext,
    ) -> Result<HttpResponse, BoxError> {
        let network = &self.network;
        let on_requests = |fault: &Fault| !fault.effect.affects_watches() && fault.requests.covers(&info);
        let effect = network.pick_fault(self.party, on_requests).map(|(effect, _)| effect);
        sleep(network.latency()).await;
        match effect {
            Some(FaultEffect::DelayRequest(time)) => sleep(Duration::from_millis(time)).await,
            Some(FaultEffect::DropRequest) => return Err(connection_reset()),
            Some(FaultEffect::RejectCertificate) => return Err(untrusted_certificate()),
            Some(FaultEffect::Reject(code)) => return Ok(rejection(code)),
            Some(FaultEffect::Hang) => {
                sleep(HANG_TIMEOUT).await;
                return Err(connection_reset());
            }
            _ => {}
        }
        network.wait_while_paused(self.party).await;
        if network.is_failing_list(self.party, &info) {
            return Ok(rejection(500));
        }
        let arrives = !self.is_cut_off() || network.rng.lock().u32(..100) < DELIVERED_AFTER_CRASH_PERCENT;
        if !arrives || Instant::now() < *network.down_until.lock() {
            return Err(connection_reset());
        }
        if effect
            .is_some_and(|effect| effect.is_ahead_of_stale_cache(request.uri(), || network.stale_revision()))
        {
            return Ok(too_large_resource_version());
        }
        let response_lost = self.is_cut_off() || effect.is_some_and(FaultEffect::hides_response);
        let response = match effect
            .and_then(|effect| effect.rewritten_uri(request.uri(), || network.stale_revision()))
        {
            Some(uri) => self.answer_rewritten(request, uri, &info).await,
            None => self.deliver(request, &info, response_lost, send_context).await,
        };
        sleep(network.latency()).await;
        network.wait_while_paused(self.party).await;
        match effect {
            Some(FaultEffect::DelayResponse(time)) => sleep(Duration::from_millis(time)).await,
            Some(FaultEffect::DropResponse) => return Err(connection_reset()),
            Some(FaultEffect::ApplyThenReject(code)) => return Ok(rejection(code)),
            _ => {}
        }
        if self.is_cut_off() {
            return Err(connection_reset());
        }
        if info.watch {
            return Ok(response.map(|body| self.watch_body(info, body)));
        }
        let (parts, body) = response.into_parts();
        if effect == Some(FaultEffect::TruncateResponse) {
            let Ok(body) = body.collect().await;
            return Ok(Response::from_parts(parts, truncated_body(&body.to_bytes())));
        }
        Ok(Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync()))
    }

    /// The server answers the rewritten request; if the revision was compacted, the original one.
    async fn answer_rewritten(
        &self,
        request: Request<Bytes>,
        uri: Uri,
        info: &RequestInfo,
    ) -> Response<ServerBody> {
        let mut changed = request.clone();
        *changed.uri_mut() = uri;
        let response = self.deliver(changed, info, false, SendContext::default()).await;
        if response.status().is_success() {
            response
        } else {
            self.deliver(request, info, false, SendContext::default()).await
        }
    }

    /// The server executes the request, and the recorder observes it.
    async fn deliver(
        &self,
        request: Request<Bytes>,
        info: &RequestInfo,
        response_lost: bool,
        send_context: SendContext,
    ) -> Response<ServerBody> {
        let network = &self.network;
        let user_agent =
            request.headers().get(http::header::USER_AGENT).and_then(|user_agent| user_agent.to_str().ok());
        let component =
            user_agent.unwrap_or_default().rsplit(['/', ':']).next().unwrap_or_default().to_owned();
        let gate_is_removed = info.is_write() && network.open_gate == Some(component.as_str());
        let request =
            if gate_is_removed { with_uid_precondition(request, &network.server, info) } else { request };
        let (party, process_instance, body) =
            (self.name.clone(), self.process_instance, request.body().clone());
        let sent = SentRequest {
            party,
            process_instance,
            component,
            request: info,
            body,
            response_lost,
            send_context,
        };
        let observed = network.recorder.before(&network.server, &sent);
        let mut server = self.server.clone();
        let Ok(response) = server.call(request.map(Full::new)).await;
        match observed {
            Some(observed) => network.recorder.after(&network.server, observed, response.status().as_u16()),
            None => network.recorder.on_live_read(&network.server, &sent),
        }
        if gate_is_removed { without_resource_version(response).await } else { response }
    }

    /// The body of a watch: its events may be delayed, and it may break.
    fn watch_body(self, info: RequestInfo, body: ServerBody) -> UnsyncBoxBody<Bytes, BoxError> {
        let connection = self.connection.get();
        let watch_body = WatchBody { wire: self, info, body, connection, ended: false };
        StreamBody::new(futures::stream::unfold(watch_body, |mut watch_body| async move {
            let frame = watch_body.next().await?;
            Some((frame, watch_body))
        }))
        .boxed_unsync()
    }
}

/// One watch on its way to the client.
struct WatchBody {
    wire: SimulatedTransport,
    info: RequestInfo,
    body: ServerBody,
    /// The generation of the connection it is on.
    connection: u32,
    ended: bool,
}

impl WatchBody {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        if self.ended {
            return None;
        }
        let Self { wire, info, body, connection, .. } = self;
        let next_frame = async {
            let frame = body.frame().await?;
            let on_watches = |fault: &Fault| fault.effect.affects_watches() && fault.requests.covers(info);
            sleep(wire.network.latency()).await;
            match wire.network.pick_fault(wire.party, on_watches) {
                Some((FaultEffect::BreakWatches, _)) => return Some(Err(connection_reset())),
                Some((FaultEffect::ExpireWatches, _)) => return Some(Ok(Frame::data(expired_event()))),
                Some((_, until)) => sleep_until(until).await,
                None => {}
            }
            wire.network.wait_while_paused(wire.party).await;
            Some(frame.map_err(|never| match never {}))
        };
        let frame = tokio::select! {
            biased;
            () = wire.cut_off.wait_for(|cut_off| cut_off) => Some(Err(connection_reset())),
            () = wire.connection.wait_for(|number| number != *connection) => Some(Err(connection_reset())),
            frame = next_frame => frame,
        };
        self.ended = !matches!(frame, Some(Ok(_)));
        frame
    }
}

impl Service<Request<Body>> for SimulatedTransport {
    type Response = HttpResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<HttpResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
