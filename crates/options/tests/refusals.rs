//! Every bad command line is refused in one clear line and with the original's exit code.
//!
//! The rows were recorded from the original, v1.37.1. With `KUBE_CONTROLLER_MANAGER` set to its path they are held
//! against it once more.

mod common;

use std::process::Command;

use common::{known, recorded, refusal};
use keleustes_options::{ParseOutcome, RefusalOutput, parse};
use serde::Deserialize;

/// A command line and what the original says about it, always with exit code 1.
#[derive(Deserialize)]
struct Row {
    args: Vec<String>,
    /// Whether the flags could be read, and the complaint went to the log.
    logged: bool,
    message: String,
}

/// Where our words are not the original's, and why: it speaks of its own language.
const OWN_WORDS: &[(&str, &str)] = &[(
    "curve preference 1 is not supported by the current Go version",
    "curve preference 1 is not supported",
)];

fn rows() -> Vec<Row> {
    serde_json::from_str(&recorded("refusals.json")).expect("the rows are JSON")
}

/// Proves OPT-1, OPT-3, OPT-5, OPT-9, OPT-10, OPT-21, OPT-22, OPT-24, OPT-25, OPT-26, OPT-34, OPT-36, OPT-40, OPT-41,
/// OPT-60, OPT-42, OPT-61, OPT-43, OPT-44, OPT-45, OPT-46, OPT-47, OPT-48, OPT-49, OPT-50, OPT-51, OPT-52, OPT-53,
/// OPT-54, OPT-62, OPT-70, OPT-71, OPT-72, OPT-73, OPT-76, OPT-77, OPT-78, OPT-79, OPT-80, OPT-81, OPT-82, OPT-83,
/// OPT-95, LE-60, LE-61, LE-62, EPS-4.
#[test]
fn bad_command_lines_are_refused_in_the_words_of_the_original() {
    let rows = rows();
    assert!(rows.len() >= 150, "the table has shrunk to {}", rows.len());
    for row in rows {
        let args: Vec<_> = row.args.iter().map(String::as_str).collect();
        let (message, manner) = refusal(&args);
        let own = OWN_WORDS.iter().find(|(theirs, _)| *theirs == row.message);
        assert_eq!(message, own.map_or(row.message.as_str(), |(_, ours)| *ours), "{args:?}");
        assert!(!message.contains('\n'), "{args:?}: {message}");
        assert_eq!(manner == RefusalOutput::Logged, row.logged, "{args:?}");
    }
}

/// Proves OPT-21.
#[test]
fn usage_goes_with_arguments_that_cannot_be_read_and_only_with_them() {
    assert_eq!(refusal(&["--nope"]).1, RefusalOutput::Usage);
    assert_eq!(refusal(&["extra"]).1, RefusalOutput::Plain);
    assert_eq!(refusal(&["--secure-port=-1"]).1, RefusalOutput::Logged);
    assert!(keleustes_options::usage().starts_with("Usage:\n"));
}

/// Configuration files whose complaints are in our own words, or that the original complains about in several lines.
#[test]
fn broken_files_are_refused_in_one_line() {
    let migrations = [
        ("{{{", "couldn't get version/kind; json parse error: "),
        ("a: b", "Object 'Kind' is missing in 'a: b'"),
        ("- a", "Object 'Kind' is missing in '- a'"),
        ("a: [", "couldn't get version/kind; yaml parse error: "),
        ("apiVersion: v1\nkind: Pod", "no kind \"Pod\" is registered for version \"v1\" in scheme"),
        ("apiVersion: controllermanager.config.k8s.io/v2\nkind: LeaderMigrationConfiguration", "no kind "),
        (
            "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: 5",
            "invalid type: integer `5`, expected a string",
        ),
        (
            "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: a\nleaderName: b",
            "couldn't get version/kind; yaml parse error: ",
        ),
    ];
    for (text, start) in migrations {
        let read = |_: &str| Ok(text.to_owned());
        let known = keleustes_options::CommandLineContext { read_file: &read, ..known() };
        let args = ["--enable-leader-migration", "--leader-migration-config=x"];
        let ParseOutcome::Refuse { message, exit_code: 1, .. } = parse(args, &known) else {
            panic!("{text}")
        };
        assert!(message.starts_with(start), "{text}: {message}");
        assert!(!message.contains('\n'), "{text}: {message}");
    }
    for (text, start) in [
        ("allowListMapping:\n  a,b: c", "failed to parse allow list manifest: "),
        ("\"a", "failed to parse allow list manifest: "),
    ] {
        let read = |_: &str| Ok(text.to_owned());
        let known = keleustes_options::CommandLineContext { read_file: &read, ..known() };
        let ParseOutcome::Refuse { message, exit_code: 1, .. } =
            parse(["--allow-metric-labels-manifest=x"], &known)
        else {
            panic!("{text}")
        };
        let start = format!("metrics.allowListMappingManifest: Invalid value: \"x\": {start}");
        assert!(message.starts_with(&start) && !message.contains('\n'), "{text}: {message}");
    }
}

/// Gates are told in the order of their names; the original's order is that of a hash map.
///
/// Proves OPT-64, OPT-73.
#[test]
fn all_broken_dependencies_of_gates_are_told() {
    let names = [
        "NodeControllerLeaseCircuitBreaker",
        "StaleControllerConsistencyDaemonSet",
        "StaleControllerConsistencyHPA",
        "StaleControllerConsistencyJob",
        "StaleControllerConsistencyReplicaSet",
        "StaleControllerConsistencyStatefulSet",
    ];
    let told = names
        .map(|name| format!("{name} is enabled, but depends on features that are disabled: [AtomicFIFO]"));
    assert_eq!(refusal(&["--feature-gates=AtomicFIFO=false"]).0, format!("[{}]", told.join(", ")));
    let off = names.map(|name| format!("{name}=false")).join(",");
    common::run(&[&format!("--feature-gates=AtomicFIFO=false,{off}")]);
}

#[test]
fn the_original_still_says_so() {
    let Ok(original) = std::env::var("KUBE_CONTROLLER_MANAGER") else {
        return;
    };
    let base = [
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--secure-port=24398",
        "--kubeconfig=kubeconfig",
    ];
    for row in rows() {
        let mut args: Vec<&str> = if row.logged { base.to_vec() } else { Vec::new() };
        args.extend(row.args.iter().map(String::as_str));
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files");
        let output = Command::new(&original).args(&args).current_dir(files).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        let expected = if row.logged {
            let quoted = row.message.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"command failed\" err=\"{quoted}\"")
        } else {
            format!("Error: {}", row.message)
        };
        let last = told.lines().last().unwrap_or_default();
        assert!(last.ends_with(&expected), "{args:?}: {last}");
    }
}
