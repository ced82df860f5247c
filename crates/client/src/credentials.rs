//! Makes clients: as the manager itself, or as the service account of one controller.
//!
//! A controller's account and token are made when its client first needs them, and the token is renewed
//! well before it ends, so that each controller acts with the rights of its own role only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keleustes_objects::{ApiError, ErrorReason, Key, Kind as _, Namespace, ServiceAccount};
use kube::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tower::Layer as _;

use crate::connect::{Connection, user_agent};
use crate::layers::{
    BearerToken, MaxInFlight, MayWrite, MiddlewareLayer, Observe, RateLimit, RequestObserver, RetryAfter,
    Throttle, Token, TokenSource, Transport, UserAgent, WriteFence,
};
use crate::writes::{Call, unreadable};

/// Where the accounts of controllers live.
const NAMESPACE: &str = "kube-system";
/// How long a token is asked to last. Parity: `controller-manager/pkg/clientbuilder`.
const TOKEN_SECONDS: u32 = 3600;
/// A shorter life than this is not believed: the server would not grant it.
const TOKEN_LIFE_MIN: Duration = Duration::from_secs(600);
/// After this part of its life a token is renewed.
const RENEW_AFTER: f64 = 0.8;
/// How long to wait between tries to get a token; then the request that needs it fails.
const TRY_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// After a failed renewal the old token serves this long before the next try.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What all clients of a manager have in common.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// The rate that each client keeps to; by default none.
    pub throttle: Option<RateLimit>,
    /// How many requests of one client wait for an answer at the same time; by default any number.
    pub in_flight_max: Option<usize>,
    /// Who hears of requests.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// Whether each controller speaks as its own service account.
    pub use_service_account_credentials: bool,
}

/// Makes the clients of a manager.
#[derive(Clone)]
pub struct ClientFactory {
    connection: Connection,
    options: ClientOptions,
    /// Asked before each change that is not about credentials, if anybody is.
    may_write: Option<MayWrite>,
    /// Controllers may share an account, and then they share its token.
    tokens: Arc<Mutex<BTreeMap<String, Arc<ServiceAccountTokens>>>>,
}

impl ClientFactory {
    /// Clients that go this way.
    #[must_use]
    pub fn new(connection: Connection, options: ClientOptions) -> Self {
        Self { connection, options, may_write: None, tokens: Arc::default() }
    }

    /// The way that clients go.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes clients that keep to so many times the rate and the burst, if there is one to keep to.
    #[must_use]
    pub fn with_qps_multiplier(&self, rate_factor: u16, burst_factor: u16) -> Self {
        let mut hurrying = self.clone();
        if let Some(rate) = &mut hurrying.options.throttle {
            rate.qps *= f32::from(rate_factor);
            rate.burst = rate.burst.saturating_mul(burst_factor.into());
        }
        hurrying
    }

    /// Makes clients that ask, right before a change leaves, whether it may still be made.
    #[must_use]
    pub fn with_write_fence(&self, may_write: MayWrite) -> Self {
        Self { may_write: Some(may_write), ..self.clone() }
    }

    /// A client that speaks as the manager itself, for a component of it.
    #[must_use]
    pub fn root(&self, component: &str) -> Client {
        self.client(self.permitted(self.connection.with_credentials()), component)
    }

    /// A way whose changes leave only while they may be made.
    fn permitted(&self, way: Transport) -> Transport {
        match &self.may_write {
            Some(may_write) => {
                Transport::new(MiddlewareLayer::new(WriteFence::new(may_write.clone())).layer(way))
            }
            None => way,
        }
    }

    /// A client that speaks as a controller's service account, or as the manager itself if controllers
    /// have no accounts of their own.
    #[must_use]
    pub fn for_controller(&self, service_account: &str) -> Client {
        if !self.options.use_service_account_credentials {
            return self.root(service_account);
        }
        // Who reads needs a token as well.
        let root = || self.client(self.connection.with_credentials(), "kube-controller-manager");
        let new = || ServiceAccountTokens::new(root(), service_account);
        let mut known = self.tokens.lock();
        let tokens = known.entry(service_account.to_owned()).or_insert_with(|| Arc::new(new()));
        let source: Arc<dyn TokenSource> = tokens.clone();
        let way =
            MiddlewareLayer::new(BearerToken::new(source)).layer(self.permitted(self.connection.anonymous()));
        let user = format!("system:serviceaccount:{NAMESPACE}:{service_account}");
        self.client(Transport::new(way), &user)
    }

    fn client(&self, way: Transport, component: &str) -> Client {
        let host = self.connection.host().to_owned();
        let observer = self.options.observer.clone();
        let mut way = way;
        if let Some(observer) = &observer {
            way = Transport::new(MiddlewareLayer::new(Observe::new(&host, Arc::clone(observer))).layer(way));
        }
        if let Some(requests_max) = self.options.in_flight_max {
            way = Transport::new(MiddlewareLayer::new(MaxInFlight::new(requests_max)).layer(way));
        }
        if let Some(rate) = self.options.throttle {
            let throttle = Throttle::new(rate, host.clone(), observer.clone());
            way = Transport::new(MiddlewareLayer::new(throttle).layer(way));
        }
        let way = MiddlewareLayer::new(RetryAfter::new(host, observer)).layer(way);
        let way = MiddlewareLayer::new(UserAgent::new(&user_agent(component))).layer(way);
        Client::new(way, "default")
    }
}

/// The tokens of one service account.
pub struct ServiceAccountTokens {
    client: Client,
    account: Key,
    known: Mutex<Known>,
    /// Held while a token is asked for, so that many requests that need one ask once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    token: Option<KnownToken>,
    /// What the last try came to, if it failed.
    failure: Option<(Instant, ApiError)>,
}

#[derive(Clone)]
struct KnownToken {
    token: Token,
    renew_at: Instant,
    ends_at: Instant,
}

#[derive(Deserialize)]
struct TokenRequest {
    spec: TokenRequestSpec,
    status: TokenRequestStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestSpec {
    expiration_seconds: u32,
}

#[derive(Deserialize)]
struct TokenRequestStatus {
    token: String,
}

impl ServiceAccountTokens {
    /// The tokens of an account in `kube-system`, asked for through a client that may make accounts.
    #[must_use]
    pub fn new(client: Client, service_account: &str) -> Self {
        Self {
            client,
            account: Key::namespaced(NAMESPACE, service_account),
            known: Mutex::default(),
            asking: tokio::sync::Mutex::new(()),
        }
    }

    async fn current(&self) -> Result<Token, ApiError> {
        let called_at = Instant::now();
        if let Some(token) = self.known_until(|known| known.renew_at) {
            return Ok(token);
        }
        // While somebody renews a token that is still good, everybody else goes on with it.
        let old = self.known_until(|known| known.ends_at);
        let _asking = match (self.asking.try_lock(), old) {
            (Ok(asking), _) => asking,
            (Err(_), Some(old)) => return Ok(old),
            (Err(_), None) => self.asking.lock().await,
        };
        if let Some(token) = self.known_until(|known| known.renew_at) {
            return Ok(token);
        }
        if let Some((failed_at, failure)) = &self.known.lock().failure
            && *failed_at > called_at
        {
            return Err(failure.clone());
        }
        self.renew().await
    }

    fn known_until(&self, until: fn(&KnownToken) -> Instant) -> Option<Token> {
        let known = self.known.lock();
        let token = known.token.as_ref().filter(|token| Instant::now() < until(token))?;
        Some(token.token.clone())
    }

    async fn renew(&self) -> Result<Token, ApiError> {
        let asked = self.ask_repeatedly().await;
        let now = Instant::now();
        let mut known = self.known.lock();
        match asked {
            Ok(fresh) => {
                known.failure = None;
                Ok(known.token.insert(fresh).token.clone())
            }
            Err(failure) => {
                let failure = ApiError {
                    message: format!("failed to get token for {}: {failure}", self.account),
                    ..failure
                };
                match &mut known.token {
                    Some(old) if now < old.ends_at => {
                        tracing::warn!(%failure, "going on with the old token");
                        old.renew_at = now + RENEW_AGAIN_AFTER;
                        Ok(old.token.clone())
                    }
                    _ => {
                        known.failure = Some((now, failure.clone()));
                        Err(failure)
                    }
                }
            }
        }
    }

    async fn ask_repeatedly(&self) -> Result<KnownToken, ApiError> {
        let mut waits = TRY_AGAIN_AFTER.into_iter();
        loop {
            match (self.ask().await, waits.next()) {
                (Err(failure), Some(wait)) => {
                    tracing::warn!(account = %self.account, %failure, "no token yet");
                    tokio::time::sleep(wait).await;
                }
                (answer, _) => return answer,
            }
        }
    }

    async fn ask(&self) -> Result<KnownToken, ApiError> {
        self.ensure_account().await?;
        let body = json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        });
        let asked_at = Instant::now();
        let request = Call::raw(http::Method::POST, ServiceAccount::RESOURCE.object_path(&self.account));
        let answer: TokenRequest =
            request.subresource("token").with_body(&body).send_as(&self.client).await?;
        let token = Token::new(&answer.status.token).ok_or_else(|| unreadable("the token cannot be sent"))?;
        // The length that was granted, not the time of its end: clocks of hosts differ.
        let life = Duration::from_secs(answer.spec.expiration_seconds.into()).max(TOKEN_LIFE_MIN);
        Ok(KnownToken { token, renew_at: asked_at + life.mul_f64(RENEW_AFTER), ends_at: asked_at + life })
    }

    async fn ensure_account(&self) -> Result<(), ApiError> {
        let accounts = ServiceAccount::RESOURCE;
        match Call::get(&accounts, &self.account).send_for_metadata(&self.client).await {
            Err(failure) if failure.reason == ErrorReason::NotFound => {}
            found => return found.map(|_| ()),
        }
        self.ensure_namespace().await;
        let body = json!({
            "kind": "ServiceAccount",
            "apiVersion": "v1",
            "metadata": {"name": self.account.name, "namespace": self.account.namespace},
        });
        let created =
            Call::create(&accounts, &self.account.namespace, &body).send_for_metadata(&self.client).await;
        match created {
            Err(failure) if failure.reason != ErrorReason::AlreadyExists => Err(failure),
            _ => Ok(()),
        }
    }

    /// On a new cluster the manager may be faster than the API server's own bootstrap. It may also lack
    /// the right to do this; then creating the account tells.
    async fn ensure_namespace(&self) {
        let key = Key::cluster(self.account.namespace.as_str());
        let found = Call::get(&Namespace::RESOURCE, &key).send_for_metadata(&self.client).await;
        if found.is_err_and(|failure| failure.reason == ErrorReason::NotFound) {
            let body = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": key.name}});
            let created = Call::create(&Namespace::RESOURCE, "", &body).send_for_metadata(&self.client).await;
            if let Err(failure) = created {
                tracing::warn!(namespace = %key, %failure, "could not create the namespace");
            }
        }
    }
}

impl TokenSource for ServiceAccountTokens {
    fn token(&self) -> BoxFuture<'_, Result<Token, ApiError>> {
        Box::pin(self.current())
    }

    fn reject(&self, token: &Token) {
        let mut known = self.known.lock();
        // The token may have been renewed while the answer was on its way.
        if known.token.as_ref().is_some_and(|known| known.token == *token) {
            known.token = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use http::header::{AUTHORIZATION, USER_AGENT};
    use http::{HeaderMap, Request, Response};
    use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
    use kube::client::Body;
    use tower::{BoxError, ServiceExt as _};

    use super::*;
    use crate::layers::{HttpService, Middleware, ResponseBody, transport};

    /// Keeps the headers of requests.
    #[derive(Default)]
    struct Headers(Mutex<Vec<(String, HeaderMap)>>);

    impl Middleware for Headers {
        async fn pass<S: HttpService>(
            self: Arc<Self>,
            request: Request<Body>,
            inner: S,
        ) -> Result<Response<ResponseBody>, BoxError> {
            let told = format!("{} {}", request.method(), request.uri());
            self.0.lock().push((told, request.headers().clone()));
            inner.oneshot(request).await
        }
    }

    struct World {
        server: ApiServer,
        faults: Faults,
        headers: Arc<Headers>,
        factory: ClientFactory,
    }

    impl World {
        fn new() -> Self {
            let (server, faults) = (ApiServer::builder().seed(3).build(), Faults::new());
            let headers = Arc::new(Headers::default());
            let way =
                MiddlewareLayer::shared(Arc::clone(&headers)).layer(transport(faults.layer(server.clone())));
            let options = ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() };
            let factory = ClientFactory::new(Connection::from_service(way), options);
            Self { server, faults, headers, factory }
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.headers.0.lock()).into_iter().map(|(told, _)| told).collect()
        }
    }

    async fn read(client: &Client) -> Result<serde_json::Value, ApiError> {
        Call::raw(http::Method::GET, "/api/v1/secrets").send(client).await
    }

    const ACCOUNT: &str = "/api/v1/namespaces/kube-system/serviceaccounts/job-controller";

    /// Proves RUN-20, RUN-21, RUN-23, RUN-24, RUN-25, RUN-100, RUN-117.
    #[tokio::test(start_paused = true)]
    async fn a_controllers_account_and_token_are_made_on_first_use_and_kept() {
        let world = World::new();
        let client = world.factory.for_controller("job-controller");
        assert!(world.asked().is_empty());
        futures::future::join_all((0..5).map(|_| read(&client))).await;
        let requests = world.headers.0.lock().clone();
        let told: Vec<_> = requests.iter().map(|(told, _)| told.as_str()).collect();
        assert_eq!(
            told[..4],
            [
                &format!("GET {ACCOUNT}"),
                "GET /api/v1/namespaces/kube-system",
                "POST /api/v1/namespaces/kube-system/serviceaccounts",
                &format!("POST {ACCOUNT}/token"),
            ]
        );
        assert_eq!(told[4..], ["GET /api/v1/secrets"; 5]);
        assert!(world.server.object("serviceaccounts", "kube-system", "job-controller").is_some());
        for (_, headers) in &requests[..4] {
            assert!(!headers.contains_key(AUTHORIZATION));
            let agent = headers[USER_AGENT].to_str().unwrap();
            assert!(agent.starts_with("kube-controller-manager/v1.37.1 (linux/"), "{agent}");
            assert!(agent.ends_with("/kube-controller-manager"), "{agent}");
        }
        for (_, headers) in &requests[4..] {
            assert!(headers[AUTHORIZATION].to_str().unwrap().starts_with("Bearer "));
            let agent = headers[USER_AGENT].to_str().unwrap();
            assert!(agent.ends_with("/system:serviceaccount:kube-system:job-controller"), "{agent}");
        }
        let token_request = world.server.requests().into_iter().find(|one| one.target.ends_with("/token"));
        assert_eq!(token_request.unwrap().json()["spec"]["expirationSeconds"], 3600);
    }

    /// Proves RUN-27.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_when_a_fifth_of_its_life_is_left() {
        let world = World::new();
        let client = world.factory.for_controller("job-controller");
        read(&client).await.unwrap();
        world.asked();
        tokio::time::advance(Duration::from_secs(2879)).await;
        read(&client).await.unwrap();
        assert_eq!(world.asked(), ["GET /api/v1/secrets"]);
        tokio::time::advance(Duration::from_secs(2)).await;
        read(&client).await.unwrap();
        let account = format!("GET {ACCOUNT}");
        assert_eq!(world.asked(), [&account, &format!("POST {ACCOUNT}/token"), "GET /api/v1/secrets"]);
    }

    /// Proves RUN-28.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_cannot_be_renewed_serves_until_its_end() {
        let world = World::new();
        let client = world.factory.for_controller("job-controller");
        read(&client).await.unwrap();
        world
            .faults
            .add(FaultRule::new(InjectedFault::status(500, "InternalError", "boom")).target("/token"));
        tokio::time::advance(Duration::from_secs(2900)).await;
        read(&client).await.unwrap();
        tokio::time::advance(Duration::from_secs(600)).await;
        read(&client).await.unwrap();
        tokio::time::advance(Duration::from_secs(200)).await;
        let failure = read(&client).await.unwrap_err();
        assert_eq!(failure.reason, ErrorReason::Unavailable);
        assert_eq!(failure.message, "failed to get token for kube-system/job-controller: boom");
    }

    /// Proves RUN-26.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_tried_for_four_times_and_all_who_wait_share_the_outcome() {
        let world = World::new();
        let refused = FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused));
        let id = world.faults.add(refused);
        let client = world.factory.for_controller("job-controller");
        let start = Instant::now();
        let outcomes = futures::future::join_all((0..5).map(|_| read(&client))).await;
        assert!(
            outcomes
                .iter()
                .all(|one| one.as_ref().is_err_and(|it| it.reason == ErrorReason::ConnectionRefused))
        );
        assert_eq!(start.elapsed(), Duration::from_millis(3500));
        assert_eq!(world.asked(), vec![format!("GET {ACCOUNT}"); 4]);
        world.faults.disable(id);
        tokio::time::advance(Duration::from_millis(1)).await;
        read(&client).await.unwrap();
    }

    /// Proves RUN-29.
    #[tokio::test(start_paused = true)]
    async fn a_rejected_token_is_replaced() {
        let world = World::new();
        let client = world.factory.for_controller("job-controller");
        read(&client).await.unwrap();
        world.asked();
        world.faults.add(
            FaultRule::new(InjectedFault::status(401, "Unauthorized", "who?")).target("/secrets").times(1),
        );
        assert_eq!(read(&client).await.unwrap_err().reason, ErrorReason::Unauthorized);
        read(&client).await.unwrap();
        assert!(world.asked().contains(&format!("POST {ACCOUNT}/token")));
    }

    /// Proves RUN-24.
    #[tokio::test(start_paused = true)]
    async fn somebody_else_may_create_the_account_at_the_same_time() {
        let world = World::new();
        let exists = InjectedFault::status(409, "AlreadyExists", "there");
        let creation = FaultRule::new(InjectedFault::ApplyThen(Box::new(exists)));
        world.faults.add(creation.method(http::Method::POST).target("/serviceaccounts").times(1));
        read(&world.factory.for_controller("job-controller")).await.unwrap();
    }

    /// Proves RUN-30.
    #[tokio::test(start_paused = true)]
    async fn controllers_of_one_account_share_its_token() {
        let world = World::new();
        for _ in 0..3 {
            read(&world.factory.for_controller("certificate-controller")).await.unwrap();
        }
        read(&world.factory.for_controller("node-controller")).await.unwrap();
        let tokens = world.asked().into_iter().filter(|asked| asked.ends_with("/token"));
        let account = |name| format!("POST /api/v1/namespaces/kube-system/serviceaccounts/{name}/token");
        assert_eq!(
            tokens.collect::<Vec<_>>(),
            [account("certificate-controller"), account("node-controller")]
        );
    }

    /// Proves RUN-31.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_held_back_holds_no_other_back() {
        let world = World::new();
        let options =
            ClientOptions { throttle: Some(RateLimit { qps: 1.0, burst: 1 }), ..ClientOptions::default() };
        let factory = ClientFactory::new(world.factory.connection().clone(), options);
        let (busy, calm) = (factory.root("busy"), factory.root("calm"));
        let start = Instant::now();
        let held_back = futures::future::join_all((0..4).map(|_| read(&busy)));
        let calm = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            read(&calm).await.unwrap();
            start.elapsed()
        };
        let (_, calm) = tokio::join!(held_back, calm);
        assert_eq!(calm, Duration::from_millis(1500));
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn who_hurries_keeps_to_a_multiple_of_the_rate() {
        let world = World::new();
        let throttle = Some(RateLimit { qps: 0.5, burst: 1 });
        let factory = |throttle| {
            let options = ClientOptions { throttle, ..ClientOptions::default() };
            ClientFactory::new(world.factory.connection().clone(), options).with_qps_multiplier(2, 3)
        };
        let start = Instant::now();
        let hurried = factory(throttle).root("hurried");
        futures::future::join_all((0..5).map(|_| read(&hurried))).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2), "three at once, then one a second");
        let free = factory(None).root("free");
        futures::future::join_all((0..50).map(|_| read(&free))).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }

    /// Proves RUN-22.
    #[tokio::test(start_paused = true)]
    async fn without_accounts_of_their_own_controllers_speak_as_the_manager() {
        let world = World::new();
        let factory = ClientFactory::new(world.factory.connection().clone(), ClientOptions::default());
        read(&factory.for_controller("job-controller")).await.unwrap();
        let requests = world.headers.0.lock();
        let [(_, headers)] = requests.as_slice() else { panic!("one request") };
        assert!(!headers.contains_key(AUTHORIZATION));
        assert!(headers[USER_AGENT].to_str().unwrap().ends_with("/job-controller"));
    }
}
