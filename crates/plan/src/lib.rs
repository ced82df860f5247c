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
pub use context::{
    Applied, BoxFuture, Context, FetchResult, ListRequest, ListResult, Outcome, ReconcileError, ReconcileIo,
    Requeue,
};
pub use controller::{
    Controller, DebugHandler, DebugPage, Decide, DeclaredIndex, Grant, Loop, LoopKind, QpsMultiplier,
    RateLimiter, Reconciler, Watch,
};
pub use kinds::{AnyChange, AnyObject, AnyStore, Decode, KindEntry};
pub use memory::Memory;
pub use metric::{Buckets, Measurement, Metric, MetricType};
pub use note::{EventType, InvolvedObject, PlannedEvent};
pub use observer::{Effects, EnqueuedItem, Observer};
pub use plan::{Plan, Step};
pub use table::{DuplicateIndex, Index, Store};
pub use view::{Now, View};
pub use write::{
    Action, Edit, Edited, Guard, MakeFields, OnFailure, OutcomeEventFn, PatchKind, PatchMetadata,
    PropagationPolicy, StatusUrgency, Target, Write,
};
