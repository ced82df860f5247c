//! Makes pods from templates. The template is carried as the JSON it came as, so that a field this
//! program has never heard of reaches the pod.

use keleustes_objects::{Kind, ObjectMeta};
use serde_json::{Map, Value, json};

use super::owners::controller_ref;

/// What a template without labels is answered with: nothing could ever select its pods.
pub(crate) const NO_LABELS: &str = "unable to create pods, no labels";

/// The longest name an object may have.
const NAME_MAX: usize = 253;

/// The body of a pod from a template, managed by its owner. The server makes up the name.
///
/// # Errors
/// If the template has no labels, or is no template.
pub(crate) fn pod_from_template<O: Kind>(
    template: &Map<String, Value>,
    owner: &ObjectMeta,
) -> Result<Value, &'static str> {
    let nothing = Value::Null;
    let of_template = template.get("metadata").unwrap_or(&nothing);
    let labels = of_template["labels"].as_object().filter(|labels| !labels.is_empty());
    let labels = labels.ok_or(NO_LABELS)?;
    let mut metadata = Map::new();
    metadata.insert("generateName".to_owned(), json!(name_prefix(&owner.key.name)));
    metadata.insert("labels".to_owned(), json!(labels));
    for part in ["annotations", "finalizers"] {
        if let Some(part_of_template) = of_template.get(part).filter(|value| !value.is_null()) {
            metadata.insert(part.to_owned(), part_of_template.clone());
        }
    }
    metadata.insert("ownerReferences".to_owned(), json!([controller_ref::<O>(owner)]));
    Ok(json!({"metadata": metadata, "spec": template.get("spec").unwrap_or(&nothing)}))
}

/// What the names of an owner's pods begin with.
fn name_prefix(owner: &str) -> String {
    let dash = if owner.len() < NAME_MAX { "-" } else { "" };
    format!("{owner}{dash}")
}
