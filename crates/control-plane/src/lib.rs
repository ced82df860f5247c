//! Builds and runs a real control plane for tests: etcd and kube-apiserver, and on request everything around them.
//!
//! ```no_run
//! use keleustes_control_plane::{ControlPlane, User};
//!
//! let plane = ControlPlane::builder().with_scheduler().with_kwok(3).start()?;
//! println!("export KUBECONFIG={}", plane.kubeconfig(User::Admin).display());
//! # Ok::<(), keleustes_control_plane::Error>(())
//! ```
//!
//! | module | purpose |
//! | --- | --- |
//! | [`build`] | provides every requested program, built once from its published Go module, or taken from `KUBEBUILDER_ASSETS` |
//! | [`pki`] | CAs, certificates, service-account keys, kubeconfig files |
//! | [`cluster`] | the parts start in order, are ready before they are used, and end together |
//! | `metrics` | metrics-server and an adapter for other metrics, behind the aggregation layer |
//! | [`process`] | a child never outlives the program that started it |
//! | [`audit`] | the audit log, as data |
//!
//! Deliberately absent: an async runtime, a Kubernetes client (tests bring their own), and any use outside tests.
//! etcd is reached without TLS over loopback and does not wait for the disk.

pub mod audit;
pub mod build;
pub mod cluster;
mod components;
mod error;
mod etcd;
mod metrics;
pub mod pki;
mod ports;
mod probe;
pub mod process;
mod scratch;
mod sources;

pub use audit::{AuditEntry, AuditMark};
pub use cluster::{Builder, ControlPlane, Stop};
pub use error::{Error, Result};
pub use pki::{KeyKind, User};
pub use process::Process;
