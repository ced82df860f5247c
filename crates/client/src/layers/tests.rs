//! Each concern around a service that answers as the test tells it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use keleustes_objects::{ApiError, ErrorReason};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer as _, ServiceExt as _};

use super::*;

/// Answers with the given codes in turn, then with 200; remembers what it was asked and when.
#[derive(Default)]
struct Server {
    answers: Mutex<VecDeque<(u16, Option<&'static str>)>>,
    asked: Mutex<Vec<(Instant, Method, HeaderMap, Bytes)>>,
    delay: Duration,
    busy: Mutex<(usize, usize)>,
}

impl Server {
    fn answering(answers: &[(u16, Option<&'static str>)]) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.iter().copied().collect()), ..Self::default() })
    }

    fn transport(self: &Arc<Self>) -> Transport {
        let server = Arc::clone(self);
        transport(tower::service_fn(move |request: Request<Body>| Arc::clone(&server).answer(request)))
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.asked.lock().push((Instant::now(), parts.method, parts.headers, body));
        {
            let mut busy = self.busy.lock();
            busy.0 += 1;
            busy.1 = busy.1.max(busy.0);
        }
        tokio::time::sleep(self.delay).await;
        self.busy.lock().0 -= 1;
        let (code, retry_after) = self.answers.lock().pop_front().unwrap_or((200, None));
        let mut response = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            response = response.header(RETRY_AFTER, seconds);
        }
        Ok(response.body(Full::new(Bytes::from_static(b"{}")))?)
    }

    fn times(&self, since: Instant) -> Vec<u64> {
        let asked = self.asked.lock();
        asked.iter().map(|(at, ..)| at.duration_since(since).as_millis() as u64).collect()
    }
}

fn post(path: &str) -> Request<Body> {
    Request::post(path).body(Body::from(b"body".to_vec())).unwrap()
}

/// Proves RUN-33.
#[tokio::test(start_paused = true)]
async fn requests_are_repeated_when_the_server_says_when() {
    let server = Server::answering(&[(429, Some("3")), (503, Some("1")), (201, None)]);
    let service = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(server.transport());
    let start = Instant::now();
    let response = service.oneshot(post("/x")).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(server.times(start), [0, 3000, 4000]);
    assert!(server.asked.lock().iter().all(|(_, method, _, body)| method == Method::POST && body == "body"));
}

/// Proves RUN-33.
#[tokio::test(start_paused = true)]
async fn requests_are_not_repeated_otherwise() {
    for answer in [(429, None), (503, None), (409, Some("1")), (500, Some("soon"))] {
        let server = Server::answering(&[answer]);
        let service = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(server.transport());
        assert_eq!(service.oneshot(post("/x")).await.unwrap().status(), answer.0);
        assert_eq!(server.asked.lock().len(), 1);
    }
    let server = Server::answering(&[(429, Some("1")); 20]);
    let service = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(server.transport());
    assert_eq!(service.oneshot(post("/x")).await.unwrap().status(), 429);
    assert_eq!(server.asked.lock().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_rate_lets_a_burst_through_and_then_one_by_one() {
    let server = Server::answering(&[]);
    let rate = RateLimit { qps: 2.0, burst: 3 };
    let service = MiddlewareLayer::new(Throttle::new(rate, "h".to_owned(), None)).layer(server.transport());
    let start = Instant::now();
    futures::future::join_all((0..6).map(|_| service.clone().oneshot(post("/x")))).await;
    assert_eq!(server.times(start), [0, 0, 0, 500, 1000, 1500]);
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_requests_is_in_flight_and_watches_do_not_count() {
    let server = Arc::new(Server { delay: Duration::from_secs(1), ..Server::default() });
    let service = MiddlewareLayer::new(MaxInFlight::new(2)).layer(server.transport());
    let start = Instant::now();
    let requests =
        (0..6).map(|_| post("/x")).chain([Request::get("/x?watch=true").body(Body::empty()).unwrap()]);
    futures::future::join_all(requests.map(|request| service.clone().oneshot(request))).await;
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(server.busy.lock().1, 3, "two writes and the watch");
}

#[derive(Default)]
struct Ledger {
    observed: Mutex<Vec<ObservedRequest>>,
    retried: Mutex<Vec<u16>>,
    throttled: Mutex<Vec<Duration>>,
}

impl RequestObserver for Ledger {
    fn observed(&self, request: &ObservedRequest) {
        self.observed.lock().push(request.clone());
    }
    fn throttled(&self, _: &Method, _: &str, waited: Duration) {
        self.throttled.lock().push(waited);
    }
    fn retried(&self, _: &Method, _: &str, code: u16) {
        self.retried.lock().push(code);
    }
}

/// Proves RUN-107.
#[tokio::test(start_paused = true)]
async fn every_attempt_is_observed_with_its_code_time_and_sizes() {
    let server = Arc::new(Server {
        answers: Mutex::new([(429, Some("1"))].into()),
        delay: Duration::from_millis(20),
        ..Server::default()
    });
    let ledger = Arc::new(Ledger::default());
    let observer: Arc<dyn RequestObserver> = ledger.clone();
    let observed =
        MiddlewareLayer::new(Observe::new("example:6443", Arc::clone(&observer))).layer(server.transport());
    let service =
        MiddlewareLayer::new(RetryAfter::new("example:6443".to_owned(), Some(observer))).layer(observed);
    let response = service.oneshot(post("/x?y=z")).await.unwrap();
    assert_eq!(ledger.observed.lock().len(), 1, "the second answer has not been read yet");
    response.into_body().collect().await.unwrap();
    let seen = ledger.observed.lock();
    assert_eq!(seen.iter().map(|request| request.code).collect::<Vec<_>>(), [Some(429), Some(200)]);
    let last = &seen[1];
    assert_eq!((&*last.host, last.path.as_str(), last.is_watch), ("example:6443", "/x", false));
    assert_eq!((last.request_bytes, last.response_bytes), (4, Some(2)));
    assert_eq!(last.duration, Duration::from_millis(20));
    assert_eq!(*ledger.retried.lock(), [429]);
}

/// Proves RUN-107.
#[tokio::test(start_paused = true)]
async fn watches_are_observed_when_they_are_answered_and_failures_without_a_code() {
    let server = Server::answering(&[]);
    let ledger = Arc::new(Ledger::default());
    let watch = Request::get("/x?watch=1").body(Body::empty()).unwrap();
    let service = MiddlewareLayer::new(Observe::new("h", ledger.clone())).layer(server.transport());
    let _open = service.oneshot(watch).await.unwrap();
    assert!(ledger.observed.lock()[0].is_watch);
    assert_eq!(ledger.observed.lock()[0].response_bytes, None);
    let broken = transport(tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Full<Bytes>>, BoxError>("broken".into())
    }));
    let service = MiddlewareLayer::new(Observe::new("h", ledger.clone())).layer(broken);
    service.oneshot(post("/x")).await.unwrap_err();
    assert_eq!(ledger.observed.lock()[1].code, None);
}

struct Tokens(Mutex<Vec<&'static str>>);

impl TokenSource for Tokens {
    fn token(&self) -> BoxFuture<'_, Result<Token, ApiError>> {
        Box::pin(async {
            let tokens = self.0.lock();
            let token = tokens.last().and_then(|token| Token::new(token));
            token.ok_or_else(|| ApiError::transport(ErrorReason::Unauthorized, "no token left"))
        })
    }
    fn reject(&self, _: &Token) {
        self.0.lock().pop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_accepted_is_given_up() {
    let server = Server::answering(&[(401, None)]);
    let source = Arc::new(Tokens(Mutex::new(vec!["new", "old"])));
    let service = MiddlewareLayer::new(BearerToken::new(source)).layer(server.transport());
    for _ in 0..2 {
        service.clone().oneshot(post("/x")).await.unwrap();
    }
    let asked = server.asked.lock();
    let sent: Vec<_> = asked.iter().map(|(_, _, headers, _)| headers[AUTHORIZATION].clone()).collect();
    assert_eq!(sent, ["Bearer old", "Bearer new"]);
    assert!(sent.iter().all(http::HeaderValue::is_sensitive));
    assert!(!format!("{:?}", Token::new("hunter2")).contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn the_lack_of_a_token_is_a_failure_of_the_request() {
    let server = Server::answering(&[]);
    let service = MiddlewareLayer::new(BearerToken::new(Arc::new(Tokens(Mutex::new(Vec::new())))))
        .layer(server.transport());
    let client = kube::Client::new(service, "default");
    let failure = crate::Call::raw(Method::GET, "/version").send(&client).await.unwrap_err();
    assert_eq!((failure.reason, failure.message.as_str()), (ErrorReason::Unauthorized, "no token left"));
    assert!(server.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_user_agent_is_told() {
    let server = Server::answering(&[]);
    let service = MiddlewareLayer::new(UserAgent::new("kcm/v1 (linux)\n")).layer(server.transport());
    service.oneshot(post("/x")).await.unwrap();
    assert_eq!(server.asked.lock()[0].2[USER_AGENT], "kcm/v1 (linux)");
}

/// A change that the server wanted to have later is not sent again by whoever may not make it any more.
#[tokio::test(start_paused = true)]
async fn what_may_not_be_written_any_more_does_not_leave() {
    let server = Server::answering(&[(429, Some("5"))]);
    let until = Instant::now() + Duration::from_secs(3);
    let permitted = MiddlewareLayer::new(WriteFence::new(Arc::new(move || Instant::now() < until)))
        .layer(server.transport());
    let way = MiddlewareLayer::new(RetryAfter::new("host".to_owned(), None)).layer(permitted);
    let send = |method: Method| {
        let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
        way.clone().oneshot(request)
    };
    assert!(send(Method::POST).await.is_err());
    assert!(send(Method::DELETE).await.is_err());
    assert_eq!(send(Method::GET).await.unwrap().status(), 200);
    let methods: Vec<_> = server.asked.lock().iter().map(|(_, method, ..)| method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::GET]);
}
