//! Reads watch events and list envelopes; one object that cannot be read spoils no other.

use keleustes_objects::protobuf::{self, Envelope as Message, WatchEvent};
use keleustes_objects::{
    ApiError, DecodeError, Encoded, Resource, ResourceVersion, decode_error_without_content,
};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Decode;
use super::pieces::Piece;
use super::policy::EventType;
use crate::failure;
use crate::writes::unreadable;

/// An object of a watch event, with its type line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent<'a> {
    Json(&'a str),
    Protobuf(Message<'a>),
}

/// A watch event of which the object is not read yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// Something happened to an object.
    Object(EventType, Sent<'a>),
    /// Nothing happened up to a version, which may also be the end of the initial events.
    Bookmark { version: ResourceVersion, ends_initial_events: bool },
    /// The server ends the watch.
    Error(ApiError),
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
    resource_version: ResourceVersion,
    annotations: Option<WireBookmarkAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBookmarkAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: String,
}

/// Reads one line of a watch, or one frame.
pub(super) fn event(piece: Piece<'_>) -> Event<'_> {
    match piece {
        Piece::Line(line) => match envelope_at_once(line).or_else(|| envelope_by_parser(line)) {
            Some((name, object)) => event_of(&name, Sent::Json(object)),
            None => Event::Unreadable,
        },
        Piece::Frame(frame) => {
            let opened = WatchEvent::read(frame).and_then(|event| Ok((event, Message::open(event.object)?)));
            match opened {
                Ok((event, object)) => event_of(event.r#type, Sent::Protobuf(object)),
                Err(_) => Event::Unreadable,
            }
        }
    }
}

fn event_of<'a>(name: &str, object: Sent<'a>) -> Event<'a> {
    let event_type = match name {
        "ADDED" => EventType::Added,
        "MODIFIED" => EventType::Modified,
        "DELETED" => EventType::Deleted,
        "BOOKMARK" => return bookmark(object),
        "ERROR" => {
            return Event::Error(match object.read::<Status>(&protobuf::STATUS) {
                Some(status) => failure::of_status(&status, None),
                None => unreadable("the watch ended with an error that cannot be read"),
            });
        }
        _ => return Event::Unknown,
    };
    Event::Object(event_type, object)
}

impl<'a> Sent<'a> {
    /// Reads something that every kind of object has.
    fn read<T: Deserialize<'a>>(self, message: &'static protobuf::Message) -> Option<T> {
        match self {
            Self::Json(text) => serde_json::from_str(text).ok(),
            Self::Protobuf(envelope) => protobuf::from_slice(envelope.object, message).ok(),
        }
    }

    fn encoded(self) -> Encoded<'a> {
        match self {
            Self::Json(text) => Encoded::Json(text),
            Self::Protobuf(envelope) => Encoded::Protobuf(envelope.object),
        }
    }
}

fn bookmark(object: Sent<'_>) -> Event<'_> {
    let Some(wire) = object.read::<WireBookmark>(&protobuf::PARTIAL) else {
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
pub(super) fn object<T>(decode: Decode<T>, object: Sent<'_>, piece: Piece<'_>) -> Result<T, DecodeError> {
    decode(object.encoded()).or_else(|error| {
        let Piece::Line(line) = piece else { return Err(error) };
        match envelope_by_parser(line) {
            Some((_, parsed)) if Sent::Json(parsed) != object => decode(Encoded::Json(parsed)),
            _ => Err(error),
        }
    })
}

/// What can still be told of an object that cannot be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trace {
    /// `namespace/name`, or nothing.
    pub(super) name: String,
    /// Its version, or nothing.
    pub(super) version: ResourceVersion,
}

/// Looks only for name and version.
pub(super) fn trace(object: Sent<'_>) -> Trace {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        name: String,
        namespace: String,
        resource_version: ResourceVersion,
    }
    #[derive(Deserialize)]
    struct Wire {
        metadata: Meta,
    }
    match object.read(&protobuf::PARTIAL) {
        Some(Wire { metadata }) if metadata.namespace.is_empty() => {
            Trace { name: metadata.name, version: metadata.resource_version }
        }
        Some(Wire { metadata }) => Trace {
            name: format!("{}/{}", metadata.namespace, metadata.name),
            version: metadata.resource_version,
        },
        None => Trace::default(),
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
    pub(super) fn fits(&self, object: Sent<'_>) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Wire {
            kind: String,
            api_version: String,
        }
        match object {
            Sent::Json(text) if text.starts_with(&self.usual_start) => true,
            Sent::Json(text) => match serde_json::from_str::<Wire>(text) {
                Ok(wire) => self.is(&wire.api_version, &wire.kind),
                // Not for this function to judge: decoding will say what is wrong.
                Err(_) => true,
            },
            Sent::Protobuf(envelope) => self.is(envelope.api_version, envelope.kind),
        }
    }

    fn is(&self, api_version: &str, kind: &str) -> bool {
        let partial =
            self.metadata_only && kind == "PartialObjectMetadata" && api_version.starts_with("meta.k8s.io/");
        let whole = kind == self.kind && api_version == self.api_version;
        partial || whole || kind.is_empty()
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
    resource_version: ResourceVersion,
    r#continue: String,
}

/// Reads a list without its items: its version and, if there are more pages, where the next one starts.
pub(super) fn envelope(text: &[u8]) -> Result<(ResourceVersion, Option<String>), ApiError> {
    let envelope: Envelope = serde_json::from_slice(text).map_err(|error| {
        let place = decode_error_without_content(&error);
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
    use keleustes_objects::{ErrorReason, Kind, Namespace, PartialObjectMeta};

    use super::*;

    #[test]
    fn events_are_read_in_any_layout() {
        let usual = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
        let odd = br#"{ "object" : {"metadata":{"name":"a"}}, "type" : "ADDED" }"#;
        let wanted = Event::Object(EventType::Added, Sent::Json(r#"{"metadata":{"name":"a"}}"#));
        assert_eq!(event(Piece::Line(usual)), wanted);
        assert_eq!(event(Piece::Line(odd)), wanted);
        let more = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}},"extra":{}}"#;
        let Event::Object(_, sent) = event(Piece::Line(more)) else { panic!("no object") };
        let decode: Decode<PartialObjectMeta> = |object| object.read();
        assert_eq!(object(decode, sent, Piece::Line(more)).unwrap().meta.key.name, "a");
        assert_eq!(event(Piece::Line(b"garbage")), Event::Unreadable);
        assert_eq!(event(Piece::Line(br#"{"type":"STRANGE","object":{}}"#)), Event::Unknown);
    }

    /// Proves INF-11.
    #[test]
    fn the_end_of_initial_events_is_a_bookmark_with_an_annotation() {
        let ends = |annotations: &str| {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"9","annotations":{annotations}}}}}}}"#
            );
            match event(Piece::Line(line.as_bytes())) {
                Event::Bookmark { version, ends_initial_events } => {
                    assert_eq!(version, ResourceVersion::from("9"));
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
        let Event::Error(failure) = event(Piece::Line(gone)) else { panic!("no error") };
        assert_eq!((failure.reason, failure.code), (ErrorReason::Gone, 410));
    }

    /// Proves INF-19.
    #[test]
    fn tables_and_strangers_are_not_taken() {
        assert!(envelope(br#"{"kind":"Table","metadata":{"resourceVersion":"3"},"rows":[]}"#).is_err());
        let (version, next) =
            envelope(br#"{"kind":"SecretList","metadata":{"resourceVersion":"3","continue":"x"}}"#).unwrap();
        assert_eq!((version, next.as_deref()), (ResourceVersion::from("3"), Some("x")));

        let whole = ExpectedType::of(&Namespace::RESOURCE, false);
        assert!(whole.fits(Sent::Json(r#"{"kind":"Namespace","apiVersion":"v1","metadata":{}}"#)));
        assert!(whole.fits(Sent::Json(r#"{"apiVersion":"v1","kind":"Namespace"}"#)));
        assert!(whole.fits(Sent::Json(r#"{"metadata":{}}"#)));
        assert!(!whole.fits(Sent::Json(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#)));
        assert!(!whole.fits(Sent::Json(r#"{"kind":"Secret","apiVersion":"v1"}"#)));
        let partial = ExpectedType::of(&Namespace::RESOURCE, true);
        assert!(partial.fits(Sent::Json(
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}"#
        )));
        assert!(partial.fits(Sent::Json(r#"{"kind":"Namespace","apiVersion":"v1"}"#)));
        assert!(!partial.fits(Sent::Json(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#)));
    }

    fn record(field: u8, content: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    /// An event as it stands in a frame.
    fn frame(name: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let type_line = [record(1, b"v1"), record(2, kind.as_bytes())].concat();
        let envelope = [b"k8s\0".to_vec(), record(1, &type_line), record(2, object)].concat();
        [record(1, name.as_bytes()), record(2, &record(1, &envelope))].concat()
    }

    #[test]
    fn frames_are_events_too() {
        let metadata = [record(1, b"b"), record(3, b"a"), record(6, b"4")].concat();
        let added = frame("ADDED", "Namespace", &record(1, &metadata));
        let Event::Object(EventType::Added, sent) = event(Piece::Frame(&added)) else { panic!("no object") };
        let expected = ExpectedType::of(&Namespace::RESOURCE, true);
        assert!(expected.fits(sent));
        let decode: Decode<PartialObjectMeta> = |object| object.read();
        let partial = object(decode, sent, Piece::Frame(&added)).unwrap();
        assert_eq!(partial.meta.key.to_string(), "a/b");
        let seen = trace(sent);
        assert_eq!((seen.name.as_str(), seen.version), ("a/b", ResourceVersion::from("4")));

        let stranger = frame("ADDED", "Secret", &record(1, &metadata));
        let Event::Object(_, stranger) = event(Piece::Frame(&stranger)) else { panic!("no object") };
        assert!(!expected.fits(stranger));

        let end = [record(1, b"k8s.io/initial-events-end"), record(2, b"true")].concat();
        let metadata = [record(6, b"9"), record(12, &end)].concat();
        let bookmark = frame("BOOKMARK", "Namespace", &record(1, &metadata));
        let ends = Event::Bookmark { version: ResourceVersion::from("9"), ends_initial_events: true };
        assert_eq!(event(Piece::Frame(&bookmark)), ends);

        let status = [record(2, b"Failure"), record(4, b"Expired"), vec![6 << 3, 0x9a, 3]].concat();
        let status = frame("ERROR", "Status", &status);
        let Event::Error(failure) = event(Piece::Frame(&status)) else { panic!("no error") };
        assert_eq!((failure.reason, failure.code), (ErrorReason::Gone, 410));
        assert_eq!(event(Piece::Frame(b"{\"type\":\"ADDED\"}")), Event::Unreadable);
    }

    #[test]
    fn unreadable_objects_are_still_named() {
        let object = r#"{"metadata":{"name":"b","namespace":"a","resourceVersion":"4"},"data":7}"#;
        let trace = trace(Sent::Json(object));
        assert_eq!((trace.name.as_str(), trace.version), ("a/b", ResourceVersion::from("4")));
    }
}
