//! The vocabulary of deciding: what a controller sees, what it may answer, and how it says so.
//!
//! A controller looks at a [`View`] and answers with a [`Plan`] of [`Write`]s, each with a reason. It
//! does nothing itself: no clock, no chance, no connection is within reach of this crate. Whoever
//! carries the plan out (the executor, a rehearsal in a test, a shadow that only watches) is of no
//! concern to it.

mod change;
mod context;
mod controller;
mod kinds;
mod memory;
mod metric;
mod note;
mod observer;
mod plan;
pub mod rehearsal;
mod table;
mod view;
mod write;

pub use change::{Change, Enqueue, Item};
pub use context::{Applied, BoxFuture, Context, FetchResult, Hands, Listed, Listing, Next, Outcome, Retry};
pub use controller::{
    Behaviour, Controller, Decide, DeclaredIndex, Grant, Loop, Page, QpsMultiplier, RateLimiter, Script,
    Shown, Watch,
};
pub use kinds::{AnyChange, AnyObject, AnyStore, Decode, KindEntry};
pub use memory::Memory;
pub use metric::{Buckets, Form, Measurement, Metric};
pub use note::{EventType, Involved, PlannedEvent};
pub use observer::{Effects, EnqueuedItem, Observer};
pub use plan::{Plan, Step};
pub use table::{DuplicateIndex, Index, Table};
pub use view::{Now, View};
pub use write::{
    Action, Edit, Edited, Guard, MakeFields, OnFailure, PatchKind, PatchMetadata, PropagationPolicy, Report,
    StatusUrgency, Target, Write,
};
