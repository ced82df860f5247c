//! Watches end on time, send bookmarks until then, and report an expired resourceVersion.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use jiff::Timestamp;
use keleustes_apiserver::service::Body;
use keleustes_apiserver::{ApiServer, clock};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn get(server: &ApiServer, target: &str) -> Response<Body> {
    let request = Request::get(target).body(Empty::<bytes::Bytes>::new()).expect("a request");
    server.clone().oneshot(request).await.expect("the service is infallible")
}

/// Each event with its time in seconds, and the time at which the watch ended.
async fn timeline(server: &ApiServer, query: &str) -> (Vec<(u64, String)>, Duration) {
    let began = Instant::now();
    let mut body = get(server, &format!("{CONFIG_MAPS}?watch=1&{query}")).await.into_body();
    let mut events = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let event: Value = serde_json::from_slice(frame.data_ref().expect("data")).expect("JSON");
        events.push((began.elapsed().as_secs(), event["type"].as_str().expect("a type").to_owned()));
    }
    (events, began.elapsed())
}

fn seed(server: &ApiServer, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    server.seed(object).expect("a valid object");
}

fn server() -> ApiServer {
    let server = ApiServer::builder().clock(clock::following_tokio(Timestamp::UNIX_EPOCH)).build();
    for name in ["a", "b", "c"] {
        seed(&server, name);
    }
    server
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute_and_shortly_before_the_end() {
    let server = server();
    let from = server.resource_version();
    let watch = format!("resourceVersion={from}&allowWatchBookmarks=true");
    let (events, lasted) = timeline(&server, &format!("{watch}&timeoutSeconds=150")).await;
    let bookmark = |at: u64| (at, "BOOKMARK".to_owned());
    assert_eq!(events, [bookmark(60), bookmark(120), bookmark(148)]);
    assert_eq!(lasted.as_secs(), 150);
    // A watch this short gets no bookmark, and neither does one that does not allow them.
    assert_eq!(timeline(&server, &format!("{watch}&timeoutSeconds=2")).await.0, []);
    let without_bookmarks = format!("resourceVersion={from}&timeoutSeconds=150");
    assert_eq!(timeline(&server, &without_bookmarks).await.0, []);
}

#[tokio::test(start_paused = true)]
async fn watch_without_timeout_lasts_between_30_and_60_minutes() {
    let (events, lasted) = timeline(&server(), "").await;
    assert_eq!(events.len(), 3);
    assert!((1800..3600).contains(&lasted.as_secs()), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_before_the_history_gets_410() {
    let server = server();
    let old = server.resource_version() - 1;
    let page = get(&server, &format!("{CONFIG_MAPS}?limit=1")).await;
    let page: Value = serde_json::from_slice(&page.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    seed(&server, "d");
    server.compact();
    for query in
        [format!("limit=1&continue={token}"), format!("resourceVersion={old}&resourceVersionMatch=Exact")]
    {
        let answer = get(&server, &format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(answer.status(), 410, "{query}");
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let status: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(status["reason"], "Expired");
    }
    // As with kube-apiserver, the error is an event in the stream, which then ends.
    let (events, lasted) = timeline(&server, &format!("resourceVersion={old}")).await;
    assert_eq!((events, lasted), (vec![(0, "ERROR".to_owned())], Duration::ZERO));
}
