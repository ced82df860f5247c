//! What a kubelet does with one pod: a state machine without clock or IO, and the status it reports.

mod life;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use self::life::{Life, PodDefaults, Want};
pub(crate) use self::status::Place;
