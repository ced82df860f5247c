//! The published Go modules the programs come from, carried inside this crate.
//!
//! The module files are compiled in and copied to a fresh directory for each build. So a build can never rewrite the
//! committed `go.sum`, and works wherever this program was moved to.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{During, Result};

/// A folder of `control-plane/` in the repository.
pub(crate) struct Module {
    /// The folder's name.
    pub(crate) name: &'static str,
    /// The module whose version the programs have.
    pub(crate) main: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// The name and text of its only source file.
    source: (&'static str, &'static str),
}

macro_rules! module {
    ($name:literal, $main:literal) => {
        module!($name, $main, "tools.go")
    };
    ($name:literal, $main:literal, $source:literal) => {
        Module {
            name: $name,
            main: $main,
            go_mod: include_str!(concat!("../../../control-plane/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../../../control-plane/", $name, "/go.sum")),
            source: ($source, include_str!(concat!("../../../control-plane/", $name, "/", $source))),
        }
    };
}

/// kube-apiserver, kube-scheduler, kube-controller-manager and kubectl.
pub(crate) const KUBERNETES: Module = module!("kubernetes", "k8s.io/kubernetes");
/// etcd, the store.
pub(crate) const ETCD: Module = module!("etcd", "go.etcd.io/etcd/server/v3");
/// kwok, which plays kubelets.
pub(crate) const KWOK: Module = module!("kwok", "sigs.k8s.io/kwok");

/// metrics-server, which measures pods through their kubelets.
pub(crate) const METRICS_SERVER: Module = module!("metrics-server", "sigs.k8s.io/metrics-server");
/// An adapter that serves custom and external metrics.
pub(crate) const METRICS_ADAPTER: Module =
    module!("metrics-adapter", "sigs.k8s.io/custom-metrics-apiserver", "main.go");

/// The API server of the minor version before.
pub(crate) const OLDER_KUBERNETES: Module = module!("kubernetes-1.36", "k8s.io/kubernetes");

/// Rancher's provisioner of volumes on the disks of nodes.
pub(crate) const LOCAL_PATH_PROVISIONER: Module =
    module!("local-path-provisioner", "github.com/rancher/local-path-provisioner");

/// The program about pod templates, in a folder of the module of Kubernetes.
pub(crate) const TEMPLATES: [(&str, &str); 3] = [
    ("main.go", include_str!("../../../control-plane/kubernetes/templates/main.go")),
    ("fields.go", include_str!("../../../control-plane/kubernetes/templates/fields.go")),
    ("answer.go", include_str!("../../../control-plane/kubernetes/templates/answer.go")),
];

/// The program about certificates, in a folder of the module of Kubernetes.
pub(crate) const CERTIFICATES: [(&str, &str); 1] =
    [("main.go", include_str!("../../../control-plane/kubernetes/certificates/main.go"))];

/// The program about volumes and claims, in a folder of the module of Kubernetes.
pub(crate) const VOLUMES: [(&str, &str); 1] =
    [("main.go", include_str!("../../../control-plane/kubernetes/volumes/main.go"))];

/// The program about bootstrap tokens and their signatures, in a folder of the module of Kubernetes.
pub(crate) const JWS_CHECK: [(&str, &str); 1] =
    [("main.go", include_str!("../../../control-plane/kubernetes/jws-check/main.go"))];

/// The program about the type checking of policies, in a folder of the module of Kubernetes.
pub(crate) const CEL: [(&str, &str); 1] =
    [("main.go", include_str!("../../../control-plane/kubernetes/cel/main.go"))];

/// Distinguishes programs built from different sources.
pub(crate) fn sources_key(sources: &[(&str, &str)]) -> String {
    format!("{:016x}", digest(sources.iter().flat_map(|(name, source)| [*name, *source])))
}

/// The program about autoscalers, in folders of the module of Kubernetes.
pub(crate) const HORIZONTAL_POD_AUTOSCALER: [(&str, &str); 2] = [
    (
        "horizontal-pod-autoscaler/main.go",
        include_str!("../../../control-plane/kubernetes/horizontal-pod-autoscaler/main.go"),
    ),
    (
        "podautoscaler/situation.go",
        include_str!("../../../control-plane/kubernetes/podautoscaler/situation.go"),
    ),
];

/// The program about CronJobs, in folders of the module of Kubernetes.
pub(crate) const CRON_JOBS: [(&str, &str); 2] = [
    ("cron-jobs/main.go", include_str!("../../../control-plane/kubernetes/cron-jobs/main.go")),
    ("cronjob/step.go", include_str!("../../../control-plane/kubernetes/cronjob/step.go")),
];

impl Module {
    /// The version of the module the programs are built from, such as `v1.37.1`.
    pub(crate) fn version(&self) -> &'static str {
        let required = self.go_mod.lines().find_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            (words.next() == Some(self.main)).then(|| words.next()).flatten()
        });
        required.unwrap_or("unknown")
    }

    /// Distinguishes what is built from different files of the module.
    pub(crate) fn key(&self) -> String {
        sources_key(&[("go.mod", self.go_mod), ("go.sum", self.go_sum), self.source])
    }

    /// The oldest Go that builds this module, such as `1.26.0`.
    pub(crate) fn oldest_go(&self) -> &'static str {
        self.go_mod.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("unknown").trim()
    }

    /// Copies the module to a folder of its name in `dir`.
    pub(crate) fn write_to(&self, dir: &Path) -> Result<PathBuf> {
        let dir = dir.join(self.name);
        let write = |file: &str, content: &str| fs::write(dir.join(file), content);
        fs::create_dir_all(&dir)
            .and_then(|()| write("go.mod", self.go_mod))
            .and_then(|()| write("go.sum", self.go_sum))
            .and_then(|()| write(self.source.0, self.source.1))
            .during(|| format!("writing {}", dir.display()))?;
        Ok(dir)
    }
}

/// The name of the folder the built programs are kept in: readable versions, and a digest of all that goes into them.
pub(crate) fn cache_key() -> String {
    let modules = [&KUBERNETES, &ETCD, &KWOK];
    let inputs = modules.iter().flat_map(|module| [module.go_mod, module.go_sum]);
    let digest = digest(inputs.chain([std::env::consts::OS, std::env::consts::ARCH, RECIPE]));
    let [kubernetes, etcd, kwok] = modules.map(Module::version);
    let bare = |version: &'static str| version.trim_start_matches('v');
    format!("{kubernetes}-etcd{}-kwok{}-{digest:016x}", bare(etcd), bare(kwok))
}

/// Raise this when the way of building changes in a manner that makes programs built before unfit.
const RECIPE: &str = "1";

/// FNV-1a: stable across releases of Rust, which the hashers of std do not promise.
fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    let bytes = texts.into_iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_module_files() {
        assert_eq!(KUBERNETES.version(), "v1.37.1");
        assert_eq!(ETCD.version(), "v3.6.8");
        assert_eq!(KWOK.version(), "v0.8.0");
        assert_eq!(METRICS_SERVER.version(), "v0.9.0");
        assert_eq!(METRICS_ADAPTER.version(), "v1.37.0");
        assert_eq!(LOCAL_PATH_PROVISIONER.version(), "v0.0.30");
        assert_eq!(OLDER_KUBERNETES.version(), "v1.36.4");
        assert_eq!(KUBERNETES.oldest_go(), "1.26.0");
    }

    #[test]
    fn the_cache_key_shows_the_versions_and_is_the_name_of_one_folder() {
        let key = cache_key();
        assert!(key.starts_with("v1.37.1-etcd3.6.8-kwok0.8.0-"), "{key}");
        assert!(!key.contains('/'), "{key}");
        assert_eq!(key, cache_key());
    }

    #[test]
    fn digest_distinguishes_inputs_and_their_borders() {
        assert_ne!(digest(["a", "b"]), digest(["a", "c"]));
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
        assert_eq!(digest([]), 0xcbf2_9ce4_8422_2325);
    }

    /// Every staging module must come from the same release as the module that uses it.
    #[test]
    fn the_published_staging_modules_have_the_version_of_kubernetes() {
        for module in [KUBERNETES, OLDER_KUBERNETES] {
            let wanted = module.version().replacen("v1.", "v0.", 1);
            let replaced: Vec<&str> = module.go_mod.lines().filter(|line| line.contains(" => ")).collect();
            assert!(replaced.len() > 30, "{replaced:?}");
            for line in replaced {
                assert!(line.ends_with(&wanted), "{line}");
            }
        }
    }

    #[test]
    fn a_module_is_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let written = KWOK.write_to(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(written.join("go.mod")).unwrap(), KWOK.go_mod);
        assert_eq!(fs::read_to_string(written.join("go.sum")).unwrap(), KWOK.go_sum);
        assert!(fs::read_to_string(written.join("tools.go")).unwrap().contains("sigs.k8s.io/kwok/cmd/kwok"));
    }
}
