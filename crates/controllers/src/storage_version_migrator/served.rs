//! Finds a migration's resource among those that the API server serves, and compares resourceVersions.

use std::cmp::Ordering;
use std::time::Duration;

use keleustes_objects::{
    ApiError, DiscoveredResources, GroupResource, Resource, ResourceVersion, StorageVersionMigration,
};
use keleustes_plan::{Now, ReconcileError};

/// How long after its creation a migration waits for a resource that is not served. Discovery runs every 30 s.
const DISCOVERY_GRACE: Duration = Duration::from_secs(60);

/// A resource with its version, as the original prints it.
pub(super) fn gvr(Resource { group, version, plural, .. }: &Resource) -> String {
    format!("{group}/{version}, Resource={plural}")
}

/// The resource in the first version that the server lists; `None` if it is not served. Other spellings that a REST
/// mapper accepts, such as the singular name, do not count.
///
/// # Errors
/// If the discovery of one of the group's versions failed, so that this is not known.
pub(super) fn resource_for(
    discovered: &DiscoveredResources,
    wanted: &GroupResource,
) -> Result<Option<Resource>, ReconcileError> {
    let mut served = discovered.resources.iter().map(|one| &one.resource);
    let is_wanted = |one: &&Resource| *one.group == *wanted.group && *one.plural == *wanted.resource;
    if let Some(found) = served.find(is_wanted) {
        return Ok(Some(found.clone()));
    }
    let of_group = |name: &&String| name.rsplit_once('/').map_or("", |(group, _)| group) == &*wanted.group;
    let failed = discovered.failed.keys().find(of_group).and_then(|name| discovered.failed.get(name));
    match failed.map(String::as_str).or(discovered.root_failure()) {
        Some(failure) => Err(ReconcileError::because(format!("discovery of {wanted:?} failed: {failure}"))),
        None => Ok(None),
    }
}

/// Whether objects of a resource can be listed, patched and so migrated, by a discovery that is not cached.
///
/// # Errors
/// If the discovery of the version failed, or the version does not list the resource, which may change.
pub(super) fn is_migratable(
    discovered: &DiscoveredResources,
    resource: &Resource,
) -> Result<bool, ReconcileError> {
    let Resource { group, version, plural, .. } = resource;
    let is_same = |one: &Resource| (&one.group, &one.version, &one.plural) == (group, version, plural);
    if let Some(found) = discovered.resources.iter().find(|one| is_same(&one.resource)) {
        return Ok(["update", "patch", "list"].iter().all(|verb| found.has_verb(verb)));
    }
    if let Some(failure) =
        discovered.failed.get(&resource.api_version()).map(String::as_str).or(discovered.root_failure())
    {
        return Err(ReconcileError::because(format!("discovery of {} failed: {failure}", gvr(resource))));
    }
    let is_version_served =
        discovered.versions.iter().any(|served| *served.group == **group && *served.version == **version);
    if !is_version_served {
        return Ok(false);
    }
    Err(ReconcileError::because(format!("resource {:?} not found in discovery", gvr(resource))))
}

/// Whether a migration is so young that its resource may only be missing because discovery is older.
pub(super) fn is_young(migration: &StorageVersionMigration, now: Now) -> bool {
    migration.meta.creation_timestamp.is_none_or(|created| {
        let since_creation = now.wall_nanoseconds() - i128::from(created.unix_seconds()) * 1_000_000_000;
        since_creation < DISCOVERY_GRACE.as_nanos().cast_signed()
    })
}

/// Compares two resourceVersions, which must be positive decimal integers of any length.
///
/// # Errors
/// The message, if one of them is not.
///
/// Parity: staging/src/k8s.io/apimachinery/pkg/util/resourceversion.
pub(super) fn compare(one: &ResourceVersion, other: &ResourceVersion) -> Result<Ordering, String> {
    let is_well_formed = |version: &ResourceVersion| {
        let text = version.to_string();
        !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if let Some(malformed) = [one, other].into_iter().find(|version| !is_well_formed(version)) {
        return Err(format!("resource version is not well formed: {malformed}"));
    }
    Ok(match (one.is_older_than(other), other.is_older_than(one)) {
        (true, _) => Ordering::Less,
        (_, true) => Ordering::Greater,
        _ => Ordering::Equal,
    })
}

/// The error of a failed read, with which the migration is retried.
pub(super) fn retry(what: &str, error: &ApiError) -> ReconcileError {
    ReconcileError::from_api_error(error, format!("{what}: {error}"))
}
