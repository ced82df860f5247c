//! Warnings about accepted objects.

use std::collections::BTreeSet;

use serde_json::Value;

use super::metadata::{STANDARD_FINALIZERS, finalizers};
use super::resources::{Resource, Strategy};

/// Warnings about an object before it is stored.
pub(crate) fn for_object(resource: &Resource, old: Option<&Value>, new: &Value) -> Vec<String> {
    match resource.strategy {
        Strategy::Service => service(new),
        Strategy::EndpointSlice if new["addressType"] == "FQDN" && old.is_none() => {
            vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()]
        }
        Strategy::CsiDriver => driver(old, new),
        Strategy::Custom => finalizer_names(old, new),
        Strategy::PersistentVolume if new["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" => {
            let warning = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                           recommended approach is to use dynamic provisioning.";
            vec![warning.to_owned()]
        }
        Strategy::Pod => pod("spec", &new["spec"]),
        Strategy::PodTemplate => pod("template.spec", &new["template"]["spec"]),
        Strategy::CronJob => pod(
            "spec.jobTemplate.spec.template.spec",
            &new["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        ),
        Strategy::Deployment
        | Strategy::ReplicaSet
        | Strategy::StatefulSet
        | Strategy::DaemonSet
        | Strategy::Job
        | Strategy::ReplicationController => pod("spec.template.spec", &new["spec"]["template"]["spec"]),
        _ => Vec::new(),
    }
}

/// Warnings about a resource, for every request to it.
pub(crate) fn for_kind(resource: &Resource) -> Option<String> {
    (resource.strategy == Strategy::Endpoints)
        .then(|| "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
}

fn service(new: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &new["spec"];
    let headless = spec["clusterIP"] == "None";
    let external = spec["externalIPs"].as_array().is_some_and(|addresses| !addresses.is_empty());
    if headless && external {
        warnings.push("spec.externalIPs is ignored for headless services".to_owned());
    }
    if headless && spec["sessionAffinity"] != "None" {
        warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
    }
    let named = spec["type"] == "ExternalName";
    if external && !headless && !named {
        let warning = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(warning.to_owned());
    }
    if external && named {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !named && spec.get("externalName").is_some_and(|name| *name != "") {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        let warning = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(warning.to_owned());
    }
    warnings
}

fn driver(old: Option<&Value>, new: &Value) -> Vec<String> {
    let same = old.is_some_and(|old| old["spec"].get("tokenRequests") == new["spec"].get("tokenRequests"));
    let asks = new["spec"]["tokenRequests"].as_array().is_some_and(|requests| !requests.is_empty());
    if !asks || same || new["spec"].get("serviceAccountTokenInSecrets").is_some() {
        return Vec::new();
    }
    let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                   possible logging of tokens in volume attributes";
    vec![warning.to_owned()]
}

fn finalizer_names(old: Option<&Value>, new: &Value) -> Vec<String> {
    let known = old.map(finalizers).unwrap_or_default();
    let added: BTreeSet<&str> = finalizers(new).into_iter().filter(|name| !known.contains(name)).collect();
    let plain = added.into_iter().filter(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(name));
    let warning = |name: &str| {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts \
             with other finalizer writers"
        )
    };
    plain.map(warning).collect()
}

fn pod(path: &str, spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (at, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        if constraint.get("labelSelector").is_none_or(Value::is_null) {
            let place = format!("{path}.topologySpreadConstraints[{at}].labelSelector");
            warnings.push(format!("{place}: a null labelSelector results in matching no pod"));
        }
    }
    let mut ports = Vec::new();
    for field in ["initContainers", "containers"] {
        for (at, container) in list(spec, field).iter().enumerate() {
            let place = format!("{path}.{field}[{at}]");
            variables(&place, container, &mut warnings);
            let numbered = list(container, "ports").iter().enumerate();
            ports.extend(numbered.map(|(number, port)| (format!("{place}.ports[{number}]"), port)));
        }
    }
    for (at, (place, port)) in ports.iter().enumerate() {
        let others =
            ports[..at].iter().filter_map(|(other, known)| Some((other, port_conflict(known, port)?)));
        warnings.extend(others.map(|(other, what)| format!("{place}: {what} port definition with {other}")));
    }
    for (at, (place, port)) in ports.iter().enumerate() {
        let namesake = ports[..at].iter().find(|(_, known)| known["name"] == port["name"]);
        if let Some((other, _)) = namesake.filter(|_| port["name"].is_string()) {
            warnings.push(format!(
                "{place}: duplicate port name {} with {other}, services and probes that select ports by name will use \
                 {other}",
                port["name"]
            ));
        }
    }
    affinities(path, spec, &mut warnings);
    warnings
}

/// Affinity terms without a label selector.
fn affinities(path: &str, spec: &Value, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list_name, below) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", ".podAffinityTerm"),
        ] {
            for (at, term) in list(&spec["affinity"][kind], list_name).iter().enumerate() {
                let term = if below.is_empty() { term } else { &term["podAffinityTerm"] };
                if !term["labelSelector"].is_object() {
                    let place = format!("{path}.affinity.{kind}.{list_name}[{at}]{below}.labelSelector");
                    warnings.push(format!("{place}: a null labelSelector results in matching no pod"));
                }
            }
        }
    }
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// Duplicate environment variables, unless the later one refers to the earlier one.
fn variables(place: &str, container: &Value, warnings: &mut Vec<String>) {
    let variables = list(container, "env");
    for (at, variable) in variables.iter().enumerate() {
        let known = variables[..at].iter().any(|other| other["name"] == variable["name"]);
        let value = variable["value"].as_str().unwrap_or_default();
        let reference = format!("$({})", variable["name"].as_str().unwrap_or_default());
        let builds_on_it =
            variable.get("valueFrom").is_none() && value != reference && value.contains(&reference);
        if known && !builds_on_it {
            warnings.push(format!(
                "{place}.env[{at}]: hides previous definition of {}, which may be dropped when using apply",
                variable["name"]
            ));
        }
    }
}

/// How two ports of a pod conflict, if they do.
fn port_conflict(known: &Value, port: &Value) -> Option<&'static str> {
    if (&known["containerPort"], &known["protocol"]) != (&port["containerPort"], &port["protocol"]) {
        return None;
    }
    let host = |port: &Value| {
        (port["hostIP"].as_str().unwrap_or_default().to_owned(), port["hostPort"].as_i64().unwrap_or(0))
    };
    match (host(known), host(port)) {
        (known, port) if known == port => Some("duplicate"),
        ((_, 0), _) | (_, (_, 0)) => Some("overlapping"),
        ((one, number), (other, again)) if number == again && one.is_empty() != other.is_empty() => {
            Some("dangerously ambiguous")
        }
        _ => None,
    }
}
