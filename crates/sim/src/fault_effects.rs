//! Faults as the affected client sees them: rewritten queries, rejections, broken connections.

use std::io;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tower::BoxError;

use crate::actions::{FaultEffect, RequestClass};
use crate::network::HttpResponse;
use crate::recorder::RequestInfo;

impl RequestClass {
    pub(crate) fn covers(self, request: &RequestInfo) -> bool {
        match self {
            Self::All => true,
            Self::Writes => request.is_write(),
            Self::Creates => request.method == http::Method::POST,
            Self::StatusWrites => request.subresource == "status",
            Self::Deletes => request.method == http::Method::DELETE,
            Self::Reads => !request.is_write() && !request.watch,
            Self::Watches => request.watch,
            Self::Pods => request.resource == "pods",
            Self::ReplicaSets => request.resource == "replicasets",
            Self::EndpointSlices => request.resource == "endpointslices",
            Self::LeaderLease => request.is_leader_lease(),
            Self::TokenRequests => request.subresource == "token",
            Self::WatchLists => request.watch && request.query.contains("sendInitialEvents=true"),
            Self::ContinuedLists => request.query.contains("continue="),
        }
    }
}

impl FaultEffect {
    /// Whether it affects watch events and not requests.
    pub(crate) fn affects_watches(self) -> bool {
        matches!(self, Self::StallWatches | Self::BreakWatches | Self::ExpireWatches)
    }

    /// Whether the client never learns the result of the request.
    pub(crate) fn hides_response(self) -> bool {
        matches!(self, Self::DropResponse | Self::ApplyThenReject(_) | Self::TruncateResponse)
    }

    /// The URI as the server reads it under this fault, if that differs from what the client sent.
    ///
    /// A list without a resourceVersion gets the newest state. One with `resourceVersion=0`, or with a
    /// minimum, may get an older one: the server is asked for exactly that revision.
    pub(crate) fn rewritten_uri(self, uri: &Uri, stale_revision: impl FnOnce() -> u64) -> Option<Uri> {
        let query = uri.query().unwrap_or_default();
        let query = match self {
            Self::SmallPages if query.contains("limit=") => {
                with_parameter(query, "limit", &PAGE_OBJECTS.to_string())
            }
            Self::StaleCache if !query.contains("continue=") && !query.contains("watch=") => {
                // With a limit the resourceVersion is exact; without one it is a minimum.
                let not_older_than = resource_version(query)
                    .filter(|resource_version| *resource_version == 0 || !query.contains("limit="))?;
                let exact = format!("{}&resourceVersionMatch=Exact", stale_revision().max(not_older_than));
                with_parameter(query, "resourceVersion", &exact)
            }
            _ => return None,
        };
        format!("{}?{query}", uri.path()).parse().ok()
    }

    /// Whether a watch starts from a resourceVersion that the stale cache has not reached.
    pub(crate) fn is_ahead_of_stale_cache(self, uri: &Uri, stale_revision: impl FnOnce() -> u64) -> bool {
        let query = uri.query().unwrap_or_default();
        self == Self::StaleCache
            && query.contains("watch=")
            && resource_version(query).is_some_and(|wanted| wanted > 0 && wanted > stale_revision())
    }
}

/// The resourceVersion of a query.
fn resource_version(query: &str) -> Option<u64> {
    query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")?.parse().ok())
}

/// The page size of a server that returns less than the limit.
const PAGE_OBJECTS: usize = 2;

fn with_parameter(query: &str, name: &str, value: &str) -> String {
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((parameter, _)) if parameter == name => format!("{name}={value}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("&")
}

/// The error of a broken connection.
pub(crate) fn connection_reset() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

/// The error of a rejected certificate.
pub(crate) fn untrusted_certificate() -> BoxError {
    io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate: unknown issuer").into()
}

/// The last event of an expired watch.
pub(crate) fn expired_event() -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status_body(410)})))
}

/// The first half of a body, and then an error.
pub(crate) fn truncated_body(body: &Bytes) -> UnsyncBoxBody<Bytes, BoxError> {
    let half = body.slice(..body.len() / 2);
    StreamBody::new(futures::stream::iter([Ok(Frame::data(half)), Err(connection_reset())])).boxed_unsync()
}

/// The response of a server whose cache has not reached the resourceVersion in time.
pub(crate) fn too_large_resource_version() -> HttpResponse {
    let mut status_body = status_body(504);
    status_body["details"] = json!({"causes": [{"reason": "ResourceVersionTooLarge",
        "message": "Too large resource version"}], "retryAfterSeconds": 1});
    rejection_with(504, &status_body)
}

/// A rejection in the API server's format.
pub(crate) fn rejection(code: u16) -> HttpResponse {
    rejection_with(code, &status_body(code))
}

fn rejection_with(code: u16, status_body: &Value) -> HttpResponse {
    let body = Full::new(Bytes::from(status_body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if matches!(code, 429 | 503) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn status_body(code: u16) -> Value {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a storm is blowing", "reason": reason, "code": code})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_that_may_be_stale_are_rewritten() {
        let rewritten_uri = |query: &str| {
            let uri = format!("/api/v1/pods?{query}").parse().unwrap();
            FaultEffect::StaleCache.rewritten_uri(&uri, || 7).map(|uri| uri.to_string())
        };
        let exact = "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact&limit=500";
        assert_eq!(rewritten_uri("resourceVersion=0&limit=500").as_deref(), Some(exact));
        assert_eq!(rewritten_uri("limit=500"), None);
        assert_eq!(rewritten_uri("resourceVersion=12&limit=500"), None);
        assert_eq!(rewritten_uri("resourceVersion=12&watch=true"), None);
        let at_least = |not_older_than: &str| rewritten_uri(&format!("resourceVersion={not_older_than}"));
        assert_eq!(at_least("3"), Some("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact".into()));
        assert_eq!(at_least("9"), Some("/api/v1/pods?resourceVersion=9&resourceVersionMatch=Exact".into()));
    }

    #[test]
    fn watches_ahead_of_the_stale_cache_are_rejected() {
        let too_large_resource_version = |query: &str| {
            FaultEffect::StaleCache
                .is_ahead_of_stale_cache(&format!("/api/v1/pods?{query}").parse().unwrap(), || 7)
        };
        assert!(too_large_resource_version("resourceVersion=8&watch=true"));
        assert!(!too_large_resource_version("resourceVersion=7&watch=true"));
        assert!(!too_large_resource_version("sendInitialEvents=true&watch=true"));
        assert!(!too_large_resource_version("resourceVersion=8"));
    }

    #[test]
    fn small_pages_lower_the_limit() {
        let uri = "/api/v1/pods?limit=500&continue=x".parse().unwrap();
        let small = FaultEffect::SmallPages.rewritten_uri(&uri, || 7).unwrap();
        assert_eq!(small.to_string(), "/api/v1/pods?limit=2&continue=x");
    }
}
