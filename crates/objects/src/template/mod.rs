//! Pod templates, kept byte for byte so that a pod created from one loses no field.

mod equality;
mod fields;
mod hash;
mod typed;

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::placement::WirePlacement;
use crate::{Annotations, Interned, InternedStr, Labels, Placement};

pub use fields::{Field, Fields, Omit, Shape, Struct, TABLE, pod_template_fields};
pub use hash::safe_encode;

/// A pod template: the JSON as the server sent it, and the fields that controllers read often. Equal templates share
/// one allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct PodTemplate(Interned<Body>);

struct Body {
    raw: Box<str>,
    labels: Labels,
    restart_policy: InternedStr,
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Option<WireMetadata>,
    spec: Option<WireSpec>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct WireMetadata {
    labels: Labels,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    restart_policy: InternedStr,
}

impl PodTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// If the text is not a JSON object of that type.
    pub fn parse(raw: &str) -> serde_json::Result<Self> {
        let wire: Wire = serde_json::from_str::<Option<Wire>>(raw)?.unwrap_or_default();
        Ok(Self(Interned::new(Body {
            raw: raw.into(),
            labels: wire.metadata.unwrap_or_default().labels,
            restart_policy: wire.spec.unwrap_or_default().restart_policy,
        })))
    }

    /// The JSON as the server sent it.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.0.raw
    }

    /// The template as a JSON tree, to build a pod from. Numbers are limited to 64 bits.
    #[must_use]
    pub fn json(&self) -> Map<String, Value> {
        // `parse` has accepted it as an object or `null`.
        serde_json::from_str(self.raw()).unwrap_or_default()
    }

    /// The template as the original encodes it: with the fields of v1.37 only, and those that JSON always shows.
    #[must_use]
    pub fn typed_json(&self) -> Map<String, Value> {
        typed::typed(self.json())
    }

    /// The pod-template-hash for a collision count, as the original computes it.
    #[must_use]
    pub fn pod_template_hash(&self, collisions: Option<i32>) -> String {
        hash::pod_template_hash(&self.json(), collisions)
    }

    /// The text from which the pod-template-hash is computed.
    #[must_use]
    pub fn go_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = hash::go_text(&mut text, &self.json());
        text
    }

    /// The labels of its pods.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.0.labels
    }

    /// The annotations of its pods. Each call parses the template.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        self.part::<Annotations>("/metadata/annotations")
    }

    /// `Always`, `OnFailure`, `Never`, or empty if unset.
    #[must_use]
    pub fn restart_policy(&self) -> &str {
        &self.0.restart_policy
    }

    /// The scheduling constraints of its pods. Each call parses the template.
    ///
    /// # Errors
    /// If one of these fields has the wrong JSON type.
    pub fn placement(&self) -> serde_json::Result<Placement> {
        #[derive(Default, serde::Deserialize)]
        struct Wire {
            spec: Option<WirePlacement>,
        }
        let wire: Option<Wire> = serde_json::from_str(self.raw())?;
        Ok(wire.and_then(|wire| wire.spec).unwrap_or_default().into())
    }

    fn part<T: serde::de::DeserializeOwned + Default>(&self, pointer: &str) -> T {
        let json = Value::Object(self.json());
        json.pointer(pointer).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
    }
}

/// Whether two templates, as JSON trees, are equal to a Deployment. Quantities are equal by value, times by instant,
/// and fields that v1.37 does not have do not count.
#[must_use]
pub fn semantically_equal(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    equality::semantically_equal(one, other)
}

/// The template, as a JSON tree, as the original encodes it: with the fields of v1.37 only.
#[must_use]
pub fn typed(template: Map<String, Value>) -> Map<String, Value> {
    typed::typed(template)
}

/// Removes the fields of a template that v1.37 does not have, and changes nothing else.
pub fn drop_unknown_fields(template: &mut Map<String, Value>) {
    typed::drop_unknown(template);
}

/// An empty template.
impl Default for PodTemplate {
    fn default() -> Self {
        Self(Interned::new(Body {
            raw: "{}".into(),
            labels: Labels::default(),
            restart_policy: InternedStr::default(),
        }))
    }
}

impl fmt::Debug for PodTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw())
    }
}

impl Serialize for PodTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.raw()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
