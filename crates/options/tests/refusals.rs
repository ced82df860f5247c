//! Every invalid command line is refused with a message of one line and the original's exit code.
//!
//! The rows were recorded from the original, v1.37.1. With `KUBE_CONTROLLER_MANAGER` set to its path they are
//! compared with it again.

mod common;

use std::process::Command;

use common::{context, recorded, refusal};
use keleustes_options::{ParseOutcome, RefusalOutput, parse};
use serde::Deserialize;

/// A command line and the original's error; the exit code is always 1.
#[derive(Deserialize)]
struct Row {
    args: Vec<String>,
    /// Whether parsing succeeded and the error of validation was logged.
    logged: bool,
    message: String,
}

/// Messages that differ: the original's names Go.
const DIFFERENT_MESSAGES: &[(&str, &str)] = &[(
    "curve preference 1 is not supported by the current Go version",
    "curve preference 1 is not supported",
)];

fn rows() -> Vec<Row> {
    serde_json::from_str(&recorded("refusals.json")).expect("the rows are JSON")
}

/// Proves OPT-1, OPT-3, OPT-5, OPT-9, OPT-10, OPT-21, OPT-22, OPT-24, OPT-25, OPT-26, OPT-34, OPT-36, OPT-40, OPT-41,
/// OPT-60, OPT-42, OPT-61, OPT-43, OPT-44, OPT-45, OPT-46, OPT-47, OPT-48, OPT-49, OPT-50, OPT-51, OPT-52, OPT-53,
/// OPT-54, OPT-62, OPT-70, OPT-71, OPT-72, OPT-73, OPT-76, OPT-77, OPT-78, OPT-79, OPT-80, OPT-81, OPT-82, OPT-83,
/// OPT-95, LE-60, LE-61, LE-62, EPS-4, EPSM-4, IPAM-3, CSRS-3, CSRS-4, CSRS-12,
/// AD-12.
#[test]
fn invalid_command_lines_are_refused_with_the_messages_of_the_original() {
    let rows = rows();
    assert!(rows.len() >= 150, "the table has shrunk to {}", rows.len());
    for row in rows {
        let args: Vec<_> = row.args.iter().map(String::as_str).collect();
        let (message, manner) = refusal(&args);
        let own = DIFFERENT_MESSAGES.iter().find(|(theirs, _)| *theirs == row.message);
        assert_eq!(message, own.map_or(row.message.as_str(), |(_, ours)| *ours), "{args:?}");
        assert!(!message.contains('\n'), "{args:?}: {message}");
        assert_eq!(manner == RefusalOutput::Logged, row.logged, "{args:?}");
    }
}

/// Proves OPT-21.
#[test]
fn usage_is_printed_only_for_arguments_that_cannot_be_parsed() {
    assert_eq!(refusal(&["--nope"]).1, RefusalOutput::Usage);
    assert_eq!(refusal(&["extra"]).1, RefusalOutput::Plain);
    assert_eq!(refusal(&["--secure-port=-1"]).1, RefusalOutput::Logged);
    assert!(keleustes_options::usage().starts_with("Usage:\n"));
}

/// Configuration files whose errors differ from the original's, or have several lines there.
#[test]
fn invalid_files_are_refused_in_one_line() {
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
        let context = keleustes_options::CommandLineContext { read_file: &read, ..context() };
        let args = ["--enable-leader-migration", "--leader-migration-config=x"];
        let ParseOutcome::Refuse { message, exit_code: 1, .. } = parse(args, &context) else {
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
        let context = keleustes_options::CommandLineContext { read_file: &read, ..context() };
        let ParseOutcome::Refuse { message, exit_code: 1, .. } =
            parse(["--allow-metric-labels-manifest=x"], &context)
        else {
            panic!("{text}")
        };
        let start = format!("metrics.allowListMappingManifest: Invalid value: \"x\": {start}");
        assert!(message.starts_with(&start) && !message.contains('\n'), "{text}: {message}");
    }
}

/// Errors are in the order of gate names; the original's order is that of a hash map.
///
/// Proves OPT-64, OPT-73.
#[test]
fn all_violated_gate_dependencies_are_reported() {
    let names = [
        "NodeControllerLeaseCircuitBreaker",
        "StaleControllerConsistencyDaemonSet",
        "StaleControllerConsistencyHPA",
        "StaleControllerConsistencyJob",
        "StaleControllerConsistencyReplicaSet",
        "StaleControllerConsistencyStatefulSet",
    ];
    let errors = names
        .map(|name| format!("{name} is enabled, but depends on features that are disabled: [AtomicFIFO]"));
    assert_eq!(refusal(&["--feature-gates=AtomicFIFO=false"]).0, format!("[{}]", errors.join(", ")));
    let off = names.map(|name| format!("{name}=false")).join(",");
    common::run(&[&format!("--feature-gates=AtomicFIFO=false,{off}")]);
}

#[test]
fn the_original_still_prints_these_messages() {
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
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        let expected = if row.logged {
            let quoted = row.message.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"command failed\" err=\"{quoted}\"")
        } else {
            format!("Error: {}", row.message)
        };
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.ends_with(&expected), "{args:?}: {last}");
    }
}
