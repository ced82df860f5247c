//! Serves what runs inside: `/debug/keleustes/explain` explains an object, `/debug/keleustes/` is a live page,
//! `/debug/keleustes/shadow` is the report of a shadow.
//!
//! All are behind the authentication and authorization of the secure port, as `/metrics` is. A ClusterRole that
//! grants them is in `packaging/explain`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use keleustes_runtime::explain::{ExplainError, ExplainRequest, Explainer, LiveOverview, ManagerState};
use keleustes_runtime::shadow::{Shadow, ShadowReport};
use keleustes_serving::{Pages, SubtreeRequest};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;

/// All paths begin with it.
pub(crate) const PREFIX: &str = "/debug/keleustes/";

/// How many decisions the live page shows.
const DECISIONS_MAX: usize = 50;
/// How many objects a search shows.
const FOUND_MAX: usize = 30;
/// How many differences, known differences and changes by other clients it shows.
const DIFFERENCES_MAX: usize = 30;
/// How long the holder of the Lease is shown before it is read again, by however many viewers.
const LEASE_READ_EVERY: Duration = Duration::from_secs(5);

const HTML: &str = include_str!("inspect/page.html");
const SCRIPT: &str = include_str!("inspect/page.js");
const STYLE: &str = include_str!("inspect/page.css");
const ICON: &str = include_str!("inspect/icon.svg");

/// Scripts and styles come from this server only, and nothing is embedded: an object name can never run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all requests share.
struct Inspector {
    explainer: Explainer,
    shadow: Option<Shadow>,
    /// The holder of the Lease, and when it was read.
    manager: Mutex<Option<(Instant, ManagerState)>>,
}

/// Adds the pages. Explanations are computed on the runtime of the caller, whose connections they share.
pub(crate) fn add_pages(pages: &Pages, explainer: Explainer, shadow: Option<Shadow>) {
    let runtime = tokio::runtime::Handle::current();
    let inspector = Arc::new(Inspector { explainer, shadow, manager: Mutex::default() });
    pages.add_subtree(
        PREFIX,
        Arc::new(move |request| {
            let inspector = inspector.clone();
            let response = runtime.spawn(async move { respond(&inspector, &request).await });
            Box::pin(async move {
                response.await.unwrap_or_else(|_| {
                    tracing::error!("panic while explaining an object");
                    reply(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "text/plain; charset=utf-8",
                        "it panicked, which is a bug\n",
                    )
                })
            })
        }),
    );
}

async fn respond(inspector: &Inspector, request: &SubtreeRequest) -> Response<Bytes> {
    match request.path.as_str() {
        "" => reply(StatusCode::OK, "text/html; charset=utf-8", HTML),
        "page.js" => reply(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT),
        "page.css" => reply(StatusCode::OK, "text/css; charset=utf-8", STYLE),
        "icon.svg" => reply(StatusCode::OK, "image/svg+xml", ICON),
        "overview" => overview(inspector).await,
        "search" => search(&inspector.explainer, &request.query),
        "explain" => explain(&inspector.explainer, &request.query).await,
        "shadow" => shadow_report(inspector, &request.query).await,
        _ => reply(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n"),
    }
}

/// What the page shows, besides an explanation.
#[derive(Serialize)]
struct PageData {
    #[serde(flatten)]
    overview: LiveOverview,
    /// The comparison with the leader, if this process is a shadow.
    shadow: Option<ShadowData>,
}

/// The latest of a report, because a page asks for it every two seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShadowData {
    #[serde(flatten)]
    report: ShadowReport,
    differences_not_shown: usize,
    known_differences_not_shown: usize,
    foreign_changes_not_shown: usize,
}

impl ShadowData {
    fn latest(mut report: ShadowReport) -> Self {
        Self {
            differences_not_shown: cut(&mut report.differences),
            known_differences_not_shown: cut(&mut report.known_differences),
            foreign_changes_not_shown: cut(&mut report.foreign_changes),
            report,
        }
    }
}

/// Keeps the first entries, and returns how many there were more.
fn cut<T>(entries: &mut Vec<T>) -> usize {
    let more = entries.len().saturating_sub(DIFFERENCES_MAX);
    entries.truncate(DIFFERENCES_MAX);
    more
}

async fn overview(inspector: &Inspector) -> Response<Bytes> {
    let known = inspector.manager.lock().clone();
    let manager = match known.filter(|(read_at, _)| read_at.elapsed() < LEASE_READ_EVERY) {
        Some((_, manager)) => manager,
        None => {
            let manager = inspector.explainer.manager_state().await;
            *inspector.manager.lock() = Some((Instant::now(), manager.clone()));
            manager
        }
    };
    let shadow = inspector.shadow.as_ref();
    let page = PageData {
        overview: inspector.explainer.live_overview(&manager, DECISIONS_MAX),
        shadow: shadow.map(|shadow| ShadowData::latest(shadow.report(manager.leader.clone()))),
    };
    let text = serde_json::to_string(&page).unwrap_or_default();
    reply(StatusCode::OK, "application/json", text)
}

async fn shadow_report(inspector: &Inspector, query: &str) -> Response<Bytes> {
    let Some(shadow) = &inspector.shadow else {
        let text = "this manager runs without --shadow, so it compares nothing\n";
        return reply(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text);
    };
    let report = shadow.report(inspector.explainer.leader().await);
    if read_query(query).1 == "text" {
        return reply(StatusCode::OK, "text/plain; charset=utf-8", report.text());
    }
    reply(StatusCode::OK, "application/json", serde_json::to_string(&report).unwrap_or_default())
}

fn search(explainer: &Explainer, query: &str) -> Response<Bytes> {
    let text = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "text");
    let text = text.map(|(_, text)| text.into_owned()).unwrap_or_default();
    let result = serde_json::to_string(&explainer.search(&text, FOUND_MAX)).unwrap_or_default();
    reply(StatusCode::OK, "application/json", result)
}

async fn explain(explainer: &Explainer, query: &str) -> Response<Bytes> {
    let (request, output) = read_query(query);
    match explainer.explain(&request).await {
        Ok(explanation) if output == "text" => {
            reply(StatusCode::OK, "text/plain; charset=utf-8", explanation.text())
        }
        Ok(explanation) => {
            let text = serde_json::to_string(&explanation).unwrap_or_default();
            reply(StatusCode::OK, "application/json", text)
        }
        Err(error) => {
            let (status, reason) = match &error {
                ExplainError::UnknownResource(_) => (StatusCode::NOT_FOUND, "NotFound"),
                ExplainError::Invalid(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
                ExplainError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            };
            let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": error.to_string(), "reason": reason, "code": status.as_u16()});
            reply(status, "application/json", body.to_string())
        }
    }
}

/// The request and the format of the response.
fn read_query(query: &str) -> (ExplainRequest, String) {
    let mut request =
        ExplainRequest { resource: String::new(), name: String::new(), namespace: String::new() };
    let mut output = String::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let field = match &*name {
            "resource" => &mut request.resource,
            "name" => &mut request.name,
            "namespace" => &mut request.namespace,
            "output" => &mut output,
            _ => continue,
        };
        *field = value.into_owned();
    }
    (request, output)
}

fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_no_inline_scripts_styles_or_external_assets() {
        assert!(POLICY.contains("default-src 'none'") && !POLICY.contains("unsafe"));
        for forbidden in ["<style", "style=", "onclick", "onload", "javascript:", "http://", "https://", "//"]
        {
            assert!(!HTML.contains(forbidden), "{forbidden}");
        }
        assert_eq!(HTML.matches("<script").count(), 1);
        assert!(HTML.contains("<script src=\"page.js\" defer></script>"));
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }

    #[test]
    fn script_sets_text_and_never_markup() {
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
        {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn query_is_decoded() {
        let (request, output) = read_query("resource=deploy&name=web%2d1&namespace=a+b&output=text&other=x");
        assert_eq!((request.resource.as_str(), request.name.as_str()), ("deploy", "web-1"));
        assert_eq!((request.namespace.as_str(), output.as_str()), ("a b", "text"));
    }
}
