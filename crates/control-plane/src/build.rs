//! Provides every requested program: built once from its published Go module, or taken from `KUBEBUILDER_ASSETS`.
//!
//! Built programs are kept in `$KELEUSTES_CACHE/control-plane/<key>`, by default under `~/.cache/keleustes`; the key
//! changes with the module files. Only what is asked for is built, one program at a time, and a program appears in the
//! cache under its name when it is complete, so that an interrupted build leaves nothing that could be mistaken for one.
//!
//! `KUBEBUILDER_ASSETS`, when set, is the directory to take etcd, kube-apiserver and kubectl from, and it is an error
//! if one of them is missing there: a half-filled directory is a mistake, and a silent build of ten minutes would hide
//! it. kube-scheduler and kube-controller-manager are taken from there as well if present and built otherwise, because
//! the archives published for that variable do not carry them. kwok is always built, because its stages must match it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{During, Error, Result};
use crate::process::{Process, tail_of};
use crate::sources::{
    self, ETCD, KUBERNETES, KWOK, LOCAL_PATH_PROVISIONER, METRICS_ADAPTER, METRICS_SERVER, Module,
    OLDER_KUBERNETES,
};

mod copied_packages;
mod jws_check;
mod progress;
mod templates;
mod volumes;
use progress::Progress;

/// A program of the control plane.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The command line client.
    Kubectl,
    /// The scheduler.
    KubeScheduler,
    /// Go's controller manager, the one Keleustes is measured against.
    KubeControllerManager,
    /// Simulates nodes and their kubelets.
    Kwok,
    /// Measures pods and nodes through their kubelets and serves `metrics.k8s.io`.
    MetricsServer,
    /// Serves `custom.metrics.k8s.io` and `external.metrics.k8s.io`.
    MetricsAdapter,
    /// Rancher's provisioner of volumes on the disks of nodes.
    LocalPathProvisioner,
    /// The API server of the minor version before.
    OlderKubeApiserver,
}

impl Program {
    /// What every control plane needs.
    pub const BASE: [Self; 3] = [Self::Etcd, Self::KubeApiserver, Self::Kubectl];
    /// Everything that can be built.
    pub const ALL: [Self; 10] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::Kubectl,
        Self::KubeScheduler,
        Self::KubeControllerManager,
        Self::Kwok,
        Self::MetricsServer,
        Self::MetricsAdapter,
        Self::LocalPathProvisioner,
        Self::OlderKubeApiserver,
    ];

    /// The name of the executable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Kubectl => "kubectl",
            Self::KubeScheduler => "kube-scheduler",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kwok => "kwok",
            Self::MetricsServer => "metrics-server",
            Self::MetricsAdapter => "metrics-adapter",
            Self::LocalPathProvisioner => "local-path-provisioner",
            Self::OlderKubeApiserver => "older-kube-apiserver",
        }
    }

    /// The name of its file in the cache. The folder's name stands for the modules of the control plane itself; programs of
    /// other modules carry a key of their own, so that a new version of one does not make all others outdated.
    fn file_name(self) -> String {
        match self {
            Self::MetricsServer
            | Self::MetricsAdapter
            | Self::LocalPathProvisioner
            | Self::OlderKubeApiserver => format!("{self}-{}", self.module().key()),
            _ => self.name().to_owned(),
        }
    }

    fn module(self) -> &'static Module {
        match self {
            Self::Etcd => &ETCD,
            Self::Kwok => &KWOK,
            Self::MetricsServer => &METRICS_SERVER,
            Self::MetricsAdapter => &METRICS_ADAPTER,
            Self::LocalPathProvisioner => &LOCAL_PATH_PROVISIONER,
            Self::OlderKubeApiserver => &OLDER_KUBERNETES,
            Self::KubeApiserver | Self::Kubectl | Self::KubeScheduler | Self::KubeControllerManager => {
                &KUBERNETES
            }
        }
    }

    /// The Go package that holds the program's `main`.
    fn package(self) -> String {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3".into(),
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok".into(),
            Self::MetricsServer => "sigs.k8s.io/metrics-server/cmd/metrics-server".into(),
            Self::MetricsAdapter => ".".into(),
            Self::LocalPathProvisioner => LOCAL_PATH_PROVISIONER.main.into(),
            Self::OlderKubeApiserver => Self::KubeApiserver.package(),
            kubernetes => format!("k8s.io/kubernetes/cmd/{}", kubernetes.name()),
        }
    }

    /// Strips the program, and sets the version of Kubernetes programs, which the API server needs to serve at all.
    fn linker_flags(self) -> String {
        let mut flags = String::from("-s -w");
        let module = self.module();
        if module.main == KUBERNETES.main {
            let version = module.version();
            let mut parts = version.trim_start_matches('v').split('.');
            let [major, minor] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                for (name, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)] {
                    flags.push_str(&format!(" -X {package}.{name}={value}"));
                }
            }
        }
        flags
    }

    /// Where `KUBEBUILDER_ASSETS` stands: `Some(true)` if the program must be there, `Some(false)` if it may be.
    fn expected_among_assets(self) -> Option<bool> {
        match self {
            Self::Etcd | Self::KubeApiserver | Self::Kubectl => Some(true),
            Self::KubeScheduler | Self::KubeControllerManager => Some(false),
            Self::Kwok
            | Self::MetricsServer
            | Self::MetricsAdapter
            | Self::LocalPathProvisioner
            | Self::OlderKubeApiserver => None,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the programs of one control plane are.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    paths: BTreeMap<Program, PathBuf>,
    kwok_stages: PathBuf,
    kwok_usage: PathBuf,
}

impl Programs {
    /// The path of a requested program.
    pub fn path(&self, program: Program) -> Option<&Path> {
        self.paths.get(&program).map(PathBuf::as_path)
    }

    /// The file with kwok's stages of nodes and pods.
    pub(crate) fn kwok_stages(&self) -> &Path {
        &self.kwok_stages
    }

    /// The file with which kwok reports the usage of pods.
    pub(crate) fn kwok_usage(&self) -> &Path {
        &self.kwok_usage
    }
}

/// Where programs are taken from and kept.
#[derive(Clone, Debug)]
pub struct BinaryCache {
    cache: PathBuf,
    assets: Option<PathBuf>,
    go: PathBuf,
}

impl BinaryCache {
    /// The cache that the environment describes (`KELEUSTES_CACHE`, `XDG_CACHE_HOME`, `HOME`, `KUBEBUILDER_ASSETS`).
    pub fn from_env() -> Self {
        Self::from_vars(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
    }

    fn from_vars(var: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let cache = var("KELEUSTES_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("keleustes")))
            .or_else(|| var("HOME").map(|dir| dir.join(".cache/keleustes")))
            .unwrap_or_else(|| std::env::temp_dir().join("keleustes"));
        Self { cache, assets: var("KUBEBUILDER_ASSETS"), go: "go".into() }
    }

    /// The folder of the programs built from the module files as they are now.
    pub fn built_dir(&self) -> PathBuf {
        self.cache.join("control-plane").join(sources::cache_key())
    }

    /// The folder of lock files by which control planes reserve ports.
    pub(crate) fn port_claims(&self) -> PathBuf {
        self.cache.join("ports")
    }

    /// Finds all programs wanted, and builds those that are missing with progress on standard error.
    pub fn provide(&self, wanted: &[Program]) -> Result<Programs> {
        let (found, missing) = self.locate(wanted)?;
        if missing.is_empty() {
            return Ok(found);
        }
        let shelf = self.cache.join("control-plane");
        fs::create_dir_all(&shelf).during(|| format!("creating {}", shelf.display()))?;
        let _lock = locked(&shelf.join("lock"))?;
        // Another process may have built some of it while we waited for the lock.
        let (_, missing) = self.locate(wanted)?;
        self.build_all(&shelf, &missing)?;
        match self.locate(wanted)? {
            (found, missing) if missing.is_empty() => Ok(found),
            (_, missing) => Err(Error::Build {
                program: names(&missing),
                tail: format!("nothing appeared in {}", self.built_dir().display()),
            }),
        }
    }

    fn locate(&self, wanted: &[Program]) -> Result<(Programs, Vec<Program>)> {
        let built = self.built_dir();
        let mut programs = Programs {
            kwok_stages: built.join(STAGES),
            kwok_usage: built.join(USAGE),
            ..Programs::default()
        };
        let mut missing = Vec::new();
        for &program in wanted {
            if let Some(path) = self.asset(program)? {
                programs.paths.insert(program, path);
            } else if built.join(program.file_name()).is_file() {
                programs.paths.insert(program, built.join(program.file_name()));
            } else {
                missing.push(program);
            }
        }
        Ok((programs, missing))
    }

    fn asset(&self, program: Program) -> Result<Option<PathBuf>> {
        let (Some(dir), Some(required)) = (&self.assets, program.expected_among_assets()) else {
            return Ok(None);
        };
        let path = dir.join(program.name());
        if path.is_file() {
            Ok(Some(path))
        } else if required {
            Err(Error::AssetMissing { dir: dir.clone(), program: program.to_string() })
        } else {
            Ok(None)
        }
    }

    /// Builds in a folder of its own beside the finished programs, so that a finished one is moved with one rename.
    fn build_all(&self, shelf: &Path, missing: &[Program]) -> Result<()> {
        remove_leftovers(shelf);
        let work = tempfile::Builder::new()
            .prefix(LEFTOVER)
            .tempdir_in(shelf)
            .during(|| format!("creating a directory in {}", shelf.display()))?;
        let built = self.built_dir();
        fs::create_dir_all(&built).during(|| format!("creating {}", built.display()))?;
        if let Some(first) = missing.first() {
            self.check_go(&first.module().write_to(work.path())?, names(missing))?;
        }
        let mut progress = Progress::begin(missing, &built);
        for &program in missing {
            let module = program.module().write_to(work.path())?;
            progress.next(program);
            match program {
                Program::Kwok => self.copy_from_kwok(work.path(), &STAGE_FOLDERS, &built.join(STAGES))?,
                Program::MetricsServer => {
                    self.copy_from_kwok(work.path(), &USAGE_FOLDERS, &built.join(USAGE))?;
                }
                _ => {}
            }
            let fresh = self.build_one(program, &module, work.path(), &mut progress)?;
            let path = built.join(program.file_name());
            fs::rename(fresh, &path).during(|| format!("writing {}", path.display()))?;
        }
        progress.end();
        Ok(())
    }

    fn build_one(
        &self,
        program: Program,
        module: &Path,
        work: &Path,
        progress: &mut Progress,
    ) -> Result<PathBuf> {
        // Not just the name: the folder of the module may be called the same.
        let fresh = work.join(format!("{program}.fresh"));
        let log = work.join(format!("{program}.log"));
        let mut command = self.go(module);
        command.args(["build", "-ldflags", &program.linker_flags(), "-o"]).arg(&fresh).arg(program.package());
        let mut build = Process::spawn("go", &command, &log)?;
        let status = loop {
            match build.wait_exit(Duration::from_secs(1)) {
                Err(Error::StillRunning { .. }) => progress.tick(),
                ended => break ended?,
            }
        };
        if status.success() {
            Ok(fresh)
        } else {
            Err(Error::Build { program: program.to_string(), tail: tail_of(&log) })
        }
    }

    /// `-mod=readonly`: a build that would need other modules than those written down fails instead of fetching them.
    fn go(&self, module: &Path) -> Command {
        let mut command = Command::new(&self.go);
        command
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            .env("GOFLAGS", "-mod=readonly -buildvcs=false -trimpath");
        command
    }

    /// Asks inside the module, where Go answers with the version it would switch itself to.
    fn check_go(&self, module: &Path, wanted: String) -> Result<()> {
        let oldest = minor_version(KUBERNETES.oldest_go());
        let needed = oldest.map_or_else(String::new, |(major, minor)| format!("{major}.{minor}"));
        let answer = match self.go(module).args(["env", "GOVERSION"]).output() {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::GoMissing { needed, wanted });
            }
            answer => answer.during(|| "asking Go for its version")?,
        };
        let said = String::from_utf8_lossy(&answer.stdout);
        let version = said.split("go").nth(1).and_then(minor_version);
        if answer.status.success() && version >= oldest {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&answer.stderr);
        let found = [said.trim(), complaint.trim()].into_iter().filter(|part| !part.is_empty());
        Err(Error::GoTooOld { needed, wanted, found: found.collect::<Vec<_>>().join(": ") })
    }

    /// Takes manifests out of the same module kwok is built from, and joins them into one file.
    fn copy_from_kwok(&self, work: &Path, folders: &[&str], file: &Path) -> Result<()> {
        let asked = || "asking Go where the module of kwok is";
        let module = KWOK.write_to(work)?;
        let answer =
            self.go(&module).args(["mod", "download", "-json", "sigs.k8s.io/kwok"]).output().during(asked)?;
        let parsed: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        let Some(source) = parsed["Dir"].as_str() else {
            let said = [answer.stdout, answer.stderr].concat();
            return Err(Error::Refused {
                what: asked().into(),
                said: String::from_utf8_lossy(&said).into_owned(),
            });
        };
        let joined = joined_manifests(&Path::new(source).join("kustomize"), folders)?;
        let fresh = work.join("joined.yaml");
        fs::write(&fresh, joined)
            .and_then(|()| fs::rename(&fresh, file))
            .during(|| format!("writing {}", file.display()))
    }
}

/// The stages of kwok, beside its executable.
const STAGES: &str = "kwok-stages.yaml";

/// Nodes get ready and renew their leases, pods run and complete, all as soon as possible.
const STAGE_FOLDERS: [&str; 3] = ["stage/node/fast", "stage/node/heartbeat-with-lease", "stage/pod/fast"];

/// The metrics of kwok's nodes, beside its executable.
const USAGE: &str = "kwok-usage.yaml";

/// Annotations of pods say what they use, and nodes report it as kubelets do.
const USAGE_FOLDERS: [&str; 2] = ["metrics/resource", "metrics/usage"];

/// The name prefix of build folders.
const LEFTOVER: &str = "building-";

fn joined_manifests(root: &Path, folders: &[&str]) -> Result<String> {
    let mut joined = String::new();
    for folder in folders {
        let dir = root.join(folder);
        let entries = fs::read_dir(&dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut files: Vec<_> =
            entries.during(|| format!("reading {}", dir.display()))?.iter().map(fs::DirEntry::path).collect();
        files.sort();
        for file in files {
            let is_yaml = file.extension().is_some_and(|extension| extension == "yaml");
            if !is_yaml || file.ends_with("kustomization.yaml") {
                continue;
            }
            let stage = fs::read_to_string(&file).during(|| format!("reading {}", file.display()))?;
            joined.push_str("---\n");
            joined.push_str(stage.trim_end());
            joined.push('\n');
        }
    }
    Ok(joined)
}

/// `1.26.8`, `1.27rc1` and `1.26` are all of a minor version.
fn minor_version(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.trim().split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Waits until no other process builds, and keeps others from building while the file is held.
fn locked(path: &Path) -> Result<File> {
    let file = File::create(path).during(|| format!("creating {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("another process is building the control plane; waiting for it to finish");
        file.lock().during(|| format!("locking {}", path.display()))?;
    }
    Ok(file)
}

/// Removes leftovers of interrupted builds; the caller holds the lock, so no build is running.
fn remove_leftovers(shelf: &Path) {
    let entries = fs::read_dir(shelf).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(LEFTOVER)) {
        // What cannot be removed costs disk space and nothing else.
        let _ = fs::remove_dir_all(entry.path());
    }
}

fn names(programs: &[Program]) -> String {
    programs.iter().map(|program| program.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
