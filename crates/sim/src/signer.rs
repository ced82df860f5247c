//! A signer of certificates for storms: no key, no randomness, and certificates that parse.

use keleustes_plan::BoxFuture;
use keleustes_x509::certificate::{SigningAlgorithm, validity, with_signature};
use keleustes_x509::{Certificate, IssuedCertificate, KeyUsages, PublicKey, SigningJob, pem};

/// The longest life of a certificate in a storm, in seconds.
pub const LONGEST_LIFE_SECONDS: i64 = 7200;

/// Signs a certificate; its serial number and its signature derive from the request.
#[must_use]
pub fn sign(job: SigningJob) -> BoxFuture<'static, Result<String, String>> {
    Box::pin(async move { sign_now(&job) })
}

pub(crate) fn sign_now(job: &SigningJob) -> Result<String, String> {
    let authority = Certificate {
        subject: vec![0x30, 0],
        not_before: 0,
        not_after: i64::MAX,
        subject_key_id: Vec::new(),
        public_key: PublicKey::Ed25519(vec![0; 32]),
    };
    let issued = IssuedCertificate {
        authority: &authority,
        serial: job.now.to_be_bytes(),
        validity: validity(job.now, job.life, i64::MAX)?,
        subject: &job.request.subject,
        alt_names: &job.request.alt_names,
        public_key: &job.request.public_key,
        usages: KeyUsages::from_names(job.usages.iter().map(String::as_str))?,
    };
    let algorithm = SigningAlgorithm::Ed25519;
    let to_be_signed = issued.to_be_signed(algorithm).ok_or("certificates cannot contain this key")?;
    Ok(pem::encode("CERTIFICATE", &with_signature(to_be_signed, algorithm, &[0; 64])))
}
