//! A claim that the manager binds and its volume point at each other, the manager separates no such pair, declares no claim
//! Lost whose volume it has, and deletes no volume that is to be retained. In the end every bound claim has its volume and every bound volume its claim, no claim
//! waits for a volume that is free or that its driver provisions, and released volumes are deleted or recycled.

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::live_volumes::LiveVolumes;
use super::objects::{describe, is_terminating};
use crate::recorder::{LiveRead, ObservedWrite, text};
use crate::user_storage::DRIVER;

/// Compares claims with their volumes.
#[derive(Default)]
pub struct VolumeBinding {
    volumes: LiveVolumes,
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

fn is_bound_to(claim: &Value, volume: &Value) -> bool {
    phase(claim) == "Bound" && text(claim, "/spec/volumeName") == text(volume, "/metadata/name")
}

/// A claim becomes Bound only to a volume that is bound to it. The volume may have been deleted meanwhile.
fn check_bound(before: &Value, after: &Value, server: &ApiServer) -> Result<(), String> {
    if phase(before) == "Bound" || phase(after) != "Bound" {
        return Ok(());
    }
    let volume = server.object("persistentvolumes", "", text(after, "/spec/volumeName"));
    match volume {
        Some(volume) if !is_claimed_by(&volume, after) => {
            Err(format!("{} becomes Bound to {}, which is not its", describe(after), describe(&volume)))
        }
        _ => Ok(()),
    }
}

/// A claim becomes Lost only if a live read of its volume has shown that it is not the claim's any more. The volume may be
/// the claim's again by now.
fn check_lost(write: &ObservedWrite, volumes: &LiveVolumes, server: &ApiServer) -> Result<(), String> {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return Ok(()) };
    if phase(before) == "Lost" || phase(after) != "Lost" {
        return Ok(());
    }
    let name = text(after, "/spec/volumeName");
    let volume = server.object("persistentvolumes", "", name);
    let Some(volume) = volume.filter(|volume| is_claimed_by(volume, after)) else { return Ok(()) };
    let read = volumes.read_before(write, name);
    let was_absent_or_foreign = read.is_some_and(|read| read.is_none_or(|read| !is_claimed_by(read, after)));
    if was_absent_or_foreign {
        return Ok(());
    }
    Err(format!("{} becomes Lost, and {} is its", describe(after), describe(&volume)))
}

/// A volume and a claim that are bound to each other stay so while both exist.
fn check_separation(before: &Value, after: Option<&Value>, server: &ApiServer) -> Result<(), String> {
    let (namespace, name) = (text(before, "/spec/claimRef/namespace"), text(before, "/spec/claimRef/name"));
    let Some(claim) = server.object("persistentvolumeclaims", namespace, name) else { return Ok(()) };
    if !is_claimed_by(before, &claim) || !is_bound_to(&claim, before) {
        return Ok(());
    }
    let is_kept =
        |after: &Value| is_claimed_by(after, &claim) && (phase(before) != "Bound" || phase(after) == "Bound");
    // Whether a volume is protected depends on its phase alone, which a user may have changed.
    let was_unprotected = after.is_none() && phase(before) != "Bound";
    if was_unprotected || after.is_some_and(is_kept) {
        return Ok(());
    }
    Err(format!("{} loses {}, which is bound to it", describe(before), describe(&claim)))
}

/// Why a claim or a volume of the storms' CSI driver is not as it should be.
fn unfinished(claim: &Value, server: &ApiServer) -> Option<&'static str> {
    let storage_class = server.object("storageclasses.storage.k8s.io", "", class(claim))?;
    let waits_for_consumer = text(&storage_class, "/volumeBindingMode") == "WaitForFirstConsumer"
        && claim.pointer("/metadata/annotations/volume.kubernetes.io~1selected-node").is_none();
    if is_terminating(claim) || waits_for_consumer {
        return None;
    }
    if phase(claim) == "Pending" {
        return Some("is not bound although its driver provisions volumes");
    }
    let is_small = phase(claim) == "Bound"
        && claim.pointer("/spec/resources/requests/storage") != claim.pointer("/status/capacity/storage");
    is_small.then_some("has not the size that it asks for")
}

fn reclaim_policy(volume: &Value) -> &str {
    text(volume, "/spec/persistentVolumeReclaimPolicy")
}

/// Why the CSI driver, or the binder itself, should have reclaimed a volume.
fn not_reclaimed(volume: &Value, server: &ApiServer) -> Option<&'static str> {
    let is_on_host = volume.pointer("/spec/hostPath").is_some();
    match (phase(volume), reclaim_policy(volume)) {
        ("Released", "Delete") if text(volume, "/spec/csi/driver") == DRIVER => {
            Some("is released and not deleted")
        }
        ("Released" | "Failed", "Delete") if is_on_host => Some("is released and not deleted"),
        ("Released" | "Failed", "Recycle") if is_on_host && !is_used_by_pod(volume, server) => {
            Some("is released and not recycled")
        }
        _ => None,
    }
}

/// Whether a pod that has not ended names the claim of a volume: such a volume is not recycled.
fn is_used_by_pod(volume: &Value, server: &ApiServer) -> bool {
    let (namespace, name) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
    server.objects("pods").iter().any(|pod| {
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
        let names_claim = |volume: &Value| text(volume, "/persistentVolumeClaim/claimName") == name;
        text(pod, "/metadata/namespace") == namespace
            && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            && volumes.into_iter().flatten().any(names_claim)
    })
}

impl Checker for VolumeBinding {
    fn name(&self) -> &'static str {
        "persistentvolume-binder-controller"
    }

    fn on_live_read(&mut self, read: &LiveRead<'_>) {
        self.volumes.record(read);
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        self.volumes.record_write(write);
        let Some(before) = write.before.as_deref().filter(|_| write.by_manager() && write.succeeded()) else {
            return Ok(());
        };
        match (write.request.resource.as_str(), write.after.as_deref()) {
            ("persistentvolumeclaims", Some(after)) => {
                check_bound(before, after, server)?;
                check_lost(write, &self.volumes, server)?;
            }
            ("persistentvolumes", after) => check_separation(before, after, server)?,
            _ => {}
        }
        let is_deletion = write.request.method == Method::DELETE
            && write.request.resource == "persistentvolumes"
            && !is_terminating(before);
        if is_deletion && reclaim_policy(before) != "Delete" {
            return Err(format!("the manager deleted {}, which is to be retained", describe(before)));
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let (claims, volumes) =
            (server.objects("persistentvolumeclaims"), server.objects("persistentvolumes"));
        for claim in &claims {
            if let Some(why) = unfinished(claim, server) {
                return Err(format!("{} {why}", describe(claim)));
            }
        }
        for volume in &volumes {
            if let Some(why) = not_reclaimed(volume, server) {
                return Err(format!("{} {why}", describe(volume)));
            }
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::recorder::RequestInfo;

    fn claim(phase: &str) -> Value {
        json!({"kind": "PersistentVolumeClaim", "metadata": {"namespace": "default", "name": "oar", "uid": "c"},
            "spec": {"volumeName": "v"}, "status": {"phase": phase}})
    }

    fn volume(claim_uid: &str) -> Value {
        let claim_ref = json!({"namespace": "default", "name": "oar", "uid": claim_uid});
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"claimRef": claim_ref}})
    }

    /// Judges a claim that becomes Lost while the API server has this volume, after these live reads.
    fn lost(stored: Option<Value>, reads: &[(u32, Option<Value>)]) -> Result<(), String> {
        let server = ApiServer::builder().build();
        stored.into_iter().for_each(|volume| drop(server.seed(volume).unwrap()));
        let request = RequestInfo::parse(&Method::GET, &"/api/v1/persistentvolumes/v".parse().unwrap());
        let mut checker = VolumeBinding::default();
        for (process_instance, found) in reads {
            checker.on_live_read(&LiveRead {
                at: std::time::Duration::ZERO,
                process_instance: *process_instance,
                component: "persistent-volume-binder",
                request: &request,
                found: found.as_ref(),
            });
        }
        let path = "/api/v1/namespaces/default/persistentvolumeclaims/oar/status";
        let write = ObservedWrite {
            before: Some(Arc::new(claim("Bound"))),
            after: Some(Arc::new(claim("Lost"))),
            ..ObservedWrite::of_manager("persistent-volume-binder", &Method::PUT, path)
        };
        checker.on_write(&write, &server)
    }

    #[test]
    fn claim_becomes_lost_only_after_a_live_read_of_its_volume() {
        let error = "PersistentVolumeClaim default/oar becomes Lost, and PersistentVolume /v is its";
        let its = || Some(volume("c"));
        assert_eq!(lost(its(), &[]), Err(error.to_owned()), "from the cache alone");
        assert_eq!(lost(its(), &[(1, its())]), Err(error.to_owned()));
        assert_eq!(lost(its(), &[(1, None), (1, its())]), Err(error.to_owned()));
        assert_eq!(lost(its(), &[(2, None)]), Err(error.to_owned()), "the read of another process");
        for read in [None, Some(volume("other")), Some(volume(""))] {
            assert_eq!(lost(its(), &[(1, its()), (1, read)]), Ok(()));
        }
        assert_eq!(lost(None, &[(1, its())]), Ok(()), "the volume is gone");
        assert_eq!(lost(Some(volume("other")), &[]), Ok(()), "the volume is of another claim");
    }
}
