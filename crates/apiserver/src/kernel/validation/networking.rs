//! Validation of Services, Ingresses, NetworkPolicies and endpoints.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::naming;
use super::super::status::FieldError;
use super::{Errors, is_set, list, refuse_text, rules, text};

pub(super) fn service(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let kind = text(new, "/spec/type");
    let headless = *list(new, "/spec/clusterIPs") == [json!("None")];
    let ports = list(new, "/spec/ports");
    if ports.is_empty() && kind != "ExternalName" && !headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match kind {
        "ExternalName" => external_name(new, errors),
        "LoadBalancer" | "NodePort" if headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!("None"), &why));
        }
        _ => {}
    }
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = &port["name"];
        if ports.len() > 1 && text(port, "/name").is_empty() {
            errors.push(FieldError::required(&format!("{path}.name"), ""));
        } else if !text(port, "/name").is_empty() && ports[..at].iter().any(|other| other["name"] == *name) {
            errors.push(FieldError::duplicate(&format!("{path}.name"), name));
        }
        let same = |other: &Value| other["protocol"] == port["protocol"] && other["port"] == port["port"];
        if ports[..at].iter().any(same) {
            let printed = json!({"port": port["port"], "protocol": port["protocol"]});
            errors.push(FieldError::duplicate(&path, &printed));
        }
        let on_nodes =
            |other: &Value| other["protocol"] == port["protocol"] && other["nodePort"] == port["nodePort"];
        if port["nodePort"].as_i64().unwrap_or(0) != 0 && ports[..at].iter().any(on_nodes) {
            errors.push(FieldError::duplicate(&format!("{path}.nodePort"), &port["nodePort"]));
        }
        target_port(&path, port, errors);
    }
    for (at, address) in list(new, "/spec/externalIPs").iter().enumerate() {
        external_address(&format!("spec.externalIPs[{at}]"), address.as_str().unwrap_or_default(), errors);
    }
    balancer_fields(kind, new, errors);
    if kind != "LoadBalancer" && is_set(new, "/spec/allocateLoadBalancerNodePorts") {
        let why = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", why));
    }
    if kind != "ExternalName" {
        errors.extend(families(new));
    }
    if let Some(old) = old {
        cluster_address(old, new, errors);
        balancer_update(old, new, errors);
    }
}

/// Whether the Service is externally accessible.
pub(crate) fn is_externally_accessible(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, "/spec/externalIPs").is_empty(),
        _ => false,
    }
}

/// Whether the load balancer checks the health of each node of the Service.
pub(crate) fn needs_health_check_node_port(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
}

fn external_name(new: &Value, errors: &mut Errors) {
    let name = text(new, "/spec/externalName");
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else {
        refuse_text("spec.externalName", name, &naming::subdomain(name.trim_end_matches('.')), errors);
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if is_set(new, &format!("/spec/{field}")) {
            let why = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(&format!("spec.{field}"), why));
        }
    }
}

fn target_port(path: &str, port: &Value, errors: &mut Errors) {
    match &port["targetPort"] {
        Value::String(name) => {
            refuse_text(&format!("{path}.targetPort"), name, &naming::port_name(name), errors);
        }
        Value::Number(number) => {
            for message in naming::port_number(number.as_i64().unwrap_or(0)) {
                errors.push(FieldError::invalid(
                    &format!("{path}.targetPort"),
                    &port["targetPort"],
                    &message,
                ));
            }
        }
        _ => {}
    }
}

/// A valid external IP.
fn external_address(path: &str, text: &str, errors: &mut Errors) {
    let Ok(address) = text.parse::<IpAddr>() else {
        return errors.push(FieldError::invalid(path, &json!(text), "must be a valid IP address"));
    };
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    for (wrong, why) in [
        (address.is_unspecified(), format!("may not be unspecified ({text})")),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (
            address.is_multicast(),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ] {
        errors.extend(wrong.then(|| FieldError::invalid(path, &json!(text), &why)));
    }
}

/// Fields for load balancers and external traffic.
fn balancer_fields(kind: &str, new: &Value, errors: &mut Errors) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let balanced = kind == "LoadBalancer";
    if !list(new, "/spec/loadBalancerSourceRanges").is_empty() {
        if !balanced {
            errors.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", only));
        }
        for (at, range) in list(new, "/spec/loadBalancerSourceRanges").iter().enumerate() {
            let range = range.as_str().unwrap_or_default();
            refuse_text(&format!("spec.LoadBalancerSourceRanges[{at}]"), range, &naming::cidr(range), errors);
        }
    }
    match new.pointer("/spec/loadBalancerClass").and_then(Value::as_str) {
        Some(class) if balanced => {
            refuse_text("spec.loadBalancerClass", class, &naming::qualified(class), errors);
        }
        Some(_) => errors.push(FieldError::forbidden("spec.loadBalancerClass", only)),
        None => {}
    }
    let policy = text(new, "/spec/externalTrafficPolicy");
    if !is_externally_accessible(new) && !policy.is_empty() {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", &json!(policy), why));
    } else if !matches!(policy, "" | "Cluster" | "Local") {
        let supported = "\"Cluster\", \"Local\"";
        errors.push(FieldError::not_supported("spec.externalTrafficPolicy", policy, supported));
    }
    let check = new.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    let field = "spec.healthCheckNodePort";
    match (needs_health_check_node_port(new), check) {
        (false, 0) => {}
        (false, _) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(field, &json!(check), why));
        }
        (true, 0) => errors.push(FieldError::required(field, "")),
        (true, _) => {
            let messages = naming::port_number(check);
            errors.extend(messages.iter().map(|message| FieldError::invalid(field, &json!(check), message)));
        }
    }
}

/// Fields that are immutable while the Service has a load balancer or a health check node port.
fn balancer_update(old: &Value, new: &Value, errors: &mut Errors) {
    let same = |field: &str| old["spec"].get(field) == new["spec"].get(field);
    let balanced = |service: &Value| text(service, "/spec/type") == "LoadBalancer";
    if balanced(old) && balanced(new) && !same("loadBalancerClass") {
        let class = &new["spec"]["loadBalancerClass"];
        errors.push(FieldError::invalid("spec.loadBalancerClass", class, "may not change once set"));
    }
    if needs_health_check_node_port(old) && needs_health_check_node_port(new) && !same("healthCheckNodePort")
    {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
}

/// Consistency of cluster IPs and families; checked first.
pub(crate) fn families(new: &Value) -> Errors {
    let mut errors = Errors::new();
    let (address, addresses) = (text(new, "/spec/clusterIP"), list(new, "/spec/clusterIPs"));
    let printed = &new["spec"]["clusterIPs"];
    match addresses.first() {
        None if !address.is_empty() => errors.push(FieldError::required("spec.clusterIPs", "")),
        Some(first) if !address.is_empty() && *first != address => {
            errors.push(FieldError::invalid(
                "spec.clusterIPs",
                printed,
                "first value must match `clusterIP`",
            ));
        }
        Some(_) if address.is_empty() => {
            let why = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid("spec.clusterIPs", printed, why));
        }
        _ => {}
    }
    let families = list(new, "/spec/ipFamilies");
    for (at, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{at}]");
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            let word = family.as_str().unwrap_or_default();
            errors.push(FieldError::not_supported(&field, word, "\"IPv4\", \"IPv6\""));
        }
        if families[..at].contains(family) {
            errors.push(FieldError::duplicate(&field, family));
        }
    }
    let policy = text(new, "/spec/ipFamilyPolicy");
    if !matches!(policy, "" | "SingleStack" | "PreferDualStack" | "RequireDualStack") {
        let supported = "\"PreferDualStack\", \"RequireDualStack\", \"SingleStack\"";
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", policy, supported));
    }
    for (at, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
        if at > 0 || address != "None" {
            refuse_text(&format!("spec.clusterIPs[{at}]"), address, &naming::ip(address), &mut errors);
        }
    }
    for (at, (address, family)) in addresses.iter().filter_map(Value::as_str).zip(families).enumerate() {
        let Ok(parsed) = address.parse::<IpAddr>() else { continue };
        let wanted = family.as_str().unwrap_or_default();
        if (wanted == "IPv4" && parsed.is_ipv6()) || (wanted == "IPv6" && parsed.is_ipv4()) {
            let why = format!("expected an {wanted} value as indicated by `ipFamilies[{at}]`");
            errors.push(FieldError::invalid(&format!("spec.clusterIPs[{at}]"), &json!(address), &why));
        }
    }
    errors
}

fn cluster_address(old: &Value, new: &Value, errors: &mut Errors) {
    let external = |object: &Value| text(object, "/spec/type") == "ExternalName";
    if external(old) || external(new) {
        return;
    }
    let before = text(old, "/spec/clusterIP");
    let (families, known) = (list(new, "/spec/ipFamilies"), list(old, "/spec/ipFamilies"));
    let headless = [old, new].iter().any(|service| text(service, "/spec/clusterIP") == "None");
    if !headless && families.len() == known.len() && families != known {
        errors.push(FieldError::invalid("spec.ipFamilies[0]", &json!(families), "may not change once set"));
    }
    if !before.is_empty() && before != text(new, "/spec/clusterIP") {
        let value = json!([text(new, "/spec/clusterIP")]);
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &value, "may not change once set"));
    }
}

pub(super) fn ingress(new: &Value, errors: &mut Errors) {
    let rules = list(new, "/spec/rules");
    if rules.is_empty() && !is_set(new, "/spec/defaultBackend") {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", new["spec"].get("rules").unwrap_or(&Value::Null), why));
    }
    if is_set(new, "/spec/defaultBackend") {
        backend("spec.defaultBackend", &new["spec"]["defaultBackend"], errors);
    }
    for (at, rule) in rules.iter().enumerate() {
        let paths = list(rule, "/http/paths");
        if is_set(rule, "/http") && paths.is_empty() {
            errors.push(FieldError::required(&format!("spec.rules[{at}].http.paths"), ""));
        }
        for (number, path) in paths.iter().enumerate() {
            let place = format!("spec.rules[{at}].http.paths[{number}]");
            let kind = text(path, "/pathType");
            if !matches!(kind, "Exact" | "Prefix" | "ImplementationSpecific") {
                let supported = "\"Exact\", \"ImplementationSpecific\", \"Prefix\"";
                errors.push(FieldError::not_supported(&format!("{place}.pathType"), kind, supported));
            } else if kind != "ImplementationSpecific" && !text(path, "/path").starts_with('/') {
                errors.push(FieldError::invalid(
                    &format!("{place}.path"),
                    &path["path"],
                    "must be an absolute path",
                ));
            }
            backend(&format!("{place}.backend"), &path["backend"], errors);
        }
    }
}

fn backend(path: &str, backend: &Value, errors: &mut Errors) {
    match (is_set(backend, "/resource"), is_set(backend, "/service")) {
        (true, true) => {
            errors.push(FieldError::invalid(
                path,
                &json!(""),
                "cannot set both resource and service backends",
            ));
        }
        (false, false) => {
            errors.push(FieldError::invalid(path, &json!(""), "resource or service backend is required"));
        }
        (true, false) => {}
        (false, true) => {
            let port = &backend["service"]["port"];
            let number = port["number"].as_i64().unwrap_or(0);
            if text(backend, "/service/name").is_empty() {
                errors.push(FieldError::required(&format!("{path}.service.name"), ""));
            }
            if number == 0 && text(port, "/name").is_empty() {
                errors.push(FieldError::required(path, "port name or number is required"));
            }
        }
    }
}

pub(super) fn ingress_class(new: &Value, errors: &mut Errors) {
    let scope = text(new, "/spec/parameters/scope");
    let namespaced = is_set(new, "/spec/parameters/namespace");
    if scope == "Namespace" && !namespaced {
        let why = "`parameters.scope` is set to 'Namespace'";
        errors.push(FieldError::required("spec.parameters.namespace", why));
    }
    if scope == "Cluster" && namespaced {
        let why = "`parameters.scope` is set to 'Cluster'";
        errors.push(FieldError::forbidden("spec.parameters.namespace", why));
    }
}

pub(super) fn network_policy(new: &Value, errors: &mut Errors) {
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (at, rule) in list(new, &format!("/spec/{direction}")).iter().enumerate() {
            let path = format!("spec.{direction}[{at}]");
            for (number, port) in list(rule, "/ports").iter().enumerate() {
                policy_port(&format!("{path}.ports[{number}]"), port, errors);
            }
            for (number, peer) in list(rule, &format!("/{peers}")).iter().enumerate() {
                policy_peer(&format!("{path}.{peers}[{number}]"), peer, errors);
            }
        }
    }
}

fn policy_port(path: &str, port: &Value, errors: &mut Errors) {
    match &port["port"] {
        Value::Number(number) => {
            for message in naming::port_number(number.as_i64().unwrap_or(0)) {
                errors.push(FieldError::invalid(&format!("{path}.port"), &port["port"], &message));
            }
        }
        Value::String(name) => refuse_text(&format!("{path}.port"), name, &naming::port_name(name), errors),
        _ => {}
    }
}

fn policy_peer(path: &str, peer: &Value, errors: &mut Errors) {
    let selectors = ["podSelector", "namespaceSelector"];
    let mut parts = usize::from(is_set(peer, "/ipBlock"));
    for name in selectors {
        if let Some(selector) = peer.get(name).filter(|selector| selector.is_object()) {
            parts += 1;
            rules::selector(&format!("{path}.{name}"), selector, errors);
        }
    }
    if parts == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    }
    if is_set(peer, "/ipBlock") {
        let range = text(peer, "/ipBlock/cidr");
        refuse_text(&format!("{path}.ipBlock.cidr"), range, &naming::cidr(range), errors);
    }
}

pub(super) fn endpoints(new: &Value, errors: &mut Errors) {
    for (at, subset) in list(new, "/subsets").iter().enumerate() {
        let path = format!("subsets[{at}]");
        if list(subset, "/addresses").is_empty() && list(subset, "/notReadyAddresses").is_empty() {
            errors.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (number, address) in list(subset, &format!("/{field}")).iter().enumerate() {
                let (path, ip) = (format!("{path}.{field}[{number}].ip"), text(address, "/ip"));
                refuse_text(&path, ip, &naming::ip(ip), errors);
                external_address(&path, ip, errors);
            }
        }
        let ports = list(subset, "/ports");
        for (number, port) in ports.iter().enumerate() {
            if ports.len() > 1 && text(port, "/name").is_empty() {
                errors.push(FieldError::required(&format!("{path}.ports[{number}].name"), ""));
            }
            if port["port"].as_i64().unwrap_or(0) == 0 {
                let why = "must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(&format!("{path}.ports[{number}].port"), &json!(0), why));
            }
        }
    }
}

pub(super) fn endpoint_slice(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let kind = text(new, "/addressType");
    let unchanged = old.is_some_and(|old| old["endpoints"] == new["endpoints"]);
    for (at, endpoint) in list(new, "/endpoints").iter().enumerate().filter(|_| !unchanged) {
        let path = format!("endpoints[{at}].addresses");
        for (number, address) in list(endpoint, "/addresses").iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            match (kind, address.parse::<IpAddr>()) {
                ("FQDN", _) => {
                    let messages = naming::subdomain(address);
                    if messages.is_empty() && !address.contains('.') {
                        let why = "should be a domain with at least two segments separated by dots";
                        let field = format!("{path}[{number}]");
                        errors.push(FieldError::invalid(&field, &json!(address), why));
                    }
                    refuse_text(&path, address, &messages, errors);
                }
                ("IPv4" | "IPv6", Err(_)) => {
                    refuse_text(&format!("{path}[{number}]"), address, &naming::ip(address), errors);
                }
                ("IPv4", Ok(IpAddr::V6(_))) => {
                    errors.push(FieldError::invalid(&path, &json!(address), "must be an IPv4 address"));
                }
                ("IPv6", Ok(IpAddr::V4(_))) => {
                    errors.push(FieldError::invalid(&path, &json!(address), "must be an IPv6 address"));
                }
                _ => {}
            }
        }
    }
    let ports = list(new, "/ports");
    for (at, port) in ports.iter().enumerate().skip(1) {
        // Unnamed ports must be unique by protocol and number.
        if text(port, "/name").is_empty() && ports[..at].iter().any(|other| text(other, "/name").is_empty()) {
            errors.push(FieldError::duplicate(&format!("ports[{at}].name"), &json!("")));
        }
    }
}
