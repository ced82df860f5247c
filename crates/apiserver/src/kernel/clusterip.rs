//! Services get addresses and node ports that no other Service has.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Kernel;
use super::metadata::meta_str;
use super::resources::{self, Resource, Strategy};
use super::status::{FieldError, Outcome, Status};
use super::store::Stored;

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
        now: Timestamp,
    ) -> Outcome<()> {
        if resource.strategy != Strategy::Service {
            return Ok(());
        }
        let name = meta_str(object, "name").to_owned();
        let refuse = |error| Err(Status::invalid("", "Service", &name, &[error]));
        if object["spec"]["type"] == "ExternalName" {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
            {
                object["spec"].as_object_mut().and_then(|spec| spec.remove(field));
            }
            return Ok(());
        }
        if let Err(error) = self.allocate_address(resource, old, object, dry_run, now) {
            return refuse(error);
        }
        if let Err(error) = self.allocate_ports(resource, object) {
            return refuse(error);
        }
        Ok(())
    }

    fn allocate_address(
        &mut self,
        resource: &'static Resource,
        old: Option<&Stored>,
        object: &mut Value,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<(), FieldError> {
        let asked = object["spec"]["clusterIP"].as_str().or(object["spec"]["clusterIPs"][0].as_str());
        let kept = old.and_then(|old| old["spec"]["clusterIP"].as_str());
        let asked = asked.or(kept).unwrap_or_default().to_owned();
        let selects = object["spec"]["selector"].as_object().is_some_and(|s| !s.is_empty());
        let settled = asked == "None" || (kept == Some(asked.as_str()) && !asked.is_empty());
        let address = if settled {
            asked
        } else {
            let address = self.choose_address(resource, &asked)?;
            if !dry_run {
                self.claim_address(address, object, now);
            }
            address.to_string()
        };
        let spec = &mut object["spec"];
        spec["clusterIP"] = json!(address);
        spec["clusterIPs"] = json!([address]);
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

    fn choose_address(&mut self, resource: &Resource, asked: &str) -> Result<Ipv4Addr, FieldError> {
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
            if used.contains(&address) {
                return Err(invalid(&format!(
                    "failed to allocate IP {asked}: provided IP is already allocated"
                )));
            }
            return Ok(address);
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
    fn claim_address(&mut self, address: Ipv4Addr, service: &Value, now: Timestamp) {
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

    fn allocate_ports(&mut self, resource: &Resource, object: &mut Value) -> Result<(), FieldError> {
        let wanted = matches!(object["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"));
        if !wanted || object["spec"]["allocateLoadBalancerNodePorts"] == json!(false) {
            if !wanted {
                for port in
                    object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten()
                {
                    port.as_object_mut().and_then(|port| port.remove("nodePort"));
                }
            }
            return Ok(());
        }
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
        let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for (at, port) in ports.into_iter().flatten().enumerate() {
            let field = format!("spec.ports[{at}].nodePort");
            let asked = port["nodePort"].as_u64().and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0);
            let chosen = match asked {
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
            port["nodePort"] = json!(chosen);
        }
        Ok(())
    }
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
