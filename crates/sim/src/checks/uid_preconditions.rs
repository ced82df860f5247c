//! Every write of a controller to one existing object carries the object's UID.

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::recorder::{ObservedWrite, text};

/// Checks the UID in each write.
pub struct UidPreconditions;

impl Checker for UidPreconditions {
    fn name(&self) -> &'static str {
        "uid preconditions"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let request = &write.request;
        // Server-side apply carries no UID, with the original neither.
        let applies = [
            "clusterrole-aggregation-controller",
            "service-cidrs-controller",
            "validatingadmissionpolicy-status-controller",
        ]
        .contains(&write.component.as_str());
        // A migration patches with a resourceVersion instead: nothing changes, whichever object has that name.
        let migrates = write.component == super::migrations::NAME
            && !text(&write.body, "/metadata/resourceVersion").is_empty();
        // Whatever has that name is another bundle of the signer, so it is deleted by name, as by the original.
        let deletes_bundle = request.method == Method::DELETE
            && write.component == "kube-apiserver-serving-clustertrustbundle-publisher";
        let is_exempt = applies || migrates || deletes_bundle;
        if !write.by_manager() || request.name.is_empty() || request.is_routine() || is_exempt {
            return Ok(());
        }
        let pointer = match request.method {
            Method::DELETE => "/preconditions/uid",
            Method::PATCH | Method::PUT => "/metadata/uid",
            _ => return Ok(()),
        };
        if text(&write.body, pointer).is_empty() {
            return Err(format!("a {} carries no UID", request.method));
        }
        Ok(())
    }
}
