//! Allocates cluster IPs for Services.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Kernel;
use super::metadata::{is_terminating, meta_str};
use super::nodeports;
use super::options::DeleteOptions;
use super::resources::{self, Resource, Strategy};
use super::status::{ApiResult, FieldError, Status};
use super::store::SharedObject;
use super::validation::networking;

/// Random attempts before the whole range is searched.
const DRAWS_MAX: usize = 16;
/// The ServiceCIDR of the configured range.
const DEFAULT_SERVICE_CIDR: &str = "kubernetes";
const NOT_READY: &str = "allocator not ready";

/// The service CIDR: network address and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    network: u32,
    size: u32,
}

impl Range {
    /// Parses `10.96.0.0/16`; `None` if the text is not an IPv4 range with usable addresses.
    pub fn parse(text: &str) -> Option<Range> {
        let (network, bits) = text.split_once('/')?;
        let bits: u32 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
        let size = 1_u32 << (32 - bits);
        let network = u32::from(network.parse::<Ipv4Addr>().ok()?) & !(size - 1);
        Some(Range { network, size })
    }

    /// The first address, which belongs to the `kubernetes` Service.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// How many addresses at the beginning are for requests of a certain address.
    fn static_band(self) -> u32 {
        if self.size <= 16 { 0 } else { (self.size / 16).clamp(16, 256) }
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.network);
        offset > 0 && offset < self.size - 1
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), 32 - self.size.trailing_zeros())
    }
}

/// The IP fields of a Service's spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ServiceIps {
    address: String,
    addresses: Vec<String>,
    families: Vec<String>,
    policy: String,
}

impl ServiceIps {
    fn of(service: &Value) -> ServiceIps {
        let text = |field: &str| service["spec"][field].as_str().unwrap_or_default().to_owned();
        let list = |field: &str| {
            let items = service["spec"][field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        ServiceIps {
            address: text("clusterIP"),
            addresses: list("clusterIPs"),
            families: list("ipFamilies"),
            policy: text("ipFamilyPolicy"),
        }
    }

    fn put(&self, service: &mut Value) {
        let text = |text: &str| Some(json!(text)).filter(|_| !text.is_empty());
        let list = |list: &[String]| Some(json!(list)).filter(|_| !list.is_empty());
        let Some(spec) = service["spec"].as_object_mut() else { return };
        for (field, value) in [
            ("clusterIP", text(&self.address)),
            ("clusterIPs", list(&self.addresses)),
            ("ipFamilies", list(&self.families)),
            ("ipFamilyPolicy", text(&self.policy)),
        ] {
            match value {
                Some(value) => drop(spec.insert(field.to_owned(), value)),
                None => drop(spec.remove(field)),
            }
        }
    }

    fn is_headless(&self) -> bool {
        self.addresses.first().is_some_and(|address| address == "None")
    }

    /// Keeps the old addresses that the client left out.
    fn keep_missing_from(&mut self, old: &ServiceIps) {
        if self.address.is_empty() {
            self.address.clone_from(&old.address);
        }
        if self.addresses.is_empty() {
            self.addresses.clone_from(&old.addresses);
        }
    }

    /// Makes clusterIPs match clusterIP if the client has changed only clusterIP.
    fn sync_addresses(&mut self, old: Option<&ServiceIps>) {
        let changed = match old {
            None => self.addresses.is_empty(),
            Some(old) => self.address != old.address && self.addresses == old.addresses,
        };
        if changed {
            let address = Some(self.address.clone()).filter(|address| !address.is_empty());
            self.addresses = address.into_iter().collect();
        }
    }

    /// Sets ipFamilyPolicy and ipFamilies; this cluster is single-stack.
    fn set_families(
        &mut self,
        selects: bool,
        old: Option<&ServiceIps>,
        service: &mut Value,
    ) -> Vec<FieldError> {
        let unbound = self.address == "None" && !selects;
        if self.policy.is_empty() {
            let known = old.map(|old| old.policy.clone()).filter(|policy| !policy.is_empty());
            let first = if unbound { "RequireDualStack" } else { "SingleStack" };
            self.policy = known.unwrap_or_else(|| first.to_owned());
        }
        self.put(service);
        let mut errors = networking::families(service);
        if !errors.is_empty() {
            return errors;
        }
        if let Some(old) = old {
            self.release_secondary(old, &mut errors);
        }
        if self.policy == "SingleStack" {
            let several = [("cluster IPs", self.addresses.len()), ("IP families", self.families.len())];
            for (what, _) in several.into_iter().filter(|(_, count)| *count > 1) {
                let why = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.push(FieldError::invalid("spec.ipFamilyPolicy", &json!(self.policy), &why));
            }
        }
        self.infer_families(&mut errors);
        if unbound && errors.is_empty() {
            if self.families.is_empty() {
                self.families.push("IPv4".to_owned());
            }
            if self.families.len() == 1 && self.policy != "SingleStack" {
                let other = if self.families[0] == "IPv4" { "IPv6" } else { "IPv4" };
                self.families.push(other.to_owned());
            }
        } else if errors.is_empty() {
            errors = self.dual_stack_errors();
            if self.families.is_empty() {
                self.families.push("IPv4".to_owned());
            }
        }
        errors
    }

    /// A secondary address or family is released only with policy SingleStack.
    fn release_secondary(&mut self, old: &ServiceIps, errors: &mut Vec<FieldError>) {
        let single = self.policy == "SingleStack";
        let policy = json!(self.policy);
        for (own, before, what) in [
            (&mut self.addresses, &old.addresses, "cluster IP"),
            (&mut self.families, &old.families, "IP family"),
        ] {
            if single && own == before {
                own.truncate(1);
            } else if !single && !own.is_empty() && own.len() < before.len() {
                let why = format!("must be 'SingleStack' to release the secondary {what}");
                errors.push(FieldError::invalid("spec.ipFamilyPolicy", &policy, &why));
            }
        }
    }

    /// Derives missing families from the addresses.
    fn infer_families(&mut self, errors: &mut Vec<FieldError>) {
        for (at, address) in self.addresses.iter().enumerate().take_while(|(_, address)| *address != "None") {
            if at < self.families.len() {
                continue;
            }
            if address.contains(':') {
                let field = format!("spec.clusterIPs[{at}]");
                let why = "IPv6 is not configured on this cluster";
                errors.push(FieldError::invalid(&field, &json!(self.addresses), why));
            } else {
                self.families.push("IPv4".to_owned());
            }
        }
    }

    /// Errors for requests that need a dual-stack cluster.
    fn dual_stack_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.policy == "RequireDualStack" {
            let why = "this cluster is not configured for dual-stack services";
            errors.push(FieldError::invalid("spec.ipFamilyPolicy", &json!(self.policy), why));
        }
        for (at, family) in self.families.iter().enumerate().filter(|(_, family)| *family == "IPv6") {
            let field = format!("spec.ipFamilies[{at}]");
            errors.push(FieldError::invalid(&field, &json!(family), "not configured on this cluster"));
        }
        errors
    }
}

impl Kernel {
    /// Allocates addresses and node ports for a Service; `old` is given for an update.
    pub(crate) fn allocate(
        &mut self,
        resource: &'static Resource,
        old: Option<&SharedObject>,
        object: &mut Value,
        dry_run: bool,
    ) -> ApiResult<()> {
        if resource.strategy != Strategy::Service {
            return Ok(());
        }
        let old = old.map(|old| &**old);
        self.allocate_address(resource, old, object, dry_run)?;
        self.allocate_ports(resource, old, object, dry_run)
    }

    fn allocate_address(
        &mut self,
        resource: &'static Resource,
        old: Option<&Value>,
        object: &mut Value,
        dry_run: bool,
    ) -> ApiResult<()> {
        let name = meta_str(object, "name").to_owned();
        let invalid = |errors: &[FieldError]| Status::invalid("", "Service", &name, errors);
        let mut ips = ServiceIps::of(object);
        let external = |service: &Value| service["spec"]["type"] == "ExternalName";
        let before = old.map(|old| {
            let mut ips = ServiceIps::of(old);
            // A seeded Service may have only one of the two fields.
            ips.sync_addresses(None);
            ips
        });
        // An ExternalName Service has no addresses to keep.
        let previous = before.as_ref().filter(|_| !old.is_some_and(external));
        if let Some(previous) = previous.filter(|_| !external(object)) {
            ips.keep_missing_from(previous);
        }
        ips.sync_addresses(before.as_ref());
        if external(object) {
            ips.put(object);
            return Ok(());
        }
        let same_type = old.is_some_and(|old| old["spec"]["type"] == object["spec"]["type"]);
        // PreferDualStack on a single-stack cluster stays as it is when nothing else changes.
        let matching = ips.policy == "PreferDualStack"
            && previous.is_some_and(|old| {
                matches!(old.policy.as_str(), "" | "PreferDualStack")
                    && (&old.addresses, &old.families) == (&ips.addresses, &ips.families)
            });
        if same_type && matching {
            ips.put(object);
            return Ok(());
        }
        let selects = object["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty());
        let errors = ips.set_families(selects, before.as_ref(), object);
        if !errors.is_empty() {
            return Err(invalid(&errors));
        }
        // An existing Service keeps its address, or stays headless; validation rejects a change later.
        if previous.is_none() && !ips.is_headless() {
            let requested = ips.addresses.first().cloned().unwrap_or_default();
            let chosen = match requested.as_str() {
                "" => self.draw_any_address(resource, dry_run),
                requested => self.check_requested_address(resource, requested, dry_run),
            };
            let address = chosen.map_err(|error| match error {
                IpError::Full => Status::internal(format!(
                    "failed to allocate a serviceIP for Service {name:?}: range is full"
                )),
                IpError::Refused(why) => {
                    let value = json!([requested]);
                    invalid(&[FieldError::invalid("spec.clusterIPs", &value, &why)])
                }
            })?;
            if !dry_run {
                check_parent_name(object, &requested, address).map_err(|error| invalid(&[error]))?;
            }
            ips.address = address.to_string();
            ips.addresses = vec![address.to_string()];
        }
        ips.put(object);
        Ok(())
    }

    /// Checks that a requested address can be allocated.
    fn check_requested_address(
        &self,
        services: &Resource,
        requested: &str,
        dry_run: bool,
    ) -> Result<Ipv4Addr, IpError> {
        let refused = |why: &str| IpError::Refused(format!("failed to allocate IP {requested}: {why}"));
        let address: Ipv4Addr =
            requested.parse().map_err(|_| IpError::Refused("must be a valid IP address".to_owned()))?;
        let ranges = self.service_ranges();
        if !ranges.iter().any(|range| range.contains(address)) {
            return Err(refused(&match ranges.first().filter(|_| dry_run) {
                Some(range) => format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}"
                ),
                None if dry_run => NOT_READY.to_owned(),
                None => "the provided network does not match the current range".to_owned(),
            }));
        }
        // A dry run allocates nothing, so an allocated address is no conflict.
        if !dry_run && self.allocated_addresses(services).contains(&address) {
            return Err(refused("provided IP is already allocated"));
        }
        Ok(address)
    }

    /// A free address of any range.
    fn draw_any_address(&mut self, services: &Resource, dry_run: bool) -> Result<Ipv4Addr, IpError> {
        let ranges = self.service_ranges();
        if dry_run {
            let first = ranges.first().map(|range| Ipv4Addr::from(range.network));
            return first.ok_or_else(|| IpError::Refused(format!("failed to allocate IP: {NOT_READY}")));
        }
        let allocated = self.allocated_addresses(services);
        ranges.into_iter().find_map(|range| self.draw_address(range, &allocated)).ok_or(IpError::Full)
    }

    /// The addresses that have an IPAddress, of the allocator or of a user. A Service without one counts as if it had one: the
    /// repair controller of kube-apiserver creates it.
    fn allocated_addresses(&self, services: &Resource) -> BTreeSet<Ipv4Addr> {
        let records = ip_addresses().map(|resource| self.store.values(resource, None)).unwrap_or_default();
        let records = records.iter().filter_map(|record| meta_str(record, "name").parse().ok());
        let services = self.store.values(services, None);
        let services =
            services.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()?.parse().ok());
        records.chain(services).collect()
    }

    /// The ranges that addresses are allocated from: those of the ServiceCIDRs that are ready and not terminating. The
    /// configured range counts as ready as long as its ServiceCIDR does not exist, because kube-apiserver creates it.
    fn service_ranges(&self) -> Vec<Range> {
        let objects = resources::by_path("networking.k8s.io", "v1", "servicecidrs");
        let objects = objects.map(|resource| self.store.values(resource, None)).unwrap_or_default();
        let is_missing = !objects.iter().any(|object| meta_str(object, "name") == DEFAULT_SERVICE_CIDR);
        let mut ranges: Vec<Range> = is_missing.then_some(self.options.service_range).into_iter().collect();
        for object in objects.iter().filter(|object| is_ready(object)) {
            let cidrs = object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for range in cidrs.filter_map(Range::parse) {
                if !ranges.contains(&range) {
                    ranges.push(range);
                }
            }
        }
        // The configured range is used first.
        ranges.sort_by_key(|range| *range != self.options.service_range);
        ranges
    }

    /// A free address of a range, at random; `None` if it is full. The lower band is for requested addresses and is used
    /// last.
    fn draw_address(&mut self, range: Range, used: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let (usable, band) = (range.size - 2, range.static_band());
        let upper = self.draw_between(range, band..usable, used);
        upper.or_else(|| self.draw_between(range, 0..band, used))
    }

    fn draw_between(
        &mut self,
        range: Range,
        offsets: std::ops::Range<u32>,
        used: &BTreeSet<Ipv4Addr>,
    ) -> Option<Ipv4Addr> {
        let (first, count) = (range.network + 1 + offsets.start, offsets.end - offsets.start);
        if count == 0 {
            return None;
        }
        let start = self.random.below(count);
        let drawn = (0..DRAWS_MAX)
            .map(|_| Ipv4Addr::from(first + self.random.below(count)))
            .find(|ip| !used.contains(ip));
        let at = |step: u32| Ipv4Addr::from(first + (start + step) % count);
        drawn.or_else(|| (0..count).map(at).find(|ip| !used.contains(ip)))
    }

    /// Creates the IPAddress object for an allocated address, which the ServiceCIDR controller reads. A Service that
    /// becomes an ExternalName Service releases its address.
    pub(crate) fn claim_address(
        &mut self,
        resource: &Resource,
        old: Option<&SharedObject>,
        service: &Value,
        now: Timestamp,
    ) {
        let address = service["spec"]["clusterIP"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
        let unchanged =
            old.is_some_and(|old| old["spec"].get("clusterIP") == service["spec"].get("clusterIP"));
        if resource.strategy != Strategy::Service || unchanged {
            return;
        }
        let Some(address) = address else {
            old.into_iter().for_each(|old| self.release_address(old, now));
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
        // Cannot fail: the kind is served and the object is valid.
        let _ = self.seed(record, now);
    }

    /// Releases the address of a deleted Service and deletes its Endpoints.
    pub(crate) fn release(&mut self, service: &Value, now: Timestamp) {
        self.release_address(service, now);
        if let Some(endpoints) = resources::by_path("", "v1", "endpoints") {
            self.remove_object(endpoints, meta_str(service, "namespace"), meta_str(service, "name"));
        }
    }

    /// Deletes the IPAddress of a Service.
    fn release_address(&mut self, service: &Value, now: Timestamp) {
        if let Some(address) = service["spec"]["clusterIP"].as_str()
            && let Some(addresses) = ip_addresses()
        {
            // As kube-apiserver, which ignores that it is already deleted.
            let _ = self.delete_one(addresses, "", address, &DeleteOptions::default(), now);
        }
    }
}

/// Why no address was allocated.
enum IpError {
    /// All ranges are full.
    Full,
    /// The error of `spec.clusterIPs`.
    Refused(String),
}

fn ip_addresses() -> Option<&'static Resource> {
    resources::by_path("networking.k8s.io", "v1", "ipaddresses")
}

/// Whether addresses are allocated from a ServiceCIDR. Without a Ready condition it counts as ready, so that clusters
/// without a controller manager can allocate.
fn is_ready(service_cidr: &Value) -> bool {
    let mut conditions = service_cidr["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    !is_terminating(service_cidr) && ready.is_none_or(|condition| condition["status"] == "True")
}

/// kube-apiserver creates the IPAddress before it validates the Service's name, so a missing name fails here.
fn check_parent_name(service: &Value, requested: &str, address: Ipv4Addr) -> Result<(), FieldError> {
    if !meta_str(service, "name").is_empty() {
        return Ok(());
    }
    let suffix = if requested.is_empty() { String::new() } else { format!(" {requested}") };
    let why = format!(
        "failed to allocate IP{suffix}: IPAddress.networking.k8s.io \"{address}\" is invalid: spec.parentRef.name: \
         Required value"
    );
    Err(FieldError::invalid("spec.clusterIPs", &json!([requested]), &why))
}

/// Clears fields that the new type does not use, unless the client changed them too.
pub(crate) fn drop_by_type(old: &Value, new: &mut Value) {
    let kind = |service: &Value| service["spec"]["type"].as_str().unwrap_or_default().to_owned();
    let (before, after) = (kind(old), kind(new));
    let external = |kind: &str| kind == "ExternalName";
    let balanced = |kind: &str| kind == "LoadBalancer";
    let mut cleared: Vec<&[&str]> = Vec::new();
    if !external(&before) && external(&after) {
        cleared.extend([&["clusterIP", "clusterIPs"][..], &["ipFamilies"], &["ipFamilyPolicy"]]);
    }
    if networking::is_externally_accessible(old) && !networking::is_externally_accessible(new) {
        cleared.push(&["externalTrafficPolicy"]);
    }
    if networking::needs_health_check_node_port(old) && !networking::needs_health_check_node_port(new) {
        cleared.push(&["healthCheckNodePort"]);
    }
    if balanced(&before) && !balanced(&after) {
        cleared.extend([&["allocateLoadBalancerNodePorts"][..], &["loadBalancerClass"]]);
    }
    for fields in cleared {
        let same = |field: &&str| old["spec"].get(*field) == new["spec"].get(*field);
        if fields.iter().all(same)
            && let Some(spec) = new["spec"].as_object_mut()
        {
            fields.iter().for_each(|field| drop(spec.remove(*field)));
        }
    }
    nodeports::drop_by_type(old, new);
    if !balanced(&after) && new["status"].is_object() {
        new["status"]["loadBalancer"] = json!({});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ranges_are_parsed_and_bounded() {
        let range = Range::parse("10.96.0.7/16").unwrap();
        assert_eq!(range.first().to_string(), "10.96.0.1");
        assert_eq!(range.to_string(), "10.96.0.0/16");
        assert!(range.contains("10.96.255.254".parse().unwrap()));
        assert!(!range.contains("10.96.255.255".parse().unwrap()));
        assert!(!range.contains("10.96.0.0".parse().unwrap()));
        assert!(!range.contains("10.95.0.1".parse().unwrap()));
        let band = |text: &str| Range::parse(text).unwrap().static_band();
        assert_eq!(["10.0.0.0/28", "10.0.0.0/27", "10.0.0.0/22", "10.0.0.0/8"].map(band), [0, 16, 64, 256]);
        for wrong in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/2", "fd00::/108", "x/16"] {
            assert_eq!(Range::parse(wrong), None, "{wrong}");
        }
    }
}
