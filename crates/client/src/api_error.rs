//! Converts client, transport and HTTP errors into [`ApiError`]. Error messages never quote the content of an
//! object.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use keleustes_objects::{ApiError, ErrorReason, protobuf};
use kube::core::Status;

/// HTTP and TLS errors nest a few levels; a longer chain of sources has a cycle.
const SOURCES_MAX: usize = 16;

/// The longest wait that a response can ask for, which is the longest backoff of a queue: behind the API server there are
/// webhooks and extension API servers, and none of them may stop the work on an object for years.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1000);

/// Longer error bodies are truncated: proxies respond with whole HTML pages.
const MESSAGE_BYTES_MAX: usize = 2048;

/// The API error behind an error of `kube::Client`.
#[must_use]
pub fn from_kube(error: &kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => from_status(status, None),
        kube::Error::SerdeError(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::LinesCodecMaxLineLengthExceeded => {
            ApiError::transport(ErrorReason::UnreadableResponse, "the response cannot be decoded")
        }
        kube::Error::ReadEvents(cause) => from_transport(cause),
        kube::Error::HyperError(cause) => from_transport(cause),
        kube::Error::Service(cause) => from_transport(cause.as_ref()),
        // No token could be obtained, so the request was not sent.
        kube::Error::Auth(cause) => ApiError::transport(ErrorReason::Unauthorized, with_sources(cause)),
        other => ApiError::transport(ErrorReason::Other, with_sources(other)),
    }
}

/// The API error behind a transport error.
///
/// A layer that fails with an [`ApiError`] of its own (no token could be obtained) keeps it unchanged.
#[must_use]
pub fn from_transport(error: &(dyn Error + 'static)) -> ApiError {
    let mut reason = ErrorReason::ConnectionLost;
    for cause in sources(error) {
        if let Some(failure) = cause.downcast_ref::<ApiError>() {
            return failure.clone();
        }
        if let Some(kube::Error::Api(status)) = cause.downcast_ref::<kube::Error>() {
            return from_status(status, None);
        }
        let refused =
            cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused);
        // An error before the connection is established (DNS, routing, TLS handshake) means that the request
        // had no effect.
        let never_connected = cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect);
        if refused || never_connected {
            reason = ErrorReason::ConnectionRefused;
        }
    }
    ApiError::transport(reason, with_sources(error))
}

/// The API error behind a response with a non-2xx status code.
#[must_use]
pub fn from_response(code: u16, headers: &HeaderMap, body: &Bytes) -> ApiError {
    let retry_after = retry_after(headers);
    match status_of(body) {
        // JSON from a proxy also parses as a Status, with every field empty.
        Some(mut status) if status.is_failure() => {
            if status.code == 0 {
                status.code = code;
            }
            from_status(&status, retry_after)
        }
        _ => {
            let text = truncated(String::from_utf8_lossy(body).trim());
            let mut failure = ApiError::from_status(code, "", &text, [], 0);
            failure.retry_after = retry_after;
            failure
        }
    }
}

/// The Status in a body: the API server encodes it like the object that was asked for.
fn status_of(body: &Bytes) -> Option<Status> {
    match protobuf::Envelope::open(body) {
        Ok(envelope) => protobuf::from_slice(envelope.object, &protobuf::STATUS).ok(),
        Err(_) => serde_json::from_slice(body).ok(),
    }
}

/// The API error that a Status object describes.
#[must_use]
pub fn from_status(status: &Status, retry_after: Option<Duration>) -> ApiError {
    let details = status.details.as_ref();
    let causes = details.map(|details| details.causes.as_slice()).unwrap_or_default();
    let mut failure = ApiError::from_status(
        status.code,
        &status.reason,
        &truncated(&status.message),
        causes.iter().map(|cause| cause.reason.as_str()),
        details.map_or(0, |details| details.retry_after_seconds),
    );
    failure.retry_after = failure.retry_after.or(retry_after).map(|wait| wait.min(RETRY_AFTER_MAX));
    failure
}

/// The delay of a `Retry-After` header, within its limit. API servers send whole seconds only, so HTTP dates are ignored.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX))
}

fn truncated(text: &str) -> String {
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX);
    text[..end].to_owned()
}

/// The messages of an error and its sources, without repetitions. Hyper's own message is only "client error
/// (Connect)".
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut message = String::new();
    for cause in sources(error) {
        let text = cause.to_string();
        if message.contains(&text) {
            continue;
        }
        if !message.is_empty() {
            message.push_str(": ");
        }
        message.push_str(&text);
    }
    truncated(&message)
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source()).take(SOURCES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_body_keeps_its_causes_and_retry_after() {
        let body = Bytes::from_static(
            br#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no",
                 "details":{"causes":[{"reason":"NamespaceTerminating"}],"retryAfterSeconds":7}}"#,
        );
        let failure = from_response(403, &HeaderMap::new(), &body);
        assert_eq!(failure.reason, ErrorReason::NamespaceTerminating);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(failure.message, "no");
    }

    /// An admission webhook can write any number into the Status with which it refuses an object.
    #[test]
    fn retry_after_is_no_longer_than_the_longest_backoff() {
        let limit = Some(Duration::from_secs(1000));
        let of_body = |code: u16, seconds: u32| {
            let body = format!(
                r#"{{"kind":"Status","status":"Failure","code":{code},"details":{{"retryAfterSeconds":{seconds}}}}}"#
            );
            from_response(code, &HeaderMap::new(), &Bytes::from(body)).retry_after
        };
        for code in [403, 409, 429, 503] {
            assert_eq!(of_body(code, i32::MAX.unsigned_abs()), limit, "{code}");
            assert_eq!(of_body(code, 999), Some(Duration::from_secs(999)), "{code}");
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, http::HeaderValue::from(u32::MAX));
            assert_eq!(from_response(code, &headers, &Bytes::new()).retry_after, limit, "{code}");
        }
    }

    /// Requests that accept protobuf are refused in protobuf.
    #[test]
    fn status_body_in_protobuf_is_decoded() {
        let record = |number: u8, bytes: &[u8]| {
            [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
        };
        let message = record(3, b"pods is forbidden");
        let status =
            [record(2, b"Failure"), message, record(4, b"Forbidden"), vec![6 << 3, 0x93, 3]].concat();
        let type_meta = [record(1, b"v1"), record(2, b"Status")].concat();
        let body = [b"k8s\0".as_slice(), &record(1, &type_meta), &record(2, &status)].concat();
        let failure = from_response(403, &HeaderMap::new(), &Bytes::from(body));
        assert_eq!((failure.reason, failure.code), (ErrorReason::Forbidden, 403));
        assert_eq!(failure.to_string(), "pods is forbidden");
    }

    #[test]
    fn response_without_status_body_is_classified_by_its_code() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, http::HeaderValue::from_static("3"));
        let failure = from_response(429, &headers, &Bytes::from_static(b"<html>busy</html>"));
        assert_eq!(failure.reason, ErrorReason::TooManyRequests);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(3)));
        let failure = from_response(503, &HeaderMap::new(), &Bytes::from_static(b"{\"error\":\"x\"}"));
        assert_eq!((failure.reason, failure.code), (ErrorReason::Unavailable, 503));
        assert_eq!(failure.message, "{\"error\":\"x\"}");
    }

    #[tokio::test]
    async fn refused_connection_is_distinguished_from_a_lost_one() {
        use tokio::io::AsyncReadExt as _;
        use tokio::net::TcpListener;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let client = |address: std::net::SocketAddr| {
            let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
                .build_http::<kube::client::Body>();
            let request = http::Request::get(format!("http://{address}/version"))
                .body(kube::client::Body::empty())
                .unwrap();
            (kube::Client::new(http, "default"), request)
        };
        let (refused, request) = client(address);
        let failure = from_kube(&refused.send(request).await.unwrap_err());
        assert_eq!(failure.reason, ErrorReason::ConnectionRefused, "{failure}");
        assert!(failure.message.to_lowercase().contains("refused"), "{failure}");

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (broken, request) = client(listener.local_addr().unwrap());
        let server = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 64]).await;
        };
        let (answer, ()) = tokio::join!(broken.send(request), server);
        let failure = from_kube(&answer.unwrap_err());
        assert_eq!(failure.reason, ErrorReason::ConnectionLost, "{failure}");
    }
}
