//! Compact types of the API kinds the manager uses: what a cache keeps of each object, and nothing more.
//!
//! Two kinds of strings carry that thrift. A [`Word`] is interned: namespaces, label keys, kinds, rule
//! verbs, everything that a cluster repeats thousands of times is held once. A [`Text`] is a string of
//! its own, cheap to clone: names above all.
//!
//! Decoding goes straight from the wire to these types; `managedFields` and whatever else no controller
//! reads is skipped by the parser and never allocated.

mod discovered;
mod failure;
mod key;
mod kind;
mod kinds;
mod meta;
mod selector;
mod text;
mod time;
mod version;

pub use discovered::{ApiResource, Discovered, Subresource};
pub use failure::{Failure, Reason};
pub use key::{BadKey, Key};
pub use kind::{Kind, Object, Projection, Resource};
pub use kinds::{
    ClusterRole, Namespace, Partial, PolicyRule, SECRET_TYPE_SERVICE_ACCOUNT_TOKEN, ServiceAccount,
    TokenSecret, annotations,
};
pub use meta::{Labels, Meta, OwnerRef, WireMeta};
pub use selector::{BadSelector, LabelSelector, Matcher};
pub use text::{Text, Word};
pub use time::Time;
pub use version::{Uid, Version};
