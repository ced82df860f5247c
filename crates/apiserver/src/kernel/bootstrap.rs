//! Objects that exist from the start: namespaces always, and optionally what else kube-apiserver creates at startup.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Kernel;

/// Namespaces that always exist.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];
const RBAC: &str = "rbac.authorization.k8s.io";
/// Roles and bindings; the head of the file describes its syntax.
const ROLES: &str = include_str!("../../data/roles.txt");
/// What kube-apiserver adds with the feature gates of kinds that are off by default.
const GATED_ROLES: &str = include_str!("../../data/gated_roles.txt");
/// What metrics-server brings along: who may view may also read metrics.
const METRICS_ROLES: &str = "
role system:aggregated-metrics-reader
  label rbac.authorization.k8s.io/aggregate-to-view=true
  label rbac.authorization.k8s.io/aggregate-to-edit=true
  label rbac.authorization.k8s.io/aggregate-to-admin=true
  may get,list,watch on metrics.k8s.io:nodes,pods
";

impl Kernel {
    /// Creates the objects that are missing.
    pub(crate) fn bootstrap(&mut self, now: Timestamp) {
        for name in NAMESPACES {
            self.ensure(
                json!({
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                }),
                now,
            );
        }
        if self.options.bootstrap {
            let gated = if self.options.gated_kinds { GATED_ROLES } else { "" };
            for object in rbac(&[ROLES, gated]).into_iter().chain(priorities()) {
                self.ensure(object, now);
            }
            self.bootstrap_service(now);
        }
        if self.options.bootstrap && self.options.metrics.is_some() {
            for object in rbac(&[METRICS_ROLES]) {
                self.ensure(object, now);
            }
        }
    }

    /// The `kubernetes` Service, its IPAddress and the ServiceCIDR.
    fn bootstrap_service(&mut self, now: Timestamp) {
        let range = self.options.service_range;
        let address = range.first().to_string();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                "sessionAffinity": "None",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
            "status": {"loadBalancer": {}},
        });
        let record = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {"name": address, "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}},
        });
        let range = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": [range.to_string()]},
        });
        for object in [range, service, record] {
            self.ensure(object, now);
        }
    }

    fn ensure(&mut self, object: Value, now: Timestamp) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let Some(resource) = self.registry.by_kind(text("/apiVersion"), text("/kind")) else {
            return;
        };
        if self.store.stored(resource, text("/metadata/namespace"), text("/metadata/name")).is_none() {
            // Cannot fail: the kinds are served, and a test reads every object.
            let _ = self.seed(object, now);
        }
    }
}

fn priorities() -> impl Iterator<Item = Value> {
    let class = |name: &str, value: i64, what: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
            "description": what,
        })
    };
    [
        class(
            "system-cluster-critical",
            2_000_000_000,
            "For pods the cluster needs, which may move to another node.",
        ),
        class("system-node-critical", 2_000_001_000, "For pods a node needs, which must not move."),
    ]
    .into_iter()
}

/// Parses tables of roles and bindings, of which a later one may add rules to the roles of an earlier one.
fn rbac(tables: &[&str]) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    let lines = tables.iter().flat_map(|table| table.lines());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["role", name] => objects.push(role(name)),
            ["also", name] => {
                let is_it = |o: &Value| o["kind"] == "ClusterRole" && o["metadata"]["name"] == **name;
                let at = objects.iter().position(is_it).unwrap_or_else(|| panic!("no role {name}"));
                let role = objects.remove(at);
                objects.push(role);
            }
            ["bind", name, "to", role, "for", subjects @ ..] => objects.push(binding(name, role, subjects)),
            words => {
                if let Some(role) = objects.last_mut() {
                    extend(role, words);
                }
            }
        }
    }
    objects
}

fn placed(kind: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": format!("{RBAC}/v1"), "kind": format!("Cluster{kind}"),
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}});
    if let Some((namespace, name)) = name.split_once('/') {
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn role(name: &str) -> Value {
    let mut role = placed("Role", name);
    role["rules"] = json!([]);
    role
}

fn extend(role: &mut Value, words: &[&str]) {
    let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let rule = match words {
        ["label", label] => {
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            role["metadata"]["labels"][key] = json!(value);
            return;
        }
        ["aggregate", label] => {
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            if !role["aggregationRule"].is_object() {
                role["aggregationRule"] = json!({"clusterRoleSelectors": []});
            }
            if let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array_mut() {
                selectors.push(json!({"matchLabels": {key: value}}));
            }
            return;
        }
        ["may", verbs, "at", urls] => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        ["may", verbs, "on", what, rest @ ..] => {
            let (groups, resources) = what.split_once(':').unwrap_or(("", what));
            let groups: Vec<&str> = groups.split(',').map(|g| if g == "core" { "" } else { g }).collect();
            let mut rule = json!({"verbs": list(verbs), "apiGroups": groups, "resources": list(resources)});
            if let ["named", names] = rest {
                rule["resourceNames"] = json!(list(names));
            }
            rule
        }
        _ => panic!("roles.txt: unknown line {words:?}"),
    };
    role["rules"].as_array_mut().into_iter().for_each(|rules| rules.push(rule.clone()));
}

fn binding(name: &str, role: &str, subjects: &[&str]) -> Value {
    let mut binding = placed("RoleBinding", name);
    let kind = if name.contains('/') { "Role" } else { "ClusterRole" };
    binding["roleRef"] = json!({"apiGroup": RBAC, "kind": kind, "name": role});
    let subjects = subjects.iter().map(|subject| match subject.split_once(':') {
        Some(("account", account)) => {
            let (namespace, name) = account.split_once('/').unwrap_or(("kube-system", account));
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        Some(("group", name)) => json!({"apiGroup": RBAC, "kind": "Group", "name": name}),
        _ => json!({"apiGroup": RBAC, "kind": "User", "name": subject.trim_start_matches("user:")}),
    });
    binding["subjects"] = subjects.collect();
    binding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_table_has_no_dangling_references() {
        let objects = rbac(&[ROLES, GATED_ROLES]);
        let controllers = objects
            .iter()
            .filter(|o| o["kind"] == "ClusterRole")
            .filter(|o| o["metadata"]["name"].as_str().unwrap().starts_with("system:controller:"))
            .count();
        assert!(controllers > 40, "{controllers}");
        let find = |kind: &str, name: &str| {
            objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).unwrap()
        };
        let admin = find("ClusterRole", "admin");
        assert_eq!(
            admin["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"],
            json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"})
        );
        let job = find("ClusterRoleBinding", "system:controller:job-controller");
        assert_eq!(
            job["subjects"],
            json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": "job-controller"}])
        );
        let rules = |objects: &[Value]| {
            let name = "system:controller:job-controller";
            let role = objects.iter().find(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == name);
            role.unwrap()["rules"].as_array().unwrap().clone()
        };
        let (with_gates, without) = (rules(&objects), rules(&rbac(&[ROLES])));
        assert_eq!(with_gates[..without.len()], without);
        assert_eq!(with_gates[without.len()]["resources"], json!(["workloads", "podgroups"]));
        let all = find("ClusterRole", "cluster-admin");
        assert_eq!(all["rules"][0], json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        // The server accepts every object.
        let mut kernel = Kernel::new(0, 10, Timestamp::UNIX_EPOCH);
        for object in objects.into_iter().chain(priorities()) {
            kernel.seed(object, Timestamp::UNIX_EPOCH).unwrap();
        }
    }
}
