//! The types a controller is written in: its view of the caches, the plan it returns and its declaration.
//!
//! A controller reads a [`View`] and returns a [`Plan`] of [`Write`]s, each with a reason. It performs no
//! I/O itself: this crate has no clock, no randomness and no connection. The executor applies the plan in
//! production, a rehearsal applies it in tests; the controller cannot distinguish them.

mod change;
mod context;
mod controller;
mod effects;
mod event;
mod item;
mod kinds;
mod memory;
mod metric;
mod observer;
mod plan;
mod read;
mod reconciler;
pub mod rehearsal;
mod store;
mod view;
mod write;

pub use change::Change;
pub use context::{
    Applied, BoxFuture, Context, Delay, FetchResult, ListRequest, ListResult, MetadataPage, NEXT_PASS,
    Outcome, PageRequest, ReconcileError, ReconcileIo, Requeue,
};
pub use controller::{
    ConstructionError, Controller, DebugHandler, DebugPage, DeclaredIndex, Grant, Loop, QpsMultiplier,
    RateLimiter, StartStep, Watch,
};
#[doc(hidden)]
pub use effects::{Effects, EnqueueTiming, EnqueuedItem};
pub use event::{EventType, InvolvedObject, PlannedEvent};
pub use item::{Item, LoopItem, ObjectOr, Pass, QueueItem};
pub use kinds::{AnyChange, AnyObject, AnyStore, KindEntry};
pub use memory::{Memory, ScratchMemory};
pub use metric::{Buckets, Measurement, Metric, MetricType};
pub use observer::{MonitorState, ObservedWork, Observer};
pub use plan::{Plan, Step};
pub use read::{ReadRequest, Scale};
pub use reconciler::{AnyReconciler, Reconciler};
pub use store::{DuplicateIndex, Index, Store};
pub use view::{Now, View};
pub use write::{
    Action, Edit, Edited, Guard, MetadataPatchFn, NoReason, OnFailure, OutcomeEventFn, PatchKind,
    PatchMetadata, Precondition, PropagationPolicy, Reason, StatusUrgency, Target, Write, WriteDraft,
};
