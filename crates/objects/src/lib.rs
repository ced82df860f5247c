//! Compact types of the API kinds the manager uses: what a cache keeps of each object, and nothing more.
//!
//! Two kinds of strings carry that thrift. A [`InternedStr`] is interned: namespaces, label keys, kinds, rule
//! verbs, everything that a cluster repeats thousands of times is held once. A [`Text`] is a string of
//! its own, cheap to clone: names above all.
//!
//! Decoding goes straight from the wire to these types; `managedFields` and whatever else no controller
//! reads is skipped by the parser and never allocated.

mod address;
mod condition;
pub mod defaults;
mod discovered;
mod failure;
mod int_or_string;
mod key;
mod kind;
mod kinds;
mod labels;
mod meta;
mod placement;
pub mod protobuf;
mod quantity;
mod raw;
mod selector;
mod shared;
mod taint;
mod template;
mod text;
mod time;
mod type_line;
mod version;

pub use address::{Address, Addresses};
pub use condition::{Condition, Conditions, FALSE, TRUE, UNKNOWN, Unknown};
pub use discovered::{ApiResource, DiscoveredResources, Subresource};
pub use failure::{ApiError, ErrorReason};
pub use int_or_string::{IntOrString, Rounding};
pub use key::{InvalidKey, Key};
pub use kind::{DecodeError, Encoded, Kind, Object, Projection, Resource, decode_error_without_content};
pub use kinds::*;
pub use labels::{Annotations, Labels};
pub use meta::{FullMeta, MetaRest, ObjectMeta, OwnerReference, WireMeta};
pub use placement::{NodeSelectorTerm, Placement};
pub use quantity::Quantity;
pub use raw::{RawJson, escape_html};
pub use selector::{InvalidSelector, LabelSelector, Matcher};
pub use shared::{Interned, InternedList};
pub use taint::{NO_EXECUTE, NO_SCHEDULE, Taint, Toleration, first_that_tolerates, taint_keys};
pub use template::PodTemplate;
pub use text::{ArcStr, InternedStr};
pub use time::{MicroTime, Time};
pub use type_line::TypeMeta;
pub use version::{ResourceVersion, Uid};
