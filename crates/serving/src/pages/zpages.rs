//! `/flagz` and `/statusz`: the flags, versions and uptime of the process.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::WARNING;
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::negotiate::{Format, accept};
use super::responses::{JSON, TEXT, YAML, json, not_acceptable, of, yaml};
use super::{PageRequest, VersionInfo};

const COMPONENT: &str = "kube-controller-manager";
const GROUP: &str = "config.k8s.io";
/// The API versions of both objects, the deprecated one first.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];
const NOTICE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                      compatibility guarantees and is for debugging purposes only.";
/// Separators between a name and its value. One is chosen at random per process, so that clients do not parse
/// the text.
const SEPARATORS: [&str; 4] = [":", ": ", "=", " "];

/// The content of both pages.
pub(super) struct ZPages {
    /// `None` if `/flagz` is disabled.
    pub(super) flags: Option<BTreeMap<String, String>>,
    pub(super) statusz: bool,
    pub(super) about: VersionInfo,
    pub(super) started_at: SystemTime,
    pub(super) missing_controllers: Vec<String>,
    separator: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a, T> {
    kind: &'a str,
    api_version: String,
    metadata: Metadata,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct Metadata {
    name: &'static str,
}

#[derive(Serialize)]
struct Flags<'a> {
    flags: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusFields<'a> {
    start_time: String,
    uptime_seconds: u64,
    go_version: &'a str,
    binary_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    emulation_version: &'a str,
    paths: Vec<&'static str>,
}

impl ZPages {
    pub(super) fn new(
        flags: Option<BTreeMap<String, String>>,
        statusz: bool,
        about: VersionInfo,
        started_at: SystemTime,
        missing_controllers: Vec<String>,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let separator = SEPARATORS[rng.usize(..SEPARATORS.len())];
        Self { flags, statusz, about, started_at, missing_controllers, separator }
    }

    /// The response for `/flagz`; `None` if it is disabled.
    pub(super) fn flagz(&self, request: &PageRequest<'_>) -> Option<Response<Bytes>> {
        let flags = self.flags.as_ref()?;
        Some(response(request, "Flagz", Flags { flags }, || {
            let lines = flags.iter().map(|(name, value)| format!("{name}{}{value}\n", self.separator));
            format!("\n{COMPONENT} flagz\n{NOTICE}\n{}", lines.collect::<String>())
        }))
    }

    /// The response for `/statusz`; `None` if it is disabled.
    pub(super) fn statusz(&self, request: &PageRequest<'_>, now: SystemTime) -> Option<Response<Bytes>> {
        if !self.statusz {
            return None;
        }
        let uptime_seconds = now.duration_since(self.started_at).unwrap_or_default().as_secs();
        let started = Timestamp::try_from(self.started_at).unwrap_or_default();
        let fields = StatusFields {
            start_time: started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uptime_seconds,
            go_version: &self.about.language,
            binary_version: &self.about.version,
            emulation_version: &self.about.emulation_version,
            paths: self.paths(),
        };
        let paths = fields.paths.join(" ");
        Some(response(request, "Statusz", fields, || self.status_text(started, uptime_seconds, &paths)))
    }

    fn status_text(&self, started: Timestamp, up: u64, paths: &str) -> String {
        let started = started.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y");
        let separator = self.separator;
        let line = |name: &str, value: &str| format!("{name}{separator} {value}\n");
        let mut text = format!("\n{COMPONENT} statusz\n{NOTICE}\n\n");
        text += &line("Started", &started.to_string());
        text += &line("Up", &format!("{} hr {:02} min {:02} sec", up / 3600, up / 60 % 60, up % 60));
        text += &line("Go version", &self.about.language);
        text += &line("Binary version", &self.about.version);
        text += &line("Emulation version", &self.about.emulation_version);
        if !self.about.program.is_empty() {
            text += &line("Program", &self.about.program);
        }
        text += &line("Paths", paths);
        if !self.missing_controllers.is_empty() {
            text += &line("Controllers not implemented", &self.missing_controllers.join(" "));
        }
        text
    }

    /// The paths that `/statusz` lists.
    fn paths(&self) -> Vec<&'static str> {
        let flagz = self.flags.as_ref().map(|_| "/flagz");
        ["/configz"].into_iter().chain(flagz).chain(["/healthz", "/metrics"]).collect()
    }
}

/// The page in the negotiated media type: text unless the client requests a known kind.
fn response<T: Serialize>(
    request: &PageRequest<'_>,
    kind: &str,
    content: T,
    text: impl FnOnce() -> String,
) -> Response<Bytes> {
    let known = |wanted: &(String, String, String)| {
        wanted.0 == GROUP && VERSIONS.contains(&wanted.1.as_str()) && wanted.2 == kind
    };
    let offered = [Format::Json, Format::Yaml, Format::Text];
    let no_accept_header = request.header(http::header::ACCEPT).trim().is_empty();
    let accepted = accept(request.headers, &offered, |format, wanted| match format {
        Format::Text => wanted.is_plain(),
        Format::Json | Format::Yaml => wanted.kind.as_ref().is_some_and(known),
    });
    let (format, wanted) = match accepted {
        _ if no_accept_header => return of(StatusCode::OK, TEXT, text()),
        Some(accepted) => (accepted.format, accepted.wanted),
        None => return not_acceptable(request),
    };
    let Some((_, version, _)) = wanted.kind else {
        return of(StatusCode::OK, TEXT, text());
    };
    let object = Object {
        kind,
        api_version: format!("{GROUP}/{version}"),
        metadata: Metadata { name: COMPONENT },
        content,
    };
    let (media_type, body) = match format {
        Format::Yaml => (YAML, yaml(&object)),
        _ => (JSON, json(&object, request.wants_pretty_json() || wanted.pretty)),
    };
    let mut response = of(StatusCode::OK, &format!("{media_type};g={GROUP};v={version};as={kind}"), body);
    if version == VERSIONS[0] {
        let page = kind.to_ascii_lowercase();
        let warning = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(warning) = HeaderValue::from_str(&warning) {
            response.headers_mut().insert(WARNING, warning);
        }
    }
    response
}
