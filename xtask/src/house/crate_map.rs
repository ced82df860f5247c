//! Dependencies between our crates follow one table and never go back.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::problem::Problem;
use crate::workspace::Workspace;

/// One crate and the workspace crates it may depend on.
pub struct CrateRule {
    /// The package name without the `keleustes-` prefix.
    pub name: &'static str,
    /// What its `[dependencies]` and `[build-dependencies]` may name.
    pub sees: &'static [&'static str],
    /// Whether it must stay free of runtimes, sockets, clocks and randomness.
    pub pure: bool,
}

/// The crate map. A new crate gets its line here before its first dependency.
pub const CRATES: &[CrateRule] = &[
    CrateRule { name: "objects", sees: &[], pure: true },
    CrateRule { name: "pki", sees: &[], pure: false },
    CrateRule { name: "rate", sees: &[], pure: true },
    CrateRule { name: "x509", sees: &[], pure: true },
    CrateRule { name: "cel", sees: &[], pure: true },
    CrateRule { name: "plan", sees: &["objects"], pure: true },
    CrateRule { name: "controllers", sees: &["plan", "objects", "rate", "x509", "cel"], pure: true },
    CrateRule { name: "client", sees: &["objects", "rate"], pure: false },
    CrateRule { name: "runtime", sees: &["objects", "plan", "client", "rate", "x509"], pure: false },
    CrateRule { name: "serving", sees: &["rate"], pure: false },
    CrateRule { name: "apiserver", sees: &["objects", "pki", "x509"], pure: false },
    CrateRule { name: "options", sees: &["objects"], pure: false },
    CrateRule { name: "test-log", sees: &[], pure: false },
    CrateRule { name: "hollow", sees: &["objects", "client"], pure: false },
    CrateRule { name: "control-plane", sees: &["pki"], pure: false },
    CrateRule { name: "scenarios", sees: &["control-plane", "hollow", "objects"], pure: false },
    CrateRule {
        name: "judge",
        sees: &[
            "apiserver",
            "cel",
            "client",
            "control-plane",
            "controllers",
            "objects",
            "plan",
            "runtime",
            "x509",
        ],
        pure: false,
    },
    CrateRule {
        name: "bench",
        sees: &[
            "objects",
            "plan",
            "controllers",
            "client",
            "runtime",
            "apiserver",
            "hollow",
            "control-plane",
            "scenarios",
            "pki",
            "sim",
            "x509",
        ],
        pure: false,
    },
    CrateRule {
        name: "manager",
        sees: &[
            "objects",
            "plan",
            "controllers",
            "client",
            "runtime",
            "serving",
            "apiserver",
            "options",
            "hollow",
            "x509",
        ],
        pure: false,
    },
    CrateRule {
        name: "sim",
        sees: &["objects", "plan", "controllers", "client", "runtime", "apiserver", "hollow", "x509"],
        pure: false,
    },
    CrateRule {
        name: "fuzz",
        sees: &["objects", "cel", "client", "controllers", "options", "x509"],
        pure: false,
    },
    CrateRule { name: "xtask", sees: &["control-plane"], pure: false },
];

/// What the tests of any crate may use: the embedded API server and the captured log.
const FOR_ALL_TESTS: &[&str] = &["apiserver", "test-log"];

/// Crates whose tests may use more than their code. This creates no cycle: nothing depends on tests.
const TESTS_ALSO_SEE: &[(&str, &[&str])] = &[
    // The runtime is shown to converge under faults with a controller that ships, not only with examples.
    ("runtime", &["controllers"]),
    // The endpoint is compared with that of the original, which runs on a real control plane.
    ("serving", &["control-plane"]),
    // A scenario on the embedded API server needs the crates of a manager.
    ("scenarios", &["client", "controllers", "runtime"]),
];

/// A dependency of one of our crates on another.
#[derive(Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    for_tests: bool,
}

/// Finds crates outside the map and dependencies against it.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let printed = workspace.cargo_output(&["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: Value = serde_json::from_str(&printed).context("cargo metadata printed no JSON")?;
    let (members, edges) = read(&metadata)?;
    Ok(judge(&members, &edges))
}

fn read(metadata: &Value) -> Result<(BTreeSet<String>, Vec<Edge>)> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut members = BTreeSet::new();
    let mut edges = Vec::new();
    for package in packages {
        let from = crate_name(package["name"].as_str().context("a package has no name")?);
        members.insert(from.to_owned());
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Only dependencies of ours have a path; all others come from the registry.
            if dependency["path"].is_string() {
                edges.push(Edge {
                    from: from.to_owned(),
                    to: crate_name(dependency["name"].as_str().unwrap_or_default()).to_owned(),
                    for_tests: dependency["kind"] == "dev",
                });
            }
        }
    }
    Ok((members, edges))
}

fn crate_name(package: &str) -> &str {
    package.strip_prefix("keleustes-").unwrap_or(package)
}

fn judge(members: &BTreeSet<String>, edges: &[Edge]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for member in members {
        if !CRATES.iter().any(|krate| krate.name == member) {
            problems.push(Problem::of(
                member,
                "this crate is not on the map; give it a line in CRATES (xtask/src/house/crate_map.rs) and in ARCHITECTURE.md",
            ));
        }
    }
    for krate in CRATES.iter().filter(|krate| !members.contains(krate.name)) {
        problems.push(Problem::of(krate.name, "the map has this crate, but the workspace does not"));
    }
    for edge in edges {
        let Some(krate) = CRATES.iter().find(|krate| krate.name == edge.from) else {
            continue;
        };
        let to = edge.to.as_str();
        let allowed = krate.sees.contains(&to) || (edge.for_tests && tests_may_see(krate.name, to));
        if !allowed {
            let kind = if edge.for_tests { " in its tests" } else { "" };
            problems.push(Problem::of(
                &edge.from,
                format!(
                    "may not depend on `{to}`{kind}; the map allows {:?}. move the shared part to a crate that both may use",
                    krate.sees
                ),
            ));
        }
    }
    problems
}

fn tests_may_see(krate: &str, to: &str) -> bool {
    let also = TESTS_ALSO_SEE.iter().filter(|(from, _)| *from == krate);
    FOR_ALL_TESTS.contains(&to) || also.flat_map(|(_, seen)| *seen).any(|seen| *seen == to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_members() -> BTreeSet<String> {
        CRATES.iter().map(|krate| krate.name.to_owned()).collect()
    }

    fn edge(from: &str, to: &str, for_tests: bool) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned(), for_tests }
    }

    #[test]
    fn a_dependency_against_the_map_is_a_problem() {
        let problems =
            judge(&all_members(), &[edge("plan", "objects", false), edge("plan", "runtime", false)]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().starts_with("plan: may not depend on `runtime`"), "{problems:?}");
    }

    #[test]
    fn the_embedded_api_server_is_open_to_tests_only() {
        assert_eq!(judge(&all_members(), &[edge("client", "apiserver", true)]), []);
        assert_eq!(judge(&all_members(), &[edge("client", "apiserver", false)]).len(), 1);
    }

    #[test]
    fn what_tests_see_is_not_open_to_the_code_nor_to_other_crates() {
        assert_eq!(judge(&all_members(), &[edge("runtime", "controllers", true)]), []);
        assert_eq!(judge(&all_members(), &[edge("runtime", "controllers", false)]).len(), 1);
        assert_eq!(judge(&all_members(), &[edge("client", "controllers", true)]).len(), 1);
    }

    #[test]
    fn crates_and_map_must_name_each_other() {
        let mut members = all_members();
        members.remove("serving");
        members.insert("attic".to_owned());
        let places: Vec<_> = judge(&members, &[]).into_iter().map(|problem| problem.place).collect();
        assert_eq!(places, ["attic", "serving"]);
    }

    #[test]
    fn the_map_has_no_way_back() {
        // Each krate sees only crates that come to rest before it, so the table itself has no cycle.
        let mut settled: BTreeSet<&str> = BTreeSet::new();
        while settled.len() < CRATES.len() {
            let next: Vec<_> = CRATES
                .iter()
                .filter(|krate| {
                    !settled.contains(krate.name) && krate.sees.iter().all(|seen| settled.contains(seen))
                })
                .map(|krate| krate.name)
                .collect();
            assert!(!next.is_empty(), "these crates depend on each other in a circle, given {settled:?}");
            settled.extend(next);
        }
    }

    #[test]
    fn only_path_dependencies_of_a_manifest_are_read() {
        let metadata = serde_json::json!({ "packages": [{ "name": "keleustes-plan", "dependencies": [
            { "name": "keleustes-objects", "path": "somewhere", "kind": null },
            { "name": "keleustes-apiserver", "path": "somewhere", "kind": "dev" },
            { "name": "serde", "kind": null },
        ]}]});
        let (members, edges) = read(&metadata).unwrap();
        assert_eq!(members, BTreeSet::from(["plan".to_owned()]));
        assert_eq!(edges, [edge("plan", "objects", false), edge("plan", "apiserver", true)]);
    }
}
