//! Maps identities to REST resources and reads objects live.

use keleustes_objects::{ApiError, Key, ObjectMeta, TypeMeta, invalid_path_segment};
use keleustes_plan::{Context, Precondition, ReconcileError, Target};

use super::identity::Identity;

/// The target of an object. `None` if its kind is namespaced and the identity has no namespace, which happens
/// only for owners of cluster-scoped dependents; retrying does not help.
pub(super) async fn resolve_target(
    cx: &mut Context<'_>,
    identity: &Identity,
) -> Result<Option<Target>, ReconcileError> {
    let resource = match cx.resource_of(&identity.type_meta).await {
        Ok(Some(resource)) => resource,
        // The CRD may not be established yet, or the kind may be wrong; discovery cannot distinguish the two.
        Ok(None) => return Err(ReconcileError::because(no_rest_mapping(&identity.type_meta)).quietly()),
        Err(error) => {
            return Err(
                ReconcileError::from_api_error(&error, no_rest_mapping(&identity.type_meta)).quietly()
            );
        }
    };
    let key = match (resource.namespaced, identity.key.namespace.is_empty()) {
        (true, true) => return Ok(None),
        (true, false) => identity.key.clone(),
        (false, _) => Key::cluster(identity.key.name.clone()),
    };
    Ok(Some(Target { resource, key, uid: identity.uid.clone(), precondition: Precondition::Uid }))
}

/// Reads an object live; `None` if it does not exist or has another UID.
pub(super) async fn get_live(
    cx: &mut Context<'_>,
    target: &Target,
) -> Result<Option<ObjectMeta>, ReconcileError> {
    let Target { resource, key, uid, .. } = target;
    let response = cx.fetch_metadata(resource, &addressed(key)).await;
    let found = response.map_err(|error| reconcile_error(&format!("reading {resource} {key}"), &error))?;
    Ok(found.map(|object| object.meta).filter(|meta| meta.uid == *uid))
}

/// The key of the object that a reference can mean. No object has a name with a slash, so such an owner is absent; only the
/// object that is named before the slash may have the UID, whose subresource the original would read.
fn addressed(key: &Key) -> Key {
    match key.name.split_once('/') {
        Some((object, rest)) if rest.split('/').all(|part| invalid_path_segment(part).is_none()) => {
            Key { name: object.into(), ..key.clone() }
        }
        _ => key.clone(),
    }
}

/// A reconcile error that honours the server's Retry-After.
pub(super) fn reconcile_error(action: &str, error: &ApiError) -> ReconcileError {
    ReconcileError::from_api_error(error, format!("{action}: {error}"))
}

fn no_rest_mapping(type_meta: &TypeMeta) -> String {
    format!("unable to get REST mapping for {type_meta}.")
}
