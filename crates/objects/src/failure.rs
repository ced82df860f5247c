//! Why a request to the API did not succeed, in the words that decide what happens next.

use std::fmt;
use std::time::Duration;

/// An answer of the API that is not success, or the lack of any answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What happened, by what a caller does next.
    pub reason: ErrorReason,
    /// The HTTP status; zero if no answer came.
    pub code: u16,
    /// The server's or the transport's words.
    pub message: String,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// What happened, by what a caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReason {
    /// The object is not there: deleting it is done, updating it is moot.
    NotFound,
    /// An object of that name is there already: creating it is done, if ours.
    AlreadyExists,
    /// The object changed since it was read, or is another life of it: read again.
    Conflict,
    /// The version asked for is no longer kept: list again.
    Gone,
    /// The server has not come as far as the version asked for.
    ResourceVersionTooLarge,
    /// The object is refused for what it says; the same request will fail again.
    Invalid,
    /// The namespace is going away; nothing can be created in it any more.
    NamespaceTerminating,
    /// The resource is served, but not for this verb.
    MethodNotAllowed,
    /// Our credentials do not allow it.
    Forbidden,
    /// Our credentials are not accepted.
    Unauthorized,
    /// The server asks for calm.
    TooManyRequests,
    /// The server could not answer in time, is shutting down or failed inside; the request may have taken effect.
    Unavailable,
    /// No connection could be made; the request did not take effect.
    ConnectionRefused,
    /// The connection broke; the request may have taken effect.
    ConnectionLost,
    /// An answer came that cannot be read.
    UnreadableResponse,
    /// Anything else that the server answered.
    Other,
}

impl ErrorReason {
    /// Whether the server is in trouble, does not know us at the moment or does not keep what was asked for: nothing
    /// is said of the object, and the same request may well succeed later.
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
    /// A failure of the transport: no answer came.
    #[must_use]
    pub fn transport(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self { reason, code: 0, message: message.into(), retry_after: None }
    }

    /// Reads a `Status` object's fields as the original's client does: the reason first, the code
    /// where the reason is unknown, causes before both.
    #[must_use]
    pub fn from_status<'a>(
        code: u16,
        reason: &str,
        message: &str,
        causes: impl IntoIterator<Item = &'a str>,
        retry_after_seconds: u32,
    ) -> Self {
        let mut known = match (reason, code) {
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
                "NamespaceTerminating" => known = ErrorReason::NamespaceTerminating,
                "ResourceVersionTooLarge" => known = ErrorReason::ResourceVersionTooLarge,
                _ => {}
            }
        }
        if known == ErrorReason::Unavailable && message.contains("Too large resource version") {
            known = ErrorReason::ResourceVersionTooLarge;
        }
        let retry_after = (retry_after_seconds > 0).then(|| Duration::from_secs(retry_after_seconds.into()));
        Self { reason: known, code, message: message.to_owned(), retry_after }
    }

    /// Whether the server answered with a status, as opposed to no answer or an unreadable one.
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
    fn reasons_come_before_codes_and_causes_before_both() {
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
    fn an_outage_says_nothing_of_the_object() {
        for (code, outage) in [(401, true), (410, true), (429, true), (503, true), (404, false), (409, false)]
        {
            assert_eq!(reason(code, "", "", &[]).is_outage(), outage, "{code}");
        }
    }

    /// Proves INF-18.
    #[test]
    fn a_version_that_is_too_large_is_known_by_cause_or_words() {
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
