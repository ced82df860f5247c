//! VolumeAttachments: no volume that only one node may have is attached to two, and none is detached while its node has it
//! in use, unless the node is out of service, or gone or not Ready six minutes after the last pod. In the end exactly the
//! volumes that pods need are attached and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, controller_ref, describe, is_terminating, namespace, uid};
use crate::recorder::{ObservedWrite, text};
use crate::user_interference::OUT_OF_SERVICE;
use crate::user_storage::DRIVER;

/// The service account of the controller.
const ATTACH_DETACH: &str = "attachdetach-controller";
/// A volume in use is detached by force only after this time.
const FORCE_DETACH_AFTER: Duration = Duration::from_secs(360);
/// A manager's cache may be behind for this long: the longest fault, and some time to recover from it.
const STALE_FOR: Duration = Duration::from_secs(150);

/// A node and the unique name of a volume.
type VolumeOnNode = (String, String);

/// Watches VolumeAttachments and the status of nodes.
#[derive(Default)]
pub struct Attachments {
    writes: u64,
    /// The write since which the node reports the volume in use.
    in_use_since: BTreeMap<VolumeOnNode, u64>,
    /// The write that last removed the volume from the node's attached ones.
    unreported_at: BTreeMap<VolumeOnNode, u64>,
    /// When a pod on the node last needed the volume.
    needed_until: BTreeMap<VolumeOnNode, Duration>,
    /// When the node was last observed to be not Ready, or gone.
    unhealthy_until: BTreeMap<String, Duration>,
    /// When the node last had the taint.
    out_of_service_until: BTreeMap<String, Duration>,
    /// Volumes that were attached to another node after the first attach was refused, until only one VolumeAttachment is left.
    tried_twice: BTreeSet<String>,
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The unique name of a volume. All volumes of storms have the handle of their name.
fn unique_name(driver: &str, volume: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{volume}")
}

fn volume_of(attachment: &Value) -> &str {
    text(attachment, "/spec/source/persistentVolumeName")
}

fn node_of(attachment: &Value) -> &str {
    text(attachment, "/spec/nodeName")
}

fn attached_volumes(node: &Value) -> BTreeSet<&str> {
    items(node, "/status/volumesAttached").map(|volume| text(volume, "/name")).collect()
}

fn is_out_of_service(node: &Value) -> bool {
    items(node, "/spec/taints").any(|taint| taint["key"] == OUT_OF_SERVICE)
}

fn is_attached(attachment: &Value) -> bool {
    attachment.pointer("/status/attached") == Some(&Value::Bool(true))
}

/// Whether only one node may have a volume at a time.
fn is_exclusive(volume: &Value) -> bool {
    items(volume, "/spec/accessModes").all(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod")
}

/// Parity: the attach-detach controller's `IsPodTerminated`.
fn is_terminated(pod: &Value) -> bool {
    let has_ended = |status: &Value| {
        status.pointer("/state/terminated").is_some() || status.pointer("/state/waiting").is_some()
    };
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
        || is_terminating(pod) && items(pod, "/status/containerStatuses").all(has_ended)
}

/// The volumes of a CSI driver that the claims of a pod are bound to.
fn volumes_of(pod: &Value, server: &ApiServer) -> Vec<std::sync::Arc<Value>> {
    let volume = |volume: &Value| {
        let is_ephemeral = volume.get("ephemeral").is_some();
        let name = match is_ephemeral {
            true => format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name")),
            false => text(volume, "/persistentVolumeClaim/claimName").to_owned(),
        };
        let claim = server.object("persistentvolumeclaims", namespace(pod), &name)?;
        let is_own = controller_ref(&claim).is_some_and(|owner| owner["uid"] == pod["metadata"]["uid"]);
        let bound = server.object("persistentvolumes", "", text(&claim, "/spec/volumeName"))?;
        let is_bound = text(&claim, "/status/phase") == "Bound"
            && text(&bound, "/spec/claimRef/uid") == uid(&claim)
            && text(&bound, "/spec/csi/driver") == DRIVER;
        (is_bound && (is_own || !is_ephemeral)).then_some(bound)
    };
    items(pod, "/spec/volumes").filter_map(volume).collect()
}

impl Attachments {
    fn observe_node(&mut self, write: &ObservedWrite) {
        let name = &write.request.name;
        let name = if name.is_empty() { text(&write.body, "/metadata/name") } else { name.as_str() };
        let is_healthy = |node: Option<&Value>| node.is_some_and(|node| condition_is_true(node, "Ready"));
        let states = [write.before.as_deref(), write.after.as_deref()];
        if states.into_iter().any(|state| !is_healthy(state)) {
            self.unhealthy_until.insert(name.to_owned(), write.at);
        }
        if states.into_iter().flatten().any(is_out_of_service) {
            self.out_of_service_until.insert(name.to_owned(), write.at);
        }
        // What a deleted node had in use counts until a node of its name says something else.
        let Some(after) = write.after.as_deref() else { return };
        let in_use: BTreeSet<&str> = items(after, "/status/volumesInUse").filter_map(Value::as_str).collect();
        self.in_use_since.retain(|(node, volume), _| node != name || in_use.contains(volume.as_str()));
        for volume in in_use {
            self.in_use_since.entry((name.to_owned(), volume.to_owned())).or_insert(self.writes);
        }
        let before = write.before.as_deref().map(attached_volumes).unwrap_or_default();
        let after = attached_volumes(after);
        for volume in before.difference(&after) {
            self.unreported_at.insert((name.to_owned(), (*volume).to_owned()), self.writes);
        }
        self.unreported_at.retain(|(node, volume), _| node != name || !after.contains(volume.as_str()));
    }

    fn observe_pod(&mut self, write: &ObservedWrite, server: &ApiServer) {
        let Some(before) = write.before.as_deref().filter(|before| !is_terminated(before)) else { return };
        for volume in volumes_of(before, server) {
            let name = unique_name(DRIVER, text(&volume, "/metadata/name"));
            self.needed_until.insert((text(before, "/spec/nodeName").to_owned(), name), write.at);
        }
    }

    /// The volume may be detached from its node now.
    fn check_detach(
        &self,
        attachment: &Value,
        write: &ObservedWrite,
        server: &ApiServer,
    ) -> Result<(), String> {
        let node_name = node_of(attachment);
        let volume = unique_name(text(attachment, "/spec/attacher"), volume_of(attachment));
        let node = server.object("nodes", "", node_name);
        if node.as_deref().is_some_and(|node| attached_volumes(node).contains(volume.as_str())) {
            return Err(format!("{volume} is detached from {node_name}, which still reports it as attached"));
        }
        let key = (node_name.to_owned(), volume);
        // A node that reports the volume only after its status said that it is not attached has not mounted it.
        let is_mounted = self
            .in_use_since
            .get(&key)
            .is_some_and(|since| self.unreported_at.get(&key).is_none_or(|unreported| since < unreported));
        if !is_mounted {
            return Ok(());
        }
        let is_recent = |times: &BTreeMap<String, Duration>| {
            times.get(node_name).is_some_and(|until| write.at.saturating_sub(*until) < STALE_FOR)
        };
        if node.as_deref().is_some_and(is_out_of_service) || is_recent(&self.out_of_service_until) {
            return Ok(());
        }
        let is_unhealthy = node.as_deref().is_none_or(|node| !condition_is_true(node, "Ready"))
            || is_recent(&self.unhealthy_until);
        let unneeded_for = self.needed_until.get(&key).map(|until| write.at.saturating_sub(*until));
        let has_timed_out = unneeded_for.is_none_or(|time| time >= FORCE_DETACH_AFTER);
        if is_unhealthy && has_timed_out {
            return Ok(());
        }
        let (_, volume) = key;
        Err(format!("{volume} is detached from {node_name}, which has it in use; healthy: {}", !is_unhealthy))
    }

    /// The volume of a VolumeAttachment is attached to no other node, nor may the external attacher still attach it there.
    fn check_exclusive(&mut self, attachment: &Value, server: &ApiServer) -> Result<(), String> {
        let name = volume_of(attachment);
        let volume = server.object("persistentvolumes", "", name);
        if self.tried_twice.contains(name) || !volume.as_deref().is_some_and(is_exclusive) {
            return Ok(());
        }
        let attachments = server.objects("volumeattachments.storage.k8s.io");
        let others = attachments
            .iter()
            .filter(|other| volume_of(other) == name && node_of(other) != node_of(attachment));
        for other in others {
            // After a refusal another node may try: the driver repeats the first attach as long as its object exists.
            if !is_attached(other) && other.pointer("/status/attachError").is_some() {
                self.tried_twice.insert(name.to_owned());
            } else if is_attached(other) || !is_attached(attachment) {
                let nodes = [node_of(other), node_of(attachment)];
                return Err(format!("{name} is attached to {nodes:?}, or may be"));
            }
        }
        Ok(())
    }
}

impl Attachments {
    /// A VolumeAttachment is gone: the driver no longer repeats its attach.
    fn observe_removal(&mut self, server: &ApiServer) {
        let attachments = server.objects("volumeattachments.storage.k8s.io");
        let left = |volume: &String| attachments.iter().filter(|one| volume_of(one) == volume).count();
        self.tried_twice.retain(|volume| left(volume) > 1);
    }
}

impl Checker for Attachments {
    fn name(&self) -> &'static str {
        "persistentvolume-attach-detach-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if !write.succeeded() {
            return Ok(());
        }
        self.writes += 1;
        let is_removed = write.before.is_some() && write.after.is_none();
        if write.request.resource == "volumeattachments" && is_removed {
            self.observe_removal(server);
        }
        match write.request.resource.as_str() {
            "nodes" => self.observe_node(write),
            "pods" => self.observe_pod(write, server),
            "volumeattachments" if write.request.method == Method::DELETE => {
                let before = write.before.as_deref().filter(|before| !is_terminating(before));
                if let Some(before) = before.filter(|_| write.component == ATTACH_DETACH) {
                    return self.check_detach(before, write, server);
                }
            }
            "volumeattachments" => {
                // The request that creates one names no object.
                let created =
                    (write.request.method == Method::POST && write.by_manager()).then_some(&write.body);
                let attached = write.after.as_deref().filter(|after| is_attached(after));
                return created.or(attached).map_or(Ok(()), |after| self.check_exclusive(after, server));
            }
            _ => {}
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let attachments = server.objects("volumeattachments.storage.k8s.io");
        // By volume: the nodes that need it.
        let mut needed: BTreeMap<String, (bool, BTreeSet<String>)> = BTreeMap::new();
        let pods = server.objects("pods");
        for pod in pods.iter().filter(|pod| !is_terminated(pod)) {
            let node = text(pod, "/spec/nodeName");
            if node.is_empty() || server.object("nodes", "", node).is_none() {
                continue;
            }
            for volume in volumes_of(pod, server) {
                let name = text(&volume, "/metadata/name").to_owned();
                let entry = needed.entry(name).or_insert_with(|| (is_exclusive(&volume), BTreeSet::new()));
                entry.1.insert(node.to_owned());
            }
        }
        for (volume, (exclusive, nodes)) in &needed {
            let has_it = |node: &&String| {
                let is_reported = server.object("nodes", "", node).is_some_and(|node| {
                    attached_volumes(&node).contains(unique_name(DRIVER, volume).as_str())
                });
                let mut of_it = attachments
                    .iter()
                    .filter(|one| volume_of(one) == volume && node_of(one) == node.as_str());
                is_reported && of_it.any(|one| is_attached(one))
            };
            let expected = if *exclusive { 1 } else { nodes.len() };
            let actual = nodes.iter().filter(has_it).count();
            if actual != expected {
                return Err(format!("{volume} is needed on {nodes:?} and attached to {actual} of them"));
            }
        }
        let is_needed = |attachment: &Value| {
            needed.get(volume_of(attachment)).is_some_and(|(_, nodes)| nodes.contains(node_of(attachment)))
        };
        // One that was not attached when verification found it is left alone, as by the original.
        let left_over = attachments.iter().find(|one| is_attached(one) && !is_needed(one));
        match left_over {
            Some(attachment) => Err(format!(
                "{} attaches {} to {}, where no pod needs it",
                describe(attachment),
                volume_of(attachment),
                node_of(attachment)
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    const PATH: &str = "/apis/storage.k8s.io/v1/volumeattachments";

    fn attachment(node: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("on-{node}")},
            "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": "v"}},
            "status": status,
        })
    }

    /// The controller creates a VolumeAttachment for a node.
    fn creation(node: &str) -> ObservedWrite {
        let body = attachment(node, &Value::Null);
        ObservedWrite { body, ..ObservedWrite::of_manager(ATTACH_DETACH, &Method::POST, PATH) }
    }

    #[test]
    fn refused_attach_permits_a_second_node_while_its_object_exists() {
        let (server, mut checker) = (ApiServer::builder().build(), Attachments::default());
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": "v"}});
        let volume =
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec});
        server.seed(volume).unwrap();
        let refused = json!({"attached": false, "attachError": {"message": "refused"}});
        server.seed(attachment("a", &refused)).unwrap();
        assert_eq!(checker.on_write(&creation("b"), &server), Ok(()));
        server.seed(attachment("b", &json!({"attached": true}))).unwrap();
        assert_eq!(checker.on_write(&creation("c"), &server), Ok(()), "the driver may attach it to a");
        // The refused one is gone.
        assert!(server.remove("volumeattachments.storage.k8s.io", "", "on-a"));
        let removal = ObservedWrite::of_manager("driver", &Method::PATCH, &format!("{PATH}/on-a"));
        let before = Some(Arc::new(attachment("a", &refused)));
        assert_eq!(checker.on_write(&ObservedWrite { before, ..removal }, &server), Ok(()));
        let error = checker.on_write(&creation("c"), &server).unwrap_err();
        assert_eq!(error, "v is attached to [\"b\", \"c\"], or may be");
    }
}
