//! Reads watch events and list envelopes; one object that cannot be read spoils no other.

use keleustes_objects::{Failure, Resource, Version};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Decode;
use super::policy::EventType;
use crate::failure;
use crate::writes::unreadable;

/// A watch event of which the object is still text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// Something happened to an object.
    Object(EventType, &'a str),
    /// Nothing happened up to a version, which may also be the end of the initial events.
    Bookmark { version: Version, ends_initial_events: bool },
    /// The server ends the watch.
    Error(Failure),
    /// An event of a type that is not known.
    Unknown,
    /// No event at all: something was lost.
    Unreadable,
}

#[derive(Deserialize)]
struct WireEvent<'a> {
    r#type: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct WireBookmark {
    #[serde(default)]
    metadata: WireBookmarkMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireBookmarkMeta {
    resource_version: Version,
    annotations: Option<WireBookmarkAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBookmarkAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: String,
}

/// Reads one line of a watch.
pub(super) fn event(line: &[u8]) -> Event<'_> {
    let Some((name, object)) = envelope_at_once(line).or_else(|| envelope_by_parser(line)) else {
        return Event::Unreadable;
    };
    let event_type = match name.as_ref() {
        "ADDED" => EventType::Added,
        "MODIFIED" => EventType::Modified,
        "DELETED" => EventType::Deleted,
        "BOOKMARK" => return bookmark(object),
        "ERROR" => {
            return Event::Error(match serde_json::from_str::<Status>(object) {
                Ok(status) => failure::of_status(&status, None),
                Err(_) => unreadable("the watch ended with an error that cannot be read"),
            });
        }
        _ => return Event::Unknown,
    };
    Event::Object(event_type, object)
}

fn bookmark(object: &str) -> Event<'_> {
    let Ok(wire) = serde_json::from_str::<WireBookmark>(object) else {
        return Event::Unreadable;
    };
    let annotations = wire.metadata.annotations.unwrap_or_default();
    Event::Bookmark {
        version: wire.metadata.resource_version,
        ends_initial_events: annotations.initial_events_end == "true",
    }
}

/// Takes an event apart the way every API server writes it, without looking through the object, which
/// is then parsed only once. What follows the object, if anything, makes the object unreadable; then
/// [`object`] asks the parser.
fn envelope_at_once(line: &[u8]) -> Option<(std::borrow::Cow<'_, str>, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("{\"type\":\"")?;
    let (name, rest) = rest.split_once('"')?;
    let object = rest.strip_prefix(",\"object\":")?.trim_end().strip_suffix('}')?;
    Some((name.into(), object))
}

fn envelope_by_parser(line: &[u8]) -> Option<(std::borrow::Cow<'_, str>, &str)> {
    let event: WireEvent<'_> = serde_json::from_slice(line).ok()?;
    Some((event.r#type, event.object.get()))
}

/// Reads the object of an event.
pub(super) fn object<T>(decode: Decode<T>, object: &str, line: &[u8]) -> Result<T, serde_json::Error> {
    decode(object).or_else(|error| match envelope_by_parser(line) {
        Some((_, parsed)) if parsed != object => decode(parsed),
        _ => Err(error),
    })
}

/// What can still be told of an object that cannot be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trace {
    /// `namespace/name`, or nothing.
    pub(super) name: String,
    /// Its version, or nothing.
    pub(super) version: Version,
}

/// Looks only for name and version.
pub(super) fn trace(object: &[u8]) -> Trace {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        name: String,
        namespace: String,
        resource_version: Version,
    }
    #[derive(Deserialize)]
    struct Wire {
        metadata: Meta,
    }
    match serde_json::from_slice::<Wire>(object) {
        Ok(Wire { metadata }) if metadata.namespace.is_empty() => {
            Trace { name: metadata.name, version: metadata.resource_version }
        }
        Ok(Wire { metadata }) => Trace {
            name: format!("{}/{}", metadata.namespace, metadata.name),
            version: metadata.resource_version,
        },
        Err(_) => Trace::default(),
    }
}

/// Which type lines the objects of a watch may have.
#[derive(Debug)]
pub(super) struct ExpectedType {
    kind: String,
    api_version: String,
    metadata_only: bool,
    /// How servers start an object of the expected type; comparing this saves parsing it twice.
    usual_start: String,
}

impl ExpectedType {
    pub(super) fn of(resource: &Resource, metadata_only: bool) -> Self {
        let (kind, api_version) = (resource.kind.to_string(), resource.api_version());
        let usual_start = if metadata_only {
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",".to_owned()
        } else {
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
        };
        Self { kind, api_version, metadata_only, usual_start }
    }

    /// Whether an object says to be of the expected type, or does not say.
    pub(super) fn fits(&self, object: &str) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Wire {
            kind: String,
            api_version: String,
        }
        if object.starts_with(&self.usual_start) {
            return true;
        }
        match serde_json::from_str::<Wire>(object) {
            Ok(wire) => {
                let partial = self.metadata_only
                    && wire.kind == "PartialObjectMetadata"
                    && wire.api_version.starts_with("meta.k8s.io/");
                let whole = wire.kind == self.kind && wire.api_version == self.api_version;
                partial || whole || wire.kind.is_empty()
            }
            // Not for this function to judge: decoding will say what is wrong.
            Err(_) => true,
        }
    }
}

/// A list without its items.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: EnvelopeMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvelopeMeta {
    resource_version: Version,
    r#continue: String,
}

/// Reads a list without its items: its version and, if there are more pages, where the next one starts.
pub(super) fn envelope(text: &[u8]) -> Result<(Version, Option<String>), Failure> {
    let envelope: Envelope = serde_json::from_slice(text).map_err(|error| {
        let place = failure::decode_error_without_content(&error);
        unreadable(&format!("the list cannot be read: {place}"))
    })?;
    if !envelope.kind.ends_with("List") {
        return Err(unreadable(&format!("unsupported list kind: {:?}", envelope.kind)));
    }
    let next = envelope.metadata.r#continue;
    Ok((envelope.metadata.resource_version, (!next.is_empty()).then_some(next)))
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{Kind, Namespace, Partial, Reason};

    use super::*;

    #[test]
    fn events_are_read_in_any_layout() {
        let usual = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
        let odd = br#"{ "object" : {"metadata":{"name":"a"}}, "type" : "ADDED" }"#;
        let wanted = Event::Object(EventType::Added, r#"{"metadata":{"name":"a"}}"#);
        assert_eq!(event(usual), wanted);
        assert_eq!(event(odd), wanted);
        let more = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}},"extra":{}}"#;
        let Event::Object(_, text) = event(more) else { panic!("no object") };
        let decode: Decode<Partial> = |text| serde_json::from_str(text);
        assert_eq!(object(decode, text, more).unwrap().meta.key.name, "a");
        assert_eq!(event(b"garbage"), Event::Unreadable);
        assert_eq!(event(br#"{"type":"STRANGE","object":{}}"#), Event::Unknown);
    }

    /// Proves INF-11.
    #[test]
    fn the_end_of_initial_events_is_a_bookmark_with_an_annotation() {
        let ends = |annotations: &str| {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"9","annotations":{annotations}}}}}}}"#
            );
            match event(line.as_bytes()) {
                Event::Bookmark { version, ends_initial_events } => {
                    assert_eq!(version, Version::from("9"));
                    ends_initial_events
                }
                other => panic!("{other:?}"),
            }
        };
        assert!(ends(r#"{"k8s.io/initial-events-end":"true"}"#));
        assert!(!ends(r#"{"k8s.io/initial-events-end":"false"}"#));
        assert!(!ends("{}"));
        assert!(!ends("null"));
    }

    #[test]
    fn errors_carry_their_status() {
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#;
        let Event::Error(failure) = event(gone) else { panic!("no error") };
        assert_eq!((failure.reason, failure.code), (Reason::Gone, 410));
    }

    /// Proves INF-19.
    #[test]
    fn tables_and_strangers_are_not_taken() {
        assert!(envelope(br#"{"kind":"Table","metadata":{"resourceVersion":"3"},"rows":[]}"#).is_err());
        let (version, next) =
            envelope(br#"{"kind":"SecretList","metadata":{"resourceVersion":"3","continue":"x"}}"#).unwrap();
        assert_eq!((version, next.as_deref()), (Version::from("3"), Some("x")));

        let whole = ExpectedType::of(&Namespace::RESOURCE, false);
        assert!(whole.fits(r#"{"kind":"Namespace","apiVersion":"v1","metadata":{}}"#));
        assert!(whole.fits(r#"{"apiVersion":"v1","kind":"Namespace"}"#));
        assert!(whole.fits(r#"{"metadata":{}}"#));
        assert!(!whole.fits(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#));
        assert!(!whole.fits(r#"{"kind":"Secret","apiVersion":"v1"}"#));
        let partial = ExpectedType::of(&Namespace::RESOURCE, true);
        assert!(
            partial.fits(r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}"#)
        );
        assert!(partial.fits(r#"{"kind":"Namespace","apiVersion":"v1"}"#));
        assert!(!partial.fits(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#));
    }

    #[test]
    fn unreadable_objects_are_still_named() {
        let object = br#"{"metadata":{"name":"b","namespace":"a","resourceVersion":"4"},"data":7}"#;
        let trace = trace(object);
        assert_eq!((trace.name.as_str(), trace.version), ("a/b", Version::from("4")));
    }
}
