//! Types from OpenAPI v3 documents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::environment::{Fields, StructTypes};
use crate::parser::RESERVED;
use crate::types::Type;

const REFERENCE_PREFIX: &str = "#/components/schemas/";

/// Whether a word is escaped as a field name; expressions may nevertheless use it as it is.
fn is_escaped(word: &str) -> bool {
    ["true", "false", "null", "in"].contains(&word) || RESERVED.contains(&word)
}

/// The schemas of an OpenAPI v3 document.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OpenApiDocument {
    components: Components,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Components {
    schemas: BTreeMap<String, Schema>,
}

/// What of a schema matters for types.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Schema {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "type", deserialize_with = "one_or_several")]
    types: Vec<String>,
    format: String,
    properties: Option<BTreeMap<String, Schema>>,
    #[serde(rename = "additionalProperties", deserialize_with = "schema_or_other")]
    additional_properties: Option<Box<Schema>>,
    #[serde(deserialize_with = "schema_or_other")]
    items: Option<Box<Schema>>,
    #[serde(rename = "allOf")]
    all_of: Vec<Schema>,
    #[serde(rename = "x-kubernetes-int-or-string", deserialize_with = "flag")]
    int_or_string: bool,
    #[serde(rename = "x-kubernetes-embedded-resource", deserialize_with = "flag")]
    embedded_resource: bool,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<Kind>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Types {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Types::deserialize(deserializer)? {
        Types::One(one) => vec![one],
        Types::Several(several) => several,
    })
}

/// `true`, `false` and lists of schemas count as none.
fn schema_or_other<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Schema>>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if !value.is_object() {
        return Ok(None);
    }
    Schema::deserialize(value).map(|schema| Some(Box::new(schema))).map_err(serde::de::Error::custom)
}

/// What is no boolean counts as false.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_bool().unwrap_or_default())
}

/// The type of the objects of one kind, with the types that its fields have.
#[derive(Clone, Debug)]
pub struct ObjectType {
    pub(super) root: Type,
    pub(super) structs: Arc<StructTypes>,
}

impl OpenApiDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// If it is no OpenAPI document.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Whether the document has a schema for the kind.
    #[must_use]
    pub fn has_kind(&self, group: &str, version: &str, kind: &str) -> bool {
        self.find(group, version, kind).is_some()
    }

    fn find(&self, group: &str, version: &str, kind: &str) -> Option<(&str, &Schema)> {
        let wanted = Kind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() };
        let mut schemas = self.components.schemas.iter();
        schemas
            .find(|(_, schema)| schema.kinds.contains(&wanted))
            .map(|(name, schema)| (name.as_str(), schema))
    }

    /// The type of a kind's objects, named `type_name`.
    ///
    /// `None` if the document does not describe the kind, or refers to what it does not have; `Some(None)` if the schema
    /// gives no type.
    #[must_use]
    pub fn object_type(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        type_name: &str,
    ) -> Option<Option<ObjectType>> {
        let (name, schema) = self.find(group, version, kind)?;
        let mut reader =
            Reader { document: self, structs: StructTypes::new(), path: vec![name], broken: false };
        let root = reader.read(schema, true, type_name);
        if reader.broken {
            return None;
        }
        Some(root.map(|root| ObjectType { root, structs: Arc::new(reader.structs) }))
    }
}

struct Reader<'a> {
    document: &'a OpenApiDocument,
    structs: StructTypes,
    /// The references that lead to the schema that is read.
    path: Vec<&'a str>,
    /// Whether a reference leads nowhere.
    broken: bool,
}

impl<'a> Reader<'a> {
    /// The type of a schema; `None` if it is not exposed.
    fn read(&mut self, schema: &'a Schema, is_root: bool, type_name: &str) -> Option<Type> {
        let Some(reference) = schema.reference() else {
            return self.read_resolved(schema, is_root, type_name);
        };
        let name = reference.strip_prefix(REFERENCE_PREFIX).unwrap_or(reference);
        if self.path.contains(&name) {
            // A recursive schema ends in an object without fields.
            self.structs.insert(type_name.into(), Arc::default());
            return Some(Type::Struct(type_name.into()));
        }
        let Some(referred) = self.document.components.schemas.get(name) else {
            self.broken = true;
            return None;
        };
        self.path.push(name);
        // What stands beside the reference is lost, also that the resource is embedded.
        let found = self.read_resolved(referred, is_root || referred.embedded_resource, type_name);
        self.path.pop();
        found
    }

    fn read_resolved(&mut self, schema: &'a Schema, is_root: bool, type_name: &str) -> Option<Type> {
        if schema.int_or_string || schema.format == "int-or-string" {
            return Some(Type::Dyn);
        }
        match (schema.types.first()?.as_str(), schema.format.as_str()) {
            ("array", _) => {
                let items = schema.items.as_deref()?;
                let element = self.read(items, items.is_embedded(), &format!("{type_name}.@idx"))?;
                Some(Type::list(element))
            }
            ("object", _) => match schema.additional_properties.as_deref() {
                Some(values) => {
                    let value = self.read(values, values.is_embedded(), &format!("{type_name}.@elem"))?;
                    Some(Type::map(Type::String, value))
                }
                None => Some(self.read_fields(schema, is_root, type_name)),
            },
            ("string", "byte") => Some(Type::Bytes),
            ("string", "duration") => Some(Type::Duration),
            ("string", "date" | "date-time") => Some(Type::Timestamp),
            ("string", _) => Some(Type::String),
            ("boolean", _) => Some(Type::Bool),
            ("number", _) => Some(Type::Double),
            ("integer", _) => Some(Type::Int),
            _ => None,
        }
    }

    fn read_fields(&mut self, schema: &'a Schema, is_root: bool, type_name: &str) -> Type {
        let mut fields = Fields::new();
        for (name, property) in schema.properties.iter().flatten() {
            let Some(escaped) = escape(name) else {
                // The reference may still be broken.
                self.read(property, property.is_embedded(), type_name);
                continue;
            };
            let found = self.read(property, property.is_embedded(), &format!("{type_name}.{escaped}"));
            if let Some(found) = found {
                if is_escaped(name.as_str()) {
                    fields.insert(name.as_str().into(), found.clone());
                }
                fields.insert((*escaped).into(), found);
            }
        }
        if is_root && !self.has_type_and_object_meta(schema) {
            let metadata = format!("{type_name}.metadata");
            let names = ["name", "generateName"].map(|name| (name.into(), Type::String));
            self.structs.insert(metadata.as_str().into(), Arc::new(Fields::from(names)));
            fields.insert("metadata".into(), Type::Struct(metadata.into()));
            fields.insert("kind".into(), Type::String);
            fields.insert("apiVersion".into(), Type::String);
        }
        self.structs.insert(type_name.into(), Arc::new(fields));
        Type::Struct(type_name.into())
    }

    /// Whether a root declares what every object has.
    fn has_type_and_object_meta(&self, schema: &Schema) -> bool {
        let is_string = |within: &Schema, name: &str| {
            self.property(within, name).is_some_and(|property| property.is("string"))
        };
        let has_names = |metadata: &Schema| {
            metadata.is("object") && is_string(metadata, "name") && is_string(metadata, "generateName")
        };
        is_string(schema, "kind")
            && is_string(schema, "apiVersion")
            && self.property(schema, "metadata").is_some_and(has_names)
    }

    fn property<'s>(&'s self, within: &'s Schema, name: &str) -> Option<&'s Schema> {
        let property = within.properties.as_ref()?.get(name)?;
        match property.reference() {
            None => Some(property),
            Some(reference) => {
                let name = reference.strip_prefix(REFERENCE_PREFIX).unwrap_or(reference);
                self.document.components.schemas.get(name)
            }
        }
    }
}

impl Schema {
    /// What the schema refers to, itself or in `allOf`.
    fn reference(&self) -> Option<&str> {
        self.reference.as_deref().or_else(|| self.all_of.iter().find_map(Schema::reference))
    }

    fn is(&self, wanted: &str) -> bool {
        self.types.iter().any(|one| one == wanted)
    }

    /// A mark beside a reference is lost with everything else there.
    fn is_embedded(&self) -> bool {
        self.embedded_resource && self.reference().is_none()
    }
}

/// The name of a property as a field of an expression; `None` if it cannot be one.
fn escape(name: &str) -> Option<Cow<'_, str>> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() || !name.chars().all(|one| one.is_ascii_alphanumeric() || "_-./".contains(one))
    {
        return None;
    }
    if is_escaped(name) {
        return Some(format!("__{name}__").into());
    }
    if !name.contains("__") && !name.contains(['-', '.', '/']) {
        return Some(name.into());
    }
    let escaped = name
        .replace("__", "\u{0}")
        .replace('-', "__dash__")
        .replace('.', "__dot__")
        .replace('/', "__slash__")
        .replace('\u{0}', "__underscores__");
    Some(escaped.into())
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
