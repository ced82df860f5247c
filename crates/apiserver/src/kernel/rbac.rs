//! RBAC: a request is allowed if a rule of a role bound to its user covers it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Kernel;
use super::metadata::{meta, meta_str};
use super::request::{Call, Request, RequestInfo, Verb};
use super::resources;
use super::status::{ApiResult, Status, StatusReason};
use super::store::SharedObject;
use super::users::{MASTERS, User};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The attributes of a request for authorization.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    /// With the subresource, as `pods/status`; empty for non-resource paths.
    pub(crate) resource: &'a str,
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    /// The path of a non-resource request.
    pub(crate) path: &'a str,
}

/// The reason why a request is allowed; empty for system:masters.
pub(crate) type Permission = String;

impl Kernel {
    /// Rejects a call its user is not allowed to make.
    pub(crate) fn authorize(&self, call: &Call<'_>) -> ApiResult<()> {
        if !self.options.rbac {
            return Ok(());
        }
        let target = &call.target;
        let resource = match &target.subresource {
            Some(subresource) => format!("{}/{subresource}", target.resource.plural),
            None => target.resource.plural.to_owned(),
        };
        // A list or watch with metadata.name= in its field selector is authorized as a request for that object.
        let selected = call.query.text("fieldSelector").strip_prefix("metadata.name=").unwrap_or_default();
        let named = if matches!(call.verb, Verb::List | Verb::Watch) { selected } else { target.name() };
        // A Namespace object counts as being in its own namespace.
        let namespace = if target.resource.plural == "namespaces" && target.resource.group.is_empty() {
            target.name()
        } else {
            target.namespace()
        };
        let attributes = Attributes {
            verb: call.verb.as_str(),
            group: target.resource.group,
            resource: &resource,
            name: named,
            namespace,
            path: "",
        };
        if self.allows(&call.user, &attributes).is_some() {
            return Ok(());
        }
        let place = match namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let why = format!(
            "User {:?} cannot {} resource {resource:?} in API group {:?} {place}",
            call.user.name,
            call.verb.as_str(),
            target.resource.group,
        );
        Err(refusal(target.resource, named, &why))
    }

    /// Rejects a request that cannot be served, and that its user is not allowed to make: kube-apiserver authorizes before it
    /// looks for the resource. What is not about a resource is authorized by its path.
    pub(crate) fn authorize_unserved(&self, user: &User, request: &Request) -> ApiResult<()> {
        let Some(info) = RequestInfo::parse(request) else {
            return self.authorize_path(user, &request.method.as_str().to_lowercase(), &request.path);
        };
        let resource = match info.subresource.as_str() {
            "" => info.resource.clone(),
            subresource => format!("{}/{subresource}", info.resource),
        };
        let attributes = Attributes {
            verb: info.verb,
            group: &info.group,
            resource: &resource,
            name: &info.name,
            namespace: &info.namespace,
            path: "",
        };
        if !self.options.rbac || self.allows(user, &attributes).is_some() {
            return Ok(());
        }
        let place = match info.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let qualified = match info.group.as_str() {
            "" => info.resource.clone(),
            group => format!("{}.{group}", info.resource),
        };
        let object = match info.name.as_str() {
            "" => qualified,
            name => format!("{qualified} {name:?}"),
        };
        let message = format!(
            "{object} is forbidden: User {:?} cannot {} resource {resource:?} in API group {:?} {place}",
            user.name, info.verb, info.group
        );
        let mut status = Status::new(StatusReason::Forbidden, message);
        (status.group, status.kind, status.name) = (info.group, info.resource, info.name);
        Err(status)
    }

    /// Rejects a non-resource request its user is not allowed to make.
    pub(crate) fn authorize_path(&self, user: &User, verb: &str, path: &str) -> ApiResult<()> {
        let attributes = Attributes { verb, path, ..Attributes::default() };
        if !self.options.rbac || self.allows(user, &attributes).is_some() {
            return Ok(());
        }
        let why = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
        Err(Status::new(StatusReason::Forbidden, why))
    }

    /// Whether a user may impersonate another.
    pub(crate) fn may_impersonate(&self, user: &User, resource: &str, name: &str) -> bool {
        let attributes = Attributes { verb: "impersonate", resource, name, ..Attributes::default() };
        self.allows(user, &attributes).is_some()
    }

    /// Why the user is allowed, or `None` if not.
    pub(crate) fn allows(&self, user: &User, wanted: &Attributes<'_>) -> Option<Permission> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Some(String::new());
        }
        for (binding, kind, place) in self.bindings_of(user, wanted.namespace) {
            let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
            let of = binding["roleRef"]["kind"].as_str().unwrap_or_default();
            let covered = self.rules_of(&binding).iter().any(|rule| covers(rule, wanted));
            if covered {
                let subject = bound_subject(&binding, user);
                let name = meta_str(&binding, "name");
                let name = if place.is_empty() { name.to_owned() } else { format!("{name}/{place}") };
                return Some(format!("RBAC: allowed by {kind} {name:?} of {of} {role:?} to {subject}"));
            }
        }
        None
    }

    /// All rules that apply to the user in the namespace.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> Vec<Value> {
        let bindings = self.bindings_of(user, namespace);
        bindings.iter().flat_map(|(binding, _, _)| self.rules_of(binding)).collect()
    }

    /// Bindings with the user as subject: ClusterRoleBindings and the namespace's RoleBindings.
    fn bindings_of(&self, user: &User, namespace: &str) -> Vec<(SharedObject, &'static str, String)> {
        let mut found = Vec::new();
        if let Some(kind) = resources::by_path(GROUP, "v1", "clusterrolebindings") {
            let all = self.store.values(kind, None).into_iter();
            found.extend(all.map(|binding| (binding, "ClusterRoleBinding", String::new())));
        }
        if let Some(kind) = resources::by_path(GROUP, "v1", "rolebindings").filter(|_| !namespace.is_empty())
        {
            let all = self.store.values(kind, Some(namespace)).into_iter();
            found.extend(all.map(|binding| (binding, "RoleBinding", namespace.to_owned())));
        }
        found.retain(|(binding, _, _)| !bound_subject(binding, user).is_empty());
        found
    }

    fn rules_of(&self, binding: &Value) -> Vec<Value> {
        let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
        let (plural, namespace) = match binding["roleRef"]["kind"].as_str() {
            Some("ClusterRole") => ("clusterroles", ""),
            _ => ("roles", meta_str(binding, "namespace")),
        };
        let role =
            resources::by_path(GROUP, "v1", plural).and_then(|kind| self.store.get(kind, namespace, name));
        let Some(role) = role else { return Vec::new() };
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        if rules.is_empty() && role.get("aggregationRule").is_some() {
            // Aggregated roles work even if no clusterrole-aggregation controller runs.
            return self.aggregated_rules(&role);
        }
        rules
    }

    /// The rules of the roles that `role` aggregates, directly or through others: admin aggregates edit, and edit
    /// aggregates view. Every role counts once, because roles may aggregate each other.
    fn aggregated_rules(&self, role: &Value) -> Vec<Value> {
        let Some(roles) = resources::by_path(GROUP, "v1", "clusterroles") else { return Vec::new() };
        let all = self.store.values(roles, None);
        let mut rules = Vec::new();
        let mut visited = BTreeSet::from([meta_str(role, "name")]);
        let mut pending = vec![role];
        while let Some(aggregating) = pending.pop() {
            let selectors =
                aggregating.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
            for selector in selectors.into_iter().flatten() {
                for other in &all {
                    let labels = meta(other, "labels").unwrap_or(&Value::Null);
                    if super::selectors::selects(selector, labels) && visited.insert(meta_str(other, "name"))
                    {
                        rules.extend(other["rules"].as_array().into_iter().flatten().cloned());
                        pending.push(other);
                    }
                }
            }
        }
        rules
    }
}

fn refusal(resource: &resources::Resource, name: &str, why: &str) -> Box<Status> {
    if name.is_empty() {
        let mut status =
            Status::new(StatusReason::Forbidden, format!("{} is forbidden: {why}", resource.qualified()));
        status.group = resource.group.to_owned();
        status.kind = resource.plural.to_owned();
        return status;
    }
    Status::forbidden(resource, name, why)
}

/// The binding's subject that matches the user, as messages name it; empty if none does.
fn bound_subject(binding: &Value, user: &User) -> String {
    for subject in binding["subjects"].as_array().into_iter().flatten() {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") if user.name == name => return format!("User {name:?}"),
            Some("Group") if user.groups.iter().any(|group| group == name) => {
                return format!("Group {name:?}");
            }
            Some("ServiceAccount") => {
                let namespace =
                    subject["namespace"].as_str().unwrap_or_else(|| meta_str(binding, "namespace"));
                let account =
                    user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                if account == Some((namespace, name)) {
                    return format!("ServiceAccount \"{name}/{namespace}\"");
                }
            }
            _ => {}
        }
    }
    String::new()
}

fn covers(rule: &Value, wanted: &Attributes<'_>) -> bool {
    let list = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = |field: &str, value: &str| list(field).any(|item| item == "*" || item == value);
    if !has("verbs", wanted.verb) {
        return false;
    }
    if !wanted.path.is_empty() {
        return list("nonResourceURLs").any(|url| match url.strip_suffix('*') {
            Some(prefix) => wanted.path.starts_with(prefix),
            None => url == wanted.path,
        });
    }
    let subresource = wanted.resource.split_once('/').map(|(_, sub)| sub);
    let resource = list("resources").any(|item| {
        item == "*"
            || item == wanted.resource
            || subresource.is_some_and(|sub| item.strip_prefix("*/") == Some(sub))
    });
    let mut names = list("resourceNames").peekable();
    let named = names.peek().is_none() || (!wanted.name.is_empty() && names.any(|name| name == wanted.name));
    resource && named && has("apiGroups", wanted.group)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rbac_rules_cover_the_named_requests() {
        let wanted = |verb: &'static str, resource: &'static str, name: &'static str| Attributes {
            verb,
            group: "apps",
            resource,
            name,
            ..Attributes::default()
        };
        let rule = json!({"verbs": ["get", "update"], "apiGroups": ["apps"], "resources": ["deployments", "*/scale"]});
        assert!(covers(&rule, &wanted("get", "deployments", "a")));
        assert!(!covers(&rule, &wanted("patch", "deployments", "a")));
        assert!(!covers(&rule, &wanted("update", "deployments/status", "a")));
        assert!(covers(&rule, &wanted("update", "replicasets/scale", "a")));
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]});
        assert!(covers(&named, &wanted("get", "deployments", "a")));
        assert!(!covers(&named, &wanted("get", "deployments", "b")));
        assert!(!covers(&named, &wanted("list", "deployments", "")));
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/openapi/*"]});
        let path = |path: &'static str| Attributes { verb: "get", path, ..Attributes::default() };
        assert!(covers(&urls, &path("/openapi/v3")));
        assert!(!covers(&urls, &path("/healthz/x")));
        assert!(!covers(&rule, &path("/healthz")));
    }
}
