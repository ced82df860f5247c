//! A write that replaces data carries the resourceVersion that it is based on.

use std::collections::BTreeMap;

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::recorder::{ObservedWrite, text};

/// Checks the resourceVersion in each write.
#[derive(Default)]
pub struct ResourceVersionPreconditions {
    /// By process instance and UID: the status code of the garbage collector's last delete.
    last_code: BTreeMap<(u32, String), u16>,
}

/// Patches that replace a list or set a number: component, resource, and pointer to the field.
const PATCHES: [(&str, &str, &str); 3] = [
    ("node-controller", "nodes", "/spec/taints"),
    ("deployment-controller", "replicasets", "/spec/replicas"),
    ("node-controller", "pods", "/status/conditions/0/status"),
];

impl Checker for ResourceVersionPreconditions {
    fn name(&self) -> &'static str {
        "resourceVersion preconditions"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if !write.by_manager() || write.request.is_routine() {
            return Ok(());
        }
        let (request, body) = (&write.request, &write.body);
        let has = |pointer: &str| !text(body, pointer).is_empty();
        match request.method {
            Method::PUT => {
                // An EndpointSlice may be rewritten completely for other endpoints; nothing of the old one
                // is kept.
                let replaces_other_slice =
                    request.resource == "endpointslices" && !has("/metadata/creationTimestamp");
                let has_precondition = has("/metadata/resourceVersion") || replaces_other_slice;
                has_precondition.then_some(()).ok_or_else(|| "PUT without a resourceVersion".to_owned())
            }
            Method::PATCH => {
                let replaces = PATCHES.iter().any(|(component, resource, place)| {
                    write.component == *component
                        && request.resource == *resource
                        && body.pointer(place).is_some()
                        // A DisruptionTarget condition is added to the others and replaces nothing.
                        && text(body, "/status/conditions/0/type") != "DisruptionTarget"
                });
                let has_precondition = !replaces || has("/metadata/resourceVersion");
                has_precondition.then_some(()).ok_or_else(|| "PATCH without a resourceVersion".to_owned())
            }
            Method::DELETE if write.component == "generic-garbage-collector" => self.check_collected(write),
            _ => Ok(()),
        }
    }
}

impl ResourceVersionPreconditions {
    /// The garbage collector deletes with the resourceVersion of its live read; only after a conflict may
    /// it delete without one.
    fn check_collected(&mut self, write: &ObservedWrite) -> Result<(), String> {
        let uid = text(&write.body, "/preconditions/uid").to_owned();
        let before = self.last_code.insert((write.process_instance, uid), write.code);
        let has_precondition = !text(&write.body, "/preconditions/resourceVersion").is_empty();
        if has_precondition || before == Some(409) {
            Ok(())
        } else {
            Err("DELETE without a resourceVersion precondition".to_owned())
        }
    }
}
