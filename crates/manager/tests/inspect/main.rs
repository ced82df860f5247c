//! The program that ships, in a playground: `explain`, the live page, ranges of nodes, load, and the options.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod devtools;
mod explain;
mod load;
mod page;
mod playground;
mod playground_options;
mod ranges;
mod shadow_page;
