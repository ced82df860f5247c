//! The pure crates have no async runtime, socket, clock or source of randomness anywhere below them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::crate_map::CRATES;
use crate::problem::Problem;
use crate::workspace::Workspace;

/// Crates that bring something a decision must not have, grouped by what they bring.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("an async runtime", &["tokio", "async-std", "smol", "async-io", "async-executor", "futures-executor"]),
    (
        "sockets",
        &[
            "mio",
            "socket2",
            "polling",
            "hyper",
            "hyper-util",
            "h2",
            "reqwest",
            "ureq",
            "rustls",
            "native-tls",
        ],
    ),
    ("a cluster client", &["kube", "kube-client", "kube-core", "kube-runtime", "k8s-openapi"]),
    ("a clock", &["chrono", "time", "web-time", "quanta", "coarsetime", "humantime"]),
    (
        "chance",
        &["rand", "rand_core", "rand_chacha", "getrandom", "fastrand", "oorandom", "nanorand", "uuid"],
    ),
];

/// A forbidden crate that is let in below one parent only.
struct Exception {
    name: &'static str,
    below: &'static str,
    /// Why the thing it brings cannot reach a decision.
    #[allow(dead_code, reason = "read by people: an exception without a reason should not compile")]
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        name: "getrandom",
        below: "ahash",
        reason: "seeds the hash table inside `internment`; interned strings are compared by content and the table is \
                 never walked, so the seed cannot be observed",
    },
    Exception {
        name: "time",
        below: "asn1-rs",
        reason: "holds the dates of certificates; clippy.toml disallows the one function that reads the clock",
    },
    Exception {
        name: "time",
        below: "x509-parser",
        reason: "holds the dates of certificates; clippy.toml disallows the one function that reads the clock",
    },
];

/// The packages below one crate, each with the packages that ask for it.
type Parents = BTreeMap<String, BTreeSet<String>>;

/// Reads the resolved dependency tree of each pure crate.
pub fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let mut exceptions_used = BTreeSet::new();
    for krate in CRATES.iter().filter(|krate| krate.pure) {
        let package = format!("keleustes-{}", krate.name);
        let args =
            ["tree", "--package", &package, "--edges", "normal", "--prefix", "depth", "--format", " {p}"];
        let parents = parse(&workspace.cargo_output(&args)?)?;
        problems.extend(judge(&package, &parents, &mut exceptions_used));
    }
    for exception in EXCEPTIONS.iter().filter(|exception| !exceptions_used.contains(exception.name)) {
        problems.push(Problem::of(
            "xtask/src/house/purity.rs",
            format!("the exception for `{}` is no longer needed; remove it", exception.name),
        ));
    }
    Ok(problems)
}

/// Reads lines such as `2 serde v1.0.0` or `1 serde_derive v1.0.0 (proc-macro)`.
fn parse(tree: &str) -> Result<Parents> {
    let mut parents = Parents::new();
    let mut path: Vec<&str> = Vec::new();
    // What a procedural macro needs runs in the compiler and never reaches the program.
    let mut macro_depth = usize::MAX;
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let depth: usize =
            words.next().and_then(|word| word.parse().ok()).context("cargo tree without a depth")?;
        let name = words.next().context("cargo tree without a name")?;
        path.truncate(depth);
        if depth <= macro_depth {
            macro_depth = if line.contains("(proc-macro)") { depth } else { usize::MAX };
            if macro_depth == usize::MAX {
                let entry = parents.entry(name.to_owned()).or_default();
                entry.extend(path.last().map(|parent| (*parent).to_owned()));
            }
        }
        path.push(name);
    }
    Ok(parents)
}

fn judge(package: &str, parents: &Parents, exceptions_used: &mut BTreeSet<&'static str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (brings, names) in FORBIDDEN {
        for name in *names {
            for parent in parents.get(*name).into_iter().flatten() {
                match EXCEPTIONS.iter().find(|exception| exception.name == *name && exception.below == parent) {
                    Some(exception) => {
                        exceptions_used.insert(exception.name);
                    }
                    None => problems.push(Problem::of(
                        package,
                        format!("`{name}` (through `{parent}`) brings {brings}; a decision takes such things as values"),
                    )),
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0 keleustes-plan v0.1.0 (somewhere)\n1 internment v0.8.6\n2 ahash v0.8.12\n\
        3 getrandom v0.3.4\n1 serde v1.0.0\n2 serde_derive v1.0.0 (proc-macro)\n3 rand v0.9.0\n1 itoa v1.0.0\n";

    fn problems_of(tree: &str) -> Vec<String> {
        let parents = parse(tree).unwrap();
        judge("keleustes-plan", &parents, &mut BTreeSet::new()).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn an_exception_holds_below_its_parent_and_macros_are_not_followed() {
        assert_eq!(problems_of(TREE), [""; 0]);
        assert!(parse(TREE).unwrap().contains_key("itoa"));
    }

    #[test]
    fn a_forbidden_crate_is_found_with_the_crate_that_asks_for_it() {
        let found = problems_of(&format!("{TREE}1 uuid v1.0.0\n2 getrandom v0.3.4 (*)\n1 tokio v1.0.0\n"));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("`tokio` (through `keleustes-plan`) brings an async runtime"));
        assert!(found[1].contains("`getrandom` (through `uuid`) brings chance"));
        assert!(found[2].contains("`uuid` (through `keleustes-plan`) brings chance"));
    }
}
