//! Options of reads, writes and deletes, checked the way the real server checks them before it does anything.

use std::time::Duration;

use serde_json::{Value, json};

use super::body;
use super::request::{Call, Verb};
use super::status::{FieldError, Outcome, Status};

/// How a list's resource version is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    /// The data are at least this new.
    NotOlderThan(u64),
    /// The data are exactly this old.
    Exact(u64),
    /// The newest data.
    Latest,
}

/// Options of a list.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) version: VersionMatch,
    /// 0 means no limit.
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// The present state as ADDED events, then changes.
    State,
    /// The present state at least as new as the revision, closed by the marking bookmark, then changes.
    StateWithMark(u64),
    /// Changes after the revision.
    After(u64),
    /// Changes from now on.
    Now,
}

/// Options of a watch.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    pub(crate) start: WatchStart,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Option<Duration>,
}

/// What to do about fields nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    Drop,
    Refuse,
}

/// Options of create, update and patch.
#[derive(Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) unknown_fields: UnknownFields,
}

/// What becomes of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Options of a delete.
#[derive(Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace_seconds: Option<i64>,
}

/// Parses a resource version; empty is 0.
pub(crate) fn revision(text: &str) -> Outcome<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Status::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: parsing {text:?}: invalid syntax"
        ))
    })
}

impl ListOptions {
    pub(crate) fn parse(call: &Call<'_>) -> Outcome<ListOptions> {
        let query = &call.query;
        let asked = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let continue_token = query.text("continue").to_owned();
        let forbid =
            |field: &str, why: &str| Err(FieldError::forbidden(field, why).of_options("ListOptions"));
        if query.flag("sendInitialEvents").is_some() {
            return forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        // A negative limit is no limit.
        let limit = usize::try_from(query.integer("limit")?.unwrap_or(0)).unwrap_or(0);
        if !matching.is_empty() {
            if asked.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                return forbid("resourceVersionMatch", why);
            }
            if !continue_token.is_empty() {
                return forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
        }
        if !continue_token.is_empty() && !matches!(asked, "" | "0") {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(why));
        }
        let number = revision(asked)?;
        let version = match matching {
            "" if asked.is_empty() => VersionMatch::Latest,
            // Without a word on matching, a limit turns a resource version into an exact one.
            "" if limit > 0 && number > 0 => VersionMatch::Exact(number),
            "" | "NotOlderThan" => VersionMatch::NotOlderThan(number),
            "Exact" if number == 0 => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                return forbid("resourceVersionMatch", why);
            }
            "Exact" => VersionMatch::Exact(number),
            other => {
                let supported = "\"Exact\", \"NotOlderThan\", \"\"";
                return Err(FieldError::not_supported("resourceVersionMatch", other, supported)
                    .of_options("ListOptions"));
            }
        };
        Ok(ListOptions { version, limit, continue_token })
    }
}

impl WatchOptions {
    pub(crate) fn parse(call: &Call<'_>) -> Outcome<WatchOptions> {
        let query = &call.query;
        let asked = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let initial = query.flag("sendInitialEvents");
        let forbid =
            |field: &str, why: &str| Err(FieldError::forbidden(field, why).of_options("ListOptions"));
        if !query.text("continue").is_empty() {
            return forbid("continue", "continue is forbidden for watch");
        }
        if matching.is_empty() == initial.is_some() {
            return if initial.is_some() {
                forbid(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )
            } else {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            };
        }
        if !matches!(matching, "" | "NotOlderThan") {
            return Err(FieldError::not_supported("resourceVersionMatch", matching, "\"NotOlderThan\"")
                .of_options("ListOptions"));
        }
        let number = revision(asked)?;
        let start = match initial {
            Some(true) => WatchStart::StateWithMark(number),
            // Asked not to send the state: begin at the present, or at the version given.
            Some(false) if number == 0 => WatchStart::Now,
            None if number == 0 => WatchStart::State,
            _ => WatchStart::After(number),
        };
        let seconds = query.integer("timeoutSeconds")?.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
        Ok(WatchOptions {
            start,
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            timeout: seconds.map(Duration::from_secs),
        })
    }
}

impl WriteOptions {
    pub(crate) fn parse(call: &Call<'_>) -> Outcome<WriteOptions> {
        let kind = match call.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            _ => "PatchOptions",
        };
        let manager = call.query.text("fieldManager");
        if manager.len() > 128 || manager.chars().any(char::is_control) {
            let why = "must be at most 128 printable characters";
            return Err(FieldError::invalid("fieldManager", &json!(manager), why).of_options(kind));
        }
        let manager =
            if manager.is_empty() { manager_of(&call.request.user_agent) } else { manager.to_owned() };
        let unknown_fields = match call.query.text("fieldValidation") {
            "" | "Warn" | "Ignore" => UnknownFields::Drop,
            "Strict" => UnknownFields::Refuse,
            other => {
                let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
                return Err(FieldError::not_supported("fieldValidation", other, supported).of_options(kind));
            }
        };
        Ok(WriteOptions { dry_run: dry_run(call.query.text("dryRun"), kind)?, manager, unknown_fields })
    }
}

/// A client that names no manager is known by the first word of its user agent.
fn manager_of(user_agent: &str) -> String {
    let word = user_agent.split('/').next().unwrap_or_default();
    let printable: String = word.chars().filter(|c| !c.is_control()).take(128).collect();
    if printable.is_empty() { "unknown".to_owned() } else { printable }
}

fn dry_run(text: &str, kind: &str) -> Outcome<bool> {
    match text {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(FieldError::not_supported("dryRun", other, "\"All\"").of_options(kind)),
    }
}

impl DeleteOptions {
    /// From the body if there is one, else from the query.
    pub(crate) fn parse(call: &Call<'_>) -> Outcome<DeleteOptions> {
        let body = if call.request.body.is_empty() {
            let query = &call.query;
            let text = |name: &str| Some(query.text(name)).filter(|t| !t.is_empty()).map(|t| json!(t));
            json!({
                "dryRun": text("dryRun").map(|t| json!([t])),
                "propagationPolicy": text("propagationPolicy"),
                "gracePeriodSeconds": query.integer("gracePeriodSeconds")?,
                "orphanDependents": query.flag("orphanDependents"),
            })
        } else {
            body::read(call)?
        };
        DeleteOptions::from_value(&body)
    }

    /// From the options object.
    pub(crate) fn from_value(body: &Value) -> Outcome<DeleteOptions> {
        let malformed =
            |field: &str| Status::bad_request(format!("delete options: field {field} has a wrong type"));
        if !body.is_object() {
            return Err(malformed("DeleteOptions"));
        }
        let kind = body.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            return Err(Status::bad_request(format!(
                "decoded object cannot be converted to DeleteOptions: {kind}"
            )));
        }
        let text = |pointer: &str| match body.pointer(pointer) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(malformed(pointer)),
        };
        let dry_runs = match body.get("dryRun") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list.clone(),
            Some(_) => return Err(malformed("dryRun")),
        };
        let mut dry = false;
        for value in &dry_runs {
            dry |= dry_run(value.as_str().ok_or_else(|| malformed("dryRun"))?, "DeleteOptions")?;
        }
        let grace_seconds = match body.get("gracePeriodSeconds") {
            None | Some(Value::Null) => None,
            // A negative grace period means one second on the real server.
            Some(value) => Some(value.as_i64().ok_or_else(|| malformed("gracePeriodSeconds"))?)
                .map(|seconds| if seconds < 0 { 1 } else { seconds }),
        };
        Ok(DeleteOptions {
            dry_run: dry,
            uid: text("/preconditions/uid")?,
            resource_version: text("/preconditions/resourceVersion")?,
            propagation: propagation(text("/propagationPolicy")?.as_deref(), body.get("orphanDependents"))?,
            grace_seconds,
        })
    }
}

fn propagation(policy: Option<&str>, orphan: Option<&Value>) -> Outcome<Option<Propagation>> {
    let orphan = orphan.and_then(Value::as_bool);
    match (policy, orphan) {
        (None, None) => Ok(None),
        (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (None, Some(false)) | (Some("Background"), None) => Ok(Some(Propagation::Background)),
        (Some("Foreground"), None) => Ok(Some(Propagation::Foreground)),
        (Some("Orphan"), None) => Ok(Some(Propagation::Orphan)),
        (Some(_), Some(_)) => {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", &json!(policy), why);
            Err(error.of_options("DeleteOptions"))
        }
        (Some(other), None) => {
            let supported = "\"Background\", \"Foreground\", \"Orphan\"";
            Err(FieldError::not_supported("propagationPolicy", other, supported).of_options("DeleteOptions"))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::request::{Request, Route, route};
    use super::*;

    fn with<T>(method: Method, query: &str, body: &str, check: impl Fn(&Call<'_>) -> T) -> T {
        let request = Request::new(method, &format!("/api/v1/namespaces/a/pods?{query}"), body.to_owned());
        let registry = super::super::resources::Registry::default();
        let Some(Route::Resource(target)) = route(&registry, &request.path).unwrap() else {
            panic!("a resource")
        };
        check(&Call::new(target, &request, super::super::users::User::admin()).unwrap())
    }

    #[test]
    fn list_versions_follow_the_documented_table() {
        let version = |query: &str| {
            with(Method::GET, query, "", |call| {
                ListOptions::parse(call).map(|o| o.version).map_err(|s| s.reason.code())
            })
        };
        assert_eq!(version(""), Ok(VersionMatch::Latest));
        assert_eq!(version("resourceVersion=0"), Ok(VersionMatch::NotOlderThan(0)));
        assert_eq!(version("resourceVersion=7"), Ok(VersionMatch::NotOlderThan(7)));
        assert_eq!(version("resourceVersion=7&limit=5"), Ok(VersionMatch::Exact(7)));
        assert_eq!(version("resourceVersion=7&resourceVersionMatch=Exact"), Ok(VersionMatch::Exact(7)));
        assert_eq!(version("resourceVersion=0&resourceVersionMatch=Exact"), Err(422));
        assert_eq!(version("resourceVersionMatch=Exact"), Err(422));
        assert_eq!(version("resourceVersion=7&resourceVersionMatch=Maybe"), Err(422));
        assert_eq!(version("resourceVersion=7&continue=x"), Err(400));
        assert_eq!(version("resourceVersion=x"), Err(400));
        assert_eq!(version("limit=-1"), Ok(VersionMatch::Latest));
        assert_eq!(version("limit=x"), Err(400));
        assert_eq!(version("sendInitialEvents=true"), Err(422));
    }

    #[test]
    fn watch_starts_follow_the_documented_table() {
        let start = |query: &str| {
            with(Method::GET, &format!("watch=1&{query}"), "", |call| {
                WatchOptions::parse(call).map(|o| o.start).map_err(|s| s.reason.code())
            })
        };
        assert_eq!(start(""), Ok(WatchStart::State));
        assert_eq!(start("resourceVersion=0"), Ok(WatchStart::State));
        assert_eq!(start("resourceVersion=5"), Ok(WatchStart::After(5)));
        let mark = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(start(mark), Ok(WatchStart::StateWithMark(0)));
        assert_eq!(start("sendInitialEvents=false&resourceVersionMatch=NotOlderThan"), Ok(WatchStart::Now));
        assert_eq!(start("sendInitialEvents=true"), Err(422));
        assert_eq!(start("resourceVersionMatch=NotOlderThan"), Err(422));
        assert_eq!(start("sendInitialEvents=true&resourceVersionMatch=Exact"), Err(422));
    }

    #[test]
    fn delete_options_come_from_body_or_query() {
        let parse = |query: &str, body: &str| {
            with(Method::DELETE, query, body, |call| DeleteOptions::parse(call).map_err(|s| s.reason.code()))
        };
        assert_eq!(parse("propagationPolicy=Orphan", "").unwrap().propagation, Some(Propagation::Orphan));
        let options =
            parse("", r#"{"preconditions":{"uid":"u"},"dryRun":["All"],"gracePeriodSeconds":0}"#).unwrap();
        assert_eq!(
            (options.uid.as_deref(), options.dry_run, options.grace_seconds),
            (Some("u"), true, Some(0))
        );
        for body in ["[]", "{", r#"{"kind":"Pod"}"#, r#"{"preconditions":{"uid":1}}"#, r#"{"dryRun":"All"}"#]
        {
            assert_eq!(parse("", body).unwrap_err(), 400, "{body}");
        }
        assert_eq!(parse("", r#"{"propagationPolicy":"Never"}"#).unwrap_err(), 422);
        assert_eq!(parse("dryRun=Some", "").unwrap_err(), 422);
    }
}
