//! Decodes watch events and list envelopes. An object that cannot be decoded does not affect the others.

use keleustes_objects::protobuf::{self, Envelope as Message, WatchEvent};
use keleustes_objects::{
    ApiError, DecodeError, Decoder, Encoded, Key, Resource, ResourceVersion, Uid,
    decode_error_without_content,
};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::framing::WatchFrame;
use super::policy::EventType;
use crate::api_error;
use crate::call::unreadable_response;

/// The encoded object of a watch event, with its apiVersion and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncodedObject<'a> {
    Json(&'a str),
    Protobuf(Message<'a>),
}

/// A watch event whose object is not decoded yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// An object was added, modified or deleted.
    Object(EventType, EncodedObject<'a>),
    /// A bookmark, possibly the one that ends the initial events.
    Bookmark { version: ResourceVersion, ends_initial_events: bool },
    /// The server ends the watch with an error.
    Error(ApiError),
    /// An unknown event type.
    Unknown,
    /// Not an event: data was lost.
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

/// Decodes one watch event.
pub(super) fn event(frame: WatchFrame<'_>) -> Event<'_> {
    match frame {
        WatchFrame::Line(line) => match split_envelope(line).or_else(|| parse_envelope(line)) {
            Some((name, object)) => typed_event(&name, EncodedObject::Json(object)),
            None => Event::Unreadable,
        },
        WatchFrame::Frame(frame) => {
            let opened = WatchEvent::read(frame).and_then(|event| Ok((event, Message::open(event.object)?)));
            match opened {
                Ok((event, object)) => typed_event(event.r#type, EncodedObject::Protobuf(object)),
                Err(_) => Event::Unreadable,
            }
        }
    }
}

fn typed_event<'a>(name: &str, object: EncodedObject<'a>) -> Event<'a> {
    let event_type = match name {
        "ADDED" => EventType::Added,
        "MODIFIED" => EventType::Modified,
        "DELETED" => EventType::Deleted,
        "BOOKMARK" => return bookmark(object),
        "ERROR" => {
            return Event::Error(match object.read::<Status>(&protobuf::STATUS) {
                Some(status) => api_error::from_status(&status, None),
                None => unreadable_response("the watch ended with an error that cannot be decoded"),
            });
        }
        _ => return Event::Unknown,
    };
    Event::Object(event_type, object)
}

impl<'a> EncodedObject<'a> {
    /// Decodes fields that objects of every kind have.
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

fn bookmark(object: EncodedObject<'_>) -> Event<'_> {
    let Some(wire) = object.read::<WireBookmark>(&protobuf::PARTIAL) else {
        return Event::Unreadable;
    };
    let annotations = wire.metadata.annotations.unwrap_or_default();
    Event::Bookmark {
        version: wire.metadata.resource_version,
        ends_initial_events: annotations.initial_events_end == "true",
    }
}

/// Splits an event in the layout that API servers write, without parsing the object, which is then parsed
/// only once. Fields after `object` make the object undecodable; then [`object`] uses the parser.
fn split_envelope(line: &[u8]) -> Option<(std::borrow::Cow<'_, str>, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("{\"type\":\"")?;
    let (name, rest) = rest.split_once('"')?;
    let object = rest.strip_prefix(",\"object\":")?.trim_end().strip_suffix('}')?;
    Some((name.into(), object))
}

fn parse_envelope(line: &[u8]) -> Option<(std::borrow::Cow<'_, str>, &str)> {
    let event: WireEvent<'_> = serde_json::from_slice(line).ok()?;
    Some((event.r#type, event.object.get()))
}

/// Decodes the object of an event.
pub(super) fn object<T>(
    decoder: Decoder<T>,
    object: EncodedObject<'_>,
    frame: WatchFrame<'_>,
) -> Result<T, DecodeError> {
    decoder.decode(object.encoded()).or_else(|error| {
        let WatchFrame::Line(line) = frame else { return Err(error) };
        match parse_envelope(line) {
            Some((_, parsed)) if EncodedObject::Json(parsed) != object => {
                decoder.decode(Encoded::Json(parsed))
            }
            _ => Err(error),
        }
    })
}

/// Identity and resourceVersion of an object that cannot be decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UndecodableObject {
    /// Namespace and name, unless they cannot be decoded, either.
    pub(super) key: Option<Key>,
    /// The UID, or empty.
    pub(super) uid: Uid,
    /// The resourceVersion, or empty.
    pub(super) version: ResourceVersion,
}

/// Decodes only identity and resourceVersion.
pub(super) fn identify(object: EncodedObject<'_>) -> UndecodableObject {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        name: String,
        namespace: String,
        uid: Uid,
        resource_version: ResourceVersion,
    }
    #[derive(Deserialize)]
    struct Wire {
        metadata: Meta,
    }
    let Some(Wire { metadata: Meta { name, namespace, uid, resource_version } }) =
        object.read(&protobuf::PARTIAL)
    else {
        return UndecodableObject::default();
    };
    let key = (!name.is_empty()).then(|| Key::namespaced(&*namespace, &*name));
    UndecodableObject { key, uid, version: resource_version }
}

/// The apiVersion and kind that the objects of a watch must have.
#[derive(Debug)]
pub(super) struct ExpectedType {
    kind: String,
    api_version: String,
    metadata_only: bool,
    /// How servers begin an object of the expected type; comparing the prefix saves parsing it twice.
    usual_prefix: String,
}

impl ExpectedType {
    pub(super) fn of(resource: &Resource, metadata_only: bool) -> Self {
        let (kind, api_version) = (resource.kind.to_string(), resource.api_version());
        let usual_prefix = if metadata_only {
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",".to_owned()
        } else {
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
        };
        Self { kind, api_version, metadata_only, usual_prefix }
    }

    /// Whether an object has the expected apiVersion and kind, or none.
    pub(super) fn fits(&self, object: EncodedObject<'_>) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Wire {
            kind: String,
            api_version: String,
        }
        match object {
            EncodedObject::Json(text) if text.starts_with(&self.usual_prefix) => true,
            EncodedObject::Json(text) => match serde_json::from_str::<Wire>(text) {
                Ok(wire) => self.is(&wire.api_version, &wire.kind),
                // Decoding the object will return the error.
                Err(_) => true,
            },
            EncodedObject::Protobuf(envelope) => self.is(envelope.api_version, envelope.kind),
        }
    }

    fn is(&self, api_version: &str, kind: &str) -> bool {
        let partial =
            self.metadata_only && kind == "PartialObjectMetadata" && api_version.starts_with("meta.k8s.io/");
        let full = kind == self.kind && api_version == self.api_version;
        partial || full || kind.is_empty()
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

/// Decodes a list without its items: its resourceVersion and, if there are more pages, the continue token.
pub(super) fn envelope(text: &[u8]) -> Result<(ResourceVersion, Option<String>), ApiError> {
    let envelope: Envelope = serde_json::from_slice(text).map_err(|error| {
        let place = decode_error_without_content(&error);
        unreadable_response(&format!("the list cannot be decoded: {place}"))
    })?;
    if !envelope.kind.ends_with("List") {
        return Err(unreadable_response(&format!("unsupported list kind: {:?}", envelope.kind)));
    }
    let next = envelope.metadata.r#continue;
    Ok((envelope.metadata.resource_version, (!next.is_empty()).then_some(next)))
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{ErrorReason, Kind, Namespace, Object as _, PartialObjectMeta, PodParts};

    use super::*;

    #[test]
    fn events_are_decoded_in_any_layout() {
        let usual = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
        let odd = br#"{ "object" : {"metadata":{"name":"a"}}, "type" : "ADDED" }"#;
        let wanted = Event::Object(EventType::Added, EncodedObject::Json(r#"{"metadata":{"name":"a"}}"#));
        assert_eq!(event(WatchFrame::Line(usual)), wanted);
        assert_eq!(event(WatchFrame::Line(odd)), wanted);
        let extra = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}},"extra":{}}"#;
        let Event::Object(_, encoded) = event(WatchFrame::Line(extra)) else { panic!("no object") };
        let decoder = Decoder::new(PartialObjectMeta::read_parts, PodParts::NONE);
        assert_eq!(object(decoder, encoded, WatchFrame::Line(extra)).unwrap().meta.key.name, "a");
        assert_eq!(event(WatchFrame::Line(b"garbage")), Event::Unreadable);
        assert_eq!(event(WatchFrame::Line(br#"{"type":"STRANGE","object":{}}"#)), Event::Unknown);
    }

    /// Proves INF-11.
    #[test]
    fn annotated_bookmark_ends_initial_events() {
        let ends = |annotations: &str| {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"9","annotations":{annotations}}}}}}}"#
            );
            match event(WatchFrame::Line(line.as_bytes())) {
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
    fn error_event_carries_its_status() {
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#;
        let Event::Error(failure) = event(WatchFrame::Line(gone)) else { panic!("no error") };
        assert_eq!((failure.reason, failure.code), (ErrorReason::Gone, 410));
    }

    /// Proves INF-19.
    #[test]
    fn tables_and_objects_of_another_kind_are_refused() {
        assert!(envelope(br#"{"kind":"Table","metadata":{"resourceVersion":"3"},"rows":[]}"#).is_err());
        let (version, next) =
            envelope(br#"{"kind":"SecretList","metadata":{"resourceVersion":"3","continue":"x"}}"#).unwrap();
        assert_eq!((version, next.as_deref()), (ResourceVersion::from("3"), Some("x")));

        let full = ExpectedType::of(&Namespace::RESOURCE, false);
        assert!(full.fits(EncodedObject::Json(r#"{"kind":"Namespace","apiVersion":"v1","metadata":{}}"#)));
        assert!(full.fits(EncodedObject::Json(r#"{"apiVersion":"v1","kind":"Namespace"}"#)));
        assert!(full.fits(EncodedObject::Json(r#"{"metadata":{}}"#)));
        assert!(!full.fits(EncodedObject::Json(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#)));
        assert!(!full.fits(EncodedObject::Json(r#"{"kind":"Secret","apiVersion":"v1"}"#)));
        let partial = ExpectedType::of(&Namespace::RESOURCE, true);
        assert!(partial.fits(EncodedObject::Json(
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}"#
        )));
        assert!(partial.fits(EncodedObject::Json(r#"{"kind":"Namespace","apiVersion":"v1"}"#)));
        assert!(!partial.fits(EncodedObject::Json(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#)));
    }

    fn record(field: u8, content: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    /// An event encoded as protobuf.
    fn frame(name: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let type_meta = [record(1, b"v1"), record(2, kind.as_bytes())].concat();
        let envelope = [b"k8s\0".to_vec(), record(1, &type_meta), record(2, object)].concat();
        [record(1, name.as_bytes()), record(2, &record(1, &envelope))].concat()
    }

    #[test]
    fn protobuf_events_are_decoded() {
        let metadata = [record(1, b"b"), record(3, b"a"), record(6, b"4")].concat();
        let added = frame("ADDED", "Namespace", &record(1, &metadata));
        let Event::Object(EventType::Added, encoded) = event(WatchFrame::Frame(&added)) else {
            panic!("no object")
        };
        let expected = ExpectedType::of(&Namespace::RESOURCE, true);
        assert!(expected.fits(encoded));
        let decoder = Decoder::new(PartialObjectMeta::read_parts, PodParts::NONE);
        let partial = object(decoder, encoded, WatchFrame::Frame(&added)).unwrap();
        assert_eq!(partial.meta.key.to_string(), "a/b");
        let seen = identify(encoded);
        assert_eq!((seen.key, seen.version), (Some(Key::namespaced("a", "b")), ResourceVersion::from("4")));

        let other_kind = frame("ADDED", "Secret", &record(1, &metadata));
        let Event::Object(_, other_kind) = event(WatchFrame::Frame(&other_kind)) else { panic!("no object") };
        assert!(!expected.fits(other_kind));

        let end = [record(1, b"k8s.io/initial-events-end"), record(2, b"true")].concat();
        let metadata = [record(6, b"9"), record(12, &end)].concat();
        let bookmark = frame("BOOKMARK", "Namespace", &record(1, &metadata));
        let ends = Event::Bookmark { version: ResourceVersion::from("9"), ends_initial_events: true };
        assert_eq!(event(WatchFrame::Frame(&bookmark)), ends);

        let status = [record(2, b"Failure"), record(4, b"Expired"), vec![6 << 3, 0x9a, 3]].concat();
        let status = frame("ERROR", "Status", &status);
        let Event::Error(failure) = event(WatchFrame::Frame(&status)) else { panic!("no error") };
        assert_eq!((failure.reason, failure.code), (ErrorReason::Gone, 410));
        assert_eq!(event(WatchFrame::Frame(b"{\"type\":\"ADDED\"}")), Event::Unreadable);
    }

    #[test]
    fn undecodable_object_keeps_name_and_resource_version() {
        let object = r#"{"metadata":{"name":"b","namespace":"a","resourceVersion":"4"},"data":7}"#;
        let identity = identify(EncodedObject::Json(object));
        assert_eq!(identity.key, Some(Key::namespaced("a", "b")));
        assert_eq!(identity.version, ResourceVersion::from("4"));
    }
}
