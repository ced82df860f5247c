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

/// A CA on P-224, which `rcgen` does not generate.
const P224: (&str, &str) = (include_str!("p224.crt"), include_str!("p224.key"));

/// Proves CSRS-53.
#[test]
fn signature_algorithm_follows_from_the_key_of_the_ca() {
    // The algorithm after `1.2.840.10045.4.3.`, or the whole identifier.
    let ecdsa = |number: u8| vec![0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, number];
    let rsa = [&[0x30, 13, 6, 9][..], &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], &[5, 0]].concat();
    let ed25519 = vec![0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
    for (algorithm, identifier) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, ecdsa(2)),
        (&rcgen::PKCS_ECDSA_P384_SHA384, ecdsa(3)),
        (&rcgen::PKCS_ECDSA_P521_SHA512, ecdsa(4)),
        (&rcgen::PKCS_ED25519, ed25519),
        (&rcgen::PKCS_RSA_SHA256, rsa),
    ] {
        // The CA's own certificate is signed by another key with another algorithm.
        let root_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let root = rcgen::Issuer::new(rcgen::CertificateParams::default(), root_key);
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate = rcgen::CertificateParams::default().signed_by(&key, &root).unwrap().pem();
        let files = Files::new(&Pair { certificate, key: key.serialize_pem() });
        let issued = files.load().unwrap().sign_here(&job()).unwrap();
        let der = pem::blocks(issued.as_bytes()).next().unwrap().bytes;
        let found = der.windows(identifier.len()).filter(|window| **window == identifier[..]).count();
        // Ed25519 is also the algorithm of the certified key.
        let wanted = if algorithm == &rcgen::PKCS_ED25519 { 3 } else { 2 };
        assert_eq!(found, wanted, "{algorithm:?}");
    }
}

/// `ECPrivateKey`, the content of the last octet string of PKCS #8.
fn p224_as_pkcs8() -> String {
    use keleustes_x509::der::{INTEGER, OBJECT_ID, OCTET_STRING, element, sequence};
    let sec1 = pem::blocks(P224.1.as_bytes()).next().unwrap().bytes;
    let id = |id: &[u8]| element(OBJECT_ID, id);
    let algorithm =
        sequence(&[id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]), id(keleustes_x509::Curve::P224.object_id())]);
    pem::encode("PRIVATE KEY", &sequence(&[element(INTEGER, &[0]), algorithm, element(OCTET_STRING, &sec1)]))
}

/// Proves CSRS-53, CSRS-106. The judge lets the original verify such signatures.
#[test]
fn keys_on_p224_sign_with_sha256_and_are_certified() {
    for key in [P224.1.to_owned(), p224_as_pkcs8()] {
        let files = Files::new(&Pair { certificate: P224.0.to_owned(), key });
        let issued = files.load().unwrap().sign_here(&job()).unwrap();
        let der = pem::blocks(issued.as_bytes()).next().unwrap().bytes;
        let identifier = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
        assert_eq!(der.windows(identifier.len()).filter(|window| **window == identifier).count(), 2);
    }
    let other = pair_of("other", &rcgen::PKCS_ECDSA_P256_SHA256, true);
    let files = Files::new(&Pair { certificate: other.certificate, key: P224.1.to_owned() });
    assert!(files.load().err().unwrap().ends_with("tls: private key does not match public key"));

    use keleustes_x509::der::{OBJECT_ID, bits, element, sequence};
    let secret = |text: &str| SecretBytes::from(text.as_bytes().to_vec());
    let authority = CertificateAuthority::from_pem(&secret(P224.0), &secret(P224.1), "x").unwrap();
    let keleustes_x509::PublicKey::Ecdsa { point, .. } = &authority.certificate().public_key else {
        panic!("no ECDSA key");
    };
    let id = |id: &[u8]| element(OBJECT_ID, id);
    let curve = id(keleustes_x509::Curve::P224.object_id());
    let algorithm = sequence(&[id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]), curve]);
    let builder =
        RequestBuilder { key_info: sequence(&[algorithm, bits(point)]), ..Default::default() }.kubelet("n");
    let mut signature = authority.sign(&builder.to_be_signed()).unwrap();
    let sha256 = sequence(&[id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2])]);
    let verified = |signature: &[u8]| {
        let request = builder.to_pem(&sha256, signature);
        verify_signature(&CertificateRequest::from_pem(request.as_bytes()).unwrap())
    };
    assert_eq!(verified(&signature), Ok(()));
    *signature.last_mut().unwrap() ^= 1;
    assert_eq!(verified(&signature).unwrap_err(), "x509: ECDSA verification failure");
    assert!(verified(&[]).is_err() && verified(&[0x30, 0]).is_err());
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

/// Changes a few bytes. The numbers come from a linear congruential generator, so that a failure can be repeated.
fn mutate(state: &mut u64, bytes: &mut Vec<u8>) {
    let mut draw = |below: usize| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).unwrap_or(0) % below.max(1)
    };
    for _ in 0..=draw(3) {
        let at = draw(bytes.len());
        match draw(4) {
            _ if bytes.is_empty() => bytes.push(0),
            0 => bytes[at] ^= 1 << draw(8),
            1 => bytes[at] = [0, 0x30, 0x7f, 0x80, 0x84, 0xff][draw(6)],
            2 => bytes.insert(at, u8::try_from(draw(256)).unwrap_or(0)),
            _ => drop(bytes.remove(at)),
        }
    }
}

/// Whatever is changed in a signed request, it is refused with a reason, in bounded time.
#[test]
fn ten_thousand_mutated_requests_get_no_certificate() {
    let signer = Files::new(&pair("ca"));
    let signer = signer.load().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n");
    let original = parameters.serialize_request(&key).unwrap().der().to_vec();
    let sign = |der: &[u8]| {
        let request = CertificateRequest::from_pem(pem::encode("CERTIFICATE REQUEST", der).as_bytes());
        let request = request.map_err(|error| error.to_string())?;
        let usages = vec!["client auth".to_owned()];
        signer.sign_here(&SigningJob { request, usages, life: 3600 * NANOSECONDS, now: NOW })
    };
    assert!(sign(&original).is_ok());
    let (mut state, mut verified) = (7, 0);
    let began = std::time::Instant::now();
    for number in 0..10_000 {
        let mut der = original.clone();
        mutate(&mut state, &mut der);
        match sign(&der) {
            Ok(_) => assert_eq!(der, original, "number {number} was signed"),
            Err(error) => {
                assert!(!error.is_empty());
                verified +=
                    usize::from(error.starts_with("unable to verify certificate request signature: "));
            }
        }
    }
    assert!(verified > 500, "only {verified} were parsed");
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

/// Loading, signing and reloading with the most verbose log, also of pairs that do not match.
#[test]
fn key_is_in_no_log_and_loose_file_modes_are_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let (log, _capturing) = keleustes_test_log::TestLog::capture(tracing::Level::TRACE);
    let (old, new) = (pair("old"), pair("new"));
    let files = Files::new(&old);
    let mode =
        |mode| std::fs::set_permissions(files.path("key"), std::fs::Permissions::from_mode(mode)).unwrap();
    let warnings = || log.count(&["WARN", "private key file is accessible to other users", "mode 0600"]);
    mode(0o600);
    let signer = files.load().unwrap();
    assert_eq!(warnings(), 0);
    for loose in [0o640, 0o604, 0o644] {
        mode(loose);
        files.load().unwrap();
    }
    assert_eq!(warnings(), 3);
    assert_eq!(log.count(&["mode=\"0640\""]), 1);
    signer.sign_here(&job()).unwrap();
    files.write("key", &new.key);
    signer.sign_here(&job()).unwrap();
    files.write("key", &new.key[..60]);
    signer.sign_here(&job()).unwrap();
    files.write("key", &new.key);
    files.write("crt", &new.certificate);
    signer.sign_here(&job()).unwrap();
    assert!(log.count(&["Loaded changed files"]) == 1 && log.count(&["cannot use changed files"]) >= 1);
    let text = log.text();
    for line in [&old.key, &new.key].into_iter().flat_map(|key| key.lines()) {
        assert!(line.starts_with("-----") || !text.contains(line), "a line of a key was logged");
    }
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
