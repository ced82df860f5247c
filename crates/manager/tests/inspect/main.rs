//! `explain` and the live page of the program that ships, in a playground.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod devtools;
mod explain;
mod page;
mod playground;
mod shadow_page;
