//! Memory and delivery of ten thousand watches, on sockets and in process. A separate test binary, because it
//! measures the memory of the whole process.

mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::http::Limits;
use keleustes_apiserver::service::Body;
use support::{CONFIG_MAPS, is_healthy, multiplexed, seed, send_get, serving};
use tower::ServiceExt as _;

const WATCHES: usize = 10_000;
const CONNECTIONS: usize = 10;
const KIB: usize = 1024;

/// Resident memory of the process in bytes; 0 where it cannot be determined.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4 * KIB
}

/// Measures memory and time per step.
struct Meter {
    from: usize,
    began: Instant,
}

impl Meter {
    fn new() -> Meter {
        Meter { from: resident(), began: Instant::now() }
    }

    /// Bytes per watch since the beginning; also prints the measurements.
    fn report(&self, what: &str) -> usize {
        let each = resident().saturating_sub(self.from) / WATCHES;
        println!("{what}: {each} bytes for each of {WATCHES} watches, after {:?}", self.began.elapsed());
        each
    }
}

async fn in_process(server: &ApiServer) -> Body {
    let request = http::Request::get(format!("{CONFIG_MAPS}?watch=1")).body(Empty::<Bytes>::new());
    let answer = server.clone().oneshot(request.expect("a request")).await.expect("an answer");
    answer.into_body()
}

async fn on_socket(sender: &mut SendRequest<Empty<Bytes>>) -> Incoming {
    let answer = send_get(sender, &format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

async fn event<B: http_body::Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Bytes> {
    body.frame().await.and_then(Result::ok).and_then(|frame| frame.into_data().ok())
}

/// Reads the next event of every watch.
async fn read_next_of_all<B: http_body::Body<Data = Bytes> + Unpin>(watches: &mut [B]) -> usize {
    join_all(watches.iter_mut().map(event)).await.into_iter().flatten().count()
}

/// Changes an object without reading any watch until the server has ended all of them.
fn change_until_watches_end(server: &ApiServer) -> usize {
    let value = "x".repeat(2 * KIB);
    let changes = (0..500).find(|_| {
        seed(server, "a", &value);
        server.open_watches() == 0
    });
    changes.expect("all watches end within 500 changes")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_watches_are_served_and_bounded() {
    let builder = ApiServer::builder().frames_max(100).request_log_limit(0);
    let server = builder.history_limit(1000).build();

    let meter = Meter::new();
    let mut watches = join_all((0..WATCHES).map(|_| in_process(&server))).await;
    assert_eq!(server.open_watches(), WATCHES);
    seed(&server, "a", "v");
    assert_eq!(read_next_of_all(&mut watches).await, WATCHES);
    assert!(meter.report("in the process, one event read") < 4 * KIB);
    let changes = change_until_watches_end(&server);
    assert!(meter.report(&format!("{changes} changes not read")) < 16 * KIB);
    drop(watches);

    let serving = serving(&server, Limits::default()).await;
    let meter = Meter::new();
    let mut watches = Vec::new();
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut sender = multiplexed(&serving).await;
        for _ in 0..WATCHES / CONNECTIONS {
            watches.push(on_socket(&mut sender).await);
        }
        senders.push(sender);
    }
    assert_eq!(server.open_watches(), WATCHES);
    // The existing object comes first.
    assert_eq!(read_next_of_all(&mut watches).await, WATCHES);
    // Client and server are both in this process, each with state for every stream.
    assert!(meter.report("on sockets, one event read") < 32 * KIB);
    assert!(is_healthy(&serving).await);
    let changes = change_until_watches_end(&server);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(meter.report(&format!("{changes} changes not read")) < 128 * KIB);
    assert!(is_healthy(&serving).await);
    drop((watches, senders));
    serving.stop().await;
}
