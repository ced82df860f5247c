//! Decodes the API's protobuf encoding into the same types as its JSON.
//!
//! A type names the fields it reads by their JSON names ([`serde::Deserialize`]); a [`Message`], derived from the table of
//! types, maps protobuf field numbers to these names. The decoder skips all other fields without parsing them: 90 % of the
//! bytes of a pod with environment variables, probes and managed fields.
//!
//! `prost` is no alternative, because it decodes complete objects, of which most fields would be dropped again.

mod de;
mod envelope;
mod numbers;
mod schema;
mod selection;
#[cfg(test)]
mod tests;
mod transcode;
mod wire;

use std::sync::LazyLock;

pub use de::from_slice;
pub use envelope::{Envelope, WatchEvent};
pub use schema::{Message, Shape};
pub use wire::{Error, Record, Records, Value as WireValue};

pub use transcode::{FullMessage, TranscodeError, to_json};

/// The metadata of any object.
pub static PARTIAL: LazyLock<Message> = LazyLock::new(Message::metadata_only);

/// `metav1.Status`.
pub static STATUS: LazyLock<Message> = LazyLock::new(Message::status);
