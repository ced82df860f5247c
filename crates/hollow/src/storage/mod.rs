//! Stand-ins for the external controllers of CSI drivers: attacher, provisioner and resizer.

pub(crate) mod attacher;
mod plan;
mod provisioner;

pub use plan::DriverOperation;
pub use provisioner::{DriverFault, StorageDriver, StorageDriverHandle};
