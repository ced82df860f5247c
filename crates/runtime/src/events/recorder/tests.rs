//! What reaches the API, and what the log says of the rest.

use std::io;
use std::sync::Arc;

use http::{Method, Request};
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault as Fault};
use keleustes_client::layers::{MiddlewareLayer, RetryAfter, transport};
use keleustes_objects::ResourceVersion;
use keleustes_plan::InvolvedObject;
use keleustes_test_log::TestLog;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};

use super::super::MANAGER_COMPONENT;
use super::super::event::tests::{NOW, pod};
use super::*;

const COLLECTION: &str = "/api/v1/namespaces/shop/events";

/// The embedded API server, what goes wrong on the way to it, and what it was asked.
#[derive(Clone)]
struct Api {
    server: ApiServer,
    faults: Faults,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// One request as it was sent, whatever became of it.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    method: Method,
    path: String,
    content_type: String,
    body: Value,
    at: Instant,
}

impl Api {
    fn new() -> Self {
        let server = ApiServer::builder().seed(1).build();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        server.seed(namespace).unwrap();
        Self { server, faults: Faults::new(), asked: Arc::default() }
    }

    /// An API of which the first requests go wrong in these ways, one after the other.
    fn with(faults: impl IntoIterator<Item = Fault>) -> Self {
        let api = Self::new();
        for fault in faults {
            api.faults.add(FaultRule::new(fault).times(1));
        }
        api
    }

    fn client(&self) -> Client {
        let (asked, faulty) = (self.asked.clone(), self.faults.layer(self.server.clone()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (asked, faulty) = (asked.clone(), faulty.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                asked.lock().push(Asked {
                    method: head.method.clone(),
                    path: head.uri.path_and_query().unwrap().to_string(),
                    content_type: head.headers["content-type"].to_str().unwrap().to_owned(),
                    body: serde_json::from_slice(&body).unwrap(),
                    at: Instant::now(),
                });
                faulty.oneshot(Request::from_parts(head, Body::from(body))).await
            }
        });
        let retry = MiddlewareLayer::new(RetryAfter::new("embedded".to_owned(), None));
        Client::new(retry.layer(transport(service)), "default")
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    fn messages(&self) -> Vec<String> {
        let text_of = |asked: Asked| asked.body["message"].as_str().unwrap().to_owned();
        self.asked().into_iter().map(text_of).collect()
    }

    /// Count and message of each event that is stored.
    fn stored(&self) -> Vec<(u64, String)> {
        let events = self.server.objects("events");
        let told = |event: &Arc<Value>| {
            let message = event["message"].as_str().unwrap().to_owned();
            (event["count"].as_u64().unwrap(), message)
        };
        events.iter().map(told).collect()
    }
}

fn unreachable() -> Fault {
    Fault::ConnectionError(io::ErrorKind::ConnectionReset)
}

fn clocks() -> Clocks {
    let started = Instant::now();
    Clocks::new(move || NOW.0 + i64::try_from(started.elapsed().as_nanos()).unwrap())
}

struct Pipeline {
    recorder: EventRecorder,
    writer: JoinHandle<()>,
    stop: CancellationToken,
}

fn pipeline(api: &Api) -> Pipeline {
    seeded(api, 1)
}

fn seeded(api: &Api, seed: u64) -> Pipeline {
    let (recorder, writer) =
        EventRecorder::new("job-controller", api.client(), clocks(), Rng::with_seed(seed));
    let stop = CancellationToken::new();
    Pipeline { recorder, writer: tokio::spawn(writer.run(stop.clone())), stop }
}

impl Pipeline {
    fn warns(&self, message: &str) {
        self.recorder.record(PlannedEvent::warning(pod(), "Failed", message));
    }

    /// Waits until all is written.
    async fn finish(self) {
        drop(self.recorder);
        self.writer.await.unwrap();
    }
}

/// The level of each line about a refused event.
fn rejections(log: &TestLog) -> Vec<String> {
    let lines = log.lines(&["Server rejected event (will not retry!)"]);
    let level = |line: &String| line.split_whitespace().next().unwrap().to_owned();
    lines.iter().map(level).collect()
}

/// Proves EVT-1, EVT-2, EVT-45, EVT-70, EVT-81.
#[tokio::test(start_paused = true)]
async fn the_first_is_posted_and_repetitions_are_patched() {
    let api = Api::new();
    let pipeline = pipeline(&api);
    let mut note = PlannedEvent::warning(pod(), "Failed", "no");
    note.annotations.insert("a".to_owned(), "b".to_owned());
    pipeline.recorder.record(note);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let later = InvolvedObject { resource_version: ResourceVersion::from("99"), ..pod() };
    pipeline.recorder.record(PlannedEvent::warning(later, "Failed", "no"));
    pipeline.finish().await;

    let [first, second] = &api.asked()[..] else {
        panic!("{:?}", api.asked());
    };
    assert_eq!((&first.method, first.path.as_str()), (&Method::POST, COLLECTION));
    assert_eq!(first.content_type, "application/json");
    assert_eq!(first.body["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(first.body["source"], json!({"component": "job-controller"}));
    assert_eq!((&first.body["reason"], &first.body["message"]), (&json!("Failed"), &json!("no")));
    let name = first.body["metadata"]["name"].as_str().unwrap();
    assert_eq!((&second.method, &second.path), (&Method::PATCH, &format!("{COLLECTION}/{name}")));
    assert_eq!(second.content_type, "application/strategic-merge-patch+json");
    assert_eq!(second.body, json!({"count": 2, "lastTimestamp": "2026-11-15T09:01:01Z", "message": "no"}));
    assert_eq!(api.stored(), [(2, "no".to_owned())]);
    let stored = api.server.object("events", "shop", name).unwrap();
    assert_eq!(stored["involvedObject"]["resourceVersion"], "41");
    assert_eq!(stored["firstTimestamp"], "2026-11-15T09:00:01Z");
}

/// When each request was sent, in seconds, and the count that it told of.
fn counts(api: &Api, began: Instant) -> Vec<(u64, u64)> {
    let told = |asked: Asked| ((asked.at - began).as_secs(), asked.body["count"].as_u64().unwrap());
    api.asked().into_iter().map(told).collect()
}

/// Proves EVT-23.
#[tokio::test(start_paused = true)]
async fn of_repetitions_within_a_second_only_the_last_is_written() {
    let api = Api::new();
    let (pipeline, began) = (pipeline(&api), Instant::now());
    for _ in 0..10 {
        pipeline.warns("no");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(counts(&api, began), [(0, 1), (1, 5), (2, 9)], "a row of them does not wait for its end");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counts(&api, began)[3..], [(3, 10)]);
    assert_eq!(api.stored(), [(10, "no".to_owned())]);
}

/// Proves EVT-23.
#[tokio::test(start_paused = true)]
async fn what_is_new_does_not_wait_for_repetitions_nor_they_for_it() {
    let api = Api::new();
    let (pipeline, began) = (pipeline(&api), Instant::now());
    let note = |object: usize| {
        let object = InvolvedObject { name: format!("pod-{object}"), ..pod() };
        PlannedEvent::warning(object, "Failed", "no")
    };
    pipeline.recorder.record(note(0));
    pipeline.recorder.record(note(0));
    for object in 1..=30 {
        pipeline.recorder.record(note(object));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let repetition = api.asked().iter().position(|asked| asked.method == Method::PATCH).unwrap();
    assert_eq!(counts(&api, began)[repetition], (1, 2));
    assert!((10..=12).contains(&repetition), "{repetition}");
    assert_eq!(api.asked().len(), 32);
}

/// Proves EVT-45, EVT-80.
#[tokio::test(start_paused = true)]
async fn an_event_that_the_api_has_forgotten_is_made_anew() {
    let api = Api::new();
    let pipeline = pipeline(&api);
    pipeline.warns("no");
    tokio::time::sleep(Duration::from_secs(7200)).await;
    let name = api.asked()[0].body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(api.server.remove("events", "shop", &name));
    pipeline.warns("no");
    tokio::time::sleep(Duration::from_secs(2)).await;
    pipeline.warns("no");
    pipeline.finish().await;

    let asked = api.asked();
    let methods: Vec<_> = asked.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST", "PATCH"]);
    let (first, again) = (&asked[0].body, &asked[2].body);
    assert_eq!(asked[2].path, COLLECTION);
    assert_eq!(again["metadata"], first["metadata"], "the old name, and no resourceVersion");
    assert_eq!(again["firstTimestamp"], first["firstTimestamp"]);
    assert_eq!(again["lastTimestamp"], "2026-11-15T11:00:01Z", "when it happened, not when it was told");
    assert_eq!(again["count"], 2);
    assert_eq!(asked[3].body["count"], 3);
    assert_eq!(api.stored(), [(3, "no".to_owned())]);
}

/// Proves EVT-46.
#[tokio::test(start_paused = true)]
async fn the_answer_of_the_api_tells_what_to_patch_next() {
    let answer =
        json!({"metadata": {"name": "renamed"}, "count": 4, "firstTimestamp": "2026-01-01T00:00:00Z"});
    let body = answer.to_string().into();
    let api = Api::with([Fault::RawBody { code: 201, body }]);
    let pipeline = pipeline(&api);
    pipeline.warns("no");
    pipeline.warns("no");
    pipeline.finish().await;
    let next = &api.asked()[1];
    assert_eq!((&next.method, &next.path), (&Method::PATCH, &format!("{COLLECTION}/renamed")));
    assert_eq!(next.body["count"], 5);
}

/// Proves EVT-47.
#[tokio::test(start_paused = true)]
async fn an_answer_is_final() {
    let cases = [
        (400, "BadRequest"),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (409, "Conflict"),
        (422, "Invalid"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ];
    for (code, reason) in cases {
        let (log, _guard) = TestLog::capture(Level::TRACE);
        let api = Api::with([Fault::status(code, reason, "no")]);
        let pipeline = pipeline(&api);
        let started = Instant::now();
        pipeline.warns("refused");
        pipeline.warns("next");
        pipeline.finish().await;
        assert_eq!(api.messages(), ["refused", "next"], "{code} {reason}");
        assert_eq!(started.elapsed(), Duration::ZERO, "{code} {reason}");
        assert_eq!(rejections(&log), ["ERROR"], "{code} {reason}");
    }
}

/// Proves EVT-47.
#[tokio::test(start_paused = true)]
async fn an_event_that_was_stored_although_the_answer_got_lost_is_no_error() {
    let (log, _guard) = TestLog::capture(Level::TRACE);
    let api = Api::with([Fault::ApplyThen(Box::new(unreachable()))]);
    let pipeline = pipeline(&api);
    pipeline.warns("first");
    pipeline.warns("next");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["first", "first", "next"]);
    assert_eq!(rejections(&log), ["TRACE"]);
    assert_eq!(api.stored().len(), 2);
}

/// Proves EVT-47, EVT-84.
#[tokio::test(start_paused = true)]
async fn the_last_events_of_a_namespace_are_dropped_quietly() {
    let (log, _guard) = TestLog::capture(Level::TRACE);
    let api = Api::new();
    let going = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "deletionTimestamp": "2026-11-15T09:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating"},
    });
    api.server.seed(going).unwrap();
    let pipeline = pipeline(&api);
    pipeline.warns("late");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["late"]);
    assert_eq!(rejections(&log), ["TRACE"]);
    assert_eq!(api.stored(), []);
}

/// Proves EVT-50.
#[tokio::test(start_paused = true)]
async fn when_the_api_asks_for_calm_the_client_comes_back_later() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let api = Api::with([Fault::too_many_requests(7)]);
    let pipeline = pipeline(&api);
    pipeline.warns("patience");
    pipeline.finish().await;
    assert_eq!(api.stored(), [(1, "patience".to_owned())]);
    let asked = api.asked();
    assert!(asked[1].at - asked[0].at >= Duration::from_secs(7));
    assert!(log.text().is_empty(), "the recorder did not notice");
}

/// Proves EVT-47.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_is_not_asked_again() {
    let (log, _guard) = TestLog::capture(Level::TRACE);
    let api = Api::new();
    let pipeline = pipeline(&api);
    let odd = InvolvedObject { namespace: "no namespace".to_owned(), ..pod() };
    pipeline.recorder.record(PlannedEvent::warning(odd, "Failed", "odd"));
    pipeline.warns("next");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["next"]);
    assert_eq!(rejections(&log), ["ERROR"]);
}

/// Proves EVT-48.
#[tokio::test(start_paused = true)]
async fn without_an_answer_an_event_is_tried_twelve_times() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let mut first_waits = Vec::new();
    for seed in 1..=3 {
        let api = Api::with(vec![unreachable(); 12]);
        let pipeline = seeded(&api, seed);
        pipeline.warns("lost");
        pipeline.warns("next");
        pipeline.finish().await;
        let asked = api.asked();
        assert_eq!(asked.len(), 13);
        assert!(asked[..12].iter().all(|asked| asked.body["message"] == "lost"));
        assert_eq!(asked[12].body["message"], "next");
        let waits: Vec<_> = asked.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        // The paused clock moves in whole milliseconds.
        let coarse: Vec<_> = waits.iter().map(|wait| (wait.as_millis() + 5) / 10).collect();
        assert!(waits[0] <= Duration::from_secs(10), "{waits:?}");
        assert_eq!(coarse[1..11], [1000; 10]);
        assert_eq!(waits[11], Duration::ZERO, "the last try is not followed by a wait");
        first_waits.push(waits[0]);
    }
    first_waits.dedup();
    assert_eq!(first_waits.len(), 3, "chance decides: {first_waits:?}");
    assert_eq!(log.count(&["Unable to write event (may retry after sleeping)"]), 36);
    assert_eq!(log.count(&["Unable to write event (retry limit exceeded!)"]), 3);
}

/// Proves EVT-48.
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_answered_ends_the_trying() {
    let body = "who knows".into();
    let api = Api::with([unreachable(), Fault::RawBody { code: 200, body }]);
    let pipeline = pipeline(&api);
    pipeline.warns("first");
    pipeline.warns("next");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["first", "first", "first", "next"]);
}

/// Proves EVT-23.
#[tokio::test(start_paused = true)]
async fn a_slow_write_delays_the_later_ones() {
    let slowly = Fault::DelayThen(Duration::from_secs(30), Box::new(Fault::Pass));
    let api = Api::with([slowly]);
    let pipeline = pipeline(&api);
    let wanted: Vec<_> = (0..9).map(|at| format!("{at}")).collect();
    for message in &wanted {
        pipeline.warns(message);
    }
    pipeline.finish().await;
    assert_eq!(api.messages(), wanted);
    let asked = api.asked();
    assert!(asked[1].at - asked[0].at >= Duration::from_secs(30));
}

/// Proves EVT-20, EVT-49, EVT-76.
#[tokio::test(start_paused = true)]
async fn while_the_api_is_down_a_thousand_events_wait_and_the_rest_is_dropped() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let api = Api::with(vec![unreachable(); 12]);
    let pipeline = pipeline(&api);
    pipeline.warns("held");
    // Now the writer holds that one, and nothing waits.
    tokio::time::sleep(Duration::from_secs(15)).await;
    for at in 0..1002 {
        let object = InvolvedObject { name: format!("pod-{at}"), ..pod() };
        pipeline.recorder.record(PlannedEvent::warning(object, "Failed", format!("{at}")));
    }
    let dropped = log.lines(&["Unable to record event: too many queued events, dropped event"]);
    assert_eq!(dropped.len(), 2);
    assert!(dropped[0].contains("object=shop/pod-1000 "), "{dropped:?}");
    pipeline.finish().await;
    let messages = api.messages();
    assert_eq!(messages.len(), 12 + 1000);
    assert_eq!(messages[12..14], ["0", "1"]);
    assert_eq!(messages.last().unwrap(), "999");
}

/// Proves EVT-24.
#[tokio::test(start_paused = true)]
async fn stopping_abandons_a_retry_and_later_notes_are_logged_and_dropped() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let api = Api::with(vec![unreachable(); 12]);
    let pipeline = pipeline(&api);
    pipeline.warns("held");
    pipeline.warns("waiting");
    tokio::time::sleep(Duration::from_secs(25)).await;
    let (tries, stopped_at) = (api.asked().len(), Instant::now());
    pipeline.stop.cancel();
    pipeline.writer.await.unwrap();
    assert_eq!(stopped_at.elapsed(), Duration::ZERO);

    pipeline.recorder.record(PlannedEvent::warning(pod(), "Failed", "late"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.asked().len(), tries);
    assert_eq!(log.count(&["Unable to record event: the recorder has stopped"]), 1);
}

/// Proves EVT-55.
#[tokio::test(start_paused = true)]
async fn every_event_is_logged_even_if_it_is_not_written() {
    let (log, _guard) = TestLog::capture(Level::DEBUG);
    let api = Api::new();
    let pipeline = pipeline(&api);
    for _ in 0..30 {
        pipeline.warns("no");
    }
    pipeline.finish().await;
    assert_eq!(api.stored(), [(25, "no".to_owned())], "the filter skips the rest");
    assert_eq!(api.asked().len(), 2, "the first, and one for its repetitions");
    let lines = log.lines(&["Event occurred"]);
    assert_eq!(lines.len(), 30);
    for part in
        ["DEBUG", "object=shop/web-1", "kind=\"Pod\"", "type=\"Warning\"", "reason=\"Failed\"", "note=\"no\""]
    {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
}

/// Proves EVT-55.
#[tokio::test(start_paused = true)]
async fn the_managers_own_events_are_logged_without_being_asked_for() {
    let (log, _guard) = TestLog::capture(Level::INFO);
    let client = Api::new().client();
    let (quiet, _quiet) = EventRecorder::new("job-controller", client.clone(), clocks(), Rng::with_seed(1));
    let (loud, _loud) = EventRecorder::new(MANAGER_COMPONENT, client, clocks(), Rng::with_seed(1));
    quiet.record(PlannedEvent::normal(pod(), "Quiet", "x"));
    loud.record(PlannedEvent::normal(pod(), "LeaderElection", "me became leader"));
    let lines = log.lines(&["Event occurred"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("LeaderElection"), "{lines:?}");
}

/// Proves EVT-61.
#[tokio::test]
async fn a_controller_without_a_component_has_no_recorder() {
    let of = |controller| {
        EventRecorder::for_controller(&controller, Api::new().client(), clocks(), Rng::with_seed(1))
    };
    assert!(of(Controller::new("serviceaccount-controller")).is_none());
    let (_, writer) =
        of(Controller::new("endpoints-controller").event_component("endpoint-controller")).unwrap();
    assert_eq!(writer.component, "endpoint-controller");
}

#[tokio::test(start_paused = true)]
async fn notes_taken_before_the_writer_runs_are_kept() {
    let api = Api::new();
    let (recorder, writer) = EventRecorder::new("job-controller", api.client(), clocks(), Rng::with_seed(1));
    recorder.record(PlannedEvent::normal(pod(), "Early", "early"));
    drop(recorder);
    writer.run(CancellationToken::new()).await;
    assert_eq!(api.messages(), ["early"]);
}
