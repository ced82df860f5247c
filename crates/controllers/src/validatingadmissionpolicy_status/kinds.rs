//! Which kinds a policy is checked against.

use std::collections::BTreeSet;

use keleustes_objects::{DiscoveredResources, ResourceRule};

/// As many kinds of one rule are checked at most.
const KINDS_PER_RULE_MAX: usize = 10;

/// A kind in a group and version, in the order in which kinds are checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// Finds kinds in the result of API discovery, which is repeated at the first resource that is not found.
#[derive(Debug)]
pub enum Lookup {
    /// All resources were found, or discovery has been repeated.
    Kinds(Vec<GroupVersionKind>),
    /// A resource was not found: discovery must be repeated.
    NotFound,
}

/// The kinds that the rules name, sorted and without duplicates. Wildcards and subresources are not checked.
///
/// Parity: apiserver/pkg/admission/plugin/policy/validating/typechecking.go, `typesToCheck`.
#[must_use]
pub fn kinds(rules: &[ResourceRule], discovered: &DiscoveredResources, is_fresh: bool) -> Lookup {
    let mut found = BTreeSet::new();
    for rule in rules {
        let mut count = 0;
        for (group, version, resource) in combinations(rule) {
            let kinds = kinds_for(discovered, group, version, resource);
            if kinds.is_empty() && !is_fresh {
                return Lookup::NotFound;
            }
            for kind in kinds {
                found.insert(kind);
                count += 1;
                if count == KINDS_PER_RULE_MAX {
                    return Lookup::Kinds(found.into_iter().collect());
                }
            }
        }
    }
    Lookup::Kinds(found.into_iter().collect())
}

/// Group, version and resource of everything that a rule names, sorted; nothing if it has a wildcard for a group or version.
fn combinations(rule: &ResourceRule) -> Vec<(&str, &str, &str)> {
    let is_wildcard = |name: &String| name.contains('*');
    if rule.api_groups.iter().any(is_wildcard) || rule.api_versions.iter().any(is_wildcard) {
        return Vec::new();
    }
    let resources = rule.resources.iter().filter(|name| !name.contains(['*', '/']));
    let mut groups: Vec<&str> = rule.api_groups.iter().map(String::as_str).collect();
    let mut versions: Vec<&str> = rule.api_versions.iter().map(String::as_str).collect();
    let mut resources: Vec<&str> = resources.map(String::as_str).collect();
    groups.sort_unstable();
    versions.sort_unstable();
    resources.sort_unstable();
    let mut all = Vec::new();
    for group in &groups {
        for version in &versions {
            all.extend(resources.iter().map(|resource| (*group, *version, *resource)));
        }
    }
    all
}

/// The kinds of a resource, in discovery's order. Without a group, all groups that serve the version are searched.
///
/// Parity: apimachinery/pkg/api/meta/restmapper.go, `KindsFor`; client-go/restmapper/discovery.go, which also maps the
/// lists of all kinds.
fn kinds_for(
    discovered: &DiscoveredResources,
    group: &str,
    version: &str,
    resource: &str,
) -> Vec<GroupVersionKind> {
    let name = resource.to_lowercase();
    let mut found: Vec<GroupVersionKind> = Vec::new();
    for served in &discovered.resources {
        let of = &served.resource;
        let is_searched = (group.is_empty() || of.group == group) && of.version == version;
        if !is_searched || discovered.failed.contains_key(&group_version(&of.group, &of.version)) {
            continue;
        }
        let lower_kind = of.kind.to_lowercase();
        let singular = if served.singular.is_empty() { &lower_kind } else { &served.singular };
        let list = name.strip_prefix(&lower_kind).is_some_and(|rest| rest == "list" || rest == "lists");
        let kind = if of.plural == name.as_str() || *singular == name {
            of.kind.to_string()
        } else if list {
            format!("{}List", of.kind)
        } else {
            continue;
        };
        let kind = GroupVersionKind { group: of.group.to_string(), version: of.version.to_string(), kind };
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    found
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
