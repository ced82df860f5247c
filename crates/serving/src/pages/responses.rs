//! Responses in the original's formats: plain text, and `Status` objects for errors.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::PageRequest;
use super::negotiate::{Accepted, Format, accept};
use super::{quote, yaml};

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const YAML: &str = "application/yaml";

/// Escapes that keep browsers from interpreting an error message as HTML.
const SANITIZED: [(char, &str); 3] = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")];

/// The `Status` object of an error.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Empty>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    nosniff(of(status, TEXT, text))
}

pub(super) fn not_found() -> Response<Bytes> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(super) fn nosniff(mut response: Response<Bytes>) -> Response<Bytes> {
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn of(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response
}

/// For invalid credentials.
pub(super) fn unauthorized(request: &PageRequest<'_>) -> Response<Bytes> {
    refusal(request, StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", false)
}

/// For a user who is not authorized.
pub(super) fn forbidden(request: &PageRequest<'_>, user: &str, reason: &str) -> Response<Bytes> {
    let verb = request.method.as_str().to_ascii_lowercase();
    let what = format!("User {} cannot {verb} path {}", quote::go(user), quote::go(request.path));
    let mut message = format!("forbidden: {}", sanitized(&what));
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    nosniff(refusal(request, StatusCode::FORBIDDEN, "Forbidden", &message, true))
}

/// For an authorization error.
pub(super) fn authorizer_error(request: &PageRequest<'_>, error: &str) -> Response<Bytes> {
    let target = request.uri.path_and_query().map_or(request.path, |target| target.as_str());
    let text = format!("Internal Server Error: {}: {error}", quote::go(target));
    plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", sanitized(&text)))
}

/// For an `Accept` header without a supported media type.
pub(super) fn not_acceptable(request: &PageRequest<'_>) -> Response<Bytes> {
    let message =
        "only the following media types are accepted: application/json, application/yaml, text/plain";
    refusal(request, StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, false)
}

fn refusal(
    request: &PageRequest<'_>,
    code: StatusCode,
    reason: &'static str,
    message: &str,
    details: bool,
) -> Response<Bytes> {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details: details.then_some(Empty {}),
        code: code.as_u16(),
    };
    // A Status is returned as JSON or YAML, and as JSON if the client accepts neither.
    let accepted = accept(request.headers, &[Format::Json, Format::Yaml], |_, wanted| wanted.is_plain());
    match accepted {
        Some(Accepted { format: Format::Yaml, .. }) => of(code, YAML, yaml(&status)),
        Some(accepted) => {
            of(code, JSON, json(&status, request.wants_pretty_json() || accepted.wanted.pretty))
        }
        None => of(code, JSON, json(&status, true)),
    }
}

/// Compact with a newline, or pretty-printed without one.
pub(super) fn json(value: &impl Serialize, pretty: bool) -> String {
    let text = if pretty {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value).map(|text| text + "\n")
    };
    // Only strings contain these characters; the original escapes them like this, for browsers.
    text.unwrap_or_default().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

pub(super) fn yaml(value: &impl Serialize) -> String {
    yaml::text(&serde_json::to_value(value).unwrap_or(Value::Null))
}

/// An HTTP redirect.
pub(super) fn redirect(method: &Method, to: &'static str) -> Response<Bytes> {
    let mut response = if matches!(*method, Method::GET | Method::HEAD) {
        of(StatusCode::FOUND, HTML, format!("<a href=\"{to}\">Found</a>.\n\n"))
    } else {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::FOUND;
        response
    };
    response.headers_mut().insert(http::header::LOCATION, HeaderValue::from_static(to));
    response
}

fn sanitized(text: &str) -> String {
    SANITIZED.iter().fold(text.to_owned(), |text, (from, to)| text.replace(*from, to))
}
