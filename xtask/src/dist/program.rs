//! The packaged program: one static file without the playground, with an allocator that keeps little memory.

use std::env::consts::ARCH;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::revision::Revision;
use crate::workspace::{Workspace, cargo};

/// One arena is enough for a manager's few threads; allocations above a kilobyte are not cached per thread.
const ALLOCATOR: (&str, &str) = ("JEMALLOC_SYS_WITH_MALLOC_CONF", "narenas:1,tcache_max:1024");

/// The Rust target of the packaged program: this machine's processor, and a C library that is linked in.
pub fn target() -> String {
    format!("{ARCH}-unknown-linux-musl")
}

/// Builds the program and returns its path.
///
/// # Errors
/// It does not build, mostly because the target is not installed.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let target = target();
    let mut build = cargo();
    build.args(["build", "--locked", "--profile=dist", "--target", &target]);
    build.args(["--package", "keleustes-manager", "--no-default-features"]);
    build.env(ALLOCATOR.0, ALLOCATOR.1);
    if let Some(revision) = Revision::of(workspace) {
        build.env("KELEUSTES_BUILD_DATE", revision.date);
    }
    let status = build.current_dir(workspace.root()).status().context("starting cargo")?;
    ensure!(
        status.success(),
        "the program does not build; it takes `rustup target add {target}` and, outside of Alpine, musl-gcc (Debian: \
         musl-tools)"
    );
    Ok(target_directory(workspace).join(target).join("dist/kube-controller-manager"))
}

/// Where cargo puts what it builds.
pub fn target_directory(workspace: &Workspace) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace.root().join(folder)
}
