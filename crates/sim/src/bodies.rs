//! Bodies of the objects that simulated users create, and of their patches.

use serde_json::{Value, json};

use crate::actions::{Kind, ObjectRef, ObjectSpec, PodBehaviour};

/// The label that all selectors match on.
const LABEL: &str = "app";

/// The minutes after the start of a storm at which CronJobs run. There are none later, so that the cluster converges.
pub const CRON_MINUTES: std::ops::Range<i64> = 1..6;

/// A PodDisruptionBudget of the pods of the workload with this name; every fifth selects all pods.
#[must_use]
pub fn budget(name: &str, spec: u8) -> Value {
    let (min, max) = match spec % 5 {
        0 => (json!(1), Value::Null),
        1 => (json!("50%"), Value::Null),
        2 => (Value::Null, json!(1)),
        3 => (Value::Null, json!("30%")),
        _ => (json!(2), Value::Null),
    };
    let selector = if spec % 5 == 4 { Value::Null } else { json!({LABEL: name}) };
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": min, "maxUnavailable": max, "selector": {"matchLabels": selector}}})
}

/// The template version whose pods ask for CPU and memory.
pub const TEMPLATE_WITH_REQUESTS: u32 = 11;

/// The plural and the group of the custom kind that quotas count.
pub const WIDGETS: (&str, &str) = ("widgets", "example.com");

/// Defines the custom kind.
#[must_use]
pub fn widget_definition() -> Value {
    let (plural, group) = WIDGETS;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"plural": plural, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}})
}

/// An object of the custom kind.
#[must_use]
pub fn widget(name: &str) -> Value {
    json!({"apiVersion": format!("{}/v1", WIDGETS.1), "kind": "Widget", "metadata": {"name": name}})
}

/// A ResourceQuota that refuses some objects: pods, those of a scope, their requests, Services, or custom objects.
#[must_use]
pub fn quota(name: &str, spec: u8) -> Value {
    let widgets = format!("count/{}.{}", WIDGETS.0, WIDGETS.1);
    let spec = match spec % 5 {
        0 => json!({"hard": {"pods": "4", "count/pods": "6"}}),
        1 => {
            let hard = json!({"pods": "3", "requests.cpu": "250m", "requests.memory": "1Gi"});
            json!({"hard": hard, "scopes": ["NotBestEffort"]})
        }
        2 => json!({"hard": {"pods": "2"}, "scopes": ["BestEffort"]}),
        3 => json!({"hard": {"services": "2", "count/deployments.apps": "9999", "count/configmaps": "9999"}}),
        _ => json!({"hard": {widgets: "2", "count/replicasets.apps": "9999"}}),
    };
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
}

/// The body of a new object.
#[must_use]
pub fn object_body(target: &ObjectRef, wanted: &ObjectSpec) -> Value {
    let name = target.name.as_str();
    let meta = json!({"name": name, "labels": {LABEL: name}});
    let (resource, selector) = (target.kind.resource(), json!({"matchLabels": {LABEL: name}}));
    let object = |spec: Value| json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": meta, "spec": spec});
    let (replicas, template) = (wanted.replicas, template(name, wanted));
    match target.kind {
        Kind::Namespace => json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        Kind::Service => {
            let mut service = object(json!({"selector": {LABEL: name}, "ports": [{"port": 80}]}));
            if wanted.alternative {
                service["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
            }
            service
        }
        Kind::Deployment => {
            let strategy = if wanted.alternative {
                json!({"type": "Recreate"})
            } else {
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": wanted.template_version % 2}})
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
            let policy = if wanted.alternative { "Parallel" } else { "OrderedReady" };
            let spec = json!({"replicas": replicas, "selector": selector, "template": template, "serviceName": name,
                "podManagementPolicy": policy});
            object(spec)
        }
        Kind::DaemonSet => {
            let rolling = if wanted.alternative {
                json!({"maxSurge": 1, "maxUnavailable": 0})
            } else {
                json!({"maxUnavailable": 1})
            };
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
            object(json!({"selector": selector, "template": template, "updateStrategy": strategy}))
        }
        Kind::Job => {
            let mode = if wanted.alternative { "Indexed" } else { "NonIndexed" };
            let spec = json!({"completions": replicas, "parallelism": replicas.min(2), "backoffLimit": 3,
                "completionMode": mode, "template": batch(template)});
            object(spec)
        }
        Kind::CronJob => {
            let policies = ["Allow", "Forbid", "Replace"];
            let policy = policies[wanted.template_version as usize % policies.len()];
            let job = json!({"backoffLimit": 1, "template": batch(template)});
            // Every simulated cluster starts with the first of January.
            let schedule = format!("{}-{} 0 1 1 *", CRON_MINUTES.start, CRON_MINUTES.end - 1);
            object(json!({"schedule": schedule, "timeZone": "Etc/UTC", "concurrencyPolicy": policy,
                "successfulJobsHistoryLimit": 1 + replicas, "failedJobsHistoryLimit": 1,
                "jobTemplate": {"spec": job}}))
        }
    }
}

/// The pod template of a workload with this name.
fn template(name: &str, wanted: &ObjectSpec) -> Value {
    let mut annotations = json!({});
    let mut annotate =
        |what: &str, how: &str| annotations[format!("hollow.keleustes.io/{what}")] = json!(how);
    match wanted.pods {
        PodBehaviour::Healthy => {}
        PodBehaviour::SlowStart => annotate("start-delay", "8s"),
        PodBehaviour::CrashingAtFirst => {
            annotate("crash-after", "3s");
            annotate("crash-times", "2");
        }
        PodBehaviour::Failing => annotate("exit-code", "1"),
    }
    // Only some templates of storms with quotas ask for resources, so that nothing changes in the others.
    let asks = wanted.template_version == TEMPLATE_WITH_REQUESTS;
    let requests = asks.then(|| json!({"cpu": "100m", "memory": "64Mi"}));
    let resources = requests.map_or(Value::Null, |requests| json!({"requests": requests}));
    let image = format!("any:{}", wanted.template_version);
    json!({
        "metadata": {"labels": {LABEL: name, "flavour": wanted.template_version.to_string()}, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": image, "resources": resources}],
            "terminationGracePeriodSeconds": 5},
    })
}

/// The same pod or template for a Job, whose pods are not restarted.
fn batch(mut pod: Value) -> Value {
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

/// A strategic merge patch that changes the pod template.
#[must_use]
pub fn template_patch(template_version: u32) -> Value {
    json!({"spec": {"template": {
        "metadata": {"labels": {"flavour": template_version.to_string()}},
        "spec": {"containers": [{"name": "main", "image": format!("any:{template_version}")}]},
    }}})
}

/// A pod without a controllerRef whose labels match a workload's selector; already bound if a node is
/// given.
#[must_use]
pub fn stray_pod(name: &str, number: u64, node: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("stray-{name}-{number}"), "labels": {LABEL: name}},
        "spec": {"containers": [{"name": "main", "image": "any:0"}], "terminationGracePeriodSeconds": 5,
            "nodeName": node}})
}

/// A pod whose labels match the selector of an owner, and whose controllerRef is this one.
#[must_use]
pub fn pod_controlled_by(owner: &ObjectRef, controller_ref: &Value, number: u64) -> Value {
    let mut pod = stray_pod(&owner.name, number, None);
    pod["metadata"]["ownerReferences"] = json!([controller_ref]);
    if owner.kind == Kind::Job { batch(pod) } else { pod }
}

/// A ReplicaSet with one pod whose labels match the selector of an owner, and whose controllerRef is this
/// one.
#[must_use]
pub fn replica_set_controlled_by(owner: &ObjectRef, controller_ref: &Value, number: u64) -> Value {
    let target = ObjectRef { kind: Kind::ReplicaSet, ..owner.clone() };
    let spec =
        ObjectSpec { replicas: 1, template_version: 0, pods: PodBehaviour::Healthy, alternative: false };
    let mut set = object_body(&target, &spec);
    set["metadata"]["name"] = json!(format!("stray-{}-{number}", owner.name));
    set["metadata"]["ownerReferences"] = json!([controller_ref]);
    set
}

/// The controllerRef that names this stored object.
#[must_use]
pub fn controller_ref_to(owner: &Value) -> Value {
    let meta = &owner["metadata"];
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": true, "blockOwnerDeletion": true})
}

/// A merge patch that makes a Service select the pods with this label, on this port.
#[must_use]
pub fn service_patch(name: &str, port: u16) -> Value {
    json!({"spec": {"selector": {LABEL: name}, "ports": [{"port": port}]}})
}

/// The beginning of the names of Services without a selector.
pub const CUSTOM_ENDPOINTS_PREFIX: &str = "custom-";

/// A Service without a selector, and Endpoints with one of a few sets of addresses.
#[must_use]
pub fn custom_endpoints(name: &str, number: u8) -> (Value, Value) {
    let metadata = json!({"name": name, "labels": {"by": "hand"}});
    let ip = |host: &str| json!({"ip": host});
    let port = |port: u16| json!([{"name": format!("p{port}"), "port": port}]);
    let subsets = match number {
        0 => json!([]),
        1 => json!([{"addresses": [ip("192.0.2.1")], "ports": port(80)}]),
        2 => json!([{"addresses": [ip("192.0.2.1"), ip("2001:db8::1")], "ports": port(80)}]),
        3 => json!([{"addresses": [ip("192.0.2.2")], "ports": port(80)},
                    {"notReadyAddresses": [ip("192.0.2.3")], "ports": port(81)}]),
        _ => json!([{"addresses": [ip("192.0.2.1"), ip("192.0.2.2")], "ports": port(81)},
                    {"notReadyAddresses": [ip("192.0.2.1")], "ports": port(81)}]),
    };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"ports": [{"name": "p80", "port": 80}]}});
    let endpoints =
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets});
    (service, endpoints)
}

/// A ServiceAccount.
#[must_use]
pub fn service_account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

/// The name of the token Secret of a ServiceAccount.
#[must_use]
pub fn token_secret_name(service_account: &str) -> String {
    format!("{service_account}-token")
}

/// A Secret of type `kubernetes.io/service-service_account-token_secret`.
#[must_use]
pub fn token_secret(service_account: &str) -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": service_account});
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": token_secret_name(service_account), "annotations": annotations}})
}

/// The aggregated ClusterRole.
pub const AGGREGATED_ROLE: &str = "fleet";
/// The label of the ClusterRoles that it aggregates.
const PART_OF: &str = "part-of";

/// The aggregated ClusterRole, with rules that no selected role has.
#[must_use]
pub fn aggregated_role() -> Value {
    let mut role = role_part(AGGREGATED_ROLE, 9);
    role["metadata"] = json!({"name": AGGREGATED_ROLE});
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {PART_OF: AGGREGATED_ROLE}}]});
    role
}

/// A ClusterRole that the aggregated one selects.
#[must_use]
pub fn role_part(name: &str, allows: u8) -> Value {
    let resource = format!("things{allows}");
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {PART_OF: AGGREGATED_ROLE}},
        "rules": [{"apiGroups": ["example.com"], "resources": [resource], "verbs": ["get"]}]})
}

/// A ConfigMap with these owners, each a name and a UID.
#[must_use]
pub fn config_map_owned_by(name: &str, owners: &[(&str, &str)]) -> Value {
    let reference = |(name, uid): &(&str, &str)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let owners: Vec<_> = owners.iter().map(reference).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

/// A `kube-root-ca.crt` ConfigMap with the wrong CA.
#[must_use]
pub fn replaced_root_ca() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"},
        "data": {"ca.crt": "another CA"}})
}
