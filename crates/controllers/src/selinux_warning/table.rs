//! Which pod uses which volume with which label, and the conflicts between them.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_objects::{ArcStr, InternedStr, Key};

/// The volumes of all pods that are neither gone nor finished.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    volumes: BTreeMap<ArcStr, TrackedVolume>,
    /// The volumes of each pod, for its removal.
    volumes_of_pod: BTreeMap<Key, BTreeSet<ArcStr>>,
    /// How many volumes have each conflict; two pods may share several.
    series: BTreeMap<Conflict, usize>,
}

#[derive(Clone, Debug, Default)]
struct TrackedVolume {
    driver: InternedStr,
    pods: BTreeMap<Key, Label>,
    conflicts: BTreeSet<Conflict>,
}

/// How a pod uses a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// The CSI driver of the volume; empty if it has none.
    pub(super) driver: InternedStr,
    /// The label that the volume is mounted with, and the policy.
    pub(super) label: Label,
}

/// The SELinux label of a mount, and the policy of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// `user:role:type:level`; empty if the volume is mounted without a label.
    pub(super) text: ArcStr,
    /// The effective `seLinuxChangePolicy`.
    pub(super) policy: InternedStr,
}

/// A property in which two pods on one volume differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property {
    ChangePolicy,
    Label,
}

impl Property {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ChangePolicy => "SELinuxChangePolicy",
            Self::Label => "SELinuxLabel",
        }
    }

    pub(super) fn event_reason(self) -> &'static str {
        match self {
            Self::ChangePolicy => "SELinuxChangePolicyConflict",
            Self::Label => "SELinuxLabelConflict",
        }
    }
}

/// A conflict as seen from one of the two pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conflict {
    pub(super) property: Property,
    pub(super) pod: Key,
    pub(super) value: ArcStr,
    pub(super) other_pod: Key,
    pub(super) other_value: ArcStr,
}

impl Conflict {
    fn involves(&self, pod: &Key) -> bool {
        self.pod == *pod || self.other_pod == *pod
    }

    fn seen_from_the_other_pod(&self) -> Self {
        Self {
            property: self.property,
            pod: self.other_pod.clone(),
            value: self.other_value.clone(),
            other_pod: self.pod.clone(),
            other_value: self.value.clone(),
        }
    }

    /// The message of the event. Users of one namespace learn nothing about the pods of another.
    pub(super) fn message(&self) -> String {
        const END: &str = "If both pods land on the same node, only one of them may access the volume.";
        let (name, value) = (self.property.name(), &self.value);
        if self.pod.namespace == self.other_pod.namespace {
            let (other, other_value) = (&self.other_pod.name, &self.other_value);
            return format!(
                "{name} \"{value}\" conflicts with pod {other} that uses the same volume as this pod with {name} \
                 \"{other_value}\". {END}"
            );
        }
        // Parity: the original has no space before the value.
        format!(
            "{name}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different \
             {name}. {END}"
        )
    }
}

/// A series of the gauge that appears or disappears.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeriesChange {
    pub(super) conflict: Conflict,
    pub(super) exists: bool,
}

impl Table {
    /// Enters how a pod uses a volume. Returns the conflicts with other pods if that is new, and the changed series.
    pub(super) fn add(
        &mut self,
        name: &ArcStr,
        pod: &Key,
        usage: Usage,
    ) -> (Vec<Conflict>, Vec<SeriesChange>) {
        let volume = self
            .volumes
            .entry(name.clone())
            .or_insert_with(|| TrackedVolume { driver: usage.driver, ..TrackedVolume::default() });
        if volume.pods.get(pod) == Some(&usage.label) {
            return (Vec::new(), Vec::new());
        }
        let conflicts: Vec<_> = volume
            .pods
            .iter()
            .filter(|(other, _)| *other != pod)
            .flat_map(|(other, label)| conflicts_between(pod, &usage.label, other, label))
            .flat_map(|conflict| [conflict.clone(), conflict.seen_from_the_other_pod()])
            .collect();
        volume.pods.insert(pod.clone(), usage.label);
        self.volumes_of_pod.entry(pod.clone()).or_default().insert(name.clone());
        let stale: Vec<_> = volume.conflicts.extract_if(.., |conflict| conflict.involves(pod)).collect();
        volume.conflicts.extend(conflicts.iter().cloned());
        let series = self.count(&conflicts, &stale);
        (conflicts, series)
    }

    /// Removes a pod and its conflicts. Returns the changed series.
    pub(super) fn remove_pod(&mut self, pod: &Key) -> Vec<SeriesChange> {
        let mut stale = Vec::new();
        for name in self.volumes_of_pod.remove(pod).unwrap_or_default() {
            let Some(volume) = self.volumes.get_mut(&name) else { continue };
            stale.extend(volume.conflicts.extract_if(.., |conflict| conflict.involves(pod)));
            volume.pods.remove(pod);
            if volume.pods.is_empty() {
                self.volumes.remove(&name);
            }
        }
        self.count(&[], &stale)
    }

    /// The pods that use volumes of a CSI driver.
    pub(super) fn pods_of_driver(&self, driver: &str) -> BTreeSet<Key> {
        let volumes = self.volumes.values().filter(|volume| volume.driver == driver);
        volumes.flat_map(|volume| volume.pods.keys().cloned()).collect()
    }

    /// Counts conflicts that a volume has now and that it has no longer.
    fn count(&mut self, new: &[Conflict], stale: &[Conflict]) -> Vec<SeriesChange> {
        let mut changes = Vec::new();
        for conflict in new {
            let count = self.series.entry(conflict.clone()).or_default();
            *count += 1;
            // A conflict that is also stale was counted before.
            if *count == 1 {
                changes.push(SeriesChange { conflict: conflict.clone(), exists: true });
            }
        }
        for conflict in stale {
            let Some(count) = self.series.get_mut(conflict) else { continue };
            *count -= 1;
            if *count == 0 {
                self.series.remove(conflict);
                changes.push(SeriesChange { conflict: conflict.clone(), exists: false });
            }
        }
        changes
    }
}

/// The conflicts between two pods, as seen from the first one.
fn conflicts_between<'a>(
    pod: &'a Key,
    label: &'a Label,
    other_pod: &'a Key,
    other: &'a Label,
) -> impl Iterator<Item = Conflict> + 'a {
    let conflict = move |property, value: &str, other_value: &str| Conflict {
        property,
        pod: pod.clone(),
        value: value.into(),
        other_pod: other_pod.clone(),
        other_value: other_value.into(),
    };
    let policy = (label.policy != other.policy)
        .then(|| conflict(Property::ChangePolicy, &label.policy, &other.policy));
    let label = labels_conflict(&label.text, &other.text)
        .then(|| conflict(Property::Label, &label.text, &other.text));
    policy.into_iter().chain(label)
}

/// Whether two labels conflict. User, role and type may be left to the node, the level may not.
fn labels_conflict(one: &str, other: &str) -> bool {
    const LEVEL: usize = 3;
    let (one, other) = (parts(one), parts(other));
    (0..=LEVEL)
        .any(|at| one[at] != other[at] && (at == LEVEL || (!one[at].is_empty() && !other[at].is_empty())))
}

/// User, role, type and level; the level may contain colons.
fn parts(label: &str) -> [&str; 4] {
    let mut parts = label.splitn(4, ':');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves SEW-24, SEW-52, SEW-63.
    #[test]
    fn labels_conflict_in_set_parts_and_in_every_level() {
        let full = "system_u:system_r:container_t:s0:c1,c2";
        for (one, other, conflict) in [
            ("", "", false),
            ("", full, true),
            (":::s0:c1,c2", full, false),
            (":::s0:c1,c3", full, true),
            (":::s0:c1,c2", "", true),
            ("a:::s0", ":b::s0", false),
            ("a:::s0", "b:::s0", true),
            ("a:b:t:", "a:b", false),
            ("::t:s0", "::u:s0", true),
            (":r::s0", ":q::s0", true),
            ("u:r:t:s0:c1:x", "u:r:t:s0:c1:y", true),
        ] {
            assert_eq!(labels_conflict(one, other), conflict, "{one:?} and {other:?}");
            assert_eq!(labels_conflict(other, one), conflict, "{other:?} and {one:?}");
        }
    }
}
