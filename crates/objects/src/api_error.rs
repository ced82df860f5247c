//! Errors of API requests, classified by how the caller reacts.

use std::fmt;
use std::time::Duration;

/// A failed API request: an error status, or a transport error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The class of the error.
    pub reason: ErrorReason,
    /// The HTTP status code; zero for a transport error.
    pub code: u16,
    /// The message of the server or of the transport.
    pub message: String,
    /// The server's Retry-After.
    pub retry_after: Option<Duration>,
}

/// The class of an error, by how the caller reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReason {
    /// The object does not exist: a delete is done, an update is moot.
    NotFound,
    /// An object of that name exists: a create is done, if the object is ours.
    AlreadyExists,
    /// The resourceVersion or UID precondition failed: read again.
    Conflict,
    /// The requested resourceVersion is compacted: relist.
    Gone,
    /// The server's watch cache is older than the requested resourceVersion.
    ResourceVersionTooLarge,
    /// Validation failed; the same request fails again.
    Invalid,
    /// The namespace is terminating; nothing can be created in it.
    NamespaceTerminating,
    /// The resource does not support the verb.
    MethodNotAllowed,
    /// Authorization failed.
    Forbidden,
    /// Authentication failed.
    Unauthorized,
    /// The server throttles requests.
    TooManyRequests,
    /// Timeout, shutdown or internal error of the server; the request may have taken effect.
    Unavailable,
    /// No connection; the request did not take effect.
    ConnectionRefused,
    /// The connection broke; the request may have taken effect.
    ConnectionLost,
    /// The response cannot be decoded.
    UnreadableResponse,
    /// Any other error status.
    Other,
}

impl ErrorReason {
    /// Whether the error concerns the server or the connection and not the object, so that the same request may succeed
    /// later. This includes `Unauthorized` and `Gone`.
    #[must_use]
    pub fn is_outage(self) -> bool {
        matches!(
            self,
            Self::TooManyRequests
                | Self::Unavailable
                | Self::ConnectionRefused
                | Self::ConnectionLost
                | Self::Unauthorized
                | Self::Gone
        )
    }
}

impl ApiError {
    /// Whether a write that failed like this may have taken effect: there was no response, or one of a server that
    /// gave up. A write that needs credentials which are refused to it is not sent.
    #[must_use]
    pub fn may_have_taken_effect(&self) -> bool {
        let is_refused = (400..500).contains(&self.code) && self.code != 408;
        let is_unsent = matches!(
            self.reason,
            ErrorReason::ConnectionRefused | ErrorReason::Unauthorized | ErrorReason::TooManyRequests
        );
        !is_refused && !is_unsent
    }

    /// An error without an HTTP status.
    #[must_use]
    pub fn transport(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self { reason, code: 0, message: message.into(), retry_after: None }
    }

    /// Classifies the fields of a `Status` as client-go does: by cause, then by reason, then by code.
    #[must_use]
    pub fn from_status<'a>(
        code: u16,
        reason: &str,
        message: &str,
        causes: impl IntoIterator<Item = &'a str>,
        retry_after_seconds: u32,
    ) -> Self {
        let mut class = match (reason, code) {
            ("NotFound", _) => ErrorReason::NotFound,
            ("AlreadyExists", _) => ErrorReason::AlreadyExists,
            ("Conflict", _) => ErrorReason::Conflict,
            ("Gone" | "Expired", _) => ErrorReason::Gone,
            ("Invalid", _) => ErrorReason::Invalid,
            ("MethodNotAllowed", _) => ErrorReason::MethodNotAllowed,
            ("Forbidden", _) => ErrorReason::Forbidden,
            ("Unauthorized", _) => ErrorReason::Unauthorized,
            ("TooManyRequests", _) => ErrorReason::TooManyRequests,
            ("ServerTimeout" | "Timeout" | "ServiceUnavailable" | "InternalError", _) => {
                ErrorReason::Unavailable
            }
            (_, 404) => ErrorReason::NotFound,
            (_, 405) => ErrorReason::MethodNotAllowed,
            (_, 409) => ErrorReason::Conflict,
            (_, 410) => ErrorReason::Gone,
            (_, 422) => ErrorReason::Invalid,
            (_, 403) => ErrorReason::Forbidden,
            (_, 401) => ErrorReason::Unauthorized,
            (_, 429) => ErrorReason::TooManyRequests,
            (_, 500..=599) => ErrorReason::Unavailable,
            _ => ErrorReason::Other,
        };
        for cause in causes {
            match cause {
                "NamespaceTerminating" => class = ErrorReason::NamespaceTerminating,
                "ResourceVersionTooLarge" => class = ErrorReason::ResourceVersionTooLarge,
                _ => {}
            }
        }
        if class == ErrorReason::Unavailable && message.contains("Too large resource version") {
            class = ErrorReason::ResourceVersionTooLarge;
        }
        let retry_after = (retry_after_seconds > 0).then(|| Duration::from_secs(retry_after_seconds.into()));
        Self { reason: class, code, message: message.to_owned(), retry_after }
    }

    /// Whether the server responded with an error status, as opposed to no response or an unreadable one.
    #[must_use]
    pub fn is_status_reply(&self) -> bool {
        !matches!(
            self.reason,
            ErrorReason::ConnectionRefused | ErrorReason::ConnectionLost | ErrorReason::UnreadableResponse
        )
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() { write!(f, "HTTP {}", self.code) } else { f.write_str(&self.message) }
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: u16, reason: &str, message: &str, causes: &[&str]) -> ErrorReason {
        ApiError::from_status(code, reason, message, causes.iter().copied(), 0).reason
    }

    #[test]
    fn only_a_refused_write_has_certainly_not_taken_effect() {
        let status = |code| ApiError::from_status(code, "", "", [], 0);
        for code in [400, 401, 403, 404, 409, 410, 422, 429] {
            assert!(!status(code).may_have_taken_effect(), "{code}");
        }
        for code in [408, 500, 502, 503, 504] {
            assert!(status(code).may_have_taken_effect(), "{code}");
        }
        for (reason, expected) in [
            (ErrorReason::ConnectionRefused, false),
            (ErrorReason::Unauthorized, false),
            (ErrorReason::TooManyRequests, false),
            (ErrorReason::ConnectionLost, true),
            (ErrorReason::UnreadableResponse, true),
            (ErrorReason::Other, true),
        ] {
            assert_eq!(ApiError::transport(reason, "").may_have_taken_effect(), expected, "{reason:?}");
        }
    }

    #[test]
    fn causes_take_precedence_over_reasons_and_reasons_over_codes() {
        assert_eq!(reason(409, "AlreadyExists", "", &[]), ErrorReason::AlreadyExists);
        assert_eq!(reason(409, "Conflict", "", &[]), ErrorReason::Conflict);
        assert_eq!(reason(404, "", "", &[]), ErrorReason::NotFound);
        assert_eq!(reason(405, "", "", &[]), ErrorReason::MethodNotAllowed);
        assert_eq!(
            reason(403, "Forbidden", "", &["NamespaceTerminating"]),
            ErrorReason::NamespaceTerminating
        );
        assert_eq!(reason(410, "Expired", "", &[]), ErrorReason::Gone);
        assert_eq!(reason(503, "", "", &[]), ErrorReason::Unavailable);
        assert_eq!(reason(418, "", "", &[]), ErrorReason::Other);
    }

    #[test]
    fn errors_of_the_server_are_outages() {
        for (code, outage) in [(401, true), (410, true), (429, true), (503, true), (404, false), (409, false)]
        {
            assert_eq!(reason(code, "", "", &[]).is_outage(), outage, "{code}");
        }
    }

    /// Proves INF-18.
    #[test]
    fn too_large_resource_version_is_detected_by_cause_or_message() {
        assert_eq!(
            reason(504, "Timeout", "", &["ResourceVersionTooLarge"]),
            ErrorReason::ResourceVersionTooLarge
        );
        assert_eq!(
            reason(504, "Timeout", "Too large resource version: 9, current: 3", &[]),
            ErrorReason::ResourceVersionTooLarge
        );
        assert_eq!(reason(504, "Timeout", "slow", &[]), ErrorReason::Unavailable);
        assert_eq!(reason(400, "BadRequest", "Too large resource version: 9", &[]), ErrorReason::Other);
    }
}
