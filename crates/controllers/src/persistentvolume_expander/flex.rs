//! Expansion of FlexVolumes. Nothing but the node expands them, so the controller's part is done when it has written the
//! sizes: it records the target in the claim, sets the size of the volume and marks the claim for the node.
//!
//! Parity: `expandAndRecoverFunction` of pkg/volume/util/operationexecutor.

use keleustes_objects::{
    ApiError, ArcStr, Condition, Object as _, PersistentVolume, PersistentVolumeClaim, TRUE, Time,
};
use keleustes_plan::{Context, InvolvedObject, PatchKind, PlannedEvent, ReconcileError, Write};
use serde_json::{Value, json};

use super::{PRE_RESIZE_CAPACITY, STORAGE_RESIZER, patch_claim, record, send};

const RESIZING: &str = "Resizing";
const FILE_SYSTEM_RESIZE_PENDING: &str = "FileSystemResizePending";
/// The conditions that an expansion sets.
const RESIZE_CONDITIONS: [&str; 4] =
    [RESIZING, FILE_SYSTEM_RESIZE_PENDING, "ControllerResizeError", "NodeResizeError"];

const WAITING: &str = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";

const CONTROLLER_RESIZE_IN_PROGRESS: &str = "ControllerResizeInProgress";
const CONTROLLER_RESIZE_INFEASIBLE: &str = "ControllerResizeInfeasible";
const NODE_RESIZE_PENDING: &str = "NodeResizePending";
const NODE_RESIZE_IN_PROGRESS: &str = "NodeResizeInProgress";
const NODE_RESIZE_INFEASIBLE: &str = "NodeResizeInfeasible";

/// What an expansion does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// The node has finished: the volume no longer needs the old capacity.
    Finish,
    /// The node works on it.
    Wait,
    /// The node failed and may try again.
    MarkForNode,
    /// The volume gets this size.
    Expand(ArcStr),
}

fn decide(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Next {
    let (wanted, has) = (claim.spec.resources.requests.storage(), claim.status.capacity.storage());
    let size = volume.spec.capacity.storage();
    if has >= wanted && has >= size && volume.annotations.value(PRE_RESIZE_CAPACITY).is_some() {
        return Next::Finish;
    }
    let request = || text_of(claim.spec.resources.requests.text("storage"));
    let allocated = || claim.status.allocated_resources.text("storage").cloned().unwrap_or_else(request);
    let status = claim.status.allocated_resource_statuses.value("storage").map_or("", ArcStr::as_str);
    if size < wanted {
        return Next::Expand(match status {
            CONTROLLER_RESIZE_IN_PROGRESS
            | NODE_RESIZE_PENDING
            | NODE_RESIZE_IN_PROGRESS
            | NODE_RESIZE_INFEASIBLE => allocated(),
            _ => request(),
        });
    }
    match status {
        NODE_RESIZE_PENDING | NODE_RESIZE_IN_PROGRESS => Next::Wait,
        NODE_RESIZE_INFEASIBLE => Next::MarkForNode,
        CONTROLLER_RESIZE_IN_PROGRESS | CONTROLLER_RESIZE_INFEASIBLE | "" => Next::Expand(allocated()),
        _ => Next::Expand(request()),
    }
}

/// The text of a quantity; a missing one is zero.
fn text_of(quantity: Option<&ArcStr>) -> ArcStr {
    quantity.cloned().unwrap_or_else(|| "0".into())
}

/// Expands the volume of a claim, or goes on where an earlier attempt ended.
pub(super) async fn expand(
    cx: &mut Context<'_>,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    driver: &str,
) -> Result<(), ReconcileError> {
    let mut expansion = Expansion {
        claim,
        volume,
        resource_version: claim.meta.resource_version.to_string(),
        conditions: claim.status.conditions.to_vec(),
        now: cx.gather(|view| view.now().wall),
    };
    let result = match decide(claim, volume) {
        Next::Wait => return Ok(()),
        Next::Finish => {
            let body = json!({"metadata": {"annotations": {PRE_RESIZE_CAPACITY: null}}});
            let done = expansion.patch_volume(cx, body, "the node has expanded the volume").await;
            return done.map_err(|(message, error)| ReconcileError::from_api_error(&error, message));
        }
        Next::MarkForNode => expansion.mark_for_node(cx).await,
        Next::Expand(size) => expansion.run(cx, driver, &size).await,
    };
    let Err((message, error)) = result else { return Ok(()) };
    let event = PlannedEvent::warning(InvolvedObject::of(claim), "VolumeResizeFailed", message.clone());
    record(cx, event).await;
    Err(ReconcileError::from_api_error(&error, message))
}

/// The message of a failed step, and its cause.
type Failure = (String, ApiError);

/// An expansion, with the state of the claim after the last write.
struct Expansion<'a> {
    claim: &'a PersistentVolumeClaim,
    volume: &'a PersistentVolume,
    resource_version: String,
    conditions: Vec<Condition>,
    now: Time,
}

impl Expansion<'_> {
    async fn run(&mut self, cx: &mut Context<'_>, driver: &str, size: &str) -> Result<(), Failure> {
        let key = self.claim.key();
        let mut body = json!({"metadata": {"annotations": {STORAGE_RESIZER: driver}}, "status": {
            "allocatedResources": {"storage": size},
            "allocatedResourceStatuses": {"storage": CONTROLLER_RESIZE_IN_PROGRESS},
        }});
        self.set_conditions(&mut body, Some((RESIZING, "")), false);
        self.patch_claim(cx, body, "the volume is being expanded").await.map_err(|failure| {
            prefixed(&format!("error updating pvc {key} with resize in progress"), failure)
        })?;
        let body = json!({"spec": {"capacity": {"storage": size}}});
        self.patch_volume(cx, body, "the volume has its new size")
            .await
            .map_err(|failure| prefixed(&format!("error updating pv for pvc {key}"), failure))?;
        if self.volume.spec.volume_mode.as_ref().is_some_and(|mode| *mode == "Block") {
            return self.finish(cx, size).await;
        }
        let marked = self.mark_for_node(cx).await;
        marked.map_err(|failure| prefixed(&format!("error marking pvc {key} for node expansion"), failure))
    }

    /// A block volume has no file system that a node would have to expand.
    async fn finish(&mut self, cx: &mut Context<'_>, size: &str) -> Result<(), Failure> {
        let key = self.claim.key();
        let mut body = json!({"status": {
            "capacity": {"storage": size}, "allocatedResourceStatuses": {"storage": null},
        }});
        self.set_conditions(&mut body, None, false);
        self.patch_claim(cx, body, "the block volume has its new size")
            .await
            .map_err(|failure| prefixed(&format!("error marking pvc {key} as resized"), failure))?;
        let message = format!("ExpandVolume succeeded for volume {key}");
        let involved = InvolvedObject::of(self.claim);
        record(cx, PlannedEvent::normal(involved, "VolumeResizeSuccessful", message)).await;
        Ok(())
    }

    /// Leaves the file system to the node, and the old capacity on the volume: a claim that is deleted before the node is
    /// done can be restored from it.
    async fn mark_for_node(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        let key = self.claim.key();
        let mut body = json!({"status": {"allocatedResourceStatuses": {"storage": NODE_RESIZE_PENDING}}});
        self.set_conditions(&mut body, Some((FILE_SYSTEM_RESIZE_PENDING, WAITING)), true);
        self.patch_claim(cx, body, "the node has to expand the file system")
            .await
            .map_err(|failure| prefixed(&format!("error marking pvc {key} for node expansion"), failure))?;
        if self.volume.annotations.value(PRE_RESIZE_CAPACITY).is_some() {
            return Ok(());
        }
        let old = text_of(self.claim.status.capacity.text("storage"));
        let body = json!({"metadata": {"annotations": {PRE_RESIZE_CAPACITY: old}}});
        self.patch_volume(cx, body, "the node has to expand the file system").await.map_err(|failure| {
            let name = &self.volume.meta.key.name;
            let what = format!(
                "error updating pv {name} annotation ({PRE_RESIZE_CAPACITY}) with pre-resize capacity {old}"
            );
            prefixed(&what, failure)
        })
    }

    /// Adds to the patch what makes of the current conditions the new ones: those that no expansion sets stay, one of the
    /// same status stays as it is, and other conditions of expansions stay if `keep_others`.
    ///
    /// Parity: `MergeResizeConditionOnPVC`.
    fn set_conditions(&mut self, body: &mut Value, new: Option<(&str, &str)>, keep_others: bool) {
        let is_new = |condition: &Condition| new.is_some_and(|(r#type, _)| condition.r#type == r#type);
        let goes = |condition: &Condition| {
            RESIZE_CONDITIONS.contains(&condition.r#type.as_str()) && !is_new(condition) && !keep_others
        };
        let mut patch: Vec<Value> = Vec::new();
        for condition in self.conditions.iter().filter(|condition| goes(condition)) {
            patch.push(json!({"$patch": "delete", "type": condition.r#type}));
        }
        self.conditions.retain(|condition| !goes(condition));
        let stays = self.conditions.iter().any(|condition| is_new(condition) && condition.is_true());
        if let Some((r#type, message)) = new.filter(|_| !stays) {
            let condition = Condition::new(r#type, TRUE, "", message, self.now);
            patch.push(json!({"type": r#type, "status": TRUE, "reason": null, "lastProbeTime": null,
                "message": Some(message).filter(|text| !text.is_empty()), "lastTransitionTime": self.now}));
            self.conditions.retain(|condition| !is_new(condition));
            self.conditions.push(condition);
        }
        if !patch.is_empty() {
            body["status"]["conditions"] = json!(patch);
        }
    }

    async fn patch_claim(
        &mut self,
        cx: &mut Context<'_>,
        body: Value,
        because: &'static str,
    ) -> Result<(), Failure> {
        let patched = patch_claim(cx, self.claim, &self.resource_version, body, because).await;
        let name = self.claim.key().name.as_str();
        let what = || format!("patchPVCStatus failed to patch PVC {name:?}");
        self.resource_version = patched.map_err(|error| (format!("{}: {error}", what()), error))?;
        Ok(())
    }

    async fn patch_volume(
        &self,
        cx: &mut Context<'_>,
        body: Value,
        because: &'static str,
    ) -> Result<(), Failure> {
        let write = Write::patch(self.volume, PatchKind::Strategic, body).because(because);
        let name = self.volume.meta.key.name.as_str();
        let sent = send(cx, write).await;
        sent.map(drop).map_err(|error| (format!("error Patching PV {name:?} with error : {error}"), error))
    }
}

fn prefixed(what: &str, (message, error): Failure) -> Failure {
    (format!("{what}: {message}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(request: &str, capacity: &str, allocated: Option<&str>, status: &str) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "a"},
            "spec": {"resources": {"requests": {"storage": request}}},
            "status": {"phase": "Bound", "capacity": {"storage": capacity}},
        });
        if let Some(allocated) = allocated {
            claim["status"]["allocatedResources"] = json!({"storage": allocated});
        }
        if !status.is_empty() {
            claim["status"]["allocatedResourceStatuses"] = json!({"storage": status});
        }
        serde_json::from_value(claim).unwrap()
    }

    fn volume(size: &str, is_annotated: bool) -> PersistentVolume {
        let annotations = if is_annotated { json!({PRE_RESIZE_CAPACITY: "1Gi"}) } else { json!({}) };
        serde_json::from_value(json!({"metadata": {"name": "pv", "annotations": annotations},
                                      "spec": {"capacity": {"storage": size}}}))
        .unwrap()
    }

    fn next(size: &str, allocated: Option<&str>, status: &str) -> Next {
        decide(&claim("3Gi", "1Gi", allocated, status), &volume(size, false))
    }

    /// Proves EXP-36.
    #[test]
    fn smaller_volume_grows_to_what_was_allocated_while_that_is_under_way() {
        for status in [
            CONTROLLER_RESIZE_IN_PROGRESS,
            NODE_RESIZE_PENDING,
            NODE_RESIZE_IN_PROGRESS,
            NODE_RESIZE_INFEASIBLE,
        ] {
            assert_eq!(next("1Gi", Some("2Gi"), status), Next::Expand("2Gi".into()), "{status}");
            assert_eq!(next("1Gi", None, status), Next::Expand("3Gi".into()), "{status}");
        }
        for status in ["", CONTROLLER_RESIZE_INFEASIBLE, "unknown"] {
            assert_eq!(next("1Gi", Some("2Gi"), status), Next::Expand("3Gi".into()), "{status}");
        }
    }

    /// Proves EXP-37.
    #[test]
    fn volume_of_the_requested_size_waits_for_the_node_or_goes_on() {
        for status in [NODE_RESIZE_PENDING, NODE_RESIZE_IN_PROGRESS] {
            assert_eq!(next("3Gi", Some("2Gi"), status), Next::Wait, "{status}");
        }
        assert_eq!(next("3Gi", Some("2Gi"), NODE_RESIZE_INFEASIBLE), Next::MarkForNode);
        for status in [CONTROLLER_RESIZE_IN_PROGRESS, CONTROLLER_RESIZE_INFEASIBLE, ""] {
            assert_eq!(next("4Gi", Some("2Gi"), status), Next::Expand("2Gi".into()), "{status}");
            assert_eq!(next("4Gi", None, status), Next::Expand("3Gi".into()), "{status}");
        }
        assert_eq!(next("3Gi", Some("2Gi"), "unknown"), Next::Expand("3Gi".into()));
    }

    /// Proves EXP-31.
    #[test]
    fn old_capacity_goes_when_the_claim_has_grown() {
        let of = |request: &str, capacity: &str, size: &str, is_annotated: bool| {
            decide(&claim(request, capacity, None, NODE_RESIZE_PENDING), &volume(size, is_annotated))
        };
        assert_eq!(of("2Gi", "2048Mi", "2Gi", true), Next::Finish);
        assert_eq!(of("2Gi", "1Gi", "2Gi", true), Next::Wait, "smaller than asked for");
        assert_eq!(of("2Gi", "2Gi", "3Gi", true), Next::Wait, "smaller than the volume");
        assert_eq!(of("2Gi", "2Gi", "2Gi", false), Next::Wait, "not annotated");
    }
}
