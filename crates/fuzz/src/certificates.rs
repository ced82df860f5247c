//! Certificate requests, CA certificates and PEM.

use keleustes_x509::certificate::{IssuedCertificate, SigningAlgorithm, with_signature};
use keleustes_x509::{Certificate, CertificateRequest, KeyUsages, PublicKey, certificates_from_pem, pem};

use crate::choice;

/// PEM, or DER if the first byte is odd.
pub(crate) fn requests(input: &[u8]) {
    let (form, rest) = choice(input);
    if form % 2 == 1 {
        der(rest);
        return;
    }
    let _ = certificates_from_pem(rest);
    let _ = CertificateRequest::from_pem(rest);
    for block in pem::blocks(rest) {
        der(&block.bytes);
        let encoded = pem::encode("CERTIFICATE REQUEST", &block.bytes);
        let again = pem::blocks(encoded.as_bytes()).next().map(|block| block.bytes);
        assert_eq!(again.as_deref(), Some(&*block.bytes), "PEM");
        assert_eq!(
            CertificateRequest::from_pem(encoded.as_bytes()),
            CertificateRequest::from_der(&block.bytes)
        );
    }
}

fn der(der: &[u8]) {
    let _ = Certificate::from_der(der);
    let Ok(request) = CertificateRequest::from_der(der) else { return };
    let authority = Certificate {
        subject: request.subject.to_der(),
        not_before: 0,
        not_after: 4_102_444_800,
        subject_key_id: vec![1; 20],
        public_key: PublicKey::Unsupported,
    };
    let issued = IssuedCertificate {
        authority: &authority,
        serial: [1; 16],
        validity: (1_700_000_000, 1_800_000_000),
        subject: &request.subject,
        alt_names: &request.alt_names,
        public_key: &request.public_key,
        usages: KeyUsages::default(),
    };
    // What is issued for a request has its subject and its key.
    let Some(signed) = issued.to_be_signed(SigningAlgorithm::Ed25519) else { return };
    let issued = Certificate::from_der(&with_signature(signed, SigningAlgorithm::Ed25519, &[0; 64]));
    let issued = issued.unwrap_or_else(|error| panic!("the issued certificate cannot be read: {error}"));
    assert_eq!(issued.subject, request.subject.to_der());
    assert_eq!(issued.public_key, request.public_key);
    assert_eq!((issued.not_before, issued.not_after), (1_700_000_000, 1_800_000_000));
}
