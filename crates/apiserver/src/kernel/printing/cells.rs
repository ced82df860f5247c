//! Table cells that need more than a JSON pointer, for all kinds but pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::metadata::{meta, meta_str};
use super::text::{age, duration, joined, labels, none_if_empty, selector as selector_text};

fn word<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The text of a string or number.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn pod_template(object: &Value) -> &Value {
    let places = ["/spec/jobTemplate/spec/template", "/spec/template", "/template"];
    places.iter().find_map(|place| object.pointer(place)).unwrap_or(&Value::Null)
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    json!(joined(pod_template(object), "/spec/containers", "name"))
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    json!(joined(pod_template(object), "/spec/containers", "image"))
}

pub(super) fn template_labels(object: &Value, _: Timestamp) -> Value {
    json!(labels(pod_template(object).pointer("/metadata/labels")))
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    json!(selector_text(object.pointer("/spec/selector")))
}

pub(super) fn plain_selector(object: &Value, _: Timestamp) -> Value {
    json!(labels(object.pointer("/spec/selector")))
}

pub(super) fn job_selector(object: &Value, _: Timestamp) -> Value {
    json!(selector_text(object.pointer("/spec/jobTemplate/spec/selector")))
}

pub(super) fn pod_selector(object: &Value, _: Timestamp) -> Value {
    json!(selector_text(object.pointer("/spec/podSelector")))
}

pub(super) fn node_selector(object: &Value, _: Timestamp) -> Value {
    json!(labels(object.pointer("/spec/template/spec/nodeSelector")))
}

pub(super) fn data(object: &Value, _: Timestamp) -> Value {
    let size = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    json!(size("data") + size("binaryData"))
}

/// The first three of the texts, and how many more there are.
fn first_three(all: &[String]) -> String {
    if all.is_empty() {
        return "<none>".to_owned();
    }
    let printed = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    if all.len() > 3 { format!("{printed} + {} more...", all.len() - 3) } else { printed }
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let ports: Vec<&Value> = list(subset, "/ports").collect();
        for address in list(subset, "/addresses") {
            let ip = address["ip"].as_str().unwrap_or_default();
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{ip}:{}", number(port, "/port"))));
        }
    }
    let any = list(object, "/subsets").next().is_some();
    json!(if any && all.is_empty() { String::new() } else { first_three(&all) })
}

pub(super) fn slice_ports(object: &Value, _: Timestamp) -> Value {
    let all: Vec<String> =
        list(object, "/ports").map(|p| plain(p.get("port").unwrap_or(&json!("*")))).collect();
    json!(if all.is_empty() { "<unset>".to_owned() } else { first_three(&all) })
}

pub(super) fn slice_endpoints(object: &Value, _: Timestamp) -> Value {
    let all: Vec<String> =
        list(object, "/endpoints").flat_map(|e| list(e, "/addresses")).map(plain).collect();
    json!(if all.is_empty() { "<unset>".to_owned() } else { first_three(&all) })
}

pub(super) fn last_seen(event: &Value, now: Timestamp) -> Value {
    let last = word(event, "/lastTimestamp");
    match event.get("series") {
        Some(Value::Object(_)) => json!(age(word(event, "/series/lastObservedTime"), now)),
        _ if last.is_empty() => first_seen(event, now),
        _ => json!(age(last, now)),
    }
}

pub(super) fn first_seen(event: &Value, now: Timestamp) -> Value {
    let first = word(event, "/firstTimestamp");
    json!(age(if first.is_empty() { word(event, "/eventTime") } else { first }, now))
}

pub(super) fn event_count(event: &Value, _: Timestamp) -> Value {
    match number(event, "/count") {
        _ if event["series"].is_object() => json!(number(event, "/series/count")),
        0 => json!(1),
        count => json!(count),
    }
}

pub(super) fn involved(event: &Value, _: Timestamp) -> Value {
    let kind = word(event, "/involvedObject/kind").to_lowercase();
    let name = word(event, "/involvedObject/name");
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

pub(super) fn message(event: &Value, _: Timestamp) -> Value {
    json!(word(event, "/message").trim())
}

pub(super) fn event_source(event: &Value, _: Timestamp) -> Value {
    let or = |first: &'static str, second: &'static str| {
        let found = word(event, first);
        if found.is_empty() { word(event, second) } else { found }
    };
    let component = or("/source/component", "/reportingComponent");
    let host = or("/source/host", "/reportingInstance");
    json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
}

pub(super) fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = list(node, "/status/conditions").find(|c| c["type"] == "Ready");
    let mut status = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

pub(super) fn node_roles(node: &Value, _: Timestamp) -> Value {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in meta(node, "labels").and_then(Value::as_object).into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            roles.push(role);
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str());
        }
    }
    roles.sort_unstable();
    json!(none_if_empty(roles.join(",")))
}

fn address(node: &Value, kind: &str) -> Value {
    let found = list(node, "/status/addresses").find(|a| a["type"] == kind);
    found.map_or_else(|| json!("<none>"), |a| a["address"].clone())
}

pub(super) fn internal_address(node: &Value, _: Timestamp) -> Value {
    address(node, "InternalIP")
}

pub(super) fn external_address(node: &Value, _: Timestamp) -> Value {
    address(node, "ExternalIP")
}

fn known(node: &Value, pointer: &str) -> Value {
    let text = word(node, pointer);
    json!(if text.is_empty() { "<unknown>" } else { text })
}

pub(super) fn os_image(node: &Value, _: Timestamp) -> Value {
    known(node, "/status/nodeInfo/osImage")
}

pub(super) fn kernel_version(node: &Value, _: Timestamp) -> Value {
    let kernel = known(node, "/status/nodeInfo/kernelVersion");
    match (kernel.as_str(), word(node, "/status/nodeInfo/architecture")) {
        (Some(kernel), architecture) if !architecture.is_empty() => {
            json!(format!("{kernel} ({architecture})"))
        }
        _ => kernel,
    }
}

pub(super) fn container_runtime(node: &Value, _: Timestamp) -> Value {
    known(node, "/status/nodeInfo/containerRuntimeVersion")
}

fn access_modes(object: &Value, pointer: &str) -> String {
    let mut short: Vec<&str> = list(object, pointer)
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        })
        .collect();
    short.dedup();
    short.join(",")
}

pub(super) fn claim_status(object: &Value, _: Timestamp) -> Value {
    let terminating = meta(object, "deletionTimestamp").is_some();
    json!(if terminating { "Terminating" } else { word(object, "/status/phase") })
}

pub(super) fn claim_capacity(claim: &Value, _: Timestamp) -> Value {
    let bound = !word(claim, "/spec/volumeName").is_empty();
    let capacity = word(claim, "/status/capacity/storage");
    json!(match (bound, capacity) {
        (false, _) => "",
        (true, "") => "0",
        (true, capacity) => capacity,
    })
}

pub(super) fn claim_modes(claim: &Value, _: Timestamp) -> Value {
    let bound = !word(claim, "/spec/volumeName").is_empty();
    json!(if bound { access_modes(claim, "/status/accessModes") } else { String::new() })
}

pub(super) fn volume_modes(volume: &Value, _: Timestamp) -> Value {
    json!(access_modes(volume, "/spec/accessModes"))
}

pub(super) fn volume_claim(volume: &Value, _: Timestamp) -> Value {
    let name = word(volume, "/spec/claimRef/name");
    json!(if name.is_empty() {
        String::new()
    } else {
        format!("{}/{name}", word(volume, "/spec/claimRef/namespace"))
    })
}

fn quota(object: &Value, limits: bool) -> Value {
    let hard = object.pointer("/status/hard").and_then(Value::as_object);
    let parts: Vec<String> = hard
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = object.pointer("/status/used").and_then(|used| used.get(name));
            format!("{name}: {}/{}", used.map_or("0".to_owned(), plain), plain(hard))
        })
        .collect();
    json!(parts.join(", "))
}

pub(super) fn quota_requests(object: &Value, _: Timestamp) -> Value {
    quota(object, false)
}

pub(super) fn quota_limits(object: &Value, _: Timestamp) -> Value {
    quota(object, true)
}

pub(super) fn external_ip(service: &Value, _: Timestamp) -> Value {
    let given = list(service, "/spec/externalIPs").map(plain).collect::<Vec<_>>().join(",");
    json!(match word(service, "/spec/type") {
        "ExternalName" => word(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let addresses: Vec<&str> = list(service, "/status/loadBalancer/ingress")
                .filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str()))
                .collect();
            let mut all = addresses.join(",");
            if !given.is_empty() {
                all = if all.is_empty() { given } else { format!("{all},{given}") };
            }
            if all.is_empty() { "<pending>".to_owned() } else { all }
        }
        _ => none_if_empty(given),
    })
}

pub(super) fn service_ports(service: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = list(service, "/spec/ports")
        .map(|port| {
            let node = number(port, "/nodePort");
            let (number, protocol) = (number(port, "/port"), word(port, "/protocol"));
            if node > 0 { format!("{number}:{node}/{protocol}") } else { format!("{number}/{protocol}") }
        })
        .collect();
    json!(none_if_empty(ports.join(",")))
}

pub(super) fn controller(object: &Value, _: Timestamp) -> Value {
    let owners = meta(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owner = owners.into_iter().find(|owner| owner["controller"] == true);
    json!(owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group = word(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = word(owner, "/kind").to_lowercase();
            let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
            format!("{kind}/{}", word(owner, "/name"))
        }
    ))
}

pub(super) fn ready_of_desired(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")))
}

pub(super) fn backing_service(object: &Value, _: Timestamp) -> Value {
    let name = word(object, "/spec/service/name");
    json!(if name.is_empty() {
        "Local".to_owned()
    } else {
        format!("{}/{name}", word(object, "/spec/service/namespace"))
    })
}

pub(super) fn available(object: &Value, _: Timestamp) -> Value {
    let condition = list(object, "/status/conditions").find(|c| c["type"] == "Available");
    json!(condition.map_or_else(
        || "Unknown".to_owned(),
        |c| match c["status"].as_str() {
            Some("True") => "True".to_owned(),
            status => format!("{} ({})", status.unwrap_or("Unknown"), word(c, "/reason")),
        }
    ))
}

pub(super) fn scale_target(object: &Value, _: Timestamp) -> Value {
    json!(format!(
        "{}/{}",
        word(object, "/spec/scaleTargetRef/kind"),
        word(object, "/spec/scaleTargetRef/name")
    ))
}

pub(super) fn min_pods(object: &Value, _: Timestamp) -> Value {
    json!(object.pointer("/spec/minReplicas").map_or("<unset>".to_owned(), plain))
}

pub(super) fn scale_metrics(object: &Value, _: Timestamp) -> Value {
    let current: Vec<&Value> = list(object, "/status/currentMetrics").collect();
    let mut texts: Vec<String> = Vec::new();
    for (at, metric) in list(object, "/spec/metrics").enumerate() {
        let kind = word(metric, "/type");
        let field = match kind {
            "Resource" => "resource",
            "ContainerResource" => "containerResource",
            "Pods" => "pods",
            "Object" => "object",
            _ => "external",
        };
        let target = &metric[field]["target"];
        let seen = current.get(at).map_or(&Value::Null, |c| &c[field]["current"]);
        let amount = |value: &Value| value.as_str().map_or("<unknown>".to_owned(), str::to_owned);
        let text = match target["averageUtilization"].as_i64() {
            Some(wanted) => {
                let seen = seen["averageUtilization"].as_i64();
                let seen = seen.map_or("<unknown>".to_owned(), |percent| format!("{percent}%"));
                format!("{seen}/{wanted}%")
            }
            None if target["averageValue"].is_string() => {
                format!("{}/{}", amount(&seen["averageValue"]), amount(&target["averageValue"]))
            }
            None => format!("{}/{}", amount(&seen["value"]), amount(&target["value"])),
        };
        texts.push(match metric[field]["name"].as_str() {
            Some(name) => format!("{name}: {text}"),
            None => text,
        });
    }
    let more = texts.len().saturating_sub(2);
    let printed = texts.into_iter().take(2).collect::<Vec<_>>().join(", ");
    json!(none_if_empty(if more > 0 { format!("{printed} + {more} more...") } else { printed }))
}

pub(super) fn job_status(job: &Value, _: Timestamp) -> Value {
    let holds =
        |kind: &str| list(job, "/status/conditions").any(|c| c["type"] == kind && c["status"] == "True");
    json!(if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if meta(job, "deletionTimestamp").is_some() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    })
}

pub(super) fn completions(job: &Value, _: Timestamp) -> Value {
    let done = number(job, "/status/succeeded");
    json!(match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{done}/{wanted}"),
        None => {
            let parallelism = number(job, "/spec/parallelism");
            if parallelism > 1 { format!("{done}/1 of {parallelism}") } else { format!("{done}/1") }
        }
    })
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> Value {
    let time = |pointer: &str| word(job, pointer).parse::<Timestamp>().ok();
    json!(match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => duration(end.unwrap_or(now).as_second() - start.as_second()),
    })
}

pub(super) fn suspended(object: &Value, _: Timestamp) -> Value {
    json!(if object.pointer("/spec/suspend") == Some(&json!(true)) { "True" } else { "False" })
}

pub(super) fn last_schedule(object: &Value, now: Timestamp) -> Value {
    let last = word(object, "/status/lastScheduleTime");
    json!(if last.is_empty() { "<none>".to_owned() } else { age(last, now) })
}

pub(super) fn requested_duration(object: &Value, _: Timestamp) -> Value {
    let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    json!(seconds.map_or("<none>".to_owned(), duration))
}

pub(super) fn request_condition(object: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| list(object, "/status/conditions").any(|c| c["type"] == kind);
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !word(object, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    json!(status)
}

/// The last decision of a PodCertificateRequest.
pub(super) fn pod_request_state(object: &Value, _: Timestamp) -> Value {
    let decisions = list(object, "/status/conditions").filter_map(|condition| condition["type"].as_str());
    let decision = decisions.filter(|kind| matches!(*kind, "Issued" | "Denied" | "Failed")).last();
    json!(decision.unwrap_or("Pending"))
}

pub(super) fn pod_request_annotations(object: &Value, _: Timestamp) -> Value {
    json!(labels(object.pointer("/spec/unverifiedUserAnnotations")))
}

pub(super) fn class_parameters(object: &Value, _: Timestamp) -> Value {
    let kind = word(object, "/spec/parameters/kind");
    let group = word(object, "/spec/parameters/apiGroup");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    json!(if kind.is_empty() {
        "<none>".to_owned()
    } else {
        format!("{kind}/{}", word(object, "/spec/parameters/name"))
    })
}

pub(super) fn hosts(ingress: &Value, _: Timestamp) -> Value {
    let hosts: Vec<&str> =
        list(ingress, "/spec/rules").filter_map(|r| r["host"].as_str()).filter(|h| !h.is_empty()).collect();
    let more = hosts.len().saturating_sub(3);
    let printed = hosts.iter().take(3).copied().collect::<Vec<_>>().join(",");
    json!(match (printed.as_str(), more) {
        ("", _) => "*".to_owned(),
        (_, 0) => printed,
        _ => format!("{printed} + {more} more..."),
    })
}

pub(super) fn ingress_address(ingress: &Value, _: Timestamp) -> Value {
    let all = list(ingress, "/status/loadBalancer/ingress");
    json!(all.filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str())).collect::<Vec<_>>().join(","))
}

pub(super) fn ingress_ports(ingress: &Value, _: Timestamp) -> Value {
    json!(if list(ingress, "/spec/tls").next().is_some() { "80, 443" } else { "80" })
}

pub(super) fn parent(object: &Value, _: Timestamp) -> Value {
    let [group, resource, namespace, name] =
        ["group", "resource", "namespace", "name"].map(|f| word(object, &format!("/spec/parentRef/{f}")));
    let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let qualified = qualified.to_lowercase();
    let parts = [qualified.as_str(), namespace, name];
    json!(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/"))
}

pub(super) fn ranges(object: &Value, _: Timestamp) -> Value {
    json!(list(object, "/spec/cidrs").map(plain).collect::<Vec<_>>().join(","))
}

pub(super) fn min_available(object: &Value, _: Timestamp) -> Value {
    json!(object.pointer("/spec/minAvailable").map_or("N/A".to_owned(), plain))
}

pub(super) fn max_unavailable(object: &Value, _: Timestamp) -> Value {
    json!(object.pointer("/spec/maxUnavailable").map_or("N/A".to_owned(), plain))
}

pub(super) fn role(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", word(object, "/roleRef/kind"), word(object, "/roleRef/name")))
}

fn subjects(object: &Value, kind: &str) -> Value {
    let all = list(object, "/subjects").filter(|s| s["kind"] == kind).map(|s| match kind {
        "ServiceAccount" => format!("{}/{}", word(s, "/namespace"), word(s, "/name")),
        _ => word(s, "/name").to_owned(),
    });
    json!(all.collect::<Vec<_>>().join(", "))
}

pub(super) fn users(object: &Value, _: Timestamp) -> Value {
    subjects(object, "User")
}

pub(super) fn groups(object: &Value, _: Timestamp) -> Value {
    subjects(object, "Group")
}

pub(super) fn accounts(object: &Value, _: Timestamp) -> Value {
    subjects(object, "ServiceAccount")
}

pub(super) fn token_requests(object: &Value, _: Timestamp) -> Value {
    let audiences = joined(object, "/spec/tokenRequests", "audience");
    json!(if audiences.is_empty() { "<unset>".to_owned() } else { audiences })
}

pub(super) fn volume_lifecycle_modes(object: &Value, _: Timestamp) -> Value {
    json!(list(object, "/spec/volumeLifecycleModes").map(plain).collect::<Vec<_>>().join(","))
}

pub(super) fn class_name(object: &Value, _: Timestamp) -> Value {
    let default = meta(object, "annotations")
        .is_some_and(|a| a["storageclass.kubernetes.io/is-default-class"] == "true");
    let name = meta_str(object, "name");
    json!(if default { format!("{name} (default)") } else { name.to_owned() })
}

pub(super) fn param_kind(object: &Value, _: Timestamp) -> Value {
    let kind = word(object, "/spec/paramKind/kind");
    json!(if kind.is_empty() {
        "<unset>".to_owned()
    } else {
        format!("{}/{kind}", word(object, "/spec/paramKind/apiVersion"))
    })
}

pub(super) fn param_ref(object: &Value, _: Timestamp) -> Value {
    let name = word(object, "/spec/paramRef/name");
    let namespace = word(object, "/spec/paramRef/namespace");
    json!(match (name, namespace) {
        ("", _) => "<unset>".to_owned(),
        (name, "") => name.to_owned(),
        (name, namespace) => format!("{namespace}/{name}"),
    })
}

pub(super) fn claim_state(claim: &Value, _: Timestamp) -> Value {
    let mut states: Vec<&str> = Vec::new();
    if meta(claim, "deletionTimestamp").is_some() {
        states.push("deleted");
    }
    if claim.pointer("/status/allocation").is_some() {
        states.push("allocated");
    } else if states.is_empty() {
        states.push("pending");
    }
    if list(claim, "/status/reservedFor").next().is_some() {
        states.push("reserved");
    }
    json!(states.join(","))
}

pub(super) fn taint_age(object: &Value, now: Timestamp) -> Value {
    json!(age(word(object, "/spec/taint/timeAdded"), now))
}

pub(super) fn migrated_resource(migration: &Value, _: Timestamp) -> Value {
    let (resource, group) =
        (word(migration, "/spec/resource/resource"), word(migration, "/spec/resource/group"));
    if group.is_empty() { json!(resource) } else { json!(format!("{resource}.{group}")) }
}

/// The last of a migration's conditions that is true.
pub(super) fn migration_status(migration: &Value, _: Timestamp) -> Value {
    let known = |condition: &&Value| {
        condition["status"] == "True"
            && ["Running", "Succeeded", "Failed"].iter().any(|one| condition["type"] == *one)
    };
    let last = list(migration, "/status/conditions").filter(known).last();
    last.map_or_else(|| json!("Unknown"), |condition| condition["type"].clone())
}

pub(super) fn versions(object: &Value, _: Timestamp) -> Value {
    let all = list(object, "/spec/versions").map(|version| {
        let mark = match (version["storage"] == true, version["served"] == true) {
            (true, true) => "(storage)",
            (true, false) => "(storage,unserved)",
            (false, false) => "(unserved)",
            (false, true) => "",
        };
        format!("{}{mark}", word(version, "/name"))
    });
    json!(all.collect::<Vec<_>>().join(","))
}

pub(super) fn short_names(object: &Value, _: Timestamp) -> Value {
    json!(list(object, "/spec/names/shortNames").map(plain).collect::<Vec<_>>().join(","))
}

pub(super) fn established(object: &Value, _: Timestamp) -> Value {
    json!(list(object, "/status/conditions").any(|c| c["type"] == "Established" && c["status"] == "True"))
}

pub(super) fn missing_level(object: &Value, _: Timestamp) -> Value {
    let dangling = list(object, "/status/conditions").find(|c| c["type"] == "Dangling");
    json!(dangling.map_or("?", |c| c["status"].as_str().unwrap_or("?")))
}
