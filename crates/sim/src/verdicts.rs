//! What goes wrong on a way, in the form in which whoever asked meets it.

use std::io;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tower::BoxError;

use crate::deeds::{Verdict, Which};
use crate::wire::Answer;
use crate::witness::Route;

impl Which {
    pub(crate) fn covers(self, route: &Route) -> bool {
        match self {
            Self::All => true,
            Self::Writes => route.writes(),
            Self::Creates => route.method == http::Method::POST,
            Self::Statuses => route.subresource == "status",
            Self::Deletes => route.method == http::Method::DELETE,
            Self::Reads => !route.writes() && !route.watch,
            Self::Watches => route.watch,
            Self::Pods => route.resource == "pods",
            Self::ReplicaSets => route.resource == "replicasets",
            Self::Leases => route.is_leader_lease(),
            Self::Tokens => route.subresource == "token",
            Self::Streams => route.watch && route.asks.contains("sendInitialEvents=true"),
            Self::Pages => route.asks.contains("continue="),
        }
    }
}

impl Verdict {
    /// Whether it strikes what a watch tells, and not what is asked.
    pub(crate) fn is_of_watches(self) -> bool {
        matches!(self, Self::Stalls | Self::Cuts | Self::Expires)
    }

    /// The request as the server reads it: what the client asked for, or what a server in trouble makes of it.
    ///
    /// A state to go back to is one of the last few hundred, if the client lets the server choose.
    pub(crate) fn rewritten(self, uri: &Uri, back_to: impl FnOnce() -> u64) -> Option<Uri> {
        let query = uri.query().unwrap_or_default();
        let (is_first_list, any_state) =
            (query.contains("limit=") && !query.contains("continue="), query.contains("resourceVersion=0"));
        let query = match self {
            Self::SmallPages if query.contains("limit=") => {
                replaced(query, "limit", &PAGE_OBJECTS.to_string())
            }
            Self::Old if is_first_list && any_state => {
                let exact = format!("{}&resourceVersionMatch=Exact", back_to());
                replaced(query, "resourceVersion", &exact)
            }
            _ => return None,
        };
        format!("{}?{query}", uri.path()).parse().ok()
    }
}

/// So many objects come in one page of a server that gives less than is asked for.
const PAGE_OBJECTS: usize = 2;

fn replaced(query: &str, name: &str, value: &str) -> String {
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((there, _)) if there == name => format!("{name}={value}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("&")
}

/// The connection breaks.
pub(crate) fn broken() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

/// There is no connection, because one side does not trust the other's certificate.
pub(crate) fn untrusted() -> BoxError {
    io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate: unknown issuer").into()
}

/// The last line of a watch whose history the server has forgotten.
pub(crate) fn expiry() -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": failure(410)})))
}

/// The first half of an answer, and then nothing.
pub(crate) fn cut_in_the_middle(body: &Bytes) -> UnsyncBoxBody<Bytes, BoxError> {
    let half = body.slice(..body.len() / 2);
    StreamBody::new(futures::stream::iter([Ok(Frame::data(half)), Err(broken())])).boxed_unsync()
}

/// A refusal in the server's own form.
pub(crate) fn refusal(code: u16) -> Answer {
    let body =
        Full::new(Bytes::from(failure(code).to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if matches!(code, 429 | 503) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn failure(code: u16) -> Value {
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
    fn only_lists_that_may_be_old_are() {
        let old = |query: &str| {
            let uri = format!("/api/v1/pods?{query}").parse().unwrap();
            Verdict::Old.rewritten(&uri, || 7).map(|uri| uri.to_string())
        };
        let exact = "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact&limit=500";
        assert_eq!(old("resourceVersion=0&limit=500").as_deref(), Some(exact));
        assert_eq!(old("limit=500"), None);
        assert_eq!(old("resourceVersion=12&limit=500"), None);
        assert_eq!(old("resourceVersion=12&watch=true"), None);
    }

    #[test]
    fn pages_are_small() {
        let uri = "/api/v1/pods?limit=500&continue=x".parse().unwrap();
        let small = Verdict::SmallPages.rewritten(&uri, || 7).unwrap();
        assert_eq!(small.to_string(), "/api/v1/pods?limit=2&continue=x");
    }
}
