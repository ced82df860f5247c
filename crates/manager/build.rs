//! Finds the commit that the program is built from, for `--version` and the pages that name it, and replaces slow functions of
//! musl.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=KELEUSTES_COMMIT");
    println!("cargo:rerun-if-env-changed=KELEUSTES_BUILD_DATE");
    // An image is built without the repository, so the recipe passes the commit.
    let given = std::env::var("KELEUSTES_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "HEAD"])).unwrap_or_default();
    println!("cargo:rustc-env=KELEUSTES_COMMIT={commit}");
    // The first changes with the branch, the second with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    link_memory_functions();
}

/// Links `memory/memory.c` into a program for musl on x86-64, whose functions for short ranges are slow.
fn link_memory_functions() {
    const SOURCE: &str = "memory/memory.c";
    println!("cargo:rerun-if-changed={SOURCE}");
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if (target("ENV").as_str(), target("ARCH").as_str()) != ("musl", "x86_64") {
        return;
    }
    let mut build = cc::Build::new();
    build.file(SOURCE).opt_level(2).warnings(true).cargo_metadata(false);
    // Else the compiler would find the functions in their own loops, and call them.
    build.flags(["-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns"]);
    build.compile("keleustes_memory");
    // All of it, before the C library: a function that is already defined is not taken from there.
    println!("cargo:rustc-link-search=native={}", std::env::var("OUT_DIR").unwrap_or_default());
    println!("cargo:rustc-link-lib=static:+whole-archive=keleustes_memory");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
