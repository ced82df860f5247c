//! Pairs that load, pairs that do not, and what is signed. The judge compares the certificates with the original's.

use std::path::PathBuf;

use keleustes_x509::builder::RequestBuilder;
use keleustes_x509::{CertificateRequest, pem};

use super::*;

const NANOSECONDS: i128 = 1_000_000_000;
/// 2027-01-15T08:00:00Z.
const NOW: i128 = 1_800_000_000 * NANOSECONDS;

struct Pair {
    certificate: String,
    key: String,
}

/// A CA of this name, or a certificate that is none.
fn pair_of(name: &str, algorithm: &'static rcgen::SignatureAlgorithm, is_ca: bool) -> Pair {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    if is_ca {
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    parameters.not_before = rcgen::date_time_ymd(2040, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2045, 12, 31);
    Pair { certificate: parameters.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

fn pair(name: &str) -> Pair {
    pair_of(name, &rcgen::PKCS_ECDSA_P256_SHA256, true)
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(pair: &Pair) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write("crt", &pair.certificate);
        files.write("key", &pair.key);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn load(&self) -> Result<Arc<CertificateSigner>, String> {
        CertificateSigner::load(&self.path("crt"), &self.path("key"))
    }
}

/// A request that is signed with its own key.
fn job() -> SigningJob {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n");
    let request = parameters.serialize_request(&key).unwrap().pem().unwrap();
    let request = CertificateRequest::from_pem(request.as_bytes()).unwrap();
    SigningJob { request, usages: vec!["client auth".to_owned()], life: 3600 * NANOSECONDS, now: NOW }
}

/// Whether a CA's name is in a certificate.
fn is_issued_by(certificate: &str, name: &str) -> bool {
    let der = pem::blocks(certificate.as_bytes()).next().unwrap().bytes;
    der.windows(name.len()).any(|window| window == name.as_bytes())
}

/// Proves CSRS-27, CSRS-45, CSRS-54, CSRS-89.
#[test]
fn any_certificate_signs_with_a_random_serial_number() {
    let algorithms = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ];
    for algorithm in algorithms {
        // It is no CA's, and it is not valid yet.
        let signer = Files::new(&pair_of("first", algorithm, false));
        let signer = signer.load().unwrap();
        let (one, other) = (signer.sign_here(&job()).unwrap(), signer.sign_here(&job()).unwrap());
        assert!(
            one.starts_with("-----BEGIN CERTIFICATE-----\n") && one.ends_with("-----END CERTIFICATE-----\n")
        );
        assert_eq!(pem::blocks(one.as_bytes()).count(), 1);
        assert!(is_issued_by(&one, "first") && one != other);
    }
}

/// Proves CSRS-26, CSRS-94, CSRS-106, CSRS-107.
#[test]
fn request_signature_is_verified_before_anything_else() {
    let signer = Files::new(&pair("ca"));
    let signer = signer.load().unwrap();
    let mut forged = job();
    forged.request.signature[0] ^= 1;
    forged.usages = vec!["unheard of".to_owned()];
    let begins = "unable to verify certificate request signature: ";
    let error = signer.sign_here(&forged).unwrap_err();
    assert_eq!(error, format!("{begins}x509: Ed25519 verification failure"));
    let mut other_key = job();
    other_key.request.public_key = job().request.public_key;
    assert!(signer.sign_here(&other_key).is_err(), "the key of another request");
    forged.request.signature[0] ^= 1;
    forged.now = NOW * 4;
    assert_eq!(signer.sign_here(&forged).unwrap_err(), "unrecognized usage values: [\"unheard of\"]");
    forged.usages.clear();
    assert!(
        signer.sign_here(&forged).unwrap_err().starts_with("the signer has expired: NotAfter=2045-12-31 ")
    );
    let with = |algorithm, public_key| {
        let mut request = job().request;
        request.signature_algorithm = algorithm;
        request.public_key = public_key;
        verify_signature(&request).unwrap_err()
    };
    use keleustes_x509::{Hash, PublicKey, SignatureAlgorithm};
    let rsa = |bytes: usize| PublicKey::Rsa { modulus: vec![0xff; bytes], exponent: 65_537 };
    let unimplemented = "x509: cannot verify signature: algorithm unimplemented";
    assert_eq!(with(None, rsa(256)), unimplemented);
    assert_eq!(with(Some(SignatureAlgorithm::Ed25519), PublicKey::Unsupported), unimplemented);
    let md5 = "x509: cannot verify signature: insecure algorithm MD5-RSA";
    assert_eq!(with(Some(SignatureAlgorithm::Rsa(Hash::Md5)), rsa(256)), md5);
    let sha1 = Some(SignatureAlgorithm::Rsa(Hash::Sha1));
    assert_eq!(with(sha1, rsa(256)), "crypto/rsa: verification error", "SHA-1 is examined");
    assert!(with(sha1, rsa(64)).starts_with("crypto/rsa: 512-bit keys are insecure"));
    assert!(with(sha1, rsa(1025)).contains("more than 8192 bits"));
    let mismatch = with(Some(SignatureAlgorithm::Ecdsa(Hash::Sha256)), rsa(256));
    assert!(mismatch.ends_with("specifies an ECDSA public key, but have public key of type *rsa.PublicKey"));
}

/// Proves CSRS-9, CSRS-10, CSRS-85, CSRS-86, CSRS-88.
#[test]
fn only_one_certificate_with_its_key_loads() {
    let (ca, other) = (pair("ca"), pair("other"));
    let load = |certificate: &str, key: &str| {
        let files = Files::new(&Pair { certificate: certificate.to_owned(), key: key.to_owned() });
        let folder = files.0.path().display().to_string();
        files.load().map(|_| ()).map_err(|error| error.replace(&folder, "F"))
    };
    assert_eq!(load(&ca.certificate, &ca.key), Ok(()));
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let text = format!("text\n{parameters}{}more", ca.certificate);
    assert_eq!(load(&text, &format!("{parameters}{}", ca.key)), Ok(()), "other blocks and text");
    let error = |text: &str| Err(format!("error reading CA cert file \"F/crt\": {text}"));
    let mismatch = "tls: private key does not match public key";
    assert_eq!(load(&ca.certificate, &other.key), error(mismatch));
    assert_eq!(load(&format!("{}{}", other.certificate, ca.certificate), &ca.key), error(mismatch));
    let two = format!("{}{}", ca.certificate, other.certificate);
    let found =
        "error reading CA cert file \"csr-controller::F/crt::F/key\": expected 1 certificate, found 2";
    assert_eq!(load(&two, &ca.key), Err(found.to_owned()));
    assert_eq!(load("x", &ca.key), error("tls: failed to find any PEM data in certificate input"));
    assert_eq!(load(&ca.certificate, "x"), error("tls: failed to find any PEM data in key input"));
    assert!(load(&ca.key, &ca.certificate).unwrap_err().ends_with("PEM inputs may have been switched"));
    let encrypted = ca.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let mislabelled = ca.key.replace("PRIVATE KEY", "RSA PRIVATE KEY");
    for wrong in [encrypted, mislabelled] {
        let text = load(&ca.certificate, &wrong).unwrap_err();
        assert!(text.ends_with("data does not contain a valid RSA or ECDSA private key"), "{text}");
    }
    let garbage = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(load(&ca.certificate, garbage), error("tls: failed to parse private key"));
    assert!(load(&ca.certificate, "").unwrap_err().contains("missing content for serving cert"));
}

/// Proves CSRS-75, CSRS-76, CSRS-77, CSRS-113, CSRS-115.
#[test]
fn replaced_pair_signs_once_it_matches() {
    let (old, new) = (pair("old"), pair("new"));
    let files = Files::new(&old);
    let signer = files.load().unwrap();
    let issuer = || {
        let certificate = signer.sign_here(&job()).unwrap();
        if is_issued_by(&certificate, "new") { "new" } else { "old" }
    };
    assert_eq!(issuer(), "old");
    files.write("crt", &new.certificate);
    assert_eq!(issuer(), "old", "the key is not replaced yet");
    files.write("key", &new.key[..40]);
    assert_eq!(issuer(), "old", "half-written");
    std::fs::remove_file(files.path("key")).unwrap();
    assert_eq!(issuer(), "old", "removed");
    files.write("key", &new.key);
    assert_eq!(issuer(), "new");
    files.write("crt", &format!("{}{}", new.certificate, old.certificate));
    let error = signer.sign_here(&job()).unwrap_err();
    assert!(error.ends_with("expected 1 certificate, found 2"), "no CA signs: {error}");
    files.write("crt", &new.certificate);
    assert_eq!(issuer(), "new");
}

#[test]
fn key_is_not_printed() {
    let ca = pair("ca");
    let secret = |text: &str| SecretBytes::from(text.as_bytes().to_vec());
    let authority = CertificateAuthority::from_pem(&secret(&ca.certificate), &secret(&ca.key), "x").unwrap();
    let printed = format!("{authority:?}");
    assert!(printed.contains("certificate") && printed.ends_with(".. }") && !printed.contains("PRIVATE"));
    let unsigned = RequestBuilder::for_ed25519(&[1; 32]).to_pem_unsigned();
    assert!(CertificateRequest::from_pem(unsigned.as_bytes()).is_ok());
}
