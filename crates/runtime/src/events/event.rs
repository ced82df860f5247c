//! An Event as the API stores it: about whom, by whom, when, and how often.

use std::collections::BTreeMap;

use fastrand::Rng;
use keleustes_objects::{Key, Resource, ResourceVersion, Time, Uid};
use keleustes_plan::{InvolvedObject, PlannedEvent};
use serde::{Deserialize, Serialize, Serializer};

/// Core events; the original's controllers write no others.
pub(super) const EVENTS: Resource = Resource::namespaced("", "v1", "events", "Event");

/// Where events about cluster-scoped objects live.
const NAMESPACE_FOR_CLUSTER_SCOPED: &str = "default";

/// The longest name of an object of the API.
const NAME_BYTES_MAX: usize = 253;

/// Clocks that tick more coarsely than this cannot tell one event from the next by time alone.
const CLOCK_TICK_NANOS_MAX: i64 = 1_000_000;

/// A reading of the wall clock, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallNanos(pub i64);

impl WallNanos {
    /// The same moment as the API writes it: the second that has begun.
    fn time(self) -> Time {
        Time::from_unix_seconds(self.0.div_euclid(1_000_000_000))
    }
}

/// An event on its way to the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    #[serde(serialize_with = "as_reference")]
    pub(super) involved_object: InvolvedObject,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    source: Source,
    pub(super) first_timestamp: Time,
    last_timestamp: Time,
    pub(super) count: u32,
    #[serde(rename = "type")]
    pub(super) severity: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reporting_component: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// There is no host: controllers belong to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Source {
    component: &'static str,
}

/// What a repetition changes in an event that the API already has. There is nothing in it that could
/// make the API refuse it because somebody else wrote in between.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repetition<'a> {
    count: u32,
    last_timestamp: Time,
    message: &'a str,
}

impl Event {
    /// A first event about what was noted at this moment.
    #[must_use]
    pub fn new(note: PlannedEvent, component: &'static str, at: WallNanos, names: &mut EventNames) -> Self {
        let namespace = match note.involved_object.namespace.as_str() {
            "" => NAMESPACE_FOR_CLUSTER_SCOPED,
            namespace => namespace,
        };
        Self {
            api_version: "v1",
            kind: "Event",
            metadata: Metadata {
                name: names.next(&note.involved_object.name, at),
                namespace: namespace.to_owned(),
                annotations: note.annotations,
            },
            severity: note.event_type.as_str(),
            involved_object: note.involved_object,
            reason: note.reason,
            message: note.message,
            source: Source { component },
            first_timestamp: at.time(),
            last_timestamp: at.time(),
            count: 1,
            reporting_component: component,
        }
    }

    /// The event that stands for this one and others like it.
    ///
    /// Parity: neither annotations nor reporter are copied (client-go/tools/record/events_cache.go).
    pub(super) fn combined(self, now: WallNanos, names: &mut EventNames) -> Self {
        Self {
            metadata: Metadata {
                name: names.next(&self.involved_object.name, now),
                namespace: self.metadata.namespace,
                annotations: BTreeMap::new(),
            },
            message: format!("(combined from similar events): {}", self.message),
            first_timestamp: now.time(),
            last_timestamp: now.time(),
            count: 1,
            reporting_component: "",
            ..self
        }
    }

    /// The same event as one more of those that the API already knows under this name.
    pub(super) fn repeating(mut self, name: &str, first_timestamp: Time, count: u32) -> Self {
        self.metadata.name.clear();
        self.metadata.name.push_str(name);
        self.first_timestamp = first_timestamp;
        self.count = count;
        self
    }

    /// Where the event is kept.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::namespaced(self.metadata.namespace.as_str(), self.metadata.name.as_str())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// How often it has happened.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The strategic merge patch that brings the API's copy up to date.
    pub(super) fn repetition(&self) -> impl Serialize {
        Repetition { count: self.count, last_timestamp: self.last_timestamp, message: &self.message }
    }
}

/// What is kept of the event that the API answers with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredEvent {
    metadata: StoredMetadata,
    #[serde(default)]
    pub(super) count: u32,
    pub(super) first_timestamp: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct StoredMetadata {
    name: String,
}

impl StoredEvent {
    pub(super) fn into_name(self) -> String {
        self.metadata.name
    }
}

fn as_reference<S: Serializer>(involved: &InvolvedObject, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Reference<'a> {
        #[serde(skip_serializing_if = "str::is_empty")]
        kind: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        namespace: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'a str,
        #[serde(skip_serializing_if = "Uid::is_empty")]
        uid: &'a Uid,
        #[serde(skip_serializing_if = "str::is_empty")]
        api_version: &'a str,
        #[serde(skip_serializing_if = "ResourceVersion::is_empty")]
        resource_version: &'a ResourceVersion,
        #[serde(skip_serializing_if = "str::is_empty")]
        field_path: &'a str,
    }
    Reference {
        kind: &involved.kind,
        namespace: &involved.namespace,
        name: &involved.name,
        uid: &involved.uid,
        api_version: &involved.api_version,
        resource_version: &involved.resource_version,
        field_path: &involved.field_path,
    }
    .serialize(serializer)
}

/// Gives each event of a pipeline a name of its own.
pub struct EventNames {
    last_nanos: i64,
    chance: Rng,
}

impl EventNames {
    /// Names that fall back on this source of chance.
    #[must_use]
    pub fn new(chance: Rng) -> Self {
        Self { last_nanos: i64::MIN, chance }
    }

    /// The object's name and the time, or chance if that cannot be a name.
    fn next(&mut self, object: &str, at: WallNanos) -> String {
        let nanos = self.untaken(at);
        let sign = if nanos < 0 { "-" } else { "" };
        let name = format!("{object}.{sign}{:x}", nanos.unsigned_abs());
        if is_dns_subdomain(&name) { name } else { self.uuid() }
    }

    /// Two events may fall into one tick of a coarse clock; under one name the second would be refused.
    /// A clock that is set back further is believed.
    fn untaken(&mut self, at: WallNanos) -> i64 {
        let behind_nanos = self.last_nanos.saturating_sub(at.0);
        self.last_nanos = if (0..CLOCK_TICK_NANOS_MAX).contains(&behind_nanos) {
            self.last_nanos.saturating_add(1)
        } else {
            at.0
        };
        self.last_nanos
    }

    /// A random UUID: version 4, variant 1.
    fn uuid(&mut self) -> String {
        let random = self.chance.u128(..);
        let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xffff,
            bits >> 48 & 0xffff,
            bits & 0xffff_ffff_ffff
        )
    }
}

/// Whether a text can be the name of most kinds: dotted words of lower-case letters, digits and hyphens,
/// each beginning and ending with a letter or digit.
fn is_dns_subdomain(name: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_word = |word: &str| {
        let bytes = word.as_bytes();
        bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge)
            && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_word)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// 2026-11-15T09:00:01.5Z.
    pub(in crate::events) const NOW: WallNanos = WallNanos(1_794_733_201_500_000_000);

    pub(in crate::events) fn pod() -> InvolvedObject {
        InvolvedObject {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            uid: Uid::from("5f0e0a5e-7a52-4d6c-9a6b-0123456789ab"),
            resource_version: ResourceVersion::from("41"),
            field_path: String::new(),
        }
    }

    pub(in crate::events) fn names() -> EventNames {
        EventNames::new(Rng::with_seed(7))
    }

    fn body(note: PlannedEvent) -> Value {
        serde_json::to_value(Event::new(note, "job-controller", NOW, &mut names())).unwrap()
    }

    /// Proves EVT-10, EVT-12, EVT-13, EVT-14, EVT-15.
    #[test]
    fn an_event_tells_about_whom_by_whom_and_when() {
        let mut note = PlannedEvent::normal(pod(), "SuccessfulCreate", "Created pod: web-1");
        note.annotations.insert("a".to_owned(), "b".to_owned());
        assert_eq!(
            body(note),
            json!({
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "name": "web-1.18e82c567e01cf00",
                    "namespace": "shop",
                    "annotations": {"a": "b"},
                },
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": "shop",
                    "name": "web-1",
                    "uid": "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab",
                    "resourceVersion": "41",
                },
                "reason": "SuccessfulCreate",
                "message": "Created pod: web-1",
                "source": {"component": "job-controller"},
                "firstTimestamp": "2026-11-15T09:00:01Z",
                "lastTimestamp": "2026-11-15T09:00:01Z",
                "count": 1,
                "type": "Normal",
                "reportingComponent": "job-controller",
            })
        );
    }

    /// Proves EVT-12.
    #[test]
    fn events_about_cluster_scoped_objects_live_in_default() {
        let node =
            InvolvedObject { kind: "Node".to_owned(), name: "n1".to_owned(), ..InvolvedObject::default() };
        let body = body(PlannedEvent::warning(node, "NodeNotReady", "n1 is not ready"));
        assert_eq!(body["metadata"]["namespace"], "default");
        assert_eq!(body["involvedObject"], json!({"kind": "Node", "name": "n1"}));
        assert_eq!(body["type"], "Warning");
        assert_eq!(body["metadata"].get("annotations"), None);
    }

    /// Proves EVT-11.
    #[test]
    fn a_reference_to_a_part_of_an_object_is_kept() {
        let part = InvolvedObject { field_path: "spec.containers{web}".to_owned(), ..pod() };
        let body = body(PlannedEvent::warning(part, "Failed", "no"));
        assert_eq!(body["involvedObject"]["fieldPath"], "spec.containers{web}");
    }

    /// Proves EVT-13.
    #[test]
    fn what_cannot_be_a_name_becomes_a_uuid() {
        let mut names = names();
        let dns = "a".repeat(NAME_BYTES_MAX - 17);
        assert_eq!(
            names.next(&dns, NOW),
            format!("{dns}.{:x}", NOW.0),
            "the longest name that is left alone"
        );
        for odd in [format!("{dns}a"), "system:node".to_owned(), "-a".to_owned(), String::new()] {
            let name = names.next(&odd, NOW);
            assert_eq!(Uid::from(name.as_str()).to_string(), name);
            assert_eq!(name.len(), 36, "{name}");
            assert_eq!(&name[14..15], "4", "{name}");
            assert!("89ab".contains(&name[19..20]), "{name}");
            assert!(is_dns_subdomain(&name));
        }
        let before_1970 = names.next("web-1", WallNanos(-1));
        assert_eq!(before_1970.len(), 36, "{before_1970}");
    }

    /// Proves EVT-87.
    #[test]
    fn messages_are_not_cut() {
        let long = "x".repeat(20_000);
        assert_eq!(body(PlannedEvent::normal(pod(), "Long", long.as_str()))["message"], long);
    }

    #[test]
    fn one_tick_of_the_clock_gives_many_names() {
        let mut names = names();
        let nanos: Vec<_> = [NOW.0, NOW.0, NOW.0, NOW.0 + 1, NOW.0 + 900, NOW.0 - 3_600_000_000_000]
            .map(|at| names.untaken(WallNanos(at)) - NOW.0)
            .to_vec();
        assert_eq!(nanos, [0, 1, 2, 3, 900, -3_600_000_000_000]);
    }

    #[test]
    fn dns_subdomains_are_dotted_words() {
        for good in ["a", "a.b", "web-1.18e8", "0", "a--b"] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "A", "a_b", "a-", "a.-b", "ä"] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
    }
}
