//! Stand-ins for kubelets and a scheduler that speak only through the API.
//!
//! They serve any API server, the embedded one as well as a real one: nodes register, renew leases and
//! report their status; pods that are bound to them start, become ready, crash, complete and end. What a
//! pod does can be asked for in its [`annotations`].
//!
//! ```no_run
//! # async fn example(client: kube::Client) {
//! let hollow = keleustes_hollow::Hollow::builder(client).nodes(3).scheduler(true).start();
//! hollow.fail_node("hollow-1").await;
//! hollow.stop().await;
//! # }
//! ```
//!
//! Everything that decides is pure: `kubelet`, `scheduler`, `machine` and the `engine` that holds
//! them take what was seen and the time, and give requests. One task, the `driver`, moves both; there is
//! none for each node or pod, one watch of pods and one of nodes, and one queue of timers, so thousands of
//! nodes at rest cost little more than their leases.

mod behaviour;
mod clock;
mod driver;
mod duration;
mod engine;
mod hollow;
mod kubelet;
mod machine;
mod scheduler;
mod seen;

pub use behaviour::annotations;
pub use engine::Tally;
pub use hollow::{Builder, Hollow, HollowHandle};
