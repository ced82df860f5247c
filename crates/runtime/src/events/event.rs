//! An Event as the API stores it.

use std::collections::BTreeMap;

use fastrand::Rng;
use keleustes_objects::{Key, Resource, ResourceVersion, Time, Uid};
use keleustes_plan::{InvolvedObject, PlannedEvent};
use serde::{Deserialize, Serialize, Serializer};

/// Core events; the original's controllers write no others.
pub(super) const EVENTS: Resource = Resource::built_in("", "Event");

/// The namespace of events about cluster-scoped objects.
const NAMESPACE_FOR_CLUSTER_SCOPED: &str = "default";

/// The longest name of an API object.
const NAME_BYTES_MAX: usize = 253;

/// Below this difference, two equal or decreasing readings are one tick of a coarse clock.
const CLOCK_TICK_NANOS_MAX: i64 = 1_000_000;

/// A reading of the wall clock, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallNanos(pub i64);

impl WallNanos {
    /// The same time in whole seconds, as the API writes it.
    fn time(self) -> Time {
        Time::from_unix_seconds(self.0.div_euclid(1_000_000_000))
    }
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    #[serde(serialize_with = "serialize_reference")]
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

/// Without a host: controllers belong to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Source {
    component: &'static str,
}

/// What a repetition changes in a stored event. Without a resourceVersion, it never conflicts with other
/// writers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repetition<'a> {
    count: u32,
    last_timestamp: Time,
    message: &'a str,
}

impl Event {
    /// The first event of a planned event recorded at this time.
    #[must_use]
    pub fn new(
        planned: PlannedEvent,
        component: &'static str,
        at: WallNanos,
        names: &mut EventNames,
    ) -> Self {
        let namespace = match planned.involved_object.namespace.as_str() {
            "" => NAMESPACE_FOR_CLUSTER_SCOPED,
            namespace => namespace,
        };
        Self {
            api_version: "v1",
            kind: "Event",
            metadata: Metadata {
                name: names.next(&planned.involved_object.name, at),
                namespace: namespace.to_owned(),
                annotations: planned.annotations,
            },
            severity: planned.event_type.as_str(),
            involved_object: planned.involved_object,
            reason: planned.reason,
            message: planned.message,
            source: Source { component },
            first_timestamp: at.time(),
            last_timestamp: at.time(),
            count: 1,
            reporting_component: component,
        }
    }

    /// The aggregated event for this one and similar ones.
    ///
    /// Parity: neither annotations nor reporter are copied (client-go/tools/record/events_cache.go).
    pub(super) fn aggregated(self, now: WallNanos, names: &mut EventNames) -> Self {
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

    /// The same event as a repetition of a stored one of this name.
    pub(super) fn repeating(mut self, name: &str, first_timestamp: Time, count: u32) -> Self {
        self.metadata.name.clear();
        self.metadata.name.push_str(name);
        self.first_timestamp = first_timestamp;
        self.count = count;
        self
    }

    /// The namespace and name of the event.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::namespaced(self.metadata.namespace.as_str(), self.metadata.name.as_str())
    }

    /// The name of the event.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// How often it has occurred.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The strategic merge patch that updates the stored event.
    pub(super) fn repetition(&self) -> impl Serialize {
        Repetition { count: self.count, last_timestamp: self.last_timestamp, message: &self.message }
    }
}

/// The part of the API's response that is kept.
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

fn serialize_reference<S: Serializer>(involved: &InvolvedObject, serializer: S) -> Result<S::Ok, S::Error> {
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

/// Gives each event of a pipeline a unique name.
pub struct EventNames {
    last_nanos: i64,
    random: Rng,
}

impl EventNames {
    /// Names that fall back on this source of randomness.
    #[must_use]
    pub fn new(random: Rng) -> Self {
        Self { last_nanos: i64::MIN, random }
    }

    /// The object's name and the time, or a UUID if that is not a valid name.
    fn next(&mut self, object: &str, at: WallNanos) -> String {
        let nanos = self.unique_nanos(at);
        let sign = if nanos < 0 { "-" } else { "" };
        let name = format!("{object}.{sign}{:x}", nanos.unsigned_abs());
        if is_dns_subdomain(&name) { name } else { self.uuid() }
    }

    /// Two events may fall into one tick of a coarse clock; the second would be refused under the same name.
    /// A clock that is set back further is used as it is.
    fn unique_nanos(&mut self, at: WallNanos) -> i64 {
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
        let random = self.random.u128(..);
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

/// Whether a text is a DNS subdomain: dotted labels of lower-case letters, digits and hyphens, each beginning
/// and ending with a letter or digit.
fn is_dns_subdomain(name: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge)
            && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
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

    fn body(planned: PlannedEvent) -> Value {
        serde_json::to_value(Event::new(planned, "job-controller", NOW, &mut names())).unwrap()
    }

    /// Proves EVT-10, EVT-12, EVT-13, EVT-14, EVT-15.
    #[test]
    fn event_has_involved_object_component_and_time() {
        let mut planned = PlannedEvent::normal(pod(), "SuccessfulCreate", "Created pod: web-1");
        planned.annotations.insert("a".to_owned(), "b".to_owned());
        assert_eq!(
            body(planned),
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
    fn events_about_cluster_scoped_objects_are_in_namespace_default() {
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
    fn field_path_of_the_involved_object_is_kept() {
        let part = InvolvedObject { field_path: "spec.containers{web}".to_owned(), ..pod() };
        let body = body(PlannedEvent::warning(part, "Failed", "no"));
        assert_eq!(body["involvedObject"]["fieldPath"], "spec.containers{web}");
    }

    /// Proves EVT-13.
    #[test]
    fn invalid_name_becomes_a_uuid() {
        let mut names = names();
        let dns = "a".repeat(NAME_BYTES_MAX - 17);
        assert_eq!(
            names.next(&dns, NOW),
            format!("{dns}.{:x}", NOW.0),
            "the longest name that is used unchanged"
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
    fn messages_are_not_truncated() {
        let long = "x".repeat(20_000);
        assert_eq!(body(PlannedEvent::normal(pod(), "Long", long.as_str()))["message"], long);
    }

    #[test]
    fn events_within_one_clock_tick_get_different_names() {
        let mut names = names();
        let nanos: Vec<_> = [NOW.0, NOW.0, NOW.0, NOW.0 + 1, NOW.0 + 900, NOW.0 - 3_600_000_000_000]
            .map(|at| names.unique_nanos(WallNanos(at)) - NOW.0)
            .to_vec();
        assert_eq!(nanos, [0, 1, 2, 3, 900, -3_600_000_000_000]);
    }

    #[test]
    fn dns_subdomains_are_dotted_labels() {
        for good in ["a", "a.b", "web-1.18e8", "0", "a--b"] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "A", "a_b", "a-", "a.-b", "ä"] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
    }
}
