//! `/debug/…`: what helps people who look into a running process.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use super::Asked;
use super::answers::{HTML, nosniff, not_found, of, plain, redirect};
use super::quote;

/// Sets the verbosity of the log.
pub type SetVerbosity = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// Marks answers whose text Go's profiling tool shows to its user.
const GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

/// The profiles that Go can make, and what to do instead.
const PROFILES: [(&str, &str); 9] = [
    ("allocs", "run a heap profiler on the process, such as heaptrack"),
    ("block", "there are no goroutines to block"),
    ("goroutine", "there are no goroutines; a debugger shows the threads"),
    ("heap", "run a heap profiler on the process, such as heaptrack"),
    ("mutex", "there are no goroutines to wait for a mutex"),
    ("profile", "record the process with perf"),
    ("symbol", "binaries carry no symbols"),
    ("threadcreate", "threads are few and made at the start"),
    ("trace", "record the process with perf"),
];

/// What the pages below `/debug/` do, if they are there.
pub(super) struct Debug {
    pub(super) profiling: bool,
    pub(super) set_verbosity: Option<SetVerbosity>,
}

impl Debug {
    /// The answer to a request below `/debug/`, but for those of controllers.
    pub(super) fn answer(&self, asked: &Asked<'_>) -> Response<Bytes> {
        if !self.profiling {
            return not_found();
        }
        match asked.path {
            "/debug/pprof" => redirect(asked.method, "/debug/pprof/"),
            "/debug/flags/v" => self.verbosity(asked),
            "/debug/flags" => flags(),
            path if path.starts_with("/debug/flags/") => flags(),
            path => match path.strip_prefix("/debug/pprof/") {
                Some("") => index(),
                Some(name) => profile(name),
                None => not_found(),
            },
        }
    }

    fn verbosity(&self, asked: &Asked<'_>) -> Response<Bytes> {
        let say = |status, text: &str| nosniff(of(status, "text/plain", format!("{text}\n")));
        if *asked.method != Method::PUT {
            return say(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
        }
        let Some(set) = &self.set_verbosity else {
            return say(StatusCode::NOT_IMPLEMENTED, "the verbosity of this process cannot be changed");
        };
        let text = match asked.body {
            Some(body) => String::from_utf8_lossy(body),
            None => return say(StatusCode::BAD_REQUEST, "error reading request body: too large"),
        };
        match level(&text).and_then(|level| set(level)) {
            Ok(()) => say(StatusCode::OK, &format!("successfully set klog.logging.verbosity to {text}")),
            Err(fault) => say(StatusCode::BAD_REQUEST, &fault),
        }
    }
}

/// Reads a level as the original does, which complains in the words of its language.
fn level(text: &str) -> Result<u32, String> {
    let quoted = quote::go(text);
    let complain = |fault| Err(format!("strconv.ParseUint: parsing {quoted}: {fault}"));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return complain("invalid syntax");
    }
    let Ok(level) = text.parse::<u32>() else {
        return complain("value out of range");
    };
    if i32::try_from(level).is_err() {
        let fault = format!("strconv.ParseInt: parsing {quoted}: value out of range");
        return Err(format!("failed set klog.logging.verbosity {text}: {fault}"));
    }
    Ok(level)
}

fn flags() -> Response<Bytes> {
    let page = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n\
                <table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";
    of(StatusCode::OK, HTML, page)
}

fn index() -> Response<Bytes> {
    let rows = PROFILES.map(|(name, instead)| format!("<tr><td>{name}</td><td>{instead}</td></tr>\n"));
    let page = format!(
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/<br>\n\
         <p>This program is not written in Go and makes none of Go's profiles.</p>\n<table>\n\
         <thead><td>Profile</td><td>Instead</td></thead>\n{}</table>\n</body>\n</html>\n",
        rows.concat()
    );
    nosniff(of(StatusCode::OK, HTML, page))
}

fn profile(name: &str) -> Response<Bytes> {
    let mut answer = match PROFILES.iter().find(|(known, _)| *known == name) {
        Some((_, instead)) => plain(
            StatusCode::NOT_IMPLEMENTED,
            format!("This program is not written in Go and has no {name} profile: {instead}.\n"),
        ),
        None => plain(StatusCode::NOT_FOUND, "Unknown profile\n"),
    };
    answer.headers_mut().insert(GO_PPROF, HeaderValue::from_static("1"));
    answer
}
