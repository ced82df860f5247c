//! What an API server serves, as far as it could be learnt; what could not is told apart from what is not there.

use std::collections::BTreeMap;

use crate::Resource;

/// What a server serves, as far as it could be learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredResources {
    /// All resources of all groups and versions, in the server's order.
    pub resources: Vec<ApiResource>,
    /// Groups and versions (`group/version`, or `version` for the core group) whose resources could not
    /// be learnt, and why; `api` or `apis` if a whole root could not. While this is not empty, a resource
    /// that is missing above may still exist.
    pub failed: BTreeMap<String, String>,
}

/// One resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// What URLs and objects are made of.
    pub resource: Resource,
    /// Whether this is the version that the server prefers for the group.
    pub preferred: bool,
    /// The name of one.
    pub singular: String,
    /// What may be done with it.
    pub verbs: Vec<String>,
    /// Other names for it.
    pub short_names: Vec<String>,
    /// Groups of resources that it is listed with.
    pub categories: Vec<String>,
    /// Parts of it with a URL of their own.
    pub subresources: Vec<Subresource>,
}

/// A part of a resource with a URL of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresource {
    /// The name in URLs.
    pub name: String,
    /// The kind of what is read and written there; empty if the server does not say.
    pub kind: String,
    /// What may be done with it.
    pub verbs: Vec<String>,
}

impl ApiResource {
    /// Whether something may be done with it.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|candidate| candidate == verb)
    }
}

impl DiscoveredResources {
    /// Each resource in one version: the one that the server prefers for its group, or the first that has
    /// the resource. Sorted by group and name.
    #[must_use]
    pub fn preferred(&self) -> Vec<&ApiResource> {
        let mut chosen = BTreeMap::new();
        for one in &self.resources {
            let there = chosen.entry((&one.resource.group, &one.resource.plural)).or_insert(one);
            if one.preferred {
                *there = one;
            }
        }
        chosen.into_values().collect()
    }

    /// Why a whole root could not be learnt, if that is so: then hardly anything can be said of what the
    /// server serves.
    #[must_use]
    pub fn root_failure(&self) -> Option<&str> {
        ["api", "apis"].into_iter().find_map(|root| self.failed.get(root)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(group: &'static str, version: &'static str, plural: &'static str, preferred: bool) -> ApiResource {
        ApiResource {
            resource: Resource::namespaced(group, version, plural, "Kind"),
            preferred,
            singular: String::new(),
            verbs: vec!["list".to_owned()],
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        }
    }

    #[test]
    fn each_resource_is_chosen_once_in_the_preferred_version_that_has_it() {
        let resources = vec![
            one("g", "v2", "new", false),
            one("g", "v2", "both", false),
            one("g", "v1", "both", true),
            one("g", "v1beta1", "both", false),
            one("", "v1", "pods", true),
        ];
        let discovered = DiscoveredResources { resources, failed: BTreeMap::new() };
        let chosen: Vec<_> = discovered
            .preferred()
            .iter()
            .map(|one| format!("{} {}", one.resource.api_version(), one.resource.plural))
            .collect();
        assert_eq!(chosen, ["v1 pods", "g/v1 both", "g/v2 new"]);
        assert!(discovered.resources[0].has_verb("list") && !discovered.resources[0].has_verb("delete"));
    }

    #[test]
    fn a_root_is_told_apart_from_a_group() {
        let failed = |name: &str| DiscoveredResources {
            failed: BTreeMap::from([(name.to_owned(), "no".to_owned())]),
            ..DiscoveredResources::default()
        };
        assert_eq!(failed("apis").root_failure(), Some("no"));
        assert_eq!(failed("apps/v1").root_failure(), None);
    }
}
