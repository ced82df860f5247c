//! The packaged program: one static file without the playground, with an allocator that keeps little memory.

use std::env::consts::ARCH;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use xtask::workspace::{Workspace, cargo};

use crate::run::status;

/// One arena is enough for a manager's few threads; allocations above a kilobyte are not cached per thread.
const ALLOCATOR: (&str, &str) = ("JEMALLOC_SYS_WITH_MALLOC_CONF", "narenas:1,tcache_max:1024");

/// Builds it and returns its path.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let target = format!("{ARCH}-unknown-linux-musl");
    let mut build = cargo();
    build.args(["build", "--locked", "--profile=dist", "--target", &target]);
    build.args(["--package", "keleustes-manager", "--no-default-features"]);
    build.env(ALLOCATOR.0, ALLOCATOR.1);
    ensure!(
        status(build, workspace)?.success(),
        "the program does not build; it takes `rustup target add {target}` and, outside of Alpine, musl-gcc (Debian: \
         musl-tools)"
    );
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(workspace.root().join(folder).join(target).join("dist/kube-controller-manager"))
}

/// Builds it and prints its path.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    println!("{}", build(workspace)?.display());
    Ok(ExitCode::SUCCESS)
}
