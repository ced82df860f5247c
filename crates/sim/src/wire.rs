//! The way of one party to the API server: it takes time, things go wrong on it, and it ends with the party.
//!
//! It is a service under `kube::Client`, where HTTPS is otherwise. A request that has left arrives even if whoever
//! sent it no longer waits, as it does on a real network.

use std::collections::BTreeMap;
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

use crate::deeds::{Party, Trouble, Verdict, Which};
use crate::open_gate::{with_life, without_state};
use crate::verdicts::{behind, broken, cut_in_the_middle, expiry, refusal, untrusted};
use crate::witness::{Departure, Leader, Route, Sent, Witness};

/// How long a request is under way when nothing is wrong; the answer as long again.
const USUAL_MS: std::ops::Range<u64> = 1..12;
/// A connection without a sign of life is given up after so long.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(45);
/// Of a hundred requests that are under way when their sender dies, so many still arrive.
const ARRIVE_PERCENT: u32 = 50;
/// Whoever sleeps looks around so often whether it still has to.
const SLEEPS_ON_FOR: Duration = Duration::from_secs(1);
/// A cache of the server is behind by so many changes at most.
const STATES_BACK: u64 = 300;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// What all ways have in common: where they lead, and what is wrong with them.
pub struct Network {
    server: ApiServer,
    witness: Arc<Witness>,
    troubles: Mutex<Vec<(Trouble, Instant)>>,
    /// Nobody is at home before then.
    away_until: Mutex<Instant>,
    /// By number: managers that sleep until then.
    asleep: Mutex<BTreeMap<usize, Instant>>,
    /// By number: which connection of a manager is the present one.
    connections: Mutex<BTreeMap<usize, OrderedWatch<u32>>>,
    chance: Mutex<fastrand::Rng>,
    /// The account of a mutant that never learns which state its writes led to.
    open_gate: Option<&'static str>,
    /// How many ways there have been so far.
    ways: AtomicU32,
}

impl Network {
    /// A network on which all is well.
    #[must_use]
    pub fn new(
        server: ApiServer,
        witness: Arc<Witness>,
        chance: fastrand::Rng,
        open_gate: Option<&'static str>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            witness,
            troubles: Mutex::default(),
            away_until: Mutex::new(Instant::now()),
            asleep: Mutex::default(),
            connections: Mutex::default(),
            chance: Mutex::new(chance),
            open_gate,
            ways: AtomicU32::new(0),
        })
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
        self.asleep.lock().clear();
    }

    /// The server is away for a while, and all its watches are cut.
    pub fn go_away(&self, time: Duration) {
        *self.away_until.lock() = Instant::now() + time;
        self.server.cut_watches();
    }

    /// A manager sleeps: nothing leaves it and nothing reaches it for so long. What it had sent by then leaves later.
    pub fn put_to_sleep(&self, manager: usize, time: Duration) {
        self.asleep.lock().insert(manager, Instant::now() + time);
    }

    /// A certificate is replaced: what a manager is connected by ends, and for a while the two sides do not trust
    /// each other.
    pub fn change_certificates(&self, manager: usize, time: Duration) {
        let (party, lasts) = (Party::Manager(manager), u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.disturb(Trouble { party, what: Which::All, verdict: Verdict::Untrusted, percent: 100, lasts });
        self.connection(Some(party)).modify(|number| number + 1);
    }

    /// The number of the present connection of a party.
    fn connection(&self, party: Option<Party>) -> OrderedWatch<u32> {
        let Some(Party::Manager(number)) = party else { return OrderedWatch::new(0) };
        self.connections.lock().entry(number).or_insert_with(|| OrderedWatch::new(0)).clone()
    }

    /// Waits until a party is awake.
    async fn awake(&self, party: Option<Party>) {
        let Some(Party::Manager(number)) = party else { return };
        loop {
            let until = self.asleep.lock().get(&number).copied();
            match until.filter(|until| *until > Instant::now()) {
                // A calm that comes first ends it as well.
                Some(until) => sleep((until - Instant::now()).min(SLEEPS_ON_FOR)).await,
                None => return,
            }
        }
    }

    /// Some state of the last few hundred.
    fn back_to(&self) -> u64 {
        let now = self.server.resource_version();
        self.chance.lock().u64(now.saturating_sub(STATES_BACK).max(1)..=now)
    }

    /// How things are when a write leaves.
    fn departure(&self) -> Departure {
        Departure { at: self.witness.began().elapsed(), leader: Leader::now(&self.server) }
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
    /// Tells the lives of a party from each other.
    life: u32,
    /// Which connection is the present one.
    connection: OrderedWatch<u32>,
    severed: OrderedWatch<bool>,
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
        let (network, connection) = (network.clone(), network.connection(party));
        let life = network.ways.fetch_add(1, Ordering::Relaxed);
        Self {
            network,
            server,
            party,
            name: name.into(),
            life,
            connection,
            severed: OrderedWatch::new(false),
        }
    }

    /// The end of whoever sends on this way: nothing more leaves and nothing arrives any more.
    pub fn sever(&self) {
        self.severed.set(true);
    }

    /// The way as clients want it.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection::from_service(self.clone())
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
        self.network.witness.digest_request(&parts.method, &parts.uri, &body);
        let route = Route::of(&parts.method, &parts.uri);
        let request = Request::from_parts(parts, body);
        if !route.writes() {
            return self.carry(request, route, Departure::default()).await;
        }
        let departure = self.network.departure();
        // A write that has left arrives, whether or not somebody still waits for the answer.
        tokio::spawn(self.carry(request, route, departure)).await?
    }

    async fn carry(
        self,
        request: Request<Bytes>,
        route: Route,
        departure: Departure,
    ) -> Result<Answer, BoxError> {
        let network = &self.network;
        let at_requests = |trouble: &Trouble| !trouble.verdict.is_of_watches() && trouble.what.covers(&route);
        let verdict = network.judge(self.party, at_requests).map(|(verdict, _)| verdict);
        sleep(network.usual()).await;
        match verdict {
            Some(Verdict::Late(time)) => sleep(Duration::from_millis(time)).await,
            Some(Verdict::Lost) => return Err(broken()),
            Some(Verdict::Untrusted) => return Err(untrusted()),
            Some(Verdict::Refused(code)) => return Ok(refusal(code)),
            Some(Verdict::Hangs) => {
                sleep(GIVEN_UP_AFTER).await;
                return Err(broken());
            }
            _ => {}
        }
        network.awake(self.party).await;
        let arrives = !self.is_severed() || network.chance.lock().u32(..100) < ARRIVE_PERCENT;
        if !arrives || Instant::now() < *network.away_until.lock() {
            return Err(broken());
        }
        if verdict.is_some_and(|verdict| verdict.is_behind(request.uri(), || network.back_to())) {
            return Ok(behind());
        }
        let lost = self.is_severed() || verdict.is_some_and(Verdict::keeps_the_answer);
        let answer = match verdict.and_then(|verdict| verdict.rewritten(request.uri(), || network.back_to()))
        {
            Some(uri) => self.answer_otherwise(request, uri, &route).await,
            None => self.deliver(request, &route, lost, departure).await,
        };
        sleep(network.usual()).await;
        network.awake(self.party).await;
        match verdict {
            Some(Verdict::LateAnswer(time)) => sleep(Duration::from_millis(time)).await,
            Some(Verdict::AnswerLost) => return Err(broken()),
            Some(Verdict::RefusedAfterwards(code)) => return Ok(refusal(code)),
            _ => {}
        }
        if self.is_severed() {
            return Err(broken());
        }
        if route.watch {
            return Ok(answer.map(|body| self.watched(route, body)));
        }
        let (parts, body) = answer.into_parts();
        if verdict == Some(Verdict::Truncated) {
            let Ok(body) = body.collect().await;
            return Ok(Response::from_parts(parts, cut_in_the_middle(&body.to_bytes())));
        }
        Ok(Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync()))
    }

    /// The server answers another question, if it can: of a state that it has forgotten it knows nothing.
    async fn answer_otherwise(
        &self,
        request: Request<Bytes>,
        uri: Uri,
        route: &Route,
    ) -> Response<ServerBody> {
        let mut otherwise = request.clone();
        *otherwise.uri_mut() = uri;
        let answer = self.deliver(otherwise, route, false, Departure::default()).await;
        if answer.status().is_success() {
            answer
        } else {
            self.deliver(request, route, false, Departure::default()).await
        }
    }

    /// The server does what it is asked to, before the eyes of the witness.
    async fn deliver(
        &self,
        request: Request<Bytes>,
        route: &Route,
        lost: bool,
        departure: Departure,
    ) -> Response<ServerBody> {
        let network = &self.network;
        let agent = request.headers().get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let author = agent.unwrap_or_default().rsplit(['/', ':']).next().unwrap_or_default().to_owned();
        let forgets = route.writes() && network.open_gate == Some(author.as_str());
        let request = if forgets { with_life(request, &network.server, route) } else { request };
        let (party, life, body) = (self.name.clone(), self.life, request.body().clone());
        let sent = Sent { party, life, author, route, body, lost, departure };
        let seen = network.witness.before(&network.server, &sent);
        let mut server = self.server.clone();
        let Ok(answer) = server.call(request.map(Full::new)).await;
        match seen {
            Some(seen) => network.witness.after(&network.server, seen, answer.status().as_u16()),
            None => network.witness.looked(&network.server, &sent),
        }
        if forgets { without_state(answer).await } else { answer }
    }

    /// The body of a watch: what it tells may be late, and it may break.
    fn watched(self, route: Route, body: ServerBody) -> UnsyncBoxBody<Bytes, BoxError> {
        let connection = self.connection.get();
        let watched = Watched { wire: self, route, body, connection, over: false };
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
    /// Which connection of its party it is on.
    connection: u32,
    over: bool,
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        if self.over {
            return None;
        }
        let Self { wire, route, body, connection, .. } = self;
        let told = async {
            let frame = body.frame().await?;
            let of_watches =
                |trouble: &Trouble| trouble.verdict.is_of_watches() && trouble.what.covers(route);
            sleep(wire.network.usual()).await;
            match wire.network.judge(wire.party, of_watches) {
                Some((Verdict::Cuts, _)) => return Some(Err(broken())),
                Some((Verdict::Expires, _)) => return Some(Ok(Frame::data(expiry()))),
                Some((_, until)) => sleep_until(until).await,
                None => {}
            }
            wire.network.awake(wire.party).await;
            Some(frame.map_err(|never| match never {}))
        };
        let frame = tokio::select! {
            biased;
            () = wire.severed.wait_for(|severed| severed) => Some(Err(broken())),
            () = wire.connection.wait_for(|number| number != *connection) => Some(Err(broken())),
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
