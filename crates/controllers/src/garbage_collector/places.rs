//! From what an object is called to where the API has it.

use keleustes_objects::{ApiError, Key, ObjectMeta, TypeMeta};
use keleustes_plan::{Context, ReconcileError, Target};

use super::identity::Identity;

/// Where an object is; `None` if its kind has namespaces and it is said to be in none, which only a
/// cluster-scoped dependent says, and which no waiting cures.
pub(super) async fn locate(
    cx: &mut Context<'_>,
    identity: &Identity,
) -> Result<Option<Target>, ReconcileError> {
    let resource = match cx.resource_of(&identity.line).await {
        Ok(Some(resource)) => resource,
        // The kind may be about to be served, or be wrong for ever; nobody can tell.
        Ok(None) => return Err(ReconcileError::because(unknown(&identity.line)).quietly()),
        Err(failure) => {
            return Err(ReconcileError::from_api_error(&failure, unknown(&identity.line)).quietly());
        }
    };
    let key = match (resource.namespaced, identity.key.namespace.is_empty()) {
        (true, true) => return Ok(None),
        (true, false) => identity.key.clone(),
        (false, _) => Key::cluster(identity.key.name.clone()),
    };
    Ok(Some(Target { resource, key, uid: identity.uid.clone() }))
}

/// What the API has at a place, if it is the life that is meant.
pub(super) async fn live(cx: &mut Context<'_>, place: &Target) -> Result<Option<ObjectMeta>, ReconcileError> {
    let Target { resource, key, uid } = place;
    let answer = cx.fetch_metadata(resource, key).await;
    let found = answer.map_err(|failure| retry(&format!("reading {resource} {key}"), &failure))?;
    Ok(found.map(|object| object.meta).filter(|meta| meta.uid == *uid))
}

/// Tries again after a failure, when the server wants it.
pub(super) fn retry(what: &str, failure: &ApiError) -> ReconcileError {
    ReconcileError::from_api_error(failure, format!("{what}: {failure}"))
}

fn unknown(line: &TypeMeta) -> String {
    format!("unable to get REST mapping for {line}.")
}
