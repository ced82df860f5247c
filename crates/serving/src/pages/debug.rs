//! The pages below `/debug/`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use super::PageRequest;
use super::quote;
use super::responses::{HTML, nosniff, not_found, of, plain, redirect};

/// Sets the verbosity of the log.
pub type SetVerbosity = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// The page that sets the verbosity: the only one that takes a request body.
pub(super) const VERBOSITY: &str = "/debug/flags/v";

/// Marks responses whose text `go tool pprof` prints.
const GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

/// Go's profiles, and what to use instead.
const PROFILES: [(&str, &str); 9] = [
    ("allocs", "run a heap profiler on the process, such as heaptrack"),
    ("block", "there are no goroutines to block"),
    ("goroutine", "there are no goroutines; a debugger shows the threads"),
    ("heap", "run a heap profiler on the process, such as heaptrack"),
    ("mutex", "there are no goroutines to wait for a mutex"),
    ("profile", "record the process with perf"),
    ("symbol", "binaries carry no symbols"),
    ("threadcreate", "threads are few and created at startup"),
    ("trace", "record the process with perf"),
];

/// The pages below `/debug/`, except those of controllers.
pub(super) struct Debug {
    pub(super) profiling: bool,
    pub(super) set_verbosity: Option<SetVerbosity>,
}

impl Debug {
    /// The response to a request below `/debug/`, except those of controllers.
    pub(super) fn response(&self, request: &PageRequest<'_>) -> Response<Bytes> {
        if !self.profiling {
            return not_found();
        }
        match request.path {
            "/debug/pprof" => redirect(request.method, "/debug/pprof/"),
            VERBOSITY => self.verbosity(request),
            "/debug/flags" => flags(),
            path if path.starts_with("/debug/flags/") => flags(),
            path => match path.strip_prefix("/debug/pprof/") {
                Some("") => index(),
                Some(name) => profile(name),
                None => not_found(),
            },
        }
    }

    fn verbosity(&self, request: &PageRequest<'_>) -> Response<Bytes> {
        let respond = |status, text: &str| nosniff(of(status, "text/plain", format!("{text}\n")));
        if *request.method != Method::PUT {
            return respond(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
        }
        let Some(set) = &self.set_verbosity else {
            return respond(StatusCode::NOT_IMPLEMENTED, "the verbosity of this process cannot be changed");
        };
        let text = match request.body {
            Some(body) => String::from_utf8_lossy(body),
            None => {
                return respond(StatusCode::BAD_REQUEST, "error reading request body: too large or too slow");
            }
        };
        match level(&text).and_then(|level| set(level)) {
            Ok(()) => respond(StatusCode::OK, &format!("successfully set klog.logging.verbosity to {text}")),
            Err(error_text) => respond(StatusCode::BAD_REQUEST, &error_text),
        }
    }
}

/// Parses a level like the original, with Go's error messages.
fn level(text: &str) -> Result<u32, String> {
    let quoted = quote::go(text);
    let parse_error = |error_text| Err(format!("strconv.ParseUint: parsing {quoted}: {error_text}"));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_error("invalid syntax");
    }
    let Ok(level) = text.parse::<u32>() else {
        return parse_error("value out of range");
    };
    if i32::try_from(level).is_err() {
        let error_text = format!("strconv.ParseInt: parsing {quoted}: value out of range");
        return Err(format!("failed set klog.logging.verbosity {text}: {error_text}"));
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
         <p>This program is not written in Go and has none of Go's profiles.</p>\n<table>\n\
         <thead><td>Profile</td><td>Instead</td></thead>\n{}</table>\n</body>\n</html>\n",
        rows.concat()
    );
    nosniff(of(StatusCode::OK, HTML, page))
}

fn profile(name: &str) -> Response<Bytes> {
    let mut response = match PROFILES.iter().find(|(known, _)| *known == name) {
        Some((_, instead)) => plain(
            StatusCode::NOT_IMPLEMENTED,
            format!("This program is not written in Go and has no {name} profile: {instead}.\n"),
        ),
        None => plain(StatusCode::NOT_FOUND, "Unknown profile\n"),
    };
    response.headers_mut().insert(GO_PPROF, HeaderValue::from_static("1"));
    response
}
