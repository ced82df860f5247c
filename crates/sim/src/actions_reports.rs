//! What users do to objects about which controllers only report something.

use serde::{Deserialize, Serialize};

/// A change to a ValidatingAdmissionPolicy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyChange {
    /// Creates it, or changes its expressions to those of this number.
    Set(u8),
    /// Changes its labels, which no controller cares about.
    Label(u8),
    /// Deletes it.
    Delete,
}

/// A change to pods that use one volume with SELinux labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelledPodChange {
    /// Creates the volume, its claim and the CSIDriver, which mounts volumes with labels.
    CreateVolume,
    /// Creates the pod of this number with the level of the second number.
    Create(u8, u8),
    /// Deletes the pod of this number.
    Delete(u8),
}
