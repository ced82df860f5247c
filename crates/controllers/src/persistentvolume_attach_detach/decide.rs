//! What is to be done on a node: operations that have ended, volumes to detach, volumes to attach.

use std::collections::BTreeSet;
use std::time::Duration;

use keleustes_objects::{ArcStr, Key, Node, VolumeAttachment};
use keleustes_plan::{PlannedEvent, View};
use keleustes_x509::quoted;

use super::AttachDetachOptions;
use super::actual::Attachment;
use super::desired::{DesiredVolume, PodReference};
use super::operations::{OperationKind, Permission, Running, Waiting};
use super::resolve::is_attachable;
use super::state::State;
use super::volume::{
    DetachTarget, NodeName, VolumeName, VolumeSource, VolumeSpec, attachment_name, detach_target,
};

/// How long a volume may be in use on an unhealthy node after its last pod is gone.
pub(super) const FORCE_DETACH_AFTER: Duration = Duration::from_secs(360);
/// The taint of a node that is shut down for certain; its volumes are detached without waiting for its kubelet.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How often it is looked whether another node still has a volume about which nothing is certain.
const UNCERTAIN_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Reason of an event about a failed or delayed attach.
pub(super) const FAILED_ATTACH_VOLUME: &str = "FailedAttachVolume";

/// The result of an operation.
pub(super) struct Finished {
    /// The volume.
    pub(super) volume: VolumeName,
    /// Its error.
    pub(super) result: Result<(), String>,
}

/// A volume to detach.
pub(super) struct DetachStep {
    /// The volume.
    pub(super) volume: VolumeName,
    /// How it is detached.
    pub(super) target: DetachTarget,
    /// Whether it is detached without asking the node; with the label of the metric.
    pub(super) forced: Option<&'static str>,
}

/// A volume to attach.
pub(super) struct AttachStep {
    /// The volume.
    pub(super) volume: VolumeName,
    /// What it is.
    pub(super) spec: VolumeSpec,
    /// Whether its driver attaches volumes no longer.
    pub(super) is_unattachable: bool,
    /// The VolumeAttachments on other nodes that may have the volume, which only one may have.
    pub(super) uncertain_elsewhere: Vec<UncertainAttachment>,
}

/// A VolumeAttachment about which nothing is certain: its attach or its detach has failed, or an earlier process left it.
pub(super) struct UncertainAttachment {
    /// The VolumeAttachment.
    pub(super) key: Key,
    /// Its node.
    pub(super) node: NodeName,
    /// Whether a pod on that node needs the volume.
    pub(super) is_wanted: bool,
}

impl UncertainAttachment {
    /// Whether the volume may be attached to another node although this VolumeAttachment exists: its own attach has
    /// failed, and the pod that needs it must not keep the volume from all others. As long as the external attacher has not
    /// answered, it may still attach the volume; and one that no pod needs is deleted first.
    pub(super) fn leaves_volume_free(&self, found: &VolumeAttachment) -> bool {
        self.is_wanted && !found.attached && found.attach_error.is_some()
    }
}

/// The running operations of a node that have ended. Operations that a panic interrupted have failed.
pub(super) fn finished(state: &State, view: &View<'_>, node: &NodeName) -> Vec<Finished> {
    let now = view.now().monotonic;
    let ended = state.operations.running_on(node).filter_map(|(volume, running)| {
        let result = match &running.waiting {
            None => Some(Err("the operation was interrupted".to_owned())),
            Some(waiting) => {
                let attachment = view
                    .get::<VolumeAttachment>(&Key::cluster(waiting.attachment.as_str()))
                    .map(|found| &**found);
                match running.kind {
                    OperationKind::Attach => attach_result(running, waiting, attachment, now),
                    OperationKind::Detach => detach_result(waiting, attachment, now),
                }
            }
        };
        Some(Finished { volume: volume.clone(), result: result? })
    });
    ended.collect()
}

/// Parity: verifyAttachmentStatus and waitForVolumeAttachmentWithLister.
fn attach_result(
    running: &Running,
    waiting: &Waiting,
    attachment: Option<&VolumeAttachment>,
    now: Duration,
) -> Option<Result<(), String>> {
    let driver = match running.spec.as_ref().map(|spec| &spec.source) {
        Some(VolumeSource::Csi { driver, .. }) => driver.as_str(),
        _ => "unknown",
    };
    let result = match attachment {
        Some(attachment) if attachment.meta.deletion_timestamp.is_some() => {
            Some(Err("volume attachment is being deleted".to_owned()))
        }
        Some(attachment) if attachment.attached => return Some(Ok(())),
        Some(attachment) => attachment.attach_error.as_ref().map(|error| Err(error.to_string())),
        None => None,
    };
    let timeout = || timeout("attach", driver, waiting, now);
    result.filter(|_| waiting.counts_errors(now)).or_else(timeout)
}

/// Parity: verifyDetachmentStatus and waitForVolumeDetachmentWithLister.
fn detach_result(
    waiting: &Waiting,
    attachment: Option<&VolumeAttachment>,
    now: Duration,
) -> Option<Result<(), String>> {
    let Some(attachment) = attachment else { return Some(Ok(())) };
    let error = attachment.detach_error.as_ref().filter(|_| waiting.counts_errors(now));
    let error = error.map(|error| Err(error.to_string()));
    error.or_else(|| timeout("detach", "unknown", waiting, now))
}

fn timeout(verb: &str, driver: &str, waiting: &Waiting, now: Duration) -> Option<Result<(), String>> {
    let handle = &waiting.handle;
    waiting.has_timed_out(now).then(|| {
        Err(format!(
            "timed out waiting for external-attacher of {driver} CSI driver to {verb} volume {handle}"
        ))
    })
}

/// What the health of a node allows.
struct NodeHealth {
    is_healthy: bool,
    is_out_of_service: bool,
}

impl NodeHealth {
    fn of(view: &View<'_>, node: &NodeName) -> Self {
        let node = view.get::<Node>(&Key::cluster(ArcStr::from(node.as_str())));
        Self {
            is_healthy: node.is_some_and(|node| node.is_ready()),
            is_out_of_service: node
                .is_some_and(|node| node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)),
        }
    }
}

/// The volumes of a node that are to be detached now. Their operations are started and they are not reported any more.
///
/// Parity: reconcile of reconciler.go.
pub(super) fn begin_detaches(
    state: &mut State,
    view: &View<'_>,
    node: &NodeName,
    options: AttachDetachOptions,
) -> Vec<DetachStep> {
    let now = view.now().monotonic;
    let health = NodeHealth::of(view, node);
    let unwanted: Vec<VolumeName> =
        state.actual.volumes_on(node).filter(|volume| !state.desired.wants(node, volume)).cloned().collect();
    let mut steps = Vec::new();
    for volume in unwanted {
        let key_node = state.actual.allows_multi_attach(&volume).then(|| node.clone());
        let permission = state.operations.permission(&volume, key_node.as_ref(), OperationKind::Detach, now);
        if permission != Permission::Granted {
            continue;
        }
        let requested_at = state.actual.request_detach(&volume, node, now);
        let has_timed_out = now > requested_at + FORCE_DETACH_AFTER
            && !options.disable_force_detach_on_timeout
            && !health.is_healthy;
        let forced = match (has_timed_out, health.is_out_of_service) {
            (true, _) => Some("timeout"),
            (false, true) => Some("out-of-service"),
            (false, false) => None,
        };
        let is_in_use = state.actual.is_in_use(&volume, node);
        if forced.is_none() && is_in_use && !is_assumption_in_the_way(state, view, &volume, node) {
            continue;
        }
        // A volume that no plugin knows stays attached and reported.
        let Some(target) = detach_target(&volume) else { continue };
        let spec = state.actual.spec(&volume).cloned();
        let running =
            Running { kind: OperationKind::Detach, spec, pods: Vec::new(), started_at: now, waiting: None };
        state.operations.start(&volume, key_node, node, running);
        state.actual.unreport(&volume, node);
        steps.push(DetachStep { volume, target, forced });
    }
    steps
}

/// Whether a volume that only one node may have is needed elsewhere, and nothing but an assumption keeps it here: the
/// controller takes a new entry for one in use until the node reports otherwise. An uncertain volume is not reported as
/// attached, so its node does not mount it; what the node reports in use, or a deleted node reported last,
/// counts, and is read live before the detach.
fn is_assumption_in_the_way(state: &State, view: &View<'_>, volume: &VolumeName, node: &NodeName) -> bool {
    let is_uncertain =
        state.actual.attachment(volume, node).is_some_and(|attachment| !attachment.is_confirmed);
    let is_wanted_elsewhere = !state.actual.allows_multi_attach(volume)
        && state.desired.nodes_of(volume).any(|(other, _)| other != node);
    let is_assumption = match view.get::<Node>(&Key::cluster(ArcStr::from(node.as_str()))) {
        Some(cached) => !cached.volumes_in_use.contains(volume),
        None => state.actual.is_only_assumed_in_use(volume, node),
    };
    is_uncertain && is_wanted_elsewhere && is_assumption
}

/// The volumes of a node that are to be attached now, whose operations are started; the events about those that
/// must wait until another node has lost them; and the nodes to enqueue because they may lose one at once.
///
/// Parity: attachDesiredVolumes.
pub(super) fn begin_attaches(
    state: &mut State,
    view: &View<'_>,
    node: &NodeName,
) -> (Vec<AttachStep>, Vec<PlannedEvent>, BTreeSet<NodeName>) {
    let now = view.now().monotonic;
    let (mut steps, mut events, mut enqueued) = (Vec::new(), Vec::new(), BTreeSet::new());
    let wanted: Vec<(VolumeName, VolumeSpec)> = state
        .desired
        .volumes_on(node)
        .map(|(volume, desired)| (volume.clone(), desired.spec.clone()))
        .collect();
    for (volume, spec) in wanted {
        let key_node = spec.allows_multi_attach.then(|| node.clone());
        let permission = state.operations.permission(&volume, key_node.as_ref(), OperationKind::Attach, now);
        if permission == Permission::Pending {
            continue;
        }
        if state.actual.attachment(&volume, node).is_some_and(|attachment| attachment.is_confirmed) {
            state.actual.reset_detach_request(&volume, node);
            continue;
        }
        if !spec.allows_multi_attach {
            let holders = exclusive_holders(state, view, &volume, &spec, node);
            if !holders.is_empty() {
                events.extend(report_multi_attach(state, &volume, node, &holders));
                enqueued.extend(holders.into_iter().filter(|holder| is_left_over(state, &volume, holder)));
                continue;
            }
        }
        if permission != Permission::Granted {
            continue;
        }
        let pods: Vec<PodReference> = state
            .desired
            .volume_mut(node, &volume)
            .into_iter()
            .flat_map(|desired| desired.pods.values().cloned())
            .collect();
        let running = Running {
            kind: OperationKind::Attach,
            spec: Some(spec.clone()),
            pods,
            started_at: now,
            waiting: None,
        };
        state.operations.start(&volume, key_node, node, running);
        let is_unattachable = !is_attachable(view, &spec);
        let uncertain_elsewhere = uncertain_elsewhere(state, &volume, &spec, node);
        steps.push(AttachStep { volume, spec, is_unattachable, uncertain_elsewhere });
    }
    (steps, events, enqueued)
}

/// Whether a volume is uncertain on a node where no pod needs it. It may have to be detached there as soon as a
/// pod on another node needs it, and no event of the node itself reports that.
fn is_left_over(state: &State, volume: &VolumeName, node: &NodeName) -> bool {
    !state.desired.wants(node, volume)
        && state.actual.attachment(volume, node).is_some_and(|attachment| !attachment.is_confirmed)
}

/// The nodes that have a volume for certain. The original does not count an uncertain one; here it counts if its
/// VolumeAttachment says that it is attached, because no volume may be attached twice against its access modes.
fn exclusive_holders(
    state: &State,
    view: &View<'_>,
    volume: &VolumeName,
    spec: &VolumeSpec,
    node: &NodeName,
) -> Vec<NodeName> {
    let says_attached = |holder: &NodeName| {
        let VolumeSource::Csi { driver, handle, .. } = &spec.source else { return false };
        let name = attachment_name(handle, driver, holder);
        view.get::<VolumeAttachment>(&Key::cluster(name)).is_some_and(|attachment| attachment.attached)
    };
    let holders = state
        .actual
        .nodes_of(volume)
        .filter(|(holder, attachment)| attachment.is_confirmed || (*holder != node && says_attached(holder)));
    holders.map(|(holder, _)| holder.clone()).collect()
}

/// The VolumeAttachments of a volume that only one node may have, on other nodes on which it is uncertain.
fn uncertain_elsewhere(
    state: &State,
    volume: &VolumeName,
    spec: &VolumeSpec,
    node: &NodeName,
) -> Vec<UncertainAttachment> {
    let VolumeSource::Csi { driver, handle, .. } = &spec.source else { return Vec::new() };
    if spec.allows_multi_attach {
        return Vec::new();
    }
    let is_uncertain =
        |(other, attachment): &(&NodeName, &Attachment)| *other != node && !attachment.is_confirmed;
    let others = state.actual.nodes_of(volume).filter(is_uncertain);
    others
        .map(|(other, _)| UncertainAttachment {
            key: Key::cluster(attachment_name(handle, driver, other)),
            node: other.clone(),
            is_wanted: state.desired.wants(other, volume),
        })
        .collect()
}

/// The events about a volume that another node has, once for each entry of the desired state.
fn report_multi_attach(
    state: &mut State,
    volume: &VolumeName,
    node: &NodeName,
    holders: &[NodeName],
) -> Vec<PlannedEvent> {
    let users: Vec<PodReference> = state
        .desired
        .nodes_of(volume)
        .filter(|(user, _)| *user != node && holders.contains(user))
        .flat_map(|(_, desired)| desired.pods.values().cloned())
        .collect();
    let Some(desired) = state.desired.volume_mut(node, volume) else { return Vec::new() };
    if std::mem::replace(&mut desired.multi_attach_reported, true) {
        return Vec::new();
    }
    let name = quoted(&desired.spec.name);
    let event = |pod: &PodReference| {
        let message = format!("Waiting for detach for volume {name} {}", multi_attach_text(pod, &users));
        PlannedEvent::warning(pod.involved(), FAILED_ATTACH_VOLUME, message)
    };
    desired.pods.values().map(event).collect()
}

fn multi_attach_text(pod: &PodReference, users: &[PodReference]) -> String {
    if users.is_empty() {
        return "Volume is already exclusively attached to one node, waiting on detach before it can be attached to \
                another node"
            .to_owned();
    }
    let is_local = |user: &&PodReference| user.key.namespace == pod.key.namespace;
    let local: Vec<&str> = users.iter().filter(is_local).map(|user| user.key.name.as_str()).collect();
    let elsewhere = users.len() - local.len();
    match (local.is_empty(), elsewhere) {
        (true, _) => format!("Volume is already used by {elsewhere} pod(s) in different namespaces"),
        (false, 0) => format!("Volume is already used by pod(s) {}", local.join(", ")),
        (false, _) => format!(
            "Volume is already used by pod(s) {} and {elsewhere} pod(s) in different namespaces",
            local.join(", ")
        ),
    }
}

/// When a node must be reconciled again without an event; `None` if nothing is to be expected.
pub(super) fn next_wakeup(
    state: &State,
    view: &View<'_>,
    node: &NodeName,
    options: AttachDetachOptions,
) -> Option<Duration> {
    let now = view.now().monotonic;
    let mut times: Vec<Duration> = state.operations.next_check(node, now).into_iter().collect();
    let backoff = |volume: &VolumeName, key_node: Option<&NodeName>, kind: OperationKind| match state
        .operations
        .permission(volume, key_node, kind, now)
    {
        Permission::BackoffUntil(until) => Some(until),
        Permission::Granted | Permission::Pending => None,
    };
    let wanted = state.desired.volumes_on(node);
    times.extend(wanted.filter_map(|(volume, desired)| {
        backoff(volume, desired.spec.allows_multi_attach.then_some(node), OperationKind::Attach)
    }));
    let is_waiting = |(volume, desired): (&VolumeName, &DesiredVolume)| {
        !state.operations.is_running(volume, node)
            && state.actual.attachment(volume, node).is_none_or(|attachment| !attachment.is_confirmed)
            && !uncertain_elsewhere(state, volume, &desired.spec, node).is_empty()
    };
    if state.desired.volumes_on(node).any(is_waiting) {
        times.push(now + UNCERTAIN_CHECK_PERIOD);
    }
    let unwanted = || state.actual.volumes_on(node).filter(|volume| !state.desired.wants(node, volume));
    times.extend(unwanted().filter_map(|volume| {
        let key_node = state.actual.allows_multi_attach(volume).then_some(node);
        backoff(volume, key_node, OperationKind::Detach)
    }));
    if !options.disable_force_detach_on_timeout {
        let requested =
            unwanted().filter_map(|volume| state.actual.attachment(volume, node)?.detach_requested_at);
        // The time must have passed, not only come.
        let deadlines = requested.map(|at| at + FORCE_DETACH_AFTER + Duration::from_millis(1));
        times.extend(deadlines.filter(|deadline| *deadline > now));
    }
    times.into_iter().min().map(|at| at.saturating_sub(now).max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves AD-77, AD-78.
    #[test]
    fn detach_fails_with_the_attacher_s_error_or_times_out() {
        let waiting =
            Waiting { attachment: "csi-1".to_owned(), handle: "h1".to_owned(), since: Duration::ZERO };
        let with_error = |error: Option<&str>| VolumeAttachment {
            meta: keleustes_objects::ObjectMeta::default(),
            attacher: "d.io".into(),
            node_name: "n1".into(),
            persistent_volume_name: None,
            attached: true,
            attach_error: Some("not about the detach".into()),
            detach_error: error.map(Into::into),
        };
        let at = Duration::from_millis;
        assert_eq!(detach_result(&waiting, None, at(0)), Some(Ok(())), "it is gone");
        assert_eq!(detach_result(&waiting, Some(&with_error(Some("busy"))), at(499)), None);
        let busy = Some(Err("busy".to_owned()));
        assert_eq!(detach_result(&waiting, Some(&with_error(Some("busy"))), at(500)), busy);
        assert_eq!(detach_result(&waiting, Some(&with_error(None)), at(119_999)), None);
        let text = "timed out waiting for external-attacher of unknown CSI driver to detach volume h1";
        let timed_out = Some(Err(text.to_owned()));
        assert_eq!(detach_result(&waiting, Some(&with_error(None)), at(120_000)), timed_out);
    }
}
