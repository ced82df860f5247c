//! What the certificate controllers need from files and from discovery: it is read when the process becomes leader, so
//! that a standby with broken files keeps running.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::anyhow;
use http::Method;
use keleustes_client::Call;
use keleustes_controllers::certificates as signers;
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::{
    self as publisher, ClusterTrustBundlePublisherOptions, ClusterTrustBundleVersion,
};
use keleustes_options::Options;
use keleustes_plan::Controller;
use keleustes_runtime::certificates::CertificateSigner;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::signing::sha256;

const SIGNING: &str = "certificatesigningrequest-signing-controller";

/// A CA that is loaded when the process becomes leader.
type LateAuthority = Arc<OnceLock<Arc<CertificateSigner>>>;

/// A signer, its files and its CA.
struct SignerFiles {
    name: &'static str,
    certificate: PathBuf,
    key: PathBuf,
    authority: LateAuthority,
}

/// What is read when the process becomes leader.
pub(crate) struct LateStart {
    signers: Vec<SignerFiles>,
    publisher: ClusterTrustBundlePublisherOptions,
}

impl LateStart {
    /// From flags and the CA bundle of the API server.
    pub(crate) fn new(options: &Options, root_ca: &[u8]) -> Self {
        Self { signers: signer_files(options), publisher: publisher_options(root_ca) }
    }

    /// The options of the signing controller; `None` if no signer has files.
    pub(crate) fn signing_options(
        &self,
        options: &Options,
    ) -> Option<CertificateSigningRequestSigningOptions> {
        let signer = |files: &SignerFiles| {
            let authority = files.authority.clone();
            let sign = move |job| -> keleustes_plan::BoxFuture<'static, Result<String, String>> {
                let loaded = authority.get().cloned();
                Box::pin(async move {
                    match loaded {
                        Some(authority) => authority.sign(job).await,
                        None => Err("the CA is not loaded".to_owned()),
                    }
                })
            };
            BuiltInSigner { name: files.name, sign: Arc::new(sign) }
        };
        let signers: Vec<_> = self.signers.iter().map(signer).collect();
        let duration_nanoseconds = options.cluster_signing.duration.nanoseconds().into();
        (!signers.is_empty())
            .then_some(CertificateSigningRequestSigningOptions { signers, duration_nanoseconds })
    }

    /// The options of the trust bundle publisher.
    pub(crate) fn publisher_options(&self) -> ClusterTrustBundlePublisherOptions {
        self.publisher.clone()
    }

    /// Checks the files that these controllers read when the process becomes leader.
    ///
    /// # Errors
    /// The controller that cannot start, and why.
    pub(crate) fn check_files(&self, mut names: impl Iterator<Item = &'static str>) -> Result<(), String> {
        if names.any(|name| name == SIGNING) {
            self.load_authorities().map_err(|error| format!("{SIGNING}: {error:#}"))?;
        }
        Ok(())
    }

    /// Reads the files and runs the discovery that these controllers need. A controller that cannot run on this API
    /// server is left out.
    ///
    /// # Errors
    /// Why the process cannot lead, in the original's words.
    pub(crate) async fn complete(
        &self,
        members: Vec<Controller>,
        process: &ProcessContext,
    ) -> anyhow::Result<Vec<Controller>> {
        if members.iter().any(|controller| controller.name == SIGNING) {
            self.load_authorities()?;
        }
        let mut completed = Vec::with_capacity(members.len());
        for controller in members {
            if controller.name == publisher::NAME {
                completed.extend(self.publisher_for(&controller, process).await?);
            } else {
                completed.push(controller);
            }
        }
        Ok(completed)
    }

    fn load_authorities(&self) -> anyhow::Result<()> {
        for signer in &self.signers {
            let same =
                |other: &&SignerFiles| other.certificate == signer.certificate && other.key == signer.key;
            let loaded = self.signers.iter().filter(same).find_map(|other| other.authority.get().cloned());
            let loaded = loaded.map_or_else(|| CertificateSigner::load(&signer.certificate, &signer.key), Ok);
            let name = signer.name;
            let loaded =
                loaded.map_err(|error| anyhow!("failed to init {name} certificate controller: {error}"))?;
            // A second term of the same process finds the pair loaded; its files are read before each use.
            let _ = signer.authority.set(loaded);
        }
        Ok(())
    }

    /// The publisher with the first version that the API server serves.
    async fn publisher_for(
        &self,
        controller: &Controller,
        process: &ProcessContext,
    ) -> anyhow::Result<Option<Controller>> {
        let client = process.factory.for_controller(controller.service_account.unwrap_or_default());
        for version in ClusterTrustBundleVersion::ALL {
            let is_served = is_served(&client, version).await;
            if is_served.map_err(|error| anyhow!("discovery failed for ClusterTrustBundle: {error}"))? {
                let options = ClusterTrustBundlePublisherOptions { version, ..self.publisher.clone() };
                return Ok(publisher::controller(&options));
            }
        }
        tracing::info!(
            controller = publisher::NAME,
            "no known scheme version was found for clustertrustbundles, controller is not started"
        );
        Ok(None)
    }
}

/// Whether the API server serves ClusterTrustBundles in a version.
async fn is_served(
    client: &kube::Client,
    version: ClusterTrustBundleVersion,
) -> Result<bool, keleustes_objects::ApiError> {
    let path = match version {
        ClusterTrustBundleVersion::V1 => "/apis/certificates.k8s.io/v1",
        ClusterTrustBundleVersion::V1Beta1 => "/apis/certificates.k8s.io/v1beta1",
        ClusterTrustBundleVersion::V1Alpha1 => "/apis/certificates.k8s.io/v1alpha1",
    };
    match Call::raw(Method::GET, path).send(client).await {
        Ok(found) => {
            let resources = found["resources"].as_array();
            Ok(resources.into_iter().flatten().any(|resource| resource["name"] == "clustertrustbundles"))
        }
        Err(error) if error.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The signers that have files. If any signer has files of its own, the common pair is not used.
fn signer_files(options: &Options) -> Vec<SignerFiles> {
    let flags = &options.cluster_signing;
    let own = [
        (signers::KUBELET_SERVING, &flags.kubelet_serving),
        (signers::KUBE_APISERVER_CLIENT_KUBELET, &flags.kubelet_client),
        (signers::KUBE_APISERVER_CLIENT, &flags.kube_apiserver_client),
        (signers::LEGACY_UNKNOWN, &flags.legacy_unknown),
    ];
    let is_any_own = own.iter().any(|(_, files)| !files.cert_file.is_empty() || !files.key_file.is_empty());
    let files = own.map(|(name, files)| (name, if is_any_own { files } else { &flags.all }));
    files
        .into_iter()
        .filter(|(_, files)| !files.cert_file.is_empty() && !files.key_file.is_empty())
        .map(|(name, files)| SignerFiles {
            name,
            certificate: Path::new(&files.cert_file).to_owned(),
            key: Path::new(&files.key_file).to_owned(),
            authority: LateAuthority::default(),
        })
        .collect()
}

fn publisher_options(root_ca: &[u8]) -> ClusterTrustBundlePublisherOptions {
    let mut ca_hash = [0; 12];
    ca_hash.copy_from_slice(&sha256(root_ca)[..12]);
    ClusterTrustBundlePublisherOptions {
        ca: String::from_utf8_lossy(root_ca).into(),
        ca_hash,
        version: ClusterTrustBundleVersion::default(),
    }
}

#[cfg(test)]
mod tests;
