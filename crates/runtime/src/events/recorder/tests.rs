//! Which events are written, and how the rest is logged.

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

/// The embedded API server, faults in front of it, and the requests that were sent.
#[derive(Clone)]
struct Api {
    server: ApiServer,
    faults: Faults,
    requests: Arc<Mutex<Vec<SentRequest>>>,
}

/// One request as it was sent, whatever its result.
#[derive(Clone, Debug, PartialEq)]
struct SentRequest {
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
        Self { server, faults: Faults::new(), requests: Arc::default() }
    }

    /// An API whose first requests fail with these faults, one after the other.
    fn with(faults: impl IntoIterator<Item = Fault>) -> Self {
        let api = Self::new();
        for fault in faults {
            api.faults.add(FaultRule::new(fault).times(1));
        }
        api
    }

    fn client(&self) -> Client {
        let (requests, faulty) = (self.requests.clone(), self.faults.layer(self.server.clone()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (requests, faulty) = (requests.clone(), faulty.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                requests.lock().push(SentRequest {
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

    fn requests(&self) -> Vec<SentRequest> {
        self.requests.lock().clone()
    }

    fn messages(&self) -> Vec<String> {
        let text_of = |requests: SentRequest| requests.body["message"].as_str().unwrap().to_owned();
        self.requests().into_iter().map(text_of).collect()
    }

    /// Count and message of each stored event.
    fn stored(&self) -> Vec<(u64, String)> {
        let events = self.server.objects("events");
        let count_and_message = |event: &Arc<Value>| {
            let message = event["message"].as_str().unwrap().to_owned();
            (event["count"].as_u64().unwrap(), message)
        };
        events.iter().map(count_and_message).collect()
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
    fn warn(&self, message: &str) {
        self.recorder.record(PlannedEvent::warning(pod(), "Failed", message));
    }

    /// Waits until everything is written.
    async fn finish(self) {
        drop(self.recorder);
        self.writer.await.unwrap();
    }
}

/// The log level of each line about a rejected event.
fn rejections(log: &TestLog) -> Vec<String> {
    let lines = log.lines(&["Server rejected event (will not retry!)"]);
    let level = |line: &String| line.split_whitespace().next().unwrap().to_owned();
    lines.iter().map(level).collect()
}

/// Proves EVT-1, EVT-2, EVT-45, EVT-70, EVT-81.
#[tokio::test(start_paused = true)]
async fn first_event_is_created_and_repetitions_are_patched() {
    let api = Api::new();
    let pipeline = pipeline(&api);
    let mut event = PlannedEvent::warning(pod(), "Failed", "no");
    event.annotations.insert("a".to_owned(), "b".to_owned());
    pipeline.recorder.record(event);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let later = InvolvedObject { resource_version: ResourceVersion::from("99"), ..pod() };
    pipeline.recorder.record(PlannedEvent::warning(later, "Failed", "no"));
    pipeline.finish().await;

    let [first, second] = &api.requests()[..] else {
        panic!("{:?}", api.requests());
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

/// When each request was sent, in seconds, and its count.
fn counts(api: &Api, began: Instant) -> Vec<(u64, u64)> {
    let count_and_message =
        |requests: SentRequest| ((requests.at - began).as_secs(), requests.body["count"].as_u64().unwrap());
    api.requests().into_iter().map(count_and_message).collect()
}

/// Proves EVT-23.
#[tokio::test(start_paused = true)]
async fn only_the_last_of_repetitions_within_a_second_is_written() {
    let api = Api::new();
    let (pipeline, began) = (pipeline(&api), Instant::now());
    for _ in 0..10 {
        pipeline.warn("no");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(counts(&api, began), [(0, 1), (1, 5), (2, 9)], "a series is written every second");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counts(&api, began)[3..], [(3, 10)]);
    assert_eq!(api.stored(), [(10, "no".to_owned())]);
}

/// The write of a burst's last event ends after further ones were counted, which must not be forgotten.
///
/// Proves EVT-40, EVT-46.
#[tokio::test(start_paused = true)]
async fn repetitions_skipped_while_a_write_waits_stay_counted() {
    let api = Api::new();
    let pipeline = pipeline(&api);
    let combined = || {
        let stored = api.stored().into_iter();
        stored
            .filter(|(_, message)| message.starts_with("(combined"))
            .map(|(count, _)| count)
            .collect::<Vec<_>>()
    };
    for at in 1..=100 {
        pipeline.warn(&format!("attempt {at}"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(api.stored().len(), 10);
    assert_eq!(combined(), [16], "25 events are written; the first nine are events of their own");
    tokio::time::sleep(Duration::from_secs(300)).await;
    pipeline.warn("attempt 101");
    pipeline.finish().await;
    assert_eq!(combined(), [92], "attempts 10 to 101");
}

/// Proves EVT-23.
#[tokio::test(start_paused = true)]
async fn new_events_and_repetitions_do_not_delay_each_other() {
    let api = Api::new();
    let (pipeline, began) = (pipeline(&api), Instant::now());
    let event = |object: usize| {
        let object = InvolvedObject { name: format!("pod-{object}"), ..pod() };
        PlannedEvent::warning(object, "Failed", "no")
    };
    pipeline.recorder.record(event(0));
    pipeline.recorder.record(event(0));
    for object in 1..=30 {
        pipeline.recorder.record(event(object));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let repetition = api.requests().iter().position(|requests| requests.method == Method::PATCH).unwrap();
    assert_eq!(counts(&api, began)[repetition], (1, 2));
    assert!((10..=12).contains(&repetition), "{repetition}");
    assert_eq!(api.requests().len(), 32);
}

/// Proves EVT-45, EVT-80.
#[tokio::test(start_paused = true)]
async fn expired_event_is_created_again() {
    let api = Api::new();
    let pipeline = pipeline(&api);
    pipeline.warn("no");
    tokio::time::sleep(Duration::from_secs(7200)).await;
    let name = api.requests()[0].body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(api.server.remove("events", "shop", &name));
    pipeline.warn("no");
    tokio::time::sleep(Duration::from_secs(2)).await;
    pipeline.warn("no");
    pipeline.finish().await;

    let requests = api.requests();
    let methods: Vec<_> = requests.iter().map(|requests| requests.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST", "PATCH"]);
    let (first, again) = (&requests[0].body, &requests[2].body);
    assert_eq!(requests[2].path, COLLECTION);
    assert_eq!(again["metadata"], first["metadata"], "the old name, and no resourceVersion");
    assert_eq!(again["firstTimestamp"], first["firstTimestamp"]);
    assert_eq!(again["lastTimestamp"], "2026-11-15T11:00:01Z", "when it occurred, not when it was written");
    assert_eq!(again["count"], 2);
    assert_eq!(requests[3].body["count"], 3);
    assert_eq!(api.stored(), [(3, "no".to_owned())]);
}

/// Proves EVT-46.
#[tokio::test(start_paused = true)]
async fn response_determines_name_and_count_of_the_next_patch() {
    let answer =
        json!({"metadata": {"name": "renamed"}, "count": 4, "firstTimestamp": "2026-01-01T00:00:00Z"});
    let body = answer.to_string().into();
    let api = Api::with([Fault::RawBody { code: 201, body }]);
    let pipeline = pipeline(&api);
    pipeline.warn("no");
    pipeline.warn("no");
    pipeline.finish().await;
    let next = &api.requests()[1];
    assert_eq!((&next.method, &next.path), (&Method::PATCH, &format!("{COLLECTION}/renamed")));
    assert_eq!(next.body["count"], 5);
}

/// Proves EVT-47.
#[tokio::test(start_paused = true)]
async fn error_response_is_not_retried() {
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
        pipeline.warn("refused");
        pipeline.warn("next");
        pipeline.finish().await;
        assert_eq!(api.messages(), ["refused", "next"], "{code} {reason}");
        assert_eq!(started.elapsed(), Duration::ZERO, "{code} {reason}");
        assert_eq!(rejections(&log), ["ERROR"], "{code} {reason}");
    }
}

/// Proves EVT-47.
#[tokio::test(start_paused = true)]
async fn event_stored_with_a_lost_response_is_no_error() {
    let (log, _guard) = TestLog::capture(Level::TRACE);
    let api = Api::with([Fault::ApplyThen(Box::new(unreachable()))]);
    let pipeline = pipeline(&api);
    pipeline.warn("first");
    pipeline.warn("next");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["first", "first", "next"]);
    assert_eq!(rejections(&log), ["TRACE"]);
    assert_eq!(api.stored().len(), 2);
}

/// Proves EVT-47, EVT-84.
#[tokio::test(start_paused = true)]
async fn events_of_a_terminating_namespace_are_dropped_at_trace_level() {
    let (log, _guard) = TestLog::capture(Level::TRACE);
    let api = Api::new();
    let terminating = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "deletionTimestamp": "2026-11-15T09:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating"},
    });
    api.server.seed(terminating).unwrap();
    let pipeline = pipeline(&api);
    pipeline.warn("late");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["late"]);
    assert_eq!(rejections(&log), ["TRACE"]);
    assert_eq!(api.stored(), []);
}

/// Proves EVT-50.
#[tokio::test(start_paused = true)]
async fn client_honours_retry_after() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let api = Api::with([Fault::too_many_requests(7)]);
    let pipeline = pipeline(&api);
    pipeline.warn("throttled");
    pipeline.finish().await;
    assert_eq!(api.stored(), [(1, "throttled".to_owned())]);
    let requests = api.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(7));
    assert!(log.text().is_empty(), "the client retries, not the recorder");
}

/// Proves EVT-47.
#[tokio::test(start_paused = true)]
async fn invalid_request_is_not_retried() {
    let (log, _guard) = TestLog::capture(Level::TRACE);
    let api = Api::new();
    let pipeline = pipeline(&api);
    let invalid = InvolvedObject { namespace: "no/namespace".to_owned(), ..pod() };
    pipeline.recorder.record(PlannedEvent::warning(invalid, "Failed", "odd"));
    pipeline.warn("next");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["next"]);
    assert_eq!(rejections(&log), ["ERROR"]);
}

/// Proves EVT-48.
#[tokio::test(start_paused = true)]
async fn event_without_response_is_tried_twelve_times() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let mut first_waits = Vec::new();
    for seed in 1..=3 {
        let api = Api::with(vec![unreachable(); 12]);
        let pipeline = seeded(&api, seed);
        pipeline.warn("lost");
        pipeline.warn("next");
        pipeline.finish().await;
        let requests = api.requests();
        assert_eq!(requests.len(), 13);
        assert!(requests[..12].iter().all(|requests| requests.body["message"] == "lost"));
        assert_eq!(requests[12].body["message"], "next");
        let waits: Vec<_> = requests.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        // The paused clock moves in whole milliseconds.
        let coarse: Vec<_> = waits.iter().map(|wait| (wait.as_millis() + 5) / 10).collect();
        assert!(waits[0] <= Duration::from_secs(10), "{waits:?}");
        assert_eq!(coarse[1..11], [1000; 10]);
        assert_eq!(waits[11], Duration::ZERO, "the last try is not followed by a wait");
        first_waits.push(waits[0]);
    }
    first_waits.dedup();
    assert_eq!(first_waits.len(), 3, "the first wait is random: {first_waits:?}");
    assert_eq!(log.count(&["Unable to write event (may retry after sleeping)"]), 36);
    assert_eq!(log.count(&["Unable to write event (retry limit exceeded!)"]), 3);
}

/// Proves EVT-48.
#[tokio::test(start_paused = true)]
async fn response_to_a_retry_ends_the_retries() {
    let body = "not JSON".into();
    let api = Api::with([unreachable(), Fault::RawBody { code: 200, body }]);
    let pipeline = pipeline(&api);
    pipeline.warn("first");
    pipeline.warn("next");
    pipeline.finish().await;
    assert_eq!(api.messages(), ["first", "first", "first", "next"]);
}

/// Proves EVT-23.
#[tokio::test(start_paused = true)]
async fn slow_write_delays_later_ones() {
    let slow = Fault::DelayThen(Duration::from_secs(30), Box::new(Fault::Pass));
    let api = Api::with([slow]);
    let pipeline = pipeline(&api);
    let wanted: Vec<_> = (0..9).map(|at| format!("{at}")).collect();
    for message in &wanted {
        pipeline.warn(message);
    }
    pipeline.finish().await;
    assert_eq!(api.messages(), wanted);
    let requests = api.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(30));
}

/// Proves EVT-20, EVT-49, EVT-76.
#[tokio::test(start_paused = true)]
async fn during_an_outage_1000_events_are_queued_and_the_rest_is_dropped() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let api = Api::with(vec![unreachable(); 12]);
    let pipeline = pipeline(&api);
    pipeline.warn("retried");
    // Now the writer retries that one, and the queue is empty.
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
async fn stop_abandons_a_retry_and_later_events_are_logged_and_dropped() {
    let (log, _guard) = TestLog::capture(Level::ERROR);
    let api = Api::with(vec![unreachable(); 12]);
    let pipeline = pipeline(&api);
    pipeline.warn("retried");
    pipeline.warn("waiting");
    tokio::time::sleep(Duration::from_secs(25)).await;
    let (tries, stopped_at) = (api.requests().len(), Instant::now());
    pipeline.stop.cancel();
    pipeline.writer.await.unwrap();
    assert_eq!(stopped_at.elapsed(), Duration::ZERO);

    pipeline.recorder.record(PlannedEvent::warning(pod(), "Failed", "late"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.requests().len(), tries);
    assert_eq!(log.count(&["Unable to record event: the recorder has stopped"]), 1);
}

/// Proves EVT-55.
#[tokio::test(start_paused = true)]
async fn every_event_is_logged_even_if_it_is_not_written() {
    let (log, _guard) = TestLog::capture(Level::DEBUG);
    let api = Api::new();
    let pipeline = pipeline(&api);
    for _ in 0..30 {
        pipeline.warn("no");
    }
    pipeline.finish().await;
    assert_eq!(api.stored(), [(25, "no".to_owned())], "the filter skips the rest");
    assert_eq!(api.requests().len(), 2, "the first, and one for its repetitions");
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
async fn events_of_the_manager_are_logged_at_info() {
    let (log, _guard) = TestLog::capture(Level::INFO);
    let client = Api::new().client();
    let (not_logged, _not_logged_writer) =
        EventRecorder::new("job-controller", client.clone(), clocks(), Rng::with_seed(1));
    let (logged, _logged_writer) = EventRecorder::new(MANAGER_COMPONENT, client, clocks(), Rng::with_seed(1));
    not_logged.record(PlannedEvent::normal(pod(), "Quiet", "x"));
    logged.record(PlannedEvent::normal(pod(), "LeaderElection", "me became leader"));
    let lines = log.lines(&["Event occurred"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("LeaderElection"), "{lines:?}");
}

/// Proves EVT-61.
#[tokio::test]
async fn controller_without_event_component_has_no_recorder() {
    let of = |controller| {
        EventRecorder::for_controller(&controller, Api::new().client(), clocks(), Rng::with_seed(1))
    };
    assert!(of(Controller::new("serviceaccount-controller")).is_none());
    let (_, writer) =
        of(Controller::new("endpoints-controller").event_component("endpoint-controller")).unwrap();
    assert_eq!(writer.component, "endpoint-controller");
}

#[tokio::test(start_paused = true)]
async fn events_recorded_before_the_writer_runs_are_kept() {
    let api = Api::new();
    let (recorder, writer) = EventRecorder::new("job-controller", api.client(), clocks(), Rng::with_seed(1));
    recorder.record(PlannedEvent::normal(pod(), "Early", "early"));
    drop(recorder);
    writer.run(CancellationToken::new()).await;
    assert_eq!(api.messages(), ["early"]);
}
