//! What an operator writes: kubeconfig files, and the command line with the files that it names.

use std::fs;
use std::io::{Error, ErrorKind};

use keleustes_client::Connection;
use keleustes_options::{Build, CommandLineContext, Controller, ParseOutcome, parse};

use crate::text;

/// A kubeconfig file.
pub(crate) fn kubeconfig(input: &[u8]) {
    // Files that a kubeconfig names are read to their end; devices have none.
    if input.windows(4).any(|part| part == b"/dev" || part == b"proc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("a folder: {error}"));
    let file = folder.path().join("kubeconfig");
    fs::write(&file, input).unwrap_or_else(|error| panic!("writing {}: {error}", file.display()));
    // Connection pools are made in a runtime; nothing is sent.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    let _inside = runtime.enter();
    let open = || match Connection::open(Some(&file), None, None) {
        Ok(connection) => Ok((connection.host().to_owned(), connection.embedded_ca().map(<[u8]>::to_vec))),
        Err(error) => Err(error.to_string()),
    };
    let outcome = open();
    assert_eq!(outcome, open(), "opened twice");
    assert!(outcome.is_ok_and(|(host, _)| !host.is_empty()) || open().is_err_and(|error| !error.is_empty()));
}

const CONTROLLERS: &[Controller<'static>] = &[
    Controller { name: "job-controller", alias: "job", on_by_default: true },
    Controller { name: "bootstrap-signer-controller", alias: "bootstrapsigner", on_by_default: false },
];

/// Arguments, one per line, and after an empty line the content of every file that they name.
pub(crate) fn flags(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let (args, file) = text.split_once("\n\n").unwrap_or((text, ""));
    let read_file = |path: &str| {
        if path.contains("absent") { Err(Error::from(ErrorKind::NotFound)) } else { Ok(file.to_owned()) }
    };
    let context = CommandLineContext {
        controllers: CONTROLLERS,
        implemented: &["job-controller", "bootstrap-signer-controller"],
        commands: &[],
        build: Build {
            git_version: "v1.37.1",
            program: "fuzz",
            git_commit: "",
            git_tree_state: "clean",
            build_date: "1970-01-01T00:00:00Z",
            language_version: "rust",
            compiler: "rustc",
            platform: "linux/amd64",
        },
        width: Some(80),
        read_file: &read_file,
    };
    match parse(args.lines(), &context) {
        ParseOutcome::Refuse { message, exit_code, .. } => {
            assert_eq!(exit_code, 1);
            assert!(!message.is_empty() && !message.contains(['\n', '\r']), "{message:?}");
        }
        ParseOutcome::Print(text) => assert!(text.ends_with('\n'), "{text:?}"),
        ParseOutcome::Run(options) => {
            let _ = (options.configz(), options.flagz_text(": "));
        }
    }
}
