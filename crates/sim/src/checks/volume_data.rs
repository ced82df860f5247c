//! The binder destroys the data of a volume only if a live read has shown that the reclaim policy permits it, and if the
//! volume's claim is gone or has another volume.

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::live_volumes::{LiveVolumes, is_by_binder};
use super::objects::{describe, uid};
use crate::recorder::{LiveRead, ObservedWrite, text};

const RECYCLER_PREFIX: &str = "recycler-for-";

/// Compares removed directories and recycler pods with the live reads before them.
#[derive(Default)]
pub struct VolumeData {
    volumes: LiveVolumes,
}

/// Whether the data of a volume, as it was read live, may be destroyed under this reclaim policy.
fn check_released(volume: &Value, policy: &str, server: &ApiServer) -> Result<(), String> {
    let refused = |why: String| Err(format!("the data of {} is destroyed, {why}", describe(volume)));
    let found = text(volume, "/spec/persistentVolumeReclaimPolicy");
    if found != policy {
        return refused(format!("whose reclaim policy is {found}"));
    }
    let claim_uid = text(volume, "/spec/claimRef/uid");
    if claim_uid.is_empty() {
        return refused("which was never bound".to_owned());
    }
    let (namespace, name) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
    // A claim that is gone stays gone, and keeps the volume that it names.
    let claim = server.object("persistentvolumeclaims", namespace, name);
    let uses = |claim: &Value| {
        let names = text(claim, "/spec/volumeName");
        uid(claim) == claim_uid && (names.is_empty() || names == text(volume, "/metadata/name"))
    };
    match claim.filter(|claim| uses(claim)) {
        Some(claim) => refused(format!("which {} uses", describe(&claim))),
        None => Ok(()),
    }
}

impl Checker for VolumeData {
    fn name(&self) -> &'static str {
        "persistentvolume-binder-controller, data"
    }

    fn on_live_read(&mut self, read: &LiveRead<'_>) {
        self.volumes.record(read);
    }

    fn on_removed_directory(&mut self, path: &str, server: &ApiServer) -> Result<(), String> {
        match self.volumes.last_with_directory(path) {
            Some(volume) => check_released(volume, "Delete", server),
            None => Err(format!("{path} is removed, and no volume with it was read live")),
        }
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        self.volumes.record_write(write);
        let creates_pod = write.request.resource == "pods" && write.request.method == Method::POST;
        if !creates_pod || !is_by_binder(write) || !write.succeeded() {
            return Ok(());
        }
        let Some(name) = text(&write.body, "/metadata/name").strip_prefix(RECYCLER_PREFIX) else {
            return Ok(());
        };
        match self.volumes.read_before(write, name).flatten() {
            Some(volume) => check_released(volume, "Recycle", server),
            None => Err(format!("the data of volume {name} is destroyed, which was not read live")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::recorder::RequestInfo;

    const PATH: &str = "/tmp/v";

    fn volume(policy: &str, claim_uid: &str) -> Value {
        let claim_ref = json!({"namespace": "default", "name": "oar", "uid": claim_uid});
        json!({"kind": "PersistentVolume", "metadata": {"name": "v", "uid": "v"}, "spec": {
            "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": PATH}, "claimRef": claim_ref}})
    }

    /// A checker that has observed these live reads, at one second after the other.
    fn checker(reads: &[Option<Value>]) -> VolumeData {
        let mut checker = VolumeData::default();
        let request =
            RequestInfo::parse(&Method::GET, &"/api/v1/persistentvolumes/v".parse().expect("a path"));
        for (at, found) in (1..).zip(reads) {
            checker.on_live_read(&LiveRead {
                at: Duration::from_secs(at),
                process_instance: 1,
                component: "persistent-volume-binder",
                request: &request,
                found: found.as_ref(),
            });
        }
        checker
    }

    fn recycler_pod(sent_at: u64, process_instance: u32) -> ObservedWrite {
        let path = "/api/v1/namespaces/default/pods";
        let mut write = ObservedWrite::of_manager("persistent-volume-binder", &Method::POST, path);
        write.body = json!({"metadata": {"name": "recycler-for-v"}});
        write.send_context.at = Duration::from_secs(sent_at);
        ObservedWrite { process_instance, ..write }
    }

    /// An API server with the claim of the volume, which names this volume.
    fn server_with_claim(names: &str) -> (ApiServer, String) {
        let server = ApiServer::builder().build();
        let metadata = json!({"namespace": "default", "name": "oar"});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {"volumeName": names}});
        server.seed(claim).unwrap();
        let stored = server.object("persistentvolumeclaims", "default", "oar").unwrap();
        (server, uid(&stored).to_owned())
    }

    #[test]
    fn directory_is_removed_only_after_a_live_read_that_permits_it() {
        let server = ApiServer::builder().build();
        let remove = |reads: &[Option<Value>]| {
            checker(reads).on_removed_directory(PATH, &server).err().unwrap_or_default()
        };
        assert_eq!(remove(&[Some(volume("Delete", "c"))]), "");
        assert_eq!(remove(&[Some(volume("Retain", "c")), Some(volume("Delete", "c"))]), "");
        let destroyed = "the data of PersistentVolume /v is destroyed, ";
        let changed = [Some(volume("Delete", "c")), Some(volume("Retain", "c"))];
        assert_eq!(remove(&changed), format!("{destroyed}whose reclaim policy is Retain"));
        assert_eq!(remove(&[Some(volume("Delete", ""))]), format!("{destroyed}which was never bound"));
        assert_eq!(remove(&[None]), "/tmp/v is removed, and no volume with it was read live");
    }

    #[test]
    fn data_of_a_volume_whose_claim_exists_is_not_destroyed() {
        for (names, uses) in [("v", true), ("", true), ("other", false)] {
            let (server, claim_uid) = server_with_claim(names);
            let removed = checker(&[Some(volume("Delete", &claim_uid))]).on_removed_directory(PATH, &server);
            let words =
                "the data of PersistentVolume /v is destroyed, which PersistentVolumeClaim default/oar uses";
            assert_eq!(removed, if uses { Err(words.to_owned()) } else { Ok(()) });
            let earlier = checker(&[Some(volume("Delete", "earlier"))]).on_removed_directory(PATH, &server);
            assert_eq!(earlier, Ok(()), "another claim of that name");
        }
    }

    #[test]
    fn volume_is_recycled_only_after_a_live_read_that_permits_it() {
        let server = ApiServer::builder().build();
        let reads = [Some(volume("Recycle", "c")), Some(volume("Retain", "c"))];
        let create = |sent_at, process| checker(&reads).on_write(&recycler_pod(sent_at, process), &server);
        assert_eq!(create(1, 1), Ok(()), "the policy is changed after the request was sent");
        let words = "the data of PersistentVolume /v is destroyed, whose reclaim policy is Retain";
        assert_eq!(create(2, 1), Err(words.to_owned()));
        let words = "the data of volume v is destroyed, which was not read live";
        assert_eq!(create(1, 2), Err(words.to_owned()), "another process has read it");
        assert_eq!(create(0, 1), Err(words.to_owned()), "it was read afterwards");
    }
}
