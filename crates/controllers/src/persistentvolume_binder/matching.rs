//! The choice of a volume for a claim, from the two objects alone.
//!
//! Parity: pkg/controller/volume/persistentvolume/index.go and FindMatchingVolume of component-helpers.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{
    ClaimReference, InternedStr, InvalidSelector, PersistentVolume, PersistentVolumeClaim, Quantity,
};

const FILESYSTEM: &str = "Filesystem";

/// A set of the four access modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AccessModes(u8);

impl AccessModes {
    /// The set of the known modes in a list, and whether all of them are known.
    fn of(modes: &[InternedStr]) -> (Self, bool) {
        let bits = modes.iter().map(|mode| bit(mode));
        let set = bits.clone().flatten().fold(0, |set, bit| set | bit);
        (Self(set), bits.into_iter().all(|bit| bit.is_some()))
    }

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

fn bit(mode: &str) -> Option<u8> {
    const KNOWN: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
    KNOWN.iter().position(|known| *known == mode).map(|at| 1 << at)
}

/// Whether a claimRef is for this claim: by name alone, or by name and UID.
pub(super) fn is_for_claim(reference: &ClaimReference, claim: &PersistentVolumeClaim) -> bool {
    let key = &claim.meta.key;
    reference.name == key.name
        && reference.namespace == key.namespace
        && (reference.uid.is_empty() || reference.uid == claim.meta.uid)
}

/// Whether a volume is reserved for or bound to this claim.
pub(super) fn is_volume_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| is_for_claim(reference, claim))
}

/// Whether claim and volume have the same volumeMode; unset means `Filesystem`.
pub(super) fn volume_modes_match(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |mode: &Option<InternedStr>| mode.clone().unwrap_or_else(|| FILESYSTEM.into());
    mode(&volume.spec.volume_mode) == mode(&claim.spec.volume_mode)
}

fn attributes_classes_match(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let name = |name: &Option<InternedStr>| name.clone().unwrap_or_default();
    name(&volume.spec.volume_attributes_class_name) == name(&claim.spec.volume_attributes_class_name)
}

fn request(claim: &PersistentVolumeClaim) -> Quantity {
    claim.spec.resources.requests.storage()
}

/// The volume that an unbound claim without `spec.volumeName` gets.
///
/// Volumes are grouped by their access modes, and the groups that have all requested modes are tried from fewest modes
/// to most. In a group, a volume that is reserved for the claim wins at once, otherwise the smallest Available one.
///
/// # Errors
/// If the selector of the claim is invalid and there is a group to try.
pub(super) fn find_best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a Arc<PersistentVolume>>,
    is_delayed: bool,
) -> Result<Option<&'a Arc<PersistentVolume>>, InvalidSelector> {
    let (requested, all_known) = AccessModes::of(&claim.spec.access_modes);
    if !all_known {
        return Ok(None);
    }
    let mut groups: BTreeMap<(u32, AccessModes), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in volumes {
        let (modes, _) = AccessModes::of(&volume.spec.access_modes);
        if modes.contains(requested) {
            groups.entry((modes.0.count_ones(), modes)).or_default().push(volume);
        }
    }
    for group in groups.into_values() {
        if let Some(volume) = best_of_group(claim, &group, is_delayed)? {
            return Ok(Some(volume));
        }
    }
    Ok(None)
}

fn best_of_group<'a>(
    claim: &PersistentVolumeClaim,
    group: &[&'a Arc<PersistentVolume>],
    is_delayed: bool,
) -> Result<Option<&'a Arc<PersistentVolume>>, InvalidSelector> {
    let selector = claim.spec.selector.as_ref().map(|selector| selector.matcher()).transpose()?;
    let class = claim.class();
    let mut smallest: Option<&'a Arc<PersistentVolume>> = None;
    for volume in group.iter().copied().filter(|volume| is_candidate(volume, claim)) {
        if is_volume_bound_to(volume, claim) {
            return Ok(Some(volume));
        }
        let is_chosen_here = !is_delayed
            && volume.phase == "Available"
            && selector.as_ref().is_none_or(|selector| selector.matches(&volume.meta.labels))
            && volume.class() == class;
        let is_smaller =
            |other: &Arc<PersistentVolume>| volume.spec.capacity.storage() < other.spec.capacity.storage();
        if is_chosen_here && smallest.is_none_or(is_smaller) {
            smallest = Some(volume);
        }
    }
    Ok(smallest)
}

/// What every volume must satisfy, a reserved one too.
fn is_candidate(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_none_or(|reference| is_for_claim(reference, claim))
        && volume.spec.capacity.storage() >= request(claim)
        && volume_modes_match(volume, claim)
        && attributes_classes_match(volume, claim)
        && volume.meta.deletion_timestamp.is_none()
}

/// Why an unclaimed volume cannot be bound to a claim that names it.
///
/// Parity: `checkVolumeSatisfyClaim`, which compares rounded sizes.
pub(super) fn why_unsatisfied(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let has_all_modes = claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode));
    let text = if volume.meta.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.meta.key.name.as_str()));
    } else if volume.spec.capacity.storage().whole() < request(claim).whole() {
        "requested PV is too small"
    } else if volume.class() != claim.class() {
        "storageClassName does not match"
    } else if !attributes_classes_match(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if !volume_modes_match(volume, claim) {
        "incompatible volumeMode"
    } else if !has_all_modes {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(text.to_owned())
}
