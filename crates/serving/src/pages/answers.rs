//! Answers in the shapes the original gives them: plain text, and `Status` objects for refusals.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::Asked;
use super::negotiate::{Accepted, Format, accept};
use super::{quote, yaml};

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const YAML: &str = "application/yaml";

/// What stands between the words of a refusal and a browser that might take them for HTML.
const SANITIZED: [(char, &str); 3] = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")];

/// The form in which API servers say no.
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

pub(super) fn nosniff(mut answer: Response<Bytes>) -> Response<Bytes> {
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

pub(super) fn of(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        answer.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    answer
}

/// To somebody who showed what is not believed.
pub(super) fn unauthorized(asked: &Asked<'_>) -> Response<Bytes> {
    refusal(asked, StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", false)
}

/// To somebody who may not.
pub(super) fn forbidden(asked: &Asked<'_>, user: &str, reason: &str) -> Response<Bytes> {
    let verb = asked.method.as_str().to_ascii_lowercase();
    let what = format!("User {} cannot {verb} path {}", quote::go(user), quote::go(asked.path));
    let mut message = format!("forbidden: {}", sanitized(&what));
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    nosniff(refusal(asked, StatusCode::FORBIDDEN, "Forbidden", &message, true))
}

/// When it could not be found out whether somebody may.
pub(super) fn undecided(asked: &Asked<'_>, error: &str) -> Response<Bytes> {
    let target = asked.uri.path_and_query().map_or(asked.path, |target| target.as_str());
    let text = format!("Internal Server Error: {}: {error}", quote::go(target));
    plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", sanitized(&text)))
}

/// To somebody who takes no form that there is.
pub(super) fn not_acceptable(asked: &Asked<'_>) -> Response<Bytes> {
    let message =
        "only the following media types are accepted: application/json, application/yaml, text/plain";
    refusal(asked, StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, false)
}

fn refusal(
    asked: &Asked<'_>,
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
    // A refusal is told in one of these forms, or in the first one if the client wants none of them.
    let accepted = accept(asked.headers, &[Format::Json, Format::Yaml], |_, wanted| wanted.is_plain());
    match accepted {
        Some(Accepted { format: Format::Yaml, .. }) => of(code, YAML, yaml(&status)),
        Some(accepted) => of(code, JSON, json(&status, asked.is_human() || accepted.wanted.pretty)),
        None => of(code, JSON, json(&status, true)),
    }
}

/// Compact with a line's end, or spread out for people without one.
pub(super) fn json(value: &impl Serialize, spread_out: bool) -> String {
    let text = if spread_out {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value).map(|text| text + "\n")
    };
    // Only strings hold these, and there the original writes them so, for the sake of browsers.
    text.unwrap_or_default().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

pub(super) fn yaml(value: &impl Serialize) -> String {
    yaml::text(&serde_json::to_value(value).unwrap_or(Value::Null))
}

/// Sends a browser elsewhere.
pub(super) fn redirect(method: &Method, to: &'static str) -> Response<Bytes> {
    let mut answer = if matches!(*method, Method::GET | Method::HEAD) {
        of(StatusCode::FOUND, HTML, format!("<a href=\"{to}\">Found</a>.\n\n"))
    } else {
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::FOUND;
        answer
    };
    answer.headers_mut().insert(http::header::LOCATION, HeaderValue::from_static(to));
    answer
}

fn sanitized(text: &str) -> String {
    SANITIZED.iter().fold(text.to_owned(), |text, (from, to)| text.replace(*from, to))
}
