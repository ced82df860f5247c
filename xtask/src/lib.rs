//! The developer tools' library: the house checks, which are also tests of the workspace, the changelog and releases.

pub mod behaviour;
pub mod changelog;
pub mod dist;
pub mod house;
pub mod problem;
pub mod source;
pub mod workspace;
