//! `explain`, the live page and the ranges of nodes of the program that ships, in a playground.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod devtools;
mod explain;
mod page;
mod playground;
mod ranges;
mod shadow_page;
