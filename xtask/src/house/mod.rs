//! The list of house checks, each with the invariant it verifies and the function that checks it.

pub mod architecture;
pub mod changelog;
pub mod config;
pub mod crate_map;
pub mod purity;
pub mod sizes;
pub mod tidy;
pub mod words;

use anyhow::Result;

use crate::behaviour;
use crate::problem::Problem;
use crate::workspace::Workspace;

/// One house check.
pub struct Rule {
    /// The name used on the command line and in tests.
    pub name: &'static str,
    /// What holds when the rule is kept.
    pub keeps: &'static str,
    /// Finds where it does not hold.
    pub check: fn(&Workspace) -> Result<Vec<Problem>>,
}

/// Every rule, in the order in which they are reported.
pub const RULES: &[Rule] = &[
    Rule {
        name: "crates",
        keeps: "dependencies between our crates follow the map and have no cycle",
        check: crate_map::check,
    },
    Rule {
        name: "purity",
        keeps: "objects, plan and controllers depend on no runtime, socket, clock or source of randomness",
        check: purity::check,
    },
    Rule {
        name: "config",
        keeps: "every crate inherits the workspace lints, and the pure crates share one clippy.toml",
        check: config::check,
    },
    Rule {
        name: "sizes",
        keeps: "functions and modules stay small, and recorded exceptions only shrink",
        check: sizes::check,
    },
    Rule {
        name: "tidy",
        keeps: "text is clean, modules open with a sentence, and nothing names one machine",
        check: tidy::check,
    },
    Rule { name: "words", keeps: "names, comments and docs use upstream's vocabulary", check: words::check },
    Rule {
        name: "architecture",
        keeps: "ARCHITECTURE.md names every crate, and for every invariant a test that exists",
        check: architecture::check,
    },
    Rule {
        name: "changelog",
        keeps: "every changelog fragment can be read by an operator and sorted by a script",
        check: changelog::check,
    },
    Rule {
        name: "behaviour",
        keeps: "every behaviour id of a landed sheet is proved by a test or excused with a reason",
        check: behaviour::check,
    },
];
