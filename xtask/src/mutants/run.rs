//! Builds the tests of a crate with all mutants in them, and runs them once per mutant.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use xtask::workspace::{Workspace, cargo};

use super::{Mutant, render};

/// A mutant that makes a loop endless would make the tests run for ever: its tests get this many times as long as they
/// take without it.
const TIMES_LONGER: u32 = 4;
/// The shortest time that they get, because machines are noisy.
const TIMEOUT_MIN: Duration = Duration::from_secs(30);
/// The time for the tests without a mutant.
const TIMEOUT_MAX: Duration = Duration::from_mins(30);
/// Mutants that do not compile are left out, and the build is tried again this often.
const BUILDS_MAX: usize = 12;

/// A test program.
struct TestProgram {
    path: PathBuf,
    /// How long it may run.
    timeout: Duration,
    /// Whether it holds the unit tests, whose names begin with their module.
    has_unit_tests: bool,
}

/// Tries all mutants and prints those that no test notices.
pub(super) fn try_all(
    workspace: &Workspace,
    package: &str,
    mut mutants: BTreeMap<usize, Mutant>,
) -> Result<ExitCode> {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root().join("target"), PathBuf::from);
    let (tree, target) = (target.join("mutants/tree"), target.join("mutants"));
    let sampled = mutants.len();
    let mut programs = build(workspace, package, &mut mutants, &tree, &target)?;
    println!("{} do not compile", sampled - mutants.len());
    let folder = tree.join("crates").join(package);
    for program in &mut programs {
        let started = Instant::now();
        ensure!(passes(program, &folder, None, None)?, "{} fails without a mutant", program.path.display());
        program.timeout = (started.elapsed() * TIMES_LONGER).max(TIMEOUT_MIN);
    }
    let mut survivors = Vec::new();
    for (done, (number, mutant)) in mutants.iter().enumerate() {
        if survives(&programs, &folder, *number, mutant)? {
            println!("survived {number} {mutant}");
            survivors.push(mutant);
        }
        if (done + 1) % 25 == 0 {
            println!("{} of {} tried, {} survived", done + 1, mutants.len(), survivors.len());
        }
    }
    println!("{} of {} mutants were noticed", mutants.len() - survivors.len(), mutants.len());
    Ok(ExitCode::SUCCESS)
}

/// Whether all tests pass with a mutant. The tests of its own module run first, because they are the likeliest to notice.
fn survives(programs: &[TestProgram], folder: &Path, number: usize, mutant: &Mutant) -> Result<bool> {
    let module = mutant.file.split("/src/").nth(1).and_then(|path| path.split(['/', '.']).next());
    let module = module.filter(|module| *module != "lib").map(|module| format!("{module}::"));
    for program in programs.iter().filter(|program| program.has_unit_tests) {
        if module.is_some() && !passes(program, folder, Some(number), module.as_deref())? {
            return Ok(false);
        }
    }
    for program in programs {
        if !passes(program, folder, Some(number), None)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn passes(program: &TestProgram, folder: &Path, mutant: Option<usize>, filter: Option<&str>) -> Result<bool> {
    let mut command = Command::new(&program.path);
    command.current_dir(folder).args(filter);
    command.env("CARGO_MANIFEST_DIR", folder).env("RUST_BACKTRACE", "0");
    command.env_remove("MUTANT").envs(mutant.map(|number| ("MUTANT", number.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().with_context(|| format!("starting {}", program.path.display()))?;
    wait(child, program.timeout)
}

/// Whether a process succeeds in time. The first failed test ends it.
fn wait(mut child: Child, timeout: Duration) -> Result<bool> {
    let output = child.stdout.take().context("the output is a pipe")?;
    let (failed_sender, failed) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        if lines.any(|line| line.ends_with(b"... FAILED")) {
            // The receiver is gone if the process has ended.
            let _ = failed_sender.send(());
        }
    });
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if failed.try_recv().is_ok() || Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Builds the test programs and removes mutants that do not compile.
fn build(
    workspace: &Workspace,
    package: &str,
    mutants: &mut BTreeMap<usize, Mutant>,
    tree: &Path,
    target: &Path,
) -> Result<Vec<TestProgram>> {
    for _ in 0..BUILDS_MAX {
        write_tree(workspace, package, mutants, tree)?;
        let messages = compile(package, tree, target)?;
        let errors: Vec<_> = messages.iter().filter_map(error_place).collect();
        if errors.is_empty() {
            return Ok(messages.iter().filter_map(test_program).collect());
        }
        let mut bad = BTreeSet::new();
        for (file, line) in &errors {
            bad.extend(mutants_near(&fs::read_to_string(tree.join(file))?, *line));
        }
        let before = mutants.len();
        mutants.retain(|number, _| !bad.contains(number));
        if mutants.len() == before {
            bail!("the mutated crate does not compile: {errors:?}");
        }
    }
    bail!("the mutated crate does not compile after {BUILDS_MAX} builds")
}

/// The mutants of a line, or of the nearest line before it that has one.
fn mutants_near(text: &str, line: usize) -> Vec<usize> {
    let lines: Vec<_> = text.lines().take(line).collect();
    let numbers = |line: &&str| -> Vec<usize> {
        let calls = line.split("crate::mutant_is(").skip(1);
        calls.filter_map(|call| call.split(')').next()?.parse().ok()).collect()
    };
    lines.iter().rev().map(numbers).find(|numbers| !numbers.is_empty()).unwrap_or_default()
}

/// Copies the repository with the mutants. Unchanged files keep their time, so that their crates are not built again.
fn write_tree(
    workspace: &Workspace,
    package: &str,
    mutants: &BTreeMap<usize, Mutant>,
    tree: &Path,
) -> Result<()> {
    let root = format!("crates/{package}/src/lib.rs");
    for file in workspace.files() {
        let path = tree.join(file);
        let original = fs::read(workspace.root().join(file))?;
        let of_file: BTreeMap<usize, &Mutant> = mutants
            .iter()
            .filter(|(_, mutant)| mutant.file == file)
            .map(|(number, mutant)| (*number, mutant))
            .collect();
        let wanted = if of_file.is_empty() && file != root {
            original
        } else {
            let rendered = render::render(std::str::from_utf8(&original)?, &of_file);
            let around = if file == root { ("#![allow(warnings)]\n", render::SWITCH) } else { ("", "") };
            format!("{}{rendered}{}", around.0, around.1).into_bytes()
        };
        if fs::read(&path).is_ok_and(|existing| existing == wanted) {
            continue;
        }
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(&path, wanted)?;
    }
    Ok(())
}

fn compile(package: &str, tree: &Path, target: &Path) -> Result<Vec<Value>> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--locked", "--message-format=json", "--package"]);
    command.arg(format!("keleustes-{package}")).current_dir(tree).env("CARGO_TARGET_DIR", target);
    let output = command.stderr(Stdio::inherit()).output().context("starting cargo")?;
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| serde_json::from_str(line).context("reading cargo's messages")).collect()
}

/// File and line of a compiler error.
fn error_place(message: &Value) -> Option<(String, usize)> {
    let message = &message["message"];
    if message["level"] != "error" {
        return None;
    }
    let primary = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    Some((primary["file_name"].as_str()?.to_owned(), usize::try_from(primary["line_start"].as_u64()?).ok()?))
}

fn test_program(message: &Value) -> Option<TestProgram> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let is_library = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "lib");
    let path = message["executable"].as_str()?.into();
    Some(TestProgram { path, timeout: TIMEOUT_MAX, has_unit_tests: is_library })
}
