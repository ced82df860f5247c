//! The bill of materials: every crate that is linked into the packaged program, as a CycloneDX document.
//!
//! `cargo tree` knows which crates the program has with its target and features, `cargo metadata` their licences and origins, and
//! Cargo.lock their checksums.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::program;
use super::revision::Revision;
use crate::workspace::Workspace;

/// The package that is the program.
const ROOT: &str = "keleustes-manager";

/// Name and version of a crate.
type Id = (String, String);

/// The bill of materials of the packaged program.
///
/// # Errors
/// Cargo cannot be run, or prints something else than expected.
pub(super) fn document(workspace: &Workspace, revision: &Revision) -> Result<Value> {
    let target = program::target();
    let linked = workspace.cargo_output(&[
        "tree",
        "--locked",
        "--package",
        ROOT,
        "--no-default-features",
        "--target",
        &target,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ])?;
    let metadata = workspace.cargo_output(&[
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        &target,
    ])?;
    let metadata = serde_json::from_str(&metadata).context("reading cargo metadata")?;
    describe(&linked_crates(&linked), &metadata, &checksums(&workspace.read("Cargo.lock")?), revision)
}

/// The crates that `cargo tree` lists, without its marks.
fn linked_crates(tree: &str) -> BTreeSet<Id> {
    let id = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    tree.lines().filter_map(id).collect()
}

/// The checksums of Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let value = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let entries = lock.split("[[package]]").skip(1);
    entries
        .filter_map(|entry| {
            Some(((value(entry, "name")?, value(entry, "version")?), value(entry, "checksum")?))
        })
        .collect()
}

fn describe(
    linked: &BTreeSet<Id>,
    metadata: &Value,
    checksums: &BTreeMap<Id, String>,
    revision: &Revision,
) -> Result<Value> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let by_id: BTreeMap<&str, &Value> = packages
        .iter()
        .filter(|package| linked.contains(&id_of(package)))
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let root = by_id.values().find(|package| package["name"] == ROOT);
    let root = root.with_context(|| format!("cargo metadata does not know {ROOT}"))?;
    let others = by_id.values().filter(|package| package["name"] != ROOT);
    let mut components: Vec<_> = others.map(|package| component(package, checksums)).collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": revision.date,
            "component": {
                "type": "application",
                "bom-ref": reference(root),
                "name": "kube-controller-manager",
                "description": "Keleustes, a kube-controller-manager in Rust",
                "version": root["version"],
                "licenses": licences(root),
                "properties": [{"name": "commit", "value": revision.commit}],
            },
        },
        "components": components,
        "dependencies": dependencies(metadata, &by_id),
    }))
}

fn component(package: &Value, checksums: &BTreeMap<Id, String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": licences(package),
    });
    if let Some(checksum) = checksums.get(&id_of(package)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    // Our own crates are not published, so a package URL would name nothing.
    if !package["source"].is_null() {
        component["purl"] = json!(reference(package));
    }
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

/// Which component needs which others.
fn dependencies(metadata: &Value, linked: &BTreeMap<&str, &Value>) -> Vec<Value> {
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let mut all: Vec<_> = nodes
        .filter_map(|node| {
            let package = linked.get(node["id"].as_str()?)?;
            let needs = node["deps"].as_array()?.iter().filter(|dependency| is_linked(dependency));
            let needs = needs.filter_map(|dependency| linked.get(dependency["pkg"].as_str()?));
            let needs: BTreeSet<_> = needs.map(|package| reference(package)).collect();
            Some(json!({"ref": reference(package), "dependsOn": needs}))
        })
        .collect();
    all.sort_by_key(|one| one["ref"].to_string());
    all
}

/// Whether a dependency is one of the program, not only of its tests or its build.
fn is_linked(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn id_of(package: &Value) -> Id {
    let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

fn reference(package: &Value) -> String {
    let (name, version) = id_of(package);
    format!("pkg:cargo/{name}@{version}")
}

/// Older crates write `MIT/Apache-2.0`, which is no SPDX expression.
fn licences(package: &Value) -> Value {
    let given = package["license"].as_str();
    given.map_or_else(|| json!([]), |text| json!([{"expression": text.replace('/', " OR ")}]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision() -> Revision {
        Revision {
            commit: "0123abcd".to_owned(),
            date: "2026-01-31T23:59:59Z".to_owned(),
            seconds: 0,
            changed: false,
        }
    }

    #[test]
    fn marks_of_the_tree_are_dropped() {
        let tree = "keleustes-manager v0.1.0 (/somewhere)\nanyhow v1.0.1\nanyhow v1.0.1 (*)\n\n";
        let names: Vec<_> = linked_crates(tree).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["anyhow", "keleustes-manager"]);
    }

    #[test]
    fn component_has_licence_checksum_and_origin() {
        let lock = "version = 4\n\n[[package]]\nname = \"old\"\nversion = \"1.2.3\"\nsource = \"registry\"\nchecksum = \"abc\"\n";
        let package = json!({
            "name": "old", "version": "1.2.3", "license": "MIT/Apache-2.0", "source": "registry",
            "repository": "https://example.org/old",
        });
        assert_eq!(
            component(&package, &checksums(lock)),
            json!({
                "type": "library", "bom-ref": "pkg:cargo/old@1.2.3", "name": "old", "version": "1.2.3",
                "purl": "pkg:cargo/old@1.2.3",
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "hashes": [{"alg": "SHA-256", "content": "abc"}],
                "externalReferences": [{"type": "vcs", "url": "https://example.org/old"}],
            })
        );
    }

    #[test]
    fn crates_of_tests_and_of_the_playground_are_not_listed() {
        let workspace = Workspace::open().unwrap();
        let document = document(&workspace, &revision()).unwrap();
        let components = document["components"].as_array().unwrap();
        let names: BTreeSet<_> =
            components.iter().filter_map(|component| component["name"].as_str()).collect();
        assert!(names.contains("rustls") && names.contains("keleustes-controllers"), "{names:?}");
        for absent in ["keleustes-apiserver", "keleustes-manager", "proptest", "serde_derive", "cmake"] {
            assert!(!names.contains(absent), "{absent} is not in the program");
        }
        let known: BTreeSet<_> =
            components.iter().map(|component| component["bom-ref"].to_string()).collect();
        for dependency in document["dependencies"].as_array().unwrap() {
            for needed in dependency["dependsOn"].as_array().unwrap() {
                assert!(known.contains(&needed.to_string()), "{needed} is needed and not listed");
            }
        }
        let unlicensed = components.iter().filter(|component| component["licenses"] == json!([]));
        assert_eq!(unlicensed.count(), 0);
    }
}
