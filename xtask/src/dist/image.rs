//! An image of one file, written as an archive that podman, docker, containerd and CRI-O load.
//!
//! An OCI image of one layer is a tar archive of that layer and three JSON documents that name each other by digest. Writing
//! them takes no container engine, no base image and no privileges, and the same program gives the same bytes.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::digest::sha256;
use super::revision::Revision;

/// Where the program is inside the image.
const PROGRAM: &str = "usr/local/bin/kube-controller-manager";

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// What an image is made of.
pub(super) struct Image<'a> {
    /// The static program.
    pub(super) program: &'a [u8],
    /// Name and tag: `keleustes/kube-controller-manager:0.1.0`.
    pub(super) reference: &'a str,
    /// Our version.
    pub(super) version: &'a str,
    /// The processor as Go calls it: `amd64`.
    pub(super) architecture: &'a str,
    /// The commit it is built from.
    pub(super) revision: &'a Revision,
}

/// A document or layer, stored under its digest.
struct Blob {
    media_type: &'static str,
    bytes: Vec<u8>,
    digest: String,
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest = sha256(&bytes);
        Self { media_type, bytes, digest }
    }

    fn json(media_type: &'static str, document: &Value) -> Self {
        Self::new(media_type, document.to_string().into_bytes())
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": format!("sha256:{}", self.digest), "size": self.bytes.len()})
    }
}

impl Image<'_> {
    /// The archive.
    ///
    /// # Errors
    /// None in practice: everything happens in memory.
    pub(super) fn archive(&self) -> Result<Vec<u8>> {
        let layer = Blob::new(LAYER_TYPE, self.layer()?);
        let config = Blob::json(CONFIG_TYPE, &self.config(&layer));
        let manifest = Blob::json(
            MANIFEST_TYPE,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": config.descriptor(),
                "layers": [layer.descriptor()],
            }),
        );
        let mut entry = manifest.descriptor();
        entry["annotations"] = json!({
            // podman reads the first name, containerd the second.
            "org.opencontainers.image.ref.name": self.reference,
            "io.containerd.image.name": format!("docker.io/{}", self.reference),
        });
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        // Docker before version 25 reads this document instead of the index.
        let docker =
            json!([{"Config": config.path(), "RepoTags": [self.reference], "Layers": [layer.path()]}]);
        let mut files = vec![
            ("oci-layout".to_owned(), json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes()),
            ("index.json".to_owned(), index.to_string().into_bytes()),
            ("manifest.json".to_owned(), docker.to_string().into_bytes()),
        ];
        files.extend([config, manifest, layer].map(|blob| (blob.path(), blob.bytes)));
        let files: Vec<_> =
            files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice(), 0o644)).collect();
        archive(&files, self.revision.seconds)
    }

    fn layer(&self) -> Result<Vec<u8>> {
        archive(&[(PROGRAM, self.program, 0o755)], self.revision.seconds)
    }

    fn config(&self, layer: &Blob) -> Value {
        json!({
            "created": self.revision.date,
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "Entrypoint": ["/usr/local/bin/kube-controller-manager"],
                // A manifest's `command` names the program without its folder, as with the original's image.
                "Env": ["PATH=/usr/local/bin"],
                "ExposedPorts": {"10257/tcp": {}},
                "Labels": {
                    "org.opencontainers.image.title": "kube-controller-manager",
                    "org.opencontainers.image.description": "Keleustes, a kube-controller-manager in Rust",
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.version": self.version,
                    "org.opencontainers.image.revision": self.revision.commit,
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)]},
            "history": [{"created": self.revision.date, "created_by": "cargo xtask dist"}],
        })
    }
}

/// A tar archive of files that belong to root, with one date.
fn archive(files: &[(&str, &[u8], u32)], seconds: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, bytes, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(*mode);
        header.set_mtime(seconds);
        archive.append_data(&mut header, path, *bytes).with_context(|| format!("adding {path}"))?;
    }
    archive.into_inner().context("ending an archive")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn files_of(archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, mode) = (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap());
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(path, (mode, bytes));
        }
        files
    }

    fn example() -> Vec<u8> {
        let revision = Revision {
            commit: "0123abcd".to_owned(),
            date: "2026-01-31T23:59:59Z".to_owned(),
            seconds: 1_769_903_999,
            changed: false,
        };
        let image = Image {
            program: b"a program",
            reference: "keleustes/kube-controller-manager:0.1.0",
            version: "0.1.0",
            architecture: "amd64",
            revision: &revision,
        };
        image.archive().unwrap()
    }

    /// The document or layer that a descriptor points to, after checking its size and digest.
    fn follow(files: &BTreeMap<String, (u32, Vec<u8>)>, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let (_, bytes) = &files[&format!("blobs/sha256/{digest}")];
        assert_eq!(sha256(bytes), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes.clone()
    }

    #[test]
    fn index_leads_to_an_image_with_one_executable_file() {
        let files = files_of(&example());
        let index: Value = serde_json::from_slice(&files["index.json"].1).unwrap();
        let manifest: Value = serde_json::from_slice(&follow(&files, &index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&follow(&files, &manifest["config"])).unwrap();
        let layer = follow(&files, &manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(config["config"]["Entrypoint"], json!([format!("/{PROGRAM}")]));
        assert_eq!(
            files_of(&layer).into_iter().collect::<Vec<_>>(),
            [(PROGRAM.to_owned(), (0o755, b"a program".to_vec()))]
        );
    }

    #[test]
    fn old_docker_finds_the_same_image() {
        let files = files_of(&example());
        let documents: Value = serde_json::from_slice(&files["manifest.json"].1).unwrap();
        for path in [&documents[0]["Config"], &documents[0]["Layers"][0]] {
            assert!(files.contains_key(path.as_str().unwrap()), "{path}");
        }
    }

    #[test]
    fn same_program_gives_the_same_bytes() {
        assert_eq!(sha256(&example()), sha256(&example()));
    }
}
