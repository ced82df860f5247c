//! Maps identities to REST resources and reads objects live.

use keleustes_objects::{ApiError, Key, ObjectMeta, TypeMeta};
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
    let response = cx.fetch_metadata(resource, key).await;
    let found = response.map_err(|error| reconcile_error(&format!("reading {resource} {key}"), &error))?;
    Ok(found.map(|object| object.meta).filter(|meta| meta.uid == *uid))
}

/// A reconcile error that honours the server's Retry-After.
pub(super) fn reconcile_error(action: &str, error: &ApiError) -> ReconcileError {
    ReconcileError::from_api_error(error, format!("{action}: {error}"))
}

fn no_rest_mapping(type_meta: &TypeMeta) -> String {
    format!("unable to get REST mapping for {type_meta}.")
}
