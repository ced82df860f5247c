//! OpenAPI, as far as kubectl reads it: the types of all kinds, without descriptions.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::resources::Resource;
use super::structural::Schema;
use super::types::{self, Field, ListKind, Merge, Node, Presence, Shape, Struct};
use super::{Document, Kernel};

const OPENAPI_V3: &str = "application/json";
/// The media type in which kubectl asks for v2 when it does not find a kind in v3.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The same as a valid media type name.
const PROTOBUF_V2_SENT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Field 1 is the OpenAPI version; field 2 has title and version of the API.
const SHORTEST_V2: &str = "\n\x032.0\x12\x15\n\nKubernetes\x12\x07v1.37.1";
/// Types with several JSON forms have a named schema, and clients show its name.
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

impl Kernel {
    /// `/openapi/v3`: the list of documents.
    pub(crate) fn openapi_index(&self) -> Document {
        let mut paths = Map::new();
        for (group, version) in self.registry.group_versions() {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let url = format!("/openapi/v3/{path}");
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
        Document::json(200, &json!({ "paths": paths }))
    }

    /// `/openapi/v3/PATH`: the kinds of one group version; `None` if it is not served.
    pub(crate) fn openapi(&self, path: &str) -> Option<Document> {
        let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["api", version] => (String::new(), (*version).to_owned()),
            ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
            _ => return None,
        };
        let kinds: Vec<&Resource> =
            self.registry.all().filter(|r| r.group == group && r.version == version).collect();
        if kinds.is_empty() {
            return None;
        }
        let mut schemas = Map::new();
        let either = |one: &str, other: &str| json!([{"type": one}, {"type": other}]);
        let int_or_string = json!({"format": "int-or-string", "oneOf": either("integer", "string")});
        schemas.insert(INT_OR_STRING.to_owned(), int_or_string);
        schemas.insert(QUANTITY.to_owned(), json!({ "oneOf": either("string", "number") }));
        let mut paths = Map::new();
        for kind in kinds {
            add_kind(kind, &mut schemas);
            add_paths(kind, &mut paths);
        }
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.37.1"},
            "paths": paths,
            "components": {"schemas": schemas},
        });
        Some(Document { content_type: OPENAPI_V3, ..Document::json(200, &document) })
    }
}

/// A minimal `/openapi/v2`: clients that read v3 need nothing from it.
pub(crate) fn openapi_v2(accept: &str) -> Document {
    if accept.contains(PROTOBUF_V2) {
        return Document { content_type: PROTOBUF_V2_SENT, ..Document::text(200, SHORTEST_V2) };
    }
    let document = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.37.1"},
        "paths": {}, "definitions": {}});
    Document::json(200, &document)
}

/// The schema name of a struct.
fn schema_name(name: &str) -> String {
    match name.strip_prefix("meta.") {
        Some(rest) => format!("io.k8s.apimachinery.pkg.apis.meta.{rest}"),
        None => format!("io.k8s.api.{name}"),
    }
}

fn reference(kind: &Struct) -> Value {
    reference_to(&schema_name(kind.name))
}

fn reference_to(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn add_kind(resource: &Resource, schemas: &mut Map<String, Value>) {
    let shape = resource.shape();
    let named = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    if shape.preserves_unknown_fields || resource.schema.is_some() {
        let untyped = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut schema = resource.schema.map_or_else(untyped, Schema::published);
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        let metadata = types::named("meta.v1.ObjectMeta").map(reference).unwrap_or_default();
        // Every object has these, whatever its schema says about them.
        for (field, of) in [
            ("apiVersion", json!({"type": "string"})),
            ("kind", json!({"type": "string"})),
            ("metadata", json!({"allOf": [metadata]})),
        ] {
            schema["properties"][field] = of;
        }
        schema["x-kubernetes-group-version-kind"] = named;
        schemas.insert(format!("{}.{}.{}", resource.group, resource.version, resource.kind), schema);
        add_structs(types::custom(), schemas);
        return;
    }
    add_structs(shape, schemas);
    if let Some(schema) = schemas.get_mut(&schema_name(shape.name)) {
        schema["x-kubernetes-group-version-kind"] = named;
    }
}

/// Adds a struct and all structs it contains.
fn add_structs(kind: &'static Struct, schemas: &mut Map<String, Value>) {
    let mut waiting = vec![kind];
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    while let Some(kind) = waiting.pop() {
        if !seen.insert(kind.name) || schemas.contains_key(&schema_name(kind.name)) {
            continue;
        }
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        for (name, field) in &kind.fields {
            properties.insert((*name).to_owned(), property(field));
            below(&field.shape, &mut waiting);
            if field.presence == Presence::Always && field.shape.as_struct().is_none() {
                required.push(name);
            }
        }
        let mut schema = json!({"type": "object", "properties": properties});
        // The table does not have upstream's required markers, so only fields known to be required are marked.
        required.retain(|name| matches!(*name, "containers" | "template" | "selector"));
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schemas.insert(schema_name(kind.name), schema);
    }
}

fn below(shape: &'static Shape, waiting: &mut Vec<&'static Struct>) {
    match shape {
        Shape::Struct(_) | Shape::Own(_) => waiting.extend(shape.as_struct()),
        Shape::Pointer(inner) | Shape::List(inner) | Shape::Map(inner) => below(inner, waiting),
        _ => {}
    }
}

fn property(field: &'static Field) -> Value {
    let mut schema = schema(&field.shape);
    let node = Node::Field(field);
    match node.list_kind() {
        ListKind::Keyed(keys) => {
            schema["x-kubernetes-list-type"] = json!("map");
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
        ListKind::Set => schema["x-kubernetes-list-type"] = json!("set"),
        ListKind::Atomic if matches!(field.shape, Shape::List(_)) => {
            schema["x-kubernetes-list-type"] = json!("atomic");
        }
        ListKind::Atomic => {}
    }
    match node.merge() {
        Merge::By(key) => {
            schema["x-kubernetes-patch-merge-key"] = json!(key);
            schema["x-kubernetes-patch-strategy"] = json!("merge");
        }
        Merge::Values => schema["x-kubernetes-patch-strategy"] = json!("merge"),
        Merge::Replace => {}
    }
    schema
}

fn schema(shape: &'static Shape) -> Value {
    match shape {
        Shape::Pointer(inner) => schema(inner),
        Shape::Text | Shape::Duration => json!({"type": "string"}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Float => json!({"type": "number", "format": "double"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Quantity => json!({"allOf": [reference_to(QUANTITY)]}),
        Shape::IntOrString => json!({"allOf": [reference_to(INT_OR_STRING)]}),
        Shape::Any => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        Shape::List(items) => json!({"type": "array", "items": schema(items)}),
        Shape::Map(values) => json!({"type": "object", "additionalProperties": schema(values)}),
        Shape::Struct(_) | Shape::Own(_) => match shape.as_struct() {
            Some(kind) => json!({"allOf": [reference(kind)]}),
            None => json!({"type": "object"}),
        },
    }
}

/// One path suffices for kubectl to detect field validation and apply.
fn add_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let base = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let named = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = |action: &str| {
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": named,
            "parameters": [query("dryRun"), query("fieldManager"), query("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
        })
    };
    paths.insert(format!("{base}{scope}/{}", resource.plural), json!({"post": operation("post")}));
    paths.insert(
        format!("{base}{scope}/{}/{{name}}", resource.plural),
        json!({"patch": operation("patch"), "put": operation("put")}),
    );
}
