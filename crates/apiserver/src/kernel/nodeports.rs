//! Allocates node ports for Services.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Kernel;
use super::metadata::meta_str;
use super::random::Random;
use super::resources::Resource;
use super::status::{ApiResult, FieldError, Status, StatusReason};
use super::validation::networking;

/// In a dry run allocated ports count up from the number after this one.
const LAST_PORT: u16 = 32_768;
/// One in this many ports is in the lower band, which static requests use.
const PORTS_PER_BAND_PORT: u32 = 32;
/// Minimum and maximum size of the lower band.
const LOWER_BAND_BOUNDS: (u32, u32) = (16, 128);

/// The ports allocated by one write.
struct PortAllocation<'a> {
    range: (u16, u16),
    used: BTreeSet<u16>,
    taken: Vec<u16>,
    dry_run: bool,
    random: &'a mut Random,
}

impl PortAllocation<'_> {
    fn take(&mut self, port: u16) -> Result<(), String> {
        let (low, high) = self.range;
        // A dry run has no allocator, so the range is not checked.
        if !self.dry_run && !(low..=high).contains(&port) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {low}-{high}"
            ));
        }
        if !self.used.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        self.taken.push(port);
        Ok(())
    }

    fn draw(&mut self) -> ApiResult<u16> {
        let port =
            if self.dry_run { Some(self.taken.iter().max().unwrap_or(&LAST_PORT) + 1) } else { self.free() };
        let port =
            port.ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full".to_owned()))?;
        self.used.insert(port);
        self.taken.push(port);
        Ok(port)
    }

    /// A random free port; from the lower band, which is for static requests, only if no other is free.
    fn free(&mut self) -> Option<u16> {
        let (low, high) = self.range;
        let span = u32::from(high.saturating_sub(low)) + 1;
        let (least, most) = LOWER_BAND_BOUNDS;
        let band = if span > least { (span / PORTS_PER_BAND_PORT).clamp(least, most) } else { 0 };
        let start = self.random.below(span - band);
        let drawn = (0..span - band).map(|step| band + (start + step) % (span - band));
        let mut ports = drawn.chain(0..band).filter_map(|offset| Some(low + u16::try_from(offset).ok()?));
        ports.find(|port| !self.used.contains(port))
    }
}

impl Kernel {
    /// Allocates the node ports and the health check node port of a Service that needs them.
    pub(crate) fn allocate_ports(
        &mut self,
        resource: &Resource,
        old: Option<&Value>,
        object: &mut Value,
        dry_run: bool,
    ) -> ApiResult<()> {
        let services = self.store.values(resource, None);
        let used = services.iter().flat_map(|service| {
            let ports = ports(service).iter().filter_map(node_port);
            ports.chain(health_check_node_port(service)).collect::<Vec<u16>>()
        });
        let mut allocation = PortAllocation {
            range: self.options.node_ports,
            used: used.collect(),
            taken: Vec::new(),
            dry_run,
            random: &mut self.random,
        };
        match old {
            _ if !needs_node_ports(object) => {}
            None => allocate_new(&mut allocation, object)?,
            Some(old) => {
                if needs_node_ports(old) {
                    keep_node_ports(old, object);
                }
                allocate_changed(&mut allocation, old, object)?;
            }
        }
        allocate_health_check(&mut allocation, old, object)
    }
}

/// Allocates node ports for a new Service. Ports with the same number and different protocols share one node port.
fn allocate_new(allocation: &mut PortAllocation<'_>, service: &mut Value) -> ApiResult<()> {
    let name = meta_str(service, "name").to_owned();
    let (allocates, requested) = (allocates_node_ports(service), requested_ports(service));
    let mut shared: BTreeMap<i64, u16> = BTreeMap::new();
    for (at, port) in ports_mut(service).enumerate() {
        let own = node_port(port);
        if own.is_none() && !allocates {
            continue;
        }
        let number = port["port"].as_i64().unwrap_or(0);
        let known = shared.get(&number).copied();
        let wanted = if known.is_some() {
            own.filter(|own| Some(*own) != known)
        } else {
            requested.get(&number).copied()
        };
        let chosen = match (wanted, known) {
            (Some(wanted), _) => {
                allocation.take(wanted).map_err(|why| invalid_node_port(&name, at, wanted, &why))?;
                wanted
            }
            (None, Some(known)) => known,
            (None, None) => allocation.draw()?,
        };
        shared.entry(number).or_insert(chosen);
        port["nodePort"] = json!(chosen);
    }
    Ok(())
}

/// Allocates node ports for the ports that are new in an update.
fn allocate_changed(allocation: &mut PortAllocation<'_>, old: &Value, service: &mut Value) -> ApiResult<()> {
    let name = meta_str(service, "name").to_owned();
    let mut previous = node_ports(old);
    let allocates = allocates_node_ports(service);
    let mut known: Vec<(Value, u16)> = Vec::new();
    for (at, port) in ports_mut(service).enumerate() {
        let chosen = match node_port(port) {
            None if !allocates => continue,
            None => allocation.draw()?,
            Some(wanted) => {
                if previous.insert(wanted) {
                    allocation.take(wanted).map_err(|why| invalid_node_port(&name, at, wanted, &why))?;
                }
                wanted
            }
        };
        port["nodePort"] = json!(chosen);
        let protocol = port["protocol"].clone();
        if known.contains(&(protocol.clone(), chosen)) {
            let message =
                format!("duplicate nodePort: {{{} {chosen}}}", protocol.as_str().unwrap_or_default());
            return Err(Status::new(StatusReason::Unknown, message));
        }
        known.push((protocol, chosen));
    }
    Ok(())
}

/// Allocates the health check node port of a LoadBalancer Service with externalTrafficPolicy Local.
fn allocate_health_check(
    allocation: &mut PortAllocation<'_>,
    old: Option<&Value>,
    service: &mut Value,
) -> ApiResult<()> {
    if !networking::needs_health_check_node_port(service) {
        return Ok(());
    }
    let wanted = health_check_node_port(service);
    if let Some(old) = old.filter(|old| networking::needs_health_check_node_port(old)) {
        if let Some(previous) = health_check_node_port(old).filter(|_| wanted.is_none()) {
            service["spec"]["healthCheckNodePort"] = json!(previous);
        }
        return Ok(());
    }
    match wanted {
        Some(wanted) => allocation.take(wanted).map_err(|why| {
            Status::internal(format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}"))
        }),
        None => {
            service["spec"]["healthCheckNodePort"] = json!(allocation.draw()?);
            Ok(())
        }
    }
}

/// Keeps the node ports of ports with the same name.
fn keep_node_ports(old: &Value, new: &mut Value) {
    let unchanged: BTreeSet<u16> = node_ports(old).intersection(&node_ports(new)).copied().collect();
    let by_name = ports(old).iter().map(|port| (port.get("name").cloned(), node_port(port)));
    let by_name: Vec<(Option<Value>, Option<u16>)> = by_name.collect();
    for port in ports_mut(new).filter(|port| node_port(port).is_none()) {
        let known = by_name.iter().rev().find(|(name, _)| name.as_ref() == port.get("name"));
        if let Some(number) =
            known.and_then(|(_, number)| *number).filter(|number| !unchanged.contains(number))
        {
            port["nodePort"] = json!(number);
        }
    }
}

/// Clears node ports that the new type does not use, unless the client set new ones.
pub(crate) fn drop_by_type(old: &Value, new: &mut Value) {
    if needs_node_ports(old) && !needs_node_ports(new) && node_ports(old).is_superset(&node_ports(new)) {
        for port in ports_mut(new) {
            port.as_object_mut().and_then(|port| port.remove("nodePort"));
        }
    }
}

fn invalid_node_port(name: &str, at: usize, port: u16, why: &str) -> Box<Status> {
    let error = FieldError::invalid(&format!("spec.ports[{at}].nodePort"), &json!(port), why);
    Status::invalid("", "Service", name, &[error])
}

fn needs_node_ports(service: &Value) -> bool {
    matches!(service["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"))
}

/// Whether ports without a node port get one.
fn allocates_node_ports(service: &Value) -> bool {
    service["spec"]["type"] == "NodePort" || service["spec"]["allocateLoadBalancerNodePorts"] != json!(false)
}

/// The first requested node port for each port number.
fn requested_ports(service: &Value) -> BTreeMap<i64, u16> {
    let wanted = ports(service).iter().rev();
    wanted.filter_map(|port| Some((port["port"].as_i64()?, node_port(port)?))).collect()
}

fn health_check_node_port(service: &Value) -> Option<u16> {
    port_number(&service["spec"]["healthCheckNodePort"])
}

/// All node ports of the Service.
fn node_ports(service: &Value) -> BTreeSet<u16> {
    ports(service).iter().filter_map(node_port).collect()
}

fn node_port(port: &Value) -> Option<u16> {
    port_number(&port["nodePort"])
}

fn port_number(number: &Value) -> Option<u16> {
    number.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

fn ports(service: &Value) -> &[Value] {
    service["spec"]["ports"].as_array().map_or(&[], Vec::as_slice)
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten()
}
