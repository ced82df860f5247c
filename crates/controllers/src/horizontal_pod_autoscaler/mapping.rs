//! Maps the kind of a reference to resources, as the REST mapper of the original does.

use keleustes_objects::{ApiResource, DiscoveredResources, Resource};

/// The group of an apiVersion; an error if it has more than one slash.
///
/// Parity: `schema.ParseGroupVersion`.
pub(super) fn group_of(api_version: &str) -> Result<&str, String> {
    match api_version.matches('/').count() {
        0 => Ok(""),
        1 => Ok(api_version.split_once('/').map_or("", |(group, _)| group)),
        _ => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

/// The resources of a kind in all versions of its group, the preferred version first. The kind may be written in lower
/// case.
pub(super) fn all<'a>(
    discovered: &'a DiscoveredResources,
    group: &str,
    kind: &str,
) -> Result<Vec<&'a ApiResource>, String> {
    let of_kind = |one: &&ApiResource| {
        one.resource.group == group
            && (one.resource.kind == kind || one.resource.kind.to_lowercase() == kind)
            && !kind.is_empty()
    };
    let mut found: Vec<_> = discovered.resources.iter().filter(of_kind).collect();
    found.sort_by_key(|one| !one.preferred);
    if found.is_empty() {
        if let Some(error) = discovered.root_failure() {
            return Err(error.to_owned());
        }
        return Err(format!("no matches for kind {kind:?} in group {group:?}"));
    }
    Ok(found)
}

/// The resource of a kind in the preferred version of its group that serves it.
pub(super) fn preferred<'a>(
    discovered: &'a DiscoveredResources,
    group: &str,
    kind: &str,
) -> Result<&'a Resource, String> {
    Ok(&all(discovered, group, kind)?[0].resource)
}
