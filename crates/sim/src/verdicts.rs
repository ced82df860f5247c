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
            Self::EndpointSlices => route.resource == "endpointslices",
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

    /// Whether whoever asked never learns what came of it.
    pub(crate) fn keeps_the_answer(self) -> bool {
        matches!(self, Self::AnswerLost | Self::RefusedAfterwards(_) | Self::Truncated)
    }

    /// The request as the server reads it: what the client asked for, or what a server in trouble makes of it.
    ///
    /// A list that names no state gets the newest. One that may be of any state, or of any after one that it names,
    /// may be of the state to go back to.
    pub(crate) fn rewritten(self, uri: &Uri, back_to: impl FnOnce() -> u64) -> Option<Uri> {
        let query = uri.query().unwrap_or_default();
        let query = match self {
            Self::SmallPages if query.contains("limit=") => {
                replaced(query, "limit", &PAGE_OBJECTS.to_string())
            }
            Self::Old if !query.contains("continue=") && !query.contains("watch=") => {
                // With a limit, a state is meant exactly; without one, it is the oldest that will do.
                let oldest = state(query).filter(|state| *state == 0 || !query.contains("limit="))?;
                let exact = format!("{}&resourceVersionMatch=Exact", back_to().max(oldest));
                replaced(query, "resourceVersion", &exact)
            }
            _ => return None,
        };
        format!("{}?{query}", uri.path()).parse().ok()
    }

    /// Whether a watch asks for what comes after a state that the server's cache has not come to.
    pub(crate) fn is_behind(self, uri: &Uri, back_to: impl FnOnce() -> u64) -> bool {
        let query = uri.query().unwrap_or_default();
        self == Self::Old
            && query.contains("watch=")
            && state(query).is_some_and(|wanted| wanted > 0 && wanted > back_to())
    }
}

/// The state that a query names.
fn state(query: &str) -> Option<u64> {
    query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")?.parse().ok())
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

/// What a server answers whose cache has not come to a state within the time that it waits for it.
pub(crate) fn behind() -> Answer {
    let mut failure = failure(504);
    failure["details"] = json!({"causes": [{"reason": "ResourceVersionTooLarge",
        "message": "Too large resource version"}], "retryAfterSeconds": 1});
    refused_with(504, &failure)
}

/// A refusal in the server's own form.
pub(crate) fn refusal(code: u16) -> Answer {
    refused_with(code, &failure(code))
}

fn refused_with(code: u16, failure: &Value) -> Answer {
    let body = Full::new(Bytes::from(failure.to_string())).map_err(|never| match never {}).boxed_unsync();
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
        let at_least = |oldest: &str| old(&format!("resourceVersion={oldest}"));
        assert_eq!(at_least("3"), Some("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact".into()));
        assert_eq!(at_least("9"), Some("/api/v1/pods?resourceVersion=9&resourceVersionMatch=Exact".into()));
    }

    #[test]
    fn watches_from_a_state_that_is_not_known_yet_are_refused() {
        let behind =
            |query: &str| Verdict::Old.is_behind(&format!("/api/v1/pods?{query}").parse().unwrap(), || 7);
        assert!(behind("resourceVersion=8&watch=true"));
        assert!(!behind("resourceVersion=7&watch=true"));
        assert!(!behind("sendInitialEvents=true&watch=true"));
        assert!(!behind("resourceVersion=8"));
    }

    #[test]
    fn pages_are_small() {
        let uri = "/api/v1/pods?limit=500&continue=x".parse().unwrap();
        let small = Verdict::SmallPages.rewritten(&uri, || 7).unwrap();
        assert_eq!(small.to_string(), "/api/v1/pods?limit=2&continue=x");
    }
}
