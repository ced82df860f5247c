//! Hollow nodes (as in kubemark): stand-ins for kubelets and a scheduler that act only through the API.
//!
//! They work with any API server, the embedded one or a real one: nodes register, renew Leases and report
//! their status; pods bound to them start, become ready, crash, complete and terminate. The behaviour of a
//! pod is configured by its [`annotations`].
//!
//! ```no_run
//! # async fn example(client: kube::Client) {
//! let hollow = keleustes_hollow::Hollow::builder(client).nodes(3).scheduler(true).start();
//! hollow.fail_node("hollow-1").await;
//! hollow.stop().await;
//! # }
//! ```
//!
//! All decisions are pure: `kubelet`, `scheduler`, `hollow_node` and the `engine` that holds them take
//! observed objects and the time, and return requests. One task, the `driver`, connects them to the API
//! server: one watch of pods, one of nodes and one timer queue for all, no task per node or pod. Thousands of
//! idle nodes cost little more than their Lease renewals.

mod behaviour;
mod claims;
mod clock;
mod curve;
mod driver;
mod duration;
mod engine;
mod hollow;
mod hollow_node;
mod kubelet;
mod pod_events;
mod projections;
mod scheduler;
mod storage;
mod usage;

pub use behaviour::{annotation_problems, annotations, container_log};
pub use engine::HollowStats;
pub use hollow::{Builder, Hollow, HollowHandle};
pub use pod_events::record_pod_events;
pub use storage::{DriverFault, DriverOperation, StorageDriver, StorageDriverHandle};
pub use usage::{external_metric_problems, external_metrics, pod_usage};
