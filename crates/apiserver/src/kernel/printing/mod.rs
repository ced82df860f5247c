//! Renders objects in the requested representation: in full, as metadata, or as table rows for `kubectl get`.

mod cells;
mod columns;
mod pods;
mod text;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::{Included, Representation, metadata_only};
use super::conversion::to_served_version;
use super::metadata::{meta, meta_str};
use super::resources::{Resource, Strategy};
use super::store::SharedObject;
use columns::{Column, Source};

pub(crate) use text::selector as selector_text;

/// The object in the requested representation.
pub(crate) fn render(
    resource: &'static Resource,
    representation: Representation,
    object: &SharedObject,
    now: Timestamp,
) -> SharedObject {
    match representation {
        Representation::Full => to_served_version(resource, object),
        Representation::MetadataOnly | Representation::MetadataList => Arc::new(metadata_only(object)),
        Representation::Table(included) => {
            let mut table = table(resource, std::slice::from_ref(object), included, now);
            if let Some(version) = meta(object, "resourceVersion") {
                table["metadata"] = json!({ "resourceVersion": version });
            }
            Arc::new(table)
        }
    }
}

/// A table of objects; the caller sets its metadata.
pub(crate) fn table(
    resource: &'static Resource,
    objects: &[SharedObject],
    included: Included,
    now: Timestamp,
) -> Value {
    let columns = columns::of(resource);
    let rows: Vec<Value> =
        objects.iter().map(|object| row(resource, &columns, object, included, now)).collect();
    // kube-apiserver prints the age of an IPAddress, but does not declare the column.
    let declared = columns.len() - usize::from(resource.kind == "IPAddress");
    // Kinds without columns of their own have null rows where others have an empty list.
    let described = columns.iter().all(|column| !matches!(column.source, Source::Created));
    let rows = Some(rows).filter(|rows| described || !rows.is_empty());
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns.iter().take(declared).map(Column::definition).collect::<Vec<Value>>(),
        "rows": rows,
    })
}

fn row(
    resource: &'static Resource,
    columns: &[Column],
    object: &SharedObject,
    included: Included,
    now: Timestamp,
) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| cell(column, object, now)).collect();
    let mut row = json!({ "cells": cells });
    if resource.strategy == Strategy::Pod
        && let Some(end) = pods::end(object)
    {
        row["conditions"] = json!([end]);
    }
    // A bookmark has content only in its metadata, so the metadata is always included.
    let is_bookmark = meta_str(object, "name").is_empty();
    match included {
        Included::Nothing | Included::Unknown if !is_bookmark => row["object"] = Value::Null,
        Included::Whole => row["object"] = Value::clone(&to_served_version(resource, object)),
        _ => row["object"] = metadata_only(object),
    }
    row
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    match column.source {
        Source::Name => json!(meta_str(object, "name")),
        Source::Age => json!(text::age(meta_str(object, "creationTimestamp"), now)),
        Source::Created => json!(meta_str(object, "creationTimestamp")),
        Source::At(pointer, absent) => match object.pointer(pointer) {
            None | Some(Value::Null) => json!(absent),
            Some(value) => value.clone(),
        },
        Source::Number(pointer) => json!(object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)),
        Source::Flag(pointer) => json!(object.pointer(pointer) == Some(&json!(true))),
        Source::Count(pointer) => {
            let value = object.pointer(pointer);
            let list = value.and_then(Value::as_array).map(Vec::len);
            json!(list.or_else(|| value.and_then(Value::as_object).map(serde_json::Map::len)).unwrap_or(0))
        }
        Source::Call(print) => print(object, now),
        Source::Path(path, kind) => text::by_path(object, path, kind, now),
    }
}
