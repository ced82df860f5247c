//! Shared by the tests: controllers and version of the original, and files.

// Each test binary uses some of it.
#![allow(dead_code)]

use std::io;
use std::path::Path;

use keleustes_options::{
    Build, CommandHelp, CommandLineContext, Controller, Options, ParseOutcome, RefusalOutput, parse,
};

/// The controllers that the tests name; the full list is in the controllers crate.
pub(crate) const CONTROLLERS: &[Controller<'static>] = &[
    controller("serviceaccount-token-controller", "serviceaccount-token", true),
    controller("certificatesigningrequest-signing-controller", "csrsigning", true),
    controller("endpoints-controller", "endpoint", true),
    controller("pod-garbage-collector-controller", "podgc", true),
    controller("daemonset-controller", "daemonset", true),
    controller("job-controller", "job", true),
    controller("deployment-controller", "deployment", true),
    controller("podgroup-protection-controller", "", true),
    controller("bootstrap-signer-controller", "bootstrapsigner", false),
    controller("selinux-warning-controller", "", false),
    controller("token-cleaner-controller", "tokencleaner", false),
];

const fn controller(name: &'static str, alias: &'static str, on_by_default: bool) -> Controller<'static> {
    Controller { name, alias, on_by_default }
}

/// The version of the original that the recordings were made with.
pub(crate) const BUILD: Build<'static> = Build {
    git_version: "v1.37.1",
    program: "Keleustes 0.1.0 (commit abc)",
    git_commit: "abc",
    git_tree_state: "clean",
    build_date: "1970-01-01T00:00:00Z",
    language_version: "rust1.95",
    compiler: "rustc",
    platform: "linux/amd64",
};

const COMMANDS: &[CommandHelp<'static>] = &[
    CommandHelp { name: "playground", arguments: "[flags]", about: "Start a cluster." },
    CommandHelp { name: "version", arguments: "", about: "Print the version." },
];

pub(crate) fn context() -> CommandLineContext<'static> {
    CommandLineContext {
        controllers: CONTROLLERS,
        implemented: &["serviceaccount-token-controller"],
        commands: COMMANDS,
        build: BUILD,
        width: None,
        read_file: &read_file,
    }
}

/// Reads a file from `tests/files`; absolute paths are read as they are.
fn read_file(path: &str) -> io::Result<String> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    std::fs::read_to_string(base.join(path))
}

pub(crate) fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn run(args: &[&str]) -> Options {
    match parse(args, &context()) {
        ParseOutcome::Run(options) => *options,
        other => panic!("{args:?} should run: {other:?}"),
    }
}

pub(crate) fn print(args: &[&str]) -> String {
    match parse(args, &context()) {
        ParseOutcome::Print(text) => text,
        other => panic!("{args:?} should print: {other:?}"),
    }
}

pub(crate) fn refusal(args: &[&str]) -> (String, RefusalOutput) {
    match parse(args, &context()) {
        ParseOutcome::Refuse { message, exit_code: 1, manner } => (message, manner),
        other => panic!("{args:?} should be refused with code 1: {other:?}"),
    }
}

pub(crate) fn refused(args: &[&str]) -> String {
    refusal(args).0
}
