//! The result of API discovery. It distinguishes a resource that is not served from one whose discovery failed.

use std::collections::BTreeMap;

use crate::Resource;

/// The resources that a server serves, as far as discovery succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredResources {
    /// All resources of all groups and versions, in the server's order.
    pub resources: Vec<ApiResource>,
    /// Errors by group version (`group/version`, or `version` for the core group), or by `api` and `apis` if a whole
    /// root failed. While this is not empty, a resource that is missing above may still be served.
    pub failed: BTreeMap<String, String>,
    /// The versions of every group, also of those without resources, in the server's order.
    pub versions: Vec<GroupVersion>,
}

/// A version of an API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Whether this is the preferred version of the group.
    pub preferred: bool,
}

/// One resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// Group, version, plural and kind.
    pub resource: Resource,
    /// Whether this is the preferred version of the group.
    pub preferred: bool,
    /// The singular name.
    pub singular: String,
    /// The supported verbs.
    pub verbs: Vec<String>,
    /// The short names.
    pub short_names: Vec<String>,
    /// The categories, such as `all`.
    pub categories: Vec<String>,
    /// The subresources.
    pub subresources: Vec<Subresource>,
}

/// A subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresource {
    /// The name in URLs.
    pub name: String,
    /// The group of `kind`; empty for the core group, or if discovery does not name it.
    pub group: String,
    /// The version of `kind`; empty if discovery does not name it.
    pub version: String,
    /// The kind of its body; empty if discovery does not name it.
    pub kind: String,
    /// The supported verbs.
    pub verbs: Vec<String>,
}

impl ApiResource {
    /// Whether it supports the verb.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|candidate| candidate == verb)
    }
}

impl DiscoveredResources {
    /// Each resource in one version: the preferred version of its group, or the first version that serves it. Sorted by
    /// group and plural.
    #[must_use]
    pub fn preferred(&self) -> Vec<&ApiResource> {
        let mut chosen = BTreeMap::new();
        for one in &self.resources {
            let choice = chosen.entry((&one.resource.group, &one.resource.plural)).or_insert(one);
            if one.preferred {
                *choice = one;
            }
        }
        chosen.into_values().collect()
    }

    /// The error of a whole root, `api` or `apis`, if its discovery failed.
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
        let discovered = DiscoveredResources { resources, ..DiscoveredResources::default() };
        let chosen: Vec<_> = discovered
            .preferred()
            .iter()
            .map(|one| format!("{} {}", one.resource.api_version(), one.resource.plural))
            .collect();
        assert_eq!(chosen, ["v1 pods", "g/v1 both", "g/v2 new"]);
        assert!(discovered.resources[0].has_verb("list") && !discovered.resources[0].has_verb("delete"));
    }

    #[test]
    fn a_failed_root_differs_from_a_failed_group() {
        let failed = |name: &str| DiscoveredResources {
            failed: BTreeMap::from([(name.to_owned(), "no".to_owned())]),
            ..DiscoveredResources::default()
        };
        assert_eq!(failed("apis").root_failure(), Some("no"));
        assert_eq!(failed("apps/v1").root_failure(), None);
    }
}
