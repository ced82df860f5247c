//! Evictions from devices: a pod is evicted only because of a taint that its claim does not tolerate, not before the
//! tolerationSeconds are over, and not after the taint is gone. In the end no pod is left on a device that it has to leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, is_terminating, uid};
use crate::recorder::{ObservedWrite, text};

/// The name of the checker; also the service account of the controller.
const NAME: &str = "device-taint-eviction-controller";

/// API timestamps have no fractions, so a taint may count as a second older than it is.
const ROUNDING: Duration = Duration::from_secs(1);

/// How old the caches of the controller may be while there is no fault.
const STALE_MAX: Duration = Duration::from_secs(5);

/// Pods that tolerate a taint for longer need not have left in the end.
const AWAITED_MAX: Duration = Duration::from_secs(60);

/// Remembers the taints and the devices of pods.
#[derive(Default)]
pub struct DeviceEvictions {
    taints: Vec<SeenTaint>,
    /// By UID of the pod: the allocation results of claims that are or were reserved for it.
    devices: BTreeMap<String, Vec<Value>>,
    /// Whether a wall clock has jumped: then tolerationSeconds may seem to be over earlier or later.
    clocks_differ: bool,
    /// Whether anything but users acted: then caches may be stale for any time.
    is_disturbed: bool,
}

/// A `NoExecute` taint of a rule or of a slice.
#[derive(Clone, Debug)]
struct SeenTaint {
    /// The UID of the rule or slice.
    source: String,
    /// `driver`, `pool` and `device`; null selects all.
    selector: [Value; 3],
    taint: Value,
    since: Duration,
    until: Option<Duration>,
}

impl SeenTaint {
    fn is_same(&self, other: &Self) -> bool {
        self.source == other.source && self.selector == other.selector && self.taint == other.taint
    }

    fn selects(&self, result: &Value) -> bool {
        let fields = ["driver", "pool", "device"].into_iter().zip(&self.selector);
        fields.into_iter().all(|(field, wanted)| wanted.is_null() || result[field] == *wanted)
    }

    /// How long an allocation result tolerates it; `None` if for ever.
    fn tolerated_for(&self, result: &Value) -> Option<Duration> {
        let tolerations = result["tolerations"].as_array();
        let matching = tolerations.into_iter().flatten().filter(|toleration| {
            let key = text(toleration, "/key");
            let value_agrees = text(toleration, "/operator") == "Exists"
                || text(toleration, "/value") == text(&self.taint, "/value");
            text(toleration, "/effect") == "NoExecute"
                && (key.is_empty() || key == text(&self.taint, "/key"))
                && value_agrees
        });
        let seconds = matching.map(|toleration| toleration["tolerationSeconds"].as_i64());
        let shortest = seconds.reduce(|one, other| Some(one?.min(other?)));
        let seconds = shortest.unwrap_or(Some(0))?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }
}

/// The `NoExecute` taints of a rule or of a slice.
fn taints_of(object: &Value, at: Duration) -> Vec<SeenTaint> {
    let seen = |selector: [Value; 3], taint: &Value| SeenTaint {
        source: uid(object).to_owned(),
        selector,
        taint: taint.clone(),
        since: at,
        until: None,
    };
    let spec = &object["spec"];
    let mut taints = Vec::new();
    if let Some(selector) = spec.get("deviceSelector").filter(|selector| selector.is_object()) {
        let selector = ["driver", "pool", "device"].map(|field| selector[field].clone());
        taints.push(seen(selector, &spec["taint"]));
    }
    for device in spec["devices"].as_array().into_iter().flatten() {
        let selector = [spec["driver"].clone(), spec["pool"]["name"].clone(), device["name"].clone()];
        let of_device = device["taints"].as_array().into_iter().flatten();
        taints.extend(of_device.map(|taint| seen(selector.clone(), taint)));
    }
    taints.retain(|seen| text(&seen.taint, "/effect") == "NoExecute");
    taints
}

fn results(claim: &Value) -> impl Iterator<Item = &Value> {
    claim.pointer("/status/allocation/devices/results").and_then(Value::as_array).into_iter().flatten()
}

fn consumers(claim: &Value) -> impl Iterator<Item = &str> {
    let reserved = claim.pointer("/status/reservedFor").and_then(Value::as_array);
    reserved.into_iter().flatten().filter_map(|consumer| consumer["uid"].as_str())
}

impl DeviceEvictions {
    /// Compares the taints of all rules and slices with the known ones.
    fn observe_taints(&mut self, objects: &[Arc<Value>], at: Duration) {
        let current: Vec<_> = objects.iter().flat_map(|object| taints_of(object, at)).collect();
        for open in self.taints.iter_mut().filter(|seen| seen.until.is_none()) {
            if !current.iter().any(|seen| seen.is_same(open)) {
                open.until = Some(at);
            }
        }
        for taint in current {
            let is_known = self.taints.iter().any(|seen| seen.until.is_none() && seen.is_same(&taint));
            if !is_known {
                self.taints.push(taint);
            }
        }
    }

    fn observe_claim(&mut self, claim: &Value) {
        for pod in consumers(claim) {
            let devices = self.devices.entry(pod.to_owned()).or_default();
            for result in
                results(claim).filter(|result| !devices.contains(result)).cloned().collect::<Vec<_>>()
            {
                devices.push(result);
            }
        }
    }

    /// Why a pod may not be evicted now; `None` if a taint requires it.
    fn objection(&self, pod: &Value, at: Duration) -> Option<String> {
        let mut objection = "is evicted and on no tainted device".to_owned();
        for result in self.devices.get(uid(pod)).into_iter().flatten() {
            for taint in self.taints.iter().filter(|taint| taint.selects(result)) {
                let Some(tolerated) = taint.tolerated_for(result) else {
                    "tolerates the taint and is evicted".clone_into(&mut objection);
                    continue;
                };
                let passed = at.saturating_sub(taint.since);
                if passed + ROUNDING < tolerated && !self.clocks_differ {
                    objection =
                        format!("tolerates the taint for {tolerated:?} and is evicted after {passed:?}");
                } else if !self.is_disturbed && taint.until.is_some_and(|until| at > until + STALE_MAX) {
                    "is evicted after the taint was removed".clone_into(&mut objection);
                } else {
                    return None;
                }
            }
        }
        Some(objection)
    }

    /// Whether a taint that is still there requires that a pod with this device has left.
    fn must_have_left(&self, result: &Value) -> bool {
        let awaited_max = if self.clocks_differ { Duration::ZERO } else { AWAITED_MAX };
        let mut taints = self.taints.iter().filter(|taint| taint.until.is_none() && taint.selects(result));
        taints.any(|taint| taint.tolerated_for(result).is_some_and(|tolerated| tolerated <= awaited_max))
    }
}

impl Checker for DeviceEvictions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if !write.succeeded() {
            return Ok(());
        }
        match (write.request.resource.as_str(), write.before.as_deref()) {
            ("devicetaintrules" | "resourceslices", _) => {
                let objects = [server.objects("devicetaintrules"), server.objects("resourceslices")].concat();
                self.observe_taints(&objects, write.at);
            }
            ("resourceclaims", _) => write.after.iter().for_each(|claim| self.observe_claim(claim)),
            ("pods", Some(pod)) if write.by_manager() && write.component == NAME => {
                let objection = self.objection(pod, write.at);
                return objection.map_or(Ok(()), |why| Err(format!("{} {why}", describe(pod))));
            }
            _ => {}
        }
        Ok(())
    }

    fn on_clock_jump(&mut self) {
        self.clocks_differ = true;
    }

    fn on_server_clock_jump(&mut self) {
        self.clocks_differ = true;
    }

    fn on_fault(&mut self, _: Duration) {
        self.is_disturbed = true;
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let claims = server.objects("resourceclaims");
        for pod in server.objects("pods") {
            let is_done = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
            if is_done || is_terminating(&pod) || text(&pod, "/spec/nodeName").is_empty() {
                continue;
            }
            let mut own =
                claims.iter().filter(|claim| consumers(claim).any(|consumer| consumer == uid(&pod)));
            if own.any(|claim| results(claim).any(|result| self.must_have_left(result))) {
                return Err(format!("{} is still on a tainted device", describe(&pod)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;

    /// The objection to the eviction of a pod after this number of seconds. Its device is tainted from second 10 to second 30.
    fn objection(tolerations: &Value, at: u64, prepare: impl FnOnce(&mut DeviceEvictions)) -> Option<String> {
        let mut checker = DeviceEvictions::default();
        prepare(&mut checker);
        let claim = json!({"status": {"reservedFor": [{"uid": "u"}], "allocation": {"devices": {"results":
            [{"driver": "d", "pool": "p", "device": "x", "tolerations": tolerations}]}}}});
        checker.observe_claim(&claim);
        let slice = |taints: Value| {
            Arc::new(json!({"metadata": {"uid": "s"}, "spec": {"driver": "d", "pool": {"name": "p"},
                "devices": [{"name": "x", "taints": taints}]}}))
        };
        let (plain, tainted) = (slice(json!([])), slice(json!([{"key": "k", "effect": "NoExecute"}])));
        for (second, slice) in [(1, plain.clone()), (10, tainted.clone()), (20, tainted), (30, plain)] {
            if second < at {
                checker.observe_taints(&[slice], Duration::from_secs(second));
            }
        }
        let pod = json!({"kind": "Pod", "metadata": {"uid": "u", "name": "web", "namespace": "a"}});
        let eviction = ObservedWrite {
            at: Duration::from_secs(at),
            before: Some(Arc::new(pod)),
            ..ObservedWrite::of_manager(NAME, &Method::DELETE, "/api/v1/namespaces/a/pods/web")
        };
        checker.on_write(&eviction, &ApiServer::builder().build()).err()
    }

    #[test]
    fn evictions_without_reason_before_their_time_and_after_it_are_caught() {
        let tolerates = |seconds: Option<u32>| json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        let none = json!([]);
        let caught = |tolerations: &Value, at| objection(tolerations, at, |_| {}).unwrap_or_default();
        assert_eq!(caught(&none, 5), "Pod a/web is evicted and on no tainted device");
        assert_eq!(caught(&none, 12), "");
        assert_eq!(caught(&none, 33), "", "the caches may be a little behind");
        assert_eq!(caught(&none, 40), "Pod a/web is evicted after the taint was removed");
        assert_eq!(caught(&tolerates(None), 25), "Pod a/web tolerates the taint and is evicted");
        let early = "Pod a/web tolerates the taint for 15s and is evicted after 3s";
        assert_eq!(caught(&tolerates(Some(15)), 13), early);
        assert_eq!(caught(&tolerates(Some(15)), 25), "");
        let gone = "Pod a/web is evicted after the taint was removed";
        assert_eq!(caught(&tolerates(Some(30)), 41), gone, "removed before the time was over");
        let mut other = tolerates(None);
        other[0]["key"] = json!("other");
        assert_eq!(caught(&other, 12), "");
        // What depends on clocks and caches is not judged when these are disturbed.
        assert_eq!(objection(&none, 40, |checker| checker.on_fault(Duration::ZERO)), None);
        assert_eq!(objection(&tolerates(Some(15)), 13, DeviceEvictions::on_server_clock_jump), None);
        assert!(objection(&tolerates(None), 25, |checker| checker.on_fault(Duration::ZERO)).is_some());
    }
}
