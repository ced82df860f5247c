//! The memory functions of the packaged program against those of the C library, with lengths around all their limits.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::Command;

/// The compiler that the dependencies need as well.
fn compile(folder: &Path, arguments: &[&str]) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler).current_dir(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn memory_functions_equal_those_of_the_c_library() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("memory");
    let [functions, test] = ["memory.c", "test.c"].map(|name| sources.join(name).display().to_string());
    let folder = tempfile::tempdir().unwrap();
    // As build.rs compiles them, but under names that do not replace the functions of this machine.
    let flags = [
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffreestanding",
        "-fno-builtin",
        "-fno-tree-loop-distribute-patterns",
    ];
    let renamed = ["-DMEMORY(name)=tested_##name", "-c", "-o", "memory.o", &functions];
    compile(folder.path(), &[&flags[..], &renamed].concat());
    compile(folder.path(), &["-O2", "-Wall", "-Wextra", "-Werror", "-o", "test", &test, "memory.o"]);
    let output = Command::new(folder.path().join("test")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
