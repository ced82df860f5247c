//! Bound claims and volumes point at each other once the faults have ended, a claim does not wait while a volume that fits
//! is free, and the manager deletes no volume that is to be retained.

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};

/// Compares claims with their volumes.
pub struct VolumeBinding;

fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn phase(object: &Value) -> &str {
    text(object, "/status/phase")
}

fn class(object: &Value) -> &str {
    text(object, "/spec/storageClassName")
}

/// Whether a volume is bound to this claim and not to another one of its name.
fn is_claimed_by(volume: &Value, claim: &Value) -> bool {
    text(volume, "/spec/claimRef/uid") == text(claim, "/metadata/uid")
        && text(volume, "/spec/claimRef/name") == text(claim, "/metadata/name")
        && text(volume, "/spec/claimRef/namespace") == text(claim, "/metadata/namespace")
}

/// Whether both have the size and the access mode that all objects of storms have.
fn is_plain(object: &Value) -> bool {
    let size =
        object.pointer("/spec/resources/requests/storage").or(object.pointer("/spec/capacity/storage"));
    let modes = object.pointer("/spec/accessModes").and_then(Value::as_array);
    class(object).is_empty()
        && size.is_some_and(|size| size == "1Gi")
        && modes.is_some_and(|modes| modes.len() == 1 && modes[0] == "ReadWriteOnce")
        && object.pointer("/spec/selector").is_none()
}

impl Checker for VolumeBinding {
    fn name(&self) -> &'static str {
        "persistentvolume-binder-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let Some(before) = write.before.as_deref().filter(|_| write.by_manager() && write.succeeded()) else {
            return Ok(());
        };
        let is_deletion = write.request.method == Method::DELETE
            && write.request.resource == "persistentvolumes"
            && !is_terminating(before);
        if is_deletion && text(before, "/spec/persistentVolumeReclaimPolicy") != "Delete" {
            return Err(format!("the manager deleted {}, which is to be retained", describe(before)));
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let (claims, volumes) =
            (server.objects("persistentvolumeclaims"), server.objects("persistentvolumes"));
        for claim in claims.iter().filter(|claim| phase(claim) == "Bound") {
            let name = text(claim, "/spec/volumeName");
            let volume = volumes.iter().find(|volume| text(volume, "/metadata/name") == name);
            match volume {
                None => return Err(format!("bound {} has no volume {name:?}", describe(claim))),
                Some(volume) if !is_claimed_by(volume, claim) || phase(volume) != "Bound" => {
                    return Err(format!(
                        "{} is bound to {}, which is not its",
                        describe(claim),
                        describe(volume)
                    ));
                }
                Some(_) => {}
            }
        }
        for volume in volumes.iter().filter(|volume| phase(volume) == "Bound") {
            let claim = claims.iter().find(|claim| is_claimed_by(volume, claim));
            let points_back = |claim: &Value| {
                text(claim, "/spec/volumeName") == text(volume, "/metadata/name") && phase(claim) == "Bound"
            };
            if !claim.is_some_and(|claim| points_back(claim)) {
                return Err(format!("bound {} has no claim that is bound to it", describe(volume)));
            }
        }
        let is_free = |volume: &&Value| {
            phase(volume) == "Available"
                && volume.pointer("/spec/claimRef").is_none()
                && !is_terminating(volume)
                && is_plain(volume)
        };
        let waits = |claim: &&Value| {
            text(claim, "/spec/volumeName").is_empty() && !is_terminating(claim) && is_plain(claim)
        };
        let free = volumes.iter().map(|volume| &**volume).find(is_free);
        let waiting = claims.iter().map(|claim| &**claim).find(waits);
        match (waiting, free) {
            (Some(claim), Some(volume)) => {
                Err(format!("{} waits although {} is free", describe(claim), describe(volume)))
            }
            _ => Ok(()),
        }
    }
}
