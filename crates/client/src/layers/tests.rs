//! Each middleware around a service with given responses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use keleustes_objects::{ApiError, ErrorReason};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer as _, ServiceExt as _};

use super::*;

/// Responds with the given codes in order, then with 200; records the requests and their times.
#[derive(Default)]
struct Server {
    responses: Mutex<VecDeque<(u16, Option<&'static str>)>>,
    requests: Mutex<Vec<(Instant, Method, HeaderMap, Bytes)>>,
    delay: Duration,
    in_flight: Mutex<(usize, usize)>,
}

impl Server {
    fn responding(responses: &[(u16, Option<&'static str>)]) -> Arc<Self> {
        Arc::new(Self { responses: Mutex::new(responses.iter().copied().collect()), ..Self::default() })
    }

    fn transport(self: &Arc<Self>) -> Transport {
        let server = Arc::clone(self);
        transport(tower::service_fn(move |request: Request<Body>| Arc::clone(&server).respond(request)))
    }

    async fn respond(self: Arc<Self>, request: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.requests.lock().push((Instant::now(), parts.method, parts.headers, body));
        {
            let mut in_flight = self.in_flight.lock();
            in_flight.0 += 1;
            in_flight.1 = in_flight.1.max(in_flight.0);
        }
        tokio::time::sleep(self.delay).await;
        self.in_flight.lock().0 -= 1;
        let (code, retry_after) = self.responses.lock().pop_front().unwrap_or((200, None));
        let mut response = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            response = response.header(RETRY_AFTER, seconds);
        }
        Ok(response.body(Full::new(Bytes::from_static(b"{}")))?)
    }

    fn request_times(&self, since: Instant) -> Vec<u64> {
        let requests = self.requests.lock();
        requests.iter().map(|(at, ..)| at.duration_since(since).as_millis() as u64).collect()
    }
}

fn post(path: &str) -> Request<Body> {
    Request::post(path).body(Body::from(b"body".to_vec())).unwrap()
}

/// Proves RUN-33.
#[tokio::test(start_paused = true)]
async fn request_is_retried_after_the_delay_of_retry_after() {
    let server = Server::responding(&[(429, Some("3")), (503, Some("1")), (201, None)]);
    let service = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(server.transport());
    let start = Instant::now();
    let response = service.oneshot(post("/x")).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(server.request_times(start), [0, 3000, 4000]);
    assert!(
        server.requests.lock().iter().all(|(_, method, _, body)| method == Method::POST && body == "body")
    );
}

/// Proves RUN-33.
#[tokio::test(start_paused = true)]
async fn request_without_valid_retry_after_is_not_retried_and_retries_end_after_ten() {
    for response in [(429, None), (503, None), (409, Some("1")), (500, Some("soon"))] {
        let server = Server::responding(&[response]);
        let service = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(server.transport());
        assert_eq!(service.oneshot(post("/x")).await.unwrap().status(), response.0);
        assert_eq!(server.requests.lock().len(), 1);
    }
    let server = Server::responding(&[(429, Some("1")); 20]);
    let service = MiddlewareLayer::new(RetryAfter::new("h".to_owned(), None)).layer(server.transport());
    assert_eq!(service.oneshot(post("/x")).await.unwrap().status(), 429);
    assert_eq!(server.requests.lock().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn throttle_passes_a_burst_and_then_limits_to_qps() {
    let server = Server::responding(&[]);
    let rate = RateLimit { qps: 2.0, burst: 3 };
    let service = MiddlewareLayer::new(Throttle::new(rate, "h".to_owned(), None)).layer(server.transport());
    let start = Instant::now();
    futures::future::join_all((0..6).map(|_| service.clone().oneshot(post("/x")))).await;
    assert_eq!(server.request_times(start), [0, 0, 0, 500, 1000, 1500]);
}

#[tokio::test(start_paused = true)]
async fn watches_are_not_throttled_and_take_no_token() {
    let server = Server::responding(&[]);
    let rate = RateLimit { qps: 2.0, burst: 1 };
    let service = MiddlewareLayer::new(Throttle::new(rate, "h".to_owned(), None)).layer(server.transport());
    let start = Instant::now();
    let get = |target: &str| Request::get(target).body(Body::empty()).unwrap();
    let requests =
        [get("/x?watch=true"), get("/x?watch=1"), get("/x"), get("/x?watch=false"), get("/x?a=b&watch=true")];
    futures::future::join_all(requests.map(|request| service.clone().oneshot(request))).await;
    assert_eq!(server.request_times(start), [0, 0, 0, 0, 500]);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_limited_and_watches_do_not_count() {
    let server = Arc::new(Server { delay: Duration::from_secs(1), ..Server::default() });
    let service = MiddlewareLayer::new(MaxInFlight::new(2)).layer(server.transport());
    let start = Instant::now();
    let requests =
        (0..6).map(|_| post("/x")).chain([Request::get("/x?watch=true").body(Body::empty()).unwrap()]);
    futures::future::join_all(requests.map(|request| service.clone().oneshot(request))).await;
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(server.in_flight.lock().1, 3, "two writes and the watch");
}

#[derive(Default)]
struct RecordingObserver {
    observed: Mutex<Vec<ObservedRequest>>,
    retried: Mutex<Vec<u16>>,
    throttled: Mutex<Vec<Duration>>,
}

impl RequestObserver for RecordingObserver {
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
async fn every_attempt_is_observed_with_code_duration_and_sizes() {
    let server = Arc::new(Server {
        responses: Mutex::new([(429, Some("1"))].into()),
        delay: Duration::from_millis(20),
        ..Server::default()
    });
    let observer_log = Arc::new(RecordingObserver::default());
    let observer: Arc<dyn RequestObserver> = observer_log.clone();
    let observed =
        MiddlewareLayer::new(Observe::new("example:6443", Arc::clone(&observer))).layer(server.transport());
    let service =
        MiddlewareLayer::new(RetryAfter::new("example:6443".to_owned(), Some(observer))).layer(observed);
    let response = service.oneshot(post("/x?y=z")).await.unwrap();
    assert_eq!(observer_log.observed.lock().len(), 1, "the second response has not been read yet");
    response.into_body().collect().await.unwrap();
    let seen = observer_log.observed.lock();
    assert_eq!(seen.iter().map(|request| request.code).collect::<Vec<_>>(), [Some(429), Some(200)]);
    let last = &seen[1];
    assert_eq!((&*last.host, last.path.as_str(), last.is_watch), ("example:6443", "/x", false));
    assert_eq!((last.request_bytes, last.response_bytes), (4, Some(2)));
    assert_eq!(last.duration, Duration::from_millis(20));
    assert_eq!(*observer_log.retried.lock(), [429]);
}

/// Proves RUN-107.
#[tokio::test(start_paused = true)]
async fn watches_are_observed_at_response_headers_and_errors_without_a_code() {
    let server = Server::responding(&[]);
    let observer_log = Arc::new(RecordingObserver::default());
    let watch = Request::get("/x?watch=1").body(Body::empty()).unwrap();
    let service = MiddlewareLayer::new(Observe::new("h", observer_log.clone())).layer(server.transport());
    let _open = service.oneshot(watch).await.unwrap();
    assert!(observer_log.observed.lock()[0].is_watch);
    assert_eq!(observer_log.observed.lock()[0].response_bytes, None);
    let broken = transport(tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Full<Bytes>>, BoxError>("broken".into())
    }));
    let service = MiddlewareLayer::new(Observe::new("h", observer_log.clone())).layer(broken);
    service.oneshot(post("/x")).await.unwrap_err();
    assert_eq!(observer_log.observed.lock()[1].code, None);
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
async fn token_is_rejected_after_a_401() {
    let server = Server::responding(&[(401, None)]);
    let source = Arc::new(Tokens(Mutex::new(vec!["new", "old"])));
    let service = MiddlewareLayer::new(BearerToken::new(source)).layer(server.transport());
    for _ in 0..2 {
        service.clone().oneshot(post("/x")).await.unwrap();
    }
    let requests = server.requests.lock();
    let sent: Vec<_> = requests.iter().map(|(_, _, headers, _)| headers[AUTHORIZATION].clone()).collect();
    assert_eq!(sent, ["Bearer old", "Bearer new"]);
    assert!(sent.iter().all(http::HeaderValue::is_sensitive));
    assert!(!format!("{:?}", Token::new("hunter2")).contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn request_fails_if_no_token_is_available() {
    let server = Server::responding(&[]);
    let service = MiddlewareLayer::new(BearerToken::new(Arc::new(Tokens(Mutex::new(Vec::new())))))
        .layer(server.transport());
    let client = kube::Client::new(service, "default");
    let failure = crate::Call::raw(Method::GET, "/version").send(&client).await.unwrap_err();
    assert_eq!((failure.reason, failure.message.as_str()), (ErrorReason::Unauthorized, "no token left"));
    assert!(server.requests.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn user_agent_header_is_set() {
    let server = Server::responding(&[]);
    let service = MiddlewareLayer::new(UserAgent::new("kcm/v1 (linux)\n")).layer(server.transport());
    service.oneshot(post("/x")).await.unwrap();
    assert_eq!(server.requests.lock()[0].2[USER_AGENT], "kcm/v1 (linux)");
}

/// Proves OPT-114.
#[tokio::test(start_paused = true)]
async fn protobuf_is_not_requested_if_only_json_is_wanted() {
    let server = Server::responding(&[]);
    let service = MiddlewareLayer::new(JsonOnly).layer(server.transport());
    let protobuf = "application/vnd.kubernetes.protobuf";
    for (asked, sent) in [
        (format!("{protobuf},application/json"), "application/json"),
        (
            format!(
                "{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;as=Table,application/json"
            ),
            "application/json;as=Table,application/json",
        ),
        ("application/json;as=Table".to_owned(), "application/json;as=Table"),
        // Nothing else is accepted, so there is nothing to choose.
        (protobuf.to_owned(), protobuf),
    ] {
        let mut request = post("/x");
        request.headers_mut().insert(ACCEPT, asked.parse().unwrap());
        service.clone().oneshot(request).await.unwrap();
        assert_eq!(server.requests.lock().pop().unwrap().2[ACCEPT], sent);
    }
    service.oneshot(post("/x")).await.unwrap();
    assert!(server.requests.lock()[0].2.get(ACCEPT).is_none());
}

/// A write that waits for `Retry-After` is not sent once the process may no longer write.
#[tokio::test(start_paused = true)]
async fn write_is_not_sent_once_fencing_refuses_it() {
    let server = Server::responding(&[(429, Some("5"))]);
    let until = Instant::now() + Duration::from_secs(3);
    let fenced = MiddlewareLayer::new(WriteFence::new(Arc::new(move || Instant::now() < until)))
        .layer(server.transport());
    let service = MiddlewareLayer::new(RetryAfter::new("host".to_owned(), None)).layer(fenced);
    let send = |method: Method| {
        let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
        service.clone().oneshot(request)
    };
    assert!(send(Method::POST).await.is_err());
    assert!(send(Method::DELETE).await.is_err());
    assert_eq!(send(Method::GET).await.unwrap().status(), 200);
    let client = kube::Client::new(service.clone(), "default");
    let failure = crate::Call::raw(Method::POST, "/x").send(&client).await.unwrap_err();
    assert_eq!(failure.message, "not sent: this process may no longer write");
    assert!(!failure.may_have_taken_effect() && failure.reason.is_outage());
    let methods: Vec<_> = server.requests.lock().iter().map(|(_, method, ..)| method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::GET]);
}
