//! The kubelet's part for one pod: a state machine without clock or IO, and the status it reports.

mod lifecycle;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use self::lifecycle::{PodDefaults, PodLifecycle, PodWrite};
pub(crate) use self::status::PodPlacement;
