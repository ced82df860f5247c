//! The house checks: every check that `cargo xtask house` runs is also a test of the workspace.

pub mod behaviour;
pub mod house;
pub mod problem;
pub mod source;
pub mod workspace;
