//! JSON that is carried byte for byte.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Well-formed JSON, kept as the server sent it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// Takes a text for JSON.
    ///
    /// # Errors
    /// If it is not well-formed.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Writes letters in JSON that could be markup as escapes, as Go's encoder does. Servers keep some parts of
/// objects byte for byte as they came, and the original compares those bytes.
#[must_use]
pub fn escape_html(json: String) -> String {
    const LETTERS: [(char, &str); 5] = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    // Outside of strings none of them can stand.
    LETTERS.iter().fold(
        json,
        |json, (letter, escape)| {
            if json.contains(*letter) { json.replace(*letter, escape) } else { json }
        },
    )
}

impl Default for RawJson {
    fn default() -> Self {
        Self("null".into())
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.get().into()))
    }
}
