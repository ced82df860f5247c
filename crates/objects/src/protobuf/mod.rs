//! Decodes the API's protobuf encoding into the same types as its JSON.
//!
//! A type names the fields it reads by their JSON names ([`serde::Deserialize`]); a [`Message`] maps protobuf field
//! numbers to these names. The decoder skips all other fields without parsing them: 90 % of the bytes of a pod with
//! environment variables, probes and managed fields.
//!
//! `prost` is no alternative, because it decodes complete objects, of which most fields would be dropped again.

mod de;
mod envelope;
mod schema;
#[cfg(test)]
mod tests;
mod transcode;
mod wire;

pub use de::from_slice;
pub use envelope::{Envelope, WatchEvent};
pub use schema::{Message, Shape};
pub use wire::{Error, Record, Records, Value as WireValue};

pub use transcode::{FullMessage, TranscodeError, to_json};

pub(crate) use schema::{
    CSI_DRIVER, DEVICE_CLASS, DEVICE_TAINT_RULE, LEASE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD,
    POD_GROUP, RESOURCE_CLAIM, RESOURCE_SLICE, SELINUX_POD, STORAGE_CLASS, VOLUME_ATTACHMENT,
    VOLUME_ATTRIBUTES_CLASS,
};
pub use schema::{PARTIAL, STATUS};
pub(crate) use transcode::{DEPLOYMENT, ENDPOINT_SLICE, ENDPOINTS, NODE, REPLICA_SET};
