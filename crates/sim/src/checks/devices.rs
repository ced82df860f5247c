//! Claims for devices: no pod gets two claims for one entry. In the end every pod has its claims, no claim outlives its pod, and
//! an allocated claim is reserved for the pods that use it, and for no pod that is gone or done.

use std::collections::BTreeMap;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, is_terminating};
use crate::recorder::{ObservedWrite, text};

/// The annotation of a generated claim with the name of the pod's entry.
const POD_CLAIM_NAME: &str = "/metadata/annotations/resource.kubernetes.io~1pod-claim-name";

/// Watches claims and their pods.
#[derive(Default)]
pub struct Devices {
    /// By UID of the pod and entry: creates whose result the controller never received, and which it may repeat.
    unconfirmed_creates: BTreeMap<(String, String), usize>,
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn is_done(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The UID of the pod that a claim was generated for.
fn owner(claim: &Value) -> Option<&str> {
    let mut owners = items(claim, "/metadata/ownerReferences");
    owners.find(|owner| owner["controller"] == true && owner["kind"] == "Pod")?["uid"].as_str()
}

/// The UID of the pod that a claim was generated for, and the entry.
fn owner_and_entry(claim: &Value) -> Option<(String, String)> {
    Some((owner(claim)?.to_owned(), text(claim, POD_CLAIM_NAME).to_owned()))
}

impl Devices {
    /// A pod has one claim for an entry. A claim that is terminating, or whose creation the controller never learned of, may
    /// have a successor.
    fn check_duplicates(&self, server: &ApiServer) -> Result<(), String> {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for claim in server.objects("resourceclaims").iter().filter(|claim| !is_terminating(claim)) {
            let Some(key) = owner_and_entry(claim) else { continue };
            let allowed = 1 + self.unconfirmed_creates.get(&key).copied().unwrap_or_default();
            let count = counts.entry(key.clone()).or_default();
            *count += 1;
            if *count > allowed {
                let (name, entry) = (text(claim, "/metadata/ownerReferences/0/name"), &key.1);
                return Err(format!("{} is claim {count} of pod {name} for {entry}", describe(claim)));
            }
        }
        Ok(())
    }
}

/// Why an allocated claim that a pod names is not reserved for it.
fn missing_reservation(pod: &Value, server: &ApiServer) -> Option<String> {
    let namespace = text(pod, "/metadata/namespace");
    let named = items(pod, "/spec/resourceClaims").map(|entry| text(entry, "/resourceClaimName"));
    let mut claims = named.filter_map(|name| server.object("resourceclaims", namespace, name));
    let lacks = |claim: &Value| {
        let is_reserved =
            items(claim, "/status/reservedFor").any(|consumer| consumer["uid"] == pod["metadata"]["uid"]);
        claim.pointer("/status/allocation").is_some() && !is_terminating(claim) && !is_reserved
    };
    claims.find(|claim| lacks(claim)).map(|claim| format!("{} is not reserved for it", describe(&claim)))
}

/// A reservation for a pod that does not exist any more, or is done.
fn stale_reservation(claim: &Value, pods: &BTreeMap<String, &Value>) -> Option<String> {
    let reserved = items(claim, "/status/reservedFor").filter(|consumer| consumer["resource"] == "pods");
    let mut stale = reserved.filter(|consumer| {
        let pod = consumer["uid"].as_str().and_then(|uid| pods.get(uid));
        pod.is_none_or(|pod| is_done(pod))
    });
    stale.next().map(|consumer| text(consumer, "/name").to_owned())
}

/// Why a pod lacks the claim of one of its entries.
fn missing_claim(pod: &Value, server: &ApiServer) -> Option<String> {
    let namespace = text(pod, "/metadata/namespace");
    let from_template = |entry: &&Value| {
        let template = text(entry, "/resourceClaimTemplateName");
        !template.is_empty() && server.object("resourceclaimtemplates", namespace, template).is_some()
    };
    let missing = |entry: &Value| {
        let mut named = items(pod, "/status/resourceClaimStatuses");
        let named = named.find(|status| status["name"] == entry["name"]);
        let Some(named) = named.and_then(|status| status["resourceClaimName"].as_str()) else {
            return Some(format!("no claim is recorded for {}", text(entry, "/name")));
        };
        let claim = server.object("resourceclaims", namespace, named);
        let is_own = claim.as_deref().and_then(owner) == Some(text(pod, "/metadata/uid"));
        (!is_own).then(|| format!("claim {named} does not exist or is another pod's"))
    };
    items(pod, "/spec/resourceClaims").filter(from_template).find_map(missing)
}

impl Checker for Devices {
    fn name(&self) -> &'static str {
        "resourceclaim-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let is_creation = write.request.method == Method::POST
            && write.request.resource == "resourceclaims"
            && write.by_manager()
            && write.succeeded();
        if !is_creation {
            return Ok(());
        }
        if let Some(key) = owner_and_entry(&write.body).filter(|_| write.response_lost) {
            *self.unconfirmed_creates.entry(key).or_default() += 1;
        }
        self.check_duplicates(server)
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        self.check_duplicates(server)?;
        let (pods, claims) = (server.objects("pods"), server.objects("resourceclaims"));
        let by_uid: BTreeMap<String, &Value> =
            pods.iter().map(|pod| (text(pod, "/metadata/uid").to_owned(), &**pod)).collect();
        for claim in claims.iter().map(|claim| &**claim) {
            if let Some(uid) = owner(claim) {
                let pod = by_uid.get(uid).filter(|pod| !is_done(pod));
                if pod.is_none() {
                    return Err(format!("{} outlives its pod", describe(claim)));
                }
            }
            if let Some(pod) = stale_reservation(claim, &by_uid) {
                return Err(format!("{} is reserved for {pod}, which is gone or done", describe(claim)));
            }
        }
        for pod in pods.iter().map(|pod| &**pod).filter(|pod| !is_terminating(pod) && !is_done(pod)) {
            if let Some(why) = missing_claim(pod, server) {
                return Err(format!("{}: {why}", describe(pod)));
            }
            let is_bound = !text(pod, "/spec/nodeName").is_empty();
            if let Some(why) = missing_reservation(pod, server).filter(|_| is_bound) {
                return Err(format!("{}: {why}", describe(pod)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reservation_for_a_pod_that_is_gone_or_done_is_noticed() {
        let check = |reserved_for: &str, phase: &str| {
            let server = ApiServer::builder().seed(1).build();
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"},
                "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": phase}});
            let reserved = json!([{"resource": "pods", "name": "p", "uid": reserved_for}]);
            let requests = json!([{"name": "r", "exactly": {"deviceClassName": "d"}}]);
            let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": requests}},
                "status": {"reservedFor": reserved}});
            for object in [pod, claim] {
                server.seed(object).unwrap_or_else(|error| panic!("the objects are valid: {error:?}"));
            }
            let uid = server.object("pods", "default", "p").map(|pod| text(&pod, "/metadata/uid").to_owned());
            let is_there = uid.as_deref() == Some(reserved_for);
            (is_there, Devices::default().check_converged(&server))
        };
        assert_eq!(check("u", "Running"), (true, Ok(())));
        for (uid, phase) in [("u", "Succeeded"), ("gone", "Running")] {
            let (_, result) = check(uid, phase);
            let expected = "ResourceClaim default/c is reserved for p, which is gone or done";
            assert_eq!(result, Err(expected.to_owned()), "{uid} {phase}");
        }
    }
}
