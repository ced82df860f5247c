//! Reads the scale subresource of a controller that no cache holds, such as a custom resource.

use keleustes_objects::{DiscoveredResources, Key, OwnerReference, Resource, Subresource, TypeMeta, Uid};
use keleustes_plan::Context;

use super::finders::ControllerScale;

/// The versions of Scale that the original reads.
const SCALE_VERSIONS: [(&str, &str); 4] =
    [("autoscaling", "v1"), ("extensions", "v1beta1"), ("apps", "v1beta1"), ("apps", "v1beta2")];

/// The scale of the controller that a controllerRef in this namespace names; `None` if there is no such controller, or one
/// with another UID.
///
/// # Errors
/// If the kind is not served, has no scale subresource, or a request fails. The message ends up in the budget's condition.
pub(super) async fn fetch(
    cx: &mut Context<'_>,
    controller_ref: &OwnerReference,
    namespace: &str,
) -> Result<Option<ControllerScale>, String> {
    let OwnerReference { api_version, kind, name, uid, .. } = controller_ref;
    let type_meta = TypeMeta::new(api_version.clone(), kind.clone());
    let resource = cx.resource_of(&type_meta).await.map_err(|error| error.to_string())?;
    let resource =
        resource.ok_or_else(|| format!("no matches for kind \"{kind}\" in version \"{api_version}\""))?;
    if name.is_empty() {
        return Err("resource name may not be empty".to_owned());
    }
    let key = Key::namespaced(namespace, &**name);
    let Some(scale) = cx.fetch_scale(&resource, &key).await.map_err(|error| error.to_string())? else {
        // Either the object or the subresource does not exist.
        return check_scale_exists(cx, &resource).await.map(|()| None);
    };
    let found = Uid::from(scale.json["metadata"]["uid"].as_str().unwrap_or_default());
    Ok((found == *uid).then_some(ControllerScale { uid: found, replicas: scale.spec_replicas }))
}

/// Whether objects of a resource have a scale.
///
/// # Errors
/// If they have none, or discovery failed.
async fn check_scale_exists(cx: &mut Context<'_>, resource: &Resource) -> Result<(), String> {
    let discovered = cx.discover().await.map_err(|error| error.to_string())?;
    if let Some(error) = discovered.failed.get(&resource.api_version()).map(String::as_str) {
        return Err(error.to_owned());
    }
    if let Some(error) = discovered.root_failure().filter(|_| !is_served(&discovered, resource)) {
        return Err(error.to_owned());
    }
    if subresources(&discovered, resource).any(is_known_scale) {
        return Ok(());
    }
    let dot = if resource.group.is_empty() { "" } else { "." };
    Err(format!("{}{dot}{} does not implement the scale subresource", resource.plural, resource.group))
}

fn is_served(discovered: &DiscoveredResources, resource: &Resource) -> bool {
    discovered.resources.iter().any(|served| served.resource == *resource)
}

fn subresources<'a>(
    discovered: &'a DiscoveredResources,
    resource: &'a Resource,
) -> impl Iterator<Item = &'a Subresource> {
    let served = discovered.resources.iter().filter(move |served| served.resource == *resource);
    served.flat_map(|served| &served.subresources)
}

fn is_known_scale(subresource: &Subresource) -> bool {
    let Subresource { name, group, version, kind, .. } = subresource;
    name == "scale" && kind == "Scale" && SCALE_VERSIONS.contains(&(group.as_str(), version.as_str()))
}
