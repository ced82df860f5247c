//! Responses of lists and watches, as a reflector reads them from a connection.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use keleustes_client::{ListWatch, Reflector};
use keleustes_objects::{Kind, Namespace, Pod, ReplicaSet};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tower::service_fn;

use crate::choice;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The first byte chooses the kind, the encoding, and whether the input is a list or a watch; the second one the size of
/// the chunks in which it arrives. How the bytes are divided into chunks does not matter.
pub(crate) fn run(input: &[u8]) {
    let (variant, rest) = choice(input);
    let (size, rest) = choice(rest);
    let deltas = match variant % 3 {
        0 => deltas_of::<Namespace>,
        1 => deltas_of::<Pod>,
        _ => deltas_of::<ReplicaSet>,
    };
    let response = |chunk_bytes: usize| {
        let chunks = rest.chunks(chunk_bytes).map(Bytes::copy_from_slice).collect();
        let media_type = if variant & 0x40 == 0 { JSON } else { PROTOBUF };
        deltas(chunks, media_type, variant & 0x80 != 0)
    };
    assert_eq!(response(rest.len().max(1)), response(size % 40 + 1), "in chunks of {}", size % 40 + 1);
}

/// The deltas of a reflector whose first response is made of these chunks, until it sends its second request.
fn deltas_of<T: Kind + Debug>(chunks: Vec<Bytes>, media_type: &'static str, is_list: bool) -> Vec<String> {
    // Backoffs take no time while the clock is paused.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    runtime.block_on(async {
        let read = Arc::new(Notify::new());
        let client = client(chunks, media_type, Arc::clone(&read));
        let mut reflector = Reflector::<T>::new(client, ListWatch::of_kind(), fastrand::Rng::with_seed(1));
        if is_list {
            reflector = reflector.without_watch_list();
        }
        let mut deltas = Vec::new();
        loop {
            tokio::select! {
                biased;
                delta = reflector.next() => deltas.push(format!("{delta:?}")),
                () = read.notified() => break,
            }
        }
        deltas
    })
}

/// A client whose first request has this response. All later ones have none.
fn client(chunks: Vec<Bytes>, media_type: &'static str, read: Arc<Notify>) -> Client {
    let (requests, chunks) = (Arc::new(AtomicUsize::new(0)), Arc::new(chunks));
    let service = service_fn(move |_: Request<Body>| {
        let first = requests.fetch_add(1, Ordering::Relaxed) == 0;
        let (chunks, read) = (Arc::clone(&chunks), Arc::clone(&read));
        async move {
            if !first {
                read.notify_one();
                std::future::pending::<()>().await;
            }
            let frames = chunks.iter().cloned().map(|chunk| Ok(http_body::Frame::data(chunk)));
            let frames: Vec<Result<_, Infallible>> = frames.collect();
            let body = StreamBody::new(stream::iter(frames));
            Ok::<_, Infallible>(response(body.boxed(), media_type))
        }
    });
    Client::new(service, "default")
}

fn response(
    body: BoxBody<Bytes, Infallible>,
    media_type: &'static str,
) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response
}
