//! The API server's audit log as data, so that a test can check which requests were sent and which were refused.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use crate::error::{During, Result};
use crate::pki::User;

/// The policy the API server runs with: every request, once, without bodies.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// One finished request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditEntry {
    /// The user; with impersonation, the impersonated one.
    pub user: String,
    /// The verb as the authoriser knows it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// Path and query.
    pub uri: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The object of the request; `None` for paths such as `/readyz`.
    pub object: Option<ObjectRef>,
    /// The user agent.
    pub user_agent: String,
    /// Whether the authorizer allowed it; a 403 may also come from admission, such as for a terminating namespace.
    pub authorised: bool,
    /// When the request came in, as the API server wrote it (RFC 3339 with microseconds).
    pub received_at: String,
}

/// The object, collection or subresource a request was about.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    /// Empty for the core group.
    pub api_group: String,
    /// `v1` and the like.
    pub api_version: String,
    /// The plural name of the kind.
    pub resource: String,
    /// `status`, `token`, …, or empty.
    pub subresource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Empty for collections, and for creations that leave the name to the server.
    pub name: String,
}

impl AuditEntry {
    /// Whether a controller manager sent it, or one of its service accounts.
    #[must_use]
    pub fn is_from_manager(&self) -> bool {
        self.user == User::ControllerManager.name()
            || self.user.starts_with("system:serviceaccount:kube-system:")
    }

    /// Whether it is a write.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// Whether it is routine traffic of every manager: leases, events, its own tokens, and access reviews.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        let resource = self.object.as_ref().map(|object| object.resource.as_str());
        resource.is_none_or(|resource| {
            matches!(resource, "leases" | "events" | "subjectaccessreviews" | "tokenreviews")
                || self.uri.ends_with("/token")
        })
    }
}

/// A position in an audit log.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditMark(u64);

/// The end of an audit log, before a line that is still being written.
pub fn mark(path: &Path) -> Result<AuditMark> {
    let find = || -> io::Result<AuditMark> {
        let mut log = File::open(path)?;
        let mut end = log.seek(SeekFrom::End(0))?;
        let mut last = [0];
        while end > 0 {
            log.seek(SeekFrom::Start(end - 1))?;
            log.read_exact(&mut last)?;
            if last == *b"\n" {
                break;
            }
            end -= 1;
        }
        Ok(AuditMark(end))
    };
    find().during(|| format!("reading {}", path.display()))
}

/// Reads the finished requests after a mark from an audit log in the order in which they finished.
pub fn read(path: &Path, since: AuditMark) -> Result<Vec<AuditEntry>> {
    let mut text = Vec::new();
    let mut read = || {
        let mut log = File::open(path)?;
        log.seek(SeekFrom::Start(since.0))?;
        log.read_to_end(&mut text)
    };
    read().during(|| format!("reading {}", path.display()))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Keeps what was finished; a last line that is still being written is left for the next reading.
fn parse(log: &str) -> Vec<AuditEntry> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter_map(Line::finished)
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: Person,
    impersonated_user: Option<Person>,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Status,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(default, rename = "authorization.k8s.io/decision")]
    decision: String,
}

#[derive(Deserialize)]
struct Person {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Line {
    fn finished(self) -> Option<AuditEntry> {
        // A watch is also noted when it begins, and a crashed request as a panic; neither carries the final status.
        (self.stage == "ResponseComplete").then(|| AuditEntry {
            user: self.impersonated_user.unwrap_or(self.user).username,
            verb: self.verb,
            uri: self.request_uri,
            code: self.response_status.code,
            object: self.object_ref,
            user_agent: self.user_agent,
            authorised: self.annotations.decision == "allow",
            received_at: self.request_received_timestamp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(
        r#"{"kind":"Event","stage":"ResponseStarted","requestURI":"/api/v1/secrets?watch=1","verb":"watch","user":{"username":"a"},"responseStatus":{"code":200}}"#,
        "\n",
        r#"{"kind":"Event","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/n/pods/p/status","verb":"update","#,
        r#""user":{"username":"system:kube-controller-manager","groups":["system:authenticated"]},"userAgent":"tests/1","#,
        r#""objectRef":{"resource":"pods","namespace":"n","name":"p","uid":"u","apiVersion":"v1","subresource":"status"},"#,
        r#""responseStatus":{"metadata":{},"status":"Failure","code":403},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}"#,
        "\n",
        r#"{"stage":"ResponseComplete","annotations":{"authorization.k8s.io/decision":"allow"},"#,
        r#""requestURI":"/readyz","verb":"get","user":{"username":"root"},"impersonatedUser":{"username":"me"},"responseStatus":{"code":200}}"#,
        "\n",
        r#"{"stage":"ResponseComplete","requestURI":"/api"#,
    );

    #[test]
    fn finished_requests_are_read_and_the_rest_is_left_out() {
        let entries = parse(LOG);
        assert_eq!(entries.len(), 2);
        let refused = &entries[0];
        assert_eq!((refused.user.as_str(), refused.code), ("system:kube-controller-manager", 403));
        assert_eq!((refused.verb.as_str(), refused.user_agent.as_str()), ("update", "tests/1"));
        assert_eq!(refused.received_at, "2026-01-02T03:04:05.000006Z");
        assert!(!refused.authorised && entries[1].authorised);
        let object = refused.object.as_ref().unwrap();
        assert_eq!((object.resource.as_str(), object.subresource.as_str()), ("pods", "status"));
        assert_eq!(
            (object.namespace.as_str(), object.name.as_str(), object.api_group.as_str()),
            ("n", "p", "")
        );
    }

    #[test]
    fn with_impersonation_the_user_is_the_one_acted_as() {
        let entries = parse(LOG);
        assert_eq!((entries[1].user.as_str(), entries[1].uri.as_str()), ("me", "/readyz"));
        assert_eq!(entries[1].object, None);
    }

    #[test]
    fn reading_after_a_mark_starts_at_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let (whole, part) = LOG.split_at(LOG.rfind(r#""requestURI":"/readyz""#).unwrap());
        std::fs::write(&path, whole).unwrap();
        let mark = mark(&path).unwrap();
        std::fs::write(&path, [whole, part].concat()).unwrap();
        let entries = read(&path, mark).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.uri.as_str()).collect::<Vec<_>>(), ["/readyz"]);
        assert_eq!(read(&path, AuditMark::default()).unwrap(), parse(LOG));
    }

    #[test]
    fn requests_are_classified_by_user_and_resource() {
        let entries = parse(LOG);
        assert!(entries[0].is_from_manager() && entries[0].is_write() && !entries[0].is_routine());
        assert!(!entries[1].is_from_manager() && !entries[1].is_write() && entries[1].is_routine());
    }
}
