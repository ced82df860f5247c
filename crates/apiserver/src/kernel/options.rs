//! Options of reads, writes and deletes, validated as kube-apiserver does before it acts.

use std::time::Duration;

use serde_json::{Value, json};

use super::body;
use super::patch::APPLY_PATCH;
use super::request::{Call, Query, Verb};
use super::resources::Strategy;
use super::selectors::Selector;
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::types::{self, Form};

/// The semantics of a list's resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    /// The data are at least as new as this revision.
    NotOlderThan(u64),
    /// The data are from exactly this revision.
    Exact(u64),
    /// The latest data.
    Latest,
}

/// Options of a list.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) version_match: VersionMatch,
    /// 0 means no limit.
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) selector: Selector,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// The current state, at least as new as the revision, a bookmark with the initial-events-end annotation, then
    /// changes.
    InitialEvents(u64),
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
    pub(crate) selector: Selector,
}

/// The `fieldValidation` parameter: what to do about unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    /// Drop them and return a warning.
    Warn,
    Strict,
}

/// Options of create, update and patch.
#[derive(Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
}

/// The deletion propagation policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PropagationPolicy {
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
    pub(crate) propagation: Option<PropagationPolicy>,
    pub(crate) grace_seconds: Option<i64>,
    /// The deprecated `orphanDependents: false`, which changes the response code.
    pub(crate) orphan_dependents_false: bool,
}

/// Parses a resourceVersion; empty is 0. The error is kube-apiserver's.
pub(crate) fn revision(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// 400 for an invalid resourceVersion.
pub(crate) fn invalid_resource_version(why: &str) -> Box<Status> {
    Status::bad_request(format!("invalid resource version: {why}"))
}

/// kube-apiserver parses the numbers before it validates anything else.
fn check_numbers(query: &Query) -> ApiResult<()> {
    query.integer("timeoutSeconds")?;
    query.integer("limit").map(drop)
}

impl ListOptions {
    pub(crate) fn parse(call: &Call<'_>) -> ApiResult<ListOptions> {
        let query = &call.query;
        check_numbers(query)?;
        let selector = Selector::parse(query)?;
        let (requested, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
        let continue_token = query.text("continue").to_owned();
        let mut errors = Vec::new();
        let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
        if !matching.is_empty() {
            if requested.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                forbid("resourceVersionMatch", why);
            }
            if !continue_token.is_empty() {
                forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
            }
            if matching == "Exact" && requested == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                forbid("resourceVersionMatch", why);
            }
        }
        if query.flag("sendInitialEvents").is_some() {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if !matches!(matching, "" | "Exact" | "NotOlderThan") {
            let supported = "\"Exact\", \"NotOlderThan\", \"\"";
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, supported));
        }
        refuse_options("ListOptions", &errors)?;
        selector.check(call.target.resource)?;
        // A negative limit means no limit. Reads from the watch cache, which events do not use, ignore the limit.
        let cached = requested == "0" && call.target.resource.strategy != Strategy::Event;
        let limit = query.integer("limit")?.filter(|_| !cached);
        let limit = usize::try_from(limit.unwrap_or(0)).unwrap_or(0);
        let number = |text: &str| revision(text).map_err(|why| invalid_resource_version(&why));
        let version = match matching {
            "" if requested.is_empty() => VersionMatch::Latest,
            // Without resourceVersionMatch, a limit makes the resourceVersion exact.
            "" if limit > 0 && number(requested)? > 0 => VersionMatch::Exact(number(requested)?),
            "Exact" => VersionMatch::Exact(number(requested)?),
            _ => VersionMatch::NotOlderThan(number(requested)?),
        };
        Ok(ListOptions { version_match: version, limit, continue_token, selector })
    }
}

impl WatchOptions {
    pub(crate) fn parse(call: &Call<'_>) -> ApiResult<WatchOptions> {
        let query = &call.query;
        check_numbers(query)?;
        let selector = Selector::parse(query)?;
        let requested = query.text("resourceVersion");
        let mut matching = query.text("resourceVersionMatch");
        let initial = query.flag("sendInitialEvents");
        // A watch at resourceVersion "" or 0 counts as one with sendInitialEvents.
        let legacy = initial.is_none() && matching.is_empty() && matches!(requested, "" | "0");
        if legacy {
            matching = "NotOlderThan";
        }
        let mut errors = Vec::new();
        let mut forbid = |why: &str| errors.push(FieldError::forbidden("resourceVersionMatch", why));
        if initial.is_some() && matching != "NotOlderThan" {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !matching.is_empty() {
            if initial.is_none() && !legacy {
                forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            if !query.text("continue").is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if matching != "NotOlderThan" {
                let supported = "\"NotOlderThan\"";
                errors.push(FieldError::not_supported("resourceVersionMatch", matching, supported));
            }
        }
        refuse_options("ListOptions", &errors)?;
        selector.check(call.target.resource)?;
        // kube-apiserver parses the version so late that it reports 500 instead of 400.
        let number = revision(requested).map_err(|why| Status::new(StatusReason::Unknown, why))?;
        let start = match initial {
            Some(true) => WatchStart::InitialEvents(number),
            // sendInitialEvents=false: start at the current revision, or at the given one.
            Some(false) if number == 0 => WatchStart::Now,
            None if number == 0 => WatchStart::InitialEvents(0),
            _ => WatchStart::After(number),
        };
        let seconds = query.integer("timeoutSeconds")?.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
        Ok(WatchOptions {
            start,
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            timeout: seconds.map(Duration::from_secs),
            selector,
        })
    }
}

/// Rejects invalid options.
fn refuse_options(kind: &str, errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", kind, "", errors)) }
}

impl WriteOptions {
    pub(crate) fn parse(call: &Call<'_>) -> ApiResult<WriteOptions> {
        let kind = match call.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            _ => "PatchOptions",
        };
        let query = &call.query;
        let mut errors = Vec::new();
        let manager = query.text("fieldManager");
        if call.verb == Verb::Patch {
            let applies = body::media_type(&call.request.content_type) == APPLY_PATCH;
            if applies && manager.is_empty() {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            } else if !applies && query.flag("force").is_some() {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
            }
        }
        if manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        }
        for (at, character) in manager.char_indices().filter(|(_, c)| c.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(character));
            let quoted = go_quoted(manager);
            errors.push(FieldError::invalid_text("fieldManager", &quoted, &why));
        }
        let dry = query.all("dryRun");
        errors.extend(dry_run_error(&dry));
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
                errors.push(FieldError::not_supported("fieldValidation", other, supported));
                FieldValidation::Ignore
            }
        };
        refuse_options(kind, &errors)?;
        let manager =
            if manager.is_empty() { manager_of(&call.request.user_agent) } else { manager.to_owned() };
        Ok(WriteOptions { dry_run: !dry.is_empty(), field_manager: manager, field_validation })
    }
}

/// Text as Go's %q prints it, with control characters in hexadecimal.
fn go_quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '\u{7}' => "\\a".to_owned(),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// The default field manager: the user agent up to the first slash.
fn manager_of(user_agent: &str) -> String {
    let word = user_agent.split('/').next().unwrap_or_default();
    let printable: String = word.chars().filter(|c| !c.is_control()).take(128).collect();
    if printable.is_empty() { "unknown".to_owned() } else { printable }
}

fn dry_run_error(given: &[&str]) -> Option<FieldError> {
    let supported = "supported values: \"All\"";
    let wrong = given.iter().any(|value| *value != "All");
    wrong.then(|| FieldError::not_supported_value("dryRun", &json!(given), supported))
}

impl DeleteOptions {
    /// Reads the body if there is one, else the query.
    pub(crate) fn parse(call: &Call<'_>) -> ApiResult<DeleteOptions> {
        let query = &call.query;
        if !call.request.body.is_empty() {
            let body = body::read(call)?;
            return DeleteOptions::from_value(&body);
        }
        let text = |name: &str| Some(query.text(name)).filter(|t| !t.is_empty());
        DeleteOptions::from_value(&json!({
            "dryRun": query.all("dryRun"),
            "propagationPolicy": text("propagationPolicy"),
            "gracePeriodSeconds": query.integer("gracePeriodSeconds")?,
            "orphanDependents": query.flag("orphanDependents"),
        }))
    }

    /// Reads a DeleteOptions object.
    pub(crate) fn from_value(body: &Value) -> ApiResult<DeleteOptions> {
        let body = checked(body)?;
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let dry: Vec<&str> =
            body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut errors: Vec<FieldError> = Vec::new();
        let propagation = propagation(&body, &mut errors);
        errors.extend(dry_run_error(&dry));
        refuse_options("DeleteOptions", &errors)?;
        // kube-apiserver treats a negative grace period as one second.
        let grace = body["gracePeriodSeconds"].as_i64().map(|seconds| if seconds < 0 { 1 } else { seconds });
        Ok(DeleteOptions {
            dry_run: !dry.is_empty(),
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            propagation,
            grace_seconds: grace,
            orphan_dependents_false: body["orphanDependents"] == false,
        })
    }
}

/// The body as a well-typed DeleteOptions object.
fn checked(body: &Value) -> ApiResult<Value> {
    let group_version = body["apiVersion"].as_str().unwrap_or_default();
    let kind = body["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "DeleteOptions") {
        let version = if group_version.is_empty() { "meta.k8s.io/v1" } else { group_version };
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} {}",
            body::SCHEME
        )));
    }
    let shape = types::named("meta.v1.DeleteOptions").unwrap_or_else(types::custom);
    types::decode(shape, body.clone(), Form::Applied, &mut Vec::new()).map_err(|wrong| {
        Status::bad_request(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: {}",
            wrong.0
        ))
    })
}

fn propagation(body: &Value, errors: &mut Vec<FieldError>) -> Option<PropagationPolicy> {
    let policy = body["propagationPolicy"].as_str();
    let orphan = body["orphanDependents"].as_bool();
    if policy.is_some() && orphan.is_some() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid("propagationPolicy", &json!(policy), why));
    }
    match (policy, orphan) {
        (None, None) => None,
        (Some("Foreground"), _) => Some(PropagationPolicy::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(PropagationPolicy::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(PropagationPolicy::Background),
        (Some(other), _) => {
            let supported = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            errors.push(FieldError::not_supported("propagationPolicy", other, supported));
            None
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
                ListOptions::parse(call).map(|o| o.version_match).map_err(|s| s.reason.code())
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
        assert_eq!(start(""), Ok(WatchStart::InitialEvents(0)));
        assert_eq!(start("resourceVersion=0"), Ok(WatchStart::InitialEvents(0)));
        assert_eq!(start("resourceVersion=5"), Ok(WatchStart::After(5)));
        let mark = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(start(mark), Ok(WatchStart::InitialEvents(0)));
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
        assert_eq!(
            parse("propagationPolicy=Orphan", "").unwrap().propagation,
            Some(PropagationPolicy::Orphan)
        );
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
