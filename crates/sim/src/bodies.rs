//! The objects that users make.

use serde_json::{Value, json};

use crate::deeds::{Kind, Pods, Thing, Wish};

/// The label that all selectors go by.
const LABEL: &str = "app";

/// The object that a wish describes.
#[must_use]
pub fn wished(thing: &Thing, wish: &Wish) -> Value {
    let name = thing.name.as_str();
    let meta = json!({"name": name, "labels": {LABEL: name}});
    let (resource, selector) = (thing.kind.resource(), json!({"matchLabels": {LABEL: name}}));
    let object = |spec: Value| json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": meta, "spec": spec});
    let (replicas, template) = (wish.replicas, template(name, wish));
    match thing.kind {
        Kind::Namespace => json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        Kind::Service => {
            let mut service = object(json!({"selector": {LABEL: name}, "ports": [{"port": 80}]}));
            if wish.otherwise {
                service["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
            }
            service
        }
        Kind::Deployment => {
            let strategy = if wish.otherwise {
                json!({"type": "Recreate"})
            } else {
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": wish.flavour % 2}})
            };
            let spec = json!({"replicas": replicas, "selector": selector, "template": template, "strategy": strategy,
                "revisionHistoryLimit": 2});
            object(spec)
        }
        Kind::ReplicaSet => object(json!({"replicas": replicas, "selector": selector, "template": template})),
        Kind::ReplicationController => {
            object(json!({"replicas": replicas, "selector": {LABEL: name}, "template": template}))
        }
        Kind::StatefulSet => {
            let policy = if wish.otherwise { "Parallel" } else { "OrderedReady" };
            let spec = json!({"replicas": replicas, "selector": selector, "template": template, "serviceName": name,
                "podManagementPolicy": policy});
            object(spec)
        }
        Kind::DaemonSet => {
            let rolling = if wish.otherwise {
                json!({"maxSurge": 1, "maxUnavailable": 0})
            } else {
                json!({"maxUnavailable": 1})
            };
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
            object(json!({"selector": selector, "template": template, "updateStrategy": strategy}))
        }
        Kind::Job => {
            let mode = if wish.otherwise { "Indexed" } else { "NonIndexed" };
            let spec = json!({"completions": replicas, "parallelism": replicas.min(2), "backoffLimit": 3,
                "completionMode": mode, "template": batch(template)});
            object(spec)
        }
    }
}

/// The template that a workload of this name starts its pods from.
fn template(name: &str, wish: &Wish) -> Value {
    let mut annotations = json!({});
    let mut behave = |what: &str, how: &str| annotations[format!("hollow.keleustes.io/{what}")] = json!(how);
    match wish.pods {
        Pods::Well => {}
        Pods::Slow => behave("start-delay", "8s"),
        Pods::Shaky => {
            behave("crash-after", "3s");
            behave("crash-times", "2");
        }
        Pods::Failing => behave("exit-code", "1"),
    }
    json!({
        "metadata": {"labels": {LABEL: name, "flavour": wish.flavour.to_string()}, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": format!("any:{}", wish.flavour)}],
            "terminationGracePeriodSeconds": 5},
    })
}

/// The same for pods that end; their labels are left to the Job.
fn batch(mut template: Value) -> Value {
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

/// The change that asks for another template.
#[must_use]
pub fn rolled(flavour: u32) -> Value {
    json!({"spec": {"template": {
        "metadata": {"labels": {"flavour": flavour.to_string()}},
        "spec": {"containers": [{"name": "main", "image": format!("any:{flavour}")}]},
    }}})
}

/// A pod that nobody asked for; on a node without anybody having placed it there, if one is given.
#[must_use]
pub fn stray(name: &str, number: u64, node: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("stray-{name}-{number}"), "labels": {LABEL: name}},
        "spec": {"containers": [{"name": "main", "image": "any:0"}], "terminationGracePeriodSeconds": 5,
            "nodeName": node}})
}

/// The change that lets a Service select the pods of this name, on this port.
#[must_use]
pub fn reselected(name: &str, port: u16) -> Value {
    json!({"spec": {"selector": {LABEL: name}, "ports": [{"port": port}]}})
}

/// An account.
#[must_use]
pub fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

/// The name of the Secret that asks for a token of an account.
#[must_use]
pub fn token_name(account: &str) -> String {
    format!("{account}-token")
}

/// A Secret that asks for a token of an account.
#[must_use]
pub fn token(account: &str) -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": account});
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": token_name(account), "annotations": annotations}})
}

/// The role that is the sum of others.
pub const WHOLE_ROLE: &str = "fleet";
/// The label of the others.
const PART_OF: &str = "part-of";

/// That role, with rules that nobody gave it.
#[must_use]
pub fn whole_role() -> Value {
    let mut role = part_role(WHOLE_ROLE, 9);
    role["metadata"] = json!({"name": WHOLE_ROLE});
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {PART_OF: WHOLE_ROLE}}]});
    role
}

/// A role that is part of it.
#[must_use]
pub fn part_role(name: &str, allows: u8) -> Value {
    let resource = format!("things{allows}");
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {PART_OF: WHOLE_ROLE}},
        "rules": [{"apiGroups": ["example.com"], "resources": [resource], "verbs": ["get"]}]})
}

/// A config map with these owners, each a name and a uid.
#[must_use]
pub fn owned(name: &str, owners: &[(&str, &str)]) -> Value {
    let reference = |(name, uid): &(&str, &str)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let owners: Vec<_> = owners.iter().map(reference).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

/// Something else in the place of the CA that every namespace is given.
#[must_use]
pub fn forged() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"},
        "data": {"ca.crt": "another CA"}})
}
