//! Reads the API's protobuf encoding straight into the projections that its JSON is read into.
//!
//! A projection says in JSON's names what it wants ([`serde::Deserialize`]); a [`Message`] says under which
//! number each name stands on the wire. Whatever has no place in the message is passed over in one step,
//! without being looked at: of a pod with its environment, probes and managed fields that is nine bytes of ten.
//!
//! `prost` was looked at: it makes whole objects, which then would have to be thrown away again.

mod de;
mod envelope;
mod schema;
#[cfg(test)]
mod tests;
mod whole;
mod wire;

pub use de::from_slice;
pub use envelope::{Envelope, WatchEvent};
pub use schema::{Message, Shape};
pub use wire::Error;

pub use whole::{NotWhole, Whole, to_json};

pub(crate) use schema::{LEASE, POD};
pub use schema::{PARTIAL, STATUS};
pub(crate) use whole::{DEPLOYMENT, ENDPOINT_SLICE, NODE, REPLICA_SET};
