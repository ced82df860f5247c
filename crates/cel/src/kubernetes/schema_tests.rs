//! OpenAPI schemas as CEL types.

use super::*;

fn fields(object: &ObjectType, name: &str) -> String {
    let fields = &object.structs[name];
    let shown: Vec<String> = fields.iter().map(|(field, of)| format!("{field}: {of}")).collect();
    shown.join(", ")
}

fn object(schemas: &str) -> ObjectType {
    let json = format!(r#"{{"components": {{"schemas": {schemas}}}}}"#);
    let document = OpenApiDocument::from_json(json.as_bytes()).unwrap();
    document.object_type("g", "v1", "Thing", "Thing1").unwrap().unwrap()
}

const KIND: &str = r#""x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}]"#;

/// Proves VAPS-21, VAPS-23, VAPS-24, VAPS-25, VAPS-27, VAPS-28, VAPS-51, VAPS-79.
#[test]
fn schemas_become_types() {
    let found = object(&format!(
        r##"{{"a": {{"type": "object", {KIND}, "properties": {{
            "bytes": {{"type": "string", "format": "byte"}},
            "duration": {{"type": "string", "format": "duration"}},
            "time": {{"type": "string", "format": "date-time"}},
            "other": {{"type": "string", "format": "ipv4"}},
            "flag": {{"type": "boolean"}},
            "count": {{"type": "integer"}},
            "ratio": {{"type": "number"}},
            "port": {{"x-kubernetes-int-or-string": true}},
            "quantity": {{"oneOf": [{{"type": "string"}}, {{"type": "number"}}]}},
            "list": {{"type": "array", "items": {{"type": "object"}}}},
            "untyped": {{"type": "array"}},
            "labels": {{"type": "object", "additionalProperties": {{"type": "string"}}, "properties": {{"a": {{"type": "string"}}}}}},
            "quantities": {{"type": "object", "additionalProperties": {{}}}},
            "open": {{"type": "object", "additionalProperties": true}},
            "self": {{"allOf": [{{"$ref": "#/components/schemas/a"}}], "default": {{}}}},
            "a-b": {{"type": "string"}}, "a__b": {{"type": "string"}}, "namespace": {{"type": "string"}},
            "1a": {{"type": "string"}}, "a b": {{"type": "string"}}
        }}}}}}"##
    ));
    assert_eq!(
        fields(&found, "Thing1"),
        "__namespace__: string, a__dash__b: string, a__underscores__b: string, apiVersion: string, bytes: bytes, \
         count: int, duration: duration, flag: bool, kind: string, labels: map(string, string), \
         list: list(Thing1.list.@idx), metadata: Thing1.metadata, namespace: string, open: Thing1.open, other: string, \
         port: dyn, ratio: double, self: Thing1.self, time: timestamp"
    );
    assert_eq!(fields(&found, "Thing1.metadata"), "generateName: string, name: string");
    assert_eq!(fields(&found, "Thing1.self"), "");
}

/// Proves VAPS-22.
#[test]
fn declared_metadata_is_kept() {
    let found = object(&format!(
        r##"{{"a": {{"type": "object", {KIND}, "properties": {{
            "kind": {{"type": "string"}}, "apiVersion": {{"type": "string"}},
            "metadata": {{"$ref": "#/components/schemas/meta"}}
        }}}}, "meta": {{"type": "object", "properties": {{
            "name": {{"type": "string"}}, "generateName": {{"type": "string"}}, "uid": {{"type": "string"}}
        }}}}}}"##
    ));
    assert_eq!(fields(&found, "Thing1.metadata"), "generateName: string, name: string, uid: string");
}

/// Proves VAPS-84.
#[test]
fn embedded_resources_have_metadata() {
    let found = object(&format!(
        r#"{{"a": {{"type": "object", {KIND}, "properties": {{
            "template": {{"type": "object", "x-kubernetes-embedded-resource": true}}
        }}}}}}"#
    ));
    assert_eq!(
        fields(&found, "Thing1.template"),
        "apiVersion: string, kind: string, metadata: Thing1.template.metadata"
    );
}

#[test]
fn kinds_that_cannot_be_resolved_have_no_type() {
    let read = |schemas: &str| {
        let json = format!(r#"{{"components": {{"schemas": {schemas}}}}}"#);
        let document = OpenApiDocument::from_json(json.as_bytes()).unwrap();
        document.object_type("g", "v1", "Thing", "T").map(|found| found.is_some())
    };
    assert_eq!(read("{}"), None);
    assert_eq!(read(&format!(r#"{{"a": {{{KIND}}}}}"#)), Some(false));
    let broken =
        format!(r##"{{"a": {{"type": "object", {KIND}, "properties": {{"b": {{"$ref": "#/nope"}}}}}}}}"##);
    assert_eq!(read(&broken), None);
    assert!(OpenApiDocument::from_json(b"3").is_err());
}

/// Proves VAPS-83.
#[test]
fn published_types_of_built_in_kinds_are_those_of_the_original() {
    let reference = |name: &str| {
        format!(r##"{{"allOf": [{{"$ref": "#/components/schemas/{name}"}}], "default": {{}}}}"##)
    };
    let found = object(&format!(
        r##"{{"a": {{"type": "object", {KIND}, "properties": {{
            "time": {}, "wait": {}, "port": {}, "size": {}, "raw": {}, "json": {},
            "data": {{"type": "object", "additionalProperties": {{"type": "string", "format": "byte"}}}}
        }}}},
        "Time": {{"type": "string", "format": "date-time"}}, "Duration": {{"type": "string"}},
        "IntOrString": {{"format": "int-or-string", "oneOf": [{{"type": "integer"}}, {{"type": "string"}}]}},
        "Quantity": {{"oneOf": [{{"type": "string"}}, {{"type": "number"}}]}}, "RawExtension": {{"type": "object"}},
        "JSON": {{"description": "any"}}}}"##,
        reference("Time"),
        reference("Duration"),
        reference("IntOrString"),
        reference("Quantity"),
        reference("RawExtension"),
        reference("JSON")
    ));
    assert_eq!(
        fields(&found, "Thing1"),
        "apiVersion: string, data: map(string, bytes), kind: string, metadata: Thing1.metadata, port: dyn, raw: Thing1.raw, \
         time: timestamp, wait: string"
    );
    assert_eq!(fields(&found, "Thing1.raw"), "");
}
