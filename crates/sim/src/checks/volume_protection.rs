//! Volumes in use are kept: no claim loses its finalizer while a pod uses it that was scheduled before the claim was
//! deleted, no volume while it is bound, and no VolumeAttributesClass while a claim or a volume names it. In the end nothing
//! waits for a finalizer without need, and every ephemeral volume has its claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

/// How old the caches of a controller may be while there is no fault.
const STALE_MAX: Duration = Duration::from_secs(5);

/// Watches the finalizers of claims and volumes.
#[derive(Default)]
pub struct VolumeProtection {
    writes: u64,
    /// By UID of a pod: the first write after which it had a node.
    scheduled_at: BTreeMap<String, u64>,
    /// By UID of a claim: the write that deleted it.
    deleted_at: BTreeMap<String, u64>,
}

fn uid(object: &Value) -> String {
    text(object, "/metadata/uid").to_owned()
}

fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|present| present == finalizer)
}

fn is_controlled_by(claim: &Value, pod: &Value) -> bool {
    let owners = claim.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners
        .into_iter()
        .flatten()
        .any(|owner| owner["controller"] == true && owner["uid"] == pod["metadata"]["uid"])
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten()
}

/// The name of the claim of an ephemeral volume; `None` for other volumes.
fn ephemeral_claim(pod: &Value, volume: &Value) -> Option<String> {
    volume.get("ephemeral")?;
    Some(format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name")))
}

/// Whether a scheduled pod keeps a claim from being deleted.
fn uses(pod: &Value, claim: &Value) -> bool {
    let name = text(claim, "/metadata/name");
    let is_shut_down = is_terminating(pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    text(pod, "/metadata/namespace") == text(claim, "/metadata/namespace")
        && !text(pod, "/spec/nodeName").is_empty()
        && volumes(pod).any(|volume| {
            text(volume, "/persistentVolumeClaim/claimName") == name
                || !is_shut_down
                    && is_controlled_by(claim, pod)
                    && ephemeral_claim(pod, volume).is_some_and(|claim| claim == name)
        })
}

impl VolumeProtection {
    fn remember(&mut self, write: &ObservedWrite) {
        self.writes += 1;
        let Some(after) = write.after.as_deref().filter(|_| write.succeeded()) else { return };
        let number = self.writes;
        match write.request.resource.as_str() {
            "pods" if !text(after, "/spec/nodeName").is_empty() => {
                self.scheduled_at.entry(uid(after)).or_insert(number);
            }
            "persistentvolumeclaims" if is_terminating(after) => {
                self.deleted_at.entry(uid(after)).or_insert(number);
            }
            _ => {}
        }
    }

    /// A pod that came to its node before the claim was deleted, and still uses it.
    fn earlier_user(&self, claim: &Value, server: &ApiServer) -> Option<String> {
        let deleted = self.deleted_at.get(&uid(claim))?;
        let pods = server.objects("pods");
        let user = pods.iter().find(|pod| {
            uses(pod, claim) && self.scheduled_at.get(&uid(pod)).is_some_and(|scheduled| scheduled < deleted)
        });
        user.map(|pod| describe(pod))
    }
}

impl Checker for VolumeProtection {
    fn name(&self) -> &'static str {
        "persistentvolumeclaim-protection-controller, persistentvolume-protection-controller and \
         ephemeral-volume-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        self.remember(write);
        let Some(before) = write.before.as_deref().filter(|_| write.by_manager() && write.succeeded()) else {
            return Ok(());
        };
        let lost = |finalizer: &str| {
            has_finalizer(before, finalizer)
                && write.after.as_deref().is_none_or(|after| !has_finalizer(after, finalizer))
        };
        match write.request.resource.as_str() {
            "persistentvolumeclaims" if lost(CLAIM_FINALIZER) => match self.earlier_user(before, server) {
                Some(pod) => Err(format!("{} lost its finalizer while {pod} uses it", describe(before))),
                None if !is_terminating(before) => {
                    Err(format!("living {} lost its finalizer", describe(before)))
                }
                None => Ok(()),
            },
            "persistentvolumes" if lost(VOLUME_FINALIZER) && text(before, "/status/phase") == "Bound" => {
                Err(format!("bound {} lost its finalizer", describe(before)))
            }
            _ => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let (pods, claims) = (server.objects("pods"), server.objects("persistentvolumeclaims"));
        for claim in &claims {
            let protected = has_finalizer(claim, CLAIM_FINALIZER);
            if is_terminating(claim) && protected && !pods.iter().any(|pod| uses(pod, claim)) {
                return Err(format!("{} is deleted and unused, and has its finalizer", describe(claim)));
            }
            if !is_terminating(claim) && !protected {
                return Err(format!("{} has no finalizer", describe(claim)));
            }
            let conditions = claim.pointer("/status/conditions").and_then(Value::as_array);
            let reports = conditions.into_iter().flatten().any(|condition| condition["type"] == "Unused");
            if !is_terminating(claim) && text(claim, "/status/phase") == "Bound" && !reports {
                return Err(format!("bound {} has no condition Unused", describe(claim)));
            }
        }
        for volume in &server.objects("persistentvolumes") {
            let protected = has_finalizer(volume, VOLUME_FINALIZER);
            if is_terminating(volume) && protected && text(volume, "/status/phase") != "Bound" {
                return Err(format!("{} is deleted and not bound, and has its finalizer", describe(volume)));
            }
            if !is_terminating(volume) && !protected {
                return Err(format!("{} has no finalizer", describe(volume)));
            }
        }
        for pod in pods.iter().filter(|pod| !is_terminating(pod)) {
            let namespace = text(pod, "/metadata/namespace");
            for name in volumes(pod).filter_map(|volume| ephemeral_claim(pod, volume)) {
                if server.object("persistentvolumeclaims", namespace, &name).is_none() {
                    return Err(format!("{} has no claim {name}", describe(pod)));
                }
            }
        }
        Ok(())
    }
}

/// Watches the finalizers of VolumeAttributesClasses, and which claims and volumes name the classes.
///
/// The controller decides by its caches alone, as the original does. So a reference counts only if the caches must have
/// observed it: in a storm without faults, some seconds after it appeared.
#[derive(Default)]
pub struct AttributesClassProtection {
    /// By UID of a claim or a volume, and name of a class: since when the object names the class.
    references: BTreeMap<(String, String), Duration>,
    /// Whether anything but users acted: then caches may be stale for any time.
    is_disturbed: bool,
}

/// The classes that a claim or a volume names.
fn attributes_classes(object: &Value) -> BTreeSet<&str> {
    let pointers = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    pointers.into_iter().map(|pointer| text(object, pointer)).filter(|class| !class.is_empty()).collect()
}

/// The claims and volumes that name a class.
fn referrers(class: &Value, server: &ApiServer) -> Vec<Arc<Value>> {
    let name = text(class, "/metadata/name");
    let objects = [server.objects("persistentvolumeclaims"), server.objects("persistentvolumes")].concat();
    objects.into_iter().filter(|object| attributes_classes(object).contains(name)).collect()
}

impl AttributesClassProtection {
    fn remember(&mut self, write: &ObservedWrite) {
        let is_referrer =
            matches!(write.request.resource.as_str(), "persistentvolumeclaims" | "persistentvolumes");
        let Some(object) = write.after.as_deref().filter(|_| is_referrer && write.succeeded()) else {
            return;
        };
        let (object_uid, classes) = (uid(object), attributes_classes(object));
        self.references.retain(|(uid, class), _| *uid != object_uid || classes.contains(class.as_str()));
        for class in classes {
            self.references.entry((object_uid.clone(), class.to_owned())).or_insert(write.at);
        }
    }

    /// A claim or a volume that names a class for longer than caches may be stale.
    fn known_referrer(&self, class: &Value, at: Duration, server: &ApiServer) -> Option<String> {
        let name = text(class, "/metadata/name").to_owned();
        let is_known = |object: &&Arc<Value>| {
            let since = self.references.get(&(uid(object), name.clone()));
            since.is_some_and(|since| !self.is_disturbed && at > *since + STALE_MAX)
        };
        referrers(class, server).iter().find(is_known).map(|object| describe(object))
    }
}

impl Checker for AttributesClassProtection {
    fn name(&self) -> &'static str {
        "volumeattributesclass-protection-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        self.remember(write);
        let is_class = write.request.resource == "volumeattributesclasses";
        let of_manager = is_class && write.by_manager() && write.succeeded();
        let Some(before) = write.before.as_deref().filter(|_| of_manager) else { return Ok(()) };
        let is_kept = write.after.as_deref().is_some_and(|after| has_finalizer(after, CLASS_FINALIZER));
        if is_kept || !has_finalizer(before, CLASS_FINALIZER) {
            return Ok(());
        }
        if !is_terminating(before) {
            return Err(format!("living {} lost its finalizer", describe(before)));
        }
        match self.known_referrer(before, write.at, server) {
            Some(referrer) => {
                Err(format!("{} lost its finalizer while {referrer} names it", describe(before)))
            }
            None => Ok(()),
        }
    }

    fn on_fault(&mut self, _: Duration) {
        self.is_disturbed = true;
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for class in &server.objects("volumeattributesclasses") {
            let protected = has_finalizer(class, CLASS_FINALIZER);
            if is_terminating(class) && protected && referrers(class, server).is_empty() {
                return Err(format!("{} is deleted and unused, and has its finalizer", describe(class)));
            }
            if !is_terminating(class) && !protected {
                return Err(format!("{} has no finalizer", describe(class)));
            }
        }
        Ok(())
    }
}
