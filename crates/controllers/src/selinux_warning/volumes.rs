//! How a pod uses its volumes.

use keleustes_objects::{
    ArcStr, CsiDriver, InternedStr, Key, PersistentVolume, PersistentVolumeClaim, Pod, SelinuxVolume,
    SelinuxVolumeSource,
};
use keleustes_plan::View;

use super::SelinuxWarningOptions;
use super::table::{Label, Usage};
use super::unique_name::{NamedVolume, Plugin, unique_name};
use crate::csi_translation::Holder;
use crate::pods_by_claim::is_controlled_by;

const RECURSIVE: &str = "Recursive";
const MOUNT_OPTION: &str = "MountOption";

/// Why a volume of a pod is not in the table. The pod is retried.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) message: String,
    /// The volume, if containers mount it with different labels.
    pub(super) mounted_twice: Option<InternedStr>,
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self { message, mounted_twice: None }
    }
}

/// How a pod uses its volumes, by unique name, and the volumes for which that cannot be said.
pub(super) fn of_pod(
    view: &View<'_>,
    pod: &Pod,
    options: SelinuxWarningOptions,
) -> (Vec<(ArcStr, Usage)>, Vec<Problem>) {
    let (mut uses, mut problems) = (Vec::new(), Vec::new());
    for volume in &pod.spec.selinux().volumes {
        match usage(view, pod, volume, options) {
            Ok(usage) => uses.extend(usage),
            Err(problem) => problems.push(problem),
        }
    }
    (uses, problems)
}

/// How a pod uses a volume; `None` if it is not mounted or no plugin knows it.
fn usage(
    view: &View<'_>,
    pod: &Pod,
    volume: &SelinuxVolume,
    options: SelinuxWarningOptions,
) -> Result<Option<(ArcStr, Usage)>, Problem> {
    let behind = volume_behind(view, pod, volume)?;
    let holder = match behind {
        Some(behind) => Holder::Volume(behind),
        None => Holder::Pod { namespace: &pod.meta.key.namespace, volume: &volume.name },
    };
    let source = match (&volume.source, behind) {
        (_, Some(behind)) => &behind.spec.source,
        (SelinuxVolumeSource::Inline(source), None) => source,
        (SelinuxVolumeSource::Claim | SelinuxVolumeSource::EphemeralClaim, None) => return Ok(None),
    };
    if !volume.is_mounted {
        return Ok(None);
    }
    if options.mounts_with_labels && volume.labels.len() > 1 {
        let labels: Vec<_> = volume.labels.iter().map(ArcStr::as_str).collect();
        return Err(Problem {
            message: format!("multiple SELinux labels found: {}", labels.join(",")),
            mounted_twice: Some(volume.name.clone()),
        });
    }
    let named = unique_name(source, holder).map_err(|message| {
        format!("failed to get unique volume name for volume {:?}: {message}", &*volume.name)
    })?;
    let Some(NamedVolume { name, plugin }) = named else { return Ok(None) };
    let (supports_labels, driver) = match plugin {
        Plugin::InProcess { supports_labels } => (supports_labels, InternedStr::default()),
        Plugin::Csi(driver) => {
            let found = view.get::<CsiDriver>(&Key::cluster(driver.as_str()));
            (found.is_some_and(|found| found.se_linux_mount), driver)
        }
    };
    let label = effective_label(pod, volume, options.mounts_with_labels && supports_labels);
    Ok(Some((name, Usage { driver, label })))
}

/// The label that the volume is mounted with, and the effective policy.
fn effective_label(pod: &Pod, volume: &SelinuxVolume, supports_labels: bool) -> Label {
    let policy = pod.spec.selinux().change_policy.clone().unwrap_or_else(|| MOUNT_OPTION.into());
    let text = volume.labels.first().cloned().unwrap_or_default();
    if !supports_labels || policy == RECURSIVE || text.is_empty() {
        return Label { text: ArcStr::default(), policy: RECURSIVE.into() };
    }
    Label { text, policy }
}

/// The PersistentVolume behind a claim of the pod; `None` for a volume without claim.
fn volume_behind<'a>(
    view: &View<'a>,
    pod: &Pod,
    volume: &SelinuxVolume,
) -> Result<Option<&'a PersistentVolume>, String> {
    let Some(name) = pod.claim_of(volume) else { return Ok(None) };
    let namespace = &pod.meta.key.namespace;
    let failed = |why: String| format!("error processing PVC {:?}/{:?}: {why}", &**namespace, &*name);
    let key = Key::namespaced(namespace.clone(), name.clone());
    let Some(claim) = view.get::<PersistentVolumeClaim>(&key) else {
        return Err(failed(format!(
            "failed to find PVC {namespace}/{name} in PVCInformer cache: persistentvolumeclaim {:?} not found",
            &*name
        )));
    };
    let volume_name = &claim.spec.volume_name;
    if claim.phase != "Bound" || volume_name.is_empty() {
        return Err(failed(format!(
            "PVC {namespace}/{name} has non-bound phase ({:?}) or empty pvc.Spec.VolumeName ({:?})",
            &*claim.phase, &**volume_name
        )));
    }
    if volume.source == SelinuxVolumeSource::EphemeralClaim && !is_controlled_by(claim, pod) {
        let pod_name = &pod.meta.key.name;
        return Err(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
        ));
    }
    let Some(found) = view.get::<PersistentVolume>(&Key::cluster(volume_name.clone())) else {
        return Err(failed(format!(
            "failed to find PV {:?} in PVInformer cache: persistentvolume {:?} not found",
            &**volume_name, &**volume_name
        )));
    };
    match &found.spec.claim_ref {
        None => Err(failed(format!(
            "found PV object {:?} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
            &**volume_name
        ))),
        Some(reference) if reference.uid != claim.meta.uid => Err(failed(format!(
            "found PV object {:?} but its pv.Spec.ClaimRef.UID ({:?}) does not point to claim.UID ({:?})",
            &**volume_name,
            reference.uid.to_string(),
            claim.meta.uid.to_string()
        ))),
        Some(_) => Ok(Some(found)),
    }
}
