//! The options of the PersistentVolume binder: recycler pod templates from files, and the file system of this host.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use keleustes_controllers::persistentvolume_binder::{
    HostFiles, PersistentVolumeBinderOptions, RecyclerOptions, RecyclerPodOptions,
};
use keleustes_options::VolumeBinder;
use serde_json::Value;

/// The binder's options.
///
/// # Errors
/// A template file is missing or no pod with a volume.
pub(crate) fn settings(flags: &VolumeBinder) -> anyhow::Result<PersistentVolumeBinderOptions> {
    let recycler = &flags.recycler;
    Ok(PersistentVolumeBinderOptions {
        sync_period: flags.sync_period.to_std(),
        enable_dynamic_provisioning: flags.enable_dynamic_provisioning,
        enable_hostpath_provisioner: flags.enable_hostpath_provisioner,
        recycler: RecyclerOptions {
            host_path: RecyclerPodOptions {
                template: template(&recycler.pod_template_filepath_hostpath)?,
                minimum_seconds: recycler.minimum_timeout_hostpath,
                increment_seconds: recycler.timeout_increment_hostpath,
            },
            nfs: RecyclerPodOptions {
                template: template(&recycler.pod_template_filepath_nfs)?,
                minimum_seconds: recycler.minimum_timeout_nfs,
                increment_seconds: recycler.increment_timeout_nfs,
            },
        },
        host_files: Some(Arc::new(ThisHost)),
    })
}

/// The pod of a template file; `None` if there is no file.
fn template(file: &str) -> anyhow::Result<Option<Value>> {
    if file.is_empty() {
        return Ok(None);
    }
    let context = || format!("could not create the recycler pod template from file {file}");
    let text = std::fs::read_to_string(file).with_context(context)?;
    let pod: Value = serde_saphyr::from_str(&text).with_context(context)?;
    if pod["kind"] != "Pod" || pod["apiVersion"] != "v1" {
        bail!("{}: it is no v1 Pod", context());
    }
    if pod["spec"]["volumes"].as_array().is_none_or(Vec::is_empty) {
        bail!("{}: the pod has no volume", context());
    }
    Ok(Some(pod))
}

/// The file system of the host that this process runs on.
struct ThisHost;

impl HostFiles for ThisHost {
    fn create_directory(&self, path: &str) -> Result<(), String> {
        let created = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(path);
        created.map_err(|error| error.to_string())
    }

    fn remove_all(&self, path: &str) -> Result<(), String> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                std::fs::remove_file(path).map_err(|error| error.to_string())
            }
            removed => removed.map_err(|error| error.to_string()),
        }
    }

    fn new_uuid(&self) -> String {
        let (one, two) = (crate::process_context::seed(), crate::process_context::seed());
        let (version, variant) = (one & 0xfff | 0x4000, two >> 48 & 0x3fff | 0x8000);
        format!(
            "{:08x}-{:04x}-{version:04x}-{variant:04x}-{:012x}",
            one >> 32,
            one >> 16 & 0xffff,
            two & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves PVB-9.
    #[test]
    fn recycler_pod_template_must_be_a_readable_pod_with_a_volume() {
        let directory = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let file = directory.path().join("pod.yaml");
            std::fs::write(&file, text).unwrap();
            template(&file.display().to_string())
        };
        assert_eq!(template("").unwrap(), None);
        assert!(template("/nonexistent/pod.yaml").is_err());
        for invalid in [
            "",
            "kind: [",
            "kind: Pod\napiVersion: v1\n",
            "kind: Job\napiVersion: v1\nspec: {volumes: [{name: v}]}",
        ] {
            assert!(read(invalid).is_err(), "{invalid:?}");
        }
        let pod = read("kind: Pod\napiVersion: v1\nspec:\n  volumes:\n  - name: v\n").unwrap().unwrap();
        assert_eq!(pod["spec"]["volumes"][0]["name"], "v");
    }

    /// Proves PVB-7.
    #[test]
    fn defaults_of_the_flags_are_those_of_the_options() {
        let read = |args: &[&str]| {
            let args = args.iter().map(Into::into);
            settings(&crate::command::read(args).unwrap_or_else(|_| panic!("refused")).volume_binder).unwrap()
        };
        let (read, usual) = (read(&[]), PersistentVolumeBinderOptions::default());
        assert!(read.enable_dynamic_provisioning && !read.enable_hostpath_provisioner);
        assert_eq!((read.sync_period, read.recycler), (usual.sync_period, usual.recycler));
    }

    #[test]
    fn directories_are_created_and_removed() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(ThisHost.new_uuid()).display().to_string();
        ThisHost.create_directory(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
        std::fs::write(format!("{path}/data"), "x").unwrap();
        ThisHost.remove_all(&path).unwrap();
        assert!(!std::path::Path::new(&path).exists());
        ThisHost.remove_all(&path).unwrap();
        assert_ne!(ThisHost.new_uuid(), ThisHost.new_uuid());
    }
}
