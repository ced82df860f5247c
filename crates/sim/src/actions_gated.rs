//! What users do to kinds that API servers serve only with feature gates that are off by default.

use serde::{Deserialize, Serialize};

/// A change to a PodGroup or to a pod of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodGroupChange {
    /// Creates the Workload and the PodGroup.
    Create,
    /// Deletes the PodGroup.
    Delete,
    /// Creates the pod of this number, which belongs to the PodGroup.
    CreatePod(u8),
    /// Sets the phase of the pod of this number to Succeeded.
    FinishPod(u8),
    /// Deletes the pod of this number.
    DeletePod(u8),
    /// Deletes the pod of this number without waiting for its node, and creates one with its name that belongs to no
    /// PodGroup.
    ReplacePod(u8),
}

/// A change to the identity Lease of an API server, or to its record in a StorageVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageVersionChange {
    /// Creates the identity Lease of the API server of this number.
    StartServer(u8),
    /// Deletes the identity Lease of the API server of this number.
    StopServer(u8),
    /// Deletes the identity Lease of the API server of this number and creates it again at once.
    RestartServer(u8),
    /// Creates a Lease that has the name and the label of this API server's identity Lease, in another namespace.
    CreateForeignLease(u8),
    /// Deletes that Lease.
    DeleteForeignLease(u8),
    /// The API server of the first number records that it stores the resource of the second in the version of the third.
    Record(u8, u8, u8),
    /// Deletes the StorageVersion of the resource of this number.
    Delete(u8),
}

/// A change to a pool of devices, or to a ResourcePoolStatusRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolChange {
    /// Publishes a new generation of the pool of the first number, with this number of devices in one slice.
    Publish(u8, u8),
    /// Publishes the first of two slices of a new generation.
    PublishHalf(u8, u8),
    /// Publishes the second slice of the newest generation.
    PublishRest(u8, u8),
    /// Deletes the slices of the pool of this number.
    Delete(u8),
    /// Creates the request of the first number, about the pool of the second or about all, with this limit.
    CreateRequest(u8, Option<u8>, Option<u8>),
    /// Deletes the request of this number.
    DeleteRequest(u8),
}
