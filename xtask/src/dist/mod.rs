//! What a release consists of: program, image, bill of materials, man page, completions, checksums.

mod digest;
mod image;
pub mod program;
mod revision;
mod sbom;

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use self::digest::sha256;
use self::image::Image;
use self::revision::Revision;
use crate::changelog;
use crate::workspace::Workspace;

/// The name of the image before its tag.
const REPOSITORY: &str = "keleustes/kube-controller-manager";

/// Files that the program itself prints, and its arguments for each.
const PRINTED: [(&str, &[&str]); 4] = [
    ("kube-controller-manager.8", &["man-page"]),
    ("kube-controller-manager.bash", &["completion", "bash"]),
    ("_kube-controller-manager", &["completion", "zsh"]),
    ("kube-controller-manager.fish", &["completion", "fish"]),
];

/// Files of the repository that belong to a release.
const COPIED: [&str; 1] = ["LICENSE"];

const CHECKSUMS: &str = "SHA256SUMS";

/// Builds a release and returns its folder.
///
/// # Errors
/// The program does not build or does not run here, or a file cannot be written.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let revision = Revision::of(workspace).context("a release is made from a git checkout")?;
    if revision.changed {
        eprintln!("warning: some files differ from commit {}, which the release will name", revision.commit);
    }
    let notes = changelog::current(workspace)?;
    let version = version_of(workspace)?;
    let architecture = architecture()?;
    let folder = program::target_directory(workspace).join(format!("release-{version}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("emptying {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;

    let built = program::build(workspace)?;
    let name = format!("kube-controller-manager-{version}-linux-{architecture}");
    let program = folder.join(&name);
    fs::copy(&built, &program).with_context(|| format!("copying {}", built.display()))?;
    for (file, args) in PRINTED {
        put(&folder, file, &printed(&program, args)?)?;
    }
    let bytes = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    let reference = format!("{REPOSITORY}:{version}");
    let image = Image {
        program: &bytes,
        reference: &reference,
        version: &version,
        architecture,
        revision: &revision,
    };
    put(&folder, &format!("{name}.oci.tar"), &image.archive()?)?;
    let materials = serde_json::to_vec_pretty(&sbom::document(workspace, &revision)?)?;
    put(&folder, &format!("{name}.cdx.json"), &materials)?;
    for file in COPIED {
        put(&folder, file, workspace.read(file)?.as_bytes())?;
    }
    put(&folder, changelog::FILE, notes.as_bytes())?;
    let checksums = checksums_of(&folder)?;
    put(&folder, CHECKSUMS, checksums.as_bytes())?;
    Ok(folder)
}

/// The version that all our crates share.
fn version_of(workspace: &Workspace) -> Result<String> {
    let manifest = workspace.read("Cargo.toml")?;
    let package =
        manifest.split("[workspace.package]").nth(1).context("Cargo.toml has no [workspace.package]")?;
    let line = package.lines().find_map(|line| line.strip_prefix("version = \""));
    Ok(line.context("[workspace.package] has no version")?.trim_end_matches('"').to_owned())
}

/// This machine's processor as container registries call it.
fn architecture() -> Result<&'static str> {
    match ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("there is no release for {other}, only for x86_64 and aarch64"),
    }
}

fn printed(program: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(args).output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{} {}` failed: {errors}", program.display(), args.join(" "));
    Ok(output.stdout)
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    fs::write(folder.join(name), bytes).with_context(|| format!("writing {name}"))
}

/// The digests of all files, in the form that `sha256sum --check` reads.
fn checksums_of(folder: &Path) -> Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != CHECKSUMS {
            let bytes = fs::read(&path).with_context(|| format!("reading {name}"))?;
            lines.push((name, sha256(&bytes)));
        }
    }
    lines.sort();
    Ok(lines.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_our_crates() {
        let workspace = Workspace::open().unwrap();
        assert_eq!(version_of(&workspace).unwrap(), env!("CARGO_PKG_VERSION"));
    }

    /// The static pod that we ship names the image that a release contains.
    #[test]
    fn manifest_names_the_image_of_this_version() {
        let workspace = Workspace::open().unwrap();
        let manifest = workspace.read("packaging/kubeadm/kube-controller-manager.yaml").unwrap();
        let image = format!("image: {REPOSITORY}:{}\n", version_of(&workspace).unwrap());
        assert!(manifest.contains(&image), "{image}");
    }
}
