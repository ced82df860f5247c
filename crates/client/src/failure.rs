//! Turns whatever went wrong with a request into a [`Failure`], without ever quoting what an object says.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use keleustes_objects::{ApiError, ErrorReason};
use kube::core::Status;

/// Errors of HTTP and TLS nest a handful of levels; a chain longer than this has a cycle.
const SOURCES_MAX: usize = 16;

/// A server's words are kept up to this length; proxies answer with whole pages.
const MESSAGE_BYTES_MAX: usize = 2048;

/// The failure behind an error of the client.
#[must_use]
pub fn of(error: &kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => of_status(status, None),
        kube::Error::SerdeError(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::LinesCodecMaxLineLengthExceeded => {
            ApiError::transport(ErrorReason::UnreadableResponse, "the answer cannot be read")
        }
        kube::Error::ReadEvents(cause) => of_transport(cause),
        kube::Error::HyperError(cause) => of_transport(cause),
        kube::Error::Service(cause) => of_transport(cause.as_ref()),
        // A token that could not be had: the request was never sent.
        kube::Error::Auth(cause) => ApiError::transport(ErrorReason::Unauthorized, with_sources(cause)),
        other => ApiError::transport(ErrorReason::Other, with_sources(other)),
    }
}

/// The failure behind an error of the transport.
///
/// A layer may pass on a [`Failure`] of its own (a token that could not be had); it comes out as it was.
#[must_use]
pub fn of_transport(error: &(dyn Error + 'static)) -> ApiError {
    let mut reason = ErrorReason::ConnectionLost;
    for cause in sources(error) {
        if let Some(failure) = cause.downcast_ref::<ApiError>() {
            return failure.clone();
        }
        if let Some(kube::Error::Api(status)) = cause.downcast_ref::<kube::Error>() {
            return of_status(status, None);
        }
        let refused =
            cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused);
        // Whatever fails before a connection stands, be it name, route or handshake, has had no effect.
        let never_connected = cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect);
        if refused || never_connected {
            reason = ErrorReason::ConnectionRefused;
        }
    }
    ApiError::transport(reason, with_sources(error))
}

/// The failure behind an answer whose code is not one of success.
#[must_use]
pub fn of_answer(code: u16, headers: &HeaderMap, body: &Bytes) -> ApiError {
    let retry_after = retry_after(headers);
    match serde_json::from_slice::<Status>(body) {
        // Proxies answer with JSON of their own, which reads as a Status without any field.
        Ok(mut status) if status.is_failure() => {
            if status.code == 0 {
                status.code = code;
            }
            of_status(&status, retry_after)
        }
        _ => {
            let text = clipped(String::from_utf8_lossy(body).trim());
            let mut failure = ApiError::from_status(code, "", &text, [], 0);
            failure.retry_after = retry_after;
            failure
        }
    }
}

/// The failure that a Status object tells of.
#[must_use]
pub fn of_status(status: &Status, retry_after: Option<Duration>) -> ApiError {
    let details = status.details.as_ref();
    let causes = details.map(|details| details.causes.as_slice()).unwrap_or_default();
    let mut failure = ApiError::from_status(
        status.code,
        &status.reason,
        &clipped(&status.message),
        causes.iter().map(|cause| cause.reason.as_str()),
        details.map_or(0, |details| details.retry_after_seconds),
    );
    failure.retry_after = failure.retry_after.or(retry_after);
    failure
}

/// How long the server asks to be left alone; only whole seconds are used by API servers.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

fn clipped(text: &str) -> String {
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX);
    text[..end].to_owned()
}

/// An error and what caused it, each said once: hyper's own words are only "client error (Connect)".
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    for cause in sources(error) {
        let words = cause.to_string();
        if said.contains(&words) {
            continue;
        }
        if !said.is_empty() {
            said.push_str(": ");
        }
        said.push_str(&words);
    }
    clipped(&said)
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source()).take(SOURCES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_keep_their_causes_and_their_wish_to_be_left_alone() {
        let body = Bytes::from_static(
            br#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no",
                 "details":{"causes":[{"reason":"NamespaceTerminating"}],"retryAfterSeconds":7}}"#,
        );
        let failure = of_answer(403, &HeaderMap::new(), &body);
        assert_eq!(failure.reason, ErrorReason::NamespaceTerminating);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(failure.message, "no");
    }

    #[test]
    fn an_answer_that_is_no_status_is_known_by_its_code() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, http::HeaderValue::from_static("3"));
        let failure = of_answer(429, &headers, &Bytes::from_static(b"<html>busy</html>"));
        assert_eq!(failure.reason, ErrorReason::TooManyRequests);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(3)));
        let failure = of_answer(503, &HeaderMap::new(), &Bytes::from_static(b"{\"error\":\"x\"}"));
        assert_eq!((failure.reason, failure.code), (ErrorReason::Unavailable, 503));
        assert_eq!(failure.message, "{\"error\":\"x\"}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_told_from_a_broken_one() {
        use tokio::io::AsyncReadExt as _;
        use tokio::net::TcpListener;

        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let client = |address: std::net::SocketAddr| {
            let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
                .build_http::<kube::client::Body>();
            let request = http::Request::get(format!("http://{address}/version"))
                .body(kube::client::Body::empty())
                .unwrap();
            (kube::Client::new(http, "default"), request)
        };
        let (refused, request) = client(address);
        let failure = of(&refused.send(request).await.unwrap_err());
        assert_eq!(failure.reason, ErrorReason::ConnectionRefused, "{failure}");
        assert!(failure.message.to_lowercase().contains("refused"), "{failure}");

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (broken, request) = client(listener.local_addr().unwrap());
        let server = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 64]).await;
        };
        let (answer, ()) = tokio::join!(broken.send(request), server);
        let failure = of(&answer.unwrap_err());
        assert_eq!(failure.reason, ErrorReason::ConnectionLost, "{failure}");
    }
}
