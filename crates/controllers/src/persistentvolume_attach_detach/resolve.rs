//! Resolves the volumes of pods: claim, PersistentVolume, translation to CSI, plugin.

use std::sync::Arc;

use keleustes_objects::{
    ArcStr, CsiDriver, InlineVolume, InternedStr, Key, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSource, Pod,
};
use keleustes_plan::View;

use super::translate;
use super::volume::{VolumeSource, VolumeSpec};
use crate::csi_translation::{fc_name, iscsi_name, plugin_and_driver};
use crate::pods_by_claim::{ephemeral_claim_name, is_controlled_by};

/// Whether a pod has volumes that may have to be attached.
pub(super) fn has_volumes(pod: &Pod) -> bool {
    !pod.spec.inline_volumes().is_empty()
        || !pod.spec.ephemeral_volumes().is_empty()
        || pod.persistent_volume_claims().next().is_some()
}

/// The volumes of a pod whose plugin may attach volumes. One that cannot be resolved is left out; the others remain.
pub(super) fn volumes_of(view: &View<'_>, pod: &Pod) -> Vec<VolumeSpec> {
    let key = |name: ArcStr| Key { namespace: pod.meta.key.namespace.clone(), name };
    let named = pod.persistent_volume_claims().map(|(_, claim)| (key(claim.clone()), false));
    let ephemeral = pod.spec.ephemeral_volumes().iter();
    let ephemeral = ephemeral.map(|volume| (key(ephemeral_claim_name(pod, volume)), true));
    let claimed = named.chain(ephemeral).filter_map(|(claim, is_ephemeral)| {
        let claim = view.get::<PersistentVolumeClaim>(&claim)?;
        if is_ephemeral && !is_controlled_by(claim, pod) {
            return None;
        }
        persistent_volume(view, claim).and_then(|volume| spec_of(volume))
    });
    let inline = pod.spec.inline_volumes().iter();
    claimed.chain(inline.filter_map(|volume| inline_spec(volume, &pod.meta.key.namespace))).collect()
}

/// The volumes of a pod that are to be attached.
pub(super) fn attachable_volumes_of(view: &View<'_>, pod: &Pod) -> Vec<VolumeSpec> {
    let mut volumes = volumes_of(view, pod);
    volumes.retain(|spec| is_attachable(view, spec));
    volumes
}

/// The volume that a claim is bound to, in both directions.
fn persistent_volume<'a>(
    view: &View<'a>,
    claim: &PersistentVolumeClaim,
) -> Option<&'a Arc<PersistentVolume>> {
    if claim.phase != "Bound" || claim.spec.volume_name.is_empty() {
        return None;
    }
    let volume = view.get::<PersistentVolume>(&Key::cluster(claim.spec.volume_name.clone()))?;
    let bound_to = volume.spec.claim_ref.as_ref()?;
    (bound_to.uid == claim.meta.uid).then_some(volume)
}

/// What a PersistentVolume is; `None` if no plugin attaches volumes of its source.
pub(super) fn spec_of(volume: &PersistentVolume) -> Option<VolumeSpec> {
    let source = &volume.spec.source;
    if plugin_and_driver(source).is_some() {
        return translate::volume(volume);
    }
    Some(VolumeSpec {
        name: volume.meta.key.name.clone(),
        source: source_of(source)?,
        migrated: false,
        allows_multi_attach: allows_multi_attach(&volume.spec.access_modes),
    })
}

fn inline_spec(volume: &InlineVolume, namespace: &str) -> Option<VolumeSpec> {
    if plugin_and_driver(&volume.source).is_some() {
        return translate::inline_volume(volume, namespace);
    }
    let source = match &volume.source {
        PersistentVolumeSource::Csi { driver, .. } => VolumeSource::InlineCsi { driver: driver.clone() },
        source => source_of(source)?,
    };
    // Nothing says how an inline volume may be used.
    Some(VolumeSpec {
        name: ArcStr::from(volume.name.as_str()),
        source,
        migrated: false,
        allows_multi_attach: true,
    })
}

fn source_of(source: &PersistentVolumeSource) -> Option<VolumeSource> {
    match source {
        PersistentVolumeSource::Csi { driver, volume_handle } => Some(VolumeSource::Csi {
            driver: driver.clone(),
            handle: volume_handle.clone(),
            inline_spec: None,
        }),
        PersistentVolumeSource::Iscsi { target_portal, iqn, lun } => {
            Some(VolumeSource::Iscsi(iscsi_name(target_portal, iqn, *lun)))
        }
        PersistentVolumeSource::Fc { target_wwns, lun, wwids } => {
            fc_name(target_wwns, *lun, wwids).map(VolumeSource::Fc)
        }
        _ => None,
    }
}

/// Whether a volume with these access modes may be attached to several nodes at once.
pub(super) fn allows_multi_attach(modes: &[InternedStr]) -> bool {
    modes.is_empty() || modes.iter().any(|mode| *mode == "ReadWriteMany" || *mode == "ReadOnlyMany")
}

/// Whether a volume is to be attached at all.
pub(super) fn is_attachable(view: &View<'_>, spec: &VolumeSpec) -> bool {
    match &spec.source {
        VolumeSource::Csi { driver, .. } => requires_attach(view, driver),
        VolumeSource::InlineCsi { .. } => false,
        VolumeSource::Fc(_) | VolumeSource::Iscsi(_) => true,
    }
}

fn requires_attach(view: &View<'_>, driver: &InternedStr) -> bool {
    let driver = view.get::<CsiDriver>(&Key::cluster(ArcStr::from(driver.as_str())));
    driver.is_none_or(|driver| driver.attach_required != Some(false))
}
