//! Creates pods from templates. The template stays the JSON that the API server sent, so that a field unknown
//! to this program reaches the pod.

use keleustes_objects::{Kind, ObjectMeta};
use serde_json::{Map, Value, json};

use super::owners::controller_ref;

/// The error for a template without labels: no selector could match its pods.
pub(crate) const NO_LABELS: &str = "unable to create pods, no labels";

/// The longest name that an object may have.
const NAME_MAX: usize = 253;

/// The body of a pod from a template, controlled by its owner. The API server generates the name.
///
/// # Errors
/// If the template has no labels, or is not an object.
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

/// The `generateName` of an owner's pods. The API's validation of a prefix replaces a dash at the end and the character
/// before it by one letter, so that the dash itself never makes a prefix too long.
///
/// Parity: `maskTrailingDash` in `apimachinery/pkg/api/validation/generic.go`.
fn name_prefix(owner: &str) -> String {
    let dash = if owner.len() <= NAME_MAX { "-" } else { "" };
    format!("{owner}{dash}")
}
