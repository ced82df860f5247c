//! What both sides know: resources, and the schemas of built-in and custom kinds.

use anyhow::Result;
use keleustes_cel::kubernetes::OpenApiDocument;
use keleustes_objects::{ApiResource, DiscoveredResources, Resource};
use serde_json::{Value, json};

/// Group, version, plural, singular and kind of the resources that policies match.
pub(super) const RESOURCES: &[(&str, &str, &str, &str, &str)] = &[
    ("", "v1", "pods", "pod", "Pod"),
    ("", "v1", "configmaps", "configmap", "ConfigMap"),
    ("", "v1", "secrets", "secret", "Secret"),
    ("", "v1", "services", "service", "Service"),
    ("", "v1", "namespaces", "namespace", "Namespace"),
    ("", "v1", "nodes", "node", "Node"),
    ("", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim"),
    ("", "v1", "events", "event", "Event"),
    ("apps", "v1", "deployments", "deployment", "Deployment"),
    ("apps", "v1", "statefulsets", "statefulset", "StatefulSet"),
    ("apps", "v1", "replicasets", "replicaset", "ReplicaSet"),
    ("batch", "v1", "jobs", "job", "Job"),
    ("batch", "v1", "cronjobs", "cronjob", "CronJob"),
    ("autoscaling", "v2", "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler"),
    ("networking.k8s.io", "v1", "ingresses", "ingress", "Ingress"),
    ("networking.k8s.io", "v1", "networkpolicies", "networkpolicy", "NetworkPolicy"),
    ("events.k8s.io", "v1", "events", "event", "Event"),
    ("rbac.authorization.k8s.io", "v1", "roles", "role", "Role"),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
    ),
    ("example.com", "v1", "widgets", "widget", "Widget"),
    ("example.com", "v1", "bares", "bare", "Bare"),
    ("example.com", "v1", "untypeds", "untyped", "Untyped"),
    ("example.com", "v1", "missings", "missing", "Missing"),
];

/// The shared knowledge.
pub(super) struct Setup {
    pub(super) discovered: DiscoveredResources,
    pub(super) built_in: OpenApiDocument,
    pub(super) served: OpenApiDocument,
    /// The document of the custom kinds.
    pub(super) custom: Value,
    /// All schemas, to find fields in.
    pub(super) schemas: Value,
}

impl Setup {
    pub(super) fn new(definitions: &[u8]) -> Result<Self> {
        let custom = custom();
        let mut schemas: Value =
            serde_json::from_slice::<Value>(definitions)?["components"]["schemas"].take();
        if let (Some(all), Some(more)) =
            (schemas.as_object_mut(), custom["components"]["schemas"].as_object())
        {
            all.extend(more.clone());
        }
        let served = |row: &(&'static str, &'static str, &'static str, &str, &'static str)| ApiResource {
            resource: Resource::cluster(row.0, row.1, row.2, row.4),
            preferred: true,
            singular: row.3.to_owned(),
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        };
        let resources = RESOURCES.iter().map(served).collect();
        Ok(Self {
            discovered: DiscoveredResources { resources, ..DiscoveredResources::default() },
            built_in: OpenApiDocument::from_json(definitions)?,
            served: OpenApiDocument::from_json(custom.to_string().as_bytes())?,
            custom,
            schemas,
        })
    }

    pub(super) fn resource_rows(&self) -> Value {
        let row = |(group, version, plural, singular, kind): &(&str, &str, &str, &str, &str)| json!({"group": group, "version": version, "plural": plural, "singular": singular, "kind": kind});
        RESOURCES.iter().map(row).collect()
    }

    /// The schema of a kind.
    pub(super) fn schema(&self, group: &str, version: &str, kind: &str) -> Option<&Value> {
        let wanted = json!({"group": group, "version": version, "kind": kind});
        let is_kind = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.contains(&wanted))
        };
        self.schemas.as_object()?.values().find(is_kind)
    }

    /// A schema, or what it refers to.
    pub(super) fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        let name = reference.and_then(|reference| reference.rsplit('/').next());
        name.map_or(schema, |name| &self.schemas[name])
    }

    /// Without the numbers that differ from run to run: those of type names and of type variables.
    pub(super) fn normalize(&self, warning: &str) -> String {
        let mut text = warning.to_owned();
        let kinds = RESOURCES.iter().map(|row| row.4);
        for prefix in kinds.chain(["_var"]) {
            let mut parts = text.split(prefix);
            let mut kept = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                kept.push_str(prefix);
                kept.push_str(part.trim_start_matches(|one: char| one.is_ascii_digit()));
            }
            text = kept;
        }
        text
    }
}

/// The document of the custom kinds, with everything that structural schemas can have.
fn custom() -> Value {
    let kind = |kind: &str| json!([{"group": "example.com", "version": "v1", "kind": kind}]);
    let string = json!({"type": "string"});
    let nested = json!({"type": "object", "properties": {"a": string, "deep": {"type": "array", "items":
        {"type": "object", "additionalProperties": {"type": "integer"}}}}});
    let fields = json!({
        "count": {"type": "integer", "format": "int64"}, "ratio": {"type": "number"}, "flag": {"type": "boolean"},
        "name": string, "blob": {"type": "string", "format": "byte"}, "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"}, "wait": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "labels": {"type": "object", "additionalProperties": string},
        "nested": nested, "items": {"type": "array", "items": nested}, "strings": {"type": "array", "items": string},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "anything": {"x-kubernetes-preserve-unknown-fields": true},
        "closed": {"type": "object", "additionalProperties": true},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "apiVersion": string, "kind": string, "metadata": {"$ref": "#/components/schemas/Meta"},
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}},
        "maybe": {"type": "string", "nullable": true}, "kinds": {"type": ["integer", "null"]},
        "a-b": string, "a.b": string, "a/b": string, "a__b": string, "namespace": string, "if": string, "in": string,
        "1st": string, "white space": string, "untypedItems": {"type": "array"},
    });
    json!({"components": {"schemas": {
        "Widget": {"type": "object", "x-kubernetes-group-version-kind": kind("Widget"), "properties": {
            "apiVersion": string, "kind": string, "metadata": {"$ref": "#/components/schemas/Meta"},
            "spec": {"type": "object", "properties": fields}, "status": {"type": "object", "properties": fields}}},
        "Bare": {"type": "object", "x-kubernetes-group-version-kind": kind("Bare")},
        "Untyped": {"x-kubernetes-group-version-kind": kind("Untyped")},
        "Meta": {"type": "object", "properties": {"name": string, "generateName": string, "namespace": string,
            "labels": {"type": "object", "additionalProperties": string},
            "creationTimestamp": {"type": "string", "format": "date-time"}, "generation": {"type": "integer"}}},
    }}})
}
