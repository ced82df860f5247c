//! Builds clients: with the manager's own credentials, or with the service account of one controller.
//!
//! The service account and its token are created when the controller's client first needs them, and the token
//! is renewed at 80% of its lifetime, so that each controller has only the permissions of its own role.

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

use crate::call::{Call, unreadable_response};
use crate::connect::{Connection, user_agent};
use crate::layers::{
    BearerToken, BeforeWrite, JsonOnly, MaxInFlight, MayWrite, MiddlewareLayer, Observe, RateLimit,
    RequestObserver, RetryAfter, Throttle, Token, TokenSource, Transport, UserAgent, WriteFence,
};

/// The namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";
/// The requested token lifetime. Parity: `controller-manager/pkg/clientbuilder`.
const TOKEN_SECONDS: u32 = 3600;
/// A shorter lifetime in the response is ignored: API servers do not grant it.
const TOKEN_LIFETIME_MIN: Duration = Duration::from_secs(600);
/// A token is renewed after this fraction of its lifetime.
const RENEW_AFTER_FRACTION: f64 = 0.8;
/// Delays between attempts to get a token. After the last attempt the request that needs the token fails.
const RETRY_DELAYS: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// After a failed renewal the old token is used this long before the next attempt.
const RENEWAL_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The rate limit of clients for discovery.
const DISCOVERY_RATE: RateLimit = RateLimit { qps: 20.0, burst: 200 };

/// Options of all clients of a manager.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// The rate limit of each client; by default none.
    pub throttle: Option<RateLimit>,
    /// The maximum of requests in flight per client; by default unlimited.
    pub in_flight_max: Option<usize>,
    /// The observer of requests.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// Whether each controller uses its own service account (`--use-service-account-credentials`).
    pub use_service_account_credentials: bool,
    /// Whether watches are never read as protobuf (`--kube-api-content-type=application/json`).
    pub json_only: bool,
}

/// Builds the clients of a manager.
#[derive(Clone)]
pub struct ClientFactory {
    connection: Connection,
    options: ClientOptions,
    /// Checked before each write, except those that create service accounts and tokens.
    may_write: Option<MayWrite>,
    /// By service account: controllers with the same account share its token.
    tokens: Arc<Mutex<BTreeMap<String, Arc<ServiceAccountTokens>>>>,
}

impl ClientFactory {
    /// A factory of clients for this connection.
    #[must_use]
    pub fn new(connection: Connection, options: ClientOptions) -> Self {
        Self { connection, options, may_write: None, tokens: Arc::default() }
    }

    /// The connection of the clients.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A factory whose clients have this multiple of the QPS and burst limits, if there are limits.
    #[must_use]
    pub fn with_qps_multiplier(&self, rate_factor: u16, burst_factor: u16) -> Self {
        let mut multiplied = self.clone();
        if let Some(rate) = &mut multiplied.options.throttle {
            rate.qps *= f32::from(rate_factor);
            rate.burst = rate.burst.saturating_mul(burst_factor.into());
        }
        multiplied
    }

    /// A factory whose clients call `may_write` right before they send a write.
    #[must_use]
    pub fn with_write_fence(&self, may_write: MayWrite) -> Self {
        Self { may_write: Some(may_write), ..self.clone() }
    }

    /// A client with the manager's own credentials, for one component.
    #[must_use]
    pub fn root(&self, component: &str) -> Client {
        let connection = self.connection.clone();
        // Its error is that of the request, which asks for the same credentials.
        let credentials: BeforeWrite = Arc::new(move || {
            let connection = connection.clone();
            Box::pin(async move { drop(connection.prefetch_credentials().await) })
        });
        self.client(self.fenced(self.connection.with_credentials(), Some(credentials)), component)
    }

    /// A client with the manager's own credentials for discovery, which sends many requests at long intervals: if there
    /// are rate limits at all, this one is the client's own and not that of `--kube-api-qps`.
    #[must_use]
    pub fn discovery(&self, component: &str) -> Client {
        let mut factory = self.clone();
        if let Some(throttle) = &mut factory.options.throttle {
            *throttle = DISCOVERY_RATE;
        }
        factory.root(component)
    }

    /// The transport with fencing of writes, if this factory has it.
    fn fenced(&self, transport: Transport, before: Option<BeforeWrite>) -> Transport {
        let Some(may_write) = &self.may_write else { return transport };
        let fence = WriteFence::new(may_write.clone());
        let fence = match before {
            Some(before) => fence.after(before),
            None => fence,
        };
        Transport::new(MiddlewareLayer::new(fence).layer(transport))
    }

    /// A client with a controller's service account, or with the manager's own credentials if service account
    /// credentials are off.
    #[must_use]
    pub fn for_controller(&self, service_account: &str) -> Client {
        if !self.options.use_service_account_credentials {
            return self.root(service_account);
        }
        // No fencing here: a process without the lease also needs a token, for its reads.
        let root = || self.client(self.connection.with_credentials(), "kube-controller-manager");
        let new = || ServiceAccountTokens::new(root(), service_account);
        let mut by_account = self.tokens.lock();
        let tokens = by_account.entry(service_account.to_owned()).or_insert_with(|| Arc::new(new()));
        let source: Arc<dyn TokenSource> = tokens.clone();
        let transport = MiddlewareLayer::new(BearerToken::new(source))
            .layer(self.fenced(self.connection.anonymous(), None));
        let user = format!("system:serviceaccount:{NAMESPACE}:{service_account}");
        self.client(Transport::new(transport), &user)
    }

    fn client(&self, transport: Transport, component: &str) -> Client {
        let host = self.connection.host().to_owned();
        let observer = self.options.observer.clone();
        let mut transport = transport;
        if self.options.json_only {
            transport = Transport::new(MiddlewareLayer::new(JsonOnly).layer(transport));
        }
        if let Some(observer) = &observer {
            transport = Transport::new(
                MiddlewareLayer::new(Observe::new(&host, Arc::clone(observer))).layer(transport),
            );
        }
        if let Some(requests_max) = self.options.in_flight_max {
            transport = Transport::new(MiddlewareLayer::new(MaxInFlight::new(requests_max)).layer(transport));
        }
        if let Some(rate) = self.options.throttle {
            let throttle = Throttle::new(rate, host.clone(), observer.clone());
            transport = Transport::new(MiddlewareLayer::new(throttle).layer(transport));
        }
        let transport = MiddlewareLayer::new(RetryAfter::new(host, observer)).layer(transport);
        let transport = MiddlewareLayer::new(UserAgent::new(&user_agent(component))).layer(transport);
        Client::new(transport, "default")
    }
}

/// Gets and renews the tokens of one service account.
pub struct ServiceAccountTokens {
    client: Client,
    account: Key,
    state: Mutex<TokenState>,
    /// Held during a token request, so that concurrent requests share it.
    requesting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct TokenState {
    token: Option<CachedToken>,
    /// Time and error of the last attempt, if it failed.
    failure: Option<(Instant, ApiError)>,
}

#[derive(Clone)]
struct CachedToken {
    token: Token,
    renew_at: Instant,
    expires_at: Instant,
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
    /// The tokens of a service account in `kube-system`. The client must be allowed to create service
    /// accounts and tokens.
    #[must_use]
    pub fn new(client: Client, service_account: &str) -> Self {
        Self {
            client,
            account: Key::namespaced(NAMESPACE, service_account),
            state: Mutex::default(),
            requesting: tokio::sync::Mutex::new(()),
        }
    }

    async fn current(&self) -> Result<Token, ApiError> {
        let called_at = Instant::now();
        if let Some(token) = self.token_valid_until(|token| token.renew_at) {
            return Ok(token);
        }
        // While one request renews a token that has not expired, the others use the old one.
        let old = self.token_valid_until(|token| token.expires_at);
        let _requesting = match (self.requesting.try_lock(), old) {
            (Ok(requesting), _) => requesting,
            (Err(_), Some(old)) => return Ok(old),
            (Err(_), None) => self.requesting.lock().await,
        };
        if let Some(token) = self.token_valid_until(|token| token.renew_at) {
            return Ok(token);
        }
        if let Some((failed_at, failure)) = &self.state.lock().failure
            && *failed_at > called_at
        {
            return Err(failure.clone());
        }
        self.renew().await
    }

    fn token_valid_until(&self, until: fn(&CachedToken) -> Instant) -> Option<Token> {
        let state = self.state.lock();
        let token = state.token.as_ref().filter(|token| Instant::now() < until(token))?;
        Some(token.token.clone())
    }

    async fn renew(&self) -> Result<Token, ApiError> {
        let result = self.request_token_with_retries().await;
        let now = Instant::now();
        let mut state = self.state.lock();
        match result {
            Ok(fresh) => {
                state.failure = None;
                Ok(state.token.insert(fresh).token.clone())
            }
            Err(failure) => {
                let failure = without_verdict(ApiError {
                    message: format!("failed to get token for {}: {failure}", self.account),
                    ..failure
                });
                match &mut state.token {
                    Some(old) if now < old.expires_at => {
                        tracing::warn!(error = %failure, "token renewal failed, using the old token");
                        old.renew_at = now + RENEWAL_RETRY_DELAY;
                        Ok(old.token.clone())
                    }
                    _ => {
                        state.failure = Some((now, failure.clone()));
                        Err(failure)
                    }
                }
            }
        }
    }

    async fn request_token_with_retries(&self) -> Result<CachedToken, ApiError> {
        let mut delays = RETRY_DELAYS.into_iter();
        loop {
            match (self.request_token().await, delays.next()) {
                (Err(failure), Some(wait)) => {
                    tracing::warn!(serviceAccount = %self.account, error = %failure, "token request failed, retrying");
                    tokio::time::sleep(wait).await;
                }
                (response, _) => return response,
            }
        }
    }

    async fn request_token(&self) -> Result<CachedToken, ApiError> {
        self.ensure_account().await?;
        let body = json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        });
        let requested_at = Instant::now();
        let request = Call::on_object(http::Method::POST, &ServiceAccount::RESOURCE, &self.account);
        let response: TokenRequest =
            request.subresource("token").with_body(&body).send_as(&self.client).await?;
        let token = Token::new(&response.status.token)
            .ok_or_else(|| unreadable_response("the token is not a valid header value"))?;
        // The granted duration and not the expirationTimestamp, because the clocks of hosts differ.
        let lifetime = Duration::from_secs(response.spec.expiration_seconds.into()).max(TOKEN_LIFETIME_MIN);
        Ok(CachedToken {
            token,
            renew_at: requested_at + lifetime.mul_f64(RENEW_AFTER_FRACTION),
            expires_at: requested_at + lifetime,
        })
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

    /// On a new cluster the manager may be faster than the API server's own bootstrap. An error is only
    /// logged: without the namespace, creating the service account fails.
    async fn ensure_namespace(&self) {
        let key = Key::cluster(self.account.namespace.as_str());
        let found = Call::get(&Namespace::RESOURCE, &key).send_for_metadata(&self.client).await;
        if found.is_err_and(|failure| failure.reason == ErrorReason::NotFound) {
            let body = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": key.name}});
            let created = Call::create(&Namespace::RESOURCE, "", &body).send_for_metadata(&self.client).await;
            if let Err(failure) = created {
                tracing::warn!(namespace = %key, error = %failure, "cannot create namespace");
            }
        }
    }
}

impl TokenSource for ServiceAccountTokens {
    fn token(&self) -> BoxFuture<'_, Result<Token, ApiError>> {
        Box::pin(self.current())
    }

    fn reject(&self, token: &Token) {
        let mut state = self.state.lock();
        // The token may have been renewed while the response was in flight.
        if state.token.as_ref().is_some_and(|cached| cached.token == *token) {
            state.token = None;
        }
    }
}

/// The failure of a request for a token as that of the request which needs the token and is not sent. What the API server
/// says about the token request is no verdict on the other: an object is not absent because its reader's account is. So it
/// has no code, which only responses have.
fn without_verdict(failure: ApiError) -> ApiError {
    let reason = match failure.reason {
        ErrorReason::TooManyRequests
        | ErrorReason::Unavailable
        | ErrorReason::ConnectionRefused
        | ErrorReason::ConnectionLost => failure.reason,
        _ => ErrorReason::Unauthorized,
    };
    ApiError { reason, code: 0, ..failure }
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

    /// Records requests and their headers.
    #[derive(Default)]
    struct Headers(Mutex<Vec<(String, HeaderMap)>>);

    impl Middleware for Headers {
        async fn pass<S: HttpService>(
            self: Arc<Self>,
            request: Request<Body>,
            inner: S,
        ) -> Result<Response<ResponseBody>, BoxError> {
            let line = format!("{} {}", request.method(), request.uri());
            self.0.lock().push((line, request.headers().clone()));
            inner.oneshot(request).await
        }
    }

    struct TestCluster {
        server: ApiServer,
        faults: Faults,
        headers: Arc<Headers>,
        factory: ClientFactory,
    }

    impl TestCluster {
        fn new() -> Self {
            let (server, faults) = (ApiServer::builder().seed(3).build(), Faults::new());
            let headers = Arc::new(Headers::default());
            let transport =
                MiddlewareLayer::shared(Arc::clone(&headers)).layer(transport(faults.layer(server.clone())));
            let options = ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() };
            let factory = ClientFactory::new(Connection::from_service(transport), options);
            Self { server, faults, headers, factory }
        }

        fn take_requests(&self) -> Vec<String> {
            std::mem::take(&mut *self.headers.0.lock()).into_iter().map(|(line, _)| line).collect()
        }
    }

    async fn read(client: &Client) -> Result<serde_json::Value, ApiError> {
        Call::raw(http::Method::GET, "/api/v1/secrets").send(client).await
    }

    const ACCOUNT: &str = "/api/v1/namespaces/kube-system/serviceaccounts/job-controller";

    /// Proves RUN-20, RUN-21, RUN-23, RUN-24, RUN-25, RUN-100, RUN-117.
    #[tokio::test(start_paused = true)]
    async fn service_account_and_token_are_created_on_first_use_and_cached() {
        let cluster = TestCluster::new();
        let client = cluster.factory.for_controller("job-controller");
        assert!(cluster.take_requests().is_empty());
        futures::future::join_all((0..5).map(|_| read(&client))).await;
        let requests = cluster.headers.0.lock().clone();
        let line: Vec<_> = requests.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(
            line[..4],
            [
                &format!("GET {ACCOUNT}"),
                "GET /api/v1/namespaces/kube-system",
                "POST /api/v1/namespaces/kube-system/serviceaccounts",
                &format!("POST {ACCOUNT}/token"),
            ]
        );
        assert_eq!(line[4..], ["GET /api/v1/secrets"; 5]);
        assert!(cluster.server.object("serviceaccounts", "kube-system", "job-controller").is_some());
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
        let token_request = cluster.server.requests().into_iter().find(|one| one.target.ends_with("/token"));
        assert_eq!(token_request.unwrap().json()["spec"]["expirationSeconds"], 3600);
    }

    /// Proves RUN-27.
    #[tokio::test(start_paused = true)]
    async fn token_is_renewed_at_eighty_percent_of_its_lifetime() {
        let cluster = TestCluster::new();
        let client = cluster.factory.for_controller("job-controller");
        read(&client).await.unwrap();
        cluster.take_requests();
        tokio::time::advance(Duration::from_secs(2879)).await;
        read(&client).await.unwrap();
        assert_eq!(cluster.take_requests(), ["GET /api/v1/secrets"]);
        tokio::time::advance(Duration::from_secs(2)).await;
        read(&client).await.unwrap();
        let account = format!("GET {ACCOUNT}");
        assert_eq!(
            cluster.take_requests(),
            [&account, &format!("POST {ACCOUNT}/token"), "GET /api/v1/secrets"]
        );
    }

    /// Proves RUN-28.
    #[tokio::test(start_paused = true)]
    async fn token_that_cannot_be_renewed_is_used_until_it_expires() {
        let cluster = TestCluster::new();
        let client = cluster.factory.for_controller("job-controller");
        read(&client).await.unwrap();
        cluster
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

    /// Else the garbage collector would take an owner for absent that it could not read.
    #[tokio::test(start_paused = true)]
    async fn refused_token_request_says_nothing_about_the_object_of_the_request() {
        for (code, reason) in [
            (403, "Forbidden"),
            (404, "NotFound"),
            (409, "AlreadyExists"),
            (409, "Conflict"),
            (410, "Expired"),
            (422, "Invalid"),
        ] {
            let cluster = TestCluster::new();
            let client = cluster.factory.for_controller("job-controller");
            cluster.faults.add(FaultRule::new(InjectedFault::status(code, reason, "no")).target("/token"));
            let failure = read(&client).await.unwrap_err();
            assert_eq!((failure.reason, failure.code), (ErrorReason::Unauthorized, 0), "{reason}");
            assert_eq!(failure.message, "failed to get token for kube-system/job-controller: no");
            assert!(!failure.may_have_taken_effect(), "{reason}");
        }
    }

    /// Proves RUN-26.
    #[tokio::test(start_paused = true)]
    async fn token_request_is_attempted_four_times_and_waiting_requests_share_the_result() {
        let cluster = TestCluster::new();
        let refused = FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused));
        let id = cluster.faults.add(refused);
        let client = cluster.factory.for_controller("job-controller");
        let start = Instant::now();
        let outcomes = futures::future::join_all((0..5).map(|_| read(&client))).await;
        assert!(
            outcomes
                .iter()
                .all(|one| one.as_ref().is_err_and(|error| error.reason == ErrorReason::ConnectionRefused))
        );
        assert_eq!(start.elapsed(), Duration::from_millis(3500));
        assert_eq!(cluster.take_requests(), vec![format!("GET {ACCOUNT}"); 4]);
        cluster.faults.disable(id);
        tokio::time::advance(Duration::from_millis(1)).await;
        read(&client).await.unwrap();
    }

    /// Proves RUN-29.
    #[tokio::test(start_paused = true)]
    async fn token_is_replaced_after_a_401() {
        let cluster = TestCluster::new();
        let client = cluster.factory.for_controller("job-controller");
        read(&client).await.unwrap();
        cluster.take_requests();
        cluster.faults.add(
            FaultRule::new(InjectedFault::status(401, "Unauthorized", "who?")).target("/secrets").times(1),
        );
        assert_eq!(read(&client).await.unwrap_err().reason, ErrorReason::Unauthorized);
        read(&client).await.unwrap();
        assert!(cluster.take_requests().contains(&format!("POST {ACCOUNT}/token")));
    }

    /// Proves RUN-24.
    #[tokio::test(start_paused = true)]
    async fn service_account_created_concurrently_is_not_an_error() {
        let cluster = TestCluster::new();
        let exists = InjectedFault::status(409, "AlreadyExists", "there");
        let creation = FaultRule::new(InjectedFault::ApplyThen(Box::new(exists)));
        cluster.faults.add(creation.method(http::Method::POST).target("/serviceaccounts").times(1));
        read(&cluster.factory.for_controller("job-controller")).await.unwrap();
    }

    /// Proves RUN-24.
    #[tokio::test(start_paused = true)]
    async fn missing_namespace_is_created_before_the_service_account() {
        let cluster = TestCluster::new();
        assert!(cluster.server.remove("namespaces", "", "kube-system"));
        read(&cluster.factory.for_controller("job-controller")).await.unwrap();
        let requests = cluster.take_requests();
        assert_eq!(
            requests[..4],
            [
                &format!("GET {ACCOUNT}"),
                "GET /api/v1/namespaces/kube-system",
                "POST /api/v1/namespaces",
                "POST /api/v1/namespaces/kube-system/serviceaccounts",
            ]
        );
    }

    /// Proves RUN-24.
    #[tokio::test(start_paused = true)]
    async fn namespace_that_cannot_be_created_is_no_reason_to_give_up_but_other_errors_are() {
        let cluster = TestCluster::new();
        let forbidden =
            || FaultRule::new(InjectedFault::status(403, "Forbidden", "no")).method(http::Method::POST);
        assert!(cluster.server.remove("namespaces", "", "kube-system"));
        cluster.faults.add(forbidden().resource("namespaces"));
        let failure = read(&cluster.factory.for_controller("job-controller")).await.unwrap_err();
        assert_eq!(
            failure.message,
            "failed to get token for kube-system/job-controller: namespaces \"kube-system\" not found",
            "the server refuses an account without a namespace"
        );
        assert_eq!(failure.reason, ErrorReason::Unauthorized);
        assert!(cluster.take_requests().iter().any(|line| line.ends_with("/serviceaccounts")));

        let cluster = TestCluster::new();
        cluster.faults.add(forbidden().resource("serviceaccounts"));
        let failure = read(&cluster.factory.for_controller("job-controller")).await.unwrap_err();
        assert_eq!(failure.message, "failed to get token for kube-system/job-controller: no");
        assert_eq!(failure.reason, ErrorReason::Unauthorized);
        assert!(!cluster.take_requests().iter().any(|line| line.ends_with("/token")));
    }

    /// Proves GC-6.
    #[tokio::test(start_paused = true)]
    async fn discovery_has_a_rate_limit_of_its_own() {
        let cluster = TestCluster::new();
        let options =
            ClientOptions { throttle: Some(RateLimit { qps: 1.0, burst: 1 }), ..ClientOptions::default() };
        let factory = ClientFactory::new(cluster.factory.connection().clone(), options);
        let discovery = factory.discovery("controller-discovery");
        let start = Instant::now();
        futures::future::join_all((0..200).map(|_| read(&discovery))).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "200 at once");
        futures::future::join_all((0..40).map(|_| read(&discovery))).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2), "then 20 a second");
        let agent = cluster.headers.0.lock()[0].1[USER_AGENT].to_str().unwrap().to_owned();
        assert!(agent.ends_with("/controller-discovery"), "{agent}");
    }

    /// Proves RUN-30.
    #[tokio::test(start_paused = true)]
    async fn controllers_with_one_service_account_share_its_token() {
        let cluster = TestCluster::new();
        for _ in 0..3 {
            read(&cluster.factory.for_controller("certificate-controller")).await.unwrap();
        }
        read(&cluster.factory.for_controller("node-controller")).await.unwrap();
        let tokens = cluster.take_requests().into_iter().filter(|request| request.ends_with("/token"));
        let account = |name| format!("POST /api/v1/namespaces/kube-system/serviceaccounts/{name}/token");
        assert_eq!(
            tokens.collect::<Vec<_>>(),
            [account("certificate-controller"), account("node-controller")]
        );
    }

    /// Proves RUN-31.
    #[tokio::test(start_paused = true)]
    async fn throttled_client_does_not_delay_other_clients() {
        let cluster = TestCluster::new();
        let options =
            ClientOptions { throttle: Some(RateLimit { qps: 1.0, burst: 1 }), ..ClientOptions::default() };
        let factory = ClientFactory::new(cluster.factory.connection().clone(), options);
        let (throttled, other) = (factory.root("throttled"), factory.root("other"));
        let start = Instant::now();
        let delayed = futures::future::join_all((0..4).map(|_| read(&throttled)));
        let other = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            read(&other).await.unwrap();
            start.elapsed()
        };
        let (_, other) = tokio::join!(delayed, other);
        assert_eq!(other, Duration::from_millis(1500));
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn qps_multiplier_scales_qps_and_burst() {
        let cluster = TestCluster::new();
        let throttle = Some(RateLimit { qps: 0.5, burst: 1 });
        let factory = |throttle| {
            let options = ClientOptions { throttle, ..ClientOptions::default() };
            ClientFactory::new(cluster.factory.connection().clone(), options).with_qps_multiplier(2, 3)
        };
        let start = Instant::now();
        let multiplied_client = factory(throttle).root("multiplied");
        futures::future::join_all((0..5).map(|_| read(&multiplied_client))).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2), "three at once, then one a second");
        let unlimited = factory(None).root("unlimited");
        futures::future::join_all((0..50).map(|_| read(&unlimited))).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }

    /// Proves RUN-22.
    #[tokio::test(start_paused = true)]
    async fn without_service_account_credentials_controllers_use_the_managers() {
        let cluster = TestCluster::new();
        let factory = ClientFactory::new(cluster.factory.connection().clone(), ClientOptions::default());
        read(&factory.for_controller("job-controller")).await.unwrap();
        let requests = cluster.headers.0.lock();
        let [(_, headers)] = requests.as_slice() else { panic!("one request") };
        assert!(!headers.contains_key(AUTHORIZATION));
        assert!(headers[USER_AGENT].to_str().unwrap().ends_with("/job-controller"));
    }
}
