//! Signs certificates with the cluster's CA.
//!
//! The private key is loaded from a file and never leaves this module: it is not printed, and its memory is wiped when
//! it is replaced.

mod authority;
mod curve_p224;
mod verify;

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use keleustes_objects::SecretBytes;
use keleustes_x509::certificate::{validity, with_signature};
use keleustes_x509::{IssuedCertificate, KeyUsages, SigningJob, pem};
use tokio::sync::Semaphore;

pub use authority::CertificateAuthority;
pub use verify::verify_signature;

use crate::reloaded_files::{ReloadedFiles, warn_of_loose_mode};

/// A CA whose files may be replaced while the process runs.
pub struct CertificateSigner {
    files: ReloadedFiles<Result<CertificateAuthority, String>>,
    /// Signatures take milliseconds of a core: no more than one is made at a time, so that a flood of requests leaves
    /// the other cores alone.
    permits: Semaphore,
}

impl CertificateSigner {
    /// Loads the pair of certificate and key.
    ///
    /// # Errors
    /// If a file cannot be read, the pair does not match, or it cannot sign. The texts are the original's.
    pub fn load(certificate_file: &Path, key_file: &Path) -> Result<Arc<Self>, String> {
        let name = format!("csr-controller::{}::{}", certificate_file.display(), key_file.display());
        let key = key_file.to_owned();
        let parse = move |contents: &[SecretBytes]| {
            let [certificate, key_pem] = contents else { unreachable!("there are two files") };
            if certificate.is_empty() || key_pem.is_empty() {
                return Err(format!("missing content for serving cert {name:?}"));
            }
            authority::check_pair(certificate, key_pem)?;
            warn_of_loose_mode(&key);
            Ok(CertificateAuthority::from_pem(certificate, key_pem, &name))
        };
        let paths = vec![certificate_file.to_owned(), key_file.to_owned()];
        let files = ReloadedFiles::load(paths, Box::new(parse)).map_err(|error| {
            format!("error reading CA cert file {:?}: {error}", certificate_file.display().to_string())
        })?;
        if let Err(error) = &*files.current() {
            return Err(error.clone());
        }
        Ok(Arc::new(Self { files, permits: Semaphore::new(1) }))
    }

    /// Signs on a thread of its own and returns the certificate as PEM.
    ///
    /// # Errors
    /// Why it is not signed, in the original's words.
    pub async fn sign(self: Arc<Self>, job: SigningJob) -> Result<String, String> {
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        let signer = self.clone();
        let signed = tokio::task::spawn_blocking(move || signer.sign_here(&job)).await;
        signed.unwrap_or_else(|error| Err(format!("failed to sign certificate: {error}")))
    }

    /// Signs on the caller's thread.
    ///
    /// # Errors
    /// As [`Self::sign`].
    pub fn sign_here(&self, job: &SigningJob) -> Result<String, String> {
        let authority = self.files.current();
        let authority = authority.as_ref().as_ref().map_err(Clone::clone)?;
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| {
            format!("unable to generate a serial number for {}", job.request.subject.common_name)
        })?;
        sign(authority, job, serial)
    }
}

/// Signs with a given serial number. Parity: `CertificateAuthority.Sign`.
///
/// # Errors
/// Why it is not signed, in the original's words.
pub fn sign(authority: &CertificateAuthority, job: &SigningJob, serial: [u8; 16]) -> Result<String, String> {
    let request = &job.request;
    verify_signature(request)
        .map_err(|error| format!("unable to verify certificate request signature: {error}"))?;
    let usages = KeyUsages::from_names(job.usages.iter().map(String::as_str))?;
    let validity = validity(job.now, job.life, authority.certificate().not_after)?;
    let issued = IssuedCertificate {
        authority: authority.certificate(),
        serial,
        validity,
        subject: &request.subject,
        alt_names: &request.alt_names,
        public_key: &request.public_key,
        usages,
    };
    let failed = |cause: &str| format!("failed to sign certificate: {cause}");
    let algorithm = authority.algorithm();
    let to_be_signed =
        issued.to_be_signed(algorithm).ok_or_else(|| failed("x509: unsupported public key type"))?;
    let signature = authority.sign(&to_be_signed).map_err(|error| failed(&error))?;
    Ok(pem::encode("CERTIFICATE", &with_signature(to_be_signed, algorithm, &signature)))
}

#[cfg(test)]
mod tests;
