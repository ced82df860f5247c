//! What keeps the process from starting, and what ends it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;

use keleustes_runtime::running_controllers::wait_for_api_server;

use super::*;
use crate::command;

/// A process context whose API server returns these responses in order, the last one for ever, and a count of the requests.
fn process(answers: &'static [u16], options: &Options) -> (ProcessContext, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = tower::service_fn(move |request: Request<Body>| {
        assert_eq!(request.uri().path(), "/healthz");
        let at = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        async move {
            let mut response = Response::new(Body::from(b"ok".to_vec()));
            *response.status_mut() = StatusCode::from_u16(answers[at]).unwrap();
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (
        crate::process_context::build_process_context(
            options,
            Connection::from_service(server),
            Metrics::new(),
        ),
        asked,
    )
}

fn context<'a>(
    process: &'a ProcessContext,
    options: &'a Options,
    health: &'a HealthChecks,
    late_start: &'a LateStart,
) -> LeadingContext<'a> {
    static GATE: LazyLock<LeadGate> = LazyLock::new(LeadGate::default);
    LeadingContext { process, options, health, pages: None, late_start, gate: &GATE }
}

struct NoopObserver;

impl ElectionObserver for NoopObserver {}

fn options(args: &[&str]) -> Box<Options> {
    command::read(args.iter().map(Into::into)).unwrap()
}

/// Proves RUN-41, RUN-122, RUN-42.
#[tokio::test(start_paused = true)]
async fn api_server_health_is_polled_every_second_until_it_is_healthy() {
    let stop = CancellationToken::new();
    let (process, asked) = process(&[500, 403, 503, 200], &options(&[]));
    let began = Instant::now();
    wait_for_api_server(&process, &stop).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    assert_eq!(began.elapsed().as_secs(), 3);
}

/// Proves RUN-40, RUN-41, RUN-115, RUN-122.
#[tokio::test(start_paused = true)]
async fn unhealthy_api_server_ends_the_process_after_ten_seconds() {
    let options = options(&[]);
    let (process, asked) = process(&[403], &options);
    let began = Instant::now();
    let (health, stop) = (HealthChecks::new(), CancellationToken::new());
    let late_start = LateStart::new(&options, b"");
    let context = context(&process, &options, &health, &late_start);
    let mut background = JoinSet::new();
    let leading = lead(context, Locks::without_election(), Vec::new(), &stop, &mut background).await;
    let error = leading.unwrap_err().to_string();
    let begins = "failed to wait for apiserver being healthy: timed out waiting for the condition: ";
    assert!(error.starts_with(begins), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 10);
    assert!((9..=10).contains(&began.elapsed().as_secs()));
}

/// Proves RUN-41, RUN-115.
#[tokio::test(start_paused = true)]
async fn unresponsive_api_server_ends_the_process_after_ten_seconds() {
    let server = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    let process = crate::process_context::build_process_context(
        &options(&[]),
        Connection::from_service(server),
        Metrics::new(),
    );
    let began = Instant::now();
    let error = wait_for_api_server(&process, &CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.ends_with("timed out waiting for the condition: no response"), "{error}");
    assert_eq!(began.elapsed().as_secs(), 10);
}

/// Proves RUN-14, RUN-119.
#[tokio::test(start_paused = true)]
async fn process_without_election_and_controllers_runs_until_it_is_stopped() {
    let options = options(&["--leader-elect=false"]);
    let (process, _) = process(&[200], &options);
    let (health, stop) = (HealthChecks::new(), CancellationToken::new());
    let observer: Arc<dyn ElectionObserver> = Arc::new(NoopObserver);
    let locks = locks(&process, &options, "me", &observer).unwrap();
    let late_start = LateStart::new(&options, b"");
    let context = context(&process, &options, &health, &late_start);
    let mut background = JoinSet::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        stopping.cancel();
    });
    let began = Instant::now();
    lead(context, locks, Vec::new(), &stop, &mut background).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3600);
}

/// Proves RUN-78.
#[tokio::test(start_paused = true)]
async fn failed_part_ends_the_process_with_its_error() {
    let options = options(&[]);
    let (process, _) = process(&[200], &options);
    let (health, stop) = (HealthChecks::new(), CancellationToken::new());
    let late_start = LateStart::new(&options, b"");
    let context = context(&process, &options, &health, &late_start);
    let mut background = JoinSet::new();
    background.spawn(async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        bail!("the port is closed")
    });
    let ended = lead(context, Locks::without_election(), Vec::new(), &stop, &mut background).await;
    assert_eq!(ended.unwrap_err().to_string(), "the port is closed");
    assert!(stop.is_cancelled());
}

/// Proves RUN-120.
#[tokio::test(start_paused = true)]
async fn kinds_that_no_controller_reads_are_not_watched() {
    let asked = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let paths = Arc::clone(&asked);
    let server = tower::service_fn(move |request: Request<Body>| {
        paths.lock().insert(request.uri().path().to_owned());
        async {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let options = options(&["--controllers=clusterrole-aggregation"]);
    let process = crate::process_context::build_process_context(
        &options,
        Connection::from_service(server),
        Metrics::new(),
    );
    let selection =
        ControllerSelection::choose(&options, &keleustes_controllers::ControllersOptions::default()).unwrap();
    loops::prepare(&selection.members, &process.caches);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked: Vec<_> = asked.lock().iter().cloned().collect();
    assert_eq!(asked, ["/apis/rbac.authorization.k8s.io/v1/clusterroles"]);
}
