//! Finds the object that a user names as kubectl takes names.

use keleustes_objects::{ApiResource, Key, Resource, invalid_path_segment};

use super::{ExplainError, ExplainRequest, Explainer};

impl Explainer {
    /// The resource that a user names: `deploy`, `deployment`, `Deployment`, `deployments.apps`, `deployments.v1.apps`.
    pub(super) async fn resource_named(&self, name: &str) -> Result<Resource, ExplainError> {
        let discovered = self.caches.rest_mapping().all().await;
        let discovered = discovered.map_err(|error| ExplainError::Unavailable(error.to_string()))?;
        let unknown = || ExplainError::UnknownResource(name.to_owned());
        choose(&discovered.preferred(), &discovered.resources, name).ok_or_else(unknown)
    }
}

/// Chooses among the preferred versions, or among all if the name has a version.
fn choose(preferred: &[&ApiResource], all: &[ApiResource], name: &str) -> Option<Resource> {
    let lower = name.to_lowercase();
    let (word, rest) = lower.split_once('.').unwrap_or((&lower, ""));
    if word.is_empty() {
        return None;
    }
    let in_group = |found: &&&ApiResource| rest.is_empty() || found.resource.group == rest;
    let named = |how: fn(&ApiResource, &str) -> bool| {
        preferred.iter().filter(in_group).find(|found| how(found, word)).map(|found| found.resource.clone())
    };
    let by_word = named(|found, word| found.resource.plural == word)
        .or_else(|| named(|found, word| found.singular == word))
        .or_else(|| named(|found, word| found.resource.kind.to_lowercase() == word))
        .or_else(|| named(|found, word| found.short_names.iter().any(|short| short == word)));
    by_word.or_else(|| {
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        let exact = |found: &&ApiResource| {
            let resource = &found.resource;
            (resource.plural == word || resource.kind.to_lowercase() == word)
                && resource.version == version
                && resource.group == group
        };
        all.iter().find(exact).map(|found| found.resource.clone())
    })
}

/// The key of the object.
pub(super) fn key(resource: &Resource, request: &ExplainRequest) -> Result<Key, ExplainError> {
    let ExplainRequest { name, namespace, .. } = request;
    let checked = |what: &str, segment: &str| match invalid_path_segment(segment) {
        Some(reason) => Err(ExplainError::Invalid(format!("invalid {what} {segment:?}: {reason}"))),
        None if segment.is_empty() => Err(ExplainError::Invalid(format!("the {what} is missing"))),
        None => Ok(()),
    };
    checked("name", name)?;
    // A comma or an equals sign would be read as part of the field selector.
    if name.contains([',', '=', '!', '\\']) {
        return Err(ExplainError::Invalid(format!("invalid name {name:?}")));
    }
    if !resource.namespaced {
        return Ok(Key::cluster(name.as_str()));
    }
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    checked("namespace", namespace)?;
    Ok(Key::namespaced(namespace, name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(resource: Resource, singular: &str, short: &str) -> ApiResource {
        ApiResource {
            resource,
            preferred: true,
            singular: singular.to_owned(),
            verbs: Vec::new(),
            short_names: vec![short.to_owned()],
            categories: Vec::new(),
            subresources: Vec::new(),
        }
    }

    #[test]
    fn resources_are_named_as_kubectl_names_them() {
        let all = [
            served(Resource::namespaced("", "v1", "pods", "Pod"), "pod", "po"),
            served(Resource::namespaced("apps", "v1", "deployments", "Deployment"), "deployment", "deploy"),
            served(
                Resource::namespaced("example.com", "v2", "deployments", "Deployment"),
                "deployment",
                "dp",
            ),
            served(
                Resource::namespaced("example.com", "v1", "deployments", "Deployment"),
                "deployment",
                "dp",
            ),
        ];
        let preferred: Vec<_> = all.iter().take(3).collect();
        let found = |name: &str| {
            choose(&preferred, &all, name).map(|found| format!("{}/{}", found.api_version(), found.plural))
        };
        for name in ["deploy", "deployment", "deployments", "Deployment", "deployments.apps", "deploy.apps"] {
            assert_eq!(found(name).as_deref(), Some("apps/v1/deployments"), "{name}");
        }
        assert_eq!(found("deployments.example.com").as_deref(), Some("example.com/v2/deployments"));
        assert_eq!(found("deployments.v1.example.com").as_deref(), Some("example.com/v1/deployments"));
        assert_eq!(found("po").as_deref(), Some("v1/pods"));
        for unknown in ["", ".", "widgets", "pods.apps", "deploy.v9.apps"] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn names_that_would_select_other_objects_are_refused() {
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        let request = |name: &str, namespace: &str| ExplainRequest {
            resource: String::new(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        };
        assert_eq!(key(&pods, &request("web", "")), Ok(Key::namespaced("default", "web")));
        assert_eq!(
            key(&Resource::cluster("", "v1", "nodes", "Node"), &request("n", "x")),
            Ok(Key::cluster("n"))
        );
        for (name, namespace) in [("", ""), ("..", ""), ("a/b", ""), ("a,b=c", ""), ("a", "b/c"), ("a", "..")]
        {
            assert!(key(&pods, &request(name, namespace)).is_err(), "{name} {namespace}");
        }
    }
}
