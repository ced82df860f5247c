//! The resources that can be observed: those that can be listed, watched and deleted.

use std::collections::BTreeSet;

use keleustes_objects::{ApiResource, DiscoveredResources, Resource};

/// The verbs that an observed resource must support.
const VERBS: [&str; 3] = ["delete", "list", "watch"];

/// Every resource that can be listed, watched and deleted, each in one version. Resources of `kept` whose
/// group version could not be discovered stay. `None` if discovery found hardly anything.
pub(super) fn deletable_resources(
    discovered: &DiscoveredResources,
    kept: &BTreeSet<Resource>,
    ignores: impl Fn(&ApiResource) -> bool,
) -> Option<BTreeSet<Resource>> {
    if discovered.root_failure().is_some() {
        return None;
    }
    let stays = |resource: &&Resource| discovered.failed.contains_key(&resource.api_version());
    let mut chosen: BTreeSet<Resource> = kept.iter().filter(stays).cloned().collect();
    let is_kept = |resource: &Resource, chosen: &BTreeSet<Resource>| {
        chosen.iter().any(|there| (&there.group, &there.plural) == (&resource.group, &resource.plural))
    };
    for one in discovered.preferred() {
        if VERBS.iter().all(|verb| one.has_verb(verb)) && !is_kept(&one.resource, &chosen) && !ignores(one) {
            chosen.insert(one.resource.clone());
        }
    }
    Some(chosen).filter(|chosen| !chosen.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use keleustes_objects::ApiResource;

    use super::*;

    const ALL: &str = "delete get list watch";

    fn one(group: &'static str, version: &'static str, plural: &'static str, verbs: &str) -> ApiResource {
        ApiResource {
            resource: Resource::namespaced(group, version, plural, "Kind"),
            preferred: version == "v1",
            singular: String::new(),
            verbs: verbs.split(' ').map(str::to_owned).collect(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        }
    }

    fn chosen(resources: &[ApiResource], failed: &[&str], kept: &[(&'static str, &'static str)]) -> String {
        let failed = failed.iter().map(|name| ((*name).to_owned(), "no".to_owned()));
        let discovered = DiscoveredResources {
            resources: resources.to_vec(),
            failed: BTreeMap::from_iter(failed),
            ..DiscoveredResources::default()
        };
        let kept = kept.iter().map(|(group, version)| one(group, version, "things", ALL).resource);
        let chosen = deletable_resources(&discovered, &kept.collect(), |one| one.resource.plural == "events");
        let names = chosen.map(|set| set.iter().map(|one| format!("{} {one}", one.version)).collect());
        names.map_or("nothing".to_owned(), |names: Vec<_>| names.join(", "))
    }

    /// Proves GC-3, GC-4.
    #[test]
    fn resources_with_list_watch_and_delete_are_observed() {
        let served = [
            one("", "v1", "pods", ALL),
            one("", "v1", "events", ALL),
            one("", "v1", "bindings", "create"),
            one("a", "v1", "unwatched", "delete list"),
            one("a", "v1", "kept", "get list watch"),
        ];
        assert_eq!(chosen(&served, &[], &[]), "v1 pods");
    }

    /// Proves GC-5.
    #[test]
    fn each_resource_is_observed_in_one_version() {
        let served = [
            one("a", "v2", "things", ALL),
            one("a", "v1", "things", ALL),
            one("a", "v2", "newer", ALL),
            one("a", "v0", "newer", ALL),
        ];
        assert_eq!(chosen(&served, &[], &[]), "v1 things.a, v2 newer.a");
    }

    /// Proves GC-20.
    #[test]
    fn empty_discovery_yields_nothing() {
        assert_eq!(chosen(&[], &[], &[]), "nothing");
        assert_eq!(chosen(&[one("", "v1", "events", ALL)], &[], &[]), "nothing");
        assert_eq!(chosen(&[one("", "v1", "pods", ALL)], &["apis"], &[("a", "v1")]), "nothing");
    }

    /// Proves GC-21, RQ-81.
    #[test]
    fn resources_of_a_failed_group_version_are_kept() {
        let served = [one("", "v1", "pods", ALL), one("a", "v2", "things", ALL)];
        assert_eq!(chosen(&served, &["a/v1"], &[("a", "v1"), ("b", "v1")]), "v1 pods, v1 things.a");
        assert_eq!(
            chosen(&served, &["a/v1"], &[]),
            "v1 pods, v2 things.a",
            "a resource that had not been listed is dropped"
        );
    }
}
