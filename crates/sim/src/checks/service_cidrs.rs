//! ServiceCIDRs: none disappears while it is the last range of an address; in the end those that stay are ready, and those
//! that are deleted are gone unless an address needs them.

use std::net::Ipv4Addr;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe};
use crate::recorder::{ObservedWrite, text};

pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Follows the finalizers of ServiceCIDRs.
#[derive(Default)]
pub struct ServiceCidrs {
    /// Whether there was a fault. A leader whose cache is behind may remove a finalizer too early, as the original may.
    had_fault: bool,
}

impl Checker for ServiceCidrs {
    fn name(&self) -> &'static str {
        "service-cidr-controller"
    }

    fn on_fault(&mut self, _: Duration) {
        self.had_fault = true;
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let is_about_ranges = write.request.resource == "servicecidrs" && write.by_manager();
        if !is_about_ranges || !write.succeeded() || self.had_fault {
            return Ok(());
        }
        let Some(before) = write.before.as_deref().filter(|before| has_finalizer(before)) else {
            return Ok(());
        };
        if write.after.as_deref().is_some_and(has_finalizer) {
            return Ok(());
        }
        let lost = addresses(server).into_iter().find(|address| {
            contains(before, *address)
                && !others(server, before).iter().any(|other| contains(other, *address))
        });
        lost.map_or(Ok(()), |address| {
            Err(format!("{} was the last range of {address} and loses its finalizer", describe(before)))
        })
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for range in server.objects("servicecidrs") {
            let others = others(server, &range);
            let needs = |address: &Ipv4Addr| {
                contains(&range, *address) && !others.iter().any(|other| contains(other, *address))
            };
            let is_terminating = !range["metadata"]["deletionTimestamp"].is_null();
            let is_ready = condition_is_true(&range, "Ready");
            match addresses(server).into_iter().find(needs) {
                _ if !is_terminating && !has_finalizer(&range) => {
                    return Err(format!("{} has no finalizer", describe(&range)));
                }
                _ if !is_terminating && !is_ready => {
                    return Err(format!("{} is not ready", describe(&range)));
                }
                None if is_terminating => return Err(format!("no address needs {}", describe(&range))),
                Some(address) if is_terminating && is_ready => {
                    return Err(format!("{} waits for {address} and is ready", describe(&range)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn has_finalizer(range: &Value) -> bool {
    let finalizers = range.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FINALIZER))
}

/// The addresses of Services.
fn addresses(server: &ApiServer) -> Vec<Ipv4Addr> {
    let objects = server.objects("ipaddresses");
    objects.iter().filter_map(|object| text(object, "/metadata/name").parse().ok()).collect()
}

/// The ServiceCIDRs except one.
fn others(server: &ApiServer, range: &Value) -> Vec<std::sync::Arc<Value>> {
    let name = text(range, "/metadata/name");
    let ranges = server.objects("servicecidrs").into_iter();
    ranges.filter(|other| text(other, "/metadata/name") != name).collect()
}

/// Whether Services can have an address of a range: all but the first and the last.
fn contains(range: &Value, address: Ipv4Addr) -> bool {
    let cidrs = range.pointer("/spec/cidrs").and_then(Value::as_array);
    let cidrs = cidrs.into_iter().flatten().filter_map(|cidr| cidr.as_str()?.split_once('/'));
    let mut bounds = cidrs.filter_map(|(network, bits)| {
        let network = u32::from(network.parse::<Ipv4Addr>().ok()?);
        let size = 1_u32.checked_shl(32 - bits.parse::<u32>().ok()?)?;
        Some((network, network + (size - 1)))
    });
    bounds.any(|(first, last)| (first + 1..last).contains(&u32::from(address)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(name: &str, cidr: &str, is_deleted: bool, is_ready: bool) -> Value {
        let deleted_at = is_deleted.then_some("2026-01-01T00:00:00Z");
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": name, "finalizers": [FINALIZER], "deletionTimestamp": deleted_at},
            "spec": {"cidrs": [cidr]},
            "status": {"conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]}})
    }

    fn address(name: &str) -> Value {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": name}})
    }

    #[test]
    fn ranges_contain_the_addresses_of_services() {
        let range = range("a", "10.97.0.0/28", false, true);
        for (address, expected) in
            [("10.97.0.0", false), ("10.97.0.1", true), ("10.97.0.14", true), ("10.97.0.15", false)]
        {
            assert_eq!(contains(&range, address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn ranges_that_are_not_as_they_should_be_are_reported() {
        let check = |objects: &[Value]| {
            let server = ApiServer::builder().build();
            for object in objects {
                server.seed(object.clone()).unwrap();
            }
            ServiceCidrs::default().check_converged(&server)
        };
        let used = address("10.97.0.3");
        let (inner, outer) = ("10.97.0.0/28", "10.97.0.0/24");
        assert_eq!(check(&[range("a", inner, false, true), used.clone()]), Ok(()));
        assert_eq!(check(&[range("a", inner, true, false), used.clone()]), Ok(()));
        assert_eq!(check(&[range("a", inner, false, false)]), Err("ServiceCIDR /a is not ready".to_owned()));
        assert_eq!(
            check(&[range("a", inner, true, false)]),
            Err("no address needs ServiceCIDR /a".to_owned())
        );
        assert_eq!(
            check(&[range("a", inner, true, true), used.clone()]),
            Err("ServiceCIDR /a waits for 10.97.0.3 and is ready".to_owned())
        );
        let covered = [range("a", inner, true, false), range("b", outer, false, true), used];
        assert_eq!(check(&covered), Err("no address needs ServiceCIDR /a".to_owned()));
    }
}
