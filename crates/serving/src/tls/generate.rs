//! Generates a self-signed serving certificate.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize, SanType,
};

use super::files::Pair;
use crate::ServingError;

/// A generated certificate is valid from this long before now, for clients whose clocks lag.
const VALID_BEFORE_NOW: Duration = Duration::from_secs(60 * 60);
const VALID_FOR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Generates a certificate like the original's: a leaf for `localhost`, issued by a CA that is used only for
/// it.
///
/// Parity: staging/src/k8s.io/client-go/util/cert/cert.go (GenerateSelfSignedCertKey).
pub(super) fn generate(bind_address: IpAddr, now: SystemTime) -> Result<Pair, ServingError> {
    let generated = || -> Result<Pair, rcgen::Error> {
        let generated_at = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // The CA key signs once and is discarded. An RSA key for the CA took a third of the CPU time of a
        // start.
        let authority_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut authority = valid_from(now, format!("localhost-ca@{generated_at}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
        ];
        let authority = CertifiedIssuer::self_signed(authority, authority_key)?;

        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let mut leaf = valid_from(now, format!("localhost@{generated_at}"));
        leaf.key_usages = vec![KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.subject_alt_names = vec![
            SanType::DnsName(Ia5String::try_from("localhost")?),
            SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
        ];
        if !bind_address.is_unspecified() && bind_address != IpAddr::from([127, 0, 0, 1]) {
            leaf.subject_alt_names.push(SanType::IpAddress(bind_address));
        }
        let leaf = leaf.signed_by(&key, &authority)?;
        Ok(Pair {
            certificate: format!("{}{}", leaf.pem(), authority.pem()).into_bytes(),
            key: key.serialize_pem().into_bytes(),
        })
    };
    generated().map_err(|error| ServingError::Generate(error.to_string()))
}

fn valid_from(now: SystemTime, common_name: String) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = (now - VALID_BEFORE_NOW).into();
    params.not_after = (now + VALID_FOR).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// Writes the pair, the key readable by its owner only. The key is written first: if the second write fails,
/// the next start reports an incomplete pair instead of serving a certificate without a key.
pub(super) fn store(directory: &Path, certificate: &Path, key: &Path, pair: &Pair) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    write_new(key, &pair.key, 0o600)?;
    write_new(certificate, &pair.certificate, 0o644).inspect_err(|_| {
        // An incomplete pair would fail the next start; if this removal fails, too, that start reports it.
        let _ = fs::remove_file(key);
    })
}

fn write_new(file: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

    use super::*;

    /// Proves SRV-15.
    #[test]
    fn generated_certificate_has_the_originals_shape() {
        let now = UNIX_EPOCH + Duration::from_secs(1_794_733_201);
        let pair = generate("192.0.2.7".parse().unwrap(), now).unwrap();
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&pair.certificate).collect::<Result<_, _>>().unwrap();
        assert_eq!(chain.len(), 2, "leaf and its issuer");
        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        let (_, issuer) = X509Certificate::from_der(&chain[1]).unwrap();
        assert_eq!(leaf.subject().to_string(), "CN=localhost@1794733201");
        assert_eq!(leaf.issuer().to_string(), "CN=localhost-ca@1794733201");
        assert_eq!(issuer.subject(), leaf.issuer());
        assert!(issuer.is_ca() && !leaf.is_ca());
        assert_eq!(leaf.validity().not_before.timestamp(), 1_794_733_201 - 3600);
        assert_eq!(leaf.validity().not_after.timestamp(), 1_794_733_201 + 365 * 86400);
        let names = &leaf.subject_alternative_name().unwrap().unwrap().value.general_names;
        let wanted = [
            GeneralName::DNSName("localhost"),
            GeneralName::IPAddress(&[127, 0, 0, 1]),
            GeneralName::IPAddress(&[192, 0, 2, 7]),
        ];
        assert_eq!(names[..], wanted);
        match leaf.public_key().parsed().unwrap() {
            x509_parser::public_key::PublicKey::RSA(key) => assert_eq!(key.key_size(), 2048),
            other => panic!("{other:?}"),
        }
    }
}
