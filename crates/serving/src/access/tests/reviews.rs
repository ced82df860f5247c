//! TokenReviews and SubjectAccessReviews.

use tokio::time::{Instant, advance};

use super::*;

/// Proves SRV-61, SRV-62, SRV-65, SRV-90.
#[tokio::test(start_paused = true)]
async fn token_reviews_are_cached_for_ten_seconds() {
    let cluster = Cluster::default();
    *cluster.0.allows_jane.lock() = true;
    let access = open(&cluster).await;
    for _ in 0..3 {
        assert_eq!(get_metrics(&access, "jane").await, (200, "jane".to_owned()));
        assert_eq!(get_metrics(&access, "invalid").await.0, 401);
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
        "spec": {"token": "jane"}});
    let requests = cluster.requests(TOKEN_REVIEWS);
    assert_eq!((requests.len(), &requests[0]), (2, &review), "one per token, without audiences");
    assert_eq!(
        cluster.requests(ACCESS_REVIEWS)[0]["spec"],
        json!({"user": "jane", "uid": "7", "groups": ["rowers", "system:authenticated"], "extra": {"k": ["v"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
    );
    advance(Duration::from_millis(9_900)).await;
    get_metrics(&access, "jane").await;
    assert_eq!(cluster.count(TOKEN_REVIEWS), 2);
    advance(Duration::from_millis(200)).await;
    get_metrics(&access, "jane").await;
    assert_eq!(cluster.count(TOKEN_REVIEWS), 3, "reviewed again after ten seconds");
    for _ in 0..2 {
        assert_eq!(get_metrics(&access, "stale").await.0, 401);
    }
    assert_eq!(cluster.count(TOKEN_REVIEWS), 5, "errors are not cached");
}

/// Proves SRV-65.
#[tokio::test(start_paused = true)]
async fn concurrent_requests_with_one_token_share_a_review() {
    let cluster = Cluster::default();
    *cluster.0.delay.lock() = Duration::from_secs(1);
    let access = open(&cluster).await;
    let all = futures::future::join_all((0..8).map(|_| get_metrics(&access, "jane"))).await;
    assert!(all.iter().all(|response| response.0 == 403), "{all:?}");
    assert_eq!(cluster.count(TOKEN_REVIEWS), 1);
    // A cancelled request does not cancel the review.
    let impatient = tokio::time::timeout(Duration::from_millis(500), get_metrics(&access, "invalid")).await;
    assert!(impatient.is_err());
    assert_eq!(get_metrics(&access, "invalid").await.0, 401);
    assert_eq!(cluster.count(TOKEN_REVIEWS), 2);
}

/// Proves SRV-66.
#[tokio::test(start_paused = true)]
async fn transient_review_errors_are_retried() {
    for code in
        [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::GATEWAY_TIMEOUT, StatusCode::TOO_MANY_REQUESTS]
    {
        let cluster = Cluster::default();
        let access = open(&cluster).await;
        cluster.fail(code, 4);
        let started_at = Instant::now();
        assert_eq!(get_metrics(&access, "master").await.0, 200, "{code}");
        assert_eq!(cluster.count(TOKEN_REVIEWS), 5);
        let pauses = 0.5 * (1.0 + 1.5 + 2.25 + 3.375);
        let took = started_at.elapsed().as_secs_f64();
        assert!(took > pauses && took < pauses * 1.2 + 0.1, "{took} s");
    }
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    cluster.fail(StatusCode::INTERNAL_SERVER_ERROR, 5);
    assert_eq!(get_metrics(&access, "master").await.0, 401, "five attempts at most");
    assert_eq!(get_metrics(&access, "master").await.0, 200, "the error is not cached");
    cluster.fail(StatusCode::FORBIDDEN, 1);
    assert_eq!(get_metrics(&access, "jane").await.0, 401, "a permanent error is not retried");
    let slow = Cluster::default();
    let access = open(&slow).await;
    *slow.0.delay.lock() = Duration::from_secs(60);
    let started_at = Instant::now();
    assert_eq!(get_metrics(&access, "master").await.0, 401);
    assert!(started_at.elapsed() < Duration::from_secs(11), "{:?}", started_at.elapsed());
}

/// Proves SRV-62, SRV-101.
#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_down_anonymous_requests_get_only_health() {
    let down = ApiServerClient::from_service(tower::service_fn(|_: Request<Bytes>| async {
        Err::<Response<Full<Bytes>>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    }));
    let delegates = DelegatingClients { authentication: Some(down.clone()), authorization: Some(down) };
    let authentication = AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() };
    let options = AuthorizationOptions::default();
    let rng = fastrand::Rng::with_seed(1);
    let access = Access::open(&authentication, &options, delegates, &Registry::new(), rng).await.unwrap();
    assert_eq!(get(&access, "/healthz", &[], &[]).await.0, 200);
    assert_eq!(get(&access, "/healthz", &[("authorization", "Bearer jane")], &[]).await.0, 401);
    assert_eq!(get_metrics(&access, "").await.0, 500, "the review fails");
}

/// Proves SRV-60, SRV-64, SRV-75.
#[tokio::test]
async fn without_delegation_every_request_is_anonymous() {
    let access = Access::deny_all();
    for token in ["", "jane", "master"] {
        assert_eq!(get_metrics(&access, token).await, (403, "system:anonymous".to_owned()));
        let headers = [("authorization", "Bearer x")];
        assert_eq!(get(&access, "/healthz", &headers, &[]).await.0, 200);
    }
}

/// Proves SRV-75, SRV-81.
#[tokio::test]
async fn masters_and_always_allowed_paths_need_no_review() {
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    assert_eq!(get_metrics(&access, "master").await, (200, "m".to_owned()));
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&access, path, &[], &[]).await.0, 200);
    }
    assert_eq!(cluster.count(ACCESS_REVIEWS), 0);
    for path in ["/metrics", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/nosuch"] {
        assert_eq!(get(&access, path, &[], &[]).await, (403, "system:anonymous".to_owned()), "{path}");
    }
    assert_eq!(cluster.count(ACCESS_REVIEWS), 6);
    let anonymous = &cluster.requests(ACCESS_REVIEWS)[0]["spec"];
    assert_eq!(
        (&anonymous["user"], &anonymous["groups"]),
        (&json!("system:anonymous"), &json!(["system:unauthenticated"]))
    );
}

/// Proves SRV-77.
#[tokio::test]
async fn reviews_use_non_resource_attributes_with_the_method_as_verb() {
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    let path = "/api/v1/pods";
    access.authenticate_and_authorize(&mut head("DELETE", path, &[]), path, &[]).await;
    let spec = &cluster.requests(ACCESS_REVIEWS)[0]["spec"];
    assert_eq!(spec["nonResourceAttributes"], json!({"path": "/api/v1/pods", "verb": "delete"}));
    assert!(spec.get("resourceAttributes").is_none());
}

/// Proves SRV-78, SRV-104.
#[tokio::test(start_paused = true)]
async fn access_reviews_are_cached_for_the_configured_ttls() {
    let cluster = Cluster::default();
    let options = AuthorizationOptions {
        allowed_cache_ttl: Duration::from_secs(20),
        denied_cache_ttl: Duration::from_secs(5),
        ..AuthorizationOptions::default()
    };
    let access =
        open_with(&cluster, &AuthenticationOptions::default(), &options, &Registry::new()).await.unwrap();
    assert_eq!(get_metrics(&access, "jane").await.0, 403);
    *cluster.0.allows_jane.lock() = true;
    assert_eq!(get_metrics(&access, "jane").await.0, 403, "a denial is cached");
    advance(Duration::from_secs(5)).await;
    assert_eq!(get_metrics(&access, "jane").await.0, 200);
    *cluster.0.allows_jane.lock() = false;
    advance(Duration::from_secs(19)).await;
    assert_eq!(get_metrics(&access, "jane").await.0, 200, "an approval is cached");
    advance(Duration::from_secs(1)).await;
    assert_eq!(get_metrics(&access, "jane").await.0, 403);
    assert_eq!(cluster.count(ACCESS_REVIEWS), 3);
    let long = format!("/{}", "a".repeat(10_000));
    for _ in 0..2 {
        get(&access, &long, &[], &[]).await;
    }
    assert_eq!(cluster.count(ACCESS_REVIEWS), 5, "long paths are not cached");
}

/// Proves SRV-79, SRV-80.
#[tokio::test(start_paused = true)]
async fn denials_have_reasons_and_errors_are_not_cached() {
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    assert_eq!(get(&access, "/denied", &[], &[]).await, (403, "system:anonymousnever".to_owned()));
    assert_eq!(get(&access, "/both", &[], &[]).await.0, 500);
    cluster.fail(StatusCode::INTERNAL_SERVER_ERROR, 5);
    let failed = get(&access, "/metrics", &[], &[]).await;
    assert_eq!(failed, (500, format!("{ACCESS_REVIEWS}: not now")));
    assert_eq!(get(&access, "/metrics", &[], &[]).await.0, 403);
}

/// Proves SRV-33, SRV-34.
#[tokio::test(start_paused = true)]
async fn metrics_count_authentication_and_authorization() {
    let (cluster, registry) = (Cluster::default(), Registry::new());
    let (authentication, authorization) = (AuthenticationOptions::default(), AuthorizationOptions::default());
    let access = open_with(&cluster, &authentication, &authorization, &registry).await.unwrap();
    for token in ["jane", "jane", "master", "bad", ""] {
        get_metrics(&access, token).await;
    }
    get(&access, "/denied", &[], &[]).await;
    cluster.fail(StatusCode::INTERNAL_SERVER_ERROR, 5);
    get(&access, "/other", &[], &[]).await;
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        "authenticated_user_requests{username=\"other\"} 6",
        "authentication_attempts{result=\"success\"} 6",
        "authentication_attempts{result=\"error\"} 1",
        "authentication_duration_seconds_count{result=\"success\"} 6",
        "authorization_attempts_total{result=\"allowed\"} 1",
        "authorization_attempts_total{result=\"no-opinion\"} 3",
        "authorization_attempts_total{result=\"denied\"} 1",
        "authorization_attempts_total{result=\"error\"} 1",
        "authorization_duration_seconds_count{result=\"error\"} 1",
        "apiserver_delegated_authn_request_total{code=\"201\"} 3",
        "apiserver_delegated_authn_request_duration_seconds_count{code=\"201\"} 3",
        "apiserver_delegated_authz_request_total{code=\"201\"} 3",
        "apiserver_delegated_authz_request_total{code=\"500\"} 5",
        "apiserver_delegated_authz_request_duration_seconds_count{code=\"500\"} 5",
        "authentication_token_cache_request_total{status=\"hit\"} 1",
        "authentication_token_cache_request_total{status=\"miss\"} 3",
        "authentication_token_cache_fetch_total{status=\"error\"} 1",
        "authentication_token_cache_active_fetch_count{status=\"in_flight\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// Anyone can send random bearer tokens.
#[tokio::test(start_paused = true)]
async fn reviews_are_limited_to_a_burst_of_400_and_200_per_second() {
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    let tokens: Vec<String> = (0..3000).map(|n| format!("random-{n}")).collect();
    let started_at = tokio::time::Instant::now();
    let mut flood =
        Box::pin(futures::future::join_all(tokens.iter().map(|token| get_metrics(&access, token))));
    tokio::select! {
        biased;
        _ = &mut flood => panic!("3000 reviews without a limit"),
        () = tokio::time::sleep(Duration::from_millis(990)) => {}
    }
    let sent = cluster.count(TOKEN_REVIEWS);
    assert!((590..=600).contains(&sent), "{sent} reviews in the first second");
    let answers = flood.await;
    assert!(started_at.elapsed() < Duration::from_secs(12), "{:?}", started_at.elapsed());
    assert!(answers.iter().all(|(code, _)| *code != 200));
    // 400 at once and 200 in each of the ten seconds that a request may wait.
    let sent = cluster.count(TOKEN_REVIEWS);
    assert!((2400..=2401).contains(&sent), "{sent} reviews in all");
    assert_eq!(get_metrics(&access, "master").await.0, 200, "afterwards all is as before");
}

/// Anyone with a valid token can ask for pages that do not exist.
#[tokio::test(start_paused = true)]
async fn access_reviews_have_a_limit_of_their_own() {
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    let jane = [("authorization", "Bearer jane")];
    let paths: Vec<String> = (0..3000).map(|n| format!("/page-{n}")).collect();
    let mut flood =
        Box::pin(futures::future::join_all(paths.iter().map(|path| get(&access, path, &jane, &[]))));
    tokio::select! {
        biased;
        _ = &mut flood => panic!("3000 reviews without a limit"),
        () = tokio::time::sleep(Duration::from_millis(990)) => {}
    }
    let sent = cluster.count(ACCESS_REVIEWS);
    assert!((590..=600).contains(&sent), "{sent} reviews in the first second");
    assert_eq!(cluster.count(TOKEN_REVIEWS), 1, "all requests have the same token");
    // Another token is reviewed at once, and its user needs no SubjectAccessReview.
    let started_at = Instant::now();
    tokio::select! {
        biased;
        answer = get_metrics(&access, "master") => assert_eq!(answer.0, 200),
        _ = &mut flood => panic!("the token waits for the SubjectAccessReviews"),
    }
    assert!(started_at.elapsed() < Duration::from_millis(10), "{:?}", started_at.elapsed());
    let answers = flood.await;
    assert!(answers.iter().all(|(code, _)| matches!(code, 403 | 500)));
    let sent = cluster.count(ACCESS_REVIEWS);
    assert!((2400..=2401).contains(&sent), "{sent} reviews in all");
}

/// Random tokens exhaust the TokenReviews; a user whose token is cached and an anonymous one are authorized at once.
#[tokio::test(start_paused = true)]
async fn exhausted_token_reviews_leave_access_reviews_free() {
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    let jane = [("authorization", "Bearer jane")];
    assert_eq!(get(&access, "/before", &jane, &[]).await.0, 403);
    let tokens: Vec<String> = (0..1000).map(|n| format!("random-{n}")).collect();
    let mut flood =
        Box::pin(futures::future::join_all(tokens.iter().map(|token| get_metrics(&access, token))));
    tokio::select! {
        biased;
        _ = &mut flood => panic!("1000 reviews without a limit"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    let started_at = Instant::now();
    for (path, headers) in [("/new", &jane[..]), ("/other", &[])] {
        tokio::select! {
            biased;
            answer = get(&access, path, headers, &[]) => assert_eq!(answer.0, 403),
            _ = &mut flood => panic!("{path} waits for the TokenReviews"),
        }
    }
    assert!(started_at.elapsed() < Duration::from_millis(10), "{:?}", started_at.elapsed());
}

/// A peer that never ends its response must not fill the memory.
#[tokio::test(start_paused = true)]
async fn endless_response_to_a_review_is_an_error() {
    const CHUNK: Bytes = Bytes::from_static(&[b' '; 16 * 1024]);
    for code in [201, 500] {
        let read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&read);
        let endless = ApiServerClient::from_service(tower::service_fn(move |_: Request<Bytes>| {
            let counter = Arc::clone(&counter);
            let chunks = futures::stream::repeat_with(move || {
                counter.fetch_add(CHUNK.len(), Ordering::Relaxed);
                Ok::<_, std::io::Error>(http_body::Frame::data(CHUNK))
            });
            let body = http_body_util::StreamBody::new(chunks);
            std::future::ready(Response::builder().status(code).body(body))
        }));
        let delegates = DelegatingClients { authentication: None, authorization: Some(endless) };
        let authentication = AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() };
        let (options, rng) = (AuthorizationOptions::default(), fastrand::Rng::with_seed(1));
        let access = Access::open(&authentication, &options, delegates, &Registry::new(), rng).await.unwrap();
        assert_eq!(get(&access, "/metrics", &[], &[]).await.0, 500);
        let read = read.load(Ordering::Relaxed);
        assert!(read < 5 * 1024 * 1024, "{code}: {read} bytes were read");
    }
}
