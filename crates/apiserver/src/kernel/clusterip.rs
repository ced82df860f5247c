//! Services get addresses and node ports that no other Service has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Kernel;
use super::metadata::meta_str;
use super::resources::{self, Resource, Strategy};
use super::status::{FieldError, Outcome, Status};
use super::store::Stored;
use super::validation::networking;

/// How often an address or port is drawn before the whole range is searched.
const DRAWS_MAX: usize = 16;

/// Addresses for Services: a network and the number of bits it fixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    network: u32,
    size: u32,
}

impl Range {
    /// Reads `10.96.0.0/16`; `None` if it is no IPv4 range with room for addresses.
    pub fn parse(text: &str) -> Option<Range> {
        let (network, bits) = text.split_once('/')?;
        let bits: u32 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
        let size = 1_u32 << (32 - bits);
        let network = u32::from(network.parse::<Ipv4Addr>().ok()?) & !(size - 1);
        Some(Range { network, size })
    }

    /// The address the API server itself has in the cluster.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    fn holds(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.network);
        offset > 0 && offset < self.size - 1
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), 32 - self.size.trailing_zeros())
    }
}

impl Kernel {
    /// Gives a Service what it needs and has not; `old` is there for an update.
    pub(crate) fn allocate(
        &mut self,
        resource: &'static Resource,
        old: Option<&Stored>,
        object: &mut Value,
        dry_run: bool,
    ) -> Outcome<()> {
        if resource.strategy != Strategy::Service || object["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        agree_on_address(old.map(|old| &**old), object);
        let mut errors = networking::families(object);
        if errors.is_empty() {
            let given = self
                .allocate_address(resource, old, object, dry_run)
                .and_then(|()| self.allocate_ports(resource, old, object));
            errors.extend(given.err());
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid("", "Service", meta_str(object, "name"), &errors))
    }

    fn allocate_address(
        &mut self,
        resource: &'static Resource,
        old: Option<&Stored>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), FieldError> {
        let asked = object["spec"]["clusterIP"].as_str().or(object["spec"]["clusterIPs"][0].as_str());
        let kept = old.and_then(|old| old["spec"]["clusterIP"].as_str());
        let asked = asked.or(kept).unwrap_or_default().to_owned();
        let selects = object["spec"]["selector"].as_object().is_some_and(|s| !s.is_empty());
        // Who has lived with an address so far keeps it, and who has lived without one goes on so; a change is refused
        // later.
        let settled = asked == "None" || old.is_some_and(|old| old["spec"]["type"] != "ExternalName");
        let address = if settled {
            asked
        } else {
            let address = self.choose_address(resource, &asked, dry_run)?;
            if !dry_run {
                recordable(object, &asked, address)?;
            }
            address.to_string()
        };
        let spec = &mut object["spec"];
        if !address.is_empty() {
            spec["clusterIP"] = json!(address);
            spec["clusterIPs"] = json!([address]);
        }
        let (families, policy) = if address == "None" && !selects {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        for (field, value) in [("ipFamilies", families), ("ipFamilyPolicy", json!(policy))] {
            if spec.get(field).is_none_or(Value::is_null) {
                spec[field] = value;
            }
        }
        Ok(())
    }

    fn choose_address(
        &mut self,
        resource: &Resource,
        asked: &str,
        dry_run: bool,
    ) -> Result<Ipv4Addr, FieldError> {
        let range = self.settings.service_range;
        let used: BTreeSet<Ipv4Addr> = self
            .store
            .values(resource, None)
            .iter()
            .filter_map(|service| service["spec"]["clusterIP"].as_str()?.parse().ok())
            .collect();
        if !asked.is_empty() {
            let invalid = |why: &str| FieldError::invalid("spec.clusterIPs", &json!([asked]), why);
            let address: Ipv4Addr = asked.parse().map_err(|_| invalid("must be a valid IP address"))?;
            if !range.holds(address) {
                return Err(invalid("failed to allocate IP: the provided IP is not in the valid range"));
            }
            // A dry run takes nothing, so nothing is in its way.
            if used.contains(&address) && !dry_run {
                return Err(invalid(&format!(
                    "failed to allocate IP {asked}: provided IP is already allocated"
                )));
            }
            return Ok(address);
        }
        if dry_run {
            return Ok(Ipv4Addr::from(range.network));
        }
        let at = |offset: u32| Ipv4Addr::from(range.network + 1 + offset % (range.size - 2));
        let start = self.chance.below(range.size - 2);
        let drawn =
            (0..DRAWS_MAX).map(|_| at(self.chance.below(range.size - 2))).find(|ip| !used.contains(ip));
        drawn
            .or_else(|| {
                (0..range.size - 2).map(|step| at(start.wrapping_add(step))).find(|ip| !used.contains(ip))
            })
            .ok_or_else(|| {
                FieldError::invalid("spec.clusterIPs", &json!([]), "failed to allocate IP: range is full")
            })
    }

    /// The record of an address in use, which the controller of address ranges reads.
    pub(crate) fn claim_address(
        &mut self,
        resource: &Resource,
        old: Option<&Stored>,
        service: &Value,
        now: Timestamp,
    ) {
        let address = service["spec"]["clusterIP"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
        let kept = old.is_some_and(|old| old["spec"].get("clusterIP") == service["spec"].get("clusterIP"));
        let Some(address) = address.filter(|_| resource.strategy == Strategy::Service && !kept) else {
            return;
        };
        let record = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {
                "name": address.to_string(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": "IPv4",
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {"parentRef": {"resource": "services",
                "namespace": meta_str(service, "namespace"), "name": meta_str(service, "name")}},
        });
        // Cannot fail: the kind is served and the object is written out above.
        let _ = self.seed(record, now);
    }

    /// Gives back what a Service had.
    pub(crate) fn release(&mut self, service: &Value) {
        let (namespace, name) = (meta_str(service, "namespace"), meta_str(service, "name"));
        if let Some(address) = service["spec"]["clusterIP"].as_str()
            && let Some(addresses) = resources::by_path("networking.k8s.io", "v1", "ipaddresses")
        {
            self.unseed(addresses, "", address);
        }
        if let Some(endpoints) = resources::by_path("", "v1", "endpoints") {
            self.unseed(endpoints, namespace, name);
        }
    }

    fn allocate_ports(
        &mut self,
        resource: &Resource,
        old: Option<&Stored>,
        object: &mut Value,
    ) -> Result<(), FieldError> {
        let wanted = matches!(object["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"));
        if !wanted || object["spec"]["allocateLoadBalancerNodePorts"] == json!(false) {
            return Ok(());
        }
        old.into_iter().for_each(|old| keep_ports(old, object));
        let own = (meta_str(object, "namespace").to_owned(), meta_str(object, "name").to_owned());
        let others = self.store.values(resource, None);
        let mut used: BTreeSet<u16> = others
            .iter()
            .filter(|s| (meta_str(s, "namespace"), meta_str(s, "name")) != (own.0.as_str(), own.1.as_str()))
            .filter_map(|service| service["spec"]["ports"].as_array())
            .flatten()
            .filter_map(|port| u16::try_from(port["nodePort"].as_u64()?).ok())
            .collect();
        let (low, high) = self.settings.node_ports;
        // Ports of one number, which differ in the protocol, have one number on the nodes too.
        let requested = requested_ports(object);
        let mut shared: BTreeMap<i64, u16> = BTreeMap::new();
        let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for (at, port) in ports.into_iter().flatten().enumerate() {
            let field = format!("spec.ports[{at}].nodePort");
            let number = port["port"].as_i64().unwrap_or(0);
            let asked = node_port(port).or(shared.get(&number).or(requested.get(&number)).copied());
            let chosen = match asked {
                Some(asked) if shared.get(&number) == Some(&asked) => asked,
                Some(asked) if !(low..=high).contains(&asked) => {
                    let why = format!(
                        "provided port is not in the valid range. The range of valid ports is {low}-{high}"
                    );
                    return Err(FieldError::invalid(&field, &json!(asked), &why));
                }
                Some(asked) if used.contains(&asked) => {
                    return Err(FieldError::invalid(
                        &field,
                        &json!(asked),
                        "provided port is already allocated",
                    ));
                }
                Some(asked) => asked,
                None => {
                    let span = u32::from(high - low) + 1;
                    let start = self.chance.below(span);
                    let port = |step: u32| low + u16::try_from((start + step) % span).unwrap_or(0);
                    (0..span).map(port).find(|port| !used.contains(port)).ok_or_else(|| {
                        FieldError::invalid(&field, &json!(0), "failed to allocate a nodePort: range is full")
                    })?
                }
            };
            used.insert(chosen);
            shared.entry(number).or_insert(chosen);
            port["nodePort"] = json!(chosen);
        }
        Ok(())
    }
}

/// An address is recorded under the name of its Service before anybody looks at that name.
fn recordable(service: &Value, asked: &str, address: Ipv4Addr) -> Result<(), FieldError> {
    if !meta_str(service, "name").is_empty() {
        return Ok(());
    }
    let told = if asked.is_empty() { String::new() } else { format!(" {asked}") };
    let why = format!(
        "failed to allocate IP{told}: IPAddress.networking.k8s.io \"{address}\" is invalid: spec.parentRef.name: \
         Required value"
    );
    Err(FieldError::invalid("spec.clusterIPs", &json!([asked]), &why))
}

/// The two places for the address of a Service say the same.
fn agree_on_address(old: Option<&Value>, new: &mut Value) {
    let address = |service: &Value| service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let addresses = |service: &Value| service["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
    let (wanted, listed) = (address(new), addresses(new));
    let taken_over = match old {
        None => listed.is_empty(),
        Some(old) if address(old) == wanted => listed.is_empty(),
        Some(old) => addresses(old) == listed,
    };
    if taken_over {
        new["spec"]["clusterIPs"] = if wanted.is_empty() { json!([]) } else { json!([wanted]) };
    }
    if wanted.is_empty() && new["spec"]["clusterIPs"] == json!([]) {
        new["spec"].as_object_mut().and_then(|spec| spec.remove("clusterIPs"));
    }
}

/// Ports that are known by their names keep their numbers on the nodes.
fn keep_ports(old: &Value, new: &mut Value) {
    let before = old.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
    let named = node_ports(new);
    for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let known = before.iter().find(|known| known.get("name") == port.get("name"));
        let number = known.and_then(|known| known["nodePort"].as_i64()).unwrap_or(0);
        if port["nodePort"].as_i64().unwrap_or(0) == 0 && number != 0 && !named.contains(&number) {
            port["nodePort"] = json!(number);
        }
    }
}

/// A Service whose address is left out of an update keeps it.
pub(crate) fn keep_address(resource: &Resource, old: &Value, new: &mut Value) {
    if resource.strategy != Strategy::Service || new["spec"]["type"] == "ExternalName" {
        return;
    }
    let absent = |service: &Value| {
        ["clusterIP", "clusterIPs"].iter().all(|f| service["spec"].get(*f).is_none_or(Value::is_null))
    };
    if absent(new) && old["spec"]["type"] != "ExternalName" {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old["spec"].get(field) {
                new["spec"][field] = value.clone();
            }
        }
    }
}

/// Takes from a Service what its new type has no use for, unless the client changed that too.
pub(crate) fn drop_by_type(old: &Value, new: &mut Value) {
    let kind = |service: &Value| service["spec"]["type"].as_str().unwrap_or_default().to_owned();
    let (before, after) = (kind(old), kind(new));
    let external = |kind: &str| kind == "ExternalName";
    let numbered = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let balanced = |kind: &str| kind == "LoadBalancer";
    let mut gone: Vec<&str> = Vec::new();
    if !external(&before) && external(&after) {
        gone.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if networking::is_open(old) && !networking::is_open(new) {
        gone.push("externalTrafficPolicy");
    }
    if numbered(&before) && !numbered(&after) && node_ports(old) == node_ports(new) {
        for port in new.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().and_then(|port| port.remove("nodePort"));
        }
    }
    if balanced(&before) && !balanced(&after) {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]);
    }
    for field in gone {
        if old["spec"].get(field) == new["spec"].get(field) {
            new["spec"].as_object_mut().and_then(|spec| spec.remove(field));
        }
    }
    if !balanced(&after) && new["status"].is_object() {
        new["status"]["loadBalancer"] = json!({});
    }
}

/// The first number on the nodes that is asked for, by the number of the port.
fn requested_ports(service: &Value) -> BTreeMap<i64, u16> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let asked = ports.into_iter().flatten().rev();
    asked.filter_map(|port| Some((port["port"].as_i64()?, node_port(port)?))).collect()
}

fn node_port(port: &Value) -> Option<u16> {
    port["nodePort"].as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    ports.into_iter().flatten().map(|port| port["nodePort"].as_i64().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_bounded() {
        let range = Range::parse("10.96.0.7/16").unwrap();
        assert_eq!(range.first().to_string(), "10.96.0.1");
        assert_eq!(range.to_string(), "10.96.0.0/16");
        assert!(range.holds("10.96.255.254".parse().unwrap()));
        assert!(!range.holds("10.96.255.255".parse().unwrap()));
        assert!(!range.holds("10.96.0.0".parse().unwrap()));
        assert!(!range.holds("10.95.0.1".parse().unwrap()));
        for wrong in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/2", "fd00::/108", "x/16"] {
            assert_eq!(Range::parse(wrong), None, "{wrong}");
        }
    }
}
