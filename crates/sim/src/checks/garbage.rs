//! The garbage collector deletes only objects whose owners are all absent or terminating; in the end no
//! object with only absent owners is left.

use std::collections::BTreeMap;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, is_terminating, namespace, uid};
use crate::recorder::{ObservedWrite, text};

/// The finalizers of claims, volumes, classes and PodGroups that are in use.
const PROTECTION: [&str; 6] = [
    "kubernetes.io/pvc-protection",
    "kubernetes.io/pv-protection",
    "kubernetes.io/vac-protection",
    "resource.kubernetes.io/delete-protection",
    super::pod_groups::FINALIZER,
    super::service_cidrs::FINALIZER,
];

/// The name of the checker.
pub const NAME: &str = "garbage-collector";

/// Whether an object can be the owner of another: it is cluster-scoped or in the same namespace.
fn may_own(owner: &Value, dependent: &Value) -> bool {
    namespace(owner).is_empty() || namespace(owner) == namespace(dependent)
}

/// Looks up the owners of every deleted object.
pub struct Garbage;

impl Checker for Garbage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        let deletes = write.by_manager()
            && write.succeeded()
            && write.component == "generic-garbage-collector"
            && write.request.method == Method::DELETE;
        let Some(before) = write.before.as_ref().filter(|_| deletes) else { return Ok(()) };
        if is_terminating(before) {
            return Ok(());
        }
        let owners = before.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let Some(owners) = owners else {
            return Err(format!("deleted {}, which has no owner", describe(before)));
        };
        let everything = server.snapshot();
        let owner = everything.iter().find(|there| {
            !is_terminating(there)
                && may_own(there, before)
                && owners.iter().any(|owner| uid(there) == text(owner, "/uid"))
        });
        owner.map_or(Ok(()), |owner| {
            Err(format!("deleted {}, which {} owns", describe(before), describe(owner)))
        })
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let everything = server.snapshot();
        let by_uid: BTreeMap<_, _> = everything.iter().map(|there| (uid(there), there)).collect();
        for object in &everything {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let Some(owners) = owners.filter(|owners| !owners.is_empty()) else { continue };
            let exists =
                |owner: &Value| by_uid.get(text(owner, "/uid")).is_some_and(|there| may_own(there, object));
            if !owners.iter().any(exists) {
                return Err(format!("{} is left, and none of its owners exists", describe(object)));
            }
        }
        // Claims, volumes, VolumeAttributesClasses, PodGroups and ServiceCIDRs that are in use stay terminating; their own
        // checkers judge them.
        let is_protected = |there: &Value| {
            let finalizers = there.pointer("/metadata/finalizers").and_then(Value::as_array);
            finalizers.into_iter().flatten().any(|finalizer| PROTECTION.iter().any(|one| finalizer == one))
        };
        match everything.iter().find(|there| is_terminating(there) && !is_protected(there)) {
            Some(terminating) => Err(format!("{} is still terminating", describe(terminating))),
            None => Ok(()),
        }
    }
}
