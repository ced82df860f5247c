//! The list of house rules, each with the sentence it keeps true and the function that checks it.

pub mod architecture;
pub mod changelog;
pub mod config;
pub mod crate_map;
pub mod purity;
pub mod sizes;
pub mod tidy;

use anyhow::Result;

use crate::behaviour;
use crate::problem::Problem;
use crate::workspace::Workspace;

/// One rule of the house.
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
        name: "rooms",
        keeps: "dependencies between our crates follow the map and never go back",
        check: crate_map::check,
    },
    Rule {
        name: "purity",
        keeps: "objects, plan and controllers depend on no runtime, socket, clock or source of chance",
        check: purity::check,
    },
    Rule {
        name: "config",
        keeps: "every crate inherits the workspace lints, and the pure rooms share one clippy.toml",
        check: config::check,
    },
    Rule {
        name: "sizes",
        keeps: "functions fit on a screen, modules in a head, and recorded exceptions only shrink",
        check: sizes::check,
    },
    Rule {
        name: "tidy",
        keeps: "text is clean, modules open with a sentence, and nothing names one machine",
        check: tidy::check,
    },
    Rule {
        name: "architecture",
        keeps: "the written map names every room, and every invariant a test that exists",
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
