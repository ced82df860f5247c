//! The way of one party to the API server: it takes time, things go wrong on it, and it ends with the party.
//!
//! It is a service under `kube::Client`, where HTTPS is otherwise. A request that has left arrives even if whoever
//! sent it no longer waits, as it does on a real network.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::face::Body as ServerBody;
use keleustes_client::Connection;
use keleustes_runtime::level::Level;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{BoxError, Service};

use crate::deeds::{Party, Trouble, Verdict, Which};
use crate::witness::{Route, Sent, Witness};

/// How long a request is under way when nothing is wrong; the answer as long again.
const USUAL_MS: std::ops::Range<u64> = 1..12;
/// A connection without a sign of life is given up after so long.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(45);
/// Of a hundred requests that are under way when their sender dies, so many still arrive.
const ARRIVE_PERCENT: u32 = 50;

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// What all ways have in common: where they lead, and what is wrong with them.
pub struct Network {
    server: ApiServer,
    witness: Arc<Witness>,
    troubles: Mutex<Vec<(Trouble, Instant)>>,
    /// Nobody is at home before then.
    away_until: Mutex<Instant>,
    chance: Mutex<fastrand::Rng>,
}

impl Network {
    /// A network on which all is well.
    #[must_use]
    pub fn new(server: ApiServer, witness: Arc<Witness>, chance: fastrand::Rng) -> Arc<Self> {
        let (troubles, away_until) = (Mutex::default(), Mutex::new(Instant::now()));
        Arc::new(Self { server, witness, troubles, away_until, chance: Mutex::new(chance) })
    }

    /// Disturbs a way from now on.
    pub fn disturb(&self, trouble: Trouble) {
        let until = Instant::now() + Duration::from_millis(trouble.lasts);
        self.troubles.lock().push((trouble, until));
    }

    /// From now on all is well, and the server is at home.
    pub fn calm(&self) {
        self.troubles.lock().clear();
        *self.away_until.lock() = Instant::now();
    }

    /// The server is away for a while, and all its watches are cut.
    pub fn go_away(&self, time: Duration) {
        *self.away_until.lock() = Instant::now() + time;
        self.server.cut_watches();
    }

    /// What becomes of a request of this party, and until when that is so.
    fn judge(&self, party: Option<Party>, fits: impl Fn(&Trouble) -> bool) -> Option<(Verdict, Instant)> {
        let now = Instant::now();
        let mut troubles = self.troubles.lock();
        troubles.retain(|(_, until)| *until > now);
        let mut chance = self.chance.lock();
        let strikes = |(trouble, _): &&(Trouble, Instant)| {
            Some(trouble.party) == party && fits(trouble) && chance.u8(..100) < trouble.percent
        };
        troubles.iter().find(strikes).map(|(trouble, until)| (trouble.verdict, *until))
    }

    fn usual(&self) -> Duration {
        Duration::from_millis(self.chance.lock().u64(USUAL_MS))
    }
}

/// The way of one party, as long as it lives. Clones are the same way.
#[derive(Clone)]
pub struct Wire {
    network: Arc<Network>,
    /// The server, for whoever does not say otherwise who it is.
    server: ApiServer,
    party: Option<Party>,
    name: Arc<str>,
    severed: Level<bool>,
}

impl Wire {
    /// A way for a party; users and checkers have none that could be disturbed.
    #[must_use]
    pub fn new(
        network: &Arc<Network>,
        user: keleustes_apiserver::User,
        party: Option<Party>,
        name: &str,
    ) -> Self {
        let server = network.server.acting_as(user);
        Self { network: network.clone(), server, party, name: name.into(), severed: Level::new(false) }
    }

    /// The end of whoever sends on this way: nothing more leaves and nothing arrives any more.
    pub fn sever(&self) {
        self.severed.set(true);
    }

    /// The way as clients want it.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection::over(self.clone())
    }

    fn is_severed(&self) -> bool {
        self.severed.get()
    }

    async fn pass(self, request: Request<Body>) -> Result<Answer, BoxError> {
        if self.is_severed() {
            return Err(broken());
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let route = Route::of(&parts.method, &parts.uri);
        let request = Request::from_parts(parts, body);
        if !route.writes() {
            return self.carry(request, route).await;
        }
        // A write that has left arrives, whether or not somebody still waits for the answer.
        tokio::spawn(self.carry(request, route)).await?
    }

    async fn carry(self, request: Request<Bytes>, route: Route) -> Result<Answer, BoxError> {
        let network = &self.network;
        let at_requests = |trouble: &Trouble| trouble.verdict.is_of_requests() && trouble.what.covers(&route);
        let verdict = network.judge(self.party, at_requests).map(|(verdict, _)| verdict);
        sleep(network.usual()).await;
        match verdict {
            Some(Verdict::Late(time)) => sleep(Duration::from_millis(time)).await,
            Some(Verdict::Lost) => return Err(broken()),
            Some(Verdict::Refused(code)) => return Ok(refusal(code)),
            Some(Verdict::Hangs) => {
                sleep(GIVEN_UP_AFTER).await;
                return Err(broken());
            }
            _ => {}
        }
        let arrives = !self.is_severed() || network.chance.lock().u32(..100) < ARRIVE_PERCENT;
        if !arrives || Instant::now() < *network.away_until.lock() {
            return Err(broken());
        }
        let lost =
            self.is_severed() || matches!(verdict, Some(Verdict::AnswerLost | Verdict::RefusedAfterwards(_)));
        let answer = self.deliver(request, &route, lost).await;
        sleep(network.usual()).await;
        match verdict {
            Some(Verdict::LateAnswer(time)) => sleep(Duration::from_millis(time)).await,
            Some(Verdict::AnswerLost) => return Err(broken()),
            Some(Verdict::RefusedAfterwards(code)) => return Ok(refusal(code)),
            _ => {}
        }
        if self.is_severed() {
            return Err(broken());
        }
        let watched = route.watch.then_some(route);
        Ok(answer.map(|body| match watched {
            Some(route) => self.watched(route, body),
            None => body.map_err(|never| match never {}).boxed_unsync(),
        }))
    }

    /// The server does what it is asked to, before the eyes of the witness.
    async fn deliver(&self, request: Request<Bytes>, route: &Route, lost: bool) -> Response<ServerBody> {
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default().to_owned();
        let sent = Sent { party: self.name.clone(), agent, route, body: request.body().clone(), lost };
        let seen = self.network.witness.before(&self.network.server, &sent);
        let mut server = self.server.clone();
        let Ok(answer) = server.call(request.map(Full::new)).await;
        if let Some(seen) = seen {
            self.network.witness.after(&self.network.server, seen, answer.status().as_u16());
        }
        answer
    }

    /// The body of a watch: what it tells may be late, and it may break.
    fn watched(self, route: Route, body: ServerBody) -> UnsyncBoxBody<Bytes, BoxError> {
        let severed = self.severed.clone();
        let watched = Watched { wire: self, route, body, severed, over: false };
        StreamBody::new(futures::stream::unfold(watched, |mut watched| async move {
            let frame = watched.next().await?;
            Some((frame, watched))
        }))
        .boxed_unsync()
    }
}

/// One watch on its way to whoever asked for it.
struct Watched {
    wire: Wire,
    route: Route,
    body: ServerBody,
    severed: Level<bool>,
    over: bool,
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        if self.over {
            return None;
        }
        let Self { wire, route, body, severed, .. } = self;
        let told = async {
            let frame = body.frame().await?;
            let of_watches =
                |trouble: &Trouble| trouble.verdict.is_of_watches() && trouble.what.covers(route);
            sleep(wire.network.usual()).await;
            match wire.network.judge(wire.party, of_watches) {
                Some((Verdict::Cuts, _)) => return Some(Err(broken())),
                Some((_, until)) => sleep_until(until).await,
                None => {}
            }
            Some(frame.map_err(|never| match never {}))
        };
        let frame = tokio::select! {
            biased;
            () = severed.wait_for(|severed| severed) => Some(Err(broken())),
            frame = told => frame,
        };
        self.over = !matches!(frame, Some(Ok(_)));
        frame
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}

impl Which {
    fn covers(self, route: &Route) -> bool {
        match self {
            Self::All => true,
            Self::Writes => route.writes(),
            Self::Creates => route.method == http::Method::POST,
            Self::Statuses => route.subresource == "status",
            Self::Deletes => route.method == http::Method::DELETE,
            Self::Reads => !route.writes() && !route.watch,
            Self::Watches => route.watch,
            Self::Pods => route.resource == "pods",
            Self::ReplicaSets => route.resource == "replicasets",
            Self::Leases => route.resource == "leases" && route.namespace == "kube-system",
            Self::Tokens => route.subresource == "token",
        }
    }
}

impl Verdict {
    /// Whether it strikes what a watch tells, and not what is asked.
    fn is_of_watches(self) -> bool {
        matches!(self, Self::Stalls | Self::Cuts)
    }

    fn is_of_requests(self) -> bool {
        !self.is_of_watches()
    }
}

fn broken() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

/// A refusal in the server's own form.
fn refusal(code: u16) -> Answer {
    let reason = match code {
        401 => "Unauthorized",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a storm is blowing", "reason": reason, "code": code});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if matches!(code, 429 | 503) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
