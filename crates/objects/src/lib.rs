//! Compact types of the API kinds that the manager uses: a cache holds only the fields that a controller reads.
//!
//! An [`InternedStr`] holds a string that a cluster repeats thousands of times (namespaces, label keys, kinds, RBAC
//! verbs) once. An [`ArcStr`] is a reference-counted string for values that differ, such as names.
//!
//! Decoding produces these types directly; the parser skips `managedFields` and all other fields that no controller
//! reads, without allocating them.

mod address;
mod api_error;
mod built_in;
mod condition;
pub mod defaults;
mod discovery;
pub mod go_time;
mod identity;
mod int_or_string;
mod interned;
mod key;
mod kind;
mod kinds;
mod labels;
mod meta;
mod placement;
pub mod protobuf;
mod quantity;
pub mod quota;
mod raw;
mod resource_list;
mod secret_bytes;
mod selector;
mod selector_text;
mod strings;
mod taint;
pub mod template;
mod time;
mod type_meta;
pub mod types;
mod wildcard;

pub use address::{Address, Addresses};
pub use api_error::{ApiError, ErrorReason};
pub use built_in::{BUILT_IN_KINDS, BuiltInKind, ServedVersion};
pub use condition::{Condition, Conditions, FALSE, TRUE, UNKNOWN, UnknownFields};
pub use discovery::{ApiResource, DiscoveredResources, GroupVersion, Subresource};
pub use identity::{ResourceVersion, Uid};
pub use int_or_string::{IntOrString, Rounding};
pub use interned::{Interned, InternedList};
pub use key::{InvalidKey, Key};
pub use kind::{
    DecodeError, Decoder, Encoded, Kind, Object, Projection, Resource, decode_error_without_content,
    encode_path_segment, invalid_path_segment,
};
pub use kinds::*;
pub use labels::{Annotations, Labels};
pub use meta::{ExtraMeta, FullMeta, ObjectMeta, OwnerReference, WireMeta};
pub use placement::{NodeSelectorTerm, Placement};
pub use quantity::{Quantity, QuantityFormat};
pub use raw::{RawJson, escape_html};
pub use secret_bytes::SecretBytes;
pub use selector::{InvalidSelector, LabelSelector, Matcher};
pub use selector_text::TextSelector;
pub use strings::{ArcStr, InternedStr};
pub use taint::{NO_EXECUTE, NO_SCHEDULE, Taint, Toleration, first_that_tolerates, taint_keys};
pub use template::PodTemplate;
pub use time::{MicroTime, Time};
pub use type_meta::TypeMeta;
pub use wildcard::{matches_glob, matches_wildcard};
