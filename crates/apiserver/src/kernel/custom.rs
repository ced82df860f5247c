//! Custom resources: a CRD is served as soon as it is stored, and deleting it deletes its custom objects.
//!
//! Schemas are enforced except for CEL rules; versions are not converted.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::metadata::{finalizers, is_terminating, meta_str, set_meta};
use super::options::DeleteOptions;
use super::resources::{
    self, PrinterColumn, Resource, ScalePaths, SelectableField, StatusField, Strategy, Subresource,
};
use super::store::{Change, Event};
use super::structural::Schema;
use super::table::SCALE;
use super::{Kernel, seconds};

/// The finalizer that keeps a CRD until its custom objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Leaked resources by their definition.
///
/// Resources are `&'static`, as the built-in ones are. An identical definition yields the same resource, so memory
/// grows only with the number of different definitions.
static DEFINED: LazyLock<Mutex<BTreeMap<String, &'static Resource>>> =
    LazyLock::new(|| Mutex::new(BTreeMap::new()));

impl Kernel {
    /// Starts or stops serving a CRD and returns the stored object.
    pub(crate) fn crd_changed(&mut self, event: &Event, now: Timestamp) -> Arc<Value> {
        let definition = event.object();
        let name = meta_str(definition, "name").to_owned();
        if event.change == Change::Deleted {
            self.registry.define(&name, Vec::new());
            return Arc::clone(definition);
        }
        if is_terminating(definition) && finalizers(definition).contains(&CLEANUP) {
            self.delete_custom_objects(&name, now);
            self.remove_cleanup_finalizer(&name, now);
            return Arc::clone(definition);
        }
        self.serve_crd(definition);
        if is_terminating(definition) || is_established(definition) {
            return Arc::clone(definition);
        }
        let established = established(definition, now);
        let next = self.store.put(event.resource, established);
        self.publish(&next, now);
        // As on kube-apiserver, the response to a create does not have the status conditions yet.
        Arc::clone(definition)
    }

    /// Serves the versions of a CRD.
    pub(crate) fn serve_crd(&mut self, definition: &Value) {
        self.registry.define(meta_str(definition, "name"), kinds(definition));
    }

    fn delete_custom_objects(&mut self, name: &str, now: Timestamp) {
        let Some(resource) = self.registry.defined_by(name).first().copied() else {
            return;
        };
        for object in self.store.values(resource, None) {
            let options = DeleteOptions::default();
            let (namespace, name) = (meta_str(&object, "namespace"), meta_str(&object, "name"));
            // NotFound is fine: the object is deleted already.
            let _ = self.delete_one(resource, namespace, name, &options, now);
        }
    }

    /// Removes the finalizer of a terminating CRD once it has no custom objects.
    fn remove_cleanup_finalizer(&mut self, name: &str, now: Timestamp) {
        let Some(definitions) = resources::by_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return;
        };
        let left = self
            .registry
            .defined_by(name)
            .first()
            .is_some_and(|kind| !self.store.list(kind, None).is_empty());
        let Some(live) = self.store.get(definitions, "", name).filter(|_| !left) else {
            return;
        };
        if !is_terminating(&live) || !finalizers(&live).contains(&CLEANUP) {
            return;
        }
        let mut freed = Value::clone(&live);
        let others: Vec<&str> = finalizers(&live).into_iter().filter(|f| *f != CLEANUP).collect();
        let alone = others.is_empty();
        set_meta(&mut freed, "finalizers", (!alone).then(|| json!(others)));
        let event = if alone {
            self.store.remove(definitions, "", name, Some(freed))
        } else {
            Some(self.store.put(definitions, freed))
        };
        if let Some(event) = event {
            self.publish(&event, now);
        }
    }

    /// Finishes the deletion of a terminating CRD after its last custom object is deleted.
    pub(crate) fn custom_object_removed(&mut self, resource: &Resource, now: Timestamp) {
        let definition = resource.qualified();
        self.remove_cleanup_finalizer(&definition, now);
    }
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// The CRD with the status that kube-apiserver's own controllers set.
fn established(definition: &Value, now: Timestamp) -> Value {
    let mut object = definition.clone();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": seconds(now)});
    object["status"]["conditions"] = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    object["status"]["acceptedNames"] = definition.pointer("/spec/names").cloned().unwrap_or_default();
    object
}

/// The resources of a CRD, one for each version.
fn kinds(definition: &Value) -> Vec<&'static Resource> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
    served.map(|version| interned(definition, version)).collect()
}

fn interned(definition: &Value, version: &Value) -> &'static Resource {
    let spec = &definition["spec"];
    let key =
        json!([spec["group"], spec["names"], spec["scope"], version, storage_version(spec)]).to_string();
    let mut known = DEFINED.lock();
    known.entry(key).or_insert_with(|| Box::leak(Box::new(defined(spec, version))))
}

fn text(value: &Value) -> &'static str {
    value.as_str().unwrap_or_default().to_owned().leak()
}

fn texts(value: &Value) -> &'static [&'static str] {
    value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().leak()
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &Value) -> &'static str {
    path.as_str().unwrap_or_default().replace('.', "/").leak()
}

/// The name of the version in which objects are stored.
fn storage_version(spec: &Value) -> &Value {
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.into_iter().find(|version| version["storage"] == true).map_or(&Value::Null, |one| &one["name"])
}

fn defined(spec: &Value, version: &Value) -> Resource {
    let names = &spec["names"];
    let subresources = &version["subresources"];
    let scale = subresources.get("scale").filter(|scale| scale.is_object()).map(|scale| ScalePaths {
        spec_replicas: pointer(&scale["specReplicasPath"]),
        status_replicas: pointer(&scale["statusReplicasPath"]),
        selector: pointer(&scale["labelSelectorPath"]),
    });
    let columns =
        version["additionalPrinterColumns"].as_array().into_iter().flatten().map(|column| PrinterColumn {
            name: text(&column["name"]),
            kind: text(&column["type"]),
            path: text(&column["jsonPath"]),
            priority: column["priority"].as_i64().unwrap_or(0),
        });
    let selectable =
        version["selectableFields"].as_array().into_iter().flatten().map(|field| SelectableField {
            label: text(&field["jsonPath"]).trim_start_matches('.'),
            pointer: pointer(&field["jsonPath"]),
            absent: "",
        });
    let scaled: &'static [Subresource] = &[SCALE];
    Resource {
        namespaced: spec["scope"] == "Namespaced",
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        status: match subresources.get("status") {
            Some(Value::Object(_)) => StatusField::ResetOnCreate,
            _ => StatusField::None,
        },
        generation: true,
        selectable: selectable.collect::<Vec<_>>().leak(),
        conditional_update: true,
        subresources: if scale.is_some() { scaled } else { &[] },
        scale,
        columns: columns.collect::<Vec<_>>().leak(),
        schema: version.pointer("/schema/openAPIV3Schema").cloned().map(Schema::new),
        storage_version: text(storage_version(spec)),
        strategy: Strategy::Custom,
        ..Resource::new(
            text(&spec["group"]),
            text(&version["name"]),
            text(&names["plural"]),
            text(&names["singular"]),
            text(&names["kind"]),
            text(&names["listKind"]),
        )
    }
}
