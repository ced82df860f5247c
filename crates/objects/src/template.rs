//! Pod templates, kept byte for byte so that a pod created from one loses no field.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::placement::WirePlacement;
use crate::{Annotations, Interned, InternedStr, Labels, Placement};

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
mod tests {
    use super::*;

    const TEXT: &str = r#"{"spec":{ "restartPolicy":"Never","newField":1e2,"hostNetwork":true},"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}"#;

    #[test]
    fn every_byte_is_kept_and_equal_templates_share_one_allocation() {
        let one: PodTemplate = serde_json::from_str(TEXT).unwrap();
        let two: PodTemplate = serde_json::from_str(TEXT).unwrap();
        assert!(std::ptr::eq(one.raw(), two.raw()));
        assert_eq!(serde_json::to_string(&one).unwrap(), TEXT);
        assert_eq!(one.labels().value("a").map(InternedStr::as_str), Some("b"));
        assert_eq!(one.annotations().value("c").map(|text| text.as_str()), Some("d"));
        assert_eq!(one.restart_policy(), "Never");
        assert!(one.placement().unwrap().host_network);
        assert_eq!(one.json()["spec"]["restartPolicy"], "Never");
    }

    #[test]
    fn null_templates_are_empty_and_malformed_ones_are_errors() {
        for text in ["null", "{}", r#"{"metadata":null,"spec":null}"#] {
            let template: PodTemplate = serde_json::from_str(text).unwrap();
            assert!(template.labels().is_empty() && template.json().get("x").is_none());
            assert_eq!(template.placement().unwrap(), Placement::default());
        }
        assert!(serde_json::from_str::<PodTemplate>("[1]").is_err());
        assert!(serde_json::from_str::<PodTemplate>(r#"{"metadata":{"labels":7}}"#).is_err());
        assert!(serde_json::from_value::<PodTemplate>(serde_json::json!({"spec": {}})).is_ok());
    }
}
