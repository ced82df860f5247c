//! Reflectors against the embedded API server with injected faults, and against scripted responses.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
use keleustes_objects::{
    DecodeError, Encoded, Kind, Object, PartialObjectMeta, ReplicaSet, Resource, ResourceVersion,
    ServiceAccount, TokenSecret,
};
use keleustes_test_log::TestLog;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, Layer as _, ServiceExt as _};
use tracing::Level;

use super::*;
use crate::layers::{HttpService, Middleware, MiddlewareLayer, ResponseBody, transport};

/// The embedded API server, injected faults and the recorded requests.
struct TestCluster {
    server: ApiServer,
    faults: Faults,
    request_log: Arc<RequestLog>,
    client: Client,
}

#[derive(Default)]
struct RequestLog {
    requests: Mutex<Vec<(Instant, String, String)>>,
}

impl Middleware for RequestLog {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let accept = request.headers()[ACCEPT].to_str()?.to_owned();
        let entry = (Instant::now(), request.uri().to_string(), accept);
        self.requests.lock().push(entry);
        inner.oneshot(request).await
    }
}

impl RequestLog {
    fn targets(&self) -> Vec<String> {
        self.requests.lock().iter().map(|(_, target, _)| target.clone()).collect()
    }

    /// A short form of each request: `stream from 7`, `list from newest limit 500`, `watch from 9`, ...
    fn summaries(&self) -> Vec<String> {
        self.targets().iter().map(|target| summary(target)).collect()
    }
}

fn summary(target: &str) -> String {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let from = value("resourceVersion").unwrap_or_else(|| "newest".to_owned());
    if value("sendInitialEvents").is_some() {
        return format!("stream from {from}");
    }
    if value("watch").is_some() {
        return format!("watch from {from}");
    }
    let limit = value("limit").map_or_else(String::new, |limit| format!(" limit {limit}"));
    let next = value("continue").map_or("", |_| " next page");
    format!("list from {from}{limit}{next}")
}

impl TestCluster {
    fn new() -> Self {
        let server = ApiServer::builder().seed(7).build();
        let faults = Faults::new();
        let request_log = Arc::new(RequestLog::default());
        let service = MiddlewareLayer::shared(Arc::clone(&request_log));
        let client = Client::new(service.layer(transport(faults.layer(server.clone()))), "default");
        Self { server, faults, request_log, client }
    }

    fn with_accounts(names: &[&str]) -> Self {
        let cluster = Self::new();
        names.iter().for_each(|name| cluster.put(name));
        cluster
    }

    /// Creates or updates a ServiceAccount.
    fn put(&self, name: &str) {
        self.server.seed(account(name)).unwrap();
    }

    fn now(&self) -> ResourceVersion {
        ResourceVersion::from(self.server.resource_version().to_string().as_str())
    }

    fn accounts(&self) -> Reflector<ServiceAccount> {
        Reflector::new(self.client.clone(), ListWatch::of_kind(), fastrand::Rng::with_seed(1))
    }

    /// A reflector that has synced.
    async fn synced(&self) -> Reflector<ServiceAccount> {
        let mut reflector = self.accounts();
        assert!(matches!(reflector.next().await, Delta::Replace { .. }));
        reflector
    }

    fn inject(&self, rule: FaultRule) {
        self.faults.add(rule);
    }

    fn refuse_streams(&self) {
        let verdict = InjectedFault::status(422, "Invalid", "sendInitialEvents is forbidden");
        self.inject(FaultRule::new(verdict).target("sendInitialEvents"));
    }
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
}

fn names(delta: &Delta<ServiceAccount>) -> Vec<String> {
    let name = |account: &ServiceAccount| account.key().name.to_string();
    match delta {
        Delta::Replace { objects, .. } => {
            let mut names: Vec<_> = objects.iter().map(name).collect();
            names.sort();
            names
        }
        Delta::Apply(account) => vec![format!("+{}", name(account))],
        Delta::Delete(account) => vec![format!("-{}", name(account))],
        Delta::DeleteKey { key, uid, version } => vec![format!("-{key} {uid} @{version}")],
        Delta::Bookmark(version) => vec![format!("@{version}")],
    }
}

/// Proves INF-1, INF-10, INF-11, INF-12.
#[tokio::test(start_paused = true)]
async fn watch_list_returns_all_objects_and_then_changes() {
    let cluster = TestCluster::with_accounts(&["a", "b", "c"]);
    let before = cluster.now();
    let mut reflector = cluster.accounts();
    let first = reflector.next().await;
    assert_eq!(names(&first), ["a", "b", "c"]);
    let Delta::Replace { version, .. } = first else { panic!() };
    assert_eq!(version, before);
    assert_eq!(reflector.last_sync_resource_version(), &before);

    cluster.put("d");
    assert_eq!(names(&reflector.next().await), ["+d"]);
    cluster.put("a");
    assert_eq!(names(&reflector.next().await), ["+a"]);
    cluster.server.remove("serviceaccounts", "default", "b");
    assert_eq!(names(&reflector.next().await), ["-b"]);
    assert_eq!(reflector.last_sync_resource_version(), &cluster.now());

    let targets = cluster.request_log.targets();
    let [target] = targets.as_slice() else { panic!("one request for all of it: {targets:?}") };
    let (query, timeout) = target.rsplit_once("&timeoutSeconds=").unwrap();
    assert_eq!(
        query,
        "/api/v1/serviceaccounts?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=true&allowWatchBookmarks=true"
    );
    assert!((300..=600).contains(&timeout.parse::<u32>().unwrap()));
}

/// Proves INF-1.
#[tokio::test(start_paused = true)]
async fn projections_request_only_the_selected_objects_and_metadata() {
    let cluster = TestCluster::new();
    let secret = |name: &str, kind: &str| {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"l": "x"}});
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": {"k": "djE="}})
    };
    cluster.server.seed(secret("t", "kubernetes.io/service-account-token")).unwrap();
    cluster.server.seed(secret("o", "Opaque")).unwrap();

    let rng = fastrand::Rng::with_seed(1);
    let mut tokens: Reflector<TokenSecret> =
        Reflector::new(cluster.client.clone(), ListWatch::of_kind(), rng.clone());
    let Delta::Replace { objects, .. } = tokens.next().await else { panic!() };
    assert_eq!(objects.len(), 1);
    assert!(
        cluster.request_log.targets()[0]
            .contains("fieldSelector=type%3Dkubernetes.io%2Fservice-account-token")
    );

    let source = ListWatch::metadata_of(TokenSecret::RESOURCE).in_namespace("default");
    let mut metadata: Reflector<PartialObjectMeta> = Reflector::new(cluster.client.clone(), source, rng);
    let Delta::Replace { objects, .. } = metadata.next().await else { panic!() };
    assert_eq!(objects.len(), 2);
    assert!(objects.iter().all(|object| object.meta.labels.value("l").is_some()));
    let request_log = cluster.request_log.requests.lock();
    assert!(request_log[1].1.starts_with("/api/v1/namespaces/default/secrets?"));
    assert!(request_log[1].2.contains(",application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"));
}

/// Proves INF-30.
#[tokio::test(start_paused = true)]
async fn every_event_arrives_in_order() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    for _ in 0..5 {
        cluster.put("a");
    }
    cluster.server.remove("serviceaccounts", "default", "a");
    cluster.put("a");
    let mut versions = Vec::new();
    for expected in ["+a", "+a", "+a", "+a", "+a", "-a", "+a"] {
        let delta = reflector.next().await;
        assert_eq!(names(&delta), [expected]);
        versions.push(reflector.last_sync_resource_version().clone());
    }
    assert!(versions.windows(2).all(|pair| pair[0].is_older_than(&pair[1])), "{versions:?}");
}

/// Proves INF-13.
#[tokio::test(start_paused = true)]
async fn objects_of_an_interrupted_watch_list_are_discarded() {
    for cleanly in [true, false] {
        let cluster = TestCluster::with_accounts(&["a", "b", "c"]);
        let cut = InjectedFault::CutStream { after_events: 2, cleanly };
        cluster.inject(FaultRule::new(cut).times(1));
        let mut reflector = cluster.accounts();
        assert_eq!(names(&reflector.next().await), ["a", "b", "c"]);
        assert_eq!(cluster.request_log.summaries(), ["stream from newest", "stream from newest"]);
    }
}

/// Proves INF-13, INF-27.
#[tokio::test(start_paused = true)]
async fn unreachable_server_is_retried_with_backoff() {
    let cluster = TestCluster::with_accounts(&["a"]);
    cluster.inject(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(2));
    cluster.inject(FaultRule::new(InjectedFault::status(429, "TooManyRequests", "busy")).times(1));
    let start = Instant::now();
    assert_eq!(names(&cluster.accounts().next().await), ["a"]);
    assert_eq!(cluster.request_log.summaries(), ["stream from newest"; 4]);
    let elapsed = start.elapsed().as_secs_f64();
    assert!((0.8 + 1.6 + 3.2..2.0 * (0.8 + 1.6 + 3.2)).contains(&elapsed), "{elapsed}");
}

/// Proves INF-14, INF-15, INF-20.
#[tokio::test(start_paused = true)]
async fn server_without_watch_list_is_listed_in_pages_and_watched() {
    let cluster = TestCluster::new();
    for number in 0..1200 {
        cluster.put(&format!("account-{number:04}"));
    }
    cluster.refuse_streams();
    let mut reflector = cluster.accounts();
    let first = reflector.next().await;
    assert_eq!(names(&first).len(), 1200);
    assert_eq!(reflector.last_sync_resource_version(), &cluster.now());
    cluster.put("late");
    assert_eq!(names(&reflector.next().await), ["+late"]);
    let summaries = cluster.request_log.summaries();
    assert_eq!(summaries[..2], ["stream from newest", "list from newest limit 500"]);
    assert!(
        summaries[2..summaries.len() - 1].iter().all(|page| page == "list from newest limit 500 next page")
    );
    assert!(summaries[summaries.len() - 1].starts_with("watch from "));
    let watch = cluster.request_log.targets().pop().unwrap();
    assert!(watch.contains("allowWatchBookmarks=true") && watch.contains("timeoutSeconds="));
}

/// Proves INF-16.
#[tokio::test(start_paused = true)]
async fn expired_continue_token_is_followed_by_a_list_without_limit() {
    let page = |name: &str, next: &str| list("ServiceAccountList", "40", next, &[account(name)]);
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &page("a", "token")),
        ScriptedResponse::status(410, "Expired"),
        ScriptedResponse::of(200, &page("b", "")),
    ]);
    let mut reflector = scripted_server.accounts();
    assert_eq!(names(&reflector.next().await), ["b"], "the objects of the first page are discarded");
    assert_eq!(
        scripted_server.summaries(),
        [
            "stream from newest",
            "list from newest limit 500",
            "list from newest limit 500 next page",
            "list from newest"
        ]
    );
}

/// Proves INF-17.
#[tokio::test(start_paused = true)]
async fn expired_resource_version_is_followed_by_a_list_of_the_newest() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    cluster.put("b");
    assert_eq!(names(&reflector.next().await), ["+b"]);
    let last_version = reflector.last_sync_resource_version().clone();
    cluster.refuse_streams();
    cluster.server.expire_watches();
    cluster.inject(
        FaultRule::new(InjectedFault::status(410, "Expired", "too old"))
            .target("serviceaccounts?resourceVersion=")
            .watch(false)
            .times(1),
    );
    assert_eq!(names(&reflector.next().await), ["a", "b"]);
    assert_eq!(
        cluster.request_log.summaries()[1..],
        [
            format!("stream from {last_version}"),
            format!("list from {last_version}"),
            "list from newest limit 500".to_owned()
        ]
    );
}

/// Proves INF-19.
#[tokio::test(start_paused = true)]
async fn table_is_not_accepted_as_a_list() {
    let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "3"}, "rows": []});
    let other_kind = json!({"type": "ADDED", "object": {"kind": "Secret", "apiVersion": "v1",
                          "metadata": {"name": "s", "namespace": "default", "resourceVersion": "6"}}});
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &table),
        ScriptedResponse::lines(&[event("ADDED", "a", 4), other_kind, end_of_initial(5)]),
    ]);
    assert_eq!(names(&scripted_server.accounts().next().await), ["a"]);
    assert_eq!(
        scripted_server.summaries(),
        ["stream from newest", "list from newest limit 500", "stream from newest"]
    );
}

/// Proves INF-21, INF-23.
#[tokio::test(start_paused = true)]
async fn ended_watch_continues_from_the_last_resource_version() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    cluster.put("b");
    assert_eq!(names(&reflector.next().await), ["+b"]);
    let last_version = reflector.last_sync_resource_version().clone();
    let start = Instant::now();
    cluster.server.cut_watches();
    cluster.put("c");
    assert_eq!(names(&reflector.next().await), ["+c"]);
    assert_eq!(start.elapsed(), Duration::ZERO, "without delay");
    assert_eq!(
        cluster.request_log.summaries(),
        ["stream from newest".to_owned(), format!("watch from {last_version}")]
    );
}

/// Proves INF-24.
#[tokio::test(start_paused = true)]
async fn very_short_watch_counts_as_failed() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    let last_version = reflector.last_sync_resource_version().clone();
    tokio::time::advance(Duration::from_secs(2)).await;
    let nothing = InjectedFault::CutStream { after_events: 0, cleanly: true };
    cluster.inject(FaultRule::new(nothing).watch(true).times(1));
    cluster.server.cut_watches();
    let start = Instant::now();
    assert_eq!(names(&reflector.next().await), ["a"]);
    assert!(start.elapsed() >= Duration::from_millis(800));
    assert_eq!(
        cluster.request_log.summaries()[1..],
        [format!("watch from {last_version}"), format!("stream from {last_version}")]
    );
}

/// Proves INF-25, INF-143.
#[tokio::test(start_paused = true)]
async fn api_server_restart_causes_no_new_list() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    let last_version = reflector.last_sync_resource_version().clone();
    cluster.inject(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(4));
    tokio::time::advance(Duration::from_secs(2)).await;
    cluster.server.cut_watches();
    cluster.put("b");
    let start = Instant::now();
    assert_eq!(names(&reflector.next().await), ["+b"], "events during the restart are not lost");
    let elapsed = start.elapsed().as_secs_f64();
    assert!((12.0..24.0).contains(&elapsed), "0.8 + 1.6 + 3.2 + 6.4 with jitter: {elapsed}");
    assert_eq!(cluster.request_log.summaries()[1..], vec![format!("watch from {last_version}"); 5]);
}

/// Proves INF-26, INF-143.
#[tokio::test(start_paused = true)]
async fn expired_watch_relists_not_older_than_the_last_resource_version() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    let last_version = reflector.last_sync_resource_version().clone();
    cluster.put("b");
    cluster.server.expire_watches();
    let start = Instant::now();
    let mut deltas = vec![names(&reflector.next().await)];
    if deltas == [["+b"]] {
        deltas.push(names(&reflector.next().await));
    }
    assert_eq!(deltas.last().unwrap(), &["a", "b"]);
    assert!(start.elapsed() >= Duration::from_millis(800));
    let summaries = cluster.request_log.summaries();
    assert_eq!(summaries.len(), 2, "{summaries:?}");
    let from = summaries[1].strip_prefix("stream from ").unwrap();
    assert!(!ResourceVersion::from(from).is_older_than(&last_version));
}

#[tokio::test(start_paused = true)]
async fn broken_connection_causes_no_new_list() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let broken = InjectedFault::CutStream { after_events: 3, cleanly: false };
    cluster.inject(FaultRule::new(broken).times(1));
    let mut reflector = cluster.synced().await;
    cluster.put("b");
    assert_eq!(names(&reflector.next().await), ["+b"]);
    let last_version = reflector.last_sync_resource_version().clone();
    cluster.put("c");
    assert_eq!(names(&reflector.next().await), ["+c"]);
    assert_eq!(cluster.request_log.summaries()[1..], [format!("watch from {last_version}")]);
}

/// Proves INF-29, INF-142.
#[tokio::test(start_paused = true)]
async fn bookmarks_alone_keep_a_reflector_synced_for_hours() {
    let cluster = TestCluster::with_accounts(&["a"]);
    let mut reflector = cluster.synced().await;
    let start = Instant::now();
    let (server, ticks) = (cluster.server.clone(), tokio::time::interval(Duration::from_secs(60)));
    let writer = async move {
        let mut ticks = ticks;
        loop {
            ticks.tick().await;
            // A ConfigMap changes; no ServiceAccount does.
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}});
            server.seed(map).unwrap();
            server.send_bookmarks();
        }
    };
    let reader = async {
        while start.elapsed() < Duration::from_secs(7200) {
            let delta = reflector.next().await;
            let Delta::Bookmark(version) = &delta else { panic!("{delta:?}") };
            assert_eq!(reflector.last_sync_resource_version(), version);
        }
    };
    tokio::select! {
        biased;
        () = writer => {}
        () = reader => {}
    }
    assert!(
        !reflector.last_sync_resource_version().is_older_than(&ResourceVersion::from(
            (cluster.server.resource_version() - 1).to_string().as_str()
        ))
    );
    let summaries = cluster.request_log.summaries();
    assert!(
        summaries.len() > 10 && summaries[1..].iter().all(|request| request.starts_with("watch from ")),
        "{summaries:?}"
    );
}

/// Proves INF-22.
#[tokio::test(start_paused = true)]
async fn synthetic_added_events_do_not_advance_the_last_resource_version() {
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "0", "", &[])),
        ScriptedResponse::lines(&[
            event("ADDED", "b", 9),
            event("ADDED", "a", 4),
            event("MODIFIED", "a", 12),
        ]),
    ]);
    let mut reflector = scripted_server.accounts();
    assert_eq!(names(&reflector.next().await), Vec::<String>::new());
    for (expected, last_version) in [("+b", "0"), ("+a", "0"), ("+a", "12")] {
        assert_eq!(names(&reflector.next().await), [expected]);
        assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from(last_version));
    }
}

/// Proves INF-150.
#[tokio::test(start_paused = true)]
async fn resource_version_of_a_list_may_be_older_than_its_objects() {
    let mut newer = account("a");
    newer["metadata"]["resourceVersion"] = json!("90");
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "40", "", &[newer])),
        ScriptedResponse::lines(&[event("ADDED", "a", 91), end_of_initial(45)]),
    ]);
    let mut reflector = scripted_server.accounts();
    let Delta::Replace { objects, version, .. } = reflector.next().await else { panic!() };
    assert_eq!(
        (objects[0].meta.resource_version.clone(), version),
        (ResourceVersion::from("90"), ResourceVersion::from("40"))
    );
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("40"));
    let streamed =
        ScriptedServer::new(vec![ScriptedResponse::lines(&[event("ADDED", "a", 91), end_of_initial(45)])]);
    let mut reflector = streamed.accounts();
    reflector.next().await;
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("45"));
}

/// Proves INF-11.
#[tokio::test(start_paused = true)]
async fn events_before_the_initial_events_end_are_part_of_the_list() {
    let scripted_server = ScriptedServer::new(vec![ScriptedResponse::lines(&[
        event("ADDED", "kept", 1),
        event("ADDED", "gone", 2),
        event("ADDED", "back", 3),
        event("MODIFIED", "kept", 4),
        json!({"type": "BOOKMARK", "object": {"kind": "ServiceAccount", "apiVersion": "v1",
               "metadata": {"resourceVersion": "4"}}}),
        event("DELETED", "gone", 5),
        event("DELETED", "back", 6),
        event("ADDED", "back", 7),
        end_of_initial(8),
    ])]);
    let Delta::Replace { objects, .. } = scripted_server.accounts().next().await else { panic!() };
    let mut found: Vec<_> =
        objects.iter().map(|one| (one.key().name.to_string(), one.meta.resource_version.clone())).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        found,
        [("back".to_owned(), ResourceVersion::from("7")), ("kept".to_owned(), ResourceVersion::from("4"))]
    );
}

#[tokio::test(start_paused = true)]
async fn silent_watch_times_out_and_continues() {
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::lines(&[event("ADDED", "a", 4), end_of_initial(5)]).then_silence(),
        ScriptedResponse::lines(&[event("MODIFIED", "a", 6)]),
    ]);
    let mut reflector = scripted_server.accounts();
    assert_eq!(names(&reflector.next().await), ["a"]);
    let start = Instant::now();
    assert_eq!(names(&reflector.next().await), ["+a"]);
    assert!(start.elapsed() >= Duration::from_secs(330) && start.elapsed() <= Duration::from_secs(630));
    assert_eq!(scripted_server.summaries(), ["stream from newest", "watch from 5"]);
}

#[derive(Default)]
struct RecordingObserver(Mutex<Vec<String>>);

impl ReflectorObserver for RecordingObserver {
    fn undecodable(&self, resource: &Resource, object: &str) {
        self.0.lock().push(format!("{resource} {object}"));
    }
    fn failed(&self, resource: &Resource, failure: &ApiError) {
        self.0.lock().push(format!("{resource} {}", failure.code));
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_does_not_affect_others_and_is_not_quoted() {
    let (log, _listening) = TestLog::capture(Level::TRACE);
    let bad = |name: &str, version: u64| {
        let mut object = account(name);
        object["secrets"] = json!("hunter2");
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        object
    };
    let mut good = account("good");
    good["metadata"]["resourceVersion"] = json!("3");
    let modified = json!({"type": "MODIFIED", "object": bad("good", 41)});
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "40", "", &[bad("bad", 2), good])),
        ScriptedResponse::lines(&[modified, event("MODIFIED", "good", 42)]),
    ]);
    let observer = Arc::new(RecordingObserver::default());
    let mut reflector = scripted_server.accounts().with_observer(observer.clone());
    let all = reflector.next().await;
    assert_eq!(names(&all), ["good"]);
    let Delta::Replace { unreadable, .. } = all else { panic!() };
    assert_eq!(unreadable, [Key::namespaced("default", "bad")], "the object exists but cannot be decoded");
    assert_eq!(names(&reflector.next().await), ["@41"], "the resourceVersion advances as a bookmark");
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("41"));
    assert_eq!(names(&reflector.next().await), ["+good"]);
    assert_eq!(
        *observer.0.lock(),
        ["serviceaccounts 400", "serviceaccounts default/bad", "serviceaccounts default/good"]
    );
    let log = log.text();
    assert!(log.contains("default/bad"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

/// A panic of the decoder is a bug, which must not end the list and watch of all other objects.
#[tokio::test(start_paused = true)]
async fn object_over_which_the_decoder_panics_does_not_affect_others() {
    fn read(object: Encoded<'_>, parts: PodParts) -> Result<ServiceAccount, DecodeError> {
        let account = ServiceAccount::read_parts(object, parts)?;
        assert!(!account.key().name.starts_with("bad"), "the decoder panics");
        Ok(account)
    }
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "40", "", &[account("bad"), account("good")])),
        ScriptedResponse::lines(&[event("MODIFIED", "bad", 41), event("MODIFIED", "good", 42)]),
    ]);
    let observer = Arc::new(RecordingObserver::default());
    let list_watch = ListWatch { decoder: Decoder::new(read, PodParts::ALL), ..ListWatch::of_kind() };
    let random = fastrand::Rng::with_seed(1);
    let mut reflector =
        Reflector::new(scripted_server.client.clone(), list_watch, random).with_observer(observer.clone());
    let all = reflector.next().await;
    assert_eq!(names(&all), ["good"]);
    let Delta::Replace { unreadable, .. } = all else { panic!() };
    assert_eq!(unreadable, [Key::namespaced("default", "bad")]);
    assert_eq!(names(&reflector.next().await), ["@41"], "the resourceVersion advances as a bookmark");
    assert_eq!(names(&reflector.next().await), ["+good"]);
    assert_eq!(observer.0.lock().len(), 3);
}

/// The feature gate `WatchListClient` is off: also after errors nothing but lists and plain watches is sent.
#[tokio::test(start_paused = true)]
async fn reflector_without_watch_list_sends_lists_and_plain_watches_only() {
    let cluster = TestCluster::with_accounts(&["a", "b"]);
    let mut reflector = cluster.accounts().without_watch_list();
    assert_eq!(names(&reflector.next().await), ["a", "b"]);
    cluster.server.seed(account("c")).unwrap();
    assert_eq!(names(&reflector.next().await), ["+c"]);
    reflector.relist();
    assert_eq!(names(&reflector.next().await), ["a", "b", "c"]);
    let gone = InjectedFault::status(410, "Expired", "too old");
    cluster.inject(FaultRule::new(gone).watch(true).times(1));
    cluster.server.seed(account("d")).unwrap();
    assert_eq!(names(&reflector.next().await), ["a", "b", "c", "d"]);
    let targets: Vec<_> = cluster.server.requests().into_iter().map(|request| request.target).collect();
    assert!(targets.iter().all(|target| !target.contains("sendInitialEvents")), "{targets:#?}");
}

/// An account that cannot be decoded.
fn bad_account(name: &str, version: u64) -> Value {
    let mut object = account(name);
    object["secrets"] = json!("hunter2");
    object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_undecodable_object_names_its_key() {
    let deleted = json!({"type": "DELETED", "object": bad_account("a", 41)});
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "40", "", &[account("a"), account("b")])),
        ScriptedResponse::lines(&[deleted, event("MODIFIED", "b", 42)]),
    ]);
    let mut reflector = scripted_server.accounts();
    assert_eq!(names(&reflector.next().await), ["a", "b"]);
    assert_eq!(names(&reflector.next().await), ["-default/a uid-of-a @41"]);
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("41"));
    assert_eq!(names(&reflector.next().await), ["+b"]);
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_object_without_readable_name_is_followed_by_a_relist() {
    let mut nameless = bad_account("a", 41);
    nameless["metadata"]["name"] = json!(["hunter2"]);
    let deleted = json!({"type": "DELETED", "object": nameless});
    let scripted_server = ScriptedServer::new(vec![
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "40", "", &[account("a"), account("b")])),
        ScriptedResponse::lines(&[deleted, event("MODIFIED", "b", 42)]),
        ScriptedResponse::status(400, "BadRequest"),
        ScriptedResponse::of(200, &list("ServiceAccountList", "43", "", &[account("b")])),
    ]);
    let mut reflector = scripted_server.accounts();
    assert_eq!(names(&reflector.next().await), ["a", "b"]);
    assert_eq!(names(&reflector.next().await), ["b"], "a list, because no event says what is gone");
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_deleted_during_the_initial_events_is_not_part_of_the_list() {
    let added = |name: &str| json!({"type": "ADDED", "object": bad_account(name, 5)});
    let deleted = json!({"type": "DELETED", "object": bad_account("a", 6)});
    let end = json!({"type": "BOOKMARK", "object": {"kind": "ServiceAccount", "apiVersion": "v1", "metadata":
        {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}});
    let good = event("ADDED", "c", 4);
    let gone = json!({"type": "DELETED", "object": bad_account("c", 6)});
    let scripted_server = ScriptedServer::new(vec![ScriptedResponse::lines(&[
        added("a"),
        added("b"),
        good,
        deleted,
        gone,
        end,
    ])]);
    let all = scripted_server.accounts().next().await;
    assert_eq!(names(&all), Vec::<String>::new());
    let Delta::Replace { unreadable, .. } = all else { panic!() };
    assert_eq!(unreadable, [Key::namespaced("default", "b")]);
}

#[tokio::test(start_paused = true)]
async fn next_is_cancel_safe() {
    let cluster = TestCluster::with_accounts(&["a", "b"]);
    cluster.inject(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(1));
    cluster.inject(FaultRule::new(InjectedFault::DelayThen(
        Duration::from_secs(1),
        Box::new(InjectedFault::Pass),
    )));
    let mut reflector = cluster.accounts();
    let mut drops = 0;
    let first = loop {
        match tokio::time::timeout(Duration::from_millis(7), reflector.next()).await {
            Ok(delta) => break delta,
            Err(_) => drops += 1,
        }
    };
    assert_eq!(names(&first), ["a", "b"]);
    assert!(drops > 100);
    assert_eq!(cluster.request_log.summaries(), ["stream from newest", "stream from newest"]);
}

#[tokio::test(start_paused = true)]
async fn same_seed_sends_the_same_requests_at_the_same_times() {
    async fn run() -> Vec<(Duration, String)> {
        let cluster = TestCluster::with_accounts(&["a"]);
        cluster.inject(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(3));
        let start = Instant::now();
        let mut reflector = cluster.accounts();
        let _ = tokio::time::timeout(Duration::from_secs(3600), async {
            loop {
                reflector.next().await;
            }
        })
        .await;
        let request_log = cluster.request_log.requests.lock();
        request_log.iter().map(|(at, target, _)| (at.duration_since(start), target.clone())).collect()
    }
    let (one, two) = (run().await, run().await);
    assert!(one.len() > 8);
    assert_eq!(one, two);
}

/// Scripted responses, one per request; requests after the last one never get a response.
struct ScriptedServer {
    client: Client,
    request_log: Arc<RequestLog>,
}

struct ScriptedResponse {
    code: u16,
    body: Vec<u8>,
    silence: bool,
}

impl ScriptedResponse {
    fn of(code: u16, body: &Value) -> Self {
        let body = body.to_string().into_bytes();
        Self { code, body, silence: false }
    }

    fn status(code: u16, reason: &str) -> Self {
        Self::of(code, &json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}))
    }

    fn lines(events: &[Value]) -> Self {
        let body: String = events.iter().map(|event| format!("{event}\n")).collect();
        Self { code: 200, body: body.into_bytes(), silence: false }
    }

    fn then_silence(mut self) -> Self {
        self.silence = true;
        self
    }

    /// The body in chunks of 7 bytes, which split every object.
    fn into_response(self) -> Response<ResponseBody> {
        use futures::StreamExt as _;
        use http_body_util::{BodyExt as _, StreamBody};
        let chunks: Vec<_> = self.body.chunks(7).map(Bytes::copy_from_slice).collect();
        let sent = futures::stream::iter(chunks.into_iter().map(|chunk| Ok(http_body::Frame::data(chunk))));
        let rest =
            if self.silence { futures::stream::pending().boxed() } else { futures::stream::empty().boxed() };
        let body = StreamBody::new(sent.chain(rest));
        Response::builder().status(self.code).body(body.boxed_unsync()).unwrap()
    }
}

impl ScriptedServer {
    fn new(responses: Vec<ScriptedResponse>) -> Self {
        let responses = Arc::new(Mutex::new(std::collections::VecDeque::from(responses)));
        let service = transport(tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.method(), Method::GET);
            let response = responses.lock().pop_front();
            async move {
                match response {
                    Some(response) => Ok::<_, BoxError>(response.into_response()),
                    None => futures::future::pending().await,
                }
            }
        }));
        let request_log = Arc::new(RequestLog::default());
        let recorder = MiddlewareLayer::shared(Arc::clone(&request_log));
        Self { client: Client::new(recorder.layer(service), "default"), request_log }
    }

    fn accounts(&self) -> Reflector<ServiceAccount> {
        Reflector::new(self.client.clone(), ListWatch::of_kind(), fastrand::Rng::with_seed(1))
    }

    fn summaries(&self) -> Vec<String> {
        self.request_log.summaries()
    }
}

fn list(kind: &str, version: &str, next: &str, items: &[Value]) -> Value {
    json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": next}, "items": items})
}

fn event(kind: &str, name: &str, version: u64) -> Value {
    let mut object = account(name);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    json!({"type": kind, "object": object})
}

fn end_of_initial(version: u64) -> Value {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    json!({"type": "BOOKMARK", "object": {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata}})
}

/// A newer server sends protobuf fields whose names are unknown here.
#[tokio::test(start_paused = true)]
async fn unknown_protobuf_field_relists_with_json() {
    fn record(field: u8, content: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }
    let type_meta = [record(1, b"apps/v1"), record(2, b"ReplicaSet")].concat();
    let object = [record(1, &record(1, b"web")), record(15, b"new")].concat();
    let envelope = [b"k8s\0".to_vec(), record(1, &type_meta), record(2, &object)].concat();
    let event = [record(1, b"ADDED"), record(2, &record(1, &envelope))].concat();
    let frame = [u32::try_from(event.len()).unwrap().to_be_bytes().as_slice(), &event].concat();
    let lines = concat!(
        r#"{"type":"ADDED","object":{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"name":"web"},"new":1}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"9","#,
        r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n",
    );
    let request_log = Arc::new(Mutex::new(Vec::new()));
    let recorded = request_log.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let accept = request.headers()[ACCEPT].to_str().unwrap().to_owned();
        let (media_type, body) = if accept.contains("protobuf") {
            ("application/vnd.kubernetes.protobuf;stream=watch", frame.clone())
        } else {
            ("application/json", lines.as_bytes().to_vec())
        };
        recorded.lock().push(accept);
        let response = Response::builder().header(CONTENT_TYPE, media_type);
        std::future::ready(Ok::<_, std::convert::Infallible>(response.body(Body::from(body)).unwrap()))
    });
    let client = Client::new(server, "default");
    let mut reflector =
        Reflector::new(client, ListWatch::<ReplicaSet>::of_kind(), fastrand::Rng::with_seed(1));
    let Delta::Replace { objects, unreadable, .. } = reflector.next().await else { panic!("no list") };
    assert_eq!((objects.len(), unreadable.len()), (1, 0));
    assert_eq!(
        *request_log.lock(),
        ["application/vnd.kubernetes.protobuf,application/json", "application/json"]
    );
}
