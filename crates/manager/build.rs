//! Finds the commit that the program is built from, for `--version` and the pages that name it.

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
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
