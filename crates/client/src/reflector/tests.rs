//! Reflectors against the embedded API server, with faults between, and against reconciling answers.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
use keleustes_objects::{
    Kind, Object, PartialObjectMeta, ReplicaSet, Resource, ResourceVersion, ServiceAccount, TokenSecret,
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

/// A server, faults between, and a list of what was asked.
struct World {
    server: ApiServer,
    faults: Faults,
    asked: Arc<Asked>,
    client: Client,
}

#[derive(Default)]
struct Asked {
    requests: Mutex<Vec<(Instant, String, String)>>,
}

impl Middleware for Asked {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let accept = request.headers()[ACCEPT].to_str()?.to_owned();
        let asked = (Instant::now(), request.uri().to_string(), accept);
        self.requests.lock().push(asked);
        inner.oneshot(request).await
    }
}

impl Asked {
    fn targets(&self) -> Vec<String> {
        self.requests.lock().iter().map(|(_, target, _)| target.clone()).collect()
    }

    /// How each request asked: `stream from 7`, `list from newest limit 500`, `watch from 9`, ...
    fn told(&self) -> Vec<String> {
        self.targets().iter().map(|target| tell(target)).collect()
    }
}

fn tell(target: &str) -> String {
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

impl World {
    fn new() -> Self {
        let server = ApiServer::builder().seed(7).build();
        let faults = Faults::new();
        let asked = Arc::new(Asked::default());
        let service = MiddlewareLayer::shared(Arc::clone(&asked));
        let client = Client::new(service.layer(transport(faults.layer(server.clone()))), "default");
        Self { server, faults, asked, client }
    }

    fn with_accounts(names: &[&str]) -> Self {
        let world = Self::new();
        names.iter().for_each(|name| world.put(name));
        world
    }

    /// Creates an account, or changes it.
    fn put(&self, name: &str) {
        self.server.seed(account(name)).unwrap();
    }

    fn now(&self) -> ResourceVersion {
        ResourceVersion::from(self.server.resource_version().to_string().as_str())
    }

    fn accounts(&self) -> Reflector<ServiceAccount> {
        Reflector::new(self.client.clone(), ListWatch::of_kind(), fastrand::Rng::with_seed(1))
    }

    /// A reflector whose first list is behind it.
    async fn synced(&self) -> Reflector<ServiceAccount> {
        let mut reflector = self.accounts();
        assert!(matches!(reflector.next().await, Delta::Replace { .. }));
        reflector
    }

    fn strike(&self, rule: FaultRule) {
        self.faults.add(rule);
    }

    fn refuse_streams(&self) {
        let verdict = InjectedFault::status(422, "Invalid", "sendInitialEvents is forbidden");
        self.strike(FaultRule::new(verdict).target("sendInitialEvents"));
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
        Delta::Bookmark(version) => vec![format!("@{version}")],
    }
}

/// Proves INF-1, INF-10, INF-11, INF-12.
#[tokio::test(start_paused = true)]
async fn one_stream_brings_everything_and_then_what_changes() {
    let world = World::with_accounts(&["a", "b", "c"]);
    let before = world.now();
    let mut reflector = world.accounts();
    let first = reflector.next().await;
    assert_eq!(names(&first), ["a", "b", "c"]);
    let Delta::Replace { version, .. } = first else { panic!() };
    assert_eq!(version, before);
    assert_eq!(reflector.last_sync_resource_version(), &before);

    world.put("d");
    assert_eq!(names(&reflector.next().await), ["+d"]);
    world.put("a");
    assert_eq!(names(&reflector.next().await), ["+a"]);
    world.server.remove("serviceaccounts", "default", "b");
    assert_eq!(names(&reflector.next().await), ["-b"]);
    assert_eq!(reflector.last_sync_resource_version(), &world.now());

    let targets = world.asked.targets();
    let [target] = targets.as_slice() else { panic!("one connection for all of it: {targets:?}") };
    let (query, timeout) = target.rsplit_once("&timeoutSeconds=").unwrap();
    assert_eq!(
        query,
        "/api/v1/serviceaccounts?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&watch=true&allowWatchBookmarks=true"
    );
    assert!((300..=600).contains(&timeout.parse::<u32>().unwrap()));
}

/// Proves INF-1.
#[tokio::test(start_paused = true)]
async fn projections_ask_for_no_more_than_they_keep() {
    let world = World::new();
    let secret = |name: &str, kind: &str| {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"l": "x"}});
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": {"k": "djE="}})
    };
    world.server.seed(secret("t", "kubernetes.io/service-account-token")).unwrap();
    world.server.seed(secret("o", "Opaque")).unwrap();

    let chance = fastrand::Rng::with_seed(1);
    let mut tokens: Reflector<TokenSecret> =
        Reflector::new(world.client.clone(), ListWatch::of_kind(), chance.clone());
    let Delta::Replace { objects, .. } = tokens.next().await else { panic!() };
    assert_eq!(objects.len(), 1);
    assert!(world.asked.targets()[0].contains("fieldSelector=type%3Dkubernetes.io%2Fservice-account-token"));

    let source = ListWatch::metadata_of(TokenSecret::RESOURCE).in_namespace("default");
    let mut metadata: Reflector<PartialObjectMeta> = Reflector::new(world.client.clone(), source, chance);
    let Delta::Replace { objects, .. } = metadata.next().await else { panic!() };
    assert_eq!(objects.len(), 2);
    assert!(objects.iter().all(|object| object.meta.labels.value("l").is_some()));
    let asked = world.asked.requests.lock();
    assert!(asked[1].1.starts_with("/api/v1/namespaces/default/secrets?"));
    assert!(asked[1].2.contains(",application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"));
}

/// Proves INF-30.
#[tokio::test(start_paused = true)]
async fn every_event_arrives_in_its_order() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    for _ in 0..5 {
        world.put("a");
    }
    world.server.remove("serviceaccounts", "default", "a");
    world.put("a");
    let mut versions = Vec::new();
    for wanted in ["+a", "+a", "+a", "+a", "+a", "-a", "+a"] {
        let delta = reflector.next().await;
        assert_eq!(names(&delta), [wanted]);
        versions.push(reflector.last_sync_resource_version().clone());
    }
    assert!(versions.windows(2).all(|pair| pair[0].is_older_than(&pair[1])), "{versions:?}");
}

/// Proves INF-13.
#[tokio::test(start_paused = true)]
async fn what_a_cut_stream_brought_is_thrown_away() {
    for cleanly in [true, false] {
        let world = World::with_accounts(&["a", "b", "c"]);
        let cut = InjectedFault::CutStream { after_events: 2, cleanly };
        world.strike(FaultRule::new(cut).times(1));
        let mut reflector = world.accounts();
        assert_eq!(names(&reflector.next().await), ["a", "b", "c"]);
        assert_eq!(world.asked.told(), ["stream from newest", "stream from newest"]);
    }
}

/// Proves INF-13, INF-27.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let world = World::with_accounts(&["a"]);
    world.strike(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(2));
    world.strike(FaultRule::new(InjectedFault::status(429, "TooManyRequests", "busy")).times(1));
    let start = Instant::now();
    assert_eq!(names(&world.accounts().next().await), ["a"]);
    assert_eq!(world.asked.told(), ["stream from newest"; 4]);
    let waited = start.elapsed().as_secs_f64();
    assert!((0.8 + 1.6 + 3.2..2.0 * (0.8 + 1.6 + 3.2)).contains(&waited), "{waited}");
}

/// Proves INF-14, INF-15, INF-20.
#[tokio::test(start_paused = true)]
async fn a_server_without_streams_is_listed_in_pages_and_watched() {
    let world = World::new();
    for number in 0..1200 {
        world.put(&format!("account-{number:04}"));
    }
    world.refuse_streams();
    let mut reflector = world.accounts();
    let first = reflector.next().await;
    assert_eq!(names(&first).len(), 1200);
    assert_eq!(reflector.last_sync_resource_version(), &world.now());
    world.put("late");
    assert_eq!(names(&reflector.next().await), ["+late"]);
    let told = world.asked.told();
    assert_eq!(told[..2], ["stream from newest", "list from newest limit 500"]);
    assert!(told[2..told.len() - 1].iter().all(|page| page == "list from newest limit 500 next page"));
    assert!(told[told.len() - 1].starts_with("watch from "));
    let watch = world.asked.targets().pop().unwrap();
    assert!(watch.contains("allowWatchBookmarks=true") && watch.contains("timeoutSeconds="));
}

/// Proves INF-16.
#[tokio::test(start_paused = true)]
async fn pages_that_expire_are_followed_by_one_whole_list() {
    let page = |name: &str, next: &str| list("ServiceAccountList", "40", next, &[account(name)]);
    let script = Script::new(vec![
        Answer::status(400, "BadRequest"),
        Answer::of(200, &page("a", "token")),
        Answer::status(410, "Expired"),
        Answer::of(200, &page("b", "")),
    ]);
    let mut reflector = script.accounts();
    assert_eq!(names(&reflector.next().await), ["b"], "nothing of the first page is left");
    assert_eq!(
        script.told(),
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
async fn a_version_that_is_not_there_any_more_is_given_up_for_the_newest() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    world.put("b");
    assert_eq!(names(&reflector.next().await), ["+b"]);
    let seen = reflector.last_sync_resource_version().clone();
    world.refuse_streams();
    world.server.expire_watches();
    world.strike(
        FaultRule::new(InjectedFault::status(410, "Expired", "too old"))
            .target("serviceaccounts?resourceVersion=")
            .watch(false)
            .times(1),
    );
    assert_eq!(names(&reflector.next().await), ["a", "b"]);
    assert_eq!(
        world.asked.told()[1..],
        [format!("stream from {seen}"), format!("list from {seen}"), "list from newest limit 500".to_owned()]
    );
}

/// Proves INF-19.
#[tokio::test(start_paused = true)]
async fn a_table_is_not_taken_for_a_list() {
    let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "3"}, "rows": []});
    let stranger = json!({"type": "ADDED", "object": {"kind": "Secret", "apiVersion": "v1",
                          "metadata": {"name": "s", "namespace": "default", "resourceVersion": "6"}}});
    let script = Script::new(vec![
        Answer::status(400, "BadRequest"),
        Answer::of(200, &table),
        Answer::lines(&[event("ADDED", "a", 4), stranger, end_of_initial(5)]),
    ]);
    assert_eq!(names(&script.accounts().next().await), ["a"]);
    assert_eq!(script.told(), ["stream from newest", "list from newest limit 500", "stream from newest"]);
}

/// Proves INF-21, INF-23.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_continued_where_it_was() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    world.put("b");
    assert_eq!(names(&reflector.next().await), ["+b"]);
    let seen = reflector.last_sync_resource_version().clone();
    let start = Instant::now();
    world.server.cut_watches();
    world.put("c");
    assert_eq!(names(&reflector.next().await), ["+c"]);
    assert_eq!(start.elapsed(), Duration::ZERO, "at once");
    assert_eq!(world.asked.told(), ["stream from newest".to_owned(), format!("watch from {seen}")]);
}

/// Proves INF-24.
#[tokio::test(start_paused = true)]
async fn a_watch_that_never_worked_is_a_failure() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    let seen = reflector.last_sync_resource_version().clone();
    tokio::time::advance(Duration::from_secs(2)).await;
    let nothing = InjectedFault::CutStream { after_events: 0, cleanly: true };
    world.strike(FaultRule::new(nothing).watch(true).times(1));
    world.server.cut_watches();
    let start = Instant::now();
    assert_eq!(names(&reflector.next().await), ["a"]);
    assert!(start.elapsed() >= Duration::from_millis(800));
    assert_eq!(world.asked.told()[1..], [format!("watch from {seen}"), format!("stream from {seen}")]);
}

/// Proves INF-25, INF-143.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_restarts_costs_no_new_list() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    let seen = reflector.last_sync_resource_version().clone();
    world.strike(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(4));
    tokio::time::advance(Duration::from_secs(2)).await;
    world.server.cut_watches();
    world.put("b");
    let start = Instant::now();
    assert_eq!(names(&reflector.next().await), ["+b"], "what happened meanwhile is not lost");
    let waited = start.elapsed().as_secs_f64();
    assert!((12.0..24.0).contains(&waited), "0.8 + 1.6 + 3.2 + 6.4 with jitter: {waited}");
    assert_eq!(world.asked.told()[1..], vec![format!("watch from {seen}"); 5]);
}

/// Proves INF-26, INF-143.
#[tokio::test(start_paused = true)]
async fn a_lost_version_brings_a_new_state_not_older_than_the_last() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    let seen = reflector.last_sync_resource_version().clone();
    world.put("b");
    world.server.expire_watches();
    let start = Instant::now();
    let mut deltas = vec![names(&reflector.next().await)];
    if deltas == [["+b"]] {
        deltas.push(names(&reflector.next().await));
    }
    assert_eq!(deltas.last().unwrap(), &["a", "b"]);
    assert!(start.elapsed() >= Duration::from_millis(800));
    let told = world.asked.told();
    assert_eq!(told.len(), 2, "{told:?}");
    let from = told[1].strip_prefix("stream from ").unwrap();
    assert!(!ResourceVersion::from(from).is_older_than(&seen));
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_costs_no_new_list() {
    let world = World::with_accounts(&["a"]);
    let broken = InjectedFault::CutStream { after_events: 3, cleanly: false };
    world.strike(FaultRule::new(broken).times(1));
    let mut reflector = world.synced().await;
    world.put("b");
    assert_eq!(names(&reflector.next().await), ["+b"]);
    let seen = reflector.last_sync_resource_version().clone();
    world.put("c");
    assert_eq!(names(&reflector.next().await), ["+c"]);
    assert_eq!(world.asked.told()[1..], [format!("watch from {seen}")]);
}

/// Proves INF-29, INF-142.
#[tokio::test(start_paused = true)]
async fn bookmarks_alone_keep_a_reflector_fresh_for_hours() {
    let world = World::with_accounts(&["a"]);
    let mut reflector = world.synced().await;
    let start = Instant::now();
    let (server, bell) = (world.server.clone(), tokio::time::interval(Duration::from_secs(60)));
    let writer = async move {
        let mut bell = bell;
        loop {
            bell.tick().await;
            // Something else in the cluster changes; of accounts nothing does.
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
            (world.server.resource_version() - 1).to_string().as_str()
        ))
    );
    let told = world.asked.told();
    assert!(
        told.len() > 10 && told[1..].iter().all(|request| request.starts_with("watch from ")),
        "{told:?}"
    );
}

/// Proves INF-22.
#[tokio::test(start_paused = true)]
async fn objects_at_the_start_of_a_watch_from_nowhere_do_not_move_the_version() {
    let script = Script::new(vec![
        Answer::status(400, "BadRequest"),
        Answer::of(200, &list("ServiceAccountList", "0", "", &[])),
        Answer::lines(&[event("ADDED", "b", 9), event("ADDED", "a", 4), event("MODIFIED", "a", 12)]),
    ]);
    let mut reflector = script.accounts();
    assert_eq!(names(&reflector.next().await), Vec::<String>::new());
    for (wanted, seen) in [("+b", "0"), ("+a", "0"), ("+a", "12")] {
        assert_eq!(names(&reflector.next().await), [wanted]);
        assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from(seen));
    }
}

/// Proves INF-150.
#[tokio::test(start_paused = true)]
async fn the_version_of_a_list_is_its_own_even_if_an_object_is_newer() {
    let mut newer = account("a");
    newer["metadata"]["resourceVersion"] = json!("90");
    let script = Script::new(vec![
        Answer::status(400, "BadRequest"),
        Answer::of(200, &list("ServiceAccountList", "40", "", &[newer])),
        Answer::lines(&[event("ADDED", "a", 91), end_of_initial(45)]),
    ]);
    let mut reflector = script.accounts();
    let Delta::Replace { objects, version, .. } = reflector.next().await else { panic!() };
    assert_eq!(
        (objects[0].meta.resource_version.clone(), version),
        (ResourceVersion::from("90"), ResourceVersion::from("40"))
    );
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("40"));
    let streamed = Script::new(vec![Answer::lines(&[event("ADDED", "a", 91), end_of_initial(45)])]);
    let mut reflector = streamed.accounts();
    reflector.next().await;
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("45"));
}

/// Proves INF-11.
#[tokio::test(start_paused = true)]
async fn everything_before_the_end_of_a_stream_is_part_of_it() {
    let script = Script::new(vec![Answer::lines(&[
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
    let Delta::Replace { objects, .. } = script.accounts().next().await else { panic!() };
    let mut found: Vec<_> =
        objects.iter().map(|one| (one.key().name.to_string(), one.meta.resource_version.clone())).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        found,
        [("back".to_owned(), ResourceVersion::from("7")), ("kept".to_owned(), ResourceVersion::from("4"))]
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_goes_silent_is_left() {
    let script = Script::new(vec![
        Answer::lines(&[event("ADDED", "a", 4), end_of_initial(5)]).then_silence(),
        Answer::lines(&[event("MODIFIED", "a", 6)]),
    ]);
    let mut reflector = script.accounts();
    assert_eq!(names(&reflector.next().await), ["a"]);
    let start = Instant::now();
    assert_eq!(names(&reflector.next().await), ["+a"]);
    assert!(start.elapsed() >= Duration::from_secs(330) && start.elapsed() <= Duration::from_secs(630));
    assert_eq!(script.told(), ["stream from newest", "watch from 5"]);
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl ReflectorObserver for Heard {
    fn undecodable(&self, resource: &Resource, object: &str) {
        self.0.lock().push(format!("{resource} {object}"));
    }
    fn failed(&self, resource: &Resource, failure: &ApiError) {
        self.0.lock().push(format!("{resource} {}", failure.code));
    }
}

#[tokio::test(start_paused = true)]
async fn one_object_that_cannot_be_read_spoils_no_other_and_is_not_quoted() {
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
    let script = Script::new(vec![
        Answer::status(400, "BadRequest"),
        Answer::of(200, &list("ServiceAccountList", "40", "", &[bad("bad", 2), good])),
        Answer::lines(&[modified, event("MODIFIED", "good", 42)]),
    ]);
    let heard = Arc::new(Heard::default());
    let mut reflector = script.accounts().with_observer(heard.clone());
    let all = reflector.next().await;
    assert_eq!(names(&all), ["good"]);
    let Delta::Replace { unreadable, .. } = all else { panic!() };
    assert_eq!(unreadable, [Key::namespaced("default", "bad")], "it is there, only nobody can read it");
    assert_eq!(names(&reflector.next().await), ["@41"], "nobody waits for it in vain");
    assert_eq!(reflector.last_sync_resource_version(), &ResourceVersion::from("41"));
    assert_eq!(names(&reflector.next().await), ["+good"]);
    assert_eq!(
        *heard.0.lock(),
        ["serviceaccounts 400", "serviceaccounts default/bad", "serviceaccounts default/good"]
    );
    let log = log.text();
    assert!(log.contains("default/bad"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_call_for_the_next_delta_can_be_dropped_at_any_time() {
    let world = World::with_accounts(&["a", "b"]);
    world.strike(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(1));
    world.strike(FaultRule::new(InjectedFault::DelayThen(
        Duration::from_secs(1),
        Box::new(InjectedFault::Pass),
    )));
    let mut reflector = world.accounts();
    let mut drops = 0;
    let first = loop {
        match tokio::time::timeout(Duration::from_millis(7), reflector.next()).await {
            Ok(delta) => break delta,
            Err(_) => drops += 1,
        }
    };
    assert_eq!(names(&first), ["a", "b"]);
    assert!(drops > 100);
    assert_eq!(world.asked.told(), ["stream from newest", "stream from newest"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_requests_at_the_same_times() {
    async fn run() -> Vec<(Duration, String)> {
        let world = World::with_accounts(&["a"]);
        world.strike(FaultRule::new(InjectedFault::ConnectionError(ErrorKind::ConnectionRefused)).times(3));
        let start = Instant::now();
        let mut reflector = world.accounts();
        let _ = tokio::time::timeout(Duration::from_secs(3600), async {
            loop {
                reflector.next().await;
            }
        })
        .await;
        let asked = world.asked.requests.lock();
        asked.iter().map(|(at, target, _)| (at.duration_since(start), target.clone())).collect()
    }
    let (one, two) = (run().await, run().await);
    assert!(one.len() > 8);
    assert_eq!(one, two);
}

/// Answers given in advance, one for each request; after the last one nothing is answered any more.
struct Script {
    client: Client,
    asked: Arc<Asked>,
}

struct Answer {
    code: u16,
    body: Vec<u8>,
    silence: bool,
}

impl Answer {
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

    /// The body in chunks of a length that cuts through everything.
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

impl Script {
    fn new(answers: Vec<Answer>) -> Self {
        let answers = Arc::new(Mutex::new(std::collections::VecDeque::from(answers)));
        let service = transport(tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.method(), Method::GET);
            let answer = answers.lock().pop_front();
            async move {
                match answer {
                    Some(answer) => Ok::<_, BoxError>(answer.into_response()),
                    None => futures::future::pending().await,
                }
            }
        }));
        let asked = Arc::new(Asked::default());
        let recorder = MiddlewareLayer::shared(Arc::clone(&asked));
        Self { client: Client::new(recorder.layer(service), "default"), asked }
    }

    fn accounts(&self) -> Reflector<ServiceAccount> {
        Reflector::new(self.client.clone(), ListWatch::of_kind(), fastrand::Rng::with_seed(1))
    }

    fn told(&self) -> Vec<String> {
        self.asked.told()
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

/// A server of a later version has fields that cannot be told from their numbers alone.
#[tokio::test(start_paused = true)]
async fn where_protobuf_would_lose_a_field_json_is_asked_for() {
    fn record(field: u8, content: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }
    let type_line = [record(1, b"apps/v1"), record(2, b"ReplicaSet")].concat();
    let object = [record(1, &record(1, b"web")), record(15, b"new")].concat();
    let envelope = [b"k8s\0".to_vec(), record(1, &type_line), record(2, &object)].concat();
    let event = [record(1, b"ADDED"), record(2, &record(1, &envelope))].concat();
    let frame = [u32::try_from(event.len()).unwrap().to_be_bytes().as_slice(), &event].concat();
    let lines = concat!(
        r#"{"type":"ADDED","object":{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"name":"web"},"new":1}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"9","#,
        r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n",
    );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let accept = request.headers()[ACCEPT].to_str().unwrap().to_owned();
        let (media_type, body) = if accept.contains("protobuf") {
            ("application/vnd.kubernetes.protobuf;stream=watch", frame.clone())
        } else {
            ("application/json", lines.as_bytes().to_vec())
        };
        noted.lock().push(accept);
        let response = Response::builder().header(CONTENT_TYPE, media_type);
        std::future::ready(Ok::<_, std::convert::Infallible>(response.body(Body::from(body)).unwrap()))
    });
    let client = Client::new(server, "default");
    let mut reflector =
        Reflector::new(client, ListWatch::<ReplicaSet>::of_kind(), fastrand::Rng::with_seed(1));
    let Delta::Replace { objects, unreadable, .. } = reflector.next().await else { panic!("no list") };
    assert_eq!((objects.len(), unreadable.len()), (1, 0));
    assert_eq!(*asked.lock(), ["application/vnd.kubernetes.protobuf,application/json", "application/json"]);
}
